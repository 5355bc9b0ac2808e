"""Why a schedule drafts more at larger batches: what a longer draft adds to a step falls there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from roofline.engines.writing import Band
from roofline.questions.schedule.plan import SchedulePlan
from roofline.timing.step import StepTimes

__all__ = ["Rise", "rises"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rise:
    """A border at which the draft length rises with the batch.

    ``before`` and ``after`` are what the longer draft adds to ``part`` of the step in the two
    bands, as shares of the step with the shorter one. All three are None where the longer draft
    cannot run before the border: it leaves the captured graphs, and plain decoding does not yet.
    """

    batch: int  # the first with the longer draft
    context: int | None  # None: for all of them
    shorter: int
    longer: int
    part: str | None
    before: float | None
    after: float | None


def rises(plan: SchedulePlan, bands: Sequence[Band]) -> tuple[Rise, ...]:
    """Return every rise between neighbouring bands, with the part of the step that allows it.

    That is the part to which the longer draft adds less after the border than before it, by the
    largest share of the step.
    """
    found = [
        (first, second, position)
        for first, second in pairwise(bands)
        for position in range(len(first.draft_lengths))
        if second.draft_lengths[position] > first.draft_lengths[position]
    ]
    if not found:
        return ()
    times = plan.question.price(range(1, plan.batches + 1), plan.contexts).times
    return tuple(_rise(plan, times, *border) for border in found)


def _rise(plan: SchedulePlan, times: StepTimes, first: Band, second: Band, position: int) -> Rise:
    joint = len(first.draft_lengths) == 1
    columns = slice(None) if joint else slice(position, position + 1)
    shorter, longer = first.draft_lengths[position], second.draft_lengths[position]
    low, high = plan.draft_lengths.index(shorter), plan.draft_lengths.index(longer)

    def growth(band: Band) -> dict[str, float]:
        """Return what the longer draft adds to each part, as a share of the step."""
        inside = slice(band.first - 1, band.last), columns
        step = times.total[inside][..., low].mean()
        return {
            name: float((part[inside][..., high] - part[inside][..., low]).mean() / step)
            for name, part in times.parts.items()
        }

    before, after, part = growth(first), growth(second), None
    if np.isfinite(plan.speed[first.first - 1 : first.last, columns, high]).any():
        part = max(before, key=lambda name: before[name] - after[name])
    return Rise(
        batch=second.first,
        context=None if joint else plan.contexts[position],
        shorter=shorter,
        longer=longer,
        part=part,
        before=None if part is None else before[part],
        after=None if part is None else after[part],
    )
