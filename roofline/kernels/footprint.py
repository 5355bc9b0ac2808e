"""What a network holds: parameters and weights, and per sequence its KV cache and fixed states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from roofline.base.numbers import Array
from roofline.kernels.matrices import (
    Linear,
    attention_vectors,
    fusion_linear,
    head_linear,
    layer_linears,
    local_heads,
    medusa_linears,
)
from roofline.specs.formats import Component, DType, Precision, bytes_per_element
from roofline.specs.mixers import (
    Attention,
    CompressedAttention,
    CrossAttention,
    GroupedQueryAttention,
    Indexer,
    LatentAttention,
    NoAttention,
)
from roofline.specs.network import DrafterSpec, LayerRun, ModelSpec, MoeMlp, NetworkSpec
from roofline.specs.placement import Placement

__all__ = [
    "attended_tokens",
    "index_tokens",
    "indexer_of",
    "kv_bytes_per_token",
    "kv_bytes_read",
    "kv_bytes_reserved",
    "kv_width",
    "parameters_decode_read",
    "parameters_total",
    "state_bytes",
    "state_bytes_per_sequence",
    "weight_bytes",
]

CONV_ELEMENT = 2.0  # convolution inputs in bf16 [B]


def indexer_of(attention: Attention) -> Indexer | None:
    """Return the scorer that a layer owns."""
    if isinstance(attention, GroupedQueryAttention | LatentAttention | CompressedAttention):
        return attention.indexer
    return None


def kv_width(attention: Attention, tp: int = 1) -> int:
    """Return the cached elements of one entry in one layer on one rank, an indexer's left out.

    >>> kv_width(GroupedQueryAttention(num_heads=32, num_kv_heads=8, head_dim=128))
    2048
    """
    match attention:
        case LatentAttention():
            return attention.key_width  # one latent vector, copied to every rank
        case CompressedAttention():
            return attention.head_dim  # one vector is key and value
        case GroupedQueryAttention():
            return local_heads(attention, tp)[1] * (attention.head_dim + attention.value_dim)
        case CrossAttention():
            return 2 * local_heads(attention, tp)[1] * attention.head_dim
        case _:
            return 0


def attended_tokens(attention: Attention, context: Array, rows: Array = 1.0) -> Array:
    """Return the cache entries of one sequence that a pass of ``rows`` rows reads in one layer.

    A sliding window of w reads at most w + rows - 1 (each row sees w). A chunk of c starts over
    every c tokens: at most c are read, and c is what a pass is charged once the context exceeds it
    (the sequences of a batch are at different places of their chunks, and those at the end set the
    pace).
    Sparse attention reads the top k of each row, never more than there are.

    >>> from roofline.specs.network import GroupedQueryAttention
    >>> gemma = GroupedQueryAttention(num_heads=32, num_kv_heads=16, head_dim=128, window=1024)
    >>> float(attended_tokens(gemma, 131072.0))
    1024.0
    """
    match attention:
        case NoAttention():
            return _everywhere(0.0, context)
        case CrossAttention():
            return _everywhere(attention.media_tokens, context)
        case CompressedAttention():
            return _compressed_entries(attention, context, rows)
        case GroupedQueryAttention() | LatentAttention():
            if attention.top_k is not None:
                picked: Array = np.minimum(context, attention.top_k * np.asarray(rows))
                return picked
            if attention.window is None:
                return context
            if attention.window_kind == "chunked":
                full: Array = np.minimum(context, attention.window)
                return full
            capped: Array = np.minimum(context, attention.window + rows - 1)
            return capped
        case _:
            return context


def _everywhere(value: float, context: Array) -> Array:
    return np.full_like(np.asarray(context, dtype=float), value)


def _compressed_entries(attention: CompressedAttention, context: Array, rows: Array) -> Array:
    """Return the window's entries and those of the compressed context that are read."""
    recent: Array = np.minimum(context, attention.window + np.asarray(rows) - 1)
    if not attention.ratio:
        return recent
    entries: Array = np.floor(np.asarray(context) / attention.ratio)
    if attention.top_k is not None:
        entries = np.minimum(entries, attention.top_k * np.asarray(rows))
    return recent + entries


