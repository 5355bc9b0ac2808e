"""The mixing half of a layer as kernels: attention in its forms, fixed states, indexers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from roofline.base.numbers import Array
from roofline.kernels import formulas
from roofline.kernels.footprint import (
    attended_tokens,
    index_tokens,
    indexer_of,
    kv_width,
    state_bytes,
)
from roofline.kernels.matrices import Linear, attention_linears, local_heads
from roofline.kernels.ops import (
    AttentionShape,
    Kind,
    Op,
    Part,
    Pass,
    PromptShape,
    all_reduce,
    elementwise,
    gemm,
)
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.mixers import (
    Attention,
    CompressedAttention,
    CrossAttention,
    GroupedQueryAttention,
    LatentAttention,
    NoAttention,
    StateMixer,
)
from roofline.specs.network import LayerRun
from roofline.specs.placement import StateHandling, StateRows, VerifyAttention

__all__ = ["PROMPT_TILE", "attention_block", "compressed", "cross", "pick_tokens", "recurrent"]


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
    group, rows, reads = heads // kv_heads, state.rows, _kv_reads(state, heads // kv_heads)
    length = attended_tokens(attention, state.context)
    read = attended_tokens(attention, state.context, rows)
    if state.prefill and attention.window is not None:
        read = np.minimum(state.context, attention.window + rows)
    picks = _picks(state, attention)
    # FlashAttention 2 packs heads only over a whole context (flash_api.cpp, mha_varlen_fwd)
    tiles = _tiles(state, group, packs=group > 1 and attention.window is None)
    pairs = _prompt_pairs(state, attention) if state.prefill else rows * length
    flops = formulas.attention_flops(
        batch=state.batch,
        rows=rows,
        heads=heads,
        head_dim=attention.head_dim,
        length=pairs / rows if state.prefill else length,
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
        padding=_diagonal(state, pairs) if state.prefill else tiles.rows / rows,
        assumed_reads=state.placement.assumed_reads and not state.prefill,
        shape=PromptShape(keys=read)
        if state.prefill
        else AttentionShape(
            pairs=state.batch * kv_heads * reads * picks,
            rows=group * rows / (reads * picks),
            length=length,
            context=state.context,
            kv_width=attention.head_dim + attention.value_dim,
            mac_width=attention.head_dim + attention.value_dim,
            kv=bytes_per_element(state.precision.kv),
            group=group,
            work=tiles.work / picks,
            blocks=tiles.blocks / picks,
            own_warps=state.placement.own_warps,
        ),
        head_dim=attention.head_dim,
    )


def _prompt_pairs(state: Pass, attention: GroupedQueryAttention | LatentAttention) -> Array:
    """Return the query-key pairs of one head over a prompt's rows, the last ones of the context.

    Those of the whole context less those of what was in the cache before: P(L) - P(L - q).
    """
    window = attention.top_k
    if isinstance(attention, GroupedQueryAttention):
        window = attention.window or attention.top_k

    def pairs(tokens: Array) -> Array:
        if window is None:
            return formulas.causal_pairs(tokens=tokens)
        if isinstance(attention, GroupedQueryAttention) and attention.window_kind == "chunked":
            return formulas.chunked_pairs(tokens=tokens, chunk=window)
        return formulas.windowed_pairs(tokens=tokens, window=window)

    return pairs(state.context) - pairs(state.context - state.rows)


#: Rows and keys of a tile of a prompt kernel (FlashAttention 2 and 3 take 128 rows).
PROMPT_TILE = 128


def _diagonal(state: Pass, pairs: Array) -> Array:
    """Return the pairs computed for each one needed: a tile on the diagonal is computed whole.

    1 + q (t - 1) / (2 pairs), for every row finds its last tile half needed: a prompt of n tokens
    costs n (n + t) / 2 pairs. At n = t that is t^2 for t (t + 1) / 2.
    """
    return np.asarray(1 + state.rows * (PROMPT_TILE - 1) / (2 * np.maximum(pairs, 1.0)))


class _Tiles(NamedTuple):
    """What the rows of a pass fill, where a kernel computes whole tiles.

    ``rows`` are the rows of a sequence and query head that are computed, ``work`` those of a cache,
    and ``blocks`` the thread blocks of a cache that nothing cuts, as ``AttentionShape`` takes both.
    """

    rows: Array
    work: Array = 0
    blocks: Array = 0


def _tiles(state: Pass, group: int, *, packs: bool = True) -> _Tiles:
    """Return the tiles of G q rows in ``tile``, and of every query head's in ``head_tile``.

    ``packs`` says that in ``head_tile`` one row of every head of a group shares a tile.
    """
    rows, tile = np.asarray(state.rows), state.placement.tile_rows
    if state.prefill:
        return _Tiles(state.rows)
    packed = formulas.padded_rows(rows=group * rows, tile=tile)
    padded = formulas.padded_rows(rows=rows, tile=tile)
    alone = (rows > 1) | (not packs)
    of_heads = _Tiles(
        rows=np.where(alone, padded, rows),
        work=np.where(alone, group * padded, 0),
        blocks=np.where(alone, group * padded / tile, 0),
    )
    of = {
        VerifyAttention.TILE: _Tiles(rows=packed / group, work=packed),
        VerifyAttention.HEAD_TILE: of_heads,
    }
    plain, verify = (
        of.get(how, _Tiles(state.rows))
        for how in (state.placement.plain_attention, state.placement.verify_attention)
    )
    return _Tiles(
        rows=_by_rows(state, plain.rows, verify.rows),
        work=_by_rows(state, plain.work, verify.work),
        blocks=_by_rows(state, plain.blocks, verify.blocks),
    )


def _by_rows(state: Pass, one: Array, several: Array) -> Array:
    """Return what holds for passes of one row per sequence, and for those of several."""
    return one if one is several else np.where(np.asarray(state.rows) > 1, several, one)


def _picks(
    state: Pass, attention: GroupedQueryAttention | LatentAttention | CompressedAttention
) -> Array:
    """Return how many rows' entries a pass reads where each row picks its own: min(L, k q) / k.

    1 where all rows attend to the same entries. With k = 2,048, q = 4 and L = 32,768 it is 4, and
    with L = 4,096 it is 2.
    """
    if attention.top_k is None or state.prefill:
        return 1.0
    one = attended_tokens(attention, state.context)
    return np.asarray(attended_tokens(attention, state.context, state.rows) / np.maximum(one, 1.0))


def _kv_reads(state: Pass, group: int) -> Array:
    """Return how often a verify pass reads the cache: once, per tile of G q rows, or per query.

    A plain pass reads it once.
    """
    placement = state.placement
    if state.prefill:
        return 1.0
    if placement.verify_attention is VerifyAttention.KV_PER_TILE:
        tiles = formulas.padded_rows(rows=group * state.rows, tile=placement.tile_rows) / (
            placement.tile_rows
        )
        return _by_rows(state, 1.0, tiles)
    return state.rows if placement.verify_attention is VerifyAttention.KV_PER_QUERY else 1.0


def _latent(state: Pass, attention: LatentAttention, linears: list[Linear]) -> list[Op]:
    """Return MLA: absorbed in decode and verify, expanded in prefill.

    What of a prompt is in the cache already is expanded again for each chunk. Where every row picks
    its own entries, prefill is absorbed as well: entries that few rows share are not expanded.

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
    if state.prefill and attention.top_k is None:
        return [
            *kernels,
            gemm(state, expand, Part.LINEAR, state.batch * state.context),
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


#: Heads of a tile of the sparse prompt kernels, FlashMLA's: fewer are computed as so many.
SPARSE_HEADS = 64


def _sparse_prompt(state: Pass, attention: LatentAttention) -> Op:
    """Return the prompt kernel in which each row reads the entries that it picked."""
    heads = attention.num_heads // state.placement.attention_tp
    pairs = _prompt_pairs(state, attention)
    width = attention.key_width + attention.value_width
    entries = state.batch * pairs * attention.key_width * bytes_per_element(state.precision.kv)
    return Op(
        name="latent_attention",
        kind=Kind.MLA,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.kv,
        flops=2 * state.batch * pairs * heads * width,
        # rows that are neighbours pick much the same entries, which L2 then holds: a prior
        bytes=entries / SPARSE_HEADS + state.tokens * heads * width * state.base_bytes,
        rows=heads * state.rows,
        padding=max(SPARSE_HEADS / heads, 1.0),
        shape=PromptShape(keys=np.minimum(state.context, float(attention.top_k or 0))),
        head_dim=attention.key_width,
    )


def _latent_attention(state: Pass, attention: LatentAttention) -> Op:
    if state.prefill:
        return _sparse_prompt(state, attention)
    heads = attention.num_heads // state.placement.attention_tp
    length = attended_tokens(attention, state.context)
    read = attended_tokens(attention, state.context, state.rows)
    reads, tiles = _kv_reads(state, heads) * _picks(state, attention), _tiles(state, heads)
    return Op(
        name="latent_attention",
        kind=Kind.MLA,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.kv,
        flops=formulas.latent_attention_flops(
            batch=state.batch,
            rows=state.rows,
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
            kv_reads=_kv_reads(state, heads),
        ),
        rows=heads * state.rows,
        padding=tiles.rows / state.rows,
        assumed_reads=state.placement.assumed_reads,
        shape=AttentionShape(
            pairs=state.batch * reads,
            rows=heads * state.rows / reads,
            length=length,
            context=state.context,
            kv_width=attention.key_width,
            mac_width=attention.key_width + attention.value_width,
            kv=bytes_per_element(state.precision.kv),
            group=heads,
            work=tiles.work,
            blocks=tiles.blocks,
        ),
        head_dim=attention.key_width,
    )


def _expanded_attention(state: Pass, attention: LatentAttention) -> Op:
    heads = attention.num_heads // state.placement.attention_tp
    key = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    width = heads * (key + attention.v_head_dim)
    pairs = _prompt_pairs(state, attention)
    return Op(
        name="attention",
        kind=Kind.ATTENTION,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.base,
        flops=2 * state.batch * pairs * width,
        bytes=(state.tokens + state.batch * state.context) * width * state.base_bytes,
        rows=state.rows,
        padding=_diagonal(state, pairs),
        shape=PromptShape(keys=state.context),
        head_dim=key,
    )


#: What the published name of a mixer calls its state's update.
_UPDATES = {"gdn": "delta_rule", "kda": "delta_rule", "mamba2": "ssm_update"}


#: Values of one block of a recurrence over a prompt (chunk_gated_delta_rule takes one head).
STATE_HEAD = 128


def recurrent(state: Pass, mixer: StateMixer, linears: list[Linear]) -> list[Op]:
    """Return a state mixer: projections, the short convolution, and its state read and written."""
    tp = state.placement.attention_tp
    held, convolution = state_bytes(mixer, tp=tp)
    rows = 1.0 if state.prefill else state.rows
    moved = state.batch * formulas.state_traffic(
        state=held, rows=rows, handling=state.placement.state_handling
    )
    several = _state_rows(state)
    if several is not None:
        moved = moved + np.where(np.asarray(rows) > 1, several.copies, 0.0) * state.batch * held
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
            several=several,
            shape=PromptShape(
                keys=state.rows, blocks=state.batch * mixer.value_width / STATE_HEAD / tp
            )
            if state.prefill
            else None,
        ),
        elementwise(state, "gated_norm", 3 * mixer.value_width // tp, state.tokens),
    ]


