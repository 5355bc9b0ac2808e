"""Counting a network: parameters, weight bytes, and the KV cache it reserves and reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from roofline.layers import (
    Linear,
    fusion_linear,
    head_linear,
    layer_linears,
    local_heads,
)
from roofline.model import (
    Attention,
    DrafterSpec,
    GatedDeltaNet,
    GroupedQueryAttention,
    LatentAttention,
    LayerRun,
    ModelSpec,
    MoeMlp,
    NetworkSpec,
)
from roofline.ops import Array
from roofline.quantization import Component, DType, Precision, bytes_per_element
from roofline.workload import Placement

__all__ = [
    "attended_tokens",
    "kv_bytes_per_token",
    "kv_bytes_read",
    "kv_bytes_reserved",
    "parameters_decode_read",
    "parameters_total",
    "state_bytes",
    "state_bytes_per_sequence",
    "weight_bytes",
]

_WHOLE = Placement()
STATE_ELEMENT = 4.0  # recurrent state is kept in fp32 [B]
CONV_ELEMENT = 2.0  # convolution inputs in bf16 [B]


def _linears(network: NetworkSpec, placement: Placement) -> Iterator[tuple[int, Linear]]:
    """Yield every matrix that a step multiplies with, and in how many layers it occurs."""
    for run in network.layers:
        for linear in layer_linears(run, hidden_size=network.hidden_size, placement=placement):
            yield run.repeat, linear
    if isinstance(network, DrafterSpec):
        yield 1, fusion_linear(network, tp=placement.tp)
    yield 1, head_linear(network, tp=placement.tp)


def _vector_parameters(network: NetworkSpec) -> int:
    """Norm weights, sinks and gates, the final norm included."""
    hidden = network.hidden_size
    extra = network.extra_norms if isinstance(network, DrafterSpec) else 0
    in_layers = sum(run.repeat * _layer_vectors(run, hidden) for run in network.layers)
    return in_layers + (1 + extra) * hidden


def _layer_vectors(run: LayerRun, hidden: int) -> int:
    attention, mlp = run.attention, run.mlp
    count = run.norms * hidden + _attention_vectors(attention)
    if isinstance(mlp, MoeMlp) and mlp.shared_gate:
        count += hidden
    return count


def _attention_vectors(attention: Attention) -> int:
    if isinstance(attention, LatentAttention):
        return (attention.q_lora_rank or 0) + attention.kv_lora_rank
    if isinstance(attention, GatedDeltaNet):
        convolution = attention.channels * attention.conv_width
        return convolution + 2 * attention.num_value_heads + attention.value_head_dim
    count = attention.num_heads if attention.sinks else 0
    if not attention.qk_norm:
        return count
    if attention.qk_norm_width == "head":
        return count + 2 * attention.head_dim
    return count + (attention.num_heads + attention.num_kv_heads) * attention.head_dim


def _embedding_parameters(network: NetworkSpec) -> int:
    """Return the embedding's own parameters; a drafter looks its tokens up in the target's."""
    return network.vocab_size * network.hidden_size if isinstance(network, ModelSpec) else 0


def _keeps_own_head(network: NetworkSpec) -> bool:
    if isinstance(network, DrafterSpec):
        return not network.shares_head
    return not (isinstance(network, ModelSpec) and network.tie_embeddings)


def parameters_decode_read(network: NetworkSpec) -> int:
    """Return the parameters that one token's decode step reads.

    Of the experts it reads ``top_k``. The embedding is a row gather and does not count; the head
    does, tied or not.
    """
    matrices = sum(n * linear.used * linear.parameters for n, linear in _linears(network, _WHOLE))
    return matrices + _vector_parameters(network)


def parameters_total(network: NetworkSpec) -> int:
    """Return the network's own parameters (a tied or shared head belongs to the embedding).

    The multi-token-prediction layer does not count, as in the published totals.
    """
    total = sum(n * linear.copies * linear.parameters for n, linear in _linears(network, _WHOLE))
    total += _vector_parameters(network) + _embedding_parameters(network)
    return total if _keeps_own_head(network) else total - head_linear(network).parameters


def weight_bytes(
    network: NetworkSpec, precision: Precision, placement: Placement
) -> dict[Component, float]:
    """Return the bytes of weights that one rank holds, by component [B]."""
    stored = precision.weights
    sizes = dict.fromkeys(Component, 0.0)
    for layers, linear in _linears(network, placement):
        if linear.name == "lm_head" and isinstance(network, DrafterSpec) and network.shares_head:
            continue
        size = bytes_per_element(stored[linear.component])
        sizes[linear.component] += layers * linear.copies * linear.parameters * size
    sizes[Component.NORM] += _vector_parameters(network) * bytes_per_element(stored[Component.NORM])
    if _keeps_own_head(network):
        own = _embedding_parameters(network) / placement.tp
        sizes[Component.EMBEDDING] += own * bytes_per_element(stored[Component.EMBEDDING])
    return {component: size for component, size in sizes.items() if size}


def kv_width(attention: Attention, tp: int) -> int:
    """Return the cached elements of one token in one layer on one rank."""
    if isinstance(attention, LatentAttention):
        return attention.key_width  # one latent vector, copied to every rank
    if isinstance(attention, GatedDeltaNet):
        return 0
    return 2 * local_heads(attention, tp)[1] * attention.head_dim


def attended_tokens(attention: Attention, context: Array, rows: Array = 1.0) -> Array:
    """Return the tokens of one sequence that a pass of ``rows`` rows reads in one layer.

    A sliding window of w reads at most w + rows - 1 (each row sees w). A chunk of c starts over
    every c tokens, so on average over positions (c + 1) / 2 are read once the context exceeds it.

    >>> from roofline.model import GroupedQueryAttention
    >>> gemma = GroupedQueryAttention(num_heads=32, num_kv_heads=16, head_dim=128, window=1024)
    >>> float(attended_tokens(gemma, 131072.0))
    1024.0
    """
    window = attention.window
    if window is None:
        return context
    if isinstance(attention, GroupedQueryAttention) and attention.window_kind == "chunked":
        return np.where(np.asarray(context) <= window, context, (window + 1) / 2)
    return np.minimum(context, window + rows - 1)


def state_bytes(attention: Attention, *, tp: int = 1) -> tuple[float, float]:
    """Return the (recurrent, convolution) state of one sequence in one layer on one rank [B].

    >>> from roofline.model import GatedDeltaNet
    >>> mixer = GatedDeltaNet(num_key_heads=16, num_value_heads=32, key_head_dim=128,
    ...                       value_head_dim=128, conv_width=4)
    >>> recurrent, convolution = state_bytes(mixer)
    >>> 36 * recurrent / 1e6, 36 * convolution / 1e6  # Qwen3-Next: 36 such layers
    (75.497472, 1.769472)
    """
    if not isinstance(attention, GatedDeltaNet):
        return 0.0, 0.0
    matrix = attention.key_head_dim * attention.value_head_dim
    recurrent = attention.num_value_heads / tp * matrix * STATE_ELEMENT
    return recurrent, attention.channels / tp * (attention.conv_width - 1) * CONV_ELEMENT


def state_bytes_per_sequence(network: NetworkSpec, *, tp: int = 1) -> float:
    """Return the fixed state that one sequence keeps on one rank, whatever its length [B]."""
    return sum(run.repeat * sum(state_bytes(run.attention, tp=tp)) for run in network.layers)


def kv_bytes_per_token(network: NetworkSpec, kv: DType, *, tp: int = 1) -> float:
    """Return the bytes that one token adds to one rank's cache where nothing is windowed [B].

    This is also what an engine reserves per token if it gives every layer the same blocks.
    """
    width = sum(run.repeat * kv_width(run.attention, tp) for run in network.layers)
    return width * bytes_per_element(kv)


def kv_bytes_read(
    network: NetworkSpec, kv: DType, *, context: Array, rows: Array = 1.0, tp: int = 1
) -> Array:
    """Return the cache bytes of one sequence that a pass of ``rows`` rows reads [B]."""
    total: Array = 0.0
    for run in network.layers:
        tokens = attended_tokens(run.attention, context, rows)
        total = total + run.repeat * kv_width(run.attention, tp) * tokens
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
    """
    total: Array = 0.0
    for run in network.layers:
        slots = tokens
        if caps_windows and run.attention.window is not None:
            slots = np.minimum(tokens, run.attention.window + rows - 1 + block)
        blocks = np.ceil(np.asarray(slots) / block) * block
        total = total + run.repeat * kv_width(run.attention, tp) * blocks
    return total * bytes_per_element(kv)
