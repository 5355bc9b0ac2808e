"""The attention half of a layer as kernels: grouped-query and latent (MLA)."""

from __future__ import annotations

from roofline import ops
from roofline.footprint import attended_tokens, state_bytes
from roofline.kernels import Kind, Op, Part, Pass, all_reduce, elementwise, gemm
from roofline.layers import Linear, attention_linears, local_heads
from roofline.model import GatedDeltaNet, GroupedQueryAttention, LatentAttention, LayerRun
from roofline.ops import Array, VerifyAttention
from roofline.quantization import DType, bytes_per_element
from roofline.shapes import AttentionShape

__all__ = ["attention_block"]


def attention_block(state: Pass, run: LayerRun) -> list[Op]:
    """Return the kernels from the norm before attention to the all-reduce after it."""
    attention, hidden = run.attention, state.network.hidden_size
    linears = attention_linears(attention, hidden_size=hidden, tp=state.placement.tp)
    match attention:
        case LatentAttention():
            inner = _latent(state, attention, linears)
        case GatedDeltaNet():
            inner = _delta(state, attention, linears)
        case _:
            inner = _grouped(state, attention, linears)
    return [
        elementwise(state, "attention_norm", 4 * hidden, state.tokens),
        *inner,
        gemm(state, linears[-1], Part.LINEAR, state.tokens),
        *all_reduce(state, "attention_all_reduce"),
    ]


def _grouped(state: Pass, attention: GroupedQueryAttention, linears: list[Linear]) -> list[Op]:
    heads, kv_heads = local_heads(attention, state.placement.tp)
    moved = 2 * (heads + 2 * kv_heads) * attention.head_dim
    kernels = [gemm(state, linears[0], Part.LINEAR, state.tokens)]
    if attention.qk_norm:
        normed = 2 * (heads + kv_heads) * attention.head_dim
        kernels.append(elementwise(state, "qk_norm", normed, state.tokens))
    return [
        *kernels,
        elementwise(state, "rope_kv_write", moved, state.tokens),
        _grouped_attention(state, attention),
    ]


def _grouped_attention(state: Pass, attention: GroupedQueryAttention) -> Op:
    heads, kv_heads = local_heads(attention, state.placement.tp)
    group, rows, reads = heads // kv_heads, state.rows, _kv_reads(state)
    length = attended_tokens(attention, state.context)
    read = state.context if state.prefill else attended_tokens(attention, state.context, rows)
    flops = ops.attention_flops(
        batch=state.batch,
        rows=_work_rows(state, group),
        heads=heads,
        head_dim=attention.head_dim,
        length=_prompt_pairs(state, attention) / rows if state.prefill else length,
    )
    moved = ops.attention_bytes(
        batch=state.batch,
        rows=rows,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=attention.head_dim,
        length=read,
        kv=bytes_per_element(state.precision.kv),
        activation=state.base_bytes,
        kv_reads=reads,
    )
    name = "attention" if attention.window is None else f"{attention.window_kind}_attention"
    return Op(
        name=name,
        kind=Kind.ATTENTION,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.kv,
        flops=flops,
        bytes=moved,
        rows=group * rows,
        shape=AttentionShape(
            pairs=state.batch * kv_heads * reads,
            rows=group * _work_rows(state, group) / reads,
            length=read if state.prefill else length,
            context=state.context,
            kv_width=2 * attention.head_dim,
            mac_width=2 * attention.head_dim,
            kv=bytes_per_element(state.precision.kv),
            group=group,
        ),
        head_dim=attention.head_dim,
    )


def _prompt_pairs(state: Pass, attention: GroupedQueryAttention) -> Array:
    """Return the query-key pairs of one head over a whole prompt."""
    tokens, window = state.context, attention.window
    if window is None:
        return ops.causal_pairs(tokens=tokens)
    if attention.window_kind == "chunked":
        return ops.chunked_pairs(tokens=tokens, chunk=window)
    return ops.windowed_pairs(tokens=tokens, window=window)


def _work_rows(state: Pass, group: int) -> Array:
    """Return the rows per sequence that are computed: whole tiles of G q rows in ``tile``."""
    placement = state.placement
    if placement.verify_attention != VerifyAttention.TILE or state.prefill:
        return state.rows
    return ops.padded_rows(rows=group * state.rows, tile=placement.tile_rows) / group


def _kv_reads(state: Pass) -> Array:
    per_query = state.placement.verify_attention == VerifyAttention.KV_PER_QUERY
    return state.rows if per_query and not state.prefill else 1.0


