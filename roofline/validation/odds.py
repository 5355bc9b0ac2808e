"""Whether odds and ranges come true, on every published sweep, by fits that never saw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.expected import Belief, belief_of_draws, joined
from roofline.advice.decide import TIE, near_best, smallest_within_tie
from roofline.base.numbers import LONGEST_DRAFT
from roofline.calibrate.engine.spec_pricing import deployment_of
from roofline.calibrate.engine.spec_rows import SpecRow, drafter_of, target_of
from roofline.specs.engine import load_engine
from roofline.specs.placement import Grid, Routing
from roofline.specs.priors import Spread, priors
from roofline.timing.uncertainty import drawn_steps
from roofline.validation.acceptance import (
    HIDDEN,
    left_out_rates,
    sweep_labels,
    without_labels,
)
from roofline.validation.advice import grouped_sweeps
from roofline.validation.steps import published_runs

__all__ = ["Replayed", "bins", "chance_of_misses", "expected_replays", "log_score", "replays"]

Array = NDArray[np.float64]
#: Simulated worlds, which tell 5 % from 4 or 6 %.
WORLDS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """One sweep as it was measured, and as the draws say it could be; D = 0 first if measured."""

    group: str
    drafter: str  # model and kind
    lengths: tuple[int, ...]
    measured: Array  # speed
    expected: Array  # speed of plain decoding is 1
    drawn: Array  # (DRAWS, lengths)
    odds: Array  # of being within the tie of the best

    @property
    def chosen(self) -> int:
        """The position that the advice takes."""
        return int(smallest_within_tie(self.expected)[0])

    @property
    def speedups(self) -> Array:
        """The measured speedups; empty where plain decoding was not."""
        return self.measured[1:] / self.measured[0] if self.lengths[0] == 0 else self.measured[:0]

    @property
    def _range(self) -> Array:
        low_high = np.quantile(self.drawn, (0.1, 0.9), axis=0)
        return np.asarray(low_high[:, 1:] if self.lengths[0] == 0 else low_high[:, :0])

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which measured speedups lie in their range."""
        low, high = self._range
        return np.asarray((self.speedups >= low) & (self.speedups <= high))

    @property
    def widths(self) -> Array:
        """Width of each range [log]."""
        low, high = self._range
        return np.asarray(np.log(high / low))

    @property
    def errors(self) -> Array:
        """Error of each expected speedup [log]."""
        expected = self.expected[1:] if self.lengths[0] == 0 else self.expected[:0]
        return np.asarray(np.log(self.speedups / expected))

    @property
    def near_best(self) -> NDArray[np.bool_]:
        """Which lengths were measured to be within the tie of the best."""
        return np.asarray(self.measured >= (1 - TIE) * np.nanmax(self.measured))


def replays(spread: Spread | None = None) -> list[Replayed]:
    """Return every sweep with tokens per step of its own; ``spread`` replaces the stated one."""
    published = published_runs()
    stated = spread or priors().spread
    found = []
    for pick, own in grouped_sweeps():
        if own:
            rows = [published.rows[i] for i in pick]
            found.append(_replay(rows, published.predicted.ratio[list(pick)], stated))
    return found


def expected_replays(known: str, spread: Spread | None = None) -> list[Replayed]:
    """Return every published sweep with the acceptance that the prior expects of its drafter.

    The prior never saw the drafter; ``known`` names the labels that the asker has
    (`validation.acceptance.HIDDEN`). Draws join those of the step times with those of the prior, as
    an answer does.
    """
    published, stated = published_runs(), spread or priors().spread
    found = []
    for pick, _ in grouped_sweeps():
        rows = [published.rows[i] for i in pick]
        told = sweep_labels(rows)
        if told is None:
            continue
        labels, out = told
        rates = left_out_rates(without_labels(labels, HIDDEN[known]), out, LONGEST_DRAFT)
        tokens = belief_of_draws(rates)
        found.append(_replay(rows, published.predicted.ratio[list(pick)], stated, expected=tokens))
    return found


