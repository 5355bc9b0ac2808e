"""Why: what decided an answer, and the numbers that it turned on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import TIE, Point, smallest_within_tie, speedups
from roofline.advice.question import allowed_lengths
from roofline.advice.recommend import Recommendation
from roofline.kernels.ops import AttentionShape, Kind, MoeShape
from roofline.specs.network import DrafterSpec
from roofline.specs.placement import SplitMode, VerifyAttention
from roofline.timing.machine import OVER_LINK, OpTime
from roofline.timing.step import advisable, covered, most_rows

__all__ = [
    "LIMITS",
    "OUTCOMES",
    "ActiveExperts",
    "BestUncaptured",
    "Bound",
    "Growth",
    "HeadBlocks",
    "HostExperts",
    "Outcome",
    "PlainPass",
    "Sharing",
    "UnknownLength",
    "assumed_share",
    "best_uncaptured",
    "best_uncaptured_position",
    "bound",
    "bound_shares",
    "captured_steps",
    "dearest_growth",
    "deciding",
    "deciding_limit",
    "deciding_limits",
    "deciding_position",
    "dominant_bound",
    "grid_position",
    "host_share",
    "most_tokens_per_step",
    "outcome",
    "outcomes",
    "plain_pass",
    "shortest_unknown",
    "trained_context_passed",
    "value_at",
    "would_win",
]


Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Positions = NDArray[np.intp]


class Outcome(StrEnum):
    """What an answer says, and what decided it."""

    ALONE = "alone"  # no draft was looked at
    NO_ROOM = "no_room"  # none fits in memory
    PAST_GRAPHS = "past_graphs"  # each that the drafter can make leaves the captured graphs
    UNKNOWN = "unknown"  # those that fit and stay in the graphs have no known acceptance
    PLAIN = "plain"  # none is faster than plain decoding
    DRAFTS = "drafts"


OUTCOMES = tuple(Outcome)
#: What may keep every draft length from being advised.
LIMITS = (Outcome.NO_ROOM, Outcome.PAST_GRAPHS, Outcome.UNKNOWN)


class Bound(StrEnum):
    """What a kernel or a pass waits for."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LINK = "link"
    LATENCY = "latency"


class Sharing(StrEnum):
    """What the rows of a verify pass read once for all of them."""

    ALL = "all"  # weights and KV
    READ_ONCE = "read-once"  # weights and KV, but attention computes whole tiles of rows
    WEIGHTS = "weights"  # each row reads the KV again
    PER_TILE = "per-tile"  # weights; each tile of rows reads the KV again
    SOME_WEIGHTS = "some-weights"  # more rows activate more experts


class ActiveExperts(NamedTuple):
    """Experts that one layer computes in a plain pass and in a verify pass, on average."""

    plain: float
    verify: float


class HostExperts(NamedTuple):
    """Experts that the processor computes in a pass."""

    layers: int
    memory: str  # the kind that they are read from


class StageWaits(NamedTuple):
    """What launching an engine's stages and waiting for them takes [s]."""

    plain: float  # in a plain step
    drafting: float  # in one with drafts


class PlainPass(NamedTuple):
    """What a plain pass reads, and what a verify pass adds to it."""

    weight_bytes: float
    cache_bytes: float
    sharing: Sharing
    active_experts: ActiveExperts | None  # None without experts
    cards_in_turn: int  # cards that work one after the other; 1 where none does
    host: HostExperts | None
    stage_waits: StageWaits | None = None  # None without stages


class HeadBlocks(NamedTuple):
    """The thread blocks of a kernel that gives each query head one of its own."""

    rows: int  # that a block computes
    blocks: int  # in a verify pass
    units: int  # multiprocessors that they run on; 0 where the profile does not say


class Growth(NamedTuple):
    """The kernel that more rows make dearest, all its launches together."""

    op: str
    plain: float  # in a plain pass [s]
    verify: float  # in a verify pass [s]
    share: float  # of what the verify pass takes more
    head_blocks: HeadBlocks | None = None  # None where rows of a KV head share a block


class BestUncaptured(NamedTuple):
    """The best draft length that is not advised for want of a captured graph."""

    draft_length: int
    rows: float
    speedup: float  # captured
    flag: str  # that captures its rows; empty where the engine has none


class UnknownLength(NamedTuple):
    """A draft length of unknown acceptance that fits and stays in the captured graphs."""

    draft_length: int
    rows: float  # of its pass


