"""The five rules of the source article, with one model's numbers (docs/five-rules.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import Point
from roofline.advice.recommend import Recommendation
from roofline.advice.why import bound_shares, grid_position
from roofline.kernels.formulas import gemm_knee_rows
from roofline.kernels.matrices import local_heads
from roofline.kernels.ops import Part
from roofline.specs.formats import Component, bytes_per_element, rate_name
from roofline.specs.network import MoeMlp, NoAttention, StateMixer

__all__ = ["Rule", "latency_speedup", "rules", "tile_draft_length"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule: what it says here, whether it decides here, and what the whole model says."""

    number: int
    name: str
    says: str
    draft_length: int | None  # where the rule names one
    binds: bool
    model_says: str


def tile_draft_length(*, group_size: int, tile: int = 128) -> int:
    """Return the D that fills one attention tile: tile / G - 1, at least 0.

    >>> [tile_draft_length(group_size=g) for g in (4, 8, 16, 32, 64, 128)]
    [31, 15, 7, 3, 1, 0]
    """
    return max(tile // group_size - 1, 0)


def latency_speedup(tokens_per_step: Array, draft_lengths: Array, *, depth_ratio: float) -> Array:
    """Return AL / (1 + rho D): the speedup where launches of layers are all the time there is.

    rho is the drafter's layers over the target's.

    >>> latency_speedup(np.array([1.0, 2.5]), np.array([0, 3]), depth_ratio=1 / 12)
    array([1., 2.])
    """
    return np.asarray(tokens_per_step / (1 + depth_ratio * draft_lengths))


def rules(answer: Recommendation, point: Point) -> list[Rule]:
    """Return the five rules with the numbers of this point."""
    return [
        _raise_to_the_knee(answer, point),
        *_fill_the_tile(answer, point),
        _fast_drafter(answer, point),
        _choose_the_mechanism(answer, point),
    ]


def _share(point: Point, part: Part) -> float:
    return float(point.parts[part.value][0] / point.step[0])


def _advised(point: Point) -> str:
    return f"{point.draft_length} ({point.speedup[point.best]:.2f}x)"


def _raise_to_the_knee(answer: Recommendation, point: Point) -> Rule:
    gpu, precision = answer.deployment.gpu, answer.deployment.target.precision
    mixtures = [r.mlp for r in answer.deployment.target.model.layers if isinstance(r.mlp, MoeMlp)]
    component = Component.EXPERTS if mixtures else Component.MLP
    knee = gemm_knee_rows(
        peak=gpu.peak(rate_name(precision.activations[component])),
        bandwidth=gpu.bandwidth,
        weight=bytes_per_element(precision.weights[component]),
    )
    rows, what = knee, f"GEMMs turn compute-bound at {knee:.0f} rows"
    if mixtures:
        spread = mixtures[0].num_experts / mixtures[0].top_k
        rows = knee * spread
        what = f"experts turn compute-bound at {knee:.0f} rows each, {rows:.0f} in all"
    placement = answer.deployment.target.placement
    batch = point.batch if mixtures else float(placement.local(point.batch))
    reaches = max(int(rows // batch) - 1, 0)
    linear = _share(point, Part.LINEAR) + _share(point, Part.MOE)
    return Rule(
        number=1,
        name="raise D to the knee of the linear layers",
        says=f"{what}: D = {reaches} at batch {point.batch}",
        draft_length=reaches,
        binds=linear >= _share(point, Part.ATTENTION) and reaches < point.draft_lengths[-1],
        model_says=(
            f"linear layers and experts are {linear:.0%} of a plain step; the best D is "
            f"{_advised(point)}"
        ),
    )


def _fill_the_tile(answer: Recommendation, point: Point) -> list[Rule]:
    placement = answer.deployment.target.placement
    tile, share = placement.tile_rows, _share(point, Part.ATTENTION)
    groups = [
        heads // kv_heads
        for run in answer.deployment.target.model.layers
        if not isinstance(run.attention, StateMixer | NoAttention)
        for heads, kv_heads in [local_heads(run.attention, placement.attention_tp)]
    ]
    if not groups:
        none = "no layer keeps a KV cache"
        return [
            Rule(number=n, name=name, says=none, draft_length=None, binds=False, model_says="-")
            for n, name in ((2, "fill the attention tile"), (3, "prefer whole tiles"))
        ]
    group = max(groups)
    fills = tile_draft_length(group_size=group, tile=tile)
    rows = group * (1 + point.draft_length)
    whole = [d for d in range(fills, 65) if group * (1 + d) % tile == 0][:3]
    last = point.draft_lengths[-1]
    return [
        Rule(
            number=2,
            name="fill the attention tile",
            says=f"D = {tile} / G - 1 = {tile} / {group} - 1 = {fills}",
            draft_length=fills,
            binds=share > 0.5 and fills <= last,
            model_says=(
                f"attention is {share:.0%} of a plain step; D = {fills} gives {_at(point, fills)}"
            ),
        ),
        Rule(
            number=3,
            name="prefer whole tiles",
            says=f"G (1 + D) a multiple of {tile}: D = {', '.join(map(str, whole)) or 'none'}",
            draft_length=whole[0] if whole else None,
            binds=rows > tile and share > 0.5,
            model_says=f"the advised D makes {rows} rows, {-(-rows // tile)} tile(s) of {tile}",
        ),
    ]


def _at(point: Point, draft_length: int) -> str:
    if draft_length not in point.draft_lengths:
        return "no answer: nothing is known of its acceptance, or it was not tried"
    return f"{point.speedup[point.draft_lengths.index(draft_length)]:.2f}x"


def _fast_drafter(answer: Recommendation, point: Point) -> Rule:
    network = answer.deployment.drafter.network
    layers = 0 if network is None else network.num_layers
    depth = layers / answer.deployment.target.model.num_layers
    usable = np.where(
        point.feasible,
        latency_speedup(point.tokens_per_step, np.array(point.draft_lengths), depth_ratio=depth),
        -np.inf,
    )
    best = int(usable.argmax())
    waits = bound_shares(answer.times.verify_ops, grid_position(answer, point, 0))["latency"]
    return Rule(
        number=4,
        name="at very low latency, a fast drafter",
        says=(
            f"AL / (1 + rho D), rho = {layers} / {answer.deployment.target.model.num_layers} = "
            f"{depth:.3f}: D = {point.draft_lengths[best]}, {usable[best]:.2f}x idealised"
        ),
        draft_length=point.draft_lengths[best],
        binds=point.batch == 1 and waits > 0.5,
        model_says=(
            f"launches and latencies are {waits:.0%} of a plain pass; the best D is "
            f"{_advised(point)}"
        ),
    )


def _choose_the_mechanism(answer: Recommendation, point: Point) -> Rule:
    drafting = np.where(point.candidates, point.speedup, -np.inf)[1:]
    if not len(drafting):
        says = "nothing is drafted"
        return Rule(
            number=5,
            name="choose the drafter by yield and cost",
            says=says,
            draft_length=None,
            binds=False,
            model_says="name drafters to `roofline compare`",
        )
    i = point.best or int(drafting.argmax()) + 1
    cost = float(point.draft[i] / point.step[0])
    free = (point.step[i] - point.draft[i]) / point.step[0]
    return Rule(
        number=5,
        name="choose the drafter by yield and cost",
        says=(
            f"{answer.deployment.drafter.name} yields {point.tokens_per_step[i]:.2f} tokens per "
            f"step at D = {point.draft_lengths[i]} for {cost:.0%} of a plain step"
        ),
        draft_length=None,
        binds=cost > 0.1,
        model_says=(
            f"it must yield {point.cost_ratio[i]:.2f} to break even, a free drafter {free:.2f}; "
            "`roofline compare` sets drafters side by side"
        ),
    )
