"""What a count of the acceptance would change: the odds of the best choice after it.

A count is simulated before it is made. Each of DRAWS drafters that the prior holds possible is
counted over some passes of some requests; the prior learns from the counts, advises, and its odds
are those of the advised draft length among the draws that are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.expected import Belief
from roofline.acceptance.prior import BETWEEN_REQUESTS, count_weights, logit
from roofline.advice.acceptance import belief_here
from roofline.advice.decide import TIE, Point, smallest_within_tie
from roofline.advice.recommend import Recommendation
from roofline.base.numbers import normal_draws
from roofline.specs.priors import priors

__all__ = ["Count", "WorthMeasuring", "worth_measuring"]

Array = NDArray[np.float64]
#: Passes that somebody may count.
PASSES = (50, 200, 1000)
#: A count is proposed where it raises the odds by this much and more; of those, the shortest that
#: has most of the rise of the longest.
LEAST_RISE, MOST_OF_IT = 0.10, 0.7
#: Odds from which on nothing needs to be counted.
ENOUGH = 0.9
#: A draft length with smaller odds need not be counted.
UNLIKELY = 0.05
#: The first stream of draws of simulated counts; those below belong to acceptance.
STREAM = 1300


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """A count of some passes, and what it would leave.

    ``odds`` are those of the draft length then advised, ``gain`` is how much faster it is expected
    to be than today's advice, and ``changes`` how often it is another one.
    """

    passes: int
    requests: int
    odds: float
    gain: float
    changes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WorthMeasuring:
    """The counts that could be made at one draft length, and the one to propose, if any."""

    draft_length: int
    odds: float  # of today's advice
    counts: tuple[Count, ...]

    @property
    def proposed(self) -> Count | None:
        """The count that is worth it; None where none changes the odds by much."""
        rise = self.counts[-1].odds - self.odds
        if self.odds >= ENOUGH or rise < LEAST_RISE:
            return None
        return next(count for count in self.counts if count.odds - self.odds >= MOST_OF_IT * rise)


def worth_measuring(answer: Recommendation, point: Point) -> WorthMeasuring | None:
    """Return what counts would change at a point; None where the acceptance was measured.

    Nor is there anything to count where no draft may be advised. The rise of the odds is that of
    all draws of the acceptance; it is added to the odds that the answer states.
    """
    question = answer.question
    usable = [i for i in range(1, len(point.draft_lengths)) if point.candidates[i]]
    if not question.acceptance.unknown or not usable:
        return None
    known = belief_here(question.deployment, question.workload, point.context)
    if known is None:
        return None
    likely = [i for i in usable if point.near_best[i] >= UNLIKELY or i == point.best]
    longest = point.draft_lengths[max(likely, default=usable[0])]
    at = (
        question.workload.batches.index(point.batch),
        question.workload.contexts.index(point.context),
    )
    steps = answer.priced.drawn.steps()[:, at[0], at[1], :]
    lengths = np.array(point.draft_lengths)
    chances = _chances(known, steps, lengths, point.candidates)
    mean = np.where(point.candidates, 1 / answer.times.total[at], np.nan)
    today = int(smallest_within_tie(known.mean[lengths] * mean)[0])
    shown, now = float(point.near_best[point.best]), float(known.weights @ chances[:, today])
    each = priors().acceptance_effects.passes_per_request
    counts = []
    for passes in PASSES:
        requests = max(round(passes / each), 1)
        weights = _weights_after(known, longest, passes // requests, requests)
        tokens = weights @ known.tokens[:, lengths]
        speed = tokens * mean
        advised = smallest_within_tie(speed)[0]
        every = np.arange(len(advised))
        rise = float((weights @ chances)[every, advised].mean()) - now
        counts.append(
            Count(
                passes=passes,
                requests=requests,
                odds=min(shown + rise, 1.0),
                gain=float((speed[every, advised] / speed[:, today]).mean() - 1),
                changes=float((advised != today).mean()),
            )
        )
    return WorthMeasuring(draft_length=longest, odds=shown, counts=tuple(counts))


def _chances(
    known: Belief, steps: Array, lengths: NDArray[np.intp], candidates: NDArray[np.bool_]
) -> Array:
    """Return how often each length is within 1 % of the best by draw of the acceptance.

    ``steps`` are the step times of every joint draw, (DRAWS, draft lengths).
    """
    able = np.flatnonzero(candidates)
    speed = {i: np.multiply.outer(known.tokens[:, lengths[i]], 1 / steps[:, i]) for i in able}
    least = (1 - TIE) * reduce(np.maximum, speed.values())
    chances = np.zeros((len(known.tokens), len(lengths)))
    for i in able:
        chances[:, i] = np.count_nonzero(speed[i] >= least, axis=1) / len(steps)
    return chances


def _weights_after(known: Belief, depth: int, passes: int, requests: int) -> Array:
    """Return the weights of the draws after each simulated count, (DRAWS, draws)."""
    true = known.rates[known.joint, :depth]
    counts = simulated_counts(true, passes=passes, requests=requests)
    weights = count_weights(rates=known.rates, counts=counts, requests=float(requests))
    weights *= known.weights
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def simulated_counts(rates: Array, *, passes: int, requests: int) -> Array:
    """Return accepted drafts by position of simulated counts, (DRAWS, 1 + positions).

    Drafter n, of DRAWS, is counted over R ``requests`` of as many ``passes`` each. Each request
    moves the logit of all its rates by a normal number of standard deviation s = 0.45: their mean
    moves by s / sqrt(R) z_0, and around it they are three points with the moments of a normal
    distribution, -sqrt(3), 0 and sqrt(3) times s sqrt(1 - 1 / R), of weight 1/6, 2/3 and 1/6. The
    next position accepts K' of the K drafts: K a + sqrt(K a (1 - a)) z_i, rounded, a the share of
    the points' drafts that survive. All z are evenly spread normal draws.

    Rates of 1 accept all:

    >>> simulated_counts(np.full((64, 2), 1.0), passes=20, requests=10)[0].tolist()
    [200.0, 200.0, 200.0]
    """
    apart = BETWEEN_REQUESTS * np.sqrt(3 * (1 - 1 / requests)) * np.array([-1.0, 0.0, 1.0])
    moved = BETWEEN_REQUESTS / np.sqrt(requests) * normal_draws(STREAM)[:, None] + apart
    chance = 1 / (1 + np.exp(-(logit(rates)[:, None, :] + moved[:, :, None])))
    alive = np.array([1 / 6, 2 / 3, 1 / 6]) @ np.cumprod(chance, axis=-1)  # (DRAWS, positions)
    shares = alive / np.concatenate([np.ones((len(alive), 1)), alive[:, :-1]], axis=1)
    counted = [np.full(len(rates), float(passes * requests))]
    for position in range(rates.shape[1]):
        tried, share = counted[-1], shares[:, position]
        scatter = np.sqrt(tried * share * (1 - share)) * normal_draws(STREAM + 1 + position)
        counted.append(np.clip(np.rint(tried * share + scatter), 0, tried))
    return np.stack(counted, axis=1)
