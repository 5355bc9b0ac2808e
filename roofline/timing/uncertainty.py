"""How far the step times may be off, drawn jointly for all draft lengths.

A draw moves every launch of a kernel by one factor for the whole grid, so what D = 0 and D = 3
share cancels in their ratio, as it does in reality. A second factor walks with the rows of a
sequence, a step of its own for each row: it stands for what the law may get wrong about more rows,
so that neighbouring draft lengths share most of it and not all. Further ones stand for what a
served build does that neither laws nor engine numbers know: to every step with drafts, to verify
passes the more the longer the draft, to draft passes, and to each draft length by itself.

Kernels that move together are added up before they are multiplied, so a draw of all points is one
product of two small matrices; the draws run along the last axis, where they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import DRAWS, normal_draws
from roofline.kernels.ops import Kind
from roofline.specs.placement import Grid
from roofline.specs.priors import Spread
from roofline.timing.machine import OpTime
from roofline.timing.step import StepTimes

__all__ = [
    "Drawn",
    "drawn_kernels",
    "drawn_row_shift",
    "drawn_steps",
    "grouped",
    "row_walk",
    "speedup_range",
]

NORMAL_MEDIAN = 0.6745  # the median of |z|: turns a median error into a standard deviation
#: The first stream of the walks; no model has as many kernels and kinds, whose streams come first.
FIRST_WALK = 64
#: The first stream of what served builds do, beyond the walks of 64 drafts.
FIRST_SERVED = 1100
#: Steps of a walk that a further one shares nothing with.
MOST_APART = DRAWS // 2
#: The stream of `drawn_row_shift`: the last one before the walks.
ROW_SHIFT = FIRST_WALK - 1
_KINDS = tuple(Kind)
#: Points whose draws are held at a time: 64 draws of them stay in a core's cache.
TILE = 512
#: Positions of the 10th and 90th percentile among sorted draws.
LOW, HIGH = (round(share * (DRAWS - 1)) for share in (0.1, 0.9))
Draws = NDArray[np.float64]


class _Streams:
    """One stream of draws for each name, in the order names first appear."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def draws(self, name: str) -> Draws:
        return normal_draws(self._known.setdefault(name, len(self._known)))


@cache
def row_walk(kind: Kind, rows: tuple[int, ...]) -> Draws:
    """Return the error in more rows in units of its standard deviation at four times the rows.

    W(q) = sum over j = 2 ... q of sqrt(log(j / (j - 1)) / log 4) z_j, so that W(1) = 0, the
    variance of W(q) is log q / log 4 and that of W(q) - W(p) is log(q / p) / log 4: a Brownian
    motion in log q (N. Wiener, "Differential space", 1923). Each z_j is a stream of its own for
    each kind of kernel, the same one whichever rows are asked for, less what it shares with the
    steps before it by chance. ``rows`` q are at least 1; the result has shape (rows, DRAWS). From
    q = 5 to 6 the standard deviation is sqrt(log 1.2 / log 4) = 0.36.
    """
    steps: list[Draws] = []
    path = [np.zeros(DRAWS)]
    for j in range(2, max(rows) + 1):
        z = normal_draws(FIRST_WALK + _KINDS.index(kind) + (j - 2) * len(_KINDS))
        for earlier in steps[-MOST_APART:]:  # more than DRAWS cannot all be orthogonal
            z = z - (z @ earlier) / DRAWS * earlier
        steps.append(z * np.sqrt(DRAWS / (z @ z)))
        path.append(path[-1] + np.sqrt(np.log(j / (j - 1)) / np.log(4)) * steps[-1])
    return np.asarray([path[q - 1] for q in rows])


def law_sigma(time: OpTime, spread: Spread) -> tuple[float, float]:
    """Return the standard deviations of log t and of log t(4 M) / t(M) of a kernel's law.

    The second is wider for attention whose reads of the cache are only assumed.
    """
    level, rows = _of_law(time, spread)
    return level, float(np.hypot(rows, spread.reads)) if time.op.assumed_reads else rows


def _of_law(time: OpTime, spread: Spread) -> tuple[float, float]:
    evidence = time.chosen.evidence
    if evidence is None:
        return time.chosen.spread or spread.prior, spread.rows
    level = evidence.median_error / NORMAL_MEDIAN
    transfer = max(spread.calibrated, time.chosen.relative_error / NORMAL_MEDIAN)
    ratio = evidence.ratio_error
    rows = spread.rows if ratio is None else ratio / NORMAL_MEDIAN
    return float(np.hypot(level, transfer)), rows


