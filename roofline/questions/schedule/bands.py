"""From speeds to bands of batches that share a draft length. Nothing here knows an engine.

Arrays: batches first, then contexts where there are any, draft lengths last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import smallest_within_tie

__all__ = [
    "Run",
    "coverage",
    "longest_runs",
    "merge_runs",
    "moved_rows",
    "octave_weights",
    "odds_of_two",
    "relative_speed",
    "within",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def relative_speed(speed: Array) -> Array:
    """Return speed over the best of its batch, joined over contexts by the geometric mean.

    ``speed`` has shape (batches, contexts, draft lengths), NaN where it cannot be run. A context
    that a batch cannot run at all is left out; a draft length that one of the others cannot run
    counts 0.

    >>> relative_speed(np.array([[[1.0, 2.0], [4.0, 1.0]]])).round(3)
    array([[0.707, 0.5  ]])
    """
    usable = np.where(np.isnan(speed), 0.0, speed)
    best = usable.max(axis=-1, keepdims=True)
    runs = best > 0
    with np.errstate(divide="ignore"):
        log = np.log(np.divide(usable, best, out=np.ones_like(usable), where=runs))
    contexts = np.maximum(runs.sum(axis=1), 1)
    return np.asarray(np.exp(np.where(runs, log, 0.0).sum(axis=1) / contexts))


def within(speed: Array, tie: float) -> Mask:
    """Return which draft lengths are within ``tie`` of the fastest; NaN never is.

    >>> within(np.array([1.0, 0.995, np.nan]), 0.01)
    array([ True,  True, False])
    """
    return np.asarray(smallest_within_tie(speed, tie)[1] & np.isfinite(speed))


def longest_runs(allowed: Mask) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (start, stop, choice of each context) of the fewest runs that ``allowed`` permits.

    ``allowed`` has shape (batches, contexts, draft lengths) and permits something everywhere. Each
    run goes on for as long as every context has a draft length permitted throughout; no division
    has fewer runs, because a run that starts earlier never reaches further. Of those that reach
    the end the smallest is chosen.

    >>> permitted = [[[1, 1, 0]], [[0, 1, 0]], [[0, 1, 1]], [[0, 0, 1]]]
    >>> longest_runs(np.array(permitted, dtype=bool))
    [(0, 3, (1,)), (3, 4, (2,))]
    """
    count = len(allowed)
    index = np.arange(count)[:, None, None]
    stops = np.where(allowed, count, index)[::-1]
    reach = np.minimum.accumulate(stops, axis=0)[::-1]  # first batch that no longer permits it
    runs, start = [], 0
    while start < count:
        stop = int(reach[start].max(axis=-1).min())
        chosen = (reach[start] >= stop).argmax(axis=-1)
        runs.append((start, stop, tuple(int(d) for d in chosen)))
        start = stop
    return runs


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Batches from position ``start`` to before ``stop`` that share a draft length.

    ``chosen`` is its position for each context, or one for all. ``tokens`` are what each draft
    length yields over the run, shape (contexts or 1, draft lengths), -inf for one that some batch
    of it cannot run; ``drawn`` the same in every draw, the draws last.
    """

    start: int
    stop: int
    chosen: tuple[int, ...]
    tokens: Array
    drawn: Array

    @property
    def expected(self) -> float:
        """Return the tokens of its own choice over all contexts."""
        return float(self.tokens[np.arange(len(self.chosen)), list(self.chosen)].sum())

    def yields(self, chosen: tuple[int, ...]) -> Array:
        """Return the tokens of a choice over all contexts, by draw."""
        return np.asarray(self.drawn[np.arange(len(chosen)), list(chosen)].sum(axis=0))


def odds_of_two(first: Run, second: Run, *, tie: float = 0.0) -> float:
    """Return the odds that two runs are better off with their own draft lengths than with one.

    The share of draws in which T1(D1) + T2(D2) > T1(D) + T2(D), T1 and T2 being the tokens over the
    first and the second run and D the smallest length within ``tie`` of the one that yields most
    over both; ``tie`` is also the share of their tokens by which runs that change to D must lose.
    Where drafts grow with the batch, the own lengths must beat D1 for both as well as D2 for both
    in the same draw.

    >>> drawn = np.array([[[5.0, 5.0], [4.0, 6.0]], [[2.0, 2.0], [3.0, 3.0]]])
    >>> one, two = (
    ...     Run(start=i, stop=i + 1, chosen=(i,), tokens=d.mean(-1)[None], drawn=d[None])
    ...     for i, d in enumerate(drawn)
    ... )
    >>> odds_of_two(one, two)  # 3 > 2 in both draws, 5 > 4 in the first and 5 < 6 in the second
    0.5
    """
    one = _joined(first, second, tie).chosen
    grows = any(d2 > d1 for d1, d2 in zip(first.chosen, second.chosen, strict=True))
    beaten = [_beats(first, second, one, tie)]
    if grows:
        beaten += [_beats(first, second, chosen, tie) for chosen in (first.chosen, second.chosen)]
    return float(np.logical_and.reduce(beaten).mean())


def _beats(first: Run, second: Run, one: tuple[int, ...], tie: float) -> Mask:
    """Return the draws in which two runs yield more with their own lengths than with ``one``."""
    more = np.zeros(first.drawn.shape[-1])
    for run in (first, second):
        if run.chosen != one:
            more += run.yields(run.chosen) - (1 + tie) * run.yields(one)
    return more > 0


#: Runs of which every way to join them is looked at.
MOST_RUNS = 12


def merge_runs(runs: Sequence[Run], odds: float, *, tie: float = 0.0) -> list[Run]:
    """Return the runs joined so that neighbours have odds of at least ``odds`` to beat one length.

    They beat it by more than the share ``tie`` of what would change. Of all ways to join neighbours
    that leave no other border, those are taken that lose least where a run's own length is better
    with the same odds; of these the fewest pieces, and of these the most tokens. Of more than
    MOST_RUNS runs, borders with the least odds fall first. A joined run takes the smallest draft
    length within ``tie`` of the one that yields most over it.
    """
    merged = list(runs)
    borders = [odds_of_two(*pair, tie=tie) for pair in pairwise(merged)]
    while len(merged) > MOST_RUNS and min(borders) < odds:
        at = borders.index(min(borders))
        merged[at : at + 2] = [_joined(merged[at], merged[at + 1], tie)]
        del borders[at]
        for near in range(max(at - 1, 0), min(at + 1, len(borders))):
            borders[near] = odds_of_two(merged[near], merged[near + 1], tie=tie)
    return merged if len(merged) > MOST_RUNS else _best_joined(merged, odds, tie)


class _Way(NamedTuple):
    """Joined runs, the better way first: tokens that they surely lose, pieces, tokens in all."""

    lost: float
    number: int
    missed: float  # tokens with the sign turned
    pieces: tuple[Run, ...]

    @property
    def rank(self) -> tuple[float, int, float]:
        return self.lost, self.number, self.missed

    def then(self, piece: Run, lost: float) -> _Way:
        """Return this way with one more piece, in which so many tokens are surely lost."""
        return _Way(
            self.lost + lost, self.number + 1, self.missed - piece.expected, (*self.pieces, piece)
        )


def _best_joined(runs: Sequence[Run], odds: float, tie: float) -> list[Run]:
    """Return the joined runs to take among those whose every border has the odds.

    best(i, j), the best way to join runs 0 ... j with a last piece of i ... j, is the best of
    best(h, i - 1) of pieces that have the odds beside it, and that piece (R. Bellman, "On the
    approximation of curves by line segments using dynamic programming", CACM 4(6), 1961).
    """
    count = len(runs)
    pieces: dict[tuple[int, int], Run] = {}
    best: dict[tuple[int, int], _Way] = {}
    for last in range(count):
        for first in range(last, -1, -1):
            later = pieces.get((first + 1, last))
            pieces[first, last] = runs[last] if later is None else _joined(runs[first], later, tie)
    for (first, last), piece in sorted(pieces.items(), key=lambda item: item[0][1]):
        before = [
            best[earlier, first - 1]
            for earlier in range(first)
            if (earlier, first - 1) in best
            and odds_of_two(pieces[earlier, first - 1], piece, tie=tie) >= odds
        ]
        if first == 0:
            before = [_Way(0.0, 0, 0.0, ())]
        if before:
            lost = sum(_surely_lost(run, piece.chosen, odds, tie) for run in runs[first : last + 1])
            best[first, last] = min(before, key=lambda way: way.rank).then(piece, lost)
    ends = [best[first, count - 1] for first in range(count) if (first, count - 1) in best]
    return list(min(ends, key=lambda way: way.rank).pieces)


def _surely_lost(run: Run, one: tuple[int, ...], odds: float, tie: float) -> float:
    """Return the tokens that a run loses with ``one`` where its own lengths have the odds."""
    if run.chosen == one:
        return 0.0
    sure = (run.yields(run.chosen) > (1 + tie) * run.yields(one)).mean() >= odds
    own, other = (run.tokens[np.arange(len(one)), list(c)].sum() for c in (run.chosen, one))
    return float(own - other) if sure else 0.0


def _joined(first: Run, second: Run, tie: float) -> Run:
    tokens = first.tokens + second.tokens
    chosen, _ = smallest_within_tie(tokens, tie)
    return Run(
        start=first.start,
        stop=second.stop,
        chosen=tuple(chosen.tolist()),
        tokens=tokens,
        drawn=first.drawn + second.drawn,
    )


def coverage(points: Sequence[int]) -> list[tuple[int, int]]:
    """Return the range of whole numbers that each point stands for, from 1 to the last point.

    Neighbours meet at their geometric mean.

    >>> coverage([1, 2, 8, 32])
    [(1, 1), (2, 4), (5, 16), (17, 32)]
    """
    ends = [int((a * b) ** 0.5) for a, b in pairwise(points)]
    starts = [1, *(end + 1 for end in ends)]
    return list(zip(starts, [*ends, points[-1]], strict=True))


def moved_rows(drawn: Array, factors: Array, fits: Mask) -> Array:
    """Return speeds whose steps in rows begin elsewhere in every draw.

    At one draft length rows are proportional to the batch, so a draw that moves rows by f reads its
    speed at the batch f B, between neighbours linearly. ``drawn`` has shape (batches from 1 on,
    contexts, draft lengths, draws), ``factors`` are the f of each draw, and ``fits`` says which
    batches run a draft length: none is read past the last of them, where memory or the graphs end.

    >>> speed = np.array([4.0, 4.0, 4.0, 8.0]).reshape(4, 1, 1, 1)  # a step after batch 3
    >>> moved_rows(speed, np.array([1.25]), np.ones((4, 1, 1), dtype=bool)).ravel().tolist()
    [4.0, 4.0, 7.0, 8.0]
    """
    batches = np.arange(len(drawn))[:, None, None, None]
    last = np.where(fits, batches[..., 0], 0).max(axis=0)[None, ..., None]
    at = np.clip((batches + 1) * factors - 1, 0, np.maximum(last, batches))
    below = np.floor(at).astype(np.intp)
    above = np.minimum(below + 1, np.maximum(last, batches))
    low, high = (np.take_along_axis(drawn, index, axis=0) for index in (below, above))
    return np.asarray(low + (at - below) * (high - low))


def octave_weights(count: int) -> Array:
    """Return the share of time at each batch from 1 to ``count`` if every doubling is as frequent.

    w_B is proportional to log((B + 1) / B).

    >>> octave_weights(3).round(3)
    array([0.5  , 0.292, 0.208])
    """
    batches = np.arange(1, count + 1)
    weights = np.log1p(1 / batches)
    return np.asarray(weights / weights.sum())
