"""What a layer is made of: its matrices, whole or as one tensor-parallel rank has them.

Parameter counts, weight bytes and GEMM shapes all come from the lists made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roofline.errors import InputError
from roofline.model import (
    Attention,
    DenseMlp,
    DrafterSpec,
    GatedDeltaNet,
    LatentAttention,
    LayerRun,
    Mlp,
    MoeMlp,
    NetworkSpec,
)
from roofline.quantization import Component
from roofline.workload import Placement

__all__ = [
    "Linear",
    "attention_linears",
    "check_parallel",
    "expert_linears",
    "fusion_linear",
    "head_linear",
    "layer_linears",
    "local_heads",
    "mlp_linears",
    "router_linear",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """A matrix of ``outputs`` x ``inputs``; fused projections that run as one GEMM are one.

    ``copies`` of it exist on the rank (experts), ``used`` of them by one token.
    """

    name: str
    component: Component
    inputs: int
    outputs: int
    biases: int = 0
    copies: int = 1
    used: int = 1

    @property
    def parameters(self) -> int:
        """Weights and biases of one copy."""
        return self.inputs * self.outputs + self.biases


def local_heads(attention: Attention, tp: int) -> tuple[int, int]:
    """Return the query and KV heads on one rank; KV heads are copied once TP exceeds them."""
    if isinstance(attention, LatentAttention):
        return attention.num_heads // tp, 1
    if isinstance(attention, GatedDeltaNet):
        return attention.num_value_heads // tp, attention.num_key_heads // tp
    return attention.num_heads // tp, max(attention.num_kv_heads // tp, 1)


def attention_linears(attention: Attention, *, hidden_size: int, tp: int = 1) -> list[Linear]:
    """Return the projections of one rank, those into attention first and the output last."""
    if isinstance(attention, LatentAttention):
        return _latent_linears(attention, hidden_size=hidden_size, tp=tp)
    if isinstance(attention, GatedDeltaNet):
        return _delta_linears(attention, hidden_size=hidden_size, tp=tp)
    heads, kv_heads = local_heads(attention, tp)
    width = heads * attention.head_dim
    queries = 2 * heads if attention.output_gate else heads
    fused = (queries + 2 * kv_heads) * attention.head_dim
    return [
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
    ]


def _latent_linears(attention: LatentAttention, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return MLA's projections; the compressions are copied to every rank, heads are divided."""
    heads = attention.num_heads // tp
    query_width = heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
    compressed = (attention.q_lora_rank or 0) + attention.key_width
    shapes = [
        ("kv_a_proj", hidden_size, compressed),
        ("q_b_proj", attention.q_lora_rank or hidden_size, query_width),
        (
            "kv_b_proj",
            attention.kv_lora_rank,
            heads * (attention.qk_nope_head_dim + attention.v_head_dim),
        ),
        ("o_proj", heads * attention.v_head_dim, hidden_size),
    ]
    return [
        Linear(name=name, component=Component.ATTENTION, inputs=inputs, outputs=outputs)
        for name, inputs, outputs in shapes
    ]


