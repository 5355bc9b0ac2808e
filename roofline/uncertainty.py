"""How far the step times may be off, drawn jointly for all draft lengths.

A draw moves every launch of a kernel by one factor for the whole grid, so what D = 0 and D = 3
share cancels in their ratio, as it does in reality. A second factor grows with the rows beyond one
per sequence: it stands for what the law may get wrong about more rows. A third moves every
step with drafts: what a served build does that neither laws nor engine numbers know.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from roofline.priors import Spread
from roofline.step import StepTimes
from roofline.timing import OpTime
from roofline.workload import Grid

__all__ = ["DRAWS", "drawn_kernels", "drawn_steps", "normal_draws"]

DRAWS = 64
NORMAL_MEDIAN = 0.6745  # the median of |z|: turns a median error into a standard deviation
Draws = NDArray[np.float64]


@cache
def normal_draws(stream: int) -> Draws:
    """Return DRAWS standard normal numbers, the same ones every time.

    Stream j takes the fractional parts of the multiples of sqrt(p_j), p_j the j-th prime: an
    evenly spread (Kronecker) sequence, so few draws are enough and no random seed is involved.
    """
    uniform = (0.5 + np.sqrt(_prime(stream)) * np.arange(1, DRAWS + 1)) % 1
    inverse = NormalDist().inv_cdf
    drawn = [inverse(min(max(u, 1e-6), 1 - 1e-6)) for u in uniform]
    return np.array(drawn).reshape(-1, 1, 1, 1)


@cache
def _prime(index: int) -> int:
    candidate, found = 1, -1
    while found < index:
        candidate += 1
        if all(candidate % d for d in range(2, int(candidate**0.5) + 1)):
            found += 1
    return candidate


class _Streams:
    """One stream of draws for each name, in the order names first appear."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def draws(self, name: str) -> Draws:
        return normal_draws(self._known.setdefault(name, len(self._known)))


def law_sigma(time: OpTime, spread: Spread) -> tuple[float, float]:
    """Return the standard deviations of log t and of log t(4 M) / t(M) of a kernel's law."""
    evidence = time.chosen.evidence
    if evidence is None:
        return spread.prior, spread.rows
    own = evidence.median_error / NORMAL_MEDIAN
    transfer = max(spread.calibrated, time.chosen.relative_error / NORMAL_MEDIAN)
    ratio = evidence.ratio_error
    rows = spread.rows if ratio is None else ratio / NORMAL_MEDIAN
    return float(np.hypot(own, transfer)), rows


def _factors(
    times: list[OpTime], rows: Draws, streams: _Streams, spread: Spread
) -> Iterator[tuple[OpTime, Draws]]:
    """Yield each kernel with its factors: half its variance shared by its kind, half its own."""
    growth = np.sqrt(np.log(rows) / np.log(4))
    for time in times:
        kind, name = time.op.kind.value, time.op.name
        level, shape = law_sigma(time, spread)
        z = (streams.draws(kind) + streams.draws(f"{kind}/{name}")) / np.sqrt(2)
        yield time, np.exp(level * z + shape * growth * streams.draws(f"{kind}/rows"))


def drawn_kernels(
    times: StepTimes, grid: Grid, spread: Spread
) -> Iterator[tuple[str, OpTime | None, Draws]]:
    """Yield (pass, kernel, drawn times of all its launches in a step) [s].

    The pass is ``verify`` or ``draft``; the engine's own time is ``overhead``, without a kernel.
    """
    streams, drafts = _Streams(), grid.draft_length
    one_row = np.ones_like(grid.rows)
    groups = (
        ("verify", times.verify_ops, grid.rows, np.ones_like(drafts)),
        ("draft", times.first_pass_ops, grid.rows, (drafts > 0).astype(float)),
        ("draft", times.further_pass_ops, one_row, np.maximum(drafts - 1, 0)),
    )
    around = times.overhead * np.exp(spread.overhead * streams.draws("overhead"))
    parts: list[tuple[str, OpTime | None, Draws]] = [("overhead", None, np.asarray(around))]
    for which, ops, rows, repeats in groups:
        for time, factor in _factors(ops, rows, streams, spread):
            parts.append((which, time, np.asarray(repeats * np.asarray(time.total) * factor)))
    served = np.exp(spread.served * streams.draws("served"))
    build = np.where(drafts > 0, served, 1.0)
    for which, kernel, drawn in parts:
        yield which, kernel, np.asarray(drawn * build)


def drawn_steps(times: StepTimes, grid: Grid, spread: Spread) -> Draws:
    """Return step times of shape (DRAWS, batches, contexts, draft lengths) [s]."""
    total: Draws | float = 0.0
    for _, _, drawn in drawn_kernels(times, grid, spread):
        total = total + drawn
    return np.asarray(total)
