"""What timings teach other questions of the same deployment: step times, acceptance, and odds.

At a batch that was timed the answer is that of the tuning file. At another batch the factors move
that all batches share (drafting and the engine's own time), and the level of speed is that of the
timed batches around it. Another context of a timed batch keeps that batch's factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.curve import Acceptance, Definition, by_context
from roofline.advice.belief import log_tokens
from roofline.advice.belief_prior import deviations_of, logits_of
from roofline.advice.decide import TIE
from roofline.advice.deployment import PricedGrid
from roofline.advice.question import OF_DRAFTS, Question, known_lengths
from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, notice
from roofline.base.numbers import DRAWS, LONGEST_DRAFT, normal_draws
from roofline.questions.diagnose.points import MeasuredPoint
from roofline.questions.schedule.formats import ScheduleOptions, schedule_or_one
from roofline.questions.schedule.plan import SchedulePlan, plan_question
from roofline.questions.schedule.written import WrittenSchedule
from roofline.questions.tune.tune import FAR, Tuned
from roofline.timing.timed import Deviations, growth_directions
from roofline.timing.uncertainty import Drawn

if TYPE_CHECKING:
    from roofline.timing.step import StepTimes

__all__ = ["Learned", "TunedGrid", "learned_from", "schedule_after"]

Array = NDArray[np.float64]
#: How far the level of speed may be off at a batch that was not timed [log]: assumed.
LEVEL_ELSEWHERE = 0.1
#: The first stream of draws of what timings leave open; those below belong to a prior's counts.
STREAM = 1500
#: Unknowns whose draws can be made exactly uncorrelated.
UNCORRELATED = DRAWS // 2


class _Moves(NamedTuple):
    """The logarithms by which steps move: of timed batches (..., batches), and of all."""

    level: Array
    drafting: Array
    growth: Array
    own: Array  # (..., batches, lengths)
    draft: Array
    overhead: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """What the timings of one file say of step times and acceptance, and as joint draws."""

    file: str
    timings: int
    batches: tuple[int, ...]  # that were timed
    draft_lengths: tuple[int, ...]
    about: Mapping[str, str | int]  # the deployment, by the columns of a row
    mean: _Moves
    drawn: _Moves  # draws first
    deviations: Deviations
    context: int
    #: Logits of conditional acceptance less those expected, and their draws; None where no timing
    #: tells of acceptance.
    logits: Array | None
    drawn_logits: Array
    #: The timings as measured steps; tokens per step as believed where they were not printed.
    points: tuple[MeasuredPoint, ...] = ()

    @property
    def label(self) -> str:
        """Where the numbers come from."""
        return f"{self.timings} timing{'s' * (self.timings > 1)} of {self.file}"

    def applied(self, question: Question) -> Question:
        """Return the question with what was learned; refuse one about another deployment."""
        for name, timed in self.about.items():
            asked = question.deployment.columns[name]
            if asked != timed:
                raise InputError(
                    f"{self.file} was timed with {name} {timed}, and the question is about "
                    f"{asked}; leave {Option('tuned')} out, or begin another tuning file",
                    field=name if name in _TYPED else None,
                    value=asked if name in _TYPED else None,
                )
        if not self.timings:
            return question
        said = notice(
            Code.TIMINGS_TAKEN,
            label=self.label,
            batches=self.batches,
            acceptance=self.logits is not None,
        )
        if self.logits is None:
            return replace(question, own_notices=(said, *question.own_notices))
        acceptance = self._acceptance(question.acceptance)
        kept = tuple(n for n in question.own_notices if n.code not in OF_DRAFTS - _KEPT)
        return replace(
            question,
            acceptance=acceptance,
            draft_lengths=known_lengths(
                question.deployment,
                acceptance,
                contexts=question.workload.contexts,
                most=question.workload.max_draft_length,
            ),
            own_notices=(said, *kept),
        )

    def _acceptance(self, expected: Acceptance) -> Acceptance:
        """Return an acceptance whose logits moved by what was learned, at each of its contexts.

        Positions beyond the file's longest draft move as its last one.
        """
        if expected.contexts:
            parts = [(context, self._acceptance(part)) for context, part in expected.contexts]
            return by_context(parts, label=self.label, source="given")
        assert self.logits is not None
        tokens = expected.tokens_per_step(range(LONGEST_DRAFT + 1))
        before, _ = logits_of(mean=tokens[np.isfinite(tokens)])
        at = np.minimum(np.arange(len(before)), len(self.logits) - 1)
        mean = np.exp(log_tokens(before + self.logits[at])[0])
        rates = 1 / (1 + np.exp(-(before + self.drawn_logits[:, at])))
        gains = np.cumsum(np.cumprod(rates, axis=1), axis=1)
        return Acceptance(
            table={length: float(tokens) for length, tokens in enumerate(mean)},
            label=self.label,
            source="given",
            definition=Definition.TOKENS_PER_STEP,
            draws=1 + np.concatenate([np.zeros((DRAWS, 1)), gains], axis=1),
        )

    def priced(self, priced: PricedGrid) -> PricedGrid:
        """Return a priced grid whose steps are those that are believed after the timings."""
        if not self.timings:
            return priced
        times, grid = priced.times, priced.grid
        lengths = [int(d) for d in np.ravel(grid.draft_length)]
        batches = [int(b) for b in np.ravel(grid.batch)]
        mean = self._at(self.mean, batches, lengths)
        directions = _directions(lengths, times)
        wanted = times.total * np.exp(_moved(mean, directions))
        drafting = (
            mean.level[:, None, None]
            + np.multiply.outer(mean.drafting, np.array(lengths) > 0)[:, None, :]
        )
        rise = np.log2(1 + np.array(lengths)) / 3
        parts = (
            times.verify * np.exp(drafting + mean.growth[:, None, None] * rise),
            times.draft * np.exp(drafting + mean.draft),
            times.overhead * np.exp(drafting + mean.overhead),
        )
        scale = wanted / sum(parts)
        verify, draft, overhead = (part * scale for part in parts)
        by_hand = times.launches.by_hand * overhead / np.maximum(times.overhead, 1e-12)
        moved = times._replace(
            verify=verify,
            draft=draft,
            overhead=overhead,
            parts={name: part * (wanted / times.total) for name, part in times.parts.items()},
            launches=times.launches._replace(by_hand=by_hand),
        )
        return TunedGrid(
            deployment=priced.deployment,
            grid=grid,
            times=moved,
            learned=self,
            directions=directions,
        )

    def draws(self, grid: TunedGrid) -> Drawn:
        """Return the steps in joint draws: those of a timed batch, of others by doublings."""
        lengths = [int(d) for d in np.ravel(grid.grid.draft_length)]
        batches = [int(b) for b in np.ravel(grid.grid.batch)]
        groups: dict[object, list[int]] = {}
        for at, batch in enumerate(batches):
            key = ("timed", batch) if batch in self.batches else ("near", batch.bit_length())
            groups.setdefault(key, []).append(at)
        factors, seconds = list[Array](), list[Array]()
        for members in groups.values():
            first = members[len(members) // 2]
            of_first = [batches[first]]
            directions = tuple(each[first : first + 1, :1] for each in grid.directions)
            mean = _moved(self._at(self.mean, of_first, lengths), directions)
            drawn = self._at(self.drawn, of_first, lengths, scattered=True)
            moved = np.stack(
                [
                    _moved(_Moves(*(part[n] for part in drawn)), directions)[0, 0]
                    for n in range(DRAWS)
                ],
                axis=-1,
            )
            factors.append(np.exp(moved - mean[0, 0][:, None]))
            own = np.zeros(grid.grid.shape)
            own[members] = np.broadcast_to(grid.times.total, grid.grid.shape)[members]
            seconds.append(own)
        return Drawn(factors=tuple(factors), seconds=tuple(seconds), shape=grid.grid.shape)

    def _at(
        self, moves: _Moves, batches: list[int], lengths: list[int], *, scattered: bool = False
    ) -> _Moves:
        """Return the moves at these batches and lengths; ``scattered`` where nothing was timed."""
        timed = np.array([batch in self.batches for batch in batches])
        at = np.array([self.batches.index(b) if b in self.batches else 0 for b in batches])
        place = {length: n for n, length in enumerate(self.draft_lengths)}
        columns = np.array([place.get(length, 0) for length in lengths])
        known = np.array([length in place for length in lengths])
        scatter = _elsewhere(self.deviations, lengths) if scattered else None
        log = np.log(np.array(batches)), np.log(np.array(self.batches))
        level = np.apply_along_axis(lambda y: np.interp(log[0], log[1], y), -1, moves.level)

        def taken(values: Array, other: Array | float) -> Array:
            return np.where(timed, values[..., at], other)

        own = np.where(known & timed[:, None], moves.own[..., at, :][..., columns], 0.0)
        if scatter is None:
            return moves._replace(
                level=level,
                drafting=taken(moves.drafting, 0.0),
                growth=taken(moves.growth, 0.0),
                own=own,
            )
        return moves._replace(
            level=level + np.where(timed, 0.0, scatter.level[:, None]),
            drafting=taken(moves.drafting, scatter.drafting[:, None]),
            growth=taken(moves.growth, scatter.growth[:, None]),
            own=np.where(timed[:, None] & known, own, scatter.own[:, None, :]),
        )


#: Columns that are options of the same name.
_TYPED = ("model", "gpu", "engine", "tp", "gpus", "ep", "drafter", "weights", "kv")
#: What stays to be known of a drafter whose acceptance was timed.
_KEPT = frozenset((Code.LENGTHS_NOT_TAKEN, Code.HEAD_ASSUMED, Code.HEAD_DERIVED, Code.HEAD_BY_NAME))


@dataclass(frozen=True, kw_only=True)
class TunedGrid(PricedGrid):
    """A priced grid after timings."""

    learned: Learned
    directions: tuple[Array, Array]

    @property
    def timed(self) -> NDArray[np.bool_]:
        """The batches that were timed, (batches, 1, 1)."""
        return np.isin(self.grid.batch, self.learned.batches).reshape(-1, 1, 1)

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """What fits; where nothing was timed, only what stays in captured graphs.

        At a timed batch the jump past the graphs is believed as far as the timings leave it.
        """
        return np.asarray(super().candidates | (self.fits & self.timed))

    @cached_property
    def drawn(self) -> Drawn:
        """The steps in joint draws of what the timings leave open."""
        return self.learned.draws(self)


def _directions(lengths: list[int], times: StepTimes) -> tuple[Array, Array]:
    total = times.total
    return growth_directions(
        draft_lengths=np.array(lengths),
        verify=np.broadcast_to(times.verify, total.shape) / total,
        draft=np.broadcast_to(times.draft, total.shape) / total,
        overhead=np.broadcast_to(times.overhead, total.shape) / total,
    )


def _moved(moves: _Moves, directions: tuple[Array, ...]) -> Array:
    """Return log T - log T0 on a grid: (batches, contexts, lengths)."""
    own, shared = directions
    by_batch = np.stack([moves.level, moves.drafting, moves.growth], axis=-1)
    by_all = np.stack([moves.draft, moves.overhead], axis=-1)
    moved = (own * by_batch[:, None, None, :]).sum(axis=-1) + shared @ by_all
    return np.asarray(moved + moves.own[:, None, :])


def _elsewhere(deviations: Deviations, lengths: list[int]) -> _Moves:
    """Return draws of what a batch that was not timed has by itself."""
    streams = [normal_draws(STREAM + n) for n in range(3)]
    each = [normal_draws(STREAM + 3 + length) for length in lengths]
    return _Moves(
        level=LEVEL_ELSEWHERE * streams[0],
        drafting=deviations.drafting * streams[1],
        growth=deviations.growth * streams[2],
        own=deviations.own * np.stack(each, axis=-1),
        draft=np.zeros(DRAWS),
        overhead=np.zeros(DRAWS),
    )


def schedule_after(tuned: Tuned, file: str) -> tuple[SchedulePlan, WrittenSchedule]:
    """Return the schedule of a file's batches, as much time at each, by what was learned.

    Where it gains nothing, or the engine takes none, it is one draft length.
    """
    question = tuned.question
    learned = learned_from(tuned, file)
    workload = replace(question.workload, tuned=learned)
    moved = learned.applied(replace(question, workload=workload))
    share = 1 / len(tuned.batches)
    plan = plan_question(moved, tie=TIE, mix=dict.fromkeys(tuned.batches, share))
    return plan, schedule_or_one(plan, ScheduleOptions())


def learned_from(tuned: Tuned, file: str) -> Learned:
    """Return what a tuning file teaches, from what is believed after its timings."""
    belief, deviations = tuned.belief, deviations_of(tuned.priced.times)
    loads = sorted({timing.load for timing in belief.timings})
    count, depth = (
        len(belief.draft_lengths),
        len(belief.mean) - belief.loads * len(belief.draft_lengths),
    )
    covariance, crossed = _prior_of_moves(tuned, deviations, loads)
    mean, left = belief.further(covariance=covariance, crossed=crossed)
    values, vectors = np.linalg.eigh(left)
    drawn = mean + _uncorrelated(len(mean)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    batches = [tuned.batches[load] for load in loads]
    units = [_unit(float(mean[len(loads) * count + n]), b) for n, b in enumerate(batches)]
    order = np.argsort(batches, kind="stable")

    def moves(values: Array) -> _Moves:
        own, rest = np.split(values, [len(loads) * count], axis=-1)
        by_load = rest[..., : 3 * len(loads)].reshape(*rest.shape[:-1], 3, len(loads))
        levels, draftings, growths = np.moveaxis(by_load[..., order], -2, 0)
        own = own.reshape(*own.shape[:-1], len(loads), count)[..., order, :]
        return _Moves(
            level=levels + np.array([units[n] for n in order]),
            drafting=draftings,
            growth=growths,
            own=own,
            draft=rest[..., 3 * len(loads)],
            overhead=rest[..., 3 * len(loads) + 1],
        )

    of_acceptance = any(timing.held is None and timing.draft_length for timing in belief.timings)
    return Learned(
        file=file,
        timings=len(tuned.timings),
        batches=tuple(batches[n] for n in order),
        draft_lengths=belief.draft_lengths,
        about=tuned.question.deployment.columns,
        mean=moves(mean),
        drawn=moves(drawn),
        deviations=deviations,
        context=tuned.question.workload.contexts[0],
        logits=mean[-depth:] if of_acceptance else None,
        drawn_logits=drawn[:, -depth:],
        points=_points(tuned, dict(zip(batches, units, strict=True))),
    )


def _points(tuned: Tuned, units: Mapping[int, float]) -> tuple[MeasuredPoint, ...]:
    """Return the timings as steps, repeats averaged: T = AL / speed in the unit that was found."""
    believed = dict(
        zip(tuned.belief.draft_lengths, tuned.belief.tokens_per_step.tolist(), strict=True)
    )
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for timed in tuned.timings:
        length = timed.draft_length
        tokens = timed.held or timed.tokens.get(length, believed[length])
        step = tokens * float(np.exp(units[timed.batch])) / timed.tokens_per_s
        found.setdefault((timed.batch, length), []).append((step, tokens))
    return tuple(
        MeasuredPoint(
            batch=batch,
            context=tuned.question.workload.contexts[0],
            draft_length=length,
            seconds=float(np.mean([step for step, _ in each])),
            tokens_per_step=float(np.mean([tokens for _, tokens in each])),
        )
        for (batch, length), each in found.items()
    )


def _unit(level: float, batch: int) -> float:
    """Return what makes a level of steps seconds: speeds are of all users or of one.

    The one nearer to the prediction is taken; where neither is near, nothing is said of the level.

    >>> _unit(-2.0, 8).__round__(4)  # 8 users at once: log 8 = 2.0794
    2.0794
    >>> _unit(9.0, 1)
    -9.0
    """
    shift = min((0.0, float(np.log(batch))), key=lambda unit: abs(level + unit))
    return shift if abs(level + shift) <= np.log(FAR) else -level


def _prior_of_moves(tuned: Tuned, deviations: Deviations, loads: list[int]) -> tuple[Array, Array]:
    """Return the prior covariance of all moves and logits, and that with the belief's unknowns.

    In this order: each timed batch's own scatter by length; level, drafting and growth by batch;
    drafting's and the engine's time; logits.
    """
    belief, times = (tuned.belief.before or tuned.belief), tuned.priced.times
    count, total = len(belief.draft_lengths), times.total[:, 0]
    by_load, by_all = growth_directions(
        draft_lengths=np.array(belief.draft_lengths),
        verify=times.verify[:, 0] / total,
        draft=times.draft[:, 0] / total,
        overhead=times.overhead[:, 0] / total,
    )
    every = belief.loads * count
    spread = [deviations.level, deviations.drafting, deviations.growth]
    rows = [deviations.own**2 * np.eye(every)[load * count : (load + 1) * count] for load in loads]
    for n, deviation in enumerate(spread):
        block = np.zeros((len(loads), belief.loads, count))
        for at, load in enumerate(loads):
            block[at, load] = deviation**2 * by_load[load, :, n]
        rows.append(block.reshape(len(loads), every))
    for n, deviation in enumerate((deviations.draft, deviations.overhead)):
        rows.append(deviation**2 * by_all[..., n].reshape(1, every))
    of_times = np.concatenate(rows)
    variances = [
        np.full(len(loads) * count, deviations.own**2),
        np.repeat(np.square(spread), len(loads)),
        np.square([deviations.draft, deviations.overhead]),
    ]
    logits = belief.covariance[every:, every:]
    moves, depth = len(of_times), len(logits)
    crossed = np.zeros((moves + depth, every + depth))
    crossed[:moves, :every], crossed[moves:, every:] = of_times, logits
    covariance = np.zeros((moves + depth, moves + depth))
    covariance[:moves, :moves] = np.diag(np.concatenate(variances))
    covariance[moves:, moves:] = logits
    return covariance, crossed


def _uncorrelated(count: int) -> Array:
    """Return normal draws of so many unknowns, (DRAWS, count).

    The last UNCORRELATED of them, those of the largest variance, have mean 0, variance 1 and no
    correlation exactly.
    """
    draws = np.stack([normal_draws(STREAM + 100 + n) for n in range(count)], axis=1)
    exact = draws[:, -UNCORRELATED:]
    exact = np.linalg.qr(exact - exact.mean(axis=0))[0] * np.sqrt(DRAWS)
    signs = np.sign((exact * draws[:, -UNCORRELATED:]).sum(axis=0))
    return np.concatenate([draws[:, :-UNCORRELATED], exact * signs], axis=1)
