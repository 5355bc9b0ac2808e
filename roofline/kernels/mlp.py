"""The MLP half of a layer as kernels: dense, and mixtures of experts."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array
from roofline.kernels import formulas
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

__all__ = [
    "ROW_TILE",
    "ExpertRows",
    "distinct_experts",
    "distinct_values",
    "expert_rows",
    "inclusion_probabilities",
    "independent_tokens",
    "mlp_block",
    "rows_of_experts",
]

#: Rows that an expert's kernel tile is padded to.
ROW_TILE = 16
#: Passes whose experts are looked at together: they stay in a core's cache.
ROWS_AT_ONCE = 64


class ExpertRows(NamedTuple):
    """How rows fall on experts: how many are awake, the busiest one's rows, and padded rows."""

    distinct: Array
    hottest: Array
    padded: Array


def independent_tokens(*, batch: Array, rows: Array, correlation: Array) -> Array:
    """Return how many independent choices of experts B q tokens make: B (1 + (q - 1) (1 - c)).

    ``correlation`` c is the chance that a draft token goes where the one before it went.

    >>> independent_tokens(batch=4, rows=4, correlation=0.0)
    16.0
    """
    return batch * (1 + (rows - 1) * (1 - correlation))


def expert_rows(
    *, experts: int, top_k: int, tokens: Array, independent: Array, skew: float = 0.0
) -> ExpertRows:
    """Return how the T k rows of T tokens fall on the experts, expected over tokens.

    With pi_e the chance that a token picks expert e and ``independent`` T' <= T choices among the
    tokens: distinct = sum 1 - (1 - pi_e)^T', hottest = max(T max pi_e, 1), and padded to tiles of
    16 = sum max(16 (1 - (1 - pi_e)^T'), T pi_e + 7.5 [T pi_e > 16]).

    >>> float(expert_rows(experts=8, top_k=2, tokens=1.0, independent=1.0).padded)
    32.0
    """
    chance = inclusion_probabilities(experts=experts, top_k=top_k, skew=skew)
    shape = np.broadcast_shapes(np.shape(tokens), np.shape(independent))
    total, choices = (np.broadcast_to(x, shape).ravel() for x in (tokens, independent))
    back: NDArray[np.intp] | slice = slice(None)
    if np.array_equal(total, choices):
        total, back = distinct_values(total)
        choices = total
    loads = [
        _loads(chance, total[part], choices[part])
        for part in (slice(i, i + ROWS_AT_ONCE) for i in range(0, len(total), ROWS_AT_ONCE))
    ]
    distinct, hottest, padded = (
        np.concatenate(column)[back].reshape(shape) for column in zip(*loads, strict=True)
    )
    return ExpertRows(distinct=distinct, hottest=hottest, padded=padded)


def _loads(
    chance: NDArray[np.float64], tokens: NDArray[np.float64], choices: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return distinct experts, the hottest one's rows and padded rows of a list of passes."""
    missed = np.log1p(-np.minimum(chance, 1 - 1e-16))  # a power by exp: ten times as quick
    awake = -np.expm1(choices[:, None] * missed)
    mean = tokens[:, None] * chance
    tiles = np.maximum(ROW_TILE * awake, mean + (ROW_TILE - 1) / 2 * (mean > ROW_TILE))
    hottest = np.maximum(tokens * chance.max(), 1.0)
    return awake.sum(axis=-1), hottest, tiles.sum(axis=-1)


def distinct_values(values: Array) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the different values, and where each of ``values`` lies among them (flat).

    A batch of 8 with 3 drafts has the rows of a batch of 4 with 7, so long laws are asked once.

    >>> distinct_values(np.array([[2.0, 1.0], [1.0, 2.0]]))
    (array([1., 2.]), array([1, 0, 0, 1]))
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    return _distinct(flat.tobytes())


@lru_cache(maxsize=16)
def _distinct(raw: bytes) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the same for the bytes of the values: the kernels of one pass share their rows."""
    values, back = np.unique(np.frombuffer(raw), return_inverse=True)
    return values, back.reshape(-1)


def distinct_experts(*, experts: int, top_k: int, tokens: Array, skew: float = 0.0) -> Array:
    """Return the expected number of distinct experts that T tokens choose.

    Uniform: E (1 - (1 - k / E)^T), the k of one token drawn without replacement (MoESD,
    arXiv 2505.19645). With ``skew`` s > 0 expert r is chosen with probability pi_r proportional to
    r^-s (capped at 1, summing to k), and the sum of 1 - (1 - pi_r)^T is taken.

    >>> round(float(distinct_experts(experts=512, top_k=10, tokens=4)), 2)
    38.84
    """
    if skew == 0.0:
        return experts * (1 - (1 - top_k / experts) ** np.asarray(tokens, dtype=float))
    chance = inclusion_probabilities(experts=experts, top_k=top_k, skew=skew)
    missed = (1 - chance) ** np.asarray(tokens, dtype=float)[..., None]
    return np.asarray((1 - missed).sum(axis=-1))


def inclusion_probabilities(*, experts: int, top_k: int, skew: float) -> NDArray[np.float64]:
    """Return each expert's chance to be among a token's k, popularity proportional to rank^-s.

    Experts that would exceed certainty are capped at 1 and the rest scaled up, so the sum stays k.

    >>> chance = inclusion_probabilities(experts=8, top_k=2, skew=1.0)
    >>> round(float(chance.sum()), 6), round(float(chance[0] / chance[1]), 6)
    (2.0, 2.0)
    """
    weight = np.arange(1, experts + 1, dtype=float) ** -skew
    capped = 0
    while True:
        rest = weight[capped:]
        scale = (top_k - capped) / rest.sum()
        if scale * rest[0] <= 1 or capped == top_k:
            break
        capped += 1
    return np.concatenate([np.ones(capped), np.minimum(scale * weight[capped:], 1.0)])


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


def rows_of_experts(state: Pass, mlp: MoeMlp) -> ExpertRows:
    """Return how the rows of a pass fall on the experts of all ranks."""
    state, routing = state.over_all_groups, state.placement.routing
    return expert_rows(
        experts=mlp.num_experts,
        top_k=mlp.top_k,
        tokens=state.tokens,
        independent=state.extra_rows
        + independent_tokens(batch=state.batch, rows=state.rows, correlation=routing.correlation),
        skew=routing.skew,
    )


def _experts(state: Pass, mlp: MoeMlp) -> Op:
    """Return the routed experts of one rank as one grouped kernel.

    Every awake expert's weights are read once; of the T k token-expert pairs a rank computes its
    EP group's share, on its TP slice of each expert.
    """
    state = state.over_all_groups
    placement, hidden = state.placement, state.network.hidden_size
    load = rows_of_experts(state, mlp)
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
    row_bytes = (mlp.latent_size or state.network.hidden_size) * state.base_bytes
    payload = state.tokens * mlp.top_k * row_bytes
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
    payload = state.over_all_groups.tokens * width * state.base_bytes
    return communication(
        state,
        name,
        sent=formulas.all_gather_bytes(payload=payload, ranks=groups),
        payload=payload,
        kind=Kind.ALL_GATHER if name == "dispatch" else Kind.REDUCE_SCATTER,
        ranks=groups,
    )
