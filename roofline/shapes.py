"""What a kernel is asked for: the numbers a law needs beyond FLOPs and bytes.

Arrays keep the smallest shape they depend on and broadcast together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from roofline.ops import Array

__all__ = ["AttentionShape", "CollectiveShape", "GemmShape", "MoeShape", "Shape"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmShape:
    """An M x K by K x N product; bytes per element of weights and activations [B]."""

    m: Array
    n: Array
    k: Array
    weight: float
    activation: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionShape:
    """Attention of ``rows`` = G q query rows over each of ``pairs`` = batch x KV heads caches."""

    pairs: Array
    rows: Array
    length: Array  # tokens read, after a window
    context: Array  # tokens cached
    kv_width: int  # cached elements per token and KV head
    mac_width: int  # multiply-adds per row and token
    kv: float  # bytes per cached element [B]
    group: int = 0  # query heads per KV head; 0: one query each, so as many as rows


@dataclass(frozen=True, kw_only=True, slots=True)
class MoeShape:
    """One rank's routed experts; ``tokens`` are those of all ranks together.

    Plain numbers for one model, arrays where many shapes are priced at once.
    """

    tokens: Array
    top_k: Array
    experts: Array
    ranks: Array  # expert-parallel groups
    hidden: Array
    width: Array  # of this rank's shard of one expert
    matrices: Array  # 3 gated, 2 plain
    weight: Array  # bytes per weight, scales included [B]
    distinct: Array  # experts with work on this rank
    awake: Array  # experts with work on all ranks
    rows: Array  # token-expert pairs computed here
    hottest: Array  # rows of the busiest expert
    padded: Array  # rows when every expert's are padded to 16


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveShape:
    """A collective of ``payload`` bytes, the whole tensor of one rank, among ``ranks``."""

    payload: Array
    ranks: int


Shape: TypeAlias = GemmShape | AttentionShape | MoeShape | CollectiveShape
