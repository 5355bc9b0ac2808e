"""Matrix-vector kernels: what llama.cpp runs a few rows through, and where it stops.

Up to a limit (8) every row repeats the unpacking and the dot products of the quantised weights on
ordinary cores, partly under the weights' stream; beyond it whole tiles of rows go through the
tensor cores.

More rows never take less time. An engine keeps its matrix-vector kernels up to the limit because
they are the faster ones there, and a tile costs the same for one row as for all of them: so the
first tile takes at least what the limit's rows take, and where constants say otherwise they are
wrong. The rows up to the limit are fitted; the tile is a prior, so it is the one that gives way.
Published times agree: 16 rows of Llama-3-8B in IQ4_NL take 15.3 ms on an RTX 3090 (llama.cpp PR
8278), the arithmetic of 8 rows and not of 3.5. Some builds do get cheaper past the limit (a report
has width 9 of Qwen3.8-27B 26 % below the line of widths 2 to 8): a kernel to mend, no gain to plan
for.
"""

from __future__ import annotations

import numpy as np

from roofline.base.arrays import Array
from roofline.kernels.ops import GemmShape, MoeShape
from roofline.specs.laws import VectorKernels

__all__ = ["by_pairs", "by_tiles", "product_flops", "row_work"]


def row_work(rows: Array, kernels: VectorKernels) -> Array:
    """Return how many rows' work M rows cost: M up to the limit, whole tiles beyond it.

    Never less than those of the limit beyond it.

    >>> row_work(np.array([1.0, 8.0, 9.0, 33.0]), VectorKernels(narrow=7.0, byte=3.0))
    array([ 1. ,  8. ,  8. , 10.5])
    """
    m = np.asarray(rows, dtype=np.float64)
    tiles = np.ceil(m / kernels.tile) * kernels.tile_rows
    return np.where(m <= kernels.limit, m, np.maximum(tiles, kernels.limit))


def product_flops(shape: GemmShape, kernels: VectorKernels) -> Array:
    """Return the arithmetic of a product on ordinary cores, c N K for each row's work [FLOP].

    >>> shape = GemmShape(m=3.0, n=1000, k=1000, weight=0.6, activation=2.0)
    >>> float(product_flops(shape, VectorKernels(narrow=7.0, byte=3.0))) / 1e6
    21.0
    """
    work = row_work(shape.m, kernels) * shape.n * shape.k
    return np.asarray(work * kernels.cost(float(shape.weight)))


def by_pairs(shape: MoeShape, kernels: VectorKernels) -> tuple[Array, Array]:
    """Return the arithmetic [FLOP] and weights [B] of routed experts up to the limit.

    A kernel takes one token and one expert at a time, so two tokens of one expert read it
    twice. More tokens than the limit count as that many.

    >>> flops, moved = by_pairs(two_tokens(), VectorKernels(narrow=7.0, byte=3.0))
    >>> float(flops) / 1e6, float(moved) / 1e6  # 16 pairs x 3 M weights x 7 FLOP, 0.5 B
    (336.0, 24.0)
    """
    pairs = shape.rows * np.minimum(1.0, kernels.limit / np.asarray(shape.tokens))
    return _experts(shape, kernels, read=pairs, rows=pairs)


def by_tiles(shape: MoeShape, kernels: VectorKernels) -> tuple[Array, Array]:
    """Return the same beyond the limit: every awake expert is read once and starts a tile.

    >>> flops, moved = by_tiles(two_tokens(), VectorKernels(narrow=7.0, byte=3.0))
    >>> float(flops) / 1e6, float(moved) / 1e6  # 15.5 experts x 3.5 rows
    (1139.25, 23.25)
    """
    awake = np.minimum(shape.distinct, shape.rows)
    return _experts(shape, kernels, read=awake, rows=awake * kernels.tile_rows)


def _experts(
    shape: MoeShape, kernels: VectorKernels, *, read: Array, rows: Array
) -> tuple[Array, Array]:
    size = shape.matrices * shape.hidden * shape.width
    flops = np.asarray(rows * size * kernels.cost(float(shape.weight)))
    return flops, np.asarray(read * size * shape.weight)


def two_tokens() -> MoeShape:
    """Return the shape of the examples: two tokens choose 8 of 128 experts of 3 M weights."""
    return MoeShape(
        tokens=2.0, top_k=8, experts=128, ranks=1, hidden=1000, width=1000, matrices=3, weight=0.5,
        distinct=15.5, awake=15.5, rows=16.0, hottest=1.0, padded=128.0,
    )  # fmt: skip
