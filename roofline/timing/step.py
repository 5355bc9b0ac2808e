"""One decoding step: verify + draft + overhead, and how its passes are launched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import Array
from roofline.kernels.forward import decode
from roofline.kernels.ops import Op, Part
from roofline.specs.engine import EngineProfile, Graphs, Overhead
from roofline.specs.formats import Precision
from roofline.specs.network import ModelSpec
from roofline.specs.placement import Grid, Placement
from roofline.timing.drafters import Drafter, draft_passes, further_passes, launches
from roofline.timing.laws.simple import KernelTime
from roofline.timing.machine import Machine, OpTime, by_part, time_ops

__all__ = [
    "RARE",
    "Launches",
    "StepTimes",
    "Target",
    "advisable",
    "by_hand_seconds",
    "covered",
    "local_rows",
    "most_rows",
    "past_graphs",
    "step_times",
]

Mask = NDArray[np.bool_]


class Launches(NamedTuple):
    """The passes of a grid; arrays of its shape (batches, contexts, draft lengths)."""

    rows: NDArray[np.float64]  # the most of one rank's pass, all drafts found and whole
    captured: Mask  # graphs cover all but rare passes, or the engine has none to leave
    by_hand: NDArray[np.float64]  # what launching kernel by kernel adds, part of the overhead [s]


#: Share of steps past the captured graphs that, at five times their time, costs a tie (1 %).
RARE = 0.0025


def local_rows(placement: Placement, grid: Grid) -> NDArray[np.float64]:
    """Return the mean rows of one rank's pass: B q and what rides along.

    Each data-parallel group runs its own pass over its own share. Prompts that ride in some passes
    only are no part of the others.
    """
    grid = grid.passes[0][1]
    return np.asarray(
        placement.local_batch(grid.batch) * grid.rows + grid.local_extra_rows(placement)
    )


def most_rows(placement: Placement, grid: Grid) -> NDArray[np.float64]:
    """Return the most rows of one rank's pass, which a graph has to cover: every draft whole."""
    return local_rows(placement, replace(grid, hit_rate=1.0))


def covered(graphs: Graphs | None, placement: Placement, grid: Grid) -> Mask:
    """Return where captured graphs cover all but rare passes; everywhere without any to leave.

    Passes of lookups, and of drafts that stop early, differ in rows: half of them have more than
    their mean.

    >>> graphs = Graphs.model_validate_json('{"steps": [[512, 16]], "eager_launch": "40 us",'
    ...                                      ' "source": "here"}')
    >>> grid = Grid.of((64, 120, 128), (4096,), (4,), hit_rate=0.75)  # on the mean 256, 480, 512
    >>> covered(graphs, Placement(), grid).ravel().tolist()
    [True, False, False]
    """
    decoding = grid.passes[0][1]
    rows, largest = most_rows(placement, grid), np.inf if graphs is None else graphs.largest
    return _mostly_within(rows, decoding.share_within(largest, placement), largest)


def _mostly_within(rows: Array, share: Array, largest: float) -> Mask:
    """Return where the most rows, or those of all but rare passes, are within ``largest``."""
    return np.asarray((rows <= largest) | (share >= 1 - RARE))


def advisable(captured: Mask) -> Mask:
    """Return which draft lengths may be advised: covered ones, or any where D = 0 is not either.

    Draft lengths run along the last axis, D = 0 first.

    >>> advisable(np.array([[True, True, False], [False, False, False]])).tolist()
    [[True, True, False], [True, True, True]]
    """
    return np.asarray(captured | ~captured[..., :1])


def by_hand_seconds(*, kernels: int, busy: Array, each: float, captured: Mask) -> Array:
    """Return what launching every kernel by hand adds where no graph covers the pass [s].

    max(0, kernels x each - busy): slow launches hide behind slow kernels. ``each`` is the time of
    one launch, ``busy`` that of the kernels [s]. Shapes broadcast.

    >>> hidden = {"kernels": 1000, "each": 40e-6, "captured": np.array([True, False, False])}
    >>> by_hand_seconds(busy=np.array([0.01, 0.01, 0.05]), **hidden)  # 40 ms of launches
    array([0.  , 0.03, 0.  ])
    """
    return np.where(captured, 0.0, np.maximum(kernels * each - busy, 0.0))


