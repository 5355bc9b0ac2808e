"""What does not fit: how much is missing, and the nearest changes that help, each tried out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from roofline.advice.configuration import load_documents
from roofline.advice.deployment import Deployment, deploy
from roofline.base.errors import DoesNotFitError, InputError, Option
from roofline.base.resources import bundled_names
from roofline.base.units import format_bytes, format_size, format_unlike
from roofline.kernels.forward import cpu_expert_bytes
from roofline.kernels.matrices import used_components
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.gpu import HOST_SHELF, HostProfile, load_host
from roofline.timing.memory import Memory

__all__ = [
    "Refused",
    "Remedy",
    "does_not_fit",
    "explain_refusal",
    "longest_context",
    "refuse",
    "remedies_phrase",
    "spelled_remedy",
]

#: The most GPUs that are tried: linked by the accelerator's own links, and in the host's slots.
MOST_LINKED, MOST_CARDS = 64, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """A change to the question, and the largest batch that fits with it at the refused context."""

    field: str
    value: str
    largest_batch: int
    beside: tuple[tuple[str, str], ...] = ()  # what else is changed with it: field and value

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        """All that is changed, field and value."""
        return (*self.beside, (self.field, self.value))


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A batch and context that do not fit, and what helps. Sizes are those of the fullest GPU [B].

    Where the host has no room for the experts beside the processor, they are the host's.
    """

    batch: int
    context: int
    draft_length: int  # 0: plain decoding does not fit; else the drafter does not fit beside it
    needed: float
    available: float
    on_host: bool
    largest_batch: int  # as asked; 0 where not even one sequence fits
    largest_with_drafts: int  # as asked, with draft length 1 or that of the refusal
    remedies: tuple[Remedy, ...]  # for the largest batch refused at the context


def refuse(
    deployment: Deployment, points: Iterable[tuple[int, int]], *, draft_length: int = 0
) -> tuple[Refused, ...]:
    """Return what is missing at each (batch, context) that does not fit at ``draft_length``.

    Where plain decoding does not fit either, it is what plain decoding needs.
    """
    memory, batches_at = deployment.memory, dict[tuple[int, int], list[int]]()
    if memory.available <= 0:
        raise InputError(
            f"leaves nothing of {format_bytes(memory.total)} beside what {deployment.engine.name} "
            "keeps for itself; give a larger share",
            field="memory_fraction",
            value=f"{memory.rules.fraction:g}",
        )
    for batch, context in points:
        drafts = draft_length if memory.has_room(batch, context, 0) else 0
        batches_at.setdefault((context, drafts), []).append(batch)
    if not batches_at:
        return ()
    memory_with, refusals = _memory_with(deployment), list[Refused]()
    for (context, drafts), batches in batches_at.items():
        remedies = tuple(_remedies(deployment, memory_with, max(batches), context, drafts))
        largest = memory.largest_batch(context=context, draft_length=drafts)
        drafting = memory.drafter.kind != "none"
        with_drafts = memory.largest_batch(context=context, draft_length=max(drafts, int(drafting)))
        for batch in batches:
            needed, available = float(memory.needed(batch, context, drafts)), memory.available
            if memory.host is not None and memory.host_is_short:
                needed, available = memory.on_host, memory.host.usable
            refused = Refused(
                batch=batch,
                context=context,
                draft_length=drafts,
                needed=needed,
                available=available,
                on_host=memory.host_is_short,
                largest_batch=largest,
                largest_with_drafts=with_drafts,
                remedies=remedies,
            )
            refusals.append(refused)
    return tuple(refusals)


def does_not_fit(
    deployment: Deployment, *, batch: int, context: int, draft_length: int = 0
) -> DoesNotFitError:
    """Return the error that says what is missing at one batch and context, and what helps."""
    (refused,) = refuse(deployment, [(batch, context)], draft_length=draft_length)
    return DoesNotFitError(
        f"{deployment.target.model.id} on {deployment.gpu.id}: "
        f"{explain_refusal(deployment.memory, refused)}; "
        f"{remedies_phrase(refused)}"
    )


def remedies_phrase(refused: Refused) -> str:
    """Return what would make it fit, in one phrase."""
    changes = [f"batch {refused.largest_batch}"] if refused.largest_batch else []
    changes += [f"{spelled_remedy(r)} (batch {r.largest_batch})" for r in refused.remedies]
    if changes:
        return "nearest remedies: " + ", ".join(changes)
    return (
        f"use narrower {Option('weights')} or another {Option('host')}"
        if refused.on_host
        else "use more or larger GPUs"
    )


def spelled_remedy(remedy: Remedy) -> str:
    """Return the changes of a remedy as options."""
    return " ".join(str(Option(field, value)) for field, value in remedy.changes)


