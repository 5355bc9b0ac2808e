"""Goals on top of the grid: which draft length and batch meet them, or what it would take.

A limit is met with the odds `SURE`: in that share of the draws of the model's error the step is
short enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import SURE, TIE, Point
from roofline.advice.question import Question
from roofline.advice.readings import Advice, Place, with_reading
from roofline.advice.recommend import Recommendation, answer_at, recommend
from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, Notice, notice
from roofline.base.values import MILLISECONDS, PER_SECOND, amount, choice

__all__ = [
    "GOAL_BATCHES",
    "Goal",
    "NeededTokens",
    "Objective",
    "OperatingPoint",
    "answer_goal",
    "choices_in_other_reading",
    "goal_of",
    "meet_goal",
    "missed_goals",
    "needed_tokens",
    "operating_point",
    "operating_points",
]

Array = NDArray[np.float64]
#: Batches tried where a goal is given and no batch: those that fit; eight to a doubling.
GOAL_BATCHES: tuple[int, ...] = (
    *range(1, 16),
    *(size * eighth // 8 for size in (16, 32, 64, 128, 256, 512) for eighth in range(8, 16)),
    1024,
)
MOST = GOAL_BATCHES[-1]


def _largest_batches_too(question: Question) -> Question:
    """Return a question about its batches and the largest that fit, plain and with each draft."""
    memory, workload = question.deployment.memory, question.workload
    largest = {
        memory.largest_batch(context=context, draft_length=length)
        for context in workload.contexts
        for length in question.draft_lengths
    }
    batches = sorted({*workload.batches, *(size for size in largest if 1 <= size <= MOST)})
    return replace(question, workload=replace(workload, batches=tuple(batches)))


class Objective(StrEnum):
    """What to make best among the choices that meet the limits."""

    LATENCY = "latency"  # time per output token
    THROUGHPUT = "throughput"  # tokens per second of all sequences


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """Limits and what to make best: TPOT at most ``tpot`` [s], at least ``rate`` [tokens/s]."""

    tpot: float | None = None
    rate: float | None = None
    objective: Objective | None = None

    def __post_init__(self) -> None:
        """Refuse limits that no machine has."""
        tpot_ms = None if self.tpot is None else 1e3 * self.tpot
        for field, value in (("slo_tpot", tpot_ms), ("target_tokens_per_s", self.rate)):
            if value is not None and not 0 < value < float("inf"):
                raise InputError(
                    "expected a finite number above 0", field=field, value=f"{value:g}"
                )

    @property
    def best_by(self) -> Objective:
        """The objective asked for; else throughput under a TPOT limit, latency without one."""
        if self.objective is not None:
            return self.objective
        return Objective.THROUGHPUT if self.tpot is not None else Objective.LATENCY


def goal_of(
    *,
    slo_tpot: str | None = None,
    target_tokens_per_s: str | None = None,
    objective: str | None = None,
) -> Goal | None:
    """Return the goal that options describe, if they do.

    >>> goal_of(slo_tpot="5ms")
    Goal(tpot=0.005, rate=None, objective=None)
    """
    if slo_tpot is None and target_tokens_per_s is None and objective is None:
        return None
    tpot, rate = None, None
    if slo_tpot is not None:
        tpot = amount("slo_tpot", slo_tpot, MILLISECONDS, "ms, such as 5 or 5ms") / 1e3
    if target_tokens_per_s is not None:
        expected = "tokens/s, such as 4000"
        rate = amount("target_tokens_per_s", target_tokens_per_s, PER_SECOND, expected)
    return Goal(
        tpot=tpot,
        rate=rate,
        objective=None if objective is None else choice("objective", objective, Objective),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NeededTokens:
    """Tokens per step that a draft length needs to meet the goal, and those that it has."""

    draft_length: int
    tokens_per_step: float
    reached: float

    @property
    def possible(self) -> bool:
        """Whether perfect acceptance would do: AL cannot exceed 1 + D."""
        return self.tokens_per_step <= 1 + self.draft_length

    @property
    def met(self) -> bool:
        """Whether the acceptance given is enough."""
        return self.reached >= self.tokens_per_step


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatingPoint:
    """A batch and draft length that meet the goal, at one context."""

    point: Point
    position: int  # of the draft length
    needed: tuple[NeededTokens, ...]  # at this batch

    @property
    def draft_length(self) -> int:
        """The chosen D."""
        return self.point.draft_lengths[self.position]

    @property
    def tpot(self) -> float:
        """Time per output token of one user [s]."""
        return float(self.point.time_per_token[self.position])

    @property
    def rate(self) -> float:
        """Tokens per second of all sequences [tokens/s]."""
        return self.point.batch / self.tpot

    @property
    def likely_tpot(self) -> tuple[float, float]:
        """Time per output token at the high and at the low end of the speedup [s]."""
        plain, point = float(self.point.time_per_token[0]), self.point
        return plain / float(point.high[self.position]), plain / float(point.low[self.position])

    @property
    def sure_tpot(self) -> float:
        """Time per output token that is kept with the odds `SURE` [s]."""
        return float(self.point.sure_time_per_token[self.position])

    @property
    def sure_rate(self) -> float:
        """Tokens per second of all sequences that are reached with the odds `SURE` [tokens/s]."""
        return self.point.batch / self.sure_tpot


def needed_tokens(step: Array, *, batch: float, tpot: float | None, rate: float | None) -> Array:
    """Return the tokens per step at which steps of ``step`` seconds meet both limits.

    AL = max(step / TPOT, rate step / B), at least 1.

    >>> needed_tokens(np.array([0.02, 0.03]), batch=4, tpot=0.01, rate=None)
    array([2., 3.])
    """
    needed = np.ones_like(step)
    if tpot is not None:
        needed = np.maximum(needed, step / tpot)
    if rate is not None:
        needed = np.maximum(needed, rate * step / batch)
    return np.asarray(needed)


def operating_point(points: Sequence[Point], goal: Goal) -> OperatingPoint | None:
    """Return the batch and draft length that meet ``goal`` and are best by its objective.

    None if none meets it with the odds `SURE`. What is best goes by the expected speed; within 1 %
    of it the smallest batch and draft length is taken. All points belong to one context.
    """
    usable = np.array([p.candidates for p in points])
    tpot = np.where(usable, [p.time_per_token for p in points], np.inf)
    sure = np.where(usable, [p.sure_time_per_token for p in points], np.inf)
    batches = np.array([p.batch for p in points])[:, None]
    meets = np.ones_like(tpot, dtype=bool)
    if goal.tpot is not None:
        meets &= sure <= goal.tpot
    if goal.rate is not None:
        meets &= batches / sure >= goal.rate
    score = 1 / tpot if goal.best_by is Objective.LATENCY else batches / tpot
    score = np.where(meets & np.isfinite(tpot), score, 0.0)
    if not score.any():
        return None
    row, position = np.unravel_index(int((score >= (1 - TIE) * score.max()).argmax()), score.shape)
    point = points[int(row)]._replace(best=int(position))  # what is run follows from the goal
    return OperatingPoint(point=point, position=int(position), needed=_needed(point, goal))


def _needed(point: Point, goal: Goal) -> tuple[NeededTokens, ...]:
    """Return what each draft length needs to meet the goal with the odds `SURE`."""
    step = point.sure_time_per_token * point.tokens_per_step
    needed = needed_tokens(step, batch=point.batch, tpot=goal.tpot, rate=goal.rate)
    return tuple(
        NeededTokens(draft_length=d, tokens_per_step=float(least), reached=float(reached))
        for d, least, reached, ok in zip(
            point.draft_lengths, needed, point.tokens_per_step, point.candidates, strict=True
        )
        if ok
    )


def operating_points(points: Sequence[Point], goal: Goal) -> list[OperatingPoint]:
    """Return the operating point of every context that has one; refuse a goal that none meets."""
    contexts = dict.fromkeys(point.context for point in points)
    groups = [[p for p in points if p.context == context] for context in contexts]
    choices = [choice for group in groups if (choice := operating_point(group, goal)) is not None]
    if not choices:
        raise _out_of_reach(groups[0], goal)
    return choices


def answer_goal(
    question: Question, goal: Goal, *, named: bool
) -> tuple[Recommendation, list[OperatingPoint]]:
    """Answer a question at the batches that meet a goal; return those choices too.

    Where the batches were not ``named``, the largest that fit are tried as well.
    """
    return meet_goal(
        recommend(question if named else _largest_batches_too(question)), goal, named=named
    )


def meet_goal(
    answer: Recommendation, goal: Goal, *, named: bool
) -> tuple[Recommendation, list[OperatingPoint]]:
    """Return the answer at the batches that meet the goal, and those choices.

    A batch that was ``named`` and does not fit is refused; else a context at which no batch fits.
    """
    from roofline.advice.remedies import refuse

    choices, refused = operating_points(answer.points, goal), answer.refused
    if not named:
        answered = {point.context for point in answer.points}
        contexts = answer.question.workload.contexts
        unfit = [(GOAL_BATCHES[0], context) for context in contexts if context not in answered]
        refused = refuse(answer.deployment, unfit)
    chosen = answer_at(
        answer,
        [choice.point for choice in choices],
        missed_goals(answer.points, goal, choices),
    )
    pairs = _readings(choices, choices_in_other_reading(answer, goal))
    said = with_reading(chosen.notices, answer.question.acceptance, pairs)
    return replace(chosen, refused=refused, notices=said, capped=True), choices


def choices_in_other_reading(answer: Recommendation, goal: Goal) -> list[OperatingPoint] | None:
    """Return what meets a goal under the other reading of the acceptance; None without one.

    A context at which nothing meets it is missing.
    """
    if answer.other_reading is None:
        return None
    points = answer.other_reading.points
    groups = [
        [p for p in points if p.context == c] for c in dict.fromkeys(p.context for p in points)
    ]
    return [found for group in groups if (found := operating_point(group, goal)) is not None]


def _readings(
    choices: Sequence[OperatingPoint], others: Sequence[OperatingPoint] | None
) -> list[tuple[Place, Advice, Advice]] | None:
    """Return what both readings choose at every context that has a choice."""
    if others is None:
        return None
    by_context = {other.point.context: other for other in others}

    def advice(choice: OperatingPoint | None) -> Advice:
        if choice is None:
            return Advice(refused="the goal is out of reach")
        return Advice(batch=choice.point.batch, draft_length=choice.draft_length)

    return [
        (
            (("context", choice.point.context),),
            advice(choice),
            advice(by_context.get(choice.point.context)),
        )
        for choice in choices
    ]


def missed_goals(
    points: Sequence[Point], goal: Goal, choices: Sequence[OperatingPoint]
) -> list[Notice]:
    """Return for every context without an operating point the notice how close one gets."""
    met = {choice.point.context for choice in choices}
    groups = {
        point.context: [p for p in points if p.context == point.context]
        for point in points
        if point.context not in met
    }
    return [
        notice(Code.GOAL_MISSED, context=context, problem=_out_of_reach(group, goal).text)
        for context, group in groups.items()
    ]


def _out_of_reach(points: Sequence[Point], goal: Goal) -> InputError:
    """Return the refusal: how close one gets, and the smallest acceptance that would do."""
    limits = []
    if goal.tpot is not None:
        limits.append(str(Option("slo_tpot", f"{1e3 * goal.tpot:g}")))
    if goal.rate is not None:
        limits.append(str(Option("target_tokens_per_s", f"{goal.rate:g}")))
    tpot = [float(np.where(p.candidates, p.sure_time_per_token, np.inf).min()) for p in points]
    most = max(p.batch / fastest for p, fastest in zip(points, tpot, strict=True))
    options = [
        (need.tokens_per_step / (1 + need.draft_length), need, point.batch)
        for point in points
        for need in _needed(point, goal)
        if need.possible
    ]
    enough = "no acceptance would be enough"
    if options:
        _, need, batch = min(options, key=lambda option: option[0])
        enough = (
            f"it would take {need.tokens_per_step:.2f} tokens per step at draft length "
            f"{need.draft_length} and batch {batch} (this acceptance gives {need.reached:.2f})"
        )
    return InputError(
        f"{' '.join(limits)}: out of reach; with odds of {SURE:.0%} the fastest is "
        f"{1e3 * min(tpot):.2f} ms per token, the most {most:.0f} tokens/s; {enough}"
    )