def shortest_unknown(answer: Recommendation, point: Point) -> UnknownLength | None:
    """Return the shortest draft length of unknown acceptance, if it could be run at a point."""
    question, deployment = answer.question, answer.deployment
    allowed = allowed_lengths(deployment, question.workload.max_draft_length)
    unknown = [d for d in allowed if d not in question.draft_lengths]
    if not unknown:
        return None
    grid = deployment.grid(
        (point.batch,),
        (point.context,),
        unknown[:1],
        prefill_per_step=question.workload.prefill_tokens_per_step,
    )
    placement = deployment.target.placement
    captured = covered(deployment.engine.graphs, placement, grid) | ~point.captured[0]
    if not (captured & deployment.memory.fits(grid)).all():
        return None
    rows = float(most_rows(placement, grid).item())
    return UnknownLength(draft_length=unknown[0], rows=rows)


def captured_steps(point: Point) -> NDArray[np.float64]:
    """Return the steps as they were if a graph covered every pass [s]."""
    return point.step - point.by_hand


def best_uncaptured(answer: Recommendation, point: Point) -> BestUncaptured | None:
    """Return the draft length that a larger capture would make the best one; None without any."""
    graphs = answer.deployment.engine.graphs
    gain = point.tokens_per_step * point.step[0] / captured_steps(point)
    at = best_uncaptured_position(
        gain=gain,
        uncaptured=point.feasible & ~point.captured,
        advised=point.speedup[point.best],
    ).item()
    if graphs is None or at < 0:
        return None
    rows = float(point.pass_rows[at])
    return BestUncaptured(
        draft_length=point.draft_lengths[at],
        rows=rows,
        speedup=float(gain[at]),
        flag=graphs.capture_flag(rows),
    )


def best_uncaptured_position(*, gain: Array, uncaptured: Mask, advised: Array | float) -> Positions:
    """Return the position of the draft length that a larger capture would make the best; else -1.

    ``gain`` is the speedup with every pass captured, ``uncaptured`` what fits and may not be
    advised, ``advised`` the speedup of the advice. Draft lengths run along the last axis.

    >>> only_last = np.array([False, False, True])
    >>> best_uncaptured_position(gain=np.array([1, 1.5, 2]), uncaptured=only_last, advised=1.5)
    array(2)
    """
    at, _ = smallest_within_tie(np.where(uncaptured, gain, np.nan))
    at = np.asarray(at)
    reached = np.take_along_axis(gain, at[..., None], axis=-1)[..., 0]
    better = uncaptured.any(axis=-1) & (reached * (1 - TIE) > advised)
    return np.where(better, at, -1)


def value_at(array: object, at: tuple[int, ...]) -> float:
    """Return one value of an array that keeps length 1 along axes it does not depend on."""
    values = np.asarray(array, dtype=float)
    if values.ndim == 0:
        return float(values)
    index = tuple(min(i, n - 1) for i, n in zip(at[-values.ndim :], values.shape, strict=True))
    return float(values[index])


def bound(time: OpTime, at: tuple[int, ...]) -> Bound:
    """Return what one kernel waits for."""
    parts = time.time
    memory, compute = value_at(parts.memory, at), value_at(parts.compute, at)
    if value_at(parts.latency, at) >= max(memory, compute):
        return Bound.LATENCY
    if compute > memory:
        return Bound.COMPUTE
    return Bound.LINK if time.op.kind in OVER_LINK else Bound.MEMORY


def bound_shares(times: list[OpTime], at: tuple[int, ...]) -> dict[Bound, float]:
    """Return the shares of a pass that are memory traffic, arithmetic, links and latency.

    The longer of a kernel's traffic and arithmetic counts as such, the rest of its time as latency.
    """
    shares = dict.fromkeys(Bound, 0.0)
    for time in times:
        parts, count = time.time, time.op.count
        memory, compute = value_at(parts.memory, at), value_at(parts.compute, at)
        traffic = Bound.LINK if time.op.kind in OVER_LINK else Bound.MEMORY
        longer, name = max((memory, traffic), (compute, Bound.COMPUTE))
        seconds = value_at(time.each, at)
        shares[name] += count * min(longer, seconds)
        shares[Bound.LATENCY] += count * max(seconds - longer, 0.0)
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


def grid_position(answer: Recommendation, point: Point, draft_length: int) -> tuple[int, int, int]:
    """Return where a point and a draft length lie in the answer's grid."""
    workload = answer.question.workload
    return (
        workload.batches.index(point.batch),
        workload.contexts.index(point.context),
        point.draft_lengths.index(draft_length),
    )


