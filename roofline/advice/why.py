"""Why: what decided an answer, and the numbers that it turned on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import TIE, Confidence, Point, smallest_within_tie
from roofline.advice.recommend import Recommendation
from roofline.kernels.ops import Kind, MoeShape
from roofline.specs.network import DrafterSpec
from roofline.specs.placement import SplitMode, VerifyAttention
from roofline.timing.machine import OVER_LINK, OpTime

__all__ = [
    "Beyond",
    "Bound",
    "Costs",
    "HostShare",
    "Outcome",
    "PlainPass",
    "Result",
    "Sharing",
    "Woken",
    "beyond",
    "bound",
    "bound_shares",
    "captured_steps",
    "costs",
    "grid_position",
    "outcome",
    "plain_pass",
    "result",
    "trained_context_passed",
    "value_at",
]


class Outcome(StrEnum):
    """What an answer says, and what decided it."""

    ALONE = "alone"  # no draft was looked at
    NO_ROOM = "no_room"  # none fits in memory
    PAST_GRAPHS = "past_graphs"  # each leaves the captured graphs
    PLAIN = "plain"  # none is faster than plain decoding
    DRAFTS = "drafts"


class Bound(StrEnum):
    """What a kernel or a pass waits for."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LINK = "link"
    LATENCY = "latency"


class Sharing(StrEnum):
    """What the rows of a verify pass read once for all of them."""

    ALL = "all"  # weights and KV
    WEIGHTS = "weights"  # each row reads the KV again
    SOME_WEIGHTS = "some-weights"  # further rows wake further experts


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What is advised at a point, beside plain decoding.

    ``draft_length`` is the advised one, or the best one that lost, with its speedup and the range
    of that; None where no draft may be advised.
    """

    outcome: Outcome
    plain: float  # tokens per second of one user
    fast: float  # the same as advised
    draft_length: int | None = None
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: Confidence | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What a draft length costs and yields, by which it was judged; shares are of a plain step."""

    draft_length: int
    growth: float  # of the verify pass over a plain pass
    drafting: float
    engine: float
    break_even: float  # tokens per step
    tokens_per_step: float

    @property
    def rows(self) -> int:
        """Rows of a sequence that are verified."""
        return self.draft_length + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Woken:
    """Experts that a pass wakes in each layer."""

    plain: float
    verify: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HostShare:
    """Experts that the processor computes, and their share of a plain pass."""

    layers: int
    memory: str  # the kind that they are read from
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainPass:
    """What a plain pass spends most of its time on, and what a verify pass adds to it."""

    bound: Bound
    share: float  # of the pass that is spent so
    rows: int
    weight_bytes: float
    cache_bytes: float
    sharing: Sharing
    woken: Woken | None  # without experts None
    cards_in_turn: int  # cards that work one after the other; 1 where none does
    host: HostShare | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Beyond:
    """The best draft length that is not advised for want of a captured graph."""

    draft_length: int
    rows: float
    speedup: float  # captured
    flag: str  # has its rows captured; empty where the engine has none


def captured_steps(point: Point) -> NDArray[np.float64]:
    """Return the steps as they were if a graph covered every pass [s]."""
    return point.step - point.by_hand


def beyond(answer: Recommendation, point: Point) -> Beyond | None:
    """Return the draft length that a larger capture would make the best one; None without any."""
    graphs, lost = answer.deployment.engine.graphs, point.feasible & ~point.candidates
    if graphs is None or not lost.any():
        return None
    gain = point.tokens_per_step * point.step[0] / captured_steps(point)
    at, _ = smallest_within_tie(np.where(lost, gain, np.nan))
    if gain[at] * (1 - TIE) <= point.speedup[point.best]:
        return None
    rows = float(point.pass_rows[at])
    return Beyond(
        draft_length=point.draft_lengths[at],
        rows=rows,
        speedup=float(gain[at]),
        flag=graphs.capture_flag(rows),
    )


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
    """Return the share of a pass that is traffic, arithmetic, links, and neither (latency).

    Of each kernel the longer of traffic and arithmetic counts as such, the rest as latency.
    """
    shares = dict.fromkeys(Bound, 0.0)
    for time in times:
        parts, count = time.time, time.op.count
        memory, compute = value_at(parts.memory, at), value_at(parts.compute, at)
        over = Bound.LINK if time.op.kind in OVER_LINK else Bound.MEMORY
        longer, name = max((memory, over), (compute, Bound.COMPUTE))
        each = value_at(time.each, at)
        shares[name] += count * min(longer, each)
        shares[Bound.LATENCY] += count * max(each - longer, 0.0)
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


def grid_position(answer: Recommendation, point: Point, draft_length: int) -> tuple[int, int, int]:
    """Return where a point and a draft length lie in the answer's grid."""
    request = answer.question.workload
    return (
        request.batches.index(point.batch),
        request.contexts.index(point.context),
        point.draft_lengths.index(draft_length),
    )


