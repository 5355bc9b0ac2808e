"""The formulas behind an answer, with the answer's numbers in them."""

from __future__ import annotations

from roofline.advice.decide import Point
from roofline.advice.recommend import Recommendation
from roofline.advice.why import grid_position, value_at
from roofline.base.units import format_bytes
from roofline.kernels.footprint import (
    attended_tokens,
    kv_bytes_per_token,
    kv_bytes_read,
    state_bytes,
)
from roofline.kernels.formulas import attention_intensity, gemm_knee_rows, state_traffic
from roofline.kernels.matrices import local_heads
from roofline.kernels.mlp import rows_of_experts
from roofline.kernels.ops import Kind, Pass
from roofline.specs.formats import Component, bytes_per_element, rate_name
from roofline.specs.network import (
    Attention,
    CompressedAttention,
    CrossAttention,
    GroupedQueryAttention,
    LatentAttention,
    LayerRun,
    MoeMlp,
    NoAttention,
    StateMixer,
)

__all__ = ["formulas"]


def formulas(answer: Recommendation, point: Point) -> list[str]:
    """Return one line for each formula that decides this point."""
    model = answer.deployment.target.model
    lines = [_gemm_rows(answer, point)]
    seen: set[str] = set()
    for run in model.layers:
        for line in (_attention(answer, point, run.attention), _experts(answer, point, run)):
            if line and line not in seen:
                seen.add(line)
                lines.append(line)
    return [*lines, *_launches(answer, point), _memory(answer, point)]


def _launches(answer: Recommendation, point: Point) -> list[str]:
    """Say what launching by hand costs the first draft length past the captured graphs."""
    graphs = answer.deployment.engine.graphs
    past = [i for i, captured in enumerate(point.captured) if not captured and point.feasible[i]]
    if graphs is None or not past:
        return []
    i, count = past[0], sum(time.op.count for time in answer.times.verify_ops)
    seconds = max(count * graphs.eager_launch - point.verify[i], 0.0)
    share = point.by_hand[i] / seconds if seconds else 1.0
    some = "" if share > 0.995 else f"{share:.0%} x "  # lookups, or prompts in some of the passes
    most = "" if answer.deployment.hit_rate == 1 else "up to "
    line = (
        f"Launches: D = {point.draft_lengths[i]} runs {most}{point.pass_rows[i]:.0f} rows, past "
        f"the {graphs.largest} captured: {some}max(0, {count} kernels x "
        f"{1e6 * graphs.eager_launch:.0f} us - verify {1e3 * point.verify[i]:.2f} ms) = "
        f"{1e3 * point.by_hand[i]:.2f} ms of its overhead."
    )
    return [line]


def _gemm_rows(answer: Recommendation, point: Point) -> str:
    gpu, precision = answer.deployment.gpu, answer.deployment.target.precision
    rows, dp = 1 + point.draft_length, answer.deployment.target.placement.dp
    batch = int(answer.deployment.target.placement.local_batch(point.batch))
    groups = "" if dp == 1 else f" on each of the {dp} groups"
    weight = precision.weights[Component.ATTENTION]
    knee = gemm_knee_rows(
        peak=gpu.peak(rate_name(precision.activations[Component.ATTENTION])),
        bandwidth=gpu.bandwidth,
        weight=bytes_per_element(weight),
    )
    return (
        f"GEMM rows: M = B (1 + D) = {batch} x {rows} = {batch * rows}{groups}; an ideal "
        f"{weight} GEMM turns compute-bound at P b_w / (2 BW) = {knee:.0f} rows."
    )


