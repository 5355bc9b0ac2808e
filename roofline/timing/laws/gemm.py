"""The GEMM law: tiles, waves, and the weights streaming beside them.

A kernel cuts the M x N output into tiles of tm x tn, gives each tile (or each of the S slices of
its reduction) to one SM, and streams the weights meanwhile. Of the tiles its library offers, it
takes the one that ends first.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array
from roofline.kernels.ops import GemmShape
from roofline.specs.laws import ROW_EDGES, GemmLaw, TileSet
from roofline.timing.laws.simple import Device, KernelTime, combine

__all__ = ["between_envelopes", "gemm_time", "row_edges"]

SHORT = 16  # rows of the shortest tile
K_STEP = 64  # reduction elements of one step of a tile's loop
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
_WIDTHS = tuple(range(16, 257, 16))

#: The tiles (rows, columns) that a family of libraries offers. Only "split" may slice K (cuBLAS).
TILES: dict[TileSet, tuple[tuple[int, int], ...]] = {
    "split": ((64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 256)),
    "wide": ((128, 64), (128, 128), (128, 256), (256, 64), (256, 128), (256, 256)),
    "any": tuple((128, width) for width in _WIDTHS),
    "fine": tuple((height, width) for height in (64, 128) for width in _WIDTHS),
    "pair": ((128, 256),),
    "static": tuple((height, width) for height in (64, 128, 256) for width in (64, 128, 256)),
}


@cache
def _choices(tiles: TileSet) -> tuple[NDArray[np.float64], ...]:
    """Return tm, tn, S of every choice, and the rows each is given to, on a leading axis."""
    slices = _SPLITS if tiles == "split" else (1,)
    heights = sorted({tm for tm, _ in TILES[tiles]})
    rows = []
    for (tm, tn), s in product(TILES[tiles], slices):
        above = heights.index(tm)
        low = heights[above - 1] if tiles == "static" and above else 0
        high = np.inf if tiles != "static" or tm == heights[-1] else tm
        rows.append((tm, tn, s, low, high))
    columns = np.array(rows, dtype=np.float64).T
    return tuple(columns)


@cache
def _heights(tiles: TileSet) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the different heights of tiles, and which of them each choice has."""
    return np.unique(_choices(tiles)[0], return_inverse=True)


def loop_seconds(
    shape: GemmShape, device: Device, law: GemmLaw, *, staircase: bool, short_tiles: bool = False
) -> Array:
    """Return the time of the tiles' K loops if memory never stalled them [s].

    min over (tm, tn, S) of  waves (K / (64 S) step + edge tm tn / 128^2) + [S > 1] (split + ...),
    step = hypot(latency, 2 tm tn 64 / (peak / SMs compute_eff)) (1 + pad empty rows / tile rows),
    waves = q ceil(x) + (1 - q) max(1, x), x = ceil(M / tm) ceil(N / tn) S / SMs.
    ``short_tiles`` lets a part with less arithmetic than the one the law was fitted on compute no
    more than the rows in blocks of 16, in a lone tile and in the last of several; empty rows would
    otherwise cost it more than the weights do.

    One SM that takes 1 us for 64 steps of a 128 x 256 tile: two tiles of K = 128 are 2 x 2 us.

    >>> device = Device(bandwidth=1e12, peak=2 * 128 * 256 * 64 * 1e6, units=1, l2=0.0, link=1.0)
    >>> law = GemmLaw(tiles="pair", latency=0.0, compute_eff=1.0, edge=0.0, pad=0.0)
    >>> shape = GemmShape(m=128.0, n=512, k=128, weight=2.0, activation=2.0)
    >>> round(1e6 * float(loop_seconds(shape, device, law, staircase=True)), 6)
    4.0
    """
    m = np.asarray(shape.m, dtype=np.float64)
    deep = (-1,) + (1,) * m.ndim
    tm, tn, s, low, high = (column.reshape(deep) for column in _choices(law.tiles))
    count = np.ceil if staircase else _at_least_one
    q, pad = (law.q, law.pad) if staircase else (0.0, 0.0)
    # what depends on a tile's height alone is worked out once for each height
    heights, which = _heights(law.tiles)
    heights = heights.reshape(deep)
    tile_rows = np.asarray(count(m / heights))
    # with short tiles whole blocks of 16 are computed: inside one, more rows change nothing
    computed = SHORT * np.ceil(m / SHORT) if short_tiles else m
    padded = 1.0 + pad * np.maximum(1 - computed / (tile_rows * heights), 0.0)
    height = np.minimum(tm, computed / tile_rows[which]) if short_tiles else tm
    matrix = 2 * height * tn * K_STEP / (device.peak / device.units * law.compute_eff)
    steps = count(shape.k / K_STEP / s) * np.hypot(law.latency, matrix)
    x = tile_rows[which] * (count(shape.n / tn) * s / device.units)
    loop = np.maximum(x, 1.0)
    if q != 0:
        loop *= 1 - q
        loop += q * np.ceil(x)
    loop *= steps * padded[which] + law.edge * tm * tn / 128**2
    sliced = s > 1
    slice_bytes = law.traffic * s * 4 * shape.n / device.bandwidth
    loop += np.where(sliced, law.split, 0.0) + np.where(sliced, slice_bytes, 0.0) * m
    if law.tiles == "static":
        loop = np.where((m > low) & (m <= high), loop, np.inf)
    return np.asarray(loop.min(axis=0))


