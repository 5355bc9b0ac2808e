"""What no kernel can do, whatever its fitted law says.

A fitted law may promise more than the machine has, or let time fall where a product gets more rows.
These rules hold for every kernel. Laws are scored without them as well (``Machine.guarded``).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array

__all__ = ["between_envelopes", "roofline_seconds", "row_edges"]

#: Rows that laws of products are compared over at the least, and beyond the most rows: two tiles.
COMPARED, BEYOND = 1024, 512
#: Where they have steps, as (first, last, apart) [rows]: bands of rows, then tiles.
BANDS, TILES = (16, 32, 16), (64, 2**40, 64)
#: Tiles cut short for few rows.
SHORT_TILES = ((16, 256, 16), (320, 2**40, 64))


def roofline_seconds(*, flops: Array, bytes: Array, peak: float, bandwidth: float) -> Array:
    """Return the least time of a kernel: max(FLOP / peak, bytes / bandwidth) [s].

    ``flops`` [FLOP] and ``bytes`` [B] broadcast; ``peak`` [FLOP/s] is the dense one at the highest
    clock and ``bandwidth`` [B/s] that of the datasheet (S. Williams, A. Waterman, D. Patterson,
    "Roofline", CACM 52(4), 2009). In a pass the weights and caches of other layers have passed
    through L2 since, so nothing is taken to be found there.

    >>> float(roofline_seconds(flops=2e9, bytes=3e6, peak=1e15, bandwidth=1e12))
    3e-06
    """
    return np.maximum(np.asarray(flops) / peak, np.asarray(bytes) / bandwidth)


@cache
def row_edges(most: int, *, short_tiles: bool = False) -> NDArray[np.float64]:
    """Return the rows on both sides of every step of a product's law.

    They end BEYOND ``most`` rows, so that a time does not depend on what else is asked.

    >>> row_edges(8)[:8], row_edges(8, short_tiles=True)[4:10]
    (array([ 1., 16., 17., 32., 33., 64., 65., 128.]), array([33., 48., 49., 64., 65., 80.]))
    """
    edges = [1.0]
    for first, last, apart in SHORT_TILES if short_tiles else (BANDS, TILES):
        for step in range(first, last + 1, apart):
            edges.append(float(step))
            if step > max(most, COMPARED) + BEYOND:
                return np.array(edges)
            edges.append(float(step + 1))
    raise AssertionError("the last steps have no end")


def between_envelopes(
    rows: NDArray[np.float64],
    seconds: NDArray[np.float64],
    *,
    edges: NDArray[np.float64],
    at_edges: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return times that never fall as rows grow, midway between the two nearest that do not [s].

    t = sqrt(a b), a = max(t(M), the longest at any edge up to M), b = min(t(M), the shortest at any
    edge from M on). Both envelopes rise with M, so t does; where the law itself does not fall, a =
    b = t(M). ``edges`` are rows in ascending order, among them both sides of every step of the
    law, and ``at_edges`` the law's times there.

    A step down from 9 to 4 between 16 and 17 rows: both are sqrt(9 x 4).

    >>> edges, at_edges = np.array([1.0, 16.0, 17.0, 64.0]), np.array([1.0, 9.0, 4.0, 16.0])
    >>> between_envelopes(np.array([16.0, 17.0, 64.0]), np.array([9.0, 4.0, 16.0]), edges=edges,
    ...                   at_edges=at_edges)
    array([ 6.,  6., 16.])
    """
    longest = np.maximum.accumulate(at_edges)
    shortest = np.minimum.accumulate(at_edges[::-1])[::-1]
    below = np.searchsorted(edges, rows, side="right") - 1
    above = np.searchsorted(edges, rows, side="left")
    known = above < len(edges)
    before = np.maximum(seconds, longest[np.maximum(below, 0)])
    after = np.minimum(seconds, np.where(known, shortest[np.where(known, above, 0)], np.inf))
    return np.asarray(np.where(before > after, np.sqrt(before * after), seconds))
