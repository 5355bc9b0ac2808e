"""What a report shows: the answer to one question, the same question's grid, and a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from roofline.acceptance import from_curve
from roofline.advice.prepare import Request
from roofline.advice.recommend import Recommendation, costs, recommend, recommend_for
from roofline.advice.remedies import Refused
from roofline.advice.request import DEEPEST
from roofline.base.errors import InputError, RooflineError
from roofline.questions.schedule.formats import Wording, write
from roofline.questions.schedule.plan import Plan, no_schedule, plan_of
from roofline.questions.schedule.written import NoScheduleError, Written
from roofline.render.charts.rooflines import RooflineRow, roofline_rows

__all__ = ["Findings", "find"]

#: Batches that the schedule covers, and the share of speed that its bands may lose.
SCHEDULED = 256
TIE = 0.01
#: AL = 1 + D, as a table: a rate would be doubted.
EVERY_DRAFT = from_curve({d: 1.0 + d for d in range(1, DEEPEST + 1)}, label="every draft")
#: Batches times contexts: what keeps the file light and its tables legible.
MOST_CELLS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """Everything that a report is made of.

    ``grid`` prices every draft length that the drafter can make, with every draft accepted: its
    tokens per step are 1 + D, so that the page can put others in their place.
    """

    answer: Recommendation
    grid: Recommendation
    counted: Recommendation | None  # the grid at the acceptance given, where its range needs it
    kernels: tuple[RooflineRow, ...]
    schedule: tuple[Plan, Written] | None
    no_schedule: str  # why there is none
    refused: tuple[Refused, ...]  # cells that were asked for by name and do not fit

    @property
    def batches(self) -> list[int]:
        """Those that fit at some context."""
        fit = {point.batch for point in self.grid.points}
        return [batch for batch in self.grid.setup.request.batches if batch in fit]

    @property
    def contexts(self) -> list[int]:
        """Those that some batch fits at."""
        fit = {point.context for point in self.grid.points}
        return [context for context in self.grid.setup.request.contexts if context in fit]


def find(
    request: Request, *, batches: Sequence[int], contexts: Sequence[int], named: bool
) -> Findings:
    """Answer ``request`` at its one batch and context, and price the grid around it.

    ``named`` says that somebody asked for these batches and contexts.
    """
    answer = recommend(request)
    priced = replace(
        request,
        batches=tuple(sorted({*batches, *request.batches})),
        contexts=tuple(sorted({*contexts, *request.contexts})),
        acceptance=EVERY_DRAFT if request.drafter != "none" else None,
        acceptance_rounds=None,
    )
    cells = len(priced.batches) * len(priced.contexts)
    if cells > MOST_CELLS:
        raise InputError(
            f"--batches, --contexts: {len(priced.batches)} x {len(priced.contexts)} cells, "
            f"expected at most {MOST_CELLS}; list fewer"
        )
    grid = recommend(priced)
    schedule, reason = _schedule(answer)
    return Findings(
        answer=answer,
        grid=grid,
        counted=_counted(answer, grid),
        kernels=tuple(roofline_rows(answer.setup, costs(answer.setup))),
        schedule=schedule,
        no_schedule=reason,
        refused=grid.refused if named else (),
    )


def _counted(answer: Recommendation, grid: Recommendation) -> Recommendation | None:
    """Return the grid with what the acceptance itself may be off in its ranges."""
    setup, request = answer.setup, grid.setup.request
    if setup.rounds is None and not setup.acceptance.unlimited:
        return None
    asked = replace(setup.request, batches=request.batches, contexts=request.contexts)
    known = setup.acceptance.over_contexts(
        asked.contexts, grid.setup.draft_lengths, extrapolate=asked.extrapolate
    )
    everywhere = np.isfinite(known).all(axis=0)
    lengths = tuple(np.array(grid.setup.draft_lengths)[everywhere].tolist())
    return recommend_for(replace(setup, request=asked, draft_lengths=lengths))


def _schedule(answer: Recommendation) -> tuple[tuple[Plan, Written] | None, str]:
    """Return the schedule of the answer's context in its engine's words, or why there is none."""
    setup = answer.setup
    reason = no_schedule(setup)
    if reason is not None:
        return None, reason
    whole = replace(setup.request, batches=tuple(range(1, SCHEDULED + 1)), acceptance_rounds=None)
    try:
        plan = plan_of(replace(setup, request=whole), tie=TIE, mix=None)
        return (plan, write(plan, Wording())), ""
    except NoScheduleError as error:
        return None, f"no schedule: {error.reason}"
    except RooflineError as error:
        return None, f"no schedule: {error}"
