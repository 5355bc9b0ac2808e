"""The attention half of a layer as kernels: grouped-query and latent (MLA)."""

from __future__ import annotations

from roofline.base.arrays import Array
from roofline.kernels import formulas
from roofline.kernels.cache import attended_tokens
from roofline.kernels.matrices import Linear, attention_linears, local_heads
from roofline.kernels.mixers import compressed, cross, pick_tokens, recurrent
from roofline.kernels.ops import AttentionShape, Kind, Op, Part, Pass, all_reduce, elementwise, gemm
from roofline.specs.formats import bytes_per_element
from roofline.specs.mixers import (
    CompressedAttention,
    CrossAttention,
    GroupedQueryAttention,
    LatentAttention,
    NoAttention,
)
from roofline.specs.network import LayerRun
from roofline.specs.placement import VerifyAttention

__all__ = ["attention_block"]


def attention_block(state: Pass, run: LayerRun) -> list[Op]:
    """Return the kernels from the norm before attention to the all-reduce after it."""
    attention, hidden = run.attention, state.network.hidden_size
    if isinstance(attention, NoAttention):
        return []
    linears = attention_linears(attention, hidden_size=hidden, tp=state.placement.attention_tp)
    match attention:
        case LatentAttention():
            inner = _latent(state, attention, linears)
        case GroupedQueryAttention():
            inner = _grouped(state, attention, linears)
        case CompressedAttention():
            inner = compressed(state, attention, linears)
        case CrossAttention():
            inner = cross(state, attention, linears)
        case _:
            inner = recurrent(state, attention, linears)
    return [
        elementwise(state, "attention_norm", 4 * hidden, state.tokens),
        *inner,
        gemm(state, linears[-1], Part.LINEAR, state.tokens),
        *all_reduce(state, "attention_all_reduce"),
    ]


def _grouped(state: Pass, attention: GroupedQueryAttention, linears: list[Linear]) -> list[Op]:
    heads, kv_heads = local_heads(attention, state.placement.attention_tp)
    moved = 2 * (heads + 2 * kv_heads) * attention.head_dim
    kernels = [gemm(state, linear, Part.LINEAR, state.tokens) for linear in linears[:-1]]
    if attention.qk_norm:
        normed = 2 * (heads + kv_heads) * attention.head_dim
        kernels.append(elementwise(state, "qk_norm", normed, state.tokens))
    return [
        *kernels,
        elementwise(state, "rope_kv_write", moved, state.tokens),
        *pick_tokens(state, attention),
        _grouped_attention(state, attention),
    ]


def _grouped_attention(state: Pass, attention: GroupedQueryAttention) -> Op:
    heads, kv_heads = local_heads(attention, state.placement.attention_tp)
    group, rows, reads = heads // kv_heads, state.rows, _kv_reads(state)
    length = attended_tokens(attention, state.context)
    read = state.context if state.prefill else attended_tokens(attention, state.context, rows)
    flops = formulas.attention_flops(
        batch=state.batch,
        rows=_work_rows(state, group),
        heads=heads,
        head_dim=attention.head_dim,
        length=_prompt_pairs(state, attention) / rows if state.prefill else length,
        v_head_dim=attention.value_dim,
    )
    moved = formulas.attention_bytes(
        batch=state.batch,
        rows=rows,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=attention.head_dim,
        length=read,
        kv=bytes_per_element(state.precision.kv),
        activation=state.base_bytes,
        kv_reads=reads,
        v_head_dim=attention.value_dim,
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
            kv_width=attention.head_dim + attention.value_dim,
            mac_width=attention.head_dim + attention.value_dim,
            kv=bytes_per_element(state.precision.kv),
            group=group,
        ),
        head_dim=attention.head_dim,
    )