def _delta(state: Pass, mixer: GatedDeltaNet, linears: list[Linear]) -> list[Op]:
    """Return GDN: projections, the short convolution, and the recurrent state read and written."""
    tp = state.placement.tp
    qkvz, scalars, _ = linears
    recurrent, convolution = state_bytes(mixer, tp=tp)
    handling = state.placement.state_handling
    rows = 1.0 if state.prefill else state.rows
    moved = state.batch * ops.state_traffic(state=recurrent, rows=rows, handling=handling)
    heads = mixer.num_value_heads // tp
    work = 8.0 * heads * mixer.key_head_dim * mixer.value_head_dim
    return [
        gemm(state, qkvz, Part.LINEAR, state.tokens),
        gemm(state, scalars, Part.LINEAR, state.tokens),
        _state_op(state, "conv_state", 2 * state.batch * convolution, 0.0),
        _state_op(state, "delta_rule", moved, state.tokens * work),
        elementwise(state, "gated_norm", 3 * heads * mixer.value_head_dim, state.tokens),
    ]


def _state_op(state: Pass, name: str, moved: Array, flops: Array) -> Op:
    return Op(
        name=name,
        kind=Kind.STATE,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=DType.FP32,
        flops=flops,
        bytes=moved,
        rows=state.tokens,
    )


def _latent(state: Pass, attention: LatentAttention, linears: list[Linear]) -> list[Op]:
    """Return MLA: absorbed in decode and verify, expanded in prefill.

    Absorbed, each head's key projection is folded into its query (``absorb_k``) and its value
    projection applied after the sum (``absorb_v``), so all heads read the one latent vector.
    """
    compress, query, expand, _ = linears
    hidden_norms = (attention.q_lora_rank or 0) + attention.kv_lora_rank
    rotated = attention.num_heads // state.placement.tp * attention.qk_rope_head_dim
    kernels = [
        gemm(state, compress, Part.LINEAR, state.tokens),
        elementwise(state, "latent_norm", 2 * hidden_norms, state.tokens),
        gemm(state, query, Part.LINEAR, state.tokens),
        elementwise(state, "rope_kv_write", 2 * (rotated + attention.key_width), state.tokens),
    ]
    if state.prefill:
        return [
            *kernels,
            gemm(state, expand, Part.LINEAR, state.tokens),
            _expanded_attention(state, attention),
        ]
    return [
        *kernels,
        _absorb(state, attention, "absorb_k", attention.qk_nope_head_dim),
        _latent_attention(state, attention),
        _absorb(state, attention, "absorb_v", attention.v_head_dim),
    ]


def _absorb(state: Pass, attention: LatentAttention, name: str, head_width: int) -> Op:
    """Return one batched product per head with its share of the KV up-projection.

    Engines keep these matrices unquantised, so they are read at the base format.
    """
    heads = attention.num_heads // state.placement.tp
    rank = attention.kv_lora_rank
    base = state.precision.base
    return Op(
        name=name,
        kind=Kind.BATCHED_GEMM,
        part=Part.LINEAR,
        compute=base,
        storage=base,
        flops=heads * ops.gemm_flops(m=state.tokens, n=rank, k=head_width),
        bytes=heads
        * ops.gemm_bytes(
            m=state.tokens,
            n=rank,
            k=head_width,
            weight=state.base_bytes,
            activation=state.base_bytes,
            output=state.base_bytes,
        ),
        rows=state.tokens,
    )


def _latent_attention(state: Pass, attention: LatentAttention) -> Op:
    heads = attention.num_heads // state.placement.tp
    return Op(
        name="latent_attention",
        kind=Kind.MLA,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.kv,
        flops=ops.latent_attention_flops(
            batch=state.batch,
            rows=_work_rows(state, heads),
            heads=heads,
            key_width=attention.key_width,
            value_width=attention.value_width,
            length=state.context,
        ),
        bytes=ops.latent_attention_bytes(
            batch=state.batch,
            rows=state.rows,
            heads=heads,
            key_width=attention.key_width,
            value_width=attention.value_width,
            length=state.context,
            kv=bytes_per_element(state.precision.kv),
            activation=state.base_bytes,
            kv_reads=_kv_reads(state),
        ),
        rows=heads * state.rows,
        shape=AttentionShape(
            pairs=state.batch * _kv_reads(state),
            rows=heads * _work_rows(state, heads) / _kv_reads(state),
            length=state.context,
            context=state.context,
            kv_width=attention.key_width,
            mac_width=attention.key_width + attention.value_width,
            kv=bytes_per_element(state.precision.kv),
        ),
        head_dim=attention.key_width,
    )


def _expanded_attention(state: Pass, attention: LatentAttention) -> Op:
    heads = attention.num_heads // state.placement.tp
    key = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    width = heads * (key + attention.v_head_dim)
    pairs = state.batch * ops.causal_pairs(tokens=state.context)
    return Op(
        name="attention",
        kind=Kind.ATTENTION,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.base,
        flops=2 * pairs * width,
        bytes=2 * state.tokens * width * state.base_bytes,
        rows=state.rows,
    )
