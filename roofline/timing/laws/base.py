"""What every law takes and returns, and the simplest law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roofline.base.arrays import Array
from roofline.specs.laws import SimpleLaw

__all__ = ["Device", "KernelTime", "combine", "in_turn", "simple_time", "staircase"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """The datasheet figures a law needs. ``units`` are SMs or CUs, 0 where unknown."""

    bandwidth: float  # [B/s]
    peak: float  # dense, at the rate the kernel computes in [FLOP/s]
    units: int
    l2: float  # [B]
    link: float  # per direction [B/s]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTime:
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