def _prompt_pairs(state: Pass, attention: GroupedQueryAttention) -> Array:
    """Return the query-key pairs of one head over a whole prompt."""
    tokens, window = state.context, attention.window or attention.top_k
    if window is None:
        return formulas.causal_pairs(tokens=tokens)
    if attention.window_kind == "chunked":
        return formulas.chunked_pairs(tokens=tokens, chunk=window)
    return formulas.windowed_pairs(tokens=tokens, window=window)


def _work_rows(state: Pass, group: int) -> Array:
    """Return the rows per sequence that are computed: whole tiles of G q rows in ``tile``."""
    placement = state.placement
    if placement.verify_attention != VerifyAttention.TILE or state.prefill:
        return state.rows
    return formulas.padded_rows(rows=group * state.rows, tile=placement.tile_rows) / group


def _kv_reads(state: Pass) -> Array:
    per_query = state.placement.verify_attention == VerifyAttention.KV_PER_QUERY
    return state.rows if per_query and not state.prefill else 1.0


def _latent(state: Pass, attention: LatentAttention, linears: list[Linear]) -> list[Op]:
    """Return MLA: absorbed in decode and verify, expanded in prefill.

    Absorbed, each head's key projection is folded into its query (``absorb_k``) and its value
    projection applied after the sum (``absorb_v``), so all heads read the one latent vector.
    """
    compress, query, expand = linears[:3]
    hidden_norms = (attention.q_lora_rank or 0) + attention.kv_lora_rank
    rotated = attention.num_heads // state.placement.attention_tp * attention.qk_rope_head_dim
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
        *(gemm(state, linear, Part.LINEAR, state.tokens) for linear in linears[3:-1]),
        *pick_tokens(state, attention),
        _absorb(state, attention, "absorb_k", attention.qk_nope_head_dim),
        _latent_attention(state, attention),
        _absorb(state, attention, "absorb_v", attention.v_head_dim),
    ]


def _absorb(state: Pass, attention: LatentAttention, name: str, head_width: int) -> Op:
    """Return one batched product per head with its share of the KV up-projection.

    Engines keep these matrices unquantised, so they are read at the base format.
    """
    heads = attention.num_heads // state.placement.attention_tp
    rank = attention.kv_lora_rank
    base = state.precision.base
    return Op(
        name=name,
        kind=Kind.BATCHED_GEMM,
        part=Part.LINEAR,
        compute=base,
        storage=base,
        flops=heads * formulas.gemm_flops(m=state.tokens, n=rank, k=head_width),
        bytes=heads
        * formulas.gemm_bytes(
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
    heads = attention.num_heads // state.placement.attention_tp
    length = attended_tokens(attention, state.context)
    read = attended_tokens(attention, state.context, state.rows)
    return Op(
        name="latent_attention",
        kind=Kind.MLA,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.kv,
        flops=formulas.latent_attention_flops(
            batch=state.batch,
            rows=_work_rows(state, heads),
            heads=heads,
            key_width=attention.key_width,
            value_width=attention.value_width,
            length=length,
        ),
        bytes=formulas.latent_attention_bytes(
            batch=state.batch,
            rows=state.rows,
            heads=heads,
            key_width=attention.key_width,
            value_width=attention.value_width,
            length=read,
            kv=bytes_per_element(state.precision.kv),
            activation=state.base_bytes,
            kv_reads=_kv_reads(state),
        ),
        rows=heads * state.rows,
        shape=AttentionShape(
            pairs=state.batch * _kv_reads(state),
            rows=heads * _work_rows(state, heads) / _kv_reads(state),
            length=length,
            context=state.context,
            kv_width=attention.key_width,
            mac_width=attention.key_width + attention.value_width,
            kv=bytes_per_element(state.precision.kv),
            group=heads,
        ),
        head_dim=attention.key_width,
    )


def _expanded_attention(state: Pass, attention: LatentAttention) -> Op:
    heads = attention.num_heads // state.placement.attention_tp
    key = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    width = heads * (key + attention.v_head_dim)
    pairs = state.batch * formulas.causal_pairs(tokens=state.context)
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