def past_graphs(
    engine: EngineProfile,
    asked: Mapping[int, tuple[Sequence[int], Sequence[bool], Sequence[float]]],
) -> list[Notice]:
    """Say which draft lengths leave the captured graphs, once for alike batches.

    ``asked`` are draft lengths, 0 first, whether graphs cover their passes, and the most rows of
    these, by batch.
    """
    graphs = engine.graphs
    if graphs is None:
        return []
    alike: dict[tuple[int, ...], list[int]] = {}
    for batch, (lengths, captured, _) in asked.items():
        past = tuple(d for d, inside in zip(lengths, captured, strict=True) if not inside)
        if past:
            alike.setdefault(past, []).append(batch)
    return [
        notice(
            Code.PAST_GRAPHS,
            engine=engine.name,
            largest=graphs.largest,
            lengths=past,
            batches=tuple(batches),
            flag=graphs.capture_flag(max(max(asked[batch][2]) for batch in batches)),
        )
        for past, batches in alike.items()
    ]


Times = NDArray[np.float64]


class Target(NamedTuple):
    """The model that serves, in its formats and on its ranks."""

    model: ModelSpec
    precision: Precision
    placement: Placement


class StepTimes(NamedTuple):
    """Seconds of one step; arrays of shape (..., batches, contexts, draft lengths) [s].

    ``parts`` splits the same total by what it is spent on; the engine's overhead is in ``other``.
    """

    verify: Times
    draft: Times
    overhead: Times
    parts: Mapping[str, Times]
    verify_ops: list[OpTime]
    first_pass_ops: list[OpTime]
    further_pass_ops: list[OpTime]
    launches: Launches
    further_passes: Array  # how often the further passes are run

    @property
    def total(self) -> Times:
        """Verify, draft and overhead together [s]."""
        return self.verify + self.draft + self.overhead


def overhead_seconds(
    overhead: Overhead,
    *,
    draft_length: Times,
    kind: str,
    layers: int = 0,
    expert_layers: int = 0,
    state_layers: int = 0,
    batch: Times | float = 0.0,
    tree: bool = False,
    recurrent: bool = False,
    pass_kind: str | None = None,
    saved_passes: Array = 0.0,
) -> Times:
    """Return the engine's time around the kernels for each draft length [s].

    per_step + per_layer layers + per_expert_layer layers with experts + per_state_layer layers with
    both a recurrent state and experts + per_sequence B; as soon as D > 0 also per_spec_round (and
    per_tree_round or per_model_round) + per_spec_sequence B + P per_draft_pass, with P = D passes
    of a chain, less ``saved_passes`` of drafts that stop early, and 1 of a block drafter.
    ``recurrent`` says whether the target keeps recurrent states, ``pass_kind`` how the engine knows
    the drafter's passes.

    >>> from roofline.specs.engine import Overhead
    >>> generic = Overhead.model_validate_json('{"per_step": "0.5 ms", "per_spec_round": "0.7 ms",'
    ...                                        ' "per_draft_pass": "0.15 ms", "source": "assumed"}')
    >>> 1e3 * overhead_seconds(generic, draft_length=np.array([0, 2]), kind="eagle3")
    array([0.5, 1.5])
    """
    each = overhead.draft_pass(pass_kind or kind)
    round_time = np.where(
        draft_length > 0,
        overhead.per_spec_round
        + overhead.per_tree_round * tree
        + overhead.per_model_round * (recurrent and kind == "model")
        + overhead.per_spec_sequence * batch
        + each * (launches(kind, draft_length) - saved_passes),
        0.0,
    )
    plain = overhead.per_step + overhead.per_layer * layers + overhead.per_sequence * batch
    plain = plain + overhead.per_expert_layer * expert_layers
    plain = plain + overhead.per_state_layer * state_layers
    return np.asarray(plain + round_time)


