"""The answer of ``memory``: its blocks, its rows and its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.base.units import format_bytes, format_count, format_size
from roofline.questions.memory import EqualMemory, MemoryAccounts, MemoryAnswer, PerSequence
from roofline.render.blocks import Answer, Block, Paragraph, Table, Tone
from roofline.render.data import acceptance_data, other_reading_data
from roofline.render.deployment import deployment_data, gpus_named, set_data, set_line
from roofline.render.notices import notes, notes_data
from roofline.render.refusals import refused_blocks, refused_data, refused_details
from roofline.render.why import as_conditional

__all__ = ["answer_blocks", "as_answer", "data", "rows"]

SCHEMA = "roofline.memory/1"


def as_answer(accounts: MemoryAccounts) -> Answer:
    """Return the accounts of all contexts in every form, and which of them do not fit."""
    answers, refused, notices = accounts.answers, accounts.refused, accounts.notices
    return Answer(
        headlines=lambda: [_headline(each) for each in answers],
        blocks=lambda: answer_blocks(accounts),
        notes=notes(notices),
        more=lambda: refused_details(answers[0].deployment, refused),
        data=lambda: data(accounts) | {"notes": notes_data(notices)},
        rows=lambda: rows(answers),
    )


def answer_blocks(accounts: MemoryAccounts) -> list[Block]:
    """Return how many sequences fit at every context, and where the bytes go."""
    blocks = list[Block]()
    for n, answer in enumerate(accounts.answers):
        blocks.append(Paragraph(_headline(answer), tone=Tone.HEADLINE))
        if accounts.other_reading is not None:
            other = accounts.other_reading.answers[n]
            if other.slots.draft_length != answer.slots.draft_length:
                blocks.append(Paragraph(as_conditional(_headline(other))))
        if n == 0:
            blocks += refused_blocks(answer.deployment, accounts.refused)
            blocks.append(Paragraph(_setting(answer)))
        blocks += _account(answer)
    return blocks


def _account(answer: MemoryAnswer) -> list[Block]:
    columns = [answer.parts(batch, length) for _, batch, length in answer.sides]
    names = [name for name in columns[0] if any(column[name] for column in columns)]
    corner = "GB of the fullest GPU" if len(answer.memory.cards) > 1 else "GB of one GPU"
    blocks: list[Block] = [
        Table(
            headings=(corner, *(f"{name}\nbatch {batch}" for name, batch, _ in answer.sides)),
            cells=tuple(
                (name, *(f"{column[name] / 1e9:.2f}" for column in columns)) for name in names
            ),
            align="l",
        ),
        *(Paragraph(_per_sequence(answer, name, length)) for name, _, length in answer.sides),
    ]
    if answer.equal is not None:
        blocks.append(Paragraph(_equal(answer.equal)))
    elif len(answer.sides) > 1:
        line = (
            "Throughput at equal memory needs the acceptance at draft length "
            f"{answer.slots.draft_length}, which is not known."
        )
        blocks.append(Paragraph(line))
    return blocks


def data(accounts: MemoryAccounts) -> dict[str, Any]:
    """Return the accounts as JSON-ready data."""
    deployment = accounts.answers[0].deployment
    return {
        "schema": SCHEMA,
        "inputs": deployment_data(deployment)
        | {"drafter": deployment.drafter.name, "drafter_kind": deployment.drafter.kind},
        "set": set_data(deployment.changes),
        "acceptance": _acceptance(accounts),
        "contexts": [_data(answer) for answer in accounts.answers],
        "refused": refused_data(accounts.refused),
    }


def _acceptance(accounts: MemoryAccounts) -> dict[str, Any] | None:
    """Return what the acceptance was made of, with its other reading; None where none is known."""
    if accounts.question is None:
        return None
    own, other = acceptance_data(accounts.question), accounts.other_reading
    if other is None or other.question is None:
        return own | other_reading_data(None, ())
    contexts = [
        {
            "context": answer.slots.context,
            "draft_length": answer.slots.draft_length,
            "headline": _headline(answer),
        }
        for answer in other.answers
    ]
    return own | other_reading_data(other.question.acceptance, accounts.notices, contexts=contexts)


def rows(answers: Sequence[MemoryAnswer]) -> list[dict[str, Any]]:
    """Return a row for every context, without drafts and with them; sizes in bytes."""
    found = []
    for answer in answers:
        sequences = (answer.slots.plain, answer.slots.speculative)
        for (_, batch, length), largest in zip(answer.sides, sequences, strict=False):
            parts = answer.parts(batch, length)
            sequence = _sequence_data(answer.sequence(length))
            found.append(
                {
                    "context": answer.slots.context,
                    "draft_length": length,
                    "batch": batch,
                    "largest_batch": largest,
                    **{_key(name): size for name, size in parts.items()},
                    **{f"sequence_{name}_bytes": size for name, size in sequence.items()},
                }
            )
    return found


def _key(part: str) -> str:
    """Return the column of a part of the account.

    >>> _key("D + 1 slots"), _key("not the engine's")
    ('d_plus_1_slots_bytes', 'not_the_engines_bytes')
    """
    words = part.lower().replace("+", "plus").replace("'", "").split()
    return f"{'_'.join(words)}_bytes"


def _data(answer: MemoryAnswer) -> dict[str, Any]:
    equal, slots = answer.equal, answer.slots
    data: dict[str, Any] = {
        "context": slots.context,
        "draft_length": slots.draft_length,
        "largest_batch": slots.plain,
        "largest_batch_speculative": slots.speculative,
        "slots_lost": slots.lost,
        "accounts": [
            {
                "batch": batch,
                "draft_length": length,
                "bytes": answer.parts(batch, length),
                "per_sequence": _sequence_data(answer.sequence(length)),
            }
            for _, batch, length in answer.sides
        ],
        "equal_memory": None,
    }
    if equal is not None:
        data["equal_memory"] = {
            "plain_tokens_per_s": equal.plain,
            "speculative_tokens_per_s": equal.speculative,
            "gain": equal.gain,
            "speedup_at_equal_batch": equal.same_batch,
        }
    return data


def _sequence_data(sequence: PerSequence) -> dict[str, float]:
    return {
        "reserved": sequence.reserved,
        "fixed": sequence.state + sequence.snapshots,
        "per_token": sequence.per_token,
        "read": sequence.read,
    }


def _headline(answer: MemoryAnswer) -> str:
    """Return how many sequences fit, without speculation and with it."""
    slots, context = answer.slots, format_size(answer.slots.context)
    fit = "fits" if slots.plain == 1 else "fit"
    start = f"At context {context}, {format_count(slots.plain, 'sequence')} {fit}"
    if slots.draft_length == 0:
        return f"{start}."
    return (
        f"{start} without speculation, {slots.speculative} with draft length "
        f"{slots.draft_length}: drafts take the room of {slots.lost:.1%} of the sequences."
    )


def _setting(answer: MemoryAnswer) -> str:
    deployment, rules = answer.deployment, answer.memory.rules
    drafter = f"; drafter {deployment.drafter.name}" if answer.slots.draft_length else ""
    return (
        f"{deployment.target.model.name} on {gpus_named(deployment)}; {deployment.engine.name} "
        f"takes {rules.fraction:.0%} of {format_bytes(answer.memory.total)} "
        f"({rules.source.partition(':')[0]}){drafter}.{set_line(deployment.changes)}"
    )


def _per_sequence(answer: MemoryAnswer, name: str, draft_length: int) -> str:
    sequence = answer.sequence(draft_length)
    fixed = sequence.state + sequence.snapshots
    start = f"{format_bytes(fixed)} fixed and " if fixed else ""
    return (
        f"A sequence, {name}: {format_bytes(sequence.reserved)} reserved ({start}"
        f"{format_bytes(sequence.per_token)} for each token of context where no window caps it); a "
        f"plain pass reads {format_bytes(sequence.read)} of the target's cache."
    )


def _equal(equal: EqualMemory) -> str:
    slots = equal.slots
    capped = " (batches capped at 4096)" if equal.capped else ""
    return (
        f"At equal memory{capped}: {equal.plain:.0f} tokens/s plain at batch {slots.plain}, "
        f"{equal.speculative:.0f} with draft length {slots.draft_length} at batch "
        f"{slots.speculative}: {equal.gain:.2f}x, against {equal.same_batch:.2f}x at equal batch."
    )