def _attention(answer: Recommendation, point: Point, attention: Attention) -> str:
    question = answer.question
    precision, rows = question.deployment.target.precision, 1 + point.draft_length
    heads, kv_heads = local_heads(attention, question.deployment.target.placement.attention_tp)
    size = bytes_per_element(precision.kv)
    ridge = (
        question.deployment.gpu.peak(rate_name(precision.base)) / question.deployment.gpu.bandwidth
    )
    balance = f"the GPU balances at P / BW = {ridge:.0f}"
    if isinstance(attention, NoAttention | CrossAttention):
        return ""
    if isinstance(attention, CompressedAttention):
        read = float(attended_tokens(attention, float(point.context), float(rows)))
        return (
            f"Compressed attention: {read:.0f} entries of {attention.head_dim} read for "
            f"{point.context} tokens; 4 h (1 + D) / b_kv = 4 x {heads} x {rows} / {size:g} FLOP "
            f"per byte; {balance}."
        )
    if not isinstance(attention, GroupedQueryAttention | LatentAttention):
        return _linear_mixer(answer, point, attention)
    if isinstance(attention, LatentAttention):
        key, value = attention.key_width, attention.value_width
        intensity = 2 * heads * rows * (key + value) / (key * size)
        return (
            f"MLA: 2 h (1 + D) (d_k + d_v) / (d_k b_kv) = 2 x {heads} x {rows} x "
            f"({key} + {value}) / ({key} x {size:g}) = {intensity:.0f} FLOP per byte of latent; "
            f"{balance}.{_padding(answer, point)}"
        )
    group = heads // kv_heads
    intensity = float(
        attention_intensity(group_size=group, draft_length=point.draft_length, kv=size)
    )
    window = ""
    if attention.window is not None:
        tokens = float(attended_tokens(attention, float(point.context), float(rows)))
        window = f" ({attention.window_kind} window: {tokens:.0f} of {point.context} tokens read)"
    return (
        f"Attention: 2 G (1 + D) / b_kv = 2 x {group} x {rows} / {size:g} = {intensity:.0f} "
        f"FLOP per byte of KV{window}; {balance}.{_padding(answer, point)}"
    )


def _padding(answer: Recommendation, point: Point) -> str:
    """Say how much more the attention kernels compute than that, where they fill whole tiles."""
    at = grid_position(answer, point, point.draft_length)
    padding = max(
        value_at(time.op.padding, at)
        for time in answer.times.verify_ops
        if time.op.kind in (Kind.ATTENTION, Kind.MLA)
    )
    if padding <= 1:
        return ""
    tile = answer.deployment.target.placement.tile_rows
    return (
        f" Those are the useful ones, as in the table; the kernel fills tiles of {tile} rows and "
        f"computes {padding:.3g} times as many."
    )


def _linear_mixer(answer: Recommendation, point: Point, mixer: StateMixer) -> str:
    placement = answer.deployment.target.placement
    recurrent, _ = state_bytes(mixer, tp=placement.attention_tp)
    rows = 1 + point.draft_length
    moved = state_traffic(state=recurrent, rows=rows, handling=placement.state_handling)
    return (
        f"Linear mixer: {format_bytes(recurrent)} of state a sequence and layer; a pass of {rows} "
        f"rows moves {format_bytes(float(moved))} ({placement.state_handling})."
    )


def _experts(answer: Recommendation, point: Point, run: LayerRun) -> str:
    mlp = run.mlp
    if not isinstance(mlp, MoeMlp):
        return ""
    target = answer.deployment.target
    state = Pass(
        network=target.model,
        precision=target.precision,
        placement=target.placement,
        batch=float(point.batch),
        rows=1.0 + point.draft_length,
        context=float(point.context),
    )
    tokens = point.batch * (1 + point.draft_length)
    woken = float(rows_of_experts(state, mlp).distinct)
    routing = target.placement.routing
    how = (
        "independent uniform routing"
        if routing.skew == routing.correlation == 0
        else f"skew {routing.skew:g}, correlation {routing.correlation:g}"
    )
    return (
        f"Experts: E (1 - (1 - k/E)^T) with E = {mlp.num_experts}, k = {mlp.top_k}, T = B (1 + D) "
        f"= {tokens}: {woken:.1f} awake, {tokens * mlp.top_k / woken:.1f} rows each ({how})."
    )


def _memory(answer: Recommendation, point: Point) -> str:
    memory, target = answer.memory, answer.deployment.target
    kv, tp = target.precision.kv, target.placement.attention_tp
    reserved = float(memory.kv_per_sequence(point.context, point.draft_length))
    read = float(
        kv_bytes_read(
            target.model,
            kv,
            context=float(point.context),
            rows=1.0 + point.draft_length,
            tp=tp,
        )
    )
    return (
        f"Memory of one GPU: {format_bytes(memory.weights)} of weights, "
        f"{format_bytes(memory.draft_weights)} of drafter; for each sequence "
        f"{format_bytes(reserved)} of cache reserved and {format_bytes(read)} read by a pass "
        f"({format_bytes(kv_bytes_per_token(target.model, kv, tp=tp))} per token); "
        f"{format_bytes(memory.available)} usable of {format_bytes(memory.total)}."
    )
