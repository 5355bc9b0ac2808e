"""The belief before any timing: the step times and the acceptance of a question."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.prior import MISFIT, OTHER_RUN, logit
from roofline.advice.belief import Candidate, JointBelief, joint_prior
from roofline.advice.recommend import drawn_tokens
from roofline.timing.timed import GROWTH, PROCESSORS, Deviations

if TYPE_CHECKING:
    from roofline.advice.decide import Point
    from roofline.advice.deployment import PricedGrid
    from roofline.advice.question import Question
    from roofline.advice.recommend import Recommendation
    from roofline.timing.step import StepTimes

__all__ = [
    "OWN_RUN",
    "FirstTiming",
    "deviations_of",
    "first_timing",
    "logits_of",
    "prior_of",
]

Array = NDArray[np.float64]
#: How far a curve of one's own may be off in another run [logits]: level, slope over four
#: positions, and each position by itself.
OWN_RUN = (OTHER_RUN, OTHER_RUN, MISFIT)
#: Rates of a draw are kept this near to one half [logits].
STEEPEST = 6.0
#: The share of the verify pass that laws nobody measured may price.
MOSTLY = 0.5


def logits_of(*, mean: Array, drawn: Array | None = None, own: bool = False) -> tuple[Array, Array]:
    """Return logit a_1 ... a_n of expected AL(0 ... n), and the covariance of what is not known.

    ``drawn`` are joint draws of AL, (draws, 0 ... n); an ``own`` curve was given, and a timing is
    another run of it: K = K_drawn + s^2 11' + b^2 kk'/16 + n^2 I with k = i - 1, and without s and
    b where it is expected of public runs.

    AL(1) = 1.5 is one draft in two; another run of it may be off by 0.12 and 0.08 logits.

    >>> logits, covariance = logits_of(mean=np.array([1.0, 1.5]), own=True)
    >>> logits.tolist(), covariance.round(4).tolist()  # 0.12^2 + 0.08^2
    ([0.0], [[0.0208]])
    """
    logits, count = _logits(mean), len(mean) - 1
    level, slope, each = OWN_RUN
    spread = each**2 * np.eye(count)
    if drawn is not None:
        spread = spread + np.atleast_2d(np.cov(_logits(drawn), rowvar=False))
    if own:
        k = np.arange(count)
        spread = spread + level**2 * np.ones((count, count)) + slope**2 * np.outer(k, k) / 16
    return logits, spread


def _logits(tokens: Array) -> Array:
    survival = np.minimum.accumulate(np.clip(np.diff(tokens, axis=-1), 1e-6, 1.0), axis=-1)
    before = np.concatenate([np.ones((*survival.shape[:-1], 1)), survival[..., :-1]], axis=-1)
    return np.clip(logit(survival / before), -STEEPEST, STEEPEST)


def deviations_of(times: StepTimes, *, processor: bool = False) -> Deviations:
    """Return how far steps may be off: twice as far where most kernels have priors only."""
    known = PROCESSORS if processor else GROWTH
    seconds = [(float(np.mean(op.total)), op.chosen.provenance) for op in times.verify_ops]
    assumed = sum(time for time, provenance in seconds if provenance == "assumed")
    mostly = assumed > MOSTLY * sum(time for time, _ in seconds)
    return known.priors_only() if mostly else known


def prior_of(question: Question, priced: PricedGrid, *, prints_tokens: bool = True) -> JointBelief:
    """Return the belief of a question at its batches, and at its first context.

    Lengths that leave the captured graphs stay: the jump that is expected there may be wrong.
    """
    return _prior(question, priced, loads=slice(None), column=0, prints_tokens=prints_tokens)


def _prior(
    question: Question,
    priced: PricedGrid,
    *,
    loads: slice,
    column: int,
    prints_tokens: bool = True,
) -> JointBelief:
    lengths, context = question.draft_lengths, question.workload.contexts[column]
    every = range(max(lengths) + 1)
    mean = question.acceptance.over_contexts((context,), every)
    drawn = drawn_tokens(_with_lengths(question, every), mean, contexts=(context,))
    logits, covariance = logits_of(
        mean=mean[0],
        drawn=drawn[:, 0, 0] if len(drawn) > 1 else None,
        own=not question.acceptance.unknown,
    )
    times, shape = priced.times, priced.grid.shape
    verify, draft, overhead = (
        np.broadcast_to(part, shape)[loads, column]
        for part in (times.verify, times.draft, times.overhead)
    )
    processor = question.deployment.gpu.generation == "cpu"
    return joint_prior(
        draft_lengths=lengths,
        verify=verify,
        draft=draft,
        overhead=overhead,
        logits=logits,
        logit_covariance=covariance,
        allowed=np.asarray(priced.fits[loads, column]),
        prints_tokens=prints_tokens,
        deviations=deviations_of(times, processor=processor),
    )


def _with_lengths(question: Question, lengths: range) -> Question:
    return replace(question, draft_lengths=tuple(lengths))


class FirstTiming(NamedTuple):
    """The first timing of an answer: its draft length, what running it loses, what it is worth."""

    draft_length: int
    expected_loss: float  # share of speed against the best length
    worth: float  # share of speed that the choice after it is expected to gain


def first_timing(answer: Recommendation, point: Point) -> FirstTiming | None:
    """Return what to time first at a point: the advice, as the loop of timings begins.

    Steps scatter as the answer's own draws do, which its odds are made of. None where there is no
    choice, where timings were taken already, and where the acceptance of some length up to the
    longest is not known.
    """
    question, longest = answer.question, answer.question.draft_lengths[-1]
    known = question.acceptance.over_contexts((point.context,), range(longest + 1))
    if (
        question.workload.tuned is not None
        or np.count_nonzero(point.candidates) < 2
        or not np.isfinite(known).all()
    ):
        return None
    row = question.workload.batches.index(point.batch)
    column = question.workload.contexts.index(point.context)
    belief = _prior(question, answer.priced, loads=slice(row, row + 1), column=column)
    steps = answer.priced.drawn.steps()[:, row, column]
    covariance, count = belief.covariance.copy(), steps.shape[1]
    covariance[:count, :count] = np.cov(np.log(steps), rowvar=False) + GROWTH.level**2
    belief = replace(belief, covariance=covariance, allowed=point.candidates[None])
    found = belief.next_timing(running=Candidate(0, point.draft_length))
    tokens = question.tokens_per_step((point.context,))
    speed = drawn_tokens(question, tokens, contexts=(point.context,))[:, 0, 0] / steps
    best = np.where(point.candidates, speed, 0.0).max(axis=1)
    loss = float(np.mean(1 - speed[:, point.best] / best))
    return FirstTiming(found.candidate.draft_length, loss, min(found.worth, loss))