def _at_least_one(x: Array) -> Array:
    return np.maximum(x, 1.0)


def stream_seconds(shape: GemmShape, device: Device, law: GemmLaw, *, warm: bool) -> Array:
    """Return the time of the weight stream, inputs and outputs included [s].

    (N K b_w + M K b_a + 2 M N) / (BW mem_eff). ``warm`` weights that fit L2 are read faster, as in
    a benchmark that repeats one GEMM; in a model other layers have evicted them.

    >>> device = Device(bandwidth=4.8e12, peak=989.4e12, units=132, l2=60e6, link=450e9)
    >>> shape = GemmShape(m=1.0, n=8192, k=8192, weight=2.0, activation=2.0)
    >>> law = GemmLaw(mem_eff=0.85)
    >>> round(1e6 * float(stream_seconds(shape, device, law, warm=False)), 1)  # 134 MB at 4.08 TB/s
    32.9
    """
    m = np.asarray(shape.m, dtype=np.float64)
    weights = shape.n * shape.k * shape.weight
    moved = weights + m * shape.k * shape.activation + 2.0 * m * shape.n
    reuse: Array = 1.0
    if warm and law.l2_fit > 0:
        reuse = 1.0 + (1 / law.l2_gain - 1) / (1 + (weights / law.l2_fit) ** 8)
    return np.asarray(moved / (device.bandwidth * law.mem_eff) * reuse)


def gemm_time(
    shape: GemmShape,
    device: Device,
    law: GemmLaw,
    *,
    staircase: bool = True,
    warm: bool = False,
    short_tiles: bool = False,
) -> KernelTime:
    """Return the time of one GEMM.

    t = floor + act 2 M K / BW + ((c(M) loop)^r + stream^r)^(1/r). Without the ``staircase`` c = 1,
    pad = 0 and nothing is rounded up: that law never falls when M, N or K grow. A band's c was
    fitted on whole tiles, part of whose rows are empty; of ``short_tiles`` none are, and c loop is
    no less than the arithmetic, 2 M N K / (peak min(compute_eff, 1)).

    >>> device = Device(bandwidth=4.8e12, peak=989.4e12, units=132, l2=60e6, link=450e9)
    >>> shape = GemmShape(m=1.0, n=8192, k=8192, weight=2.0, activation=2.0)
    >>> time = gemm_time(shape, device, GemmLaw(mem_eff=0.85))
    >>> round(1e6 * float(time.memory), 1)  # 134 MB at 85 % of 4.8 TB/s
    32.9
    """
    m = np.asarray(shape.m, dtype=np.float64)
    loop = loop_seconds(shape, device, law, staircase=staircase, short_tiles=short_tiles)
    arithmetic = 2 * m * shape.n * shape.k / (device.peak * law.compute_eff)
    if staircase:
        factor = np.append(law.c, 1.0)[np.searchsorted(ROW_EDGES, m)]
        least = arithmetic * max(law.compute_eff, 1.0)  # a fitted share may exceed 1
        loop = np.maximum(factor * loop, least) if short_tiles else factor * loop
    memory = stream_seconds(shape, device, law, warm=warm)
    activation = law.act * 2 * m * shape.k / device.bandwidth
    return KernelTime(
        floor=law.floor,
        memory=memory,
        compute=np.minimum(arithmetic, loop),
        total=law.floor + activation + combine(loop, memory, law.r),
    )


#: Rows that laws of products are compared over at the least, and beyond the most rows: two tiles.
COMPARED, BEYOND = 1024, 512
#: Where they have steps, as (first, last, apart) [rows]: bands of rows, then tiles.
BAND_STEPS, TILE_STEPS = (16, 32, 16), (64, 2**40, 64)
#: Tiles cut short for few rows.
SHORT_TILE_STEPS = ((16, 256, 16), (320, 2**40, 64))


@cache
def row_edges(most: int, *, short_tiles: bool = False) -> NDArray[np.float64]:
    """Return the rows on both sides of every step of a product's law.

    They end BEYOND ``most`` rows, so that a time does not depend on what else is asked.

    >>> row_edges(8)[:8], row_edges(8, short_tiles=True)[4:10]
    (array([ 1., 16., 17., 32., 33., 64., 65., 128.]), array([33., 48., 49., 64., 65., 80.]))
    """
    edges = [1.0]
    for first, last, apart in SHORT_TILE_STEPS if short_tiles else (BAND_STEPS, TILE_STEPS):
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

    With a the longest at any edge up to M and b the shortest at any edge from M on, which both rise
    with M: t(M) kept between a and b where a <= b, else sqrt(a b). A law that does not fall is not
    changed. ``edges`` are rows in ascending order, among them both sides of
    every step of the law, and ``at_edges`` the law's times there.

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
    low = longest[np.maximum(below, 0)]
    high = np.where(known, shortest[np.where(known, above, 0)], np.inf)
    return np.asarray(np.where(low > high, np.sqrt(low * high), np.clip(seconds, low, high)))
