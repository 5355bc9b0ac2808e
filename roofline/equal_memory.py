"""Throughput at equal memory: drafts cost slots, and slots are throughput."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from roofline.account import Slots
from roofline.advice.decide import TIE, smallest_within_tie
from roofline.advice.prepare import Request, prepare
from roofline.advice.recommend import costs
from roofline.base.errors import InputError
from roofline.timing.memory import Memory

__all__ = ["EqualMemory", "equal_memory"]

#: Neither engines nor the laws go further; a small model would fit more.
BUSIEST = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualMemory:
    """Tokens per second of the GPU when each side fills it with as many sequences as fit."""

    slots: Slots
    plain: float  # [tokens/s]
    speculative: float  # [tokens/s]
    same_batch: float  # speedup at the batch that fits with drafts
    capped: bool

    @property
    def gain(self) -> float:
        """Throughput with drafts over throughput without, each at its own largest batch."""
        return self.speculative / self.plain


def equal_memory(
    request: Request, memory: Memory, *, context: int, draft_length: int | None
) -> EqualMemory:
    """Return throughput at the largest batches; the best draft length where none is given."""
    asked = replace(request, contexts=(context,))
    setup = prepare(asked)
    lengths = [d for d in setup.draft_lengths if d > 0 and draft_length in (None, d)]
    if not lengths:
        raise InputError(
            f"--draft-length {draft_length}: {setup.acceptance.label} says nothing about it"
        )
    fitting = {d: memory.largest_batch(context=context, draft_length=d) for d in (0, *lengths)}
    batches = {d: min(size, BUSIEST) for d, size in fitting.items() if size}
    if 0 not in batches or len(batches) == 1:
        raise InputError(f"context {context}: no batch fits with and without drafts")
    tried = replace(asked, batches=tuple(sorted(set(batches.values()))))
    found = costs(replace(setup, request=tried))
    sizes, lengths_known = list(tried.batches), list(setup.draft_lengths)
    times, yields = found.times.total[:, 0], found.tokens_per_step[0]

    def rate(length: int) -> float:
        row, column = sizes.index(batches[length]), lengths_known.index(length)
        return float(batches[length] * yields[column] / times[row, column])

    def covered(length: int) -> bool:
        row, column = sizes.index(batches[length]), lengths_known.index(length)
        return bool(found.candidates[row, 0, column])

    usable = [d for d in lengths if d in batches]
    usable = [d for d in usable if covered(d)] or usable
    best, _ = smallest_within_tie(np.array([rate(d) for d in usable]), TIE)
    chosen = usable[int(best)]
    row, column = sizes.index(batches[chosen]), lengths_known.index(chosen)
    return EqualMemory(
        slots=Slots(
            context=context, draft_length=chosen, plain=fitting[0], speculative=fitting[chosen]
        ),
        plain=rate(0),
        speculative=rate(chosen),
        same_batch=float(yields[column] * times[row, 0] / times[row, column]),
        capped=max(fitting.values()) > BUSIEST,
    )
