"""Matrix-vector kernels: what llama.cpp runs a few rows through, and where it stops.

Up to a limit (8) every row repeats the unpacking and the dot products of the quantised weights on
ordinary cores, partly under the weights' stream; beyond it whole tiles of rows go through the
tensor cores.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from roofline.ops import Array
from roofline.shapes import GemmShape, MoeShape

__all__ = ["VectorKernels"]

Cost = Annotated[float, Field(ge=0, le=100)]


class VectorKernels(BaseModel):
    """FLOP that a row costs for each weight, by how wide the weight is stored."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    narrow: Cost  # under 7 bits: unpacked from blocks with scales of scales (Q2_K to Q6_K)
    byte: Cost  # 7 to 10 bits: one scale for a block (Q8_0)
    wide: Cost = 1.0  # 16 bits: a multiply-add, half of it under the loads
    limit: Annotated[int, Field(ge=1, le=512)] = 8  # rows
    tile: Annotated[int, Field(ge=1, le=512)] = 16  # rows of one tile beyond the limit
    tile_rows: Annotated[float, Field(ge=0, le=64)] = 3.5  # what a tile costs, in rows
    #: Exponent with which the rows' arithmetic and the weights' stream combine.
    overlap: Annotated[float, Field(ge=1, le=8)] = 2.0

    def cost(self, weight: float) -> float:
        """Return the FLOP per weight and row for weights of ``weight`` bytes.

        >>> VectorKernels(narrow=7.0, byte=3.0).cost(0.6)
        7.0
        """
        bits = 8 * weight
        return self.narrow if bits < 7 else self.byte if bits < 10 else self.wide

    def row_work(self, rows: Array) -> Array:
        """Return how many rows' work M rows cost: M up to the limit, whole tiles beyond it.

        >>> kernels = VectorKernels(narrow=7.0, byte=3.0)
        >>> kernels.row_work(np.array([1.0, 8.0, 9.0, 17.0]))
        array([1. , 8. , 3.5, 7. ])
        """
        m = np.asarray(rows, dtype=np.float64)
        return np.where(m <= self.limit, m, np.ceil(m / self.tile) * self.tile_rows)

    def flops(self, shape: GemmShape | MoeShape) -> Array:
        """Return the arithmetic of a product or of routed experts on ordinary cores [FLOP].

        c N K for each row's work; of experts, every token-expert pair is a row up to the limit,
        and every awake expert starts a tile beyond it.

        >>> shape = GemmShape(m=3.0, n=1000, k=1000, weight=0.6, activation=2.0)
        >>> float(VectorKernels(narrow=7.0, byte=3.0).flops(shape)) / 1e6
        21.0
        """
        if isinstance(shape, GemmShape):
            work = self.row_work(shape.m) * shape.n * shape.k
        else:
            pairs = np.asarray(shape.rows)
            tiles = np.minimum(shape.distinct, pairs) * self.tile_rows
            few = np.asarray(shape.tokens) <= self.limit
            size = shape.matrices * shape.hidden * shape.width
            work = np.where(few, pairs, tiles) * size
        return np.asarray(work * self.cost(float(shape.weight)))

    def expert_bytes(self, shape: MoeShape) -> Array:
        """Return the expert weights that a pass reads: each token's up to the limit.

        A matrix-vector kernel takes one token and one expert at a time, so two tokens of one expert
        read it twice; tiles read every awake expert once. [B]

        >>> shape = MoeShape(tokens=2.0, top_k=8, experts=128, ranks=1, hidden=1000, width=1000,
        ...     matrices=3, weight=0.5, distinct=15.5, awake=15.5, rows=16.0, hottest=1.0,
        ...     padded=128.0)
        >>> float(VectorKernels(narrow=7.0, byte=3.0).expert_bytes(shape)) / 1e6  # 16 x 3 x 0.5 MB
        24.0
        """
        size = shape.matrices * shape.hidden * shape.width * shape.weight
        few = np.asarray(shape.tokens) <= self.limit
        return np.where(few, shape.rows, np.minimum(shape.distinct, shape.rows)) * size