def index_tokens(attention: Attention, context: Array) -> Array:
    """Return the entries that a layer's own indexer compares with: all of the context.

    >>> scorer = Indexer(num_heads=64, head_dim=128)
    >>> latent = LatentAttention(num_heads=128, kv_lora_rank=512, qk_nope_head_dim=128,
    ...                          qk_rope_head_dim=64, v_head_dim=128, top_k=2048, indexer=scorer)
    >>> float(index_tokens(latent, 8192.0))
    8192.0
    """
    if indexer_of(attention) is None:
        return _everywhere(0.0, context)
    ratio = attention.ratio if isinstance(attention, CompressedAttention) else 1
    entries: Array = np.floor(np.asarray(context) / (ratio or 1))
    return entries


def _growth(attention: Attention, tp: int) -> float:
    """Return the elements that one more token adds to a layer's cache, windows uncapped."""
    scorer = indexer_of(attention)
    extra = scorer.head_dim if scorer else 0
    if isinstance(attention, CrossAttention):
        return 0.0
    if isinstance(attention, CompressedAttention) and attention.ratio:
        return (kv_width(attention) + extra) / attention.ratio
    return kv_width(attention, tp) + extra


def kv_bytes_per_token(network: NetworkSpec, kv: DType, *, tp: int = 1) -> float:
    """Return the cache bytes that one token adds on one rank while no layer is windowed [B].

    This is also what an engine reserves per token if it gives every layer the same blocks:
    sum over layers of (cached elements) b_kv.

    >>> from roofline.specs.network import load_model
    >>> kv_bytes_per_token(load_model("llama-3.1-8b"), DType.BF16)  # 32 x 8 x (128 + 128) x 2
    131072.0
    """
    width = sum(run.repeat * _growth(run.attention, tp) for run in network.layers)
    return width * bytes_per_element(kv)


def kv_bytes_read(
    network: NetworkSpec, kv: DType, *, context: Array, rows: Array = 1.0, tp: int = 1
) -> Array:
    """Return the cache bytes of one sequence that a pass of ``rows`` rows reads [B].

    Sum over layers of (cached elements) (entries attended to) b_kv; an indexer reads its own keys
    over the whole context. ``context`` and ``rows`` broadcast.

    >>> from roofline.specs.network import load_model
    >>> float(kv_bytes_read(load_model("llama-3.1-8b"), DType.BF16, context=8192.0)) / 2**30
    1.0
    """
    total: Array = 0.0
    for run in network.layers:
        read = kv_width(run.attention, tp) * attended_tokens(run.attention, context, rows)
        scorer = indexer_of(run.attention)
        if scorer is not None:
            read = read + scorer.head_dim * index_tokens(run.attention, context)
        total = total + run.repeat * read
    return total * bytes_per_element(kv)


