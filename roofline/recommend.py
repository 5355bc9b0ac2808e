"""The whole question, from a request to an answer for every batch and context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.advise import Confidence, Decision, confidence, decide
from roofline.errors import DoesNotFitError
from roofline.memory import Memory, memory_for
from roofline.prepare import Request, Setup, prepare
from roofline.priors import priors
from roofline.remedies import remedies
from roofline.sampling import drawn_tokens_per_step
from roofline.step import StepTimes, step_times
from roofline.timing import Machine
from roofline.uncertainty import drawn_steps
from roofline.workload import Grid

__all__ = [
    "Costs",
    "Point",
    "Recommendation",
    "costs",
    "limits",
    "machine_for",
    "recommend",
    "recommend_for",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The answer at one batch and context; arrays run over ``draft_lengths``. Times in s."""

    batch: int
    context: int
    draft_lengths: tuple[int, ...]
    feasible: NDArray[np.bool_]
    tokens_per_step: Array
    step: Array
    verify: Array
    draft: Array
    overhead: Array
    parts: dict[str, Array]
    speedup: Array
    low: Array
    high: Array
    tie: NDArray[np.bool_]
    near_best: Array  # probability of being within 1 % of the best
    best: int  # position in draft_lengths
    confidence: Confidence

    @property
    def draft_length(self) -> int:
        """The recommended D."""
        return self.draft_lengths[self.best]

    @property
    def tie_band(self) -> list[int]:
        """Every D within 1 % of the best."""
        return [d for d, tied in zip(self.draft_lengths, self.tie, strict=True) if tied]

    @property
    def worth_benchmarking(self) -> list[int]:
        """Return the position of the advice and of one or two others that may be the best.

        Those with the highest probability; the second only if it has 10 % or more.
        """
        others = [i for i, ok in enumerate(self.feasible) if ok and i != self.best]
        others.sort(key=lambda i: (-self.near_best[i], -self.speedup[i]))
        likely = [i for i in others[1:2] if self.near_best[i] >= 0.1]
        return sorted([self.best, *others[:1], *likely])

    @property
    def cost_ratio(self) -> Array:
        """R(D), which is also the tokens per step at which D breaks even."""
        return np.asarray(self.step / self.step[0])

    @property
    def time_per_token(self) -> Array:
        """Seconds between the tokens of one sequence [s]."""
        return self.step / self.tokens_per_step


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The answers, what was refused, and what the reader must know about them."""

    setup: Setup
    points: tuple[Point, ...]
    times: StepTimes
    memory: Memory
    warnings: tuple[str, ...]
    refused: tuple[str, ...] = ()  # those of the warnings about points that do not fit


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What every point of a grid takes and holds, before anyone decides."""

    grid: Grid
    memory: Memory
    fits: NDArray[np.bool_]
    refused: list[str]
    times: StepTimes
    tokens_per_step: Array  # (contexts, or one row for all; draft lengths)


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


def costs(setup: Setup) -> Costs:
    """Price the grid of ``setup``; raise DoesNotFitError when no point of it fits the memory."""
    request = setup.request
    grid = Grid.of(
        request.batches,
        request.contexts,
        setup.draft_lengths,
        verify_width=request.verify_width,
        prefill_tokens=request.prefill_tokens,
    )
    memory = memory_for(setup.target, setup.drafter, setup.gpu, setup.engine.memory, setup.host)
    fits = memory.fits(grid)
    refused = [
        memory.explain(batch=batch, context=context)
        for i, batch in enumerate(request.batches)
        for j, context in enumerate(request.contexts)
        if not fits[i, j, 0]
    ]
    if not fits[..., 0].any():
        remedy = remedies(request, batch=request.batches[0], context=request.contexts[0])
        raise DoesNotFitError(f"{setup.target.model.id} on {setup.gpu.id}: {refused[0]}; {remedy}")
    overhead = setup.engine.overhead
    machine, graphs = machine_for(setup), setup.engine.graphs
    return Costs(
        grid=grid,
        memory=memory,
        fits=fits,
        refused=refused,
        times=step_times(setup.target, setup.drafter, grid, machine, overhead, graphs),
        tokens_per_step=setup.acceptance.over_contexts(
            request.contexts, setup.draft_lengths, extrapolate=request.extrapolate
        ),
    )