def outcome(answer: Recommendation, point: Point) -> Outcome:
    """Return what the answer at a point says."""
    stuck = not point.candidates[1:].any()
    position = outcomes(
        fits=point.feasible,
        candidates=point.candidates,
        best=point.best,
        unknown=np.array(stuck and shortest_unknown(answer, point) is not None),
    )
    return OUTCOMES[position.item()]


def outcomes(
    *, fits: Mask, candidates: Mask, best: Positions | int, unknown: Mask
) -> NDArray[np.int8]:
    """Return what answers say, as positions in OUTCOMES.

    ``candidates`` is what fits and may be advised; draft lengths run along the last axis.
    ``unknown`` says where one of unknown acceptance could run.

    >>> fits, never = np.array([[True, True], [True, False]]), np.array(False)
    >>> said = outcomes(fits=fits, candidates=fits, best=np.array([1, 0]), unknown=never)
    >>> [OUTCOMES[i].value for i in said]
    ['drafts', 'no_room']
    """
    if fits.shape[-1] == 1:
        return np.full(np.shape(best), OUTCOMES.index(Outcome.ALONE), dtype=np.int8)
    cases = {
        Outcome.DRAFTS: candidates[..., 1:].any(axis=-1) & (np.asarray(best) > 0),
        Outcome.PLAIN: candidates[..., 1:].any(axis=-1),
        Outcome.UNKNOWN: unknown,
        Outcome.PAST_GRAPHS: fits[..., 1:].any(axis=-1),
    }
    positions = [np.int8(OUTCOMES.index(case)) for case in cases]
    holds = np.broadcast_arrays(*cases.values())
    return np.select(holds, positions, np.int8(OUTCOMES.index(Outcome.NO_ROOM)))


def deciding_limit(answer: Recommendation, point: Point) -> Outcome | None:
    """Return the limit that keeps drafts from winning at a point; None where they lose without it.

    It is memory, the captured graphs or the end of the acceptance.
    """
    kind = outcome(answer, point)
    may, gain = point.feasible, point.tokens_per_step * point.step[0] / captured_steps(point)
    if kind is Outcome.NO_ROOM:
        may, gain = advisable(point.captured), point.speedup
    elif kind is Outcome.UNKNOWN:
        may, gain = _most_of_unknown(answer, point)
    position = deciding_limits(
        outcome=np.array(OUTCOMES.index(kind)),
        wins={limit: would_win(gain, may) for limit in LIMITS},
    )
    return OUTCOMES[position.item()] if position >= 0 else None


def deciding_limits(*, outcome: NDArray[np.int8], wins: Mapping[Outcome, Mask]) -> Positions:
    """Return the limits that keep drafts from winning, as positions in OUTCOMES; -1 for none.

    ``outcome`` is what answers say, as such positions; ``wins`` says where drafts would win without
    a limit.

    >>> graphs = np.array(OUTCOMES.index(Outcome.PAST_GRAPHS))
    >>> wins = dict.fromkeys(LIMITS, np.array([True, False]))
    >>> deciding_limits(outcome=graphs, wins=wins).tolist()
    [2, -1]
    """
    decides = [(outcome == OUTCOMES.index(limit)) & wins[limit] for limit in LIMITS]
    return np.select(np.broadcast_arrays(*decides), [OUTCOMES.index(limit) for limit in LIMITS], -1)


def would_win(gain: Array, may: Mask) -> Mask:
    """Return where a draft length that may run gains more than a tie over plain decoding.

    Draft lengths run along the last axis, 0 first; ``gain`` is the speedup, NaN where not known.

    >>> may = np.array([[True, True, True], [True, True, False]])
    >>> would_win(np.array([1.0, 1.005, 1.3]), may).tolist()
    [True, False]
    """
    drafts = np.where(may & np.isfinite(gain), gain, 0.0)[..., 1:]
    return np.asarray(drafts.max(axis=-1, initial=0.0) * (1 - TIE) > 1)


def most_tokens_per_step(draft_lengths: Sequence[int], tokens_per_step: Array) -> Array:
    """Return the most tokens per step that draft lengths of unknown acceptance (NaN) may yield.

    A draft of D yields at most 1 + D, and no more than a longer one. Known ones stay.

    >>> most_tokens_per_step([0, 1, 2, 3], np.array([1.0, np.nan, 1.8, np.nan]))
    array([1. , 1.8, 1.8, 4. ])
    """
    known = np.isfinite(tokens_per_step)
    ends = np.where(known, tokens_per_step, 1.0 + np.array(draft_lengths))
    of_longer = np.minimum.accumulate(ends[..., ::-1], axis=-1)[..., ::-1]
    return np.where(known, tokens_per_step, of_longer)


