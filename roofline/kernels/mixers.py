"""The less usual token mixers as kernels: fixed states, indexers, compressed and cross attention.

Every function returns what lies between the norm before the mixer and the projection after it.
"""

from __future__ import annotations

from roofline.base.arrays import Array
from roofline.kernels import formulas
from roofline.kernels.cache import attended_tokens, index_tokens, indexer_of, kv_width, state_bytes
from roofline.kernels.matrices import Linear, local_heads
from roofline.kernels.ops import AttentionShape, Kind, Op, Part, Pass, elementwise, gemm
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.mixers import Attention, CompressedAttention, CrossAttention, StateMixer

__all__ = ["compressed", "cross", "pick_tokens", "recurrent"]

#: What the published name of a mixer calls its state's update.
_UPDATES = {"gdn": "delta_rule", "kda": "delta_rule", "mamba2": "ssm_update"}


def recurrent(state: Pass, mixer: StateMixer, linears: list[Linear]) -> list[Op]:
    """Return a state mixer: projections, the short convolution, and its state read and written."""
    tp = state.placement.attention_tp
    held, convolution = state_bytes(mixer, tp=tp)
    rows = 1.0 if state.prefill else state.rows
    moved = state.batch * formulas.state_traffic(
        state=held, rows=rows, handling=state.placement.state_handling
    )
    work = mixer.state_flops * (mixer.state_elements // tp)
    filters = [_state_op(state, "conv_state", 2 * state.batch * convolution, 0.0)]
    return [
        *(gemm(state, linear, Part.LINEAR, state.tokens) for linear in linears[:-1]),
        *(filters if mixer.channels else []),
        _state_op(
            state,
            _UPDATES.get(mixer.kind, "linear_attention"),
            moved,
            state.tokens * work,
            turns=rows,
        ),
        elementwise(state, "gated_norm", 3 * mixer.value_width // tp, state.tokens),
    ]


def _state_op(state: Pass, name: str, moved: Array, flops: Array, *, turns: Array = 1.0) -> Op:
    """Return a pass over a state; the rows of one sequence take turns."""
    return Op(
        name=name,
        kind=Kind.STATE,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=DType.FP32,
        flops=flops,
        bytes=moved,
        rows=state.tokens,
        turns=turns,
    )


def pick_tokens(state: Pass, attention: Attention) -> list[Op]:
    """Return the indexer's pass over its own keys: every entry of the context, for every row.

    Its small heads are on every rank. In a prompt a row sees half of the context on average.
    """
    scorer = indexer_of(attention)
    if scorer is None:
        return []
    entries = index_tokens(attention, state.context)
    seen = entries / 2 if state.prefill else entries
    width = scorer.num_heads * scorer.head_dim
    cache = state.batch * entries * scorer.head_dim * bytes_per_element(state.precision.kv)
    return [
        Op(
            name="indexer",
            kind=Kind.ATTENTION,
            part=Part.ATTENTION,
            compute=state.precision.base,
            storage=state.precision.kv,
            flops=2 * state.tokens * seen * width,
            bytes=cache + state.tokens * (width + seen) * state.base_bytes,
            rows=scorer.num_heads * state.rows,
            shape=AttentionShape(
                pairs=state.batch,
                rows=scorer.num_heads * state.rows,
                length=entries,
                context=state.context,
                kv_width=scorer.head_dim,
                mac_width=scorer.head_dim,
                kv=bytes_per_element(state.precision.kv),
            ),
            head_dim=scorer.head_dim,
        )
    ]


def compressed(state: Pass, attention: CompressedAttention, linears: list[Linear]) -> list[Op]:
    """Return V4's attention: all heads read one vector per entry, recent and compressed ones."""
    heads = attention.num_heads // state.placement.attention_tp
    normed = attention.q_lora_rank + attention.head_dim + 2 * attention.compressor_width
    before, after = linears[:-2], linears[-2:-1]
    return [
        *(gemm(state, linear, Part.LINEAR, state.tokens) for linear in before),
        elementwise(state, "rope_kv_write", 2 * normed, state.tokens),
        *pick_tokens(state, attention),
        _shared_vector_attention(state, attention, heads),
        *(gemm(state, linear, Part.LINEAR, state.tokens) for linear in after),
    ]


def _shared_vector_attention(state: Pass, attention: CompressedAttention, heads: int) -> Op:
    length = attended_tokens(attention, state.context)
    width, kv = attention.head_dim, bytes_per_element(state.precision.kv)
    read = attended_tokens(attention, state.context, 1.0 if state.prefill else state.rows)
    return Op(
        name="compressed_attention",
        kind=Kind.MLA,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.kv,
        flops=formulas.latent_attention_flops(
            batch=state.batch,
            rows=state.rows,
            heads=heads,
            key_width=width,
            value_width=width,
            length=length / 2 if state.prefill else length,
        ),
        bytes=formulas.latent_attention_bytes(
            batch=state.batch,
            rows=state.rows,
            heads=heads,
            key_width=width,
            value_width=width,
            length=read,
            kv=kv,
            activation=state.base_bytes,
        ),
        rows=heads * state.rows,
        shape=AttentionShape(
            pairs=state.batch,
            rows=heads * state.rows,
            length=length,
            context=state.context,
            kv_width=width,
            mac_width=2 * width,
            kv=kv,
        ),
        head_dim=width,
    )


def cross(state: Pass, attention: CrossAttention, linears: list[Linear]) -> list[Op]:
    """Return attention to an image: its keys and values are made once, with the prompt."""
    query, media, _ = linears
    heads, kv_heads = local_heads(attention, state.placement.attention_tp)
    entries = float(attention.media_tokens)
    width = kv_width(attention, state.placement.attention_tp)
    kernels = [gemm(state, query, Part.LINEAR, state.tokens)]
    if not entries:
        return kernels
    if state.prefill:
        kernels.append(gemm(state, media, Part.LINEAR, state.batch * entries))
    values = 2 * state.tokens * heads * attention.head_dim * state.base_bytes
    return [
        *kernels,
        Op(
            name="cross_attention",
            kind=Kind.ATTENTION,
            part=Part.ATTENTION,
            compute=state.precision.base,
            storage=state.precision.kv,
            flops=4 * state.tokens * heads * attention.head_dim * entries,
            bytes=state.batch * entries * width * bytes_per_element(state.precision.kv) + values,
            rows=heads // kv_heads * state.rows,
            shape=AttentionShape(
                pairs=state.batch * kv_heads,
                rows=heads // kv_heads * state.rows,
                length=entries,
                context=entries,
                kv_width=2 * attention.head_dim,
                mac_width=2 * attention.head_dim,
                kv=bytes_per_element(state.precision.kv),
            ),
            head_dim=attention.head_dim,
        ),
    ]
