"""What would make a question fit that does not: the nearest changes, each tried out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofline.errors import InputError
from roofline.memory import Memory, memory_for
from roofline.prepare import Request, prepare
from roofline.quantization import DType, bytes_per_element
from roofline.units import format_size

__all__ = ["longest_context", "memory_of", "remedies"]


def memory_of(request: Request) -> Memory:
    """Return the memory account that ``request`` leads to; acceptance plays no part."""
    setup = prepare(request, needs_acceptance=False)
    return memory_for(setup.target, setup.drafter, setup.gpu, setup.engine.memory)


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
    tp = request.tp * 2
    while tp <= 64:
        tried = list(_if_fits(replace(request, tp=tp), f"--tp {tp}", batch, context, draft_length))
        yield from tried
        tp = 128 if tried else 2 * tp


def _if_fits(
    request: Request, what: str, batch: int, context: int, draft_length: int
) -> Iterator[str]:
    """Yield ``what`` with the largest batch that it leads to, if that is enough."""
    try:
        largest = memory_of(request).largest_batch(context=context, draft_length=draft_length)
    except InputError:
        return
    if largest >= batch:
        yield f"{what} (batch {largest})"