def _most_of_unknown(answer: Recommendation, point: Point) -> tuple[Mask, Array]:
    """Return which draft lengths of unknown acceptance could run, and the most that each may gain.

    Plain decoding comes first.
    """
    question = answer.question
    allowed = allowed_lengths(answer.deployment, question.workload.max_draft_length)
    known = dict(zip(point.draft_lengths, point.tokens_per_step, strict=True))
    most = most_tokens_per_step(allowed, np.array([known.get(d, np.nan) for d in allowed]))
    looked_at = replace(question, draft_lengths=allowed)
    priced = looked_at.price((point.batch,), (point.context,))
    unknown = np.array([d not in known for d in allowed])
    return priced.candidates[0, 0] & unknown, speedups(most, priced.times.total[0, 0])


def deciding(point: Point) -> int | None:
    """Return the position of the advised D, or of the best one that lost.

    None where no draft may be advised.
    """
    at = deciding_position(speedup=point.speedup, candidates=point.candidates, best=point.best)
    return at.item() if at >= 0 else None


def deciding_position(*, speedup: Array, candidates: Mask, best: Positions | int) -> Positions:
    """Return the position of the advised D, or of the best one that lost; -1 where none may run.

    ``candidates`` is what fits and may be advised; draft lengths run along the last axis.

    >>> every = np.array([True, True, True])
    >>> deciding_position(speedup=np.array([1, 0.8, 0.9]), candidates=every, best=0)
    array(2)
    """
    best = np.asarray(best)
    if candidates.shape[-1] == 1:
        return np.full(best.shape, -1)
    drafts = np.where(candidates, speedup, -np.inf)[..., 1:]
    at = np.where(best > 0, best, drafts.argmax(axis=-1) + 1)
    return np.where(candidates[..., 1:].any(axis=-1), at, -1)


def trained_context_passed(answer: Recommendation, point: Point) -> int | None:
    """Return the drafter's trained context where the advice is for a longer one, else None.

    A context that acceptance was measured at does not count as longer.
    """
    question = answer.question
    network = question.deployment.drafter.network
    trained = network.trained_context if isinstance(network, DrafterSpec) else None
    at = () if question.acceptance.unknown else question.acceptance.contexts
    measured = max((context for context, _ in at), default=0)
    if not point.best or trained is None or point.context <= max(trained, measured):
        return None
    return trained


def dominant_bound(answer: Recommendation, point: Point) -> tuple[Bound, float]:
    """Return what a plain pass spends most of its time on, and the share of it."""
    shares = bound_shares(answer.times.verify_ops, grid_position(answer, point, 0))
    main = max(shares, key=lambda name: shares[name])
    return main, shares[main]


def assumed_share(answer: Recommendation, point: Point) -> float:
    """Return the share of a plain pass that laws give which were not measured on the GPU."""
    at = grid_position(answer, point, 0)
    seconds = [(value_at(t.total, at), t.chosen.provenance) for t in answer.times.verify_ops]
    assumed = sum(each for each, provenance in seconds if provenance == "assumed")
    return assumed / sum(each for each, _ in seconds)


def plain_pass(answer: Recommendation, point: Point, draft_length: int) -> PlainPass:
    """Return what a plain pass reads, and what the verify pass of a draft length adds."""
    times, at = answer.times.verify_ops, grid_position(answer, point, 0)
    split = answer.deployment.target.placement.split
    return PlainPass(
        weight_bytes=_bytes_moved(times, (Kind.GEMM, Kind.MOE, Kind.CPU_MOE), at),
        cache_bytes=_bytes_moved(times, (Kind.ATTENTION, Kind.MLA), at),
        sharing=_sharing(answer),
        active_experts=_active_experts(answer, point, draft_length),
        cards_in_turn=split.cards if split.mode is SplitMode.LAYER else 1,
        host=_host_experts(answer),
        stage_waits=_stage_waits(answer, point, draft_length),
    )