def _replay(
    rows: Sequence[SpecRow], ratio: Array, spread: Spread, *, expected: Belief | None = None
) -> Replayed:
    """Return one sweep by its own tokens per step, or by the ``expected`` ones of the prior."""
    lengths = [0, *(row.draft_length for row in rows)]
    speeds = np.array([rows[0].base_speed or np.nan, *(row.speed or np.nan for row in rows)])
    if expected is None:
        tokens = np.array([1.0, *(row.tokens_per_step or np.nan for row in rows)])
        yields = tokens[None]
    else:
        tokens = expected.mean[lengths]
        yields = joined(expected, expected.joint, expected.mean)[:, lengths]
    cost = np.array([1.0, *ratio])
    drawn = yields / cost * np.exp(-_drawn_errors(rows, lengths, spread))
    start = 0 if rows[0].base_speed else 1
    drawn = drawn[:, start:]
    return Replayed(
        group=rows[0].group,
        drafter=f"{rows[0].model} {rows[0].kind}",
        lengths=tuple(lengths[start:]),
        measured=speeds[start:],
        expected=(tokens / cost)[start:],
        drawn=drawn,
        odds=near_best(drawn),
    )


def _drawn_errors(rows: Sequence[SpecRow], lengths: Sequence[int], spread: Spread) -> Array:
    """Return drawn log R(D) less the expected one, (DRAWS, lengths); all lengths jointly."""
    stated, row = priors().routing, rows[-1]
    target = target_of(row, Routing(skew=stated.skew, correlation=stated.correlation))
    overhead = load_engine(row.engine).overhead
    grid = Grid.of((row.batch,), (row.context,), lengths)
    times = deployment_of(row, target, drafter_of(row, target), overhead).price(grid).times
    drawn = np.log(drawn_steps(times, grid, spread)[:, 0, 0])
    expected = np.log(times.total[0, 0])
    return np.asarray(drawn - drawn[:, :1] - expected + expected[0])


def bins(every: Sequence[Replayed], size: int = 20) -> list[tuple[int, float, float]]:
    """Return (answers, mean odds, share that came true) of the advice, by rising odds.

    Of answers with the same odds each counts as their mean, so that no bin gets the true ones.
    """
    odds = np.array([one.odds[one.chosen] for one in every])
    return _binned(odds, np.array([one.near_best[one.chosen] for one in every]), size)


def _binned(odds: Array, true: NDArray[np.bool_], size: int) -> list[tuple[int, float, float]]:
    _, same, count = np.unique(odds, return_inverse=True, return_counts=True)
    shares = (np.bincount(same, weights=true) / count)[same]
    parts = np.array_split(np.argsort(odds), max(len(odds) // size, 1))
    return [(len(at), float(odds[at].mean()), float(shares[at].mean())) for at in parts]


def chance_of_misses(every: Sequence[Replayed], size: int = 20) -> float:
    """Return how often right odds miss by as much as these, in the bin that misses most.

    In each of WORLDS worlds every drafter of a group of sweeps is one of the DRAWS draws, and that
    draw says which lengths are near the best: the odds are right by construction. Sweeps of one
    drafter share its acceptance and its build, so they err together. The seed is fixed.
    """
    odds = np.array([one.odds[one.chosen] for one in every])
    drawn = np.array([smallest_within_tie(one.drawn)[1][:, one.chosen] for one in every])
    drafters = [(one.group, one.drafter) for one in every]
    at = np.array([sorted(set(drafters)).index(drafter) for drafter in drafters])
    worlds = np.random.default_rng(20261201).integers(drawn.shape[1], size=(WORLDS, at.max() + 1))
    true = drawn[range(len(at)), worlds[:, at]]
    misses = [_largest_miss(_binned(odds, each, size)) for each in true]
    return float(np.mean(np.array(misses) >= _largest_miss(bins(every, size))))


def _largest_miss(parts: Sequence[tuple[int, float, float]]) -> float:
    return max(abs(claimed - true) for _, claimed, true in parts)


def log_score(every: Sequence[Replayed]) -> float:
    """Return the mean log probability that the odds gave to what came true, of the advice.

    Odds are kept between 1 and 99 %.
    """
    scores = []
    for one in every:
        odds = float(np.clip(one.odds[one.chosen], 0.01, 0.99))
        scores.append(np.log(odds if one.near_best[one.chosen] else 1 - odds))
    return float(np.mean(scores))
