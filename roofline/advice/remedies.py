"""What would make a question fit that does not: the nearest changes, each tried out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofline.advice.prepare import Request, prepare
from roofline.base.errors import InputError
from roofline.base.resources import bundled_names
from roofline.base.units import format_bytes, format_size
from roofline.kernels.split import cpu_expert_bytes
from roofline.specs.engine import load_engine
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.gpu import load_hardware
from roofline.specs.host import SHELF, HostProfile, load_host
from roofline.timing.memory import Memory

__all__ = ["explain", "longest_context", "remedies"]


def explain(memory: Memory, *, batch: int, context: int) -> str:
    """Say in one line what plain decoding needs, what there is, and what would fit."""
    if memory.host is not None and memory.host_is_short:
        return _explain_host(memory, memory.host)
    each = format_bytes(float(memory.kv_per_sequence(context, 0)))
    need = format_bytes(float(memory.needed(batch, context, 0)))
    largest = memory.largest_batch(context=context, draft_length=0)
    placement = memory.target.placement
    cards, held = placement.split.cards, int(placement.local(batch))
    tp = max(placement.tp, cards)
    remedy = (
        f"the largest batch that fits is {largest}"
        if largest
        else f"not even one sequence fits: use more GPUs ({'--gpus' if cards > 1 else '--tp'}),"
        " narrower --weights or --kv"
    )
    owner = "the GPU has" if tp == 1 else f"each of the {tp} GPUs has"
    return (
        f"batch {batch} at {context} tokens needs {need} ({format_bytes(memory.weights)} of "
        f"weights, {held} x {each} of KV, {format_bytes(float(memory.working(batch, 0)))} of "
        f"activations and logits) but {owner} {format_bytes(memory.available)} usable of "
        f"{format_bytes(memory.total)}; {remedy}"
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


def remedies(request: Request, *, batch: int, context: int, draft_length: int = 0) -> str:
    """Return what would make ``batch`` sequences of ``context`` tokens fit, in one phrase."""
    found = list(_found(request, batch=batch, context=context, draft_length=draft_length))
    return "nearest remedies: " + ", ".join(found) if found else "use more or larger GPUs"


def _found(request: Request, *, batch: int, context: int, draft_length: int) -> Iterator[str]:
    here = prepare(request, needs_acceptance=False).memory()
    largest = here.largest_batch(context=context, draft_length=draft_length)
    if 0 < largest < batch:
        yield f"batch {largest}"
    longest = longest_context(here, batch=batch, draft_length=draft_length, limit=context)
    if longest:
        shown = longest // 1024 * 1024 if longest >= 1024 else longest
        yield f"--context {format_size(shown)}"
    if bytes_per_element(here.target.precision.kv) > 1:
        yield from _if_fits(
            replace(request, kv=DType.FP8), "--kv fp8", batch, context, draft_length
        )
    if load_engine(request.engine).local is not None and not load_hardware(request.gpu).unified:
        yield from _in_the_machine(request, here, batch, context, draft_length)
        return
    tp = request.tp * 2
    while tp <= 64:
        tried = list(_if_fits(replace(request, tp=tp), f"--tp {tp}", batch, context, draft_length))
        yield from tried
        tp = 128 if tried else 2 * tp


def _in_the_machine(
    request: Request, here: Memory, batch: int, context: int, draft_length: int
) -> Iterator[str]:
    """Yield the layers whose experts can leave the cards, hosts with room, and the fewest cards."""

    def tried(what: str, **changes: object) -> list[str]:
        local = replace(request.local, shares=(), **changes)  # type: ignore[arg-type]
        return list(_if_fits(replace(request, local=local), what, batch, context, draft_length))

    def beside(layers: int) -> list[str]:
        return tried(f"--cpu-experts {layers}", cpu_experts=str(layers))

    if here.host is not None and here.host_is_short:
        yield from beside(_layers_on_host(here, here.host))
        hosts = sorted(map(load_host, bundled_names(SHELF)), key=lambda host: host.usable)
        larger = (tried(f"--host {host.id}", host=host.id) for host in hosts)
        yield from next(filter(None, larger), [])
        return
    model = here.target.model
    if model.num_expert_layers and beside(model.num_layers):
        low, high = here.target.placement.split.cpu_layers, model.num_layers
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if beside(middle) else (middle, high)
        yield from beside(high)
    cards = range(request.local.gpus + 1, 17)
    if request.tp == 1:
        yield from next(filter(None, (tried(f"--gpus {n}", gpus=n) for n in cards)), [])


def _if_fits(
    request: Request, what: str, batch: int, context: int, draft_length: int
) -> Iterator[str]:
    """Yield ``what`` with the largest batch that it leads to, if that is enough."""
    try:
        largest = (
            prepare(request, needs_acceptance=False)
            .memory()
            .largest_batch(context=context, draft_length=draft_length)
        )
    except InputError:
        return
    if largest >= batch:
        yield f"{what} (batch {largest})"
