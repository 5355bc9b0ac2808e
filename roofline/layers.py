"""What a layer is made of: its matrices and vectors, whole or as one tensor-parallel rank has them.

Parameter counts, weight bytes and GEMM shapes all come from the one list made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roofline.errors import InputError
from roofline.model import Attention, DrafterSpec, LayerRun, Mlp, ModelSpec, NetworkSpec
from roofline.quantization import Component, DType, Precision, bytes_per_element

__all__ = [
    "Linear",
    "attention_linears",
    "check_tensor_parallel",
    "fusion_linear",
    "head_linear",
    "kv_bytes_per_token",
    "local_heads",
    "mlp_linears",
    "parameters_decode_read",
    "parameters_total",
    "weight_bytes",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """A matrix of ``outputs`` x ``inputs``; fused projections that run as one GEMM are one."""

    name: str
    component: Component
    inputs: int
    outputs: int
    biases: int = 0

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return self.inputs * self.outputs + self.biases


def local_heads(attention: Attention, tp: int) -> tuple[int, int]:
    """Return the query and KV heads on one rank; KV heads are copied once TP exceeds them."""
    return attention.num_heads // tp, max(attention.num_kv_heads // tp, 1)


def attention_linears(
    attention: Attention, *, hidden_size: int, tp: int = 1
) -> tuple[Linear, Linear]:
    """Return the fused QKV and the output projection of one rank."""
    heads, kv_heads = local_heads(attention, tp)
    width = heads * attention.head_dim
    fused = (heads + 2 * kv_heads) * attention.head_dim
    return (
        Linear(
            name="qkv_proj",
            component=Component.ATTENTION,
            inputs=attention.input_size or hidden_size,
            outputs=fused,
            biases=fused if attention.qkv_bias else 0,
        ),
        Linear(
            name="o_proj",
            component=Component.ATTENTION,
            inputs=width,
            outputs=hidden_size,
            biases=hidden_size if attention.output_bias else 0,
        ),
    )


def mlp_linears(mlp: Mlp, *, hidden_size: int, tp: int = 1) -> tuple[Linear, Linear]:
    """Return the fused gate and up projection and the down projection of one rank."""
    width = mlp.intermediate_size // tp
    return (
        Linear(
            name="gate_up_proj" if mlp.gated else "up_proj",
            component=Component.MLP,
            inputs=hidden_size,
            outputs=width * (2 if mlp.gated else 1),
        ),
        Linear(name="down_proj", component=Component.MLP, inputs=width, outputs=hidden_size),
    )


def head_linear(network: NetworkSpec, *, tp: int = 1) -> Linear:
    """Return the vocabulary projection of one rank (its share rounded up)."""
    rows = network.draft_vocab_size if isinstance(network, DrafterSpec) else network.vocab_size
    return Linear(
        name="lm_head",
        component=Component.HEAD,
        inputs=network.hidden_size,
        outputs=-(-rows // tp),
    )


def fusion_linear(drafter: DrafterSpec, *, tp: int = 1) -> Linear:
    """Return the projection that brings the target's hidden states into the drafter."""
    return Linear(
        name="fc",
        component=Component.ATTENTION,
        inputs=drafter.fusion.taps * drafter.fusion.target_hidden_size,
        outputs=drafter.hidden_size // tp,
    )


def layer_linears(run: LayerRun, *, hidden_size: int, tp: int = 1) -> Iterator[Linear]:
    """Yield every matrix of one layer of ``run`` on one rank."""
    yield from attention_linears(run.attention, hidden_size=hidden_size, tp=tp)
    yield from mlp_linears(run.mlp, hidden_size=hidden_size, tp=tp)


def check_tensor_parallel(network: NetworkSpec, tp: int, flag: str = "--tp") -> None:
    """Refuse a TP size that would split a head or a matrix unevenly."""
    for run in network.layers:
        attention, mlp = run.attention, run.mlp
        kv_heads = attention.num_kv_heads
        if attention.num_heads % tp:
            expected = f"a divisor of its {attention.num_heads} query heads"
        elif kv_heads % tp and tp % kv_heads:
            expected = f"a divisor or a multiple of its {kv_heads} KV heads"
        elif mlp.intermediate_size % tp:
            expected = f"a divisor of its MLP width {mlp.intermediate_size}"
        else:
            continue
        raise InputError(f"{flag} {tp}: {network.id} needs {expected}")


def _network_linears(network: NetworkSpec, tp: int) -> Iterator[tuple[int, Linear]]:
    """Yield every matrix that a decode step reads, with how often it occurs."""
    for run in network.layers:
        for linear in layer_linears(run, hidden_size=network.hidden_size, tp=tp):
            yield run.repeat, linear
    if isinstance(network, DrafterSpec):
        yield 1, fusion_linear(network, tp=tp)
    yield 1, head_linear(network, tp=tp)


def _vector_parameters(network: NetworkSpec) -> int:
    """Norm weights, the final norm included."""
    in_layers = sum(
        run.repeat
        * (
            run.norms * network.hidden_size
            + (2 * run.attention.head_dim if run.attention.qk_norm else 0)
        )
        for run in network.layers
    )
    return in_layers + network.hidden_size


def _embedding_parameters(network: NetworkSpec) -> int:
    """Return the embedding's own parameters; a drafter looks its tokens up in the target's."""
    return network.vocab_size * network.hidden_size if isinstance(network, ModelSpec) else 0


def parameters_decode_read(network: NetworkSpec) -> int:
    """Return the parameters that one decode step reads.

    The embedding is a row gather and does not count; the head does, tied or not.
    """
    matrices = sum(n * linear.parameters for n, linear in _network_linears(network, 1))
    return matrices + _vector_parameters(network)


def parameters_total(network: NetworkSpec) -> int:
    """Return the parameters of the network (a tied head shares the embedding's)."""
    total = parameters_decode_read(network) + _embedding_parameters(network)
    if isinstance(network, ModelSpec) and network.tie_embeddings:
        total -= head_linear(network).parameters
    return total


def weight_bytes(network: NetworkSpec, precision: Precision, *, tp: int) -> dict[Component, float]:
    """Return the bytes of weights on one rank, by component [B]."""
    stored = precision.weights
    sizes = dict.fromkeys(Component, 0.0)
    for count, linear in _network_linears(network, tp):
        size = bytes_per_element(stored[linear.component])
        sizes[linear.component] += count * linear.parameters * size
    sizes[Component.NORM] += _vector_parameters(network) * bytes_per_element(stored[Component.NORM])
    tied = isinstance(network, ModelSpec) and network.tie_embeddings
    if not tied:
        per_rank = _embedding_parameters(network) / tp
        sizes[Component.EMBEDDING] += per_rank * bytes_per_element(stored[Component.EMBEDDING])
    return {component: size for component, size in sizes.items() if size}


def kv_bytes_per_token(network: NetworkSpec, kv: DType, *, tp: int = 1) -> float:
    """Return the bytes that one token adds to the KV cache of one rank [B]."""
    size = bytes_per_element(kv)
    return sum(
        run.repeat * 2 * local_heads(run.attention, tp)[1] * run.attention.head_dim * size
        for run in network.layers
    )
