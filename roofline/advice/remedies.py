"""What does not fit: how much is missing, and the nearest changes that help, each tried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from roofline.advice.parts import open_parts
from roofline.advice.prepare import Setup, prepare
from roofline.base.errors import DoesNotFitError, InputError
from roofline.base.resources import bundled_names
from roofline.base.units import format_bytes, format_size
from roofline.kernels.split import cpu_expert_bytes
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.host import SHELF, HostProfile, load_host
from roofline.timing.memory import Memory

__all__ = ["Refused", "Remedy", "does_not_fit", "explain", "longest_context", "phrase", "refuse"]

#: The most GPUs that are tried, linked ones and those of one machine.
MOST_LINKED, MOST_CARDS = 64, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """A change to the question, and the largest batch that fits with it at the refused context."""

    option: str
    value: str
    largest_batch: int


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
    remedies: tuple[Remedy, ...]  # for the largest batch refused at the context


def refuse(
    setup: Setup, points: Iterable[tuple[int, int]], *, draft_length: int = 0
) -> tuple[Refused, ...]:
    """Return what is missing at each (batch, context) that does not fit at ``draft_length``.

    Where plain decoding does not fit either, it is what plain decoding needs.
    """
    memory, alike = setup.memory(), dict[tuple[int, int], list[int]]()
    for batch, context in points:
        drafts = draft_length if memory.has_room(batch, context, 0) else 0
        alike.setdefault((context, drafts), []).append(batch)
    if not alike:
        return ()
    tried, found = _tries(setup), list[Refused]()
    for (context, drafts), batches in alike.items():
        remedies = tuple(_remedies(setup, tried, max(batches), context, drafts))
        largest = memory.largest_batch(context=context, draft_length=drafts)
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
                remedies=remedies,
            )
            found.append(refused)
    return tuple(found)


def does_not_fit(
    setup: Setup, *, batch: int, context: int, draft_length: int = 0
) -> DoesNotFitError:
    """Return the error that says what is missing at one batch and context, and what helps."""
    (refused,) = refuse(setup, [(batch, context)], draft_length=draft_length)
    return DoesNotFitError(
        f"{setup.target.model.id} on {setup.gpu.id}: {explain(setup.memory(), refused)}; "
        f"{phrase(refused)}"
    )


def phrase(refused: Refused) -> str:
    """Return what would make it fit, in one phrase."""
    found = [f"batch {refused.largest_batch}"] if refused.largest_batch else []
    found += [f"{r.option} {r.value} (batch {r.largest_batch})" for r in refused.remedies]
    if found:
        return "nearest remedies: " + ", ".join(found)
    return (
        "use narrower --weights or another --host" if refused.on_host else "use more or larger GPUs"
    )


def explain(memory: Memory, refused: Refused) -> str:
    """Say in one line what a refused batch and context need, what there is, and what would fit."""
    if memory.host is not None and refused.on_host:
        return _explain_host(memory, memory.host)
    batch, context, drafts = refused.batch, refused.context, refused.draft_length
    fullest = memory.fullest(batch=batch, context=context, draft_length=drafts)
    card, draft_card = memory.cards[fullest], memory.draft_cards[fullest]
    weights = sum(card.weights(memory.held).values())
    own, drafted = memory.target_cache(context, drafts), memory.draft_cache(context, drafts)
    each = format_bytes(float(own * card.caches + drafted * draft_card.caches))
    working = float(memory.working(batch, drafts, logits=card.last))
    placement = memory.target.placement
    cards, held = placement.cards, int(placement.local(batch))
    more = "--gpus" if placement.split.cards > 1 else "--tp"
    remedy = (
        f"the largest batch that fits is {refused.largest_batch}"
        if refused.largest_batch
        else f"not even one sequence fits: use more GPUs ({more}), narrower --weights or --kv"
    )
    owner = "the GPU has" if cards == 1 else f"each of the {cards} GPUs has"
    where, drafter = f"batch {batch} at {context} tokens", ""
    if drafts:
        where += f" with draft length {drafts}"
        drafter = f"{format_bytes(memory.draft_weights * draft_card.layers)} of the drafter's, "
    return (
        f"{where} needs {format_bytes(refused.needed)} ({format_bytes(weights)} of weights, "
        f"{drafter}{held} x {each} of KV, {format_bytes(working)} of activations and logits) but "
        f"{owner} {format_bytes(memory.available)} usable of {format_bytes(memory.total)}; {remedy}"
    )


def _explain_host(memory: Memory, host: HostProfile) -> str:
    layers = memory.target.placement.split.cpu_layers
    return (
        f"--cpu-experts: the experts of {layers} layers need {format_bytes(memory.on_host)} beside "
        f"the processor, but {host.id} has {format_bytes(host.usable)} usable of "
        f"{format_bytes(host.memory.capacity.value)}, enough for "
        f"{_layers_on_host(memory, host)} layers"
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


#: From changed fields of a request, and of its ``local`` part, to the memory account of it; None
#: where it cannot be asked.
Try = Callable[[dict[str, Any], dict[str, Any]], Memory | None]


def _tries(setup: Setup) -> Try:
    """Return what makes the memory account of a changed request, once for each change."""
    request = setup.request
    if setup.drafter.kind != "none":
        request = replace(request, acceptance=setup.acceptance)  # reads no file or server again
    parts, known = open_parts(request), dict[str, Memory | None]()

    def tried(changes: dict[str, Any], local: dict[str, Any]) -> Memory | None:
        key = f"{changes} {local}"
        if key not in known:
            own = replace(request.local, **local)
            try:
                asked = replace(request, **changes, local=own)
                known[key] = prepare(asked, needs_acceptance=False, parts=parts).memory()
            except InputError:
                known[key] = None
        return known[key]

    return tried


def _remedies(
    setup: Setup, tried: Try, batch: int, context: int, draft_length: int
) -> Iterator[Remedy]:
    """Yield the nearest changes with which more sequences fit, ``batch`` if that can be."""
    request, here = setup.request, setup.memory()
    asked = here.largest_batch(context=context, draft_length=draft_length)

    def remedy(
        option: str, value: object, changes: dict[str, Any] | None = None, **local: Any
    ) -> Remedy | None:
        memory = tried(changes or {}, local)
        most = memory.largest_batch(context=context, draft_length=draft_length) if memory else 0
        return Remedy(option=option, value=str(value), largest_batch=most) if most > asked else None

    def nearest(candidates: Iterable[Remedy | None]) -> Iterator[Remedy]:
        """Yield the first with which the batch fits, else the one with which most do."""
        most: Remedy | None = None
        for each in candidates:
            if each is not None and (most is None or each.largest_batch > most.largest_batch):
                most = each
            if most is not None and most.largest_batch >= batch:
                break
        if most is not None:
            yield most

    longest = longest_context(here, batch=batch, draft_length=draft_length, limit=context)
    if longest:
        whole = longest // 1024 * 1024 if longest >= 1024 else longest
        most = here.largest_batch(context=whole, draft_length=draft_length)
        yield Remedy(option="--context", value=format_size(whole), largest_batch=most)
    if bytes_per_element(here.target.precision.kv) > 1:
        yield from nearest([remedy("--kv", DType.FP8, {"kv": DType.FP8})])
    if setup.engine.local is None or setup.gpu.unified:
        doubled = (request.tp * 2**n for n in range(1, MOST_LINKED.bit_length()))
        more = (tp for tp in doubled if tp <= MOST_LINKED)
        yield from nearest(remedy("--tp", tp, {"tp": tp}) for tp in more)
        return
    if here.host is not None and here.host_is_short:
        layers = _layers_on_host(here, here.host)
        yield from nearest([remedy("--cpu-experts", layers, cpu_experts=str(layers))])
        hosts = sorted(map(load_host, bundled_names(SHELF)), key=lambda host: host.usable)
        yield from nearest(remedy("--host", host.id, host=host.id) for host in hosts)
    else:
        yield from nearest([_beside_processor(here, tried, remedy, batch)])
    if request.local.shares:
        even = (1.0,) * request.local.gpus
        shown = ",".join("1" for _ in even)
        yield from nearest([remedy("--tensor-split", shown, shares=even)])
    if request.tp == 1:
        more_cards = range(request.local.gpus + 1, MOST_CARDS + 1)
        yield from nearest(remedy("--gpus", n, gpus=n, shares=()) for n in more_cards)


def _beside_processor(
    here: Memory, tried: Try, remedy: Callable[..., Remedy | None], batch: int
) -> Remedy | None:
    """Return the fewest layers whose experts leave the cards so that the batch fits, or the most.

    The host bounds them.
    """
    model, all_of = here.target.model, {"cpu_experts": "all"}
    everything = tried({}, all_of) if model.num_expert_layers else None
    if everything is None or everything.host is None:
        return None

    def beside(layers: int) -> Remedy | None:
        return remedy("--cpu-experts", layers, cpu_experts=str(layers))

    low, high = here.target.placement.split.cpu_layers, _layers_on_host(everything, everything.host)
    while high - low > 1:
        middle = (low + high) // 2
        found = beside(middle)
        enough = found is not None and found.largest_batch >= batch
        low, high = (low, middle) if enough else (middle, high)
    return beside(high)