def _delta_linears(attention: GatedDeltaNet, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return GDN's projections: queries, keys, values and gate; two scalars a head; the output."""
    values = attention.num_value_heads * attention.value_head_dim
    shapes = [
        ("qkvz_proj", hidden_size, (attention.channels + values) // tp),
        ("ba_proj", hidden_size, 2 * attention.num_value_heads // tp),
        ("o_proj", values // tp, hidden_size),
    ]
    return [
        Linear(name=name, component=Component.ATTENTION, inputs=inputs, outputs=outputs)
        for name, inputs, outputs in shapes
    ]


def mlp_linears(mlp: Mlp, *, hidden_size: int, placement: Placement) -> list[Linear]:
    """Return the matrices of one rank's MLP, experts and router included."""
    if isinstance(mlp, DenseMlp):
        width = mlp.intermediate_size // placement.tp
        return _gated_pair("", Component.MLP, hidden_size, width, gated=mlp.gated)
    linears = [router_linear(mlp, hidden_size=hidden_size)]
    linears += expert_linears(mlp, hidden_size=hidden_size, placement=placement)
    return linears + shared_linears(mlp, hidden_size=hidden_size, tp=placement.tp)


def router_linear(mlp: MoeMlp, *, hidden_size: int) -> Linear:
    """Return the router, which every rank has whole."""
    return Linear(
        name="router",
        component=Component.ROUTER,
        inputs=hidden_size,
        outputs=mlp.num_experts,
        biases=mlp.num_experts if mlp.biases else 0,
    )


def expert_linears(mlp: MoeMlp, *, hidden_size: int, placement: Placement) -> list[Linear]:
    """Return the two matrices of one routed expert with how many experts the rank holds.

    EP places whole experts on ``ep`` groups of ranks; inside a group TP divides each expert.
    """
    width = mlp.expert_intermediate_size // (placement.tp // placement.ep)
    pair = _gated_pair("expert_", Component.EXPERTS, hidden_size, width, gated=mlp.gated)
    return [
        Linear(
            name=linear.name,
            component=linear.component,
            inputs=linear.inputs,
            outputs=linear.outputs,
            biases=linear.outputs if mlp.biases else 0,
            copies=mlp.num_experts // placement.ep,
            used=mlp.top_k,
        )
        for linear in pair
    ]


def shared_linears(mlp: MoeMlp, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return the matrices of the shared experts, as one MLP of their joint width."""
    if not mlp.shared_intermediate_size:
        return []
    width = mlp.shared_intermediate_size // tp
    return _gated_pair("shared_", Component.SHARED_EXPERTS, hidden_size, width, gated=mlp.gated)


def _gated_pair(
    prefix: str, component: Component, hidden_size: int, width: int, *, gated: bool
) -> list[Linear]:
    return [
        Linear(
            name=f"{prefix}gate_up_proj" if gated else f"{prefix}up_proj",
            component=component,
            inputs=hidden_size,
            outputs=width * (2 if gated else 1),
        ),
        Linear(name=f"{prefix}down_proj", component=component, inputs=width, outputs=hidden_size),
    ]


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


def layer_linears(run: LayerRun, *, hidden_size: int, placement: Placement) -> Iterator[Linear]:
    """Yield every matrix of one layer of ``run`` on one rank."""
    yield from attention_linears(run.attention, hidden_size=hidden_size, tp=placement.tp)
    yield from mlp_linears(run.mlp, hidden_size=hidden_size, placement=placement)


def check_parallel(network: NetworkSpec, placement: Placement, flag: str = "--tp") -> None:
    """Refuse TP and EP sizes that would split a head, an expert or a matrix unevenly."""
    tp, ep = placement.tp, placement.ep
    if tp % ep:
        raise InputError(
            f"--ep {ep}: expected a divisor of {flag} {tp} (EP only places experts on TP's GPUs)"
        )
    for run in network.layers:
        problem = _attention_split(run.attention, tp) or _mlp_split(run.mlp, placement)
        if problem is not None:
            name = "--ep" if problem.startswith("experts") else flag
            value = ep if problem.startswith("experts") else tp
            raise InputError(f"{name} {value}: {network.id} needs {problem.split(': ')[-1]}")


def _attention_split(attention: Attention, tp: int) -> str | None:
    if isinstance(attention, GatedDeltaNet):
        split = attention.num_key_heads % tp or attention.num_value_heads % tp
        return f"a divisor of its {attention.num_key_heads} linear key heads" if split else None
    if attention.num_heads % tp:
        return f"a divisor of its {attention.num_heads} query heads"
    if isinstance(attention, LatentAttention):
        return None
    kv_heads = attention.num_kv_heads
    if kv_heads % tp and tp % kv_heads:
        return f"a divisor or a multiple of its {kv_heads} KV heads"
    return None


def _mlp_split(mlp: Mlp, placement: Placement) -> str | None:
    if isinstance(mlp, DenseMlp):
        bad = mlp.intermediate_size % placement.tp
        return f"a divisor of its MLP width {mlp.intermediate_size}" if bad else None
    if mlp.num_experts % placement.ep:
        return f"experts: a divisor of its {mlp.num_experts} experts"
    if mlp.expert_intermediate_size % (placement.tp // placement.ep):
        return f"a divisor of its expert width {mlp.expert_intermediate_size} (or a larger --ep)"
    if mlp.shared_intermediate_size % placement.tp:
        return f"a divisor of its shared experts' width {mlp.shared_intermediate_size}"
    return None