def step_times(  # noqa: PLR0917 - what runs, on what, with what around it
    target: Target,
    drafter: Drafter,
    grid: Grid,
    machine: Machine,
    overhead: Overhead,
    graphs: Graphs | None = None,
) -> StepTimes:
    """Return the time of one step over the whole grid.

    The verify pass runs 1 + D rows per sequence (a tree's width of them) and makes logits for each;
    the drafter makes its passes before it. Rows are padded to the engine's captured graphs; beyond
    the largest every kernel is launched by hand. No kernel takes less for another draft,
    so R(D) is at least 1 and never falls.
    """
    drafts = grid.draft_length
    own_passes = overhead.sequence_passes and target.model.has_state
    by_sequence = own_passes and drafter.network is not None
    passes = [
        (share, each, _verify_pass(target, each, machine, graphs, by_sequence=by_sequence))
        for share, each in grid.passes
    ]
    verify_ops = _mean_pass([(share, ops) for share, _, ops in passes])
    first, further = (time_ops(kernels, machine) for kernels in draft_passes(drafter, grid))
    if grid.chunks is not None:
        from roofline.timing.prompts import draft_prompt_ops, time_prompts

        first += time_prompts(draft_prompt_ops(drafter, grid.chunks), grid.chunks, machine)
    verify_parts = by_part(verify_ops)
    repeats = further_passes(drafter.kind, grid)
    draft_parts = _draft_parts(first, further, drafts, repeats)
    engine_time = overhead_seconds(
        overhead,
        draft_length=drafts,
        kind=drafter.kind,
        layers=target.model.num_layers,
        expert_layers=target.model.num_expert_layers,
        state_layers=target.model.num_hybrid_layers,
        batch=target.placement.local_batch(grid.batch),
        tree=drafter.topk > 1,
        recurrent=target.model.has_state,
        pass_kind=drafter.pass_kind,
        saved_passes=np.maximum(drafts - 1, 0) - repeats if drafter.network else 0.0,
    )
    verify = _sum(*verify_parts.values(), shape=grid.shape)
    launches = _launches(passes, target.placement, graphs)
    engine_time = np.asarray(engine_time + launches.by_hand)
    parts = {
        part.value: _sum(verify_parts.get(part, 0.0), draft_parts.get(part, 0.0), shape=grid.shape)
        for part in Part
    }
    parts[Part.OTHER.value] = _sum(parts[Part.OTHER.value], engine_time, shape=grid.shape)
    return StepTimes(
        verify=verify,
        draft=_sum(*draft_parts.values(), shape=grid.shape),
        overhead=_sum(engine_time, shape=grid.shape),
        parts=parts,
        verify_ops=verify_ops,
        first_pass_ops=first,
        further_pass_ops=further,
        launches=launches,
        further_passes=repeats,
    )


def _verify_pass(
    target: Target, grid: Grid, machine: Machine, graphs: Graphs | None, *, by_sequence: bool
) -> list[OpTime]:
    """Return the verify pass, or one for each sequence; a draft makes none of them cheaper."""
    ops = _verify(target, grid, machine, graphs)
    if by_sequence:
        single = replace(grid, batch=np.ones_like(grid.batch))
        ops = _by_sequence(ops, _verify(target, single, machine, graphs), grid)
    ops = _never_cheaper(ops, grid)
    if grid.chunks is None:
        return ops
    from roofline.timing.prompts import prompt_ops, time_prompts

    prompts = prompt_ops(target.model, target.precision, target.placement, grid.chunks)
    return [*ops, *time_prompts(prompts, grid.chunks, machine)]


def _verify(target: Target, grid: Grid, machine: Machine, graphs: Graphs | None) -> list[OpTime]:
    """Return the verify pass: its own work, in the time of rows padded to a captured graph.

    Padding is left out in mixtures of experts: the padded rows repeat one token's choices.
    """

    def kernels(padding: Times | float) -> list[Op]:
        """Return the kernels with ``padding`` more rows on every rank."""
        return decode(
            target.model,
            target.precision,
            target.placement,
            batch=grid.batch,
            context=grid.context,
            rows=grid.rows,
            extra_rows=grid.prefill_tokens + padding * target.placement.dp,
            local_extra_rows=grid.local_extra_rows(target.placement) + padding,
        )

    rows = local_rows(target.placement, grid)
    padding = graphs.padded(rows) - rows if graphs else 0.0
    unpadded = kernels(0.0)
    if target.model.num_expert_layers or not np.any(padding):
        return time_ops(unpadded, machine)
    padded = time_ops(kernels(padding), machine)
    return [time._replace(op=op) for time, op in zip(padded, unpadded, strict=True)]


