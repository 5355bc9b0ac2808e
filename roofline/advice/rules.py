"""NVIDIA's five rules for choosing a draft length, with one model's numbers.

docs/explain/five-rules.md cites the article that they are from and says where each holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import Point
from roofline.advice.recommend import Recommendation
from roofline.advice.why import Bound, bound_shares, grid_position
from roofline.base.numbers import LONGEST_DRAFT
from roofline.kernels.formulas import gemm_knee_rows
from roofline.kernels.matrices import local_heads
from roofline.kernels.ops import Part
from roofline.specs.formats import Component, bytes_per_element, rate_name
from roofline.specs.network import MoeMlp, NoAttention, StateMixer

__all__ = [
    "AttentionTile",
    "FastDrafter",
    "Knee",
    "Mechanism",
    "NoCache",
    "NothingDrafted",
    "Rule",
    "WholeTiles",
    "five_rules",
    "latency_speedup",
    "tile_draft_length",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Knee:
    """Rule 1: raise D to the rows at which the linear layers turn compute-bound."""

    product_rows: float  # of one matrix product
    rows: float  # of the batch; more where its rows spread over experts
    batch: int
    experts: bool
    share: float  # of linear layers and experts in a plain step


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionTile:
    """Rule 2: fill the attention tile."""

    tile: int  # rows
    group: int  # query heads per KV head
    share: float  # of attention in a plain step
    speedup: float | None  # at the rule's D; None where there is no answer for it


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeTiles:
    """Rule 3: prefer draft lengths whose rows fill whole tiles."""

    tile: int  # rows
    lengths: tuple[int, ...]  # draft lengths that do, the first three
    rows: int  # that the advised D makes

    @property
    def tiles(self) -> int:
        """The tiles that those rows take."""
        return -(-self.rows // self.tile)


@dataclass(frozen=True, slots=True)
class NoCache:
    """Rules 2 and 3 where no layer keeps a KV cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FastDrafter:
    """Rule 4: where launches are all the time there is, a shallow drafter."""

    drafter_layers: int
    layers: int
    depth_ratio: float
    speedup: float  # idealised
    latency_share: float  # of launches and latencies in a plain pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Mechanism:
    """Rule 5: choose the drafter by what it yields and costs."""

    drafter: str
    draft_length: int
    tokens_per_step: float
    cost: float  # of drafting, as a share of a plain step
    break_even: float  # tokens per step
    free_break_even: float  # the same for a drafter that costs nothing


@dataclass(frozen=True, slots=True)
class NothingDrafted:
    """Rule 5 where nothing is drafted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule with the numbers that it turns on here, and whether it decides here."""

    number: int
    draft_length: int | None  # where the rule names one
    binds: bool
    numbers: Knee | AttentionTile | WholeTiles | NoCache | FastDrafter | Mechanism | NothingDrafted