def _stage_waits(answer: Recommendation, point: Point, draft_length: int) -> StageWaits | None:
    """Return what stages wait and are launched for, None where there are none."""
    if answer.deployment.target.placement.pipeline.stages == 1:
        return None
    from roofline.timing.pipeline import waits_and_launches

    seconds = waits_and_launches(answer.times)
    plain, drafting = (
        value_at(seconds, grid_position(answer, point, length)) for length in (0, draft_length)
    )
    return StageWaits(plain=plain, drafting=drafting)


def dearest_growth(answer: Recommendation, point: Point, draft_length: int) -> Growth | None:
    """Return the kernel that grows most from a plain pass to a verify pass; None without growth.

    Kernels of one name in several layers count together.
    """
    plain_at, verify_at = (grid_position(answer, point, length) for length in (0, draft_length))
    seconds: dict[str, tuple[float, float]] = {}
    for time in answer.times.verify_ops:
        plain, verify = seconds.get(time.op.name, (0.0, 0.0))
        more = value_at(time.total, plain_at), value_at(time.total, verify_at)
        seconds[time.op.name] = (plain + more[0], verify + more[1])
    grown = sum(verify - plain for plain, verify in seconds.values())
    if grown <= 0:
        return None
    name, (plain, verify) = max(seconds.items(), key=lambda item: item[1][1] - item[1][0])
    return Growth(
        op=name,
        plain=plain,
        verify=verify,
        share=(verify - plain) / grown,
        head_blocks=_head_blocks(answer, name, verify_at),
    )


def _head_blocks(answer: Recommendation, name: str, at: tuple[int, ...]) -> HeadBlocks | None:
    """Return the blocks of a kernel's launch where every query head has its own."""
    shape = next(t.op.shape for t in answer.times.verify_ops if t.op.name == name)
    count = value_at(shape.pairs * shape.blocks, at) if isinstance(shape, AttentionShape) else 0
    if count <= 0:
        return None
    units = answer.deployment.gpu.compute.units
    return HeadBlocks(
        rows=answer.deployment.target.placement.tile_rows,
        blocks=round(count),
        units=units.value if units else 0,
    )


def _bytes_moved(times: list[OpTime], kinds: tuple[Kind, ...], at: tuple[int, ...]) -> float:
    """Return the bytes that the kernels of these kinds move in one pass [B]."""
    ops = (time.op for time in times if time.op.kind in kinds)
    return sum(op.count * value_at(op.bytes, at) for op in ops)


def _sharing(answer: Recommendation) -> Sharing:
    if _experts(answer):
        return Sharing.SOME_WEIGHTS
    return _SHARING[answer.deployment.target.placement.verify_attention]


_SHARING = {
    VerifyAttention.KV_ONCE: Sharing.ALL,
    VerifyAttention.TILE: Sharing.READ_ONCE,
    VerifyAttention.HEAD_TILE: Sharing.READ_ONCE,
    VerifyAttention.KV_PER_TILE: Sharing.PER_TILE,
    VerifyAttention.KV_PER_QUERY: Sharing.WEIGHTS,
}


def _on_host(answer: Recommendation) -> list[OpTime]:
    return [time for time in answer.times.verify_ops if time.op.kind is Kind.CPU_MOE]


def _host_experts(answer: Recommendation) -> HostExperts | None:
    on_host, host = _on_host(answer), answer.deployment.host
    if not on_host or host is None:
        return None
    return HostExperts(layers=sum(time.op.count for time in on_host), memory=host.memory.kind)


def host_share(answer: Recommendation, point: Point) -> float:
    """Return the share of a plain pass that the processor computes."""
    at = grid_position(answer, point, 0)
    host_seconds, seconds = (
        sum(float(value_at(time.total, at)) for time in group)
        for group in (_on_host(answer), answer.times.verify_ops)
    )
    return host_seconds / seconds


def _experts(answer: Recommendation) -> OpTime | None:
    """Return the largest group of expert kernels, if the model has experts."""
    kernels = [time for time in answer.times.verify_ops if time.op.kind in (Kind.MOE, Kind.CPU_MOE)]
    return max(kernels, key=lambda time: time.op.count, default=None)


def _active_experts(
    answer: Recommendation, point: Point, draft_length: int
) -> ActiveExperts | None:
    """Return how many experts plain and verify passes compute."""
    experts = _experts(answer)
    if experts is None:
        return None
    shape = cast("MoeShape", experts.op.shape)
    plain, verify = (
        value_at(shape.awake, grid_position(answer, point, length)) for length in (0, draft_length)
    )
    return ActiveExperts(plain=plain, verify=verify)
