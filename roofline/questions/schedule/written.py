"""A schedule in an engine's format, and what it gains and loses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import TIE, smallest_within_tie
from roofline.advice.readings import Advice, with_reading
from roofline.base.notices import Code, Notice, notice
from roofline.engines.writing import Band, EngineText
from roofline.questions.schedule.plan import (
    SchedulePlan,
    passes_in_graphs,
    plain_value,
    table_value,
)
from roofline.questions.schedule.rises import Rise, rises

Array = NDArray[np.float64]

#: Quantiles of the range of a gain.
RANGE = (0.1, 0.9)

__all__ = [
    "CapturedGain",
    "PlainFaster",
    "WrittenSchedule",
    "as_run",
    "best_fixed",
    "captured_gain",
    "fixed_length",
    "gain",
    "gain_range",
    "in_both_readings",
    "loss",
    "losses",
    "one_for_all",
    "pays",
    "plain_faster",
    "plain_where_best",
    "schedule_notices",
    "without_room",
    "written_schedule",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenSchedule:
    """Text to paste, the bands that the engine will read in it, and what it costs.

    ``loss`` is the share of the mix's tokens lost against the best D at every batch and context;
    ``form_loss`` the part that is the format's fault. ``largest_loss`` is the share of speed lost
    at ``worst_batch``, where it is largest. ``static`` says that the text is the flags for one
    draft length at all batches.
    """

    text: str
    static: bool
    bands: list[Band]
    loss: float
    form_loss: float
    largest_loss: float
    worst_batch: int
    rises: tuple[Rise, ...]
    notes: tuple[Notice, ...]
    #: The schedule if a list of rates that was typed without a word is conditional, not survival.
    other_reading: WrittenSchedule | None = None

    @property
    def only_length(self) -> int | None:
        """The draft length of all batches and contexts; None where there are several."""
        lengths = {d for band in self.bands for d in band.draft_lengths}
        return lengths.pop() if len(lengths) == 1 else None


def schedule_notices(plan: SchedulePlan, written: WrittenSchedule) -> tuple[Notice, ...]:
    """Return what is to know of a plan and its schedule; two readings are compared by the bands."""
    other, pairs = written.other_reading, None
    if other is not None:
        pairs = [((), Advice(bands=_as_tuples(written)), Advice(bands=_as_tuples(other)))]
    return with_reading((*plan.notices, *written.notes), plan.question.acceptance, pairs)


def _as_tuples(written: WrittenSchedule) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    return tuple((band.first, band.last, band.draft_lengths) for band in written.bands)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainFaster:
    """Where plain decoding, with no drafter configured, beats bands by more than the tie."""

    ranges: tuple[tuple[int, int], ...]  # of batches, both ends in them
    gain: float  # the largest share of speed that it gains
    batch: int  # where it gains that
    context: int
    idle: float  # what a step of D = 0 in a schedule pays there [s]


def plain_faster(plan: SchedulePlan, bands: list[Band]) -> PlainFaster | None:
    """Return where plain decoding beats the bands; None where it does nowhere.

    D = 0 in a band is slower than it by what a configured drafter costs while idle.
    """
    positions = np.broadcast_to(plan.positions(bands), plan.plain.shape)
    own = np.take_along_axis(plan.priced, positions[..., None], axis=-1)[..., 0]
    gains = np.nan_to_num(plan.plain / own - 1)
    wins = (gains > plan.tie).any(axis=1)
    if not wins.any():
        return None
    batch, context = np.unravel_index(gains.argmax(), gains.shape)
    edges = np.flatnonzero(np.diff(wins.astype(int), prepend=0, append=0)).reshape(-1, 2)
    return PlainFaster(
        ranges=tuple((int(start) + 1, int(stop)) for start, stop in edges),
        gain=float(gains[batch, context]),
        batch=int(batch) + 1,
        context=plan.contexts[context],
        idle=float(1 / plan.priced[batch, context, 0] - 1 / plan.plain[batch, context]),
    )


def as_run(plan: SchedulePlan, bands: list[Band]) -> SchedulePlan:
    """Return the plan at the speeds of what bands start.

    D = 0 at every batch means that no speculation is configured, so that nothing is idle.
    """
    if any(length for band in bands for length in band.draft_lengths):
        return plan
    return plan.without_drafter


class CapturedGain(NamedTuple):
    """What graphs for more rows would gain: where most, at which draft length, by which flag."""

    gain: float  # share of speed
    batch: int
    context: int
    draft_length: int
    rows: float
    flag: str  # empty where the engine has none


def captured_gain(plan: SchedulePlan) -> CapturedGain | None:
    """Return what larger captures gain over the best D; None where nowhere more than a tie."""
    graphs = plan.question.deployment.engine.graphs
    best = np.nan_to_num(plan.speed).max(axis=-1)
    captured = np.nan_to_num(plan.captured)
    gains = np.divide(captured.max(axis=-1), best, out=np.ones_like(best), where=best > 0) - 1
    batch, context = np.unravel_index(gains.argmax(), gains.shape)
    if graphs is None or gains[batch, context] <= TIE:
        return None
    at = int(smallest_within_tie(captured[batch, context], plan.tie)[0])
    rows = float(passes_in_graphs(plan.question, int(batch) + 1)[0][batch, 0, at])
    return CapturedGain(
        gain=float(captured[batch, context, at] / best[batch, context] - 1),
        batch=int(batch) + 1,
        context=plan.contexts[context],
        draft_length=plan.draft_lengths[at],
        rows=rows,
        flag=graphs.capture_flag(rows),
    )


def loss(plan: SchedulePlan, bands: list[Band]) -> float:
    """Return the share of tokens that bands lose against the best D everywhere."""
    plan = as_run(plan, bands)
    best = np.where(np.isnan(plan.speed), -np.inf, plan.speed).argmax(axis=-1)
    return 1 - table_value(plan, plan.positions(bands)) / table_value(plan, best)


def losses(plan: SchedulePlan, bands: list[Band]) -> Array:
    """Return the share of speed that each batch loses to the best D, (batches, contexts or 1).

    One draft length for all contexts is compared with the best one for all, by `relative_speed`.
    Where it does not fit, the engine runs fewer sequences at a time, and nothing is counted;
    `without_room` says where.
    """
    plan = as_run(plan, bands)
    positions = plan.positions(bands)
    everywhere = np.broadcast_to(positions, plan.plain.shape)
    priced = np.take_along_axis(plan.priced, everywhere[..., None], axis=-1)[..., 0]
    fits = ~np.isnan(priced).all(axis=1, keepdims=True)
    speed = plan.relative[:, None] if positions.shape[1] == 1 else np.nan_to_num(plan.speed)
    best = speed.max(axis=-1)
    own = np.take_along_axis(speed, positions[..., None], axis=-1)[..., 0]
    return np.asarray(1 - np.divide(own, best, out=np.ones_like(best), where=fits & (best > 0)))


def without_room(plan: SchedulePlan, bands: list[Band]) -> tuple[Notice, ...]:
    """Return the notice of batches at which another draft length fits, but not the band's."""
    positions = np.broadcast_to(plan.positions(bands), plan.plain.shape)
    own = np.take_along_axis(plan.priced, positions[..., None], axis=-1)[..., 0]
    unfit = (np.isnan(own) & ~np.isnan(plan.priced).all(axis=-1)).any(axis=1)
    batches = tuple((1 + np.flatnonzero(unfit)).tolist())
    return (notice(Code.LENGTH_HAS_NO_ROOM, batches=batches),) if batches else ()


