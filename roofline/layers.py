"""What a layer is made of: its matrices, whole or as one tensor-parallel rank has them.

Parameter counts, weight bytes and GEMM shapes all come from the lists made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofline.base.errors import InputError
from roofline.projections import Linear, attention_linears, attention_split, local_heads
from roofline.specs.formats import Component
from roofline.specs.network import DenseMlp, DrafterSpec, LayerRun, Mlp, MoeMlp, NetworkSpec, NoMlp
from roofline.specs.placement import Placement

__all__ = [
    "Linear",
    "attention_linears",
    "beside_linears",
    "check_parallel",
    "expert_linears",
    "fusion_linear",
    "head_linear",
    "latent_linears",
    "layer_linears",
    "local_heads",
    "medusa_linears",
    "mlp_linears",
    "router_linear",
    "shared_linears",
    "used_components",
]


def mlp_linears(mlp: Mlp, *, hidden_size: int, placement: Placement) -> list[Linear]:
    """Return the matrices of one rank's MLP, experts and router included."""
    if isinstance(mlp, NoMlp):
        return []
    if isinstance(mlp, DenseMlp):
        width = mlp.intermediate_size // placement.attention_tp
        pair = _gated_pair("", Component.MLP, hidden_size, width, gated=mlp.gated)
        return [replace(x, biases=x.outputs) for x in pair] if mlp.biases else pair
    linears = [router_linear(mlp, hidden_size=hidden_size)]
    linears += latent_linears(mlp, hidden_size=hidden_size)
    linears += expert_linears(mlp, hidden_size=hidden_size, placement=placement)
    linears += shared_linears(mlp, hidden_size=hidden_size, tp=placement.attention_tp)
    return linears + beside_linears(mlp, hidden_size=hidden_size, tp=placement.attention_tp)


def latent_linears(mlp: MoeMlp, *, hidden_size: int) -> list[Linear]:
    """Return the projections into and out of the width that routed experts work in (whole)."""
    if mlp.latent_size is None:
        return []
    shapes = [("latent_down_proj", hidden_size, mlp.latent_size)]
    shapes += [("latent_up_proj", mlp.latent_size, hidden_size)]
    return [
        Linear(name=name, component=Component.SHARED_EXPERTS, inputs=inputs, outputs=outputs)
        for name, inputs, outputs in shapes
    ]


def beside_linears(mlp: MoeMlp, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return the matrices of the dense MLP that runs beside the experts."""
    if not mlp.dense_intermediate_size:
        return []
    width = mlp.dense_intermediate_size // tp
    return _gated_pair("", Component.MLP, hidden_size, width, gated=mlp.gated)


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
    inner = mlp.latent_size or hidden_size
    pair = _gated_pair("expert_", Component.EXPERTS, inner, width, gated=mlp.gated)
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
    outputs = -(-rows // tp)
    return Linear(
        name="lm_head",
        component=Component.HEAD,
        inputs=network.hidden_size,
        outputs=outputs,
        biases=outputs if network.head_bias else 0,
    )


def fusion_linear(drafter: DrafterSpec, *, tp: int = 1) -> Linear:
    """Return the projection that brings the target's hidden states into the drafter."""
    return Linear(
        name="fc",
        component=Component.ATTENTION,
        inputs=drafter.fusion.taps * drafter.fusion.target_hidden_size,
        outputs=drafter.hidden_size // tp,
        biases=drafter.hidden_size // tp if drafter.fusion.bias else 0,
    )


def medusa_linears(drafter: DrafterSpec) -> list[Linear]:
    """Return the residual blocks of one of Medusa's heads (on every rank)."""
    width = drafter.hidden_size
    block = Linear(
        name="medusa_block", component=Component.MLP, inputs=width, outputs=width, biases=width
    )
    return [block] * drafter.head_blocks


def layer_linears(run: LayerRun, *, hidden_size: int, placement: Placement) -> Iterator[Linear]:
    """Yield every matrix of one layer of ``run`` on one rank."""
    yield from attention_linears(run.attention, hidden_size=hidden_size, tp=placement.attention_tp)
    yield from mlp_linears(run.mlp, hidden_size=hidden_size, placement=placement)


def check_parallel(network: NetworkSpec, placement: Placement, flag: str = "--tp") -> None:
    """Refuse TP, EP and DP sizes that would split a head, an expert or a matrix unevenly."""
    tp, ep, dp = placement.tp, placement.ep, placement.dp
    if tp % dp:
        raise InputError(
            f"--dp-attention {dp}: expected a divisor of {flag} {tp}, which counts all the GPUs"
        )
    if tp % ep:
        raise InputError(
            f"--ep {ep}: expected a divisor of {flag} {tp} (EP only places experts on TP's GPUs)"
        )
    for run in network.layers:
        problem = attention_split(run.attention, placement.attention_tp)
        problem = problem or _mlp_split(run.mlp, placement)
        if problem is not None:
            name = f"{flag} {tp}" if dp == 1 else f"{flag} {tp} with --dp-attention {dp}"
            if problem.startswith("experts"):
                name = f"--ep {ep}"
            raise InputError(f"{name}: {network.id} needs {problem.split(': ')[-1]}")


def _mlp_split(mlp: Mlp, placement: Placement) -> str | None:
    if isinstance(mlp, NoMlp):
        return None
    if isinstance(mlp, DenseMlp):
        bad = mlp.intermediate_size % placement.attention_tp
        return f"a divisor of its MLP width {mlp.intermediate_size}" if bad else None
    if mlp.num_experts % placement.ep:
        return f"experts: a divisor of its {mlp.num_experts} experts"
    if mlp.expert_intermediate_size % (placement.tp // placement.ep):
        return f"a divisor of its expert width {mlp.expert_intermediate_size} (or a larger --ep)"
    if mlp.shared_intermediate_size % placement.attention_tp:
        return f"a divisor of its shared experts' width {mlp.shared_intermediate_size}"
    if mlp.dense_intermediate_size % placement.attention_tp:
        return f"a divisor of its dense MLP's width {mlp.dense_intermediate_size}"
    return None


def used_components(network: NetworkSpec) -> set[Component]:
    """Return the parts that the products of the network's layers belong to."""
    whole = Placement()
    return {
        linear.component
        for run in network.layers
        for linear in layer_linears(run, hidden_size=network.hidden_size, placement=whole)
    }
