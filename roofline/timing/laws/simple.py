"""What every law takes and returns, and the short laws.

They are the five-number law, the step of a recurrent state, matrix-vector kernels (what llama.cpp
runs a few rows through, and where it stops) and all-reduce (the fastest of three algorithms).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from roofline.base.numbers import Array
from roofline.kernels.ops import CollectiveShape, GemmShape, MoeShape
from roofline.specs.laws import (
    CollectiveAlgorithm,
    CollectiveLaw,
    SimpleLaw,
    StateLaw,
    VectorKernels,
)

__all__ = [
    "Device",
    "KernelTime",
    "by_pairs",
    "by_tiles",
    "collective_time",
    "combine",
    "exchange_time",
    "in_turn",
    "product_flops",
    "roofline_seconds",
    "row_work",
    "simple_time",
    "staircase",
    "state_time",
    "wire_factor",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """The datasheet figures a law needs. ``units`` are SMs or CUs, 0 where unknown."""

    bandwidth: float  # [B/s]
    peak: float  # dense, at the rate the kernel computes in [FLOP/s]
    units: int
    l2: float  # [B]
    link: float  # per direction [B/s]


class KernelTime(NamedTuple):
    """One launch [s]. ``memory`` and ``compute`` are what each alone would take.

    ``floor`` is the launch and its tail, the part that an engine's graphs may hide or stretch.
    """

    floor: Array
    memory: Array
    compute: Array
    total: Array

    @property
    def latency(self) -> Array:
        """Return what neither traffic nor arithmetic explains [s]."""
        return self.total - np.maximum(self.memory, self.compute)


def combine(first: Array, second: Array, power: Array) -> Array:
    """Return (a^p + b^p)^(1/p) without overflow: p = 1 adds, large p takes the longer.

    >>> float(combine(3.0, 4.0, 2.0))
    5.0
    """
    longer = np.asarray(np.maximum(first, second))
    share = np.asarray(np.minimum(first, second) / np.maximum(longer, TINIEST))
    squarings = _SQUARINGS.get(power) if isinstance(power, float) else None
    if squarings is None:
        return np.asarray(longer * (1 + share**power) ** (1 / np.asarray(power)))
    for _ in range(squarings):
        np.multiply(share, share, out=share)
    np.add(share, 1.0, out=share)
    for _ in range(squarings):
        np.sqrt(share, out=share)
    return np.asarray(np.multiply(longer, share, out=share))


TINIEST = 1e-300  # [s]
#: Powers that are squared for: several times quicker than a power.
_SQUARINGS = {2.0: 1, 4.0: 2, 8.0: 3}


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


def staircase(rows: Array, steps: tuple[tuple[float, float], ...]) -> Array:
    """Return c(M): 1 without steps, the end's factor beyond the rows that were measured.

    >>> float(staircase(4.0, ((2.0, 3.0), (8.0, 1.0))))
    2.0
    """
    if not steps:
        return 1.0
    known, factors = np.array(steps).T
    return np.asarray(np.interp(np.log(rows), np.log(known), factors))


def simple_time(
    *,
    flops: Array,
    bytes: Array,
    reduction: Array,
    peak: float,
    bandwidth: float,
    law: SimpleLaw,
    rows: Array | None = None,
    work: Array | None = None,
) -> KernelTime:
    """Return the time of one launch under the five-number law.

    t = floor + c (serial K / 64 + (t_mem^p + t_comp^p)^(1/p)), with t_mem = bytes / (bandwidth
    mem_eff) and t_comp = FLOP / (peak compute_eff). ``peak`` [FLOP/s] and ``bandwidth`` [B/s] are
    datasheet figures. Arguments broadcast. c is the law's staircase at ``rows``, 1 where they are
    not given; without it time never falls when FLOPs or bytes grow. ``work`` [FLOP] is the size of
    one product of the kernel, where the law has a factor of its own for small ones.

    >>> law = SimpleLaw(floor=2e-6, mem_eff=0.5, compute_eff=0.5, overlap=1.0)
    >>> time = simple_time(flops=1e9, bytes=1e6, reduction=0, peak=1e15, bandwidth=1e12, law=law)
    >>> round(1e6 * float(time.total), 3)  # 2 + 2 + 2 microseconds
    6.0
    """
    memory = np.asarray(bytes) / (bandwidth * law.mem_eff)
    compute = np.asarray(flops) / (peak * law.compute_eff)
    serial = law.serial * np.asarray(reduction) / 64
    factor = 1.0 if rows is None else staircase(rows, law.steps)
    if rows is not None and work is not None and law.small > 0:
        factor = np.where(np.asarray(work) <= law.small, law.small_factor, factor)
    body = combine(memory, compute, law.overlap)
    return KernelTime(
        floor=law.floor,
        memory=memory,
        compute=compute,
        total=law.floor + factor * (serial + body),
    )


def in_turn(each: KernelTime, turns: Array) -> KernelTime:
    """Return the time of a kernel whose loop runs ``turns`` times, one after the other.

    A turn cannot begin before the last one's state is written, so its latency is paid in each.

    >>> once = KernelTime(floor=1e-6, memory=2e-6, compute=0.0, total=3e-6)
    >>> round(1e6 * float(in_turn(once, 4.0).total), 3)
    12.0
    """
    return KernelTime(
        floor=each.floor,
        memory=np.asarray(each.memory * turns),
        compute=np.asarray(each.compute * turns),
        total=np.asarray(each.total * turns),
    )


def state_time(*, moved: Array, device: Device, law: StateLaw, resident: Array = 0.0) -> KernelTime:
    """Return the time [s] to move ``moved`` bytes of state and tokens once [B].

    t = (floor^r + (bytes (1 - l2_saving resident) / (BW mem_eff))^r)^(1/r). There is no arithmetic
    term: the update is about one FLOP per byte. ``resident`` is the share a benchmark finds in L2.

    >>> device = Device(bandwidth=4.8e12, peak=1.0, units=132, l2=60e6, link=450e9)
    >>> law = StateLaw(floor=3e-6, mem_eff=1.0, r=2.0)
    >>> round(1e6 * float(state_time(moved=19.2e6, device=device, law=law).total), 3)  # 3, 4 -> 5
    5.0
    """
    kept = np.asarray(moved) * (1 - law.l2_saving * np.asarray(resident))
    transfer = np.asarray(kept / (device.bandwidth * law.mem_eff))
    return KernelTime(
        floor=law.floor,
        memory=transfer,
        compute=np.zeros_like(transfer),
        total=combine(np.full_like(transfer, law.floor), transfer, law.r),
    )


def row_work(rows: Array, kernels: VectorKernels) -> Array:
    """Return how many rows' work M rows cost: each its own up to the limit, whole tiles beyond it.

    Never less than the rows of the limit.

    >>> row_work(np.array([1.0, 8.0, 9.0, 33.0]), VectorKernels(narrow=7.0, byte=3.0))
    array([ 1. ,  8. ,  8. , 10.5])
    """
    m = np.asarray(rows, dtype=np.float64)
    few = np.minimum(m, kernels.limit)
    tiles = np.ceil(m / kernels.tile) * kernels.tile_rows
    return np.where(m <= kernels.limit, few, np.maximum(tiles, few))


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
        tokens=2.0,
        top_k=8,
        experts=128,
        ranks=1,
        hidden=1000,
        width=1000,
        matrices=3,
        weight=0.5,
        distinct=15.5,
        awake=15.5,
        rows=16.0,
        hottest=1.0,
        padded=128.0,
    )


def wire_factor(form: CollectiveAlgorithm, ranks: int) -> float:
    """Return the bytes over a rank's link per byte of the tensor.

    One-shot: every rank reads all its peers' tensors, n - 1. Two-shot and NCCL's bulk path:
    reduce-scatter and all-gather, 2 (n - 1) / n.

    >>> wire_factor("one_shot", 4), wire_factor("two_shot", 4)
    (3.0, 1.5)
    """
    return float(ranks - 1) if form == "one_shot" else 2 * (ranks - 1) / ranks


def collective_time(shape: CollectiveShape, device: Device, law: CollectiveLaw) -> KernelTime:
    """Return the time of an all-reduce of S bytes: min over forms of start + w S / (link share).

    >>> from roofline.specs.laws import CollectiveConstants
    >>> device = Device(bandwidth=3.35e12, peak=1.0, units=132, l2=50e6, link=450e9)
    >>> one = CollectiveConstants(start={"one_shot": 5e-6}, share={"one_shot": 0.5})
    >>> shape = CollectiveShape(payload=8192.0, ranks=4)
    >>> time = collective_time(shape, device, CollectiveLaw(ranks={4: one}))
    >>> round(1e6 * float(time.total), 3)  # 5 + 3 x 8192 / (0.5 x 450e9) s
    5.109
    """
    known = law.among(shape.ranks)
    payload = np.asarray(shape.payload, dtype=np.float64)
    wires: list[Array] = []
    totals: list[Array] = []
    for form, start in known.start.items():
        wire = wire_factor(form, shape.ranks) * payload / (device.link * known.share[form])
        wires.append(wire)
        totals.append(start + wire)
    stacked = np.stack(totals)
    chosen = stacked.argmin(axis=0)[None]
    return KernelTime(
        floor=min(known.start.values()),
        memory=np.take_along_axis(np.stack(wires), chosen, axis=0)[0],
        compute=np.zeros_like(payload),
        total=np.take_along_axis(stacked, chosen, axis=0)[0],
    )


def exchange_time(*, sent: Array, ranks: int, device: Device, law: CollectiveLaw) -> KernelTime:
    """Return the time of another collective in which a rank moves ``sent`` bytes.

    An all-gather or all-to-all is half of a two-shot all-reduce: the same start, its own bytes at
    the share of the link that the two-shot form reaches. Assumed; no table of these was fitted.
    t = start + ``sent`` / (link share), ``sent`` in bytes and of any shape.

    >>> from roofline.specs.laws import CollectiveConstants
    >>> device = Device(bandwidth=3.35e12, peak=1.0, units=132, l2=50e6, link=450e9)
    >>> constants = CollectiveConstants(start={"two_shot": 5e-6}, share={"two_shot": 0.5})
    >>> law = CollectiveLaw(ranks={8: constants})
    >>> time = exchange_time(sent=2.25e6, ranks=8, device=device, law=law)
    >>> round(1e6 * float(time.total), 3)  # 5 + 2.25 MB at half of 450 GB/s
    15.0
    """
    known = law.among(ranks)
    form: CollectiveAlgorithm = "two_shot" if "two_shot" in known.start else next(iter(known.start))
    wire = np.asarray(sent, dtype=np.float64) / (device.link * known.share[form])
    start = known.start[form]
    return KernelTime(floor=start, memory=wire, compute=np.zeros_like(wire), total=start + wire)
