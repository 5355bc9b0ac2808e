"""From a question to an answer for every batch and context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.defaults import fall_of_one_rate
from roofline.acceptance.models import share_if_falling
from roofline.acceptance.sampling import drawn_tokens_per_step
from roofline.advice.decide import CONFIDENCES, Decision, Point, decide, near_best
from roofline.advice.deployment import Deployment, PricedGrid
from roofline.advice.notices import edges, law_limits, slower_than_wide
from roofline.advice.question import Question
from roofline.advice.remedies import Refused, does_not_fit, refuse
from roofline.base.notices import Notice
from roofline.timing.launches import past_graphs
from roofline.timing.memory import Memory
from roofline.timing.step import StepTimes
from roofline.timing.uncertainty import speedup_range

__all__ = ["Recommendation", "decide_grid", "fitting", "recommend"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The answers, what was refused, and what the reader must know about them."""

    question: Question
    points: tuple[Point, ...]
    priced: PricedGrid
    notices: tuple[Notice, ...]
    refused: tuple[Refused, ...] = ()  # batches and contexts that do not fit

    @property
    def deployment(self) -> Deployment:
        """What the question is about."""
        return self.question.deployment

    @property
    def times(self) -> StepTimes:
        """The step times of the whole grid."""
        return self.priced.times

    @property
    def memory(self) -> Memory:
        """Where the bytes of one accelerator go."""
        return self.deployment.memory

    @property
    def largest_batch(self) -> int:
        """The largest batch that is answered: what the engine has to run at once."""
        return max(point.batch for point in self.points)


def fitting(priced: PricedGrid) -> PricedGrid:
    """Return a priced grid; raise DoesNotFitError when no point of it fits the memory."""
    if not priced.fits[..., 0].any():
        batch, context = int(priced.grid.batch.flat[0]), int(priced.grid.context.flat[0])
        raise does_not_fit(priced.deployment, batch=batch, context=context)
    return priced


def decide_grid(question: Question, priced: PricedGrid) -> Decision:
    """Decide at every batch and context of what was priced."""
    tokens = _tokens_per_step(question, priced)
    low, high = speedup_range(priced.drawn, _drawn_tokens(question, tokens))
    if question.acceptance.unlimited and len(question.draft_lengths) > 1:
        low = low * share_if_falling(
            rate=tokens[:, 1] - 1,
            ratio=fall_of_one_rate(),
            draft_lengths=question.draft_lengths,
        )
    return decide(priced.times.total, tokens, priced.candidates, (low, high))


def _tokens_per_step(question: Question, priced: PricedGrid) -> Array:
    contexts = priced.grid.context.ravel().astype(int).tolist()
    return question.tokens_per_step(contexts)


def _drawn_tokens(question: Question, tokens_per_step: Array) -> Array:
    return drawn_tokens_per_step(question.draft_lengths, tokens_per_step, question.rounds)


def recommend(question: Question) -> Recommendation:
    """Answer a question; raise DoesNotFitError when no requested point fits the memory."""
    priced = fitting(question.price())
    tokens, decision = _tokens_per_step(question, priced), decide_grid(question, priced)
    speed = _drawn_tokens(question, tokens) / priced.drawn.steps()
    odds = near_best(np.where(priced.candidates, speed, np.nan))
    rows, columns, _ = priced.grid.shape
    places = [(i, j) for i in range(rows) for j in range(columns)]
    points = tuple(
        _point(question, priced, decision, tokens[at[1] % len(tokens)], odds[at], at=at)
        for at in places
        if priced.fits[(*at, 0)]
    )
    batches, contexts = question.workload.batches, question.workload.contexts
    unfit = [(batches[i], contexts[j]) for i, j in places if not priced.fits[i, j, 0]]
    return Recommendation(
        question=question,
        points=points,
        priced=priced,
        refused=refuse(question.deployment, unfit),
        notices=(
            *question.notices,
            *law_limits(priced.times),
            *slower_than_wide(question, priced.times),
            *past_graphs(
                question.deployment.engine,
                {p.batch: (p.draft_lengths, p.pass_rows.tolist()) for p in points},
            ),
            *edges(question, points),
        ),
    )


def _point(
    question: Question,
    priced: PricedGrid,
    decision: Decision,
    tokens_per_step: Array,
    odds: Array,
    *,
    at: tuple[int, int],
) -> Point:
    times = priced.times
    return Point(
        batch=question.workload.batches[at[0]],
        context=question.workload.contexts[at[1]],
        draft_lengths=question.draft_lengths,
        feasible=priced.fits[at],
        tokens_per_step=tokens_per_step,
        step=times.total[at],
        verify=times.verify[at],
        draft=times.draft[at],
        overhead=times.overhead[at],
        parts={name: part[at] for name, part in times.parts.items()},
        speedup=decision.speedup[at],
        low=decision.low[at],
        high=decision.high[at],
        tie=decision.tie[at],
        near_best=odds,
        pass_rows=times.launches.rows[at],
        captured=times.launches.captured[at],
        by_hand=times.launches.by_hand[at],
        best=int(decision.best[at]),
        confidence=CONFIDENCES[decision.confidence[at]],
    )