def explain_refusal(memory: Memory, refused: Refused) -> str:
    """Say in one line what a refused batch and context need, what there is, and what would fit."""
    if memory.host is not None and refused.on_host:
        return _explain_host(memory, memory.host)
    batch, context, drafts = refused.batch, refused.context, refused.draft_length
    fullest = memory.fullest(batch=batch, context=context, draft_length=drafts)
    card, draft_card = memory.cards[fullest], memory.draft_cards[fullest]
    weights = sum(card.weights(memory.held).values())
    target_cache, draft_cache = (
        memory.target_cache(context, drafts),
        memory.draft_cache(context, drafts),
    )
    cache = format_bytes(float(target_cache * card.caches + draft_cache * draft_card.caches))
    working = float(memory.working(batch, drafts, logits=card.last))
    placement = memory.target.placement
    cards, sequences = placement.cards, int(placement.local_batch(batch))
    remedy = (
        f"the largest batch that fits is {refused.largest_batch}"
        if refused.largest_batch
        else "not even one sequence fits"
    )
    owner = "the GPU has" if cards == 1 else f"each of the {cards} GPUs has"
    where, drafter = f"batch {batch} at {format_size(context)} tokens", ""
    if drafts:
        where += f" with draft length {drafts}"
        drafter = f"{format_bytes(memory.draft_weights * draft_card.layers)} of the drafter's, "
    needed, available = format_unlike(refused.needed, memory.available)
    return (
        f"{where} needs {needed} ({format_bytes(weights)} of weights, "
        f"{drafter}{sequences} x {cache} of KV, {format_bytes(working)} of activations and logits) "
        f"but {owner} {available} usable of {format_bytes(memory.total)}; "
        f"{remedy}"
    )


def _explain_host(memory: Memory, host: HostProfile) -> str:
    layers = memory.target.placement.split.cpu_layers
    needed, usable = format_unlike(memory.on_host, host.usable)
    return (
        f"{Option('cpu_experts')}: the experts of {layers} layers need "
        f"{needed} beside the processor, but {host.id} has "
        f"{usable} usable of {format_bytes(host.memory.capacity.value)}, enough "
        f"for {_layers_on_host(memory, host)} layers"
    )


def _layers_on_host(memory: Memory, host: HostProfile) -> int:
    """Return the most layers whose experts the host holds."""
    network, split = memory.target.model, memory.target.placement.split
    return max(
        n
        for n in range(split.cpu_layers + 1)
        if cpu_expert_bytes(network, memory.held, replace(split, cpu_layers=n)) <= host.usable
    )