def drawn_row_shift(times: StepTimes, spread: Spread) -> Draws:
    """Return the factor by which every draw moves the rows at which kernels rise, (DRAWS,).

    A law that rises in steps of rows is as uncertain in where it rises as in how high it stands:
    between its steps a time grows about as its rows do, t(M e^x) = t(M) e^x, so a law whose height
    is off by a factor e^x may as well be off by that factor in rows. Tiles are exact in a kernel;
    which of its tiles a library takes for a shape is not known. f = exp(s z), where s is the
    standard deviation of log t of `law_sigma`, weighted by the time of each kernel of the verify
    pass at the largest batch and draft, and z a standard normal number of the draw. With s = 0.1
    the rise at 128 rows lies between 116 and 141 rows in two draws of three. An assumption of this
    model.
    """
    seconds = [float(np.asarray(time.total).flat[-1]) for time in times.verify_ops]
    sigmas = [law_sigma(time, spread)[0] for time in times.verify_ops]
    return np.asarray(np.exp(np.average(sigmas, weights=seconds) * normal_draws(ROW_SHIFT)))


class Drawn(NamedTuple):
    """Step times under joint draws: groups of kernels, each with its factor in every draw.

    ``factors`` have shape (draft lengths or 1, DRAWS); ``seconds`` (batches or 1, contexts or 1,
    draft lengths or 1).
    """

    factors: tuple[Draws, ...]
    seconds: tuple[Draws, ...]
    shape: tuple[int, int, int]

    def at(self, position: int) -> DrawnLength:
        """Return the step times at one draft length, ready to be added up."""
        narrow: Draws = np.zeros((1, 1, 1))
        by_context: list[tuple[Draws, Draws]] = []
        for factors, seconds in zip(self.factors, self.seconds, strict=True):
            factor = factors[min(position, len(factors) - 1)]
            time = seconds[..., min(position, seconds.shape[2] - 1)]
            if time.shape[1] > 1:
                by_context.append((factor, time))
            else:
                narrow = narrow + time[..., None] * factor
        wide = np.empty((*self.shape[:2], len(by_context)))
        for i, (_, time) in enumerate(by_context):
            wide[..., i] = time
        factors = np.array([factor for factor, _ in by_context]).reshape(len(by_context), DRAWS)
        return DrawnLength(narrow=narrow, wide=wide, factors=factors)

    def steps(self) -> Draws:
        """Return the step times of the whole grid, draws first [s]."""
        whole = slice(None)
        plain = self.at(0).steps(whole, whole)
        drafted = [self.at(at).steps(whole, whole, plain) for at in range(1, self.shape[2])]
        return np.moveaxis(np.stack([plain, *drafted], axis=-1), 2, 0)


class DrawnLength(NamedTuple):
    """Step times at one draft length under joint draws.

    ``narrow`` is the sum of all that does not depend on the context, (batches or 1, 1, DRAWS);
    ``wide`` the rest by group, (batches, contexts, groups), with ``factors`` (groups, DRAWS).
    """

    narrow: Draws
    wide: Draws
    factors: Draws

    def steps(self, batches: slice, contexts: slice, plain: Draws | None = None) -> Draws:
        """Return the step times of part of the grid, the draws last [s].

        No draw is below that of ``plain``, the step without drafts: drafting only adds work.
        """
        part = self.wide[batches, contexts]
        rows, columns, groups = part.shape
        total = part.reshape(rows * columns, groups) @ self.factors  # one product for all
        total = total.reshape(rows, columns, DRAWS)
        total += self.narrow[batches] if len(self.narrow) > 1 else self.narrow
        return total if plain is None else np.maximum(total, plain, out=total)


class _Piece(NamedTuple):
    """All launches of one kernel in a step, or the engine's own time (no kernel)."""

    which: str  # verify, draft or overhead
    time: OpTime | None
    group: object  # pieces of one group have the same factors
    factors: Draws  # (draft lengths or 1, DRAWS)
    seconds: Draws  # (batches or 1, contexts or 1, draft lengths or 1)


def _pieces(times: StepTimes, grid: Grid, spread: Spread) -> Iterator[_Piece]:
    """Yield what a step is made of, with the factors that its errors draw.

    log f = s (z_kind + z_kernel) / sqrt(2) + r W_kind(q) + u:
    s and r are the standard deviations of `law_sigma`, q the rows of a sequence with drafts, W is
    `row_walk`, u what `_served` draws, and every z a standard normal number of the draw. Half the
    variance of a kernel's level is shared by its kind. With s = 0.1, r = 0.05 and q = 4, log f
    without u is spread by sqrt(0.1^2 + 0.05^2) = 0.11. An assumption of this model; how often its
    ranges hold what was measured is counted in docs/validation.md.
    """
    streams, drafts = _Streams(), grid.draft_length
    overhead = np.exp(spread.overhead * streams.draws("overhead"))[None, :]
    pieces = [
        _Piece(which="overhead", time=None, group="", factors=overhead, seconds=times.overhead)
    ]
    verified = tuple(replace(grid, hit_rate=1.0).rows.ravel().astype(int).tolist())
    passes = (
        ("verify", times.verify_ops, verified, np.ones_like(drafts)),
        ("draft", times.first_pass_ops, verified, (drafts > 0).astype(float)),
        ("draft", times.further_pass_ops, (1,), times.further_passes),
    )
    factors: dict[object, Draws] = {}
    for which, ops, pass_rows, repeats in passes:
        for time in ops:
            kind, name = time.op.kind.value, f"{time.op.kind.value}/{time.op.name}"
            z_level = (streams.draws(kind) + streams.draws(name)) / np.sqrt(2)
            level, rows = law_sigma(time, spread)
            group = (which, name, level, rows, pass_rows)
            if group not in factors:
                walk = row_walk(time.op.kind, pass_rows)
                factors[group] = np.exp(level * z_level + rows * walk)
            seconds = repeats * _three(time.total)
            pieces.append(
                _Piece(which=which, time=time, group=group, factors=factors[group], seconds=seconds)
            )
    served = _served(drafts.ravel().astype(int).tolist(), spread)
    factors = {piece.group: piece.factors * served[piece.which] for piece in pieces}
    for piece in pieces:
        yield piece._replace(factors=factors[piece.group])