def written_schedule(plan: SchedulePlan, bands: list[Band], text: EngineText) -> WrittenSchedule:
    """Return the schedule with its losses worked out."""
    lost, by_batch = loss(plan, bands), losses(plan, bands).max(axis=1)
    return WrittenSchedule(
        text=text.text,
        static=text.static,
        bands=bands,
        loss=lost,
        form_loss=max(lost - loss(plan, plan.merged), 0.0) if bands != plan.merged else 0.0,
        largest_loss=float(by_batch.max()),
        worst_batch=int(by_batch.argmax()) + 1,
        rises=rises(plan, bands),
        notes=(*text.notes, *without_room(plan, bands)),
    )


def in_both_readings(
    plan: SchedulePlan, write: Callable[[SchedulePlan], WrittenSchedule]
) -> WrittenSchedule:
    """Return the schedule that ``write`` makes of a plan, with that of its other reading."""
    written = write(plan)
    if plan.other_reading is None:
        return written
    return replace(written, other_reading=write(plan.other_reading))


def fixed_at(plan: SchedulePlan, batch: int) -> int:
    """Return the draft length to configure for one batch, on the mean of the contexts.

    It is what `recommend` answers: the smallest within the tie, D = 0 without a drafter. At other
    batches it may not fit: `without_room`.
    """
    at = min(batch, plan.batches) - 1
    speeds = np.nan_to_num(plan.without_drafter.speed[at]).mean(axis=0)
    return plan.draft_lengths[int(smallest_within_tie(speeds, plan.tie)[0])]


