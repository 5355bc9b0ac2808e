"""The whole question, from a request to an answer for every batch and context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.defaults import fall_of_one_rate
from roofline.acceptance.models import share_if_falling
from roofline.acceptance.sampling import drawn_tokens_per_step
from roofline.advice.cautions import limits, slower_than_wide
from roofline.advice.decide import CONFIDENCES, Decision, decide, near_best
from roofline.advice.edges import edges
from roofline.advice.point import Point
from roofline.advice.prepare import Request, Setup, prepare
from roofline.advice.remedies import Refused, does_not_fit, refuse
from roofline.specs.placement import Grid
from roofline.specs.priors import priors
from roofline.timing.launches import advisable, past_graphs
from roofline.timing.machine import Machine
from roofline.timing.memory import Memory
from roofline.timing.step import StepTimes, step_times
from roofline.timing.uncertainty import Drawn, grouped, speedup_range

__all__ = [
    "Costs",
    "Point",
    "Recommendation",
    "advise",
    "costs",
    "grid_of",
    "machine_for",
    "price",
    "recommend",
    "recommend_for",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The answers, what was refused, and what the reader must know about them."""

    setup: Setup
    points: tuple[Point, ...]
    times: StepTimes
    memory: Memory
    warnings: tuple[str, ...]
    refused: tuple[Refused, ...] = ()

    @property
    def largest_batch(self) -> int:
        """The largest batch that is answered: what the engine has to run at once."""
        return max(point.batch for point in self.points)


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What every point of a grid takes and holds, before anyone decides."""

    grid: Grid
    memory: Memory
    fits: NDArray[np.bool_]
    times: StepTimes
    drawn: Drawn
    tokens_per_step: Array  # (contexts, or one row for all; draft lengths)

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """What fits and may be advised."""
        return self.fits & advisable(self.times.launches.captured)


def machine_for(setup: Setup) -> Machine:
    """Return the accelerator as the setup's engine runs it."""
    overhead = setup.engine.overhead
    return Machine(
        setup.gpu,
        setup.engine.id,
        floor_scale=overhead.floor_scale,
        expert_floor_scale=overhead.expert_floor_scale,
        vector=overhead.vector,
        host=setup.host,
        copy_rows=setup.engine.local.copy_rows if setup.engine.local else 32,
    )


def grid_of(setup: Setup, batches: Sequence[int], contexts: Sequence[int]) -> Grid:
    """Return the grid of what was asked at these batches and contexts."""
    return Grid.of(
        batches,
        contexts,
        setup.draft_lengths,
        verify_width=setup.request.verify_width,
        prefill_tokens=setup.request.prefill_tokens,
    )


def price(setup: Setup, batches: Sequence[int], contexts: Sequence[int]) -> Costs:
    """Price a grid of ``setup``, whether it fits or not."""
    request, engine = setup.request, setup.engine
    grid = grid_of(setup, batches, contexts)
    memory = setup.memory()
    machine = machine_for(setup)
    times = step_times(setup.target, setup.drafter, grid, machine, engine.overhead, engine.graphs)
    return Costs(
        grid=grid,
        memory=memory,
        fits=memory.fits(grid),
        times=times,
        drawn=grouped(times, grid, priors().spread),
        tokens_per_step=setup.acceptance.over_contexts(
            contexts, setup.draft_lengths, extrapolate=request.extrapolate
        ),
    )


def costs(setup: Setup) -> Costs:
    """Price the grid of ``setup``; raise DoesNotFitError when no point of it fits the memory."""
    request = setup.request
    found = price(setup, request.batches, request.contexts)
    if not found.fits[..., 0].any():
        raise does_not_fit(setup, batch=request.batches[0], context=request.contexts[0])
    return found


def advise(setup: Setup, found: Costs) -> Decision:
    """Decide at every batch and context of what was priced."""
    low, high = speedup_range(found.drawn, _drawn_tokens(setup, found))
    if setup.acceptance.unlimited and len(setup.draft_lengths) > 1:
        low = low * share_if_falling(
            rate=found.tokens_per_step[:, 1] - 1,
            ratio=fall_of_one_rate(),
            draft_lengths=setup.draft_lengths,
        )
    return decide(found.times.total, found.tokens_per_step, found.candidates, (low, high))


def _drawn_tokens(setup: Setup, found: Costs) -> Array:
    return drawn_tokens_per_step(setup.draft_lengths, found.tokens_per_step, setup.rounds)


def _odds(setup: Setup, found: Costs) -> Array:
    """Return the probability of each draft length to be within 1 % of the best."""
    speed = _drawn_tokens(setup, found) / found.drawn.steps()
    return near_best(np.where(found.candidates, speed, np.nan))


def recommend(request: Request) -> Recommendation:
    """Answer ``request``; raise DoesNotFitError when no requested point fits the memory."""
    return recommend_for(prepare(request))


def recommend_for(setup: Setup) -> Recommendation:
    """Do the same for a request whose parts are already put together."""
    found = costs(setup)
    decision, odds = advise(setup, found), _odds(setup, found)
    places = [(i, j) for i in range(found.grid.shape[0]) for j in range(found.grid.shape[1])]
    points = tuple(
        _point(setup, found, decision, odds[at], at=at) for at in places if found.fits[(*at, 0)]
    )
    batches, contexts = setup.request.batches, setup.request.contexts
    unfit = [(batches[i], contexts[j]) for i, j in places if not found.fits[i, j, 0]]
    return Recommendation(
        setup=setup,
        points=points,
        times=found.times,
        memory=found.memory,
        refused=refuse(setup, unfit),
        warnings=(
            *setup.notes.warnings,
            *limits(found.times),
            *slower_than_wide(setup, machine_for(setup), found.times),
            *past_graphs(
                setup.engine, {p.batch: (p.draft_lengths, p.pass_rows.tolist()) for p in points}
            ),
            *edges(setup, points),
        ),
    )


def _point(
    setup: Setup, found: Costs, decision: Decision, odds: Array, *, at: tuple[int, int]
) -> Point:
    times, yields = found.times, found.tokens_per_step
    return Point(
        batch=setup.request.batches[at[0]],
        context=setup.request.contexts[at[1]],
        draft_lengths=setup.draft_lengths,
        feasible=found.fits[at],
        tokens_per_step=yields[at[1] % len(yields)],
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