def _state_rows(state: Pass) -> StateRows | None:
    """Return what several rows cost; a replay keeps one state and has kernels of its own."""
    snapshots = state.placement.state_handling is StateHandling.SNAPSHOTS
    return state.placement.state_rows if snapshots and not state.prefill else None


def _state_op(
    state: Pass,
    name: str,
    moved: Array,
    flops: Array,
    *,
    turns: Array = 1.0,
    several: StateRows | None = None,
    shape: PromptShape | None = None,
) -> Op:
    """Return a pass over a state; the rows of one sequence take turns, but for a prompt's."""
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
        state_rows=several,
        shape=shape,
    )


def _seen_share(state: Pass) -> Array:
    """Return the share of the context that a row sees on average: 1 - q / (2 L) in a prompt."""
    return 1 - state.rows / (2 * state.context) if state.prefill else 1.0


def pick_tokens(state: Pass, attention: Attention) -> list[Op]:
    """Return the indexer's pass over its own keys: every entry of the context, for every row.

    Its small heads are on every rank. A prompt's row sees what stands before it: half of the rows
    of its pass, on average, and all of the cache.
    """
    scorer = indexer_of(attention)
    if scorer is None:
        return []
    entries = index_tokens(attention, state.context)
    seen = entries * _seen_share(state)
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
            shape=PromptShape(keys=entries)
            if state.prefill
            else AttentionShape(
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
    picks = _picks(state, attention)
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
            length=length * _seen_share(state),
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
        shape=PromptShape(keys=length)
        if state.prefill
        else AttentionShape(
            pairs=state.batch * picks,
            rows=heads * state.rows / picks,
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
                own_warps=state.placement.own_warps,
            ),
            head_dim=attention.head_dim,
        ),
    ]
