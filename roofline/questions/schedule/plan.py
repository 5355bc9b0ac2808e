"""The best draft length for every batch and context while speculation is configured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.decide import SURE
from roofline.advice.deployment import PricedGrid
from roofline.advice.question import Question, Workload, ask
from roofline.advice.readings import in_other_reading
from roofline.advice.recommend import (
    drawn_tokens,
    law_limit_notices,
    require_fit,
    slow_format_notices,
)
from roofline.advice.remedies import Refused, does_not_fit, refuse
from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.engines.writing import Band
from roofline.questions.schedule.bands import (
    Run,
    coverage,
    longest_runs,
    merge_runs,
    moved_rows,
    octave_weights,
    relative_speed,
    within,
)
from roofline.specs.priors import priors
from roofline.timing.machine import by_part
from roofline.timing.step import StepTimes, advisable, covered, most_rows, past_graphs
from roofline.timing.uncertainty import drawn_row_shift

__all__ = [
    "SchedulePlan",
    "beside_drafter",
    "check_first_batch",
    "count_leading",
    "first_refused",
    "idle_seconds",
    "no_schedule_reason",
    "passes_in_graphs",
    "plain_value",
    "plan_question",
    "plan_schedule",
    "resident_length",
    "table_value",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: What a batch that the mix gives no time counts where nothing else decides.
UNSEEN = 1e-9


@dataclass(frozen=True, kw_only=True)
class SchedulePlan:
    """Speeds of one sequence [tokens/s] for every batch from 1 on, and the bands they lead to.

    ``speed`` has shape (batches, contexts, draft lengths), NaN where a step does not fit or leaves
    the engine's captured graphs; D = 0 in it carries the cost of idle speculation. ``drawn`` is the
    same in every draw of the model's error, the draws last, without a NaN for the graphs.
    ``priced`` holds the speeds past the graphs as well, ``captured`` the same if graphs covered all
    of their rows. ``plain`` is without any speculation
    configured. ``weights`` is the share of time at each batch.
    """

    question: Question
    speed: Array
    drawn: Array
    priced: Array
    captured: Array
    plain: Array
    cost_ratio: Array
    weights: Array
    mix: tuple[tuple[int, float], ...] | None  # share by batch; None: each doubling alike
    tie: float
    odds: float  # that neighbouring bands must have to beat one draft length for both
    idle: float
    notices: tuple[Notice, ...]
    refused: tuple[Refused, ...] = ()  # the first batch of each context that does not fit
    #: The plan if a list of rates that was typed without a word is conditional, not survival.
    other_reading: SchedulePlan | None = None

    @property
    def contexts(self) -> tuple[int, ...]:
        """The contexts that the speeds are for."""
        return self.question.workload.contexts

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """The draft lengths that the speeds are for."""
        return self.question.draft_lengths

    @property
    def batches(self) -> int:
        """The largest batch; all from 1 on are covered."""
        return len(self.speed)

    @property
    def without_drafter(self) -> SchedulePlan:
        """The plan with D = 0 as plain decoding where no drafter is configured: nothing idles."""
        speed, priced = self.speed.copy(), self.priced.copy()
        speed[..., 0] = priced[..., 0] = self.plain
        return replace(self, speed=speed, priced=priced, idle=0.0)

    @cached_property
    def relative(self) -> Array:
        """`relative_speed`: (batches, draft lengths), contexts joined."""
        return relative_speed(self.speed)

    @cached_property
    def allowed(self) -> Mask:
        """What is within the tie: (batches, 1, draft lengths)."""
        return within(self.relative, self.tie)[:, None, :]

    @cached_property
    def merged(self) -> list[Band]:
        """The bands with one draft length for all contexts."""
        return self.bands(self.allowed)

    def by_context(self) -> list[Band]:
        """Return the bands with a draft length for each context."""
        return self.bands(self.permitted())

    def permitted(self) -> Mask:
        """Return what is within the tie; a context that no longer fits keeps its last choice."""
        fits = np.isfinite(self.speed).any(axis=-1)
        batches = np.arange(self.batches)[:, None]
        last_fit = np.maximum.accumulate(np.where(fits, batches, -1), axis=0)
        choice = within(self.speed, self.tie)[np.maximum(last_fit, 0), np.arange(fits.shape[1])]
        return np.where((last_fit >= 0)[..., None], choice, True)

    def bands(self, allowed: Mask, possible: Mask | None = None) -> list[Band]:
        """Return the fewest bands that ``allowed`` permits, merged where odds above 0 demand it.

        ``allowed`` has shape (batches, contexts or 1, draft lengths). A merged band takes no draft
        length that some batch of it cannot run, or that is not ``possible`` (of the same shape).
        """
        runs = longest_runs(allowed)
        starts = [start for start, _, _ in runs]
        fits = np.isfinite(self.speed)
        usable = np.asarray(fits | ~fits.any(axis=-1, keepdims=True))
        if allowed.shape[1] == 1:
            usable = np.asarray(usable.all(axis=1, keepdims=True))
        if possible is not None:
            usable &= possible
        throughout = np.logical_and.reduceat(usable, starts, axis=0)
        batches = np.arange(1, self.batches + 1)[:, None, None]
        weights = self.weights[:, None, None]
        unseen = UNSEEN * octave_weights(self.batches)[:, None, None]
        tokens = _over_runs((weights + unseen) * batches * self.speed, starts, throughout)
        drawn = _over_runs(
            (weights * batches)[..., None] * self.drawn, starts, throughout[..., None]
        )
        merged = [
            Run(start=start, stop=stop, chosen=chosen, tokens=tokens[i], drawn=drawn[i])
            for i, (start, stop, chosen) in enumerate(runs)
        ]
        if self.odds > 0:
            merged = merge_runs(merged, self.odds, tie=self.tie)
        return [
            Band(
                first=run.start + 1,
                last=run.stop,
                draft_lengths=tuple(self.draft_lengths[d] for d in run.chosen),
            )
            for run in merged
        ]

    def positions(self, bands: list[Band]) -> NDArray[np.intp]:
        """Return the position of each batch's and context's draft length."""
        index = {d: i for i, d in enumerate(self.draft_lengths)}
        rows = [[index[d] for d in band.draft_lengths] for band in bands]
        return np.repeat(np.array(rows), [band.last - band.first + 1 for band in bands], axis=0)


def _over_runs(tokens: Array, starts: list[int], throughout: Mask) -> Array:
    """Return the tokens of runs that begin at ``starts``; -inf for what is not run throughout."""
    tokens = np.nan_to_num(tokens)
    if throughout.shape[1] == 1:
        tokens = tokens.sum(axis=1, keepdims=True)
    return np.where(throughout, np.add.reduceat(tokens, starts, axis=0), -np.inf)


def table_value(plan: SchedulePlan, positions: NDArray[np.intp]) -> float:
    """Return the tokens per second of all sequences, averaged over the mix [tokens/s].

    V = sum over B of w_B B mean over contexts of speed(B, context, D). ``positions`` has shape
    (batches, 1 or contexts). A draft length that does not fit or leaves the captured graphs yields
    nothing.
    """
    picked = np.take_along_axis(
        plan.speed, np.broadcast_to(positions[..., None], (*plan.plain.shape, 1)), axis=-1
    )[..., 0]
    return _mixed(plan.weights, picked)


def _mixed(weights: Array, speed: Array) -> float:
    batches = np.arange(1, len(speed) + 1)
    return float((weights * batches * np.nan_to_num(speed).mean(axis=1)).sum())


def plain_value(plan: SchedulePlan) -> float:
    """Return the tokens per second over the mix without speculation configured [tokens/s]."""
    return _mixed(plan.weights, plan.plain)


def no_schedule_reason(question: Question) -> Notice | None:
    """Return why no schedule can be given; None where one can."""
    engine = question.deployment.engine
    if len(question.draft_lengths) == 1:
        return notice(Code.NOTHING_TO_SCHEDULE)
    if engine.idle_speculation is None:
        return notice(Code.NO_RELEASE_TAKES_SCHEDULES, engine=engine.name)
    if question.deployment.target.placement.dp > 1:
        return notice(Code.SCHEDULE_OFF_UNDER_DP_ATTENTION)
    return None


def idle_seconds(question: Question, times: StepTimes) -> Array:
    """Return what a step of D = 0 pays beyond plain decoding [s], shape (batches, contexts).

    The engine's bookkeeping, and where the engine keeps the drafter's cache in step, one pass of
    the drafter over the new token.
    """
    shape = times.total.shape[:2]
    idle = question.deployment.engine.idle_speculation
    if idle is None or question.deployment.drafter.kind == "none":
        return np.zeros(shape)
    extra = np.full(shape, idle.per_step)
    if idle.draft_pass:
        spent = sum(by_part(times.first_pass_ops).values())
        extra = extra + np.broadcast_to(spent, times.total.shape)[..., 0]
    return extra


def plan_schedule(
    configuration: Configuration,
    workload: Workload,
    *,
    tie: float,
    odds: float = SURE,
    mix: dict[int, float] | None,
) -> SchedulePlan:
    """Price every batch and context and find what is within ``tie`` of the best.

    ``tie`` is a share of the speed, below one half, else refused; ``odds`` those that neighbouring
    bands must have to beat one draft length, 0 merges none; ``mix`` the share of time by batch.
    """
    return plan_question(ask(configuration, workload), tie=tie, odds=odds, mix=mix)


def plan_question(
    question: Question, *, tie: float, odds: float = SURE, mix: dict[int, float] | None
) -> SchedulePlan:
    """Return the plan for a question; see ``plan_schedule``."""
    other = in_other_reading(question)
    plan = _plan_one_reading(question, tie=tie, odds=odds, mix=mix)
    if other is None:
        return plan
    return replace(plan, other_reading=_plan_one_reading(other, tie=tie, odds=odds, mix=mix))


def _plan_one_reading(
    question: Question, *, tie: float, odds: float, mix: dict[int, float] | None
) -> SchedulePlan:
    if not 0 <= tie < 0.5:
        raise InputError("expected 0 to 50 percent", field="tie", value=f"{100 * tie:g}")
    if not 0 <= odds <= 1:
        raise InputError("expected 0 to 100 percent", field="odds", value=f"{100 * odds:g}")
    workload, priced_grid = question.workload, require_fit(question.price())
    speed, drawn, plain, idle = _speeds(question, priced_grid)
    ranges = coverage(workload.batches)
    fits = np.asarray(np.isfinite(speed).any(axis=-1))
    check_first_batch(question, fits)
    listed = count_leading(np.asarray(fits.any(axis=1)))
    sizes = [last - first + 1 for first, last in ranges[:listed]]
    deployment = question.deployment
    every = deployment.grid(range(1, sum(sizes) + 1), workload.contexts, question.draft_lengths)
    room = deployment.memory.fits(every)
    room_beside_drafter = beside_drafter(room)
    count = count_leading(np.asarray(room_beside_drafter.any(axis=(1, 2))))
    step = priced_grid.times.total
    # each listed batch stands for its range
    in_graphs = speed * step / (step - priced_grid.times.launches.by_hand)
    priced, captured, drawn, plain, idle, ratio = (
        np.repeat(values[:listed], sizes, axis=0)[:count]
        for values in (speed, in_graphs, drawn, plain, idle, step / step[..., :1])
    )
    captured = np.where(room_beside_drafter[:count], captured, np.nan)
    priced = np.where(room_beside_drafter[:count], priced, np.nan)
    plain = np.where(room[:count, :, 0], plain, np.nan)
    rows, covers = passes_in_graphs(question, count)
    speed = np.where(advisable(covers), priced, np.nan)
    shift = drawn_row_shift(priced_grid.times, priors().spread)
    drawn = moved_rows(drawn, shift, np.isfinite(speed))
    weights, shares = _weights(mix, len(speed))
    return SchedulePlan(
        question=question,
        speed=speed,
        drawn=drawn,
        priced=priced,
        captured=captured,
        plain=plain,
        cost_ratio=ratio,
        weights=weights,
        mix=shares,
        tie=tie,
        odds=odds,
        idle=float(idle.mean()),
        notices=(
            *question.notices,
            *law_limit_notices(priced_grid.times),
            *slow_format_notices(
                deployment,
                batch=workload.batches[0],
                context=workload.contexts[0],
                times=priced_grid.times,
            ),
            *_batches_left_out(workload, listed, count),
            *_contexts_cut_short(workload, speed),
            *past_graphs(
                question.deployment.engine,
                {
                    len(rows): (
                        question.draft_lengths,
                        covers[-1, 0].tolist(),
                        rows[-1, 0].tolist(),
                    )
                },
            ),
        ),
        refused=first_refused(question, fits),
    )


def passes_in_graphs(question: Question, batches: int) -> tuple[Array, Mask]:
    """Return the most rows of a pass at every batch from 1 on, and whether graphs cover it.

    Both have shape (batches, 1, draft lengths).
    """
    deployment = question.deployment
    grid = deployment.grid(
        range(1, batches + 1),
        question.workload.contexts[:1],
        question.draft_lengths,
        prefill_per_step=question.workload.prefill_tokens_per_step,
    )
    placement = deployment.target.placement
    return most_rows(placement, grid), covered(deployment.engine.graphs, placement, grid)


def _speeds(question: Question, priced: PricedGrid) -> tuple[Array, Array, Array, Array]:
    """Return the listed batches' speeds with and without speculation, and their idle cost [s].

    The second are those with speculation in every draw, the draws last.
    """
    fits = beside_drafter(priced.fits)
    idle = idle_seconds(question, priced.times)
    tokens = question.tokens_per_step(question.workload.contexts)
    drawn_yield = drawn_tokens(question, tokens, grid=priced.grid)
    step = priced.times.total.copy()
    plain = np.where(priced.fits[..., 0], 1 / step[..., 0], np.nan)
    step[..., 0] += idle
    drawn = np.moveaxis(priced.drawn.steps(), 0, -1)
    drawn[:, :, 0] += idle[..., None]
    return (
        np.where(fits, tokens / step, np.nan),
        np.where(fits[..., None], np.moveaxis(drawn_yield, 0, -1) / drawn, np.nan),
        plain,
        idle,
    )


def _weights(
    mix: dict[int, float] | None, count: int
) -> tuple[Array, tuple[tuple[int, float], ...] | None]:
    """Return the share of time at every batch up to ``count``, and at those of the mix."""
    if mix is None:
        return octave_weights(count), None
    if max(mix) > count:
        raise InputError(
            f"batch {max(mix)} is beyond the largest batch planned, {count}", field="mix"
        )
    weights = np.zeros(count)
    weights[np.array(list(mix)) - 1] = list(mix.values())
    total = weights.sum()
    shares = tuple((batch, float(share / total)) for batch, share in sorted(mix.items()))
    return weights / total, shares


def _batches_left_out(workload: Workload, listed: int, count: int) -> list[Notice]:
    """Return the notices of batches that the table does not hold."""
    notices, first = [], workload.batches[0]
    if first > 1:
        notices.append(notice(Code.BATCHES_NOT_ASKED, first=first))
    if listed < len(workload.batches):
        beyond = workload.batches[listed]
        notices.append(notice(Code.BATCHES_DO_NOT_FIT, first=beyond, last=count))
    return notices


def _contexts_cut_short(workload: Workload, speed: Array) -> list[Notice]:
    """Return the notices of contexts that stop fitting before the table ends."""
    fits = np.isfinite(speed).any(axis=-1)
    last = np.where(fits.all(axis=0), len(speed), (~fits).argmax(axis=0))
    return [
        notice(Code.CONTEXT_DOES_NOT_FIT, context=context, batch=int(end))
        for context, end in zip(workload.contexts, last, strict=True)
        if end < len(speed)
    ]


def resident_length(question: Question) -> int:
    """Return the shortest draft length, whose memory is taken at every batch."""
    return min(question.draft_lengths[1:], default=0)


def beside_drafter(fits: Mask) -> Mask:
    """Return what fits while the drafter stays resident; draft lengths run along the last axis.

    >>> beside_drafter(np.array([[True, False], [True, True]])).tolist()
    [[False, False], [True, True]]
    """
    if fits.shape[-1] == 1:
        return fits
    return np.concatenate([fits[..., :1] & fits[..., 1:2], fits[..., 1:]], axis=-1)


def count_leading(holds: Mask) -> int:
    """Return how many hold from the first one on.

    >>> count_leading(np.array([True, True, False, True]))
    2
    """
    return len(holds) if holds.all() else int((~holds).argmax())


def check_first_batch(question: Question, fits: Mask) -> None:
    """Refuse a schedule whose first batch fits at no context; ``fits`` is (batches, contexts)."""
    workload = question.workload
    if not fits[0].any():
        batch, context = workload.batches[0], workload.contexts[0]
        raise does_not_fit(
            question.deployment,
            batch=batch,
            context=context,
            draft_length=resident_length(question),
        )


def first_refused(question: Question, fits: Mask) -> tuple[Refused, ...]:
    """Return the first of the listed batches that does not fit at each context."""
    workload = question.workload
    points = [
        (workload.batches[count_leading(batches)], context)
        for batches, context in zip(fits.T, workload.contexts, strict=True)
        if not batches.all()
    ]
    return refuse(question.deployment, points, draft_length=resident_length(question))