def outcome(point: Point) -> Outcome:
    """Return what the answer at a point says."""
    if len(point.draft_lengths) == 1:
        return Outcome.ALONE
    if not point.feasible[1:].any():
        return Outcome.NO_ROOM
    if not point.candidates[1:].any():
        return Outcome.PAST_GRAPHS
    return Outcome.DRAFTS if point.best else Outcome.PLAIN


def result(point: Point) -> Result:
    """Return what is advised at a point."""
    said = outcome(point)
    plain, fast = (float(1 / point.time_per_token[i]) for i in (0, point.best))
    if said not in (Outcome.PLAIN, Outcome.DRAFTS):
        return Result(outcome=said, plain=plain, fast=fast)
    shown = _deciding(point)
    return Result(
        outcome=said,
        plain=plain,
        fast=fast,
        draft_length=point.draft_lengths[shown],
        speedup=float(point.speedup[shown]),
        low=float(point.low[shown]),
        high=float(point.high[shown]),
        confidence=point.confidence,
    )


def _deciding(point: Point) -> int:
    """Return the position of the recommended D, or of the best one that lost."""
    if point.best:
        return point.best
    drafts = np.where(point.candidates[1:], point.speedup[1:], np.nan)
    return int(np.nanargmax(drafts)) + 1


def trained_context_passed(answer: Recommendation, point: Point) -> int | None:
    """Return the positions of the drafter's config where the advice is for a context beyond them.

    A context that acceptance was measured at does not count as beyond.
    """
    question = answer.question
    network = question.deployment.drafter.network
    trained = network.trained_context if isinstance(network, DrafterSpec) else None
    measured = max((context for context, _ in question.acceptance.contexts), default=0)
    if not point.best or trained is None or point.context <= max(trained, measured):
        return None
    return trained


def costs(point: Point) -> Costs | None:
    """Return what decided between drafting and not; None where no draft may be advised."""
    if outcome(point) not in (Outcome.PLAIN, Outcome.DRAFTS):
        return None
    position = _deciding(point)
    return Costs(
        draft_length=point.draft_lengths[position],
        growth=float(point.verify[position] / point.verify[0]),
        drafting=float(point.draft[position] / point.step[0]),
        engine=float((point.overhead[position] - point.overhead[0]) / point.step[0]),
        break_even=float(point.cost_ratio[position]),
        tokens_per_step=float(point.tokens_per_step[position]),
    )


def plain_pass(answer: Recommendation, point: Point, draft_length: int) -> PlainPass:
    """Return what a plain pass waits for, and which experts the verify pass of a D wakes."""
    times, at = answer.times.verify_ops, grid_position(answer, point, 0)
    shares = bound_shares(times, at)
    main = max(shares, key=lambda name: shares[name])
    split = answer.deployment.target.placement.split
    return PlainPass(
        bound=main,
        share=shares[main],
        rows=point.batch,
        weight_bytes=_bytes_moved(times, (Kind.GEMM, Kind.MOE, Kind.CPU_MOE), at),
        cache_bytes=_bytes_moved(times, (Kind.ATTENTION, Kind.MLA), at),
        sharing=_sharing(answer),
        woken=_woken(answer, point, draft_length),
        cards_in_turn=split.cards if split.mode is SplitMode.LAYER else 1,
        host=_host_share(answer, at),
    )


def _bytes_moved(times: list[OpTime], kinds: tuple[Kind, ...], at: tuple[int, ...]) -> float:
    """Return the bytes that the kernels of these kinds move in one pass [B]."""
    chosen = (time.op for time in times if time.op.kind in kinds)
    return sum(op.count * value_at(op.bytes, at) for op in chosen)


def _sharing(answer: Recommendation) -> Sharing:
    if _experts(answer):
        return Sharing.SOME_WEIGHTS
    each = answer.deployment.target.placement.verify_attention is VerifyAttention.KV_PER_QUERY
    return Sharing.WEIGHTS if each else Sharing.ALL


def _host_share(answer: Recommendation, at: tuple[int, ...]) -> HostShare | None:
    """Return what the processor computes of a plain pass."""
    times, host = answer.times.verify_ops, answer.deployment.host
    there = [time for time in times if time.op.kind is Kind.CPU_MOE]
    if not there or host is None:
        return None
    own, whole = (sum(float(value_at(t.total, at)) for t in group) for group in (there, times))
    return HostShare(
        layers=sum(time.op.count for time in there), memory=host.memory.kind, share=own / whole
    )


def _experts(answer: Recommendation) -> OpTime | None:
    """Return the largest group of expert kernels, if the model has experts."""
    found = [time for time in answer.times.verify_ops if time.op.kind in (Kind.MOE, Kind.CPU_MOE)]
    return max(found, key=lambda time: time.op.count, default=None)


def _woken(answer: Recommendation, point: Point, draft_length: int) -> Woken | None:
    """Return how many experts plain and verify passes wake."""
    experts = _experts(answer)
    if experts is None:
        return None
    shape = cast("MoeShape", experts.op.shape)
    plain, verify = (
        value_at(shape.awake, grid_position(answer, point, length)) for length in (0, draft_length)
    )
    return Woken(plain=plain, verify=verify)
