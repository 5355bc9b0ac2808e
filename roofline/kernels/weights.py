"""Counting a network: parameters and weight bytes; what it caches is counted in `cache`."""

from __future__ import annotations

from collections.abc import Iterator

from roofline.kernels.cache import (
    attended_tokens,
    kv_bytes_per_token,
    kv_bytes_read,
    kv_bytes_reserved,
    state_bytes,
    state_bytes_per_sequence,
)
from roofline.kernels.matrices import (
    Linear,
    attention_vectors,
    fusion_linear,
    head_linear,
    layer_linears,
    medusa_linears,
)
from roofline.specs.formats import Component, Precision, bytes_per_element
from roofline.specs.network import DrafterSpec, LayerRun, ModelSpec, MoeMlp, NetworkSpec
from roofline.specs.placement import Placement

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
    >>> from roofline.specs.formats import resolve
    >>> model = load_model("llama-3.1-8b")
    >>> formats, _ = resolve(
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
        own = network.side_parameters / placement.attention_tp
        sizes[Component.HEAD] += own * bytes_per_element(stored[Component.HEAD])
    if isinstance(network, ModelSpec):
        tower = network.vision_parameters * bytes_per_element(stored[Component.VISION])
        sizes[Component.VISION] += tower / placement.attention_tp
    sizes[Component.NORM] += _vector_parameters(network) * bytes_per_element(stored[Component.NORM])
    if isinstance(network, ModelSpec):
        rows = network.positions + (0 if network.tie_embeddings else network.vocab_size)
        own = rows * network.hidden_size / placement.attention_tp
        sizes[Component.EMBEDDING] += own * bytes_per_element(stored[Component.EMBEDDING])
    return {component: size for component, size in sizes.items() if size}
