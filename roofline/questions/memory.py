"""Where the bytes of one accelerator go, part by part, and how many sequences are left."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from roofline.advice.acceptance import acceptance_for, acceptance_is_known, idle_prompts
from roofline.advice.configuration import Configuration, Notices
from roofline.advice.decide import TIE, smallest_within_tie
from roofline.advice.deployment import Deployment, deploy
from roofline.advice.question import (
    Question,
    Workload,
    allowed_lengths,
    check_length,
    check_unused,
    context_notices,
    ending,
    ending_value,
    why_drafts_end,
    with_hit_rate,
)
from roofline.advice.readings import Advice, Place, in_other_reading, with_reading
from roofline.advice.recommend import shipped_format_notices
from roofline.advice.remedies import Refused, does_not_fit, refuse
from roofline.base.errors import InputError, Option
from roofline.kernels.footprint import (
    kv_bytes_per_token,
    kv_bytes_read,
    state_bytes_per_sequence,
)
from roofline.specs.formats import bytes_per_element
from roofline.specs.placement import StateHandling
from roofline.timing.memory import Memory, activation_bytes, logits_bytes

__all__ = [
    "EqualMemory",
    "MemoryAccounts",
    "MemoryAnswer",
    "PerSequence",
    "Slots",
    "account",
    "equal_memory",
    "memory_accounts",
    "per_sequence",
    "slots",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class PerSequence:
    """Cache bytes of one sequence, target and drafter apart [B]."""

    target_kv: float
    draft_kv: float
    draft_slots: float  # D + 1 more slots in both
    rounding: float  # whole blocks
    state: float
    snapshots: float  # one more state for each draft token
    per_token: float  # of context, both networks
    read: float  # by a plain pass

    @property
    def reserved(self) -> float:
        """Everything that the engine sets aside for the sequence."""
        cache = self.target_kv + self.draft_kv + self.draft_slots + self.rounding
        return cache + self.state + self.snapshots


@dataclass(frozen=True, kw_only=True, slots=True)
class Slots:
    """The largest batch without speculation and with it."""

    context: int
    draft_length: int
    plain: int
    speculative: int

    @property
    def lost(self) -> float:
        """The share of slots that drafts cost.

        >>> Slots(context=1, draft_length=1, plain=100, speculative=57).lost
        0.43
        """
        return 1 - self.speculative / self.plain if self.plain else 0.0


def per_sequence(
    memory: Memory, *, context: int, draft_length: int, share: float = 1.0, draft_share: float = 1.0
) -> PerSequence:
    """Return the parts of what one sequence reserves; they add up to ``kv_per_sequence``.

    ``share`` is the share of the target's cache that lies on one card, ``draft_share`` that of the
    drafter's.
    """
    placement, target = memory.target.placement, memory.target
    exact = replace(memory, rules=memory.rules.model_copy(update={"kv_block": 1}))
    state = state_bytes_per_sequence(target.model, tp=placement.attention_tp)
    # one copy of a recurrent state for each draft, to undo the rejected ones
    kept = placement.state_handling is StateHandling.SNAPSHOTS
    snapshots = state * draft_length if kept else 0.0
    target_kv = float(exact.target_cache(context - 1, 0)) - state
    # D + 1 slots are taken off the drafter's context
    with_slots = float(exact.target_cache(context, draft_length))
    draft_with_slots = float(exact.draft_cache(context, draft_length))
    draft_kv = float(exact.draft_cache(max(context - draft_length - 1, 0), draft_length))
    network, precision = memory.drafter.network, memory.drafter.precision
    per_token = share * kv_bytes_per_token(
        target.model, target.precision.kv, tp=placement.attention_tp
    )
    if draft_length and network is not None and precision is not None:
        draft_tp = memory.drafter.placement.attention_tp
        per_token += draft_share * kv_bytes_per_token(network, precision.kv, tp=draft_tp)
    rounded = float(memory.target_cache(context, draft_length)) - with_slots
    draft_rounded = float(memory.draft_cache(context, draft_length)) - draft_with_slots
    read = kv_bytes_read(
        target.model, target.precision.kv, context=context, tp=placement.attention_tp
    )
    return PerSequence(
        target_kv=share * target_kv,
        draft_kv=draft_share * draft_kv,
        draft_slots=share * (with_slots - target_kv - state - snapshots)
        + draft_share * (draft_with_slots - draft_kv),
        rounding=share * rounded + draft_share * draft_rounded,
        state=share * state,
        snapshots=share * snapshots,
        per_token=per_token,
        read=share * float(read),
    )


def account(memory: Memory, *, batch: int, context: int, draft_length: int) -> dict[str, float]:
    """Return the bytes of every part at this batch; with ``free`` they add up to the total [B].

    Where the model is split over cards, they are those of the fullest card.
    """
    target, base = memory.target, bytes_per_element(memory.target.precision.base)
    fullest = memory.fullest(batch=batch, context=context, draft_length=draft_length)
    card, draft_card = memory.cards[fullest], memory.draft_cards[fullest]
    sequence = per_sequence(
        memory,
        context=context,
        draft_length=draft_length,
        share=card.caches,
        draft_share=draft_card.caches,
    )
    held = card.weights(memory.held)
    rows = 1 + draft_length
    batch = int(target.placement.local_batch(batch))
    tokens = max(batch * rows, memory.rules.prefill_chunk)
    logits = logits_bytes(batch=batch, rows=rows, vocabulary=target.model.vocab_size, base=base)
    parts = {f"{name.value} weights": size for name, size in held.items() if size}
    parts |= {
        "draft weights": memory.draft_weights * draft_card.layers if draft_length else 0.0,
        "target KV": batch * sequence.target_kv,
        "draft KV": batch * sequence.draft_kv,
        "D + 1 slots": batch * sequence.draft_slots,
        "block rounding": batch * sequence.rounding,
        "state": batch * sequence.state,
        "state snapshots": batch * sequence.snapshots,
        "logits": float(logits) if card.last else 0.0,
        "activations": float(
            activation_bytes(
                target.model, tokens=tokens, tp=target.placement.attention_tp, base=base
            )
        ),
        "engine reserve": memory.rules.reserve,
        "not the engine's": memory.total * (1 - memory.rules.fraction),
    }
    return parts | {"free": memory.total - sum(parts.values())}


def slots(memory: Memory, *, context: int, draft_length: int) -> Slots:
    """Return the largest batches that fit without and with drafts."""
    return Slots(
        context=context,
        draft_length=draft_length,
        plain=memory.largest_batch(context=context, draft_length=0),
        speculative=memory.largest_batch(context=context, draft_length=draft_length),
    )


#: The largest batch that is priced: neither engines nor the laws go further.
LARGEST_BATCH = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualMemory:
    """Tokens per second of the GPU when each side fills it with as many sequences as fit."""

    slots: Slots
    plain: float  # [tokens/s]
    speculative: float  # [tokens/s]
    same_batch: float  # speedup at the batch that fits with drafts
    capped: bool  # more sequences would fit than are priced

    @property
    def gain(self) -> float:
        """Throughput with drafts over throughput without, each at its own largest batch."""
        return self.speculative / self.plain


def equal_memory(
    question: Question, *, context: int, draft_length: int | None
) -> EqualMemory | None:
    """Return the throughput with and without drafts, each at the largest batch that fits.

    ``draft_length`` is the one to compare; None takes the best. The answer is None where no drafts
    fit or where nothing is known of their acceptance.
    """
    memory, known = question.deployment.memory, question.draft_lengths_at(context)
    lengths = [d for d in known if d > 0 and draft_length in (None, d)]
    largest = {d: memory.largest_batch(context=context, draft_length=d) for d in (0, *lengths)}
    batches = {d: min(size, LARGEST_BATCH) for d, size in largest.items() if size}
    if 0 not in batches or len(batches) == 1:
        return None
    sizes, lengths_known = sorted(set(batches.values())), list(known)
    at_context = replace(question, draft_lengths=known)
    priced = at_context.price(sizes, (context,))
    times, tokens = priced.times.total[:, 0], at_context.tokens_per_step((context,))[0]

    def position(length: int) -> tuple[int, int]:
        return sizes.index(batches[length]), lengths_known.index(length)

    def rate(length: int) -> float:
        row, column = position(length)
        return float(batches[length] * tokens[column] / times[row, column])

    def captured(length: int) -> bool:
        row, column = position(length)
        return bool(priced.candidates[row, 0, column])

    usable = [d for d in lengths if d in batches]
    usable = [d for d in usable if captured(d)] or usable
    best, _ = smallest_within_tie(np.array([rate(d) for d in usable]), TIE)
    chosen = usable[int(best)]
    row, column = position(chosen)
    return EqualMemory(
        slots=Slots(
            context=context, draft_length=chosen, plain=largest[0], speculative=largest[chosen]
        ),
        plain=rate(0),
        speculative=rate(chosen),
        same_batch=float(tokens[column] * times[row, 0] / times[row, column]),
        capped=max(largest.values()) > LARGEST_BATCH,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryAnswer:
    """One context: the batches accounted for without and with drafts, and what they yield."""

    deployment: Deployment
    slots: Slots
    batches: tuple[int, int]
    equal: EqualMemory | None

    @property
    def memory(self) -> Memory:
        """Where the bytes of one accelerator go."""
        return self.deployment.memory

    @property
    def sides(self) -> list[tuple[str, int, int]]:
        """Return (name, batch, D) of what is accounted for."""
        plain = ("plain", self.batches[0], 0)
        if self.slots.draft_length == 0 or self.batches[1] == 0:
            return [plain]
        return [plain, (f"D = {self.slots.draft_length}", self.batches[1], self.slots.draft_length)]

    def sequence(self, draft_length: int) -> PerSequence:
        """Return what one sequence holds."""
        return per_sequence(self.memory, context=self.slots.context, draft_length=draft_length)

    def parts(self, batch: int, draft_length: int) -> dict[str, float]:
        """Return the account of one side [B]."""
        return account(
            self.memory, batch=batch, context=self.slots.context, draft_length=draft_length
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryAccounts:
    """The accounts of every context that fits, and what does not."""

    answers: tuple[MemoryAnswer, ...]
    refused: tuple[Refused, ...]
    notices: Notices
    question: Question | None = None  # None where no acceptance is known
    #: The accounts if a list of rates that was typed without a word is conditional, not survival.
    other_reading: MemoryAccounts | None = None


def memory_accounts(
    configuration: Configuration,
    workload: Workload,
    *,
    batch: int | None = None,
    draft_length: int | None = None,
    longest_is_given: bool = False,
) -> MemoryAccounts:
    """Return where memory goes at every context of the workload.

    ``batch`` is accounted for, else the largest that fits; ``draft_length`` is that of the drafts,
    else the one that yields most at equal memory. ``longest_is_given`` is whether the longest draft
    of the workload was asked for.
    """
    _check(configuration, workload, batch, draft_length, longest_is_given=longest_is_given)
    longest, contexts = workload.max_draft_length, workload.contexts
    workload = replace(workload, max_draft_length=max(draft_length or 0, longest))
    deployment, own_notices = deploy(configuration)
    check_unused(deployment, workload)
    notices = [
        *own_notices,
        *context_notices(deployment, contexts),
        *shipped_format_notices(deployment),
    ]
    if draft_length is not None:
        _check_draft_length(deployment, draft_length, workload.max_draft_length)
    unfit = [size for size in contexts if not deployment.memory.has_room(batch or 1, size, 0)]
    if len(unfit) == len(contexts):
        raise does_not_fit(deployment, batch=batch or 1, context=contexts[0])
    question = _with_acceptance(deployment, workload, draft_length)
    notices += question.own_notices if question is not None else ()

    def accounts_of(asked: Question | None) -> MemoryAccounts:
        """Return the accounts with one reading of the acceptance."""
        return MemoryAccounts(
            answers=tuple(
                _memory_answer(deployment, asked, size, batch, draft_length)
                for size in contexts
                if size not in unfit
            ),
            refused=refuse(deployment, [(batch or 1, size) for size in unfit]),
            notices=tuple(notices),
            question=asked,
        )

    accounts = accounts_of(question)
    other = None if question is None else in_other_reading(question)
    if question is None or other is None:
        return accounts
    accounts = replace(accounts, other_reading=accounts_of(other))
    said = with_reading(notices, question.acceptance, _readings(accounts))
    return replace(accounts, notices=said)


def _readings(accounts: MemoryAccounts) -> list[tuple[Place, Advice, Advice]] | None:
    """Return the draft lengths that both readings account for at every context."""
    if accounts.other_reading is None:
        return None
    both = zip(accounts.answers, accounts.other_reading.answers, strict=True)
    return [
        (
            (("context", own.slots.context),),
            Advice(draft_length=own.slots.draft_length),
            Advice(draft_length=other.slots.draft_length),
        )
        for own, other in both
    ]


def _check(
    configuration: Configuration,
    workload: Workload,
    batch: int | None,
    draft_length: int | None,
    *,
    longest_is_given: bool,
) -> None:
    if batch is not None and not 1 <= batch <= 2**40:
        raise InputError("expected a whole number of at least 1", field="batch", value=batch)
    if draft_length is None:
        return
    if not 1 <= draft_length <= 64:
        raise InputError("expected 1 to 64", field="draft_length", value=draft_length)
    if configuration.drafter == "none":
        nothing = Option("drafter", "none")
        raise InputError(f"says nothing with {nothing}", field="draft_length", value=draft_length)
    if longest_is_given and workload.max_draft_length < draft_length:
        longest = Option("max_draft_length", workload.max_draft_length)
        raise InputError(
            f"is above {longest}; leave one out", field="draft_length", value=draft_length
        )


def _check_draft_length(deployment: Deployment, draft_length: int, most: int) -> None:
    """Refuse a draft length that the drafter cannot make."""
    check_length(deployment, draft_length, field="draft_length")
    longest = allowed_lengths(deployment, most)[-1]
    if draft_length > longest:
        end = ending(deployment, most, longest=longest)
        why = why_drafts_end(
            end, drafter=deployment.drafter.name, given=ending_value(deployment, end)
        )
        raise InputError(
            f"expected at most {longest}: {why}", field="draft_length", value=draft_length
        )


def _with_acceptance(
    deployment: Deployment, workload: Workload, draft_length: int | None
) -> Question | None:
    """Return the question, whose acceptance adds throughput; None if no acceptance is known."""
    if acceptance_is_known(deployment, workload):
        acceptance, notices = acceptance_for(deployment, workload)
        deployment, hit_notices = with_hit_rate(deployment, workload, acceptance)
        hit_notices += idle_prompts(workload, acceptance, (*notices, *hit_notices))
        return Question(
            deployment=deployment,
            workload=workload,
            acceptance=acceptance,
            draft_lengths=allowed_lengths(deployment, workload.max_draft_length),
            own_notices=(*notices, *hit_notices),
        )
    if draft_length is None:
        raise InputError(
            f"no acceptance is known for {deployment.drafter.name}, so no best draft length "
            f"either; give {Option('draft_length')} or {Option('acceptance')}",
            field="draft_length",
        )
    return None


def _memory_answer(
    deployment: Deployment,
    question: Question | None,
    context: int,
    batch: int | None,
    draft_length: int | None,
) -> MemoryAnswer:
    """Account for one context; with an acceptance also throughput, and the best draft length."""
    equal = None
    if question is not None:
        equal = equal_memory(question, context=context, draft_length=draft_length)
    length = 0
    if equal is not None:
        length = equal.slots.draft_length
    elif deployment.drafter.kind != "none":
        length = draft_length or 1
    fitting = slots(deployment.memory, context=context, draft_length=length)
    return MemoryAnswer(
        deployment=deployment,
        slots=fitting,
        batches=(batch or fitting.plain, min(batch or fitting.speculative, fitting.speculative)),
        equal=equal,
    )