def longest_context(memory: Memory, *, batch: int, draft_length: int, limit: int) -> int:
    """Return the longest context up to ``limit`` at which ``batch`` sequences fit; 0 if none."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = memory.has_room(batch, middle, draft_length)
        low, high = (middle, high) if fits else (low, middle)
    return low


#: A shorter context is offered at no more than this share of the one asked for.
SHORTER = 0.95


def _round_context(context: int) -> int:
    """Return a context rounded down to a number as people type it.

    >>> _round_context(3891), _round_context(511), _round_context(100)
    (3072, 384, 100)
    """
    step = next((step for step in (1024, 128) if context >= step), 1)
    return context // step * step


#: From changed fields of a configuration to its memory account; None where it cannot be deployed.
MemoryWith = Callable[[dict[str, Any]], Memory | None]


def _memory_with(deployment: Deployment) -> MemoryWith:
    """Return the function from changes to the memory account; it deploys each change once."""
    configuration, known = deployment.configuration, dict[str, Memory | None]()
    documents = None if configuration is None else load_documents(configuration)

    def memory_with(changes: dict[str, Any]) -> Memory | None:
        if configuration is None:
            return None
        key = f"{changes}"
        if key not in known:
            try:
                changed = replace(configuration, **changes)
                known[key] = deploy(changed, documents=documents, drop_unused=True)[0].memory
            except InputError:
                known[key] = None
        return known[key]

    return memory_with


def _remedies(
    deployment: Deployment, memory_with: MemoryWith, batch: int, context: int, draft_length: int
) -> Iterator[Remedy]:
    """Yield the nearest changes with which more sequences fit, all of ``batch`` where possible."""
    memory, configuration = deployment.memory, deployment.configuration
    if configuration is None:
        return
    fitting = memory.largest_batch(context=context, draft_length=draft_length)

    def remedy(
        field: str, value: object, *, beside: tuple[tuple[str, str], ...] = (), **changes: Any
    ) -> Remedy | None:
        changed = memory_with(changes)
        most = changed.largest_batch(context=context, draft_length=draft_length) if changed else 0
        if most <= fitting:
            return None
        return Remedy(field=field, value=str(value), largest_batch=most, beside=beside)

    nearest = partial(_nearest, batch=batch)
    # where nothing fits, weights are narrowed as well, also beside more GPUs
    formats = [] if fitting or draft_length else _narrower_weights(deployment)
    longest = longest_context(memory, batch=batch, draft_length=draft_length, limit=context)
    whole = _round_context(min(longest, int(SHORTER * context)))
    if whole:
        most = memory.largest_batch(context=whole, draft_length=draft_length)
        yield Remedy(field="context", value=format_size(whole), largest_batch=most)
    yield from nearest(remedy("weights", dtype, weights=dtype) for dtype in formats)
    narrow = deployment.engine.narrow_kv
    narrower = bytes_per_element(memory.target.precision.kv) > bytes_per_element(narrow)
    if narrower:
        yield from nearest([remedy("kv", narrow, kv=narrow)])
    if deployment.engine.local is None or deployment.gpu.unified:
        doubled = (configuration.tp * 2**n for n in range(1, MOST_LINKED.bit_length()))
        more = [tp for tp in doubled if tp <= MOST_LINKED]
        with_more = [*nearest(remedy("tp", tp, tp=tp) for tp in more)]
        yield from with_more
        if not with_more:
            yield from nearest(_narrower_on_more("tp", more, formats, remedy))
        reached = any(each.largest_batch >= batch for each in with_more)
        if with_more and not reached and narrower:
            tp = int(with_more[0].value)
            both = remedy("tp", tp, beside=(("kv", narrow),), tp=tp, kv=narrow)
            yield from nearest([both])
        return
    if memory.host is not None and memory.host_is_short:
        layers = _layers_on_host(memory, memory.host)
        yield from nearest([remedy("cpu_experts", layers, cpu_experts=str(layers))])
        hosts = sorted(map(load_host, bundled_names(HOST_SHELF)), key=lambda host: host.usable)
        yield from nearest(remedy("host", host.id, host=host.id) for host in hosts)
    else:
        yield from nearest([_beside_processor(memory, memory_with, remedy, batch)])
    if configuration.tensor_split:
        even = (1.0,) * configuration.gpus
        written = ",".join("1" for _ in even)
        yield from nearest([remedy("tensor_split", written, tensor_split=even)])
    if configuration.tp == 1:
        more_cards = range(configuration.gpus + 1, MOST_CARDS + 1)
        with_cards = [*nearest(remedy("gpus", n, gpus=n, tensor_split=()) for n in more_cards)]
        yield from with_cards
        if not with_cards and not memory.host_is_short:
            yield from nearest(
                _narrower_on_more("gpus", more_cards, formats, remedy, tensor_split=())
            )


def _nearest(candidates: Iterable[Remedy | None], *, batch: int) -> Iterator[Remedy]:
    """Yield the first with which the batch fits, else the one with which most do."""
    best: Remedy | None = None
    for each in candidates:
        if each is not None and (best is None or each.largest_batch > best.largest_batch):
            best = each
        if best is not None and best.largest_batch >= batch:
            break
    if best is not None:
        yield best


def _narrower_on_more(
    field: str,
    counts: Iterable[int],
    formats: Iterable[DType],
    remedy: Callable[..., Remedy | None],
    **others: Any,
) -> Iterator[Remedy | None]:
    """Yield the remedies of more GPUs with narrower weights beside, the widest format first."""
    for dtype, count in itertools.product(formats, counts):
        changes = {field: count, "weights": dtype, **others}
        yield remedy(field, count, beside=(("weights", dtype),), **changes)


def _narrower_weights(deployment: Deployment) -> list[DType]:
    """Return the formats of the engine that are narrower than the weights, the widest first."""
    target = deployment.target
    own = (target.precision.weights[part] for part in used_components(target.model))
    widest = max(map(bytes_per_element, own))
    return [d for d in deployment.engine.narrow_weights if bytes_per_element(d) < widest]


def _beside_processor(
    memory: Memory, memory_with: MemoryWith, remedy: Callable[..., Remedy | None], batch: int
) -> Remedy | None:
    """Return the remedy of keeping experts beside the processor, with the fewest layers that do.

    Where the batch fits with no number of layers, it is the most that the host holds.
    """
    has_experts = memory.target.model.num_expert_layers > 0
    all_beside = memory_with({"cpu_experts": "all"}) if has_experts else None
    if all_beside is None or all_beside.host is None:
        return None

    def beside(layers: int) -> Remedy | None:
        return remedy("cpu_experts", layers, cpu_experts=str(layers))

    low, high = (
        memory.target.placement.split.cpu_layers,
        _layers_on_host(all_beside, all_beside.host),
    )
    while high - low > 1:
        middle = (low + high) // 2
        candidate = beside(middle)
        enough = candidate is not None and candidate.largest_batch >= batch
        low, high = (low, middle) if enough else (middle, high)
    return beside(high)
