"""Why: the sentence behind each answer, made of the numbers that decided it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import TIE, Confidence, Point, smallest_within_tie
from roofline.advice.recommend import Recommendation
from roofline.base.units import format_bytes, format_size
from roofline.kernels.ops import Kind, MoeShape
from roofline.specs.network import DrafterSpec
from roofline.specs.placement import SplitMode, VerifyAttention
from roofline.timing.machine import OVER_LINK, OpTime

__all__ = [
    "BEYOND",
    "HEADLINES",
    "NOTHING_DRAFTED",
    "PAST",
    "REASON",
    "VERDICTS",
    "Beyond",
    "beyond",
    "bound",
    "bound_shares",
    "captured_steps",
    "caveat",
    "grid_position",
    "headline",
    "opening",
    "reason",
    "value_at",
]

#: What a page that moves says as well; ``flag`` begins with ``: add `` where there is one.
BEYOND = (
    "Draft length {length:d} would give {speedup:.2f}x with its {rows:.0f} rows captured; "
    "{engine} captures CUDA graphs for up to {largest:d}{flag}."
)


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
        flag=graphs.raised(rows),
    )


#: The first sentence of an answer, by what it says; a page that moves fills in the same words.
HEADLINES = {
    "alone": "Plain decoding: {plain:.0f} tokens/s per user.",
    "no_room": (
        "Do not speculate: plain decoding gives {plain:.0f} tokens/s per user, and no draft length "
        "fits in memory beside it."
    ),
    "past_graphs": (
        "Do not speculate: plain decoding gives {plain:.0f} tokens/s per user, and every draft "
        "length needs more rows than the engine captures CUDA graphs for."
    ),
    "plain": (
        "Do not speculate: plain decoding gives {plain:.0f} tokens/s per user; the best draft "
        "length, {length:d}, would give {speedup:.2f}x ({verdict})."
    ),
    "drafts": (
        "Run draft length {length:d} ({flag}): {speedup:.2f}x plain decoding, {plain:.0f} -> "
        "{fast:.0f} tokens/s per user ({verdict})."
    ),
}
#: Below so many tokens/s of plain decoding a headline gives them with a decimal.
SLOW = 9.95
#: How sure that is, by first sentence and confidence.
VERDICTS = {
    "plain": {
        Confidence.INSIDE_ERROR: "the difference is inside the model's error",
        Confidence.LOSS: "it is slower",
    },
    "drafts": {
        Confidence.WIN: "model error {low:.2f}x to {high:.2f}x",
        Confidence.INSIDE_ERROR: ("a gain inside the model's error, {low:.2f}x to {high:.2f}x"),
    },
}
#: Why, after what the plain pass waits for.
REASON = (
    "{opening} Verifying {rows:d} rows per sequence costs {growth:.2f}x a plain pass, drafting "
    "adds {drafting:.0%} and the engine {engine:.0%} of a plain step: draft length {length:d} must "
    "yield {break_even:.2f} tokens per step to break even, and this acceptance yields "
    "{tokens:.2f}."
)
#: Where every draft length leaves the captured graphs.
PAST = "No CUDA graph covers a step with drafts, and without one it can cost several times more."
CAVEAT = " The drafter's config ends at {trained} positions: acceptance at {context} may be lower."
NOTHING_DRAFTED = "Nothing is drafted, so there is nothing to decide."


def value_at(array: object, at: tuple[int, ...]) -> float:
    """Return one value of an array that keeps length 1 along axes it does not depend on."""
    values = np.asarray(array, dtype=float)
    if values.ndim == 0:
        return float(values)
    index = tuple(min(i, n - 1) for i, n in zip(at[-values.ndim :], values.shape, strict=True))
    return float(values[index])


def bound(time: OpTime, at: tuple[int, ...]) -> str:
    """Return what one kernel waits for: ``memory``, ``compute``, ``link`` or ``latency``."""
    parts = time.time
    memory, compute = value_at(parts.memory, at), value_at(parts.compute, at)
    if value_at(parts.latency, at) >= max(memory, compute):
        return "latency"
    if compute > memory:
        return "compute"
    return "link" if time.op.kind in OVER_LINK else "memory"


def bound_shares(times: list[OpTime], at: tuple[int, ...]) -> dict[str, float]:
    """Return the share of a pass that is traffic, arithmetic, links, and neither (latency).

    Of each kernel the longer of traffic and arithmetic counts as such, the rest as latency.
    """
    shares = dict.fromkeys(("memory", "compute", "link", "latency"), 0.0)
    for time in times:
        parts, count = time.time, time.op.count
        memory, compute = value_at(parts.memory, at), value_at(parts.compute, at)
        over = "link" if time.op.kind in OVER_LINK else "memory"
        longer, name = max((memory, over), (compute, "compute"))
        each = value_at(time.each, at)
        shares[name] += count * min(longer, each)
        shares["latency"] += count * max(each - longer, 0.0)
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


def headline(answer: Recommendation, point: Point) -> str:
    """Return the answer in one sentence."""
    plain, fast = (1 / point.time_per_token[i] for i in (0, point.best))
    if len(point.draft_lengths) == 1:
        return _pace("alone", plain).format(plain=plain)
    if not point.feasible[1:].any():
        return _pace("no_room", plain).format(plain=plain)
    kind = "drafts" if point.best else "plain"
    if not point.candidates[1:].any():
        return _pace("past_graphs", plain).format(plain=plain)
    shown = point.best
    if not shown:
        shown = int(np.nanargmax(np.where(point.candidates[1:], point.speedup[1:], np.nan))) + 1
    verdict = VERDICTS[kind][point.confidence]
    return _pace(kind, plain).format(
        length=point.draft_lengths[shown],
        flag=answer.deployment.engine.name_of_length(answer.deployment.drafter.kind),
        speedup=point.speedup[shown],
        plain=plain,
        fast=fast,
        verdict=verdict.format(low=point.low[shown], high=point.high[shown]),
    )


def caveat(answer: Recommendation, point: Point) -> str:
    """Return what to add to the first sentence where the context is beyond the drafter's own."""
    question = answer.question
    network = question.deployment.drafter.network
    trained = network.trained_context if isinstance(network, DrafterSpec) else None
    measured = max((context for context, _ in question.acceptance.contexts), default=0)
    if not point.best or trained is None or point.context <= max(trained, measured):
        return ""
    return CAVEAT.format(trained=trained, context=format_size(point.context))