def tile_draft_length(*, group_size: int, tile: int = 128) -> int:
    """Return the D that fills one attention tile: D = tile / G - 1, rounded down, at least 0.

    G query heads share a KV head, so G (1 + D) rows share the tile's ``tile`` rows. Rule 2 of the
    article writes D = 128 / G - 1.

    >>> [tile_draft_length(group_size=g) for g in (4, 8, 16, 32, 64, 128)]
    [31, 15, 7, 3, 1, 0]
    """
    return max(tile // group_size - 1, 0)


def latency_speedup(tokens_per_step: Array, draft_lengths: Array, *, depth_ratio: float) -> Array:
    """Return AL / (1 + rho D): the speedup where a pass takes as long as launching its layers.

    ``depth_ratio`` rho is the drafter's layers over the target's: one draft pass over one target
    pass. It is the speedup AL / (1 + c D) of Leviathan, Kalman and Matias (2023, Fast Inference
    from Transformers via Speculative Decoding, theorem 3.8) with c = rho.

    >>> latency_speedup(np.array([1.0, 2.5]), np.array([0, 3]), depth_ratio=1 / 12)
    array([1., 2.])
    """
    return np.asarray(tokens_per_step / (1 + depth_ratio * draft_lengths))


def five_rules(answer: Recommendation, point: Point) -> list[Rule]:
    """Return the five rules with the numbers of this point."""
    return [
        _raise_to_the_knee(answer, point),
        *_fill_the_tile(answer, point),
        _fast_drafter(answer, point),
        _choose_the_mechanism(answer, point),
    ]


def _share(point: Point, part: Part) -> float:
    """Return the share of a plain step that a part takes."""
    return float(point.parts[part.value][0] / point.step[0])


def _raise_to_the_knee(answer: Recommendation, point: Point) -> Rule:
    gpu, precision = answer.deployment.gpu, answer.deployment.target.precision
    mixtures = [r.mlp for r in answer.deployment.target.model.layers if isinstance(r.mlp, MoeMlp)]
    component = Component.EXPERTS if mixtures else Component.MLP
    knee = gemm_knee_rows(
        peak=gpu.peak(rate_name(precision.activations[component])),
        bandwidth=gpu.bandwidth,
        weight=bytes_per_element(precision.weights[component]),
    )
    rows = knee * (mixtures[0].num_experts / mixtures[0].top_k) if mixtures else knee
    placement = answer.deployment.target.placement
    batch = point.batch if mixtures else float(placement.local_batch(point.batch))
    length = max(int(rows // batch) - 1, 0)
    linear = _share(point, Part.LINEAR) + _share(point, Part.MOE)
    return Rule(
        number=1,
        draft_length=length,
        binds=linear >= _share(point, Part.ATTENTION) and length < point.draft_lengths[-1],
        numbers=Knee(
            product_rows=knee,
            rows=rows,
            batch=point.batch,
            experts=bool(mixtures),
            share=linear,
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
        return [Rule(number=n, draft_length=None, binds=False, numbers=NoCache()) for n in (2, 3)]
    group = max(groups)
    fills = tile_draft_length(group_size=group, tile=tile)
    rows = group * (1 + point.draft_length)
    whole = [d for d in range(fills, LONGEST_DRAFT + 1) if group * (1 + d) % tile == 0][:3]
    last = point.draft_lengths[-1]
    return [
        Rule(
            number=2,
            draft_length=fills,
            binds=share > 0.5 and fills <= last,
            numbers=AttentionTile(
                tile=tile, group=group, share=share, speedup=_speedup_at(point, fills)
            ),
        ),
        Rule(
            number=3,
            draft_length=whole[0] if whole else None,
            binds=rows > tile and share > 0.5,
            numbers=WholeTiles(tile=tile, lengths=tuple(whole), rows=rows),
        ),
    ]


def _speedup_at(point: Point, draft_length: int) -> float | None:
    """Return the speedup of a draft length; None where it was not tried."""
    if draft_length not in point.draft_lengths:
        return None
    return float(point.speedup[point.draft_lengths.index(draft_length)])


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
    shares = bound_shares(answer.times.verify_ops, grid_position(answer, point, 0))
    return Rule(
        number=4,
        draft_length=point.draft_lengths[best],
        binds=point.batch == 1 and shares[Bound.LATENCY] > 0.5,
        numbers=FastDrafter(
            drafter_layers=layers,
            layers=answer.deployment.target.model.num_layers,
            depth_ratio=depth,
            speedup=float(usable[best]),
            latency_share=shares[Bound.LATENCY],
        ),
    )


def _choose_the_mechanism(answer: Recommendation, point: Point) -> Rule:
    drafting = np.where(point.candidates, point.speedup, -np.inf)[1:]
    if not len(drafting):
        return Rule(number=5, draft_length=None, binds=False, numbers=NothingDrafted())
    i = point.best or int(drafting.argmax()) + 1
    cost = float(point.draft[i] / point.step[0])
    free = (point.step[i] - point.draft[i]) / point.step[0]
    return Rule(
        number=5,
        draft_length=None,
        binds=cost > 0.1,
        numbers=Mechanism(
            drafter=answer.deployment.drafter.name,
            draft_length=point.draft_lengths[i],
            tokens_per_step=float(point.tokens_per_step[i]),
            cost=cost,
            break_even=float(point.cost_ratio[i]),
            free_break_even=float(free),
        ),
    )