def kv_bytes_reserved(
    network: NetworkSpec,
    kv: DType,
    *,
    tokens: Array,
    block: int,
    caps_windows: bool,
    rows: Array = 1.0,
    tp: int = 1,
) -> Array:
    """Return the cache bytes that an engine reserves for one sequence of ``tokens`` slots [B].

    Whole blocks of ``block`` tokens. An engine that ``caps_windows`` gives a windowed layer no more
    blocks than the windows of a pass's ``rows`` span, and one for the block being entered.
    ``tokens`` and ``rows`` broadcast.

    >>> from roofline.specs.network import load_model
    >>> held = kv_bytes_reserved(
    ...     load_model("llama-3.1-8b"), DType.BF16, tokens=100, block=16, caps_windows=False
    ... )
    >>> float(held) / 131072  # 7 blocks of 16, at 131,072 bytes a token
    112.0
    """
    total: Array = 0.0
    for run in network.layers:
        attention = run.attention
        window = None if isinstance(attention, CrossAttention) else attention.window
        compressed = isinstance(attention, CompressedAttention)
        slots = tokens
        if window is not None and (caps_windows or compressed):
            slots = np.minimum(tokens, window + rows - 1 + block)
        blocks = np.ceil(np.asarray(slots) / block) * block
        held = kv_width(attention, tp) * blocks
        if isinstance(attention, CompressedAttention) and attention.ratio:
            held = held + _growth(attention, tp) * np.asarray(tokens)
        elif isinstance(attention, CrossAttention):
            held = 0.0 * blocks + kv_width(attention, tp) * attention.media_tokens
        elif (scorer := indexer_of(attention)) is not None:
            held = held + scorer.head_dim * np.ceil(np.asarray(tokens) / block) * block
        total = total + run.repeat * held
    return total * bytes_per_element(kv)


def state_bytes(attention: Attention, *, tp: int = 1) -> tuple[float, float]:
    """Return the (recurrent, convolution) state of one sequence in one layer on one rank [B].

    >>> from roofline.specs.network import GatedDeltaNet
    >>> mixer = GatedDeltaNet(num_key_heads=16, num_value_heads=32, key_head_dim=128,
    ...                       value_head_dim=128, conv_width=4)
    >>> recurrent, convolution = state_bytes(mixer)
    >>> 36 * recurrent / 1e6, 36 * convolution / 1e6  # Qwen3-Next: 36 such layers
    (75.497472, 1.769472)
    """
    match attention:
        case (
            GroupedQueryAttention()
            | LatentAttention()
            | CompressedAttention()
            | CrossAttention()
            | NoAttention()
        ):
            return 0.0, 0.0
        case _:
            recurrent = attention.state_elements / tp * bytes_per_element(attention.state_dtype)
            return recurrent, attention.channels / tp * (attention.conv_width - 1) * CONV_ELEMENT


def state_bytes_per_sequence(network: NetworkSpec, *, tp: int = 1) -> float:
    """Return the fixed state that one sequence keeps on one rank, whatever its length [B].

    >>> from roofline.specs.network import load_model
    >>> state_bytes_per_sequence(load_model("qwen3-next-80b-a3b-instruct")) / 1e6  # 36 GDN layers
    77.266944
    """
    return sum(run.repeat * sum(state_bytes(run.attention, tp=tp)) for run in network.layers)


_WHOLE = Placement()


def _linears(network: NetworkSpec, placement: Placement) -> Iterator[tuple[int, Linear]]:
    """Yield every matrix that a step multiplies with, and in how many layers it occurs."""
    for run in network.layers:
        for linear in layer_linears(run, hidden_size=network.hidden_size, placement=placement):
            yield run.repeat, linear
    if isinstance(network, DrafterSpec):
        if network.fusion.taps:
            yield 1, fusion_linear(network, tp=placement.attention_tp)
        for linear in medusa_linears(network):
            yield network.heads, linear
    yield _head_copies(network), head_linear(network, tp=placement.attention_tp)


def _head_copies(network: NetworkSpec) -> int:
    """Return how many vocabulary projections there are: Medusa has one for each future token."""
    return network.heads if isinstance(network, DrafterSpec) else 1


def _vector_parameters(network: NetworkSpec) -> int:
    """Norm weights, sinks and gates, the final norm included."""
    hidden = network.hidden_size
    outside = 1
    if isinstance(network, DrafterSpec):
        outside = network.extra_norms + network.final_norm
    in_layers = sum(run.repeat * _layer_vectors(run, hidden) for run in network.layers)
    return in_layers + outside * hidden + network.other_parameters


def _layer_vectors(run: LayerRun, hidden: int) -> int:
    attention, mlp = run.attention, run.mlp
    count = run.norms * hidden + attention_vectors(attention) + run.other_parameters
    if isinstance(mlp, MoeMlp) and mlp.shared_gate:
        count += hidden
    return count