def _mean_pass(passes: Sequence[tuple[Array, list[OpTime]]]) -> list[OpTime]:
    """Return the kernels of the mean pass: sum of share x time, and as much of their work.

    Their shapes and laws are those of the passes that decode only.
    """
    if len(passes) == 1:
        return passes[0][1]
    shares = [share for share, _ in passes]

    def mean(values: Iterable[Array]) -> Times:
        return np.asarray(sum(share * value for share, value in zip(shares, values, strict=True)))

    return [
        alike[0]._replace(
            op=replace(
                alike[0].op,
                flops=mean(time.op.flops for time in alike),
                bytes=mean(time.op.bytes for time in alike),
                rows=mean(time.op.rows for time in alike),
            ),
            time=_mean_time(mean, [time.time for time in alike]),
            each=mean(time.each for time in alike),
        )
        for alike in zip(*(ops for _, ops in passes), strict=True)
    ]


def _mean_time(mean: Callable[[Iterable[Array]], Times], times: Sequence[KernelTime]) -> KernelTime:
    """Return the mean launch; what binds it is what takes longer on the mean.

    The longer one of memory and compute is the mean of the longer ones, so that what neither
    explains is the mean as well.
    """
    memory, compute = mean(t.memory for t in times), mean(t.compute for t in times)
    bound = mean(np.maximum(t.memory, t.compute) for t in times)
    return KernelTime(
        floor=mean(t.floor for t in times),
        memory=np.where(memory >= compute, bound, memory),
        compute=np.where(memory >= compute, compute, bound),
        total=mean(t.total for t in times),
    )


def _launches(
    passes: Sequence[tuple[Array, Grid, list[OpTime]]], placement: Placement, graphs: Graphs | None
) -> Launches:
    """Return how the verify passes are launched; graphs are those of passes that only decode.

    Passes of lookups have more or fewer rows than their mean: those beyond the graphs are launched
    by hand, whichever side the mean is on.
    """
    each = graphs.eager_launch if graphs else 0.0
    largest = graphs.largest if graphs else np.inf
    launched = []
    for share, grid, ops in passes:
        rows = np.broadcast_to(most_rows(placement, grid), grid.shape)
        within, count = grid.share_within(largest, placement), sum(time.op.count for time in ops)
        captured = np.broadcast_to(_mostly_within(rows, within, largest), grid.shape)
        busy = _sum(*by_part(ops).values(), shape=grid.shape)
        beyond = 1 - within
        by_hand = by_hand_seconds(kernels=count, busy=busy, each=each, captured=beyond == 0)
        by_hand = np.asarray(share * beyond * by_hand)
        launched.append(Launches(rows=rows, captured=captured, by_hand=by_hand))
    return launched[0]._replace(by_hand=np.asarray(sum(each.by_hand for each in launched)))


def _by_sequence(together: list[OpTime], single: list[OpTime], grid: Grid) -> list[OpTime]:
    """Return kernels that run once for each sequence where D > 0, all together where D = 0."""
    return [
        time._replace(
            each=np.where(
                grid.draft_length > 0, np.maximum(time.each, grid.batch * one.each), time.each
            )
        )
        for time, one in zip(together, single, strict=True)
    ]


def _never_cheaper(times: list[OpTime], grid: Grid) -> list[OpTime]:
    """Return kernels that take no less for another draft.

    Tables have steps down, where a library's kernel for more rows happens to be the better one: no
    gain of drafting. A grid without D = 0 stays as it is.
    """
    if grid.draft_length[0, 0, 0] > 0:
        return times
    return [
        time._replace(each=np.maximum.accumulate(np.atleast_1d(time.each), axis=-1))
        for time in times
    ]


def _draft_parts(
    first: list[OpTime], further: list[OpTime], draft_length: Times, repeats: Array
) -> Mapping[str, Times]:
    """Return first pass + further passes by part, zero at D = 0 [s]."""
    drafting = draft_length > 0
    once, again = by_part(first), by_part(further)
    return {
        part: np.where(drafting, once.get(part, 0.0) + repeats * again.get(part, 0.0), 0.0)
        for part in once
    }


def _sum(*terms: Times | float, shape: tuple[int, ...]) -> Times:
    """Add arrays of their natural shapes and widen the result to the grid's."""
    total: Times | float = 0.0
    for term in terms:
        total = total + term
    return np.asarray(total + np.zeros(shape))
