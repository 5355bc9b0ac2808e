"""What the page shows: the answer to one question, a grid around it, and a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.acceptance.curve import all_accepted
from roofline.advice.configuration import Configuration
from roofline.advice.decide import TIE
from roofline.advice.question import (
    Question,
    Workload,
    allowed_lengths,
    ask,
    context_notices,
    context_refusal,
    known_lengths,
)
from roofline.advice.recommend import Recommendation, recommend
from roofline.advice.remedies import Refused
from roofline.base.errors import InputError, Option, RooflineError
from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import LONGEST_DRAFT
from roofline.engines.writing import NoScheduleError
from roofline.questions.schedule.formats import ScheduleOptions, write_schedule
from roofline.questions.schedule.plan import SchedulePlan, no_schedule_reason, plan_question
from roofline.questions.schedule.written import WrittenSchedule
from roofline.render.charts.rooflines import RooflineRow, roofline_rows

__all__ = ["Report", "report_for"]

#: The largest batch that the schedule covers.
LARGEST_BATCH = 256
#: Batches that are answered one by one.
MOST_ANSWERS = 12
#: Batches times contexts: what keeps the file light and its tables legible.
MOST_CELLS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The content of the page; it opens at the first point of ``answer``.

    ``grid`` prices every draft length that the drafter can make, with every draft accepted: its
    tokens per step are 1 + D, so that the page can put others in their place.
    """

    answer: Recommendation
    grid: Recommendation
    #: The grid at the acceptance given, if its error is part of the ranges.
    grid_with_acceptance_error: Recommendation | None
    kernels: tuple[RooflineRow, ...]
    schedule: tuple[SchedulePlan, WrittenSchedule] | None
    no_schedule: Notice | None  # why there is none
    refused: tuple[Refused, ...]  # cells that were asked for by name and do not fit

    @property
    def batches(self) -> list[int]:
        """The batches that fit at some context."""
        fit = {point.batch for point in self.grid.points}
        return [batch for batch in self.grid.question.workload.batches if batch in fit]

    @property
    def contexts(self) -> list[int]:
        """The contexts that some batch fits at."""
        fit = {point.context for point in self.grid.points}
        return [context for context in self.grid.question.workload.contexts if context in fit]


def report_for(
    configuration: Configuration,
    workload: Workload,
    *,
    batches: Sequence[int],
    contexts: Sequence[int],
    named: bool,
) -> Report:
    """Answer the question at its batches and its one context, and price the grid around them.

    ``named`` says that the user gave these batches and contexts.
    """
    if len(workload.batches) > MOST_ANSWERS:
        raise InputError(
            f"{len(workload.batches)} answers, expected at most {MOST_ANSWERS}; move through more "
            f"with {Option('batches')}",
            field="batch",
        )
    answer = recommend(ask(configuration, workload))
    around = replace(
        workload,
        batches=tuple(sorted({*batches, *workload.batches})),
        contexts=tuple(sorted({*contexts, *workload.contexts})),
        acceptance=None,
        acceptance_rounds=None,
    )
    cells = len(around.batches) * len(around.contexts)
    if cells > MOST_CELLS:
        raise InputError(
            f"{Option('batches')}, {Option('contexts')}: {len(around.batches)} x "
            f"{len(around.contexts)} cells, expected at most {MOST_CELLS}; list fewer"
        )
    too_long = context_refusal(answer.deployment, around.contexts[-1])
    if too_long is not None:
        raise InputError(too_long.problem, field="contexts", value=too_long.value)
    grid = recommend(_every_draft(answer.question, around))
    schedule, reason = _schedule(answer)
    return Report(
        answer=answer,
        grid=grid,
        grid_with_acceptance_error=_with_acceptance_error(answer, grid),
        kernels=tuple(roofline_rows(answer.question.price((answer.points[0].batch,)))),
        schedule=schedule,
        no_schedule=reason,
        refused=grid.refused if named else answer.refused,
    )


def _every_draft(question: Question, workload: Workload) -> Question:
    """Return the question in which every draft that the drafter can make is accepted."""
    deployment = question.deployment
    return replace(
        question,
        workload=workload,
        acceptance=all_accepted(LONGEST_DRAFT),
        draft_lengths=allowed_lengths(deployment, workload.max_draft_length),
        own_notices=tuple(context_notices(deployment, workload.contexts)),
    )


def _with_acceptance_error(answer: Recommendation, grid: Recommendation) -> Recommendation | None:
    """Return the grid with ranges that hold the acceptance's own error; None if it states none."""
    question, around = answer.question, grid.question.workload
    exact = not question.acceptance.uncertain and not question.acceptance.unlimited
    if question.rounds is None and exact:
        return None
    workload = replace(question.workload, batches=around.batches, contexts=around.contexts)
    lengths = known_lengths(
        question.deployment,
        question.acceptance,
        contexts=workload.contexts,
        most=workload.max_draft_length,
    )
    return recommend(replace(question, workload=workload, draft_lengths=lengths))


def _schedule(
    answer: Recommendation,
) -> tuple[tuple[SchedulePlan, WrittenSchedule] | None, Notice | None]:
    """Return the schedule of the answer's context in its engine's words, or why there is none."""
    question = answer.question
    reason = no_schedule_reason(question)
    if reason is not None:
        return None, reason
    whole = replace(
        question.workload, batches=tuple(range(1, LARGEST_BATCH + 1)), acceptance_rounds=None
    )
    try:
        plan = plan_question(replace(question, workload=whole), tie=TIE, mix=None)
        return (plan, write_schedule(plan, ScheduleOptions())), None
    except NoScheduleError as error:
        return None, notice(Code.NO_SCHEDULE, reason=error.reason)
    except RooflineError as error:
        return None, notice(Code.NO_SCHEDULE, reason=error.text)