def _served(drafts: Sequence[int], spread: Spread) -> Mapping[str, Draws]:
    """Return what a served build does to each pass, of shape (draft lengths, DRAWS).

    log f = [D > 0] (v z_served + e z_D), and beside it g s(D) z_growth in the verify pass, with
    s(D) = log2(1 + D) / 3, and d z_draft in draft passes; v, g, d and e are ``spread.served``,
    ``growth``, ``draft`` and ``each``. They are fitted on published runs that the rest was not
    fitted on (`workshop.spread`).
    """
    z_served, z_growth, z_draft = (normal_draws(FIRST_SERVED + i) for i in range(3))
    own = np.array([normal_draws(FIRST_SERVED + 3 + d) for d in drafts])
    drafting = np.array([[d > 0] for d in drafts])
    shared = drafting * (spread.served * z_served + spread.each * own)
    rise = np.log2(1 + np.array(drafts, dtype=np.float64))[:, None] / 3
    return {
        "overhead": np.exp(shared),
        "verify": np.exp(shared + spread.growth * rise * z_growth),
        "draft": np.exp(shared + spread.draft * z_draft),
    }


def grouped(times: StepTimes, grid: Grid, spread: Spread) -> Drawn:
    """Return the step times of a grid as groups that share a factor in each draw."""
    factors: dict[object, Draws] = {}
    seconds: dict[object, Draws] = {}
    for piece in _pieces(times, grid, spread):
        factors[piece.group] = piece.factors
        seconds[piece.group] = seconds.get(piece.group, 0.0) + piece.seconds
    return Drawn(factors=tuple(factors.values()), seconds=tuple(seconds.values()), shape=grid.shape)


def drawn_kernels(
    times: StepTimes, grid: Grid, spread: Spread
) -> Iterator[tuple[str, OpTime | None, Draws]]:
    """Yield (pass, kernel, drawn times of all its launches in a step, the draws first) [s].

    The pass is ``verify`` or ``draft``; the engine's own time is ``overhead``, without a kernel.
    """
    for piece in _pieces(times, grid, spread):
        factors = piece.factors.T[:, None, None, :]
        yield piece.which, piece.time, np.asarray(piece.seconds * factors)


def drawn_steps(times: StepTimes, grid: Grid, spread: Spread) -> Draws:
    """Return step times of shape draws first [s]."""
    return grouped(times, grid, spread).steps()


def _three(time: object) -> Draws:
    """Return a time with the grid's three axes."""
    array = np.asarray(time, dtype=np.float64)
    return array.reshape((1,) * (3 - array.ndim) + array.shape)


def speedup_range(drawn: Drawn, tokens_per_step: Draws) -> tuple[Draws, Draws]:
    """Return the 10th and 90th percentile of AL(D) step(0) / step(D) over the draws.

    ``tokens_per_step`` has shape (DRAWS or 1, 1, contexts or 1, draft lengths). Results have the
    grid's shape; at D = 0 both are 1.
    """
    low, high = np.ones(drawn.shape), np.ones(drawn.shape)
    tokens = np.moveaxis(tokens_per_step, 0, -1)[0]  # (contexts or 1, draft lengths, DRAWS or 1)
    lengths = [drawn.at(position) for position in range(drawn.shape[2])]
    for part in _tiles(drawn.shape):
        plain = lengths[0].steps(*part)
        yields = tokens[part[1]] if len(tokens) > 1 else tokens
        for position in range(1, drawn.shape[2]):
            gains = lengths[position].steps(*part, plain)
            np.divide(plain, gains, out=gains)
            gains *= yields[:, position]
            gains.sort(axis=-1)
            low[(*part, position)], high[(*part, position)] = gains[..., LOW], gains[..., HIGH]
    return low, high


def _tiles(shape: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Yield rectangles of about TILE points of (batches, contexts)."""
    wide = min(shape[1], TILE)
    deep = max(TILE // wide, 1)
    for top in range(0, shape[0], deep):
        for left in range(0, shape[1], wide):
            yield slice(top, min(top + deep, shape[0])), slice(left, min(left + wide, shape[1]))