def one_for_all(plan: SchedulePlan, reason: str, *, batch: int | None) -> WrittenSchedule:
    """Return the flags of one draft length for all batches, and why there is no schedule.

    It is that of ``batch``; without one, that of the whole table.
    """
    length = fixed_length(plan) if batch is None else fixed_at(plan, batch)
    return one_length(plan, length, notice(Code.NO_SCHEDULE, reason=reason))


def one_length(plan: SchedulePlan, length: int, *notes: Notice) -> WrittenSchedule:
    """Return the flags of a draft length for all batches."""
    text = EngineText(
        text=plan.question.deployment.launch.flags(length, running=plan.batches),
        notes=notes,
        static=True,
    )
    bands = [Band(first=1, last=plan.batches, draft_lengths=(length,))]
    return replace(written_schedule(plan, bands, text), form_loss=0.0)


def plain_where_best(plan: SchedulePlan, written: WrittenSchedule) -> WrittenSchedule:
    """Return plain decoding without a drafter where one draft length gains no more than a tie.

    D = 0 in a band pays for a drafter that is configured. Whoever configures none pays nothing, so
    one draft length for all batches is compared with that, by the rule of `recommend`.
    """
    if not written.only_length:
        return written
    values = [plain_value(plan), table_value(plan, plan.positions(written.bands))]
    worth = smallest_within_tie(np.array(values), plan.tie)[0] > 0
    return written if worth else one_length(plan, 0)


def fixed_length(plan: SchedulePlan) -> int:
    """Return the smallest draft length within the tie of the best one for all batches."""
    return plan.draft_lengths[int(smallest_within_tie(fixed_values(plan), plan.tie)[0])]


def best_fixed(plan: SchedulePlan) -> tuple[int, float]:
    """Return the best draft length for all batches and its tokens per second over the mix."""
    values = fixed_values(plan)
    best = int(np.argmax(values))
    return plan.draft_lengths[best], float(values[best])


def fixed_values(plan: SchedulePlan) -> Array:
    """Return the tokens per second over the mix of each draft length at all batches [tokens/s].

    D = 0 means that no speculation is configured, so it pays nothing for being idle. A draft length
    that leaves the captured graphs anywhere in the mix counts nothing; at batches where it does not
    fit it yields nothing, and `without_room` says which.
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
    return np.array(values)


def gain(plan: SchedulePlan, bands: list[Band]) -> float:
    """Return the gain of the bands over the best fixed draft length, as a share."""
    plan = as_run(plan, bands)
    return table_value(plan, plan.positions(bands)) / best_fixed(plan)[1] - 1


def gain_range(plan: SchedulePlan, bands: list[Band], *, against: int) -> tuple[float, float]:
    """Return the 10th and 90th percentile of what the bands gain over a fixed D, as shares.

    Both are valued in each draw of step times and acceptance. D = 0 is without speculation
    configured; the range holds the expected gain.
    """
    plan = as_run(plan, bands)
    positions = plan.positions(bands)
    fixed = np.full((plan.batches, 1), plan.draft_lengths.index(against), dtype=np.intp)
    own, other = (_drawn_value(plan, each) for each in (positions, fixed))
    value, base = table_value(plan, positions), table_value(plan, fixed)
    if against == 0:
        plain = plain_value(plan)
        other, base = other * (plain / base), plain
    low, high = np.quantile(own / other, RANGE)
    expected = value / base
    return min(float(low), expected) - 1, max(float(high), expected) - 1


def _drawn_value(plan: SchedulePlan, positions: NDArray[np.intp]) -> Array:
    """Return `table_value` in each draw [tokens/s]."""
    at = np.broadcast_to(positions[..., None, None], (*plan.plain.shape, 1, 1))
    picked = np.nan_to_num(np.take_along_axis(plan.drawn, at, axis=2)[:, :, 0]).mean(axis=1)
    batches = np.arange(1, plan.batches + 1)
    return np.asarray((plan.weights * batches) @ picked)


def pays(plan: SchedulePlan, schedule: WrittenSchedule) -> bool:
    """Return whether a schedule can be pasted and gains more than a tie over the best fixed D.

    A schedule with one draft length everywhere holds that best fixed D, so it pays too, unless it
    stands in for bands that gain nothing.
    """
    if any(note.code is Code.SCHEDULE_GAINS_NOTHING for note in schedule.notes):
        return False
    fixed = schedule.only_length is not None
    return bool(schedule.text) and (fixed or gain(plan, schedule.bands) >= TIE)