def recommend(request: Request) -> Recommendation:
    """Answer ``request``; raise DoesNotFitError when no requested point fits the memory."""
    return recommend_for(prepare(request))


def recommend_for(setup: Setup) -> Recommendation:
    """Do the same for a request whose parts are already put together."""
    found = costs(setup)
    grid, times, fits, yields = found.grid, found.times, found.fits, found.tokens_per_step
    drawn = drawn_steps(times, grid, priors().spread)
    tokens = drawn_tokens_per_step(setup.draft_lengths, yields, setup.rounds)
    decision = decide(times, drawn, yields, fits, tokens)
    points = tuple(
        _point(setup, times, decision, yields[j % len(yields)], fits[i, j], at=(i, j))
        for i in range(grid.shape[0])
        for j in range(grid.shape[1])
        if fits[i, j, 0]
    )
    return Recommendation(
        setup=setup,
        points=points,
        times=times,
        memory=found.memory,
        refused=tuple(found.refused),
        warnings=(
            *setup.notes.warnings,
            *limits(times),
            *_beyond_graphs(setup, points),
            *_edges(setup, points),
            *found.refused,
        ),
    )


def _point(
    setup: Setup,
    times: StepTimes,
    decision: Decision,
    yields: Array,
    fits: NDArray[np.bool_],
    *,
    at: tuple[int, int],
) -> Point:
    best = int(decision.best[at])
    low, high = decision.low[at], decision.high[at]
    return Point(
        batch=setup.request.batches[at[0]],
        context=setup.request.contexts[at[1]],
        draft_lengths=setup.draft_lengths,
        feasible=fits,
        tokens_per_step=yields,
        step=times.total[at],
        verify=times.verify[at],
        draft=times.draft[at],
        overhead=times.overhead[at],
        parts={name: part[at] for name, part in times.parts.items()},
        speedup=decision.speedup[at],
        low=low,
        high=high,
        tie=decision.tie[at],
        near_best=decision.near_best[at],
        best=best,
        confidence=confidence(low, high, best, fits),
    )


def limits(times: StepTimes) -> list[str]:
    """Say which kernels run outside what their tables covered."""
    passes = (*times.verify_ops, *times.first_pass_ops)
    return list(dict.fromkeys(t.chosen.limit for t in passes if t.chosen.limit is not None))


def _beyond_graphs(setup: Setup, points: tuple[Point, ...]) -> list[str]:
    """Say which draft lengths leave the captured CUDA graphs, at which batch."""
    graphs, found = setup.engine.graphs, []
    if graphs is None:
        return []
    for point in points:
        width = setup.request.verify_width
        batch = float(setup.target.placement.local(point.batch))
        past = [
            d
            for d in point.draft_lengths
            if batch * (width if width and d else 1 + d) > graphs.largest
        ]
        if past:
            lengths = ", ".join(map(str, past))
            found.append(
                f"batch {point.batch}: draft lengths {lengths} need more than the {graphs.largest} "
                f"rows that {setup.engine.name} captures CUDA graphs for: such steps can cost "
                "several times more (published: 5 times); raise max_cudagraph_capture_size"
            )
    return list(dict.fromkeys(found))


def _edges(setup: Setup, points: tuple[Point, ...]) -> list[str]:
    """Say where the answer lies at the edge of what was looked at, or what memory ruled out."""
    found = []
    longest = setup.draft_lengths[-1]
    if longest and any(point.draft_length == longest for point in points):
        why = (
            "the acceptance given ends there"
            if longest < setup.request.max_draft_length
            else "raise --max-draft-length to look further"
        )
        found.append(f"the best draft length found is the longest one tried ({longest}): {why}")
    for point in points:
        lost = [d for d, ok in zip(point.draft_lengths, point.feasible, strict=True) if not ok]
        if lost:
            found.append(
                f"batch {point.batch}, context {point.context}: draft lengths "
                f"{', '.join(map(str, lost))} do not fit beside the drafter and are left out"
            )
    return found
