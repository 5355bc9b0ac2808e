"""The MLP half of a layer as kernels: dense, and mixtures of experts."""

from __future__ import annotations

from roofline.kernels import experts, formulas
from roofline.kernels.experts import ExpertRows
from roofline.kernels.matrices import (
    Linear,
    beside_linears,
    expert_linears,
    latent_linears,
    mlp_linears,
    router_linear,
    shared_linears,
)
from roofline.kernels.ops import (
    Kind,
    MoeShape,
    Op,
    Part,
    Pass,
    all_reduce,
    communication,
    elementwise,
    gemm,
)
from roofline.specs.formats import Component, bytes_per_element
from roofline.specs.network import DenseMlp, Mlp, MoeMlp, NoMlp

__all__ = ["expert_rows", "mlp_block"]


def mlp_block(state: Pass, mlp: Mlp) -> list[Op]:
    """Return the kernels from the norm before the MLP to the communication after it."""
    if isinstance(mlp, NoMlp):
        return []
    norm = elementwise(state, "mlp_norm", 4 * state.network.hidden_size, state.tokens)
    if isinstance(mlp, DenseMlp):
        linears = mlp_linears(mlp, hidden_size=state.network.hidden_size, placement=state.placement)
        return [norm, *_dense(state, linears, Part.LINEAR), *all_reduce(state, "mlp_all_reduce")]
    return [norm, *_mixture(state, mlp)]


def _dense(state: Pass, linears: list[Linear], part: Part) -> list[Op]:
    up, down = linears
    prefix = up.name.removesuffix("gate_up_proj").removesuffix("up_proj")
    return [
        gemm(state, up, part, state.tokens),
        elementwise(state, f"{prefix}activation", up.outputs + down.inputs, state.tokens),
        gemm(state, down, part, state.tokens),
    ]


def _mixture(state: Pass, mlp: MoeMlp) -> list[Op]:
    """Return router, experts, shared experts and what brings the tokens to the experts and back."""
    hidden, placement = state.network.hidden_size, state.placement
    router = router_linear(mlp, hidden_size=hidden)
    shared = shared_linears(mlp, hidden_size=hidden, tp=placement.tp)
    latent = latent_linears(mlp, hidden_size=hidden)
    kernels = [
        gemm(state, router, Part.MOE, state.tokens),
        elementwise(state, "top_k", 2 * mlp.num_experts, state.tokens),
        *(gemm(state, linear, Part.MOE, state.tokens) for linear in latent[:1]),
        *_exchange(state, mlp, "dispatch"),
        _experts(state, mlp),
        *_exchange(state, mlp, "combine"),
        *(gemm(state, linear, Part.MOE, state.tokens) for linear in latent[1:]),
    ]
    if shared:
        kernels += _dense(state, shared, Part.MOE)
    beside = beside_linears(mlp, hidden_size=hidden, tp=placement.tp)
    if beside:
        kernels += _dense(state, beside, Part.LINEAR)
    return kernels + all_reduce(state, "moe_all_reduce")


def expert_rows(state: Pass, mlp: MoeMlp) -> ExpertRows:
    """Return how the rows of a pass fall on the experts of all ranks."""
    state, routing = state.everyone, state.placement.routing
    return experts.expert_rows(
        experts=mlp.num_experts,
        top_k=mlp.top_k,
        tokens=state.tokens,
        independent=state.riders
        + experts.independent_tokens(
            batch=state.batch, rows=state.rows, correlation=routing.correlation
        ),
        skew=routing.skew,
    )


def _experts(state: Pass, mlp: MoeMlp) -> Op:
    """Return the routed experts of one rank as one grouped kernel.

    Every awake expert's weights are read once; of the T k token-expert pairs a rank computes its
    EP group's share, on its TP slice of each expert.
    """
    state = state.everyone
    placement, hidden = state.placement, state.network.hidden_size
    load = expert_rows(state, mlp)
    awake = load.distinct / placement.ep
    pairs = state.tokens * mlp.top_k / placement.ep
    linears = expert_linears(mlp, hidden_size=hidden, placement=placement)
    weight = bytes_per_element(state.precision.weights[Component.EXPERTS])
    compute = state.precision.activations[Component.EXPERTS]
    per_pair = sum(
        linear.inputs * bytes_per_element(compute) + linear.outputs * state.base_bytes
        for linear in linears
    )
    return Op(
        name="experts",
        kind=Kind.MOE,
        part=Part.MOE,
        compute=compute,
        storage=state.precision.weights[Component.EXPERTS],
        flops=sum(formulas.gemm_flops(m=pairs, n=x.outputs, k=x.inputs) for x in linears),
        bytes=awake * sum(x.parameters for x in linears) * weight + pairs * per_pair,
        rows=pairs / awake,
        shape=MoeShape(
            tokens=state.tokens,
            top_k=mlp.top_k,
            experts=mlp.num_experts,
            ranks=placement.ep,
            hidden=mlp.latent_size or hidden,
            width=linears[-1].inputs,
            matrices=3 if mlp.gated else 2,
            weight=weight,
            distinct=awake,
            awake=load.distinct,
            rows=pairs,
            hottest=load.hottest,
            padded=load.padded / placement.ep,
        ),
    )


def _exchange(state: Pass, mlp: MoeMlp, name: str) -> list[Op]:
    """Return what takes tokens to the ranks of their experts, or brings the results back.

    An all-to-all: each rank starts with its share of the tokens and sends one copy for each chosen
    expert that lives on another EP group. Data-parallel groups instead gather the tokens of all of
    them and scatter the sums, which is what engines do unless told otherwise.
    """
    placement = state.placement
    if placement.dp > 1:
        return [_gather(state, mlp, name)]
    if placement.ep == 1:
        return []
    each = (mlp.latent_size or state.network.hidden_size) * state.base_bytes
    payload = state.tokens * mlp.top_k * each
    sent = formulas.all_to_all_bytes(payload=payload / placement.tp, groups=placement.ep)
    return [
        communication(
            state,
            name,
            sent=sent,
            payload=payload,
            kind=Kind.ALL_TO_ALL,
            ranks=placement.tp,
        )
    ]


def _gather(state: Pass, mlp: MoeMlp, name: str) -> Op:
    """Return the all-gather of every group's rows, or the reduce-scatter of their results."""
    groups = state.placement.dp
    width = mlp.latent_size or state.network.hidden_size
    payload = state.everyone.tokens * width * state.base_bytes
    return communication(
        state,
        name,
        sent=formulas.all_gather_bytes(payload=payload, ranks=groups),
        payload=payload,
        kind=Kind.ALL_GATHER if name == "dispatch" else Kind.REDUCE_SCATTER,
        ranks=groups,
    )