def _embedding_parameters(network: NetworkSpec) -> int:
    """Return the embeddings' own parameters; a drafter looks its tokens up in the target's."""
    if not isinstance(network, ModelSpec):
        return 0
    return (network.vocab_size + network.positions) * network.hidden_size


def _keeps_own_head(network: NetworkSpec) -> bool:
    if isinstance(network, DrafterSpec):
        return not network.shares_head
    return not (isinstance(network, ModelSpec) and network.tie_embeddings)


def parameters_decode_read(network: NetworkSpec) -> int:
    """Return the parameters that one token's decode step reads.

    Of the experts it reads ``top_k``. The embedding is a row gather and does not count; the head
    does, tied or not.

    >>> from roofline.specs.network import load_model
    >>> parameters_decode_read(load_model("llama-3.1-8b"))  # 8,030,261,248 - 128,256 x 4096
    7504924672
    """
    matrices = sum(n * linear.used * linear.parameters for n, linear in _linears(network, _WHOLE))
    return matrices + _vector_parameters(network)


def parameters_total(network: NetworkSpec) -> int:
    """Return the network's own parameters (a tied or shared head belongs to the embedding).

    The multi-token-prediction layer does not count, as in the published totals.

    >>> from roofline.specs.network import load_model
    >>> parameters_total(load_model("llama-3.1-8b"))  # as its checkpoint's index says
    8030261248
    """
    total = sum(n * linear.copies * linear.parameters for n, linear in _linears(network, _WHOLE))
    total += _vector_parameters(network) + _embedding_parameters(network)
    if _keeps_own_head(network):
        return total
    head = head_linear(network)
    return total - _head_copies(network) * head.inputs * head.outputs


def weight_bytes(
    network: NetworkSpec, precision: Precision, placement: Placement
) -> dict[Component, float]:
    """Return the bytes of weights that one rank holds, by component [B].

    Sum over matrices of (parameters on the rank) (bytes per element); biases stay in the format
    between the products.

    >>> from roofline.specs.network import load_model
    >>> from roofline.specs.formats import resolve_precision
    >>> model = load_model("llama-3.1-8b")
    >>> formats, _ = resolve_precision(
    ...     stored=model.stored(), base=model.dtype, kv_stored=None, available=["bf16"], gpu="any"
    ... )
    >>> sum(weight_bytes(model, formats, _WHOLE).values())  # 2 x 8,030,261,248
    16060522496.0
    """
    stored = precision.weights
    sizes = dict.fromkeys(Component, 0.0)
    for layers, linear in _linears(network, placement):
        if linear.name == "lm_head" and isinstance(network, DrafterSpec) and network.shares_head:
            continue
        # biases stay in the format between the products, whatever the matrix is stored in
        size = bytes_per_element(stored[linear.component]) * linear.inputs * linear.outputs
        size += bytes_per_element(precision.base) * linear.biases
        sizes[linear.component] += layers * linear.copies * size
    if isinstance(network, DrafterSpec):
        side = network.side_parameters / placement.attention_tp
        sizes[Component.HEAD] += side * bytes_per_element(stored[Component.HEAD])
    if isinstance(network, ModelSpec):
        tower = network.vision_parameters * bytes_per_element(stored[Component.VISION])
        sizes[Component.VISION] += tower / placement.attention_tp
    sizes[Component.NORM] += _vector_parameters(network) * bytes_per_element(stored[Component.NORM])
    if isinstance(network, ModelSpec):
        rows = network.positions + (0 if network.tie_embeddings else network.vocab_size)
        embedding = rows * network.hidden_size / placement.attention_tp
        sizes[Component.EMBEDDING] += embedding * bytes_per_element(stored[Component.EMBEDDING])
    return {component: size for component, size in sizes.items() if size}
