"""What would make a question fit that does not: the nearest changes, each tried out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofline.base.errors import DoesNotFitError, InputError
from roofline.base.units import format_size
from roofline.specs.engine import load_engine
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.gpu import load_hardware
from roofline.timing.memory import Memory, memory_for

__all__ = ["longest_context", "memory_of", "remedies"]


def memory_of(request: Request) -> Memory:
    """Return the memory account that ``request`` leads to; acceptance plays no part."""
    question = prepare(request, needs_acceptance=False)
    return memory_for(
        question.deployment.target,
        question.deployment.drafter,
        question.deployment.gpu,
        question.deployment.engine.memory,
        question.deployment.host,
    )


def longest_context(memory: Memory, *, batch: int, draft_length: int, limit: int) -> int:
    """Return the longest context up to ``limit`` at which ``batch`` sequences fit; 0 if none."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = memory.needed(batch, middle, draft_length) <= memory.available
        low, high = (middle, high) if fits else (low, middle)
    return low


def remedies(request: Request, *, batch: int, context: int, draft_length: int = 0) -> str:
    """Return what would make ``batch`` sequences of ``context`` tokens fit, in one phrase."""
    found = list(_found(request, batch=batch, context=context, draft_length=draft_length))
    return "nearest remedies: " + ", ".join(found) if found else "use more or larger GPUs"


def _found(request: Request, *, batch: int, context: int, draft_length: int) -> Iterator[str]:
    here = memory_of(request)
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
    """Yield the fewest layers whose experts can leave the cards, and the fewest cards."""

    def tried(what: str, **changes: object) -> list[str]:
        local = replace(request.local, shares=(), **changes)  # type: ignore[arg-type]
        return list(_if_fits(replace(request, local=local), what, batch, context, draft_length))

    def beside(layers: int) -> list[str]:
        return tried(f"--cpu-experts {layers}", cpu_experts=str(layers))

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
        largest = memory_of(request).largest_batch(context=context, draft_length=draft_length)
    except (InputError, DoesNotFitError):
        return
    if largest >= batch:
        yield f"{what} (batch {largest})"