def _pace(kind: str, plain: float) -> str:
    """Return a headline's words, with a decimal for the tokens/s of a slow machine."""
    return HEADLINES[kind] if plain >= SLOW else HEADLINES[kind].replace(":.0f}", ":.1f}")


def reason(answer: Recommendation, point: Point) -> str:
    """Return why: what a plain step waits for, what drafts add, what they must yield."""
    looked_at = _deciding_draft_length(point)
    if looked_at is None and point.feasible[1:].any():
        return f"{PAST}{_beyond(answer, point)}"
    if looked_at is None and len(point.draft_lengths) > 1:
        return answer.memory.explain_drafts(batch=point.batch, context=point.context)
    if looked_at is None:
        return NOTHING_DRAFTED
    position = point.draft_lengths.index(looked_at)
    told = REASON.format(
        opening=opening(answer, point, looked_at),
        rows=looked_at + 1,
        growth=point.verify[position] / point.verify[0],
        drafting=point.draft[position] / point.step[0],
        engine=(point.overhead[position] - point.overhead[0]) / point.step[0],
        length=looked_at,
        break_even=point.cost_ratio[position],
        tokens=point.tokens_per_step[position],
    )
    return f"{told}{_beyond(answer, point)}"


def _beyond(answer: Recommendation, point: Point) -> str:
    """Say what a draft length past the captured graphs would give, where it would be the best."""
    found, graphs = beyond(answer, point), answer.deployment.engine.graphs
    if found is None or graphs is None:
        return ""
    return " " + BEYOND.format(
        length=found.draft_length,
        speedup=found.speedup,
        rows=found.rows,
        engine=answer.deployment.engine.name,
        largest=graphs.largest,
        flag=f": add {found.flag}" if found.flag else "",
    )


