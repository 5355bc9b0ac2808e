"""A schedule in an engine's format, and what it gains and loses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import TIE
from roofline.base.notices import Code, Notice, notice
from roofline.engines.writing import Band, EngineText
from roofline.questions.schedule.plan import SchedulePlan, plain_value, table_value

__all__ = [
    "WrittenSchedule",
    "best_fixed",
    "gain",
    "loss",
    "pays",
    "refused_schedule",
    "written_schedule",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenSchedule:
    """Text to paste, the bands that the engine will read in it, and what it costs.

    ``loss`` is the share of the mix's tokens lost against the best D at every batch and context;
    ``form_loss`` the part that is the format's fault.
    """

    text: str
    bands: list[Band]
    loss: float
    form_loss: float
    notes: tuple[Notice, ...]


def loss(plan: SchedulePlan, bands: list[Band]) -> float:
    """Return the share of tokens that bands lose against the best D everywhere."""
    best = np.where(np.isnan(plan.speed), -np.inf, plan.speed).argmax(axis=-1)
    return 1 - table_value(plan, plan.positions(bands)) / table_value(plan, best)


def written_schedule(plan: SchedulePlan, bands: list[Band], text: EngineText) -> WrittenSchedule:
    """Return the schedule with its losses worked out."""
    lost = loss(plan, bands)
    return WrittenSchedule(
        text=text.text,
        bands=bands,
        loss=lost,
        form_loss=max(lost - loss(plan, plan.merged), 0.0) if bands != plan.merged else 0.0,
        notes=text.notes,
    )


def refused_schedule(plan: SchedulePlan, reason: str) -> WrittenSchedule:
    """Return the bands of a schedule that the engine cannot be given, and why it cannot."""
    no_schedule = notice(Code.NO_SCHEDULE, reason=reason)
    return written_schedule(plan, plan.merged, EngineText(text="", notes=(no_schedule,)))


def best_fixed(plan: SchedulePlan) -> tuple[int, float]:
    """Return the best draft length for all batches and its tokens per second over the mix.

    D = 0 means that no speculation is configured, so it pays nothing for being idle. A draft length
    that leaves the captured graphs anywhere in the mix cannot be the best.
    """
    uncaptured = np.isnan(plan.speed) & ~np.isnan(plan.priced)
    leaves: NDArray[np.bool_] = np.asarray(
        (uncaptured.any(axis=1) & (plan.weights > 0)[:, None]).any(axis=0)
    )
    everywhere: NDArray[np.intp] = np.zeros((plan.batches, 1), dtype=np.intp)
    values = [plain_value(plan)]
    values += [
        0.0 if leaves[i] else table_value(plan, everywhere + i)
        for i in range(1, len(plan.draft_lengths))
    ]
    best = int(np.argmax(values))
    return plan.draft_lengths[best], values[best]


def gain(plan: SchedulePlan, bands: list[Band]) -> float:
    """Return the gain of the bands over the best fixed draft length, as a share."""
    return table_value(plan, plan.positions(bands)) / best_fixed(plan)[1] - 1


def pays(plan: SchedulePlan, schedule: WrittenSchedule) -> bool:
    """Return whether a schedule can be pasted and gains more than a tie over the best fixed D.

    A schedule with one draft length everywhere holds that best fixed D, so it pays too.
    """
    fixed = len({d for band in schedule.bands for d in band.draft_lengths}) == 1
    return bool(schedule.text) and (fixed or gain(plan, schedule.bands) >= TIE)