def opening(answer: Recommendation, point: Point, draft_length: int) -> str:
    """Return what a plain step waits for, and which experts a verify pass wakes."""
    plain = grid_position(answer, point, 0)
    shares = bound_shares(answer.times.verify_ops, plain)
    main = max(shares, key=lambda name: shares[name])
    return (
        f"{_what_it_waits_for(answer, point, main, shares[main])}"
        f"{_waking(answer, point, draft_length)}{_local(answer, plain)}"
    )


def _deciding_draft_length(point: Point) -> int | None:
    """Return the recommended D, or the best one that lost."""
    if point.best:
        return point.draft_length
    drafts = np.where(point.candidates, point.speedup, np.nan)
    drafts[0] = np.nan
    return None if np.isnan(drafts).all() else point.draft_lengths[int(np.nanargmax(drafts))]


def bytes_moved(times: list[OpTime], kinds: tuple[Kind, ...], at: tuple[int, ...]) -> float:
    """Return the bytes that the kernels of these kinds move in one pass [B]."""
    chosen = (time.op for time in times if time.op.kind in kinds)
    return sum(op.count * value_at(op.bytes, at) for op in chosen)


def _what_it_waits_for(answer: Recommendation, point: Point, main: str, share: float) -> str:
    times, at = answer.times.verify_ops, grid_position(answer, point, 0)
    weights = format_bytes(bytes_moved(times, (Kind.GEMM, Kind.MOE, Kind.CPU_MOE), at))
    cache = format_bytes(bytes_moved(times, (Kind.ATTENTION, Kind.MLA), at))
    if main == "memory":
        mode = answer.deployment.target.placement.verify_attention
        each = mode is VerifyAttention.KV_PER_QUERY
        shared = ", which all rows of a verify pass share"
        if _experts(answer):
            shared = ""
        elif each:
            shared = "; the rows of a verify pass share the weights, but each reads the KV again"
        return (
            f"A plain pass spends {share:.0%} of its time reading {weights} of weights "
            f"and {cache} of KV{shared}."
        )
    if main == "compute":
        return (
            f"A plain pass computes for {share:.0%} of its time ({point.batch} rows), "
            "so every further row is paid for in full."
        )
    if main == "link":
        return f"A plain pass waits on the links between the GPUs for {share:.0%} of its time."
    return (
        f"A plain pass spends {share:.0%} of its time in launches and latencies that neither "
        f"traffic nor arithmetic explains (it reads {weights} of weights and {cache} of KV)."
    )


def _local(answer: Recommendation, at: tuple[int, ...]) -> str:
    """Say what cards in turn and experts beside the processor mean for a plain pass."""
    split, times, said = answer.deployment.target.placement.split, answer.times.verify_ops, ""
    if split.cards > 1 and split.mode is SplitMode.LAYER:
        said += f" The {split.cards} cards work one after the other."
    there = [time for time in times if time.op.kind is Kind.CPU_MOE]
    if there and answer.deployment.host is not None:
        seconds = [float(value_at(time.total, at)) for time in times]
        own = sum(float(value_at(time.total, at)) for time in there)
        layers, host = sum(time.op.count for time in there), answer.deployment.host
        said += (
            f" The processor computes the experts of {layers} layers from its "
            f"{host.memory.kind} in {own / sum(seconds):.0%} of a plain pass."
        )
    return said


def _experts(answer: Recommendation) -> OpTime | None:
    """Return the largest group of expert kernels, if the model has experts."""
    found = [time for time in answer.times.verify_ops if time.op.kind in (Kind.MOE, Kind.CPU_MOE)]
    return max(found, key=lambda time: time.op.count, default=None)


def _waking(answer: Recommendation, point: Point, draft_length: int) -> str:
    """Say how many more experts the draft tokens wake."""
    experts = _experts(answer)
    if experts is None:
        return ""
    shape = cast("MoeShape", experts.op.shape)
    plain, verify = (
        value_at(shape.awake, grid_position(answer, point, length)) for length in (0, draft_length)
    )
    return (
        f" A plain pass wakes {plain:.1f} experts in each layer, the verify pass {verify:.1f}, "
        "and reads the weights of all of them."
    )
