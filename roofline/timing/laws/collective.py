"""The all-reduce law: the fastest of three algorithms."""

from __future__ import annotations

import numpy as np

from roofline.base.arrays import Array
from roofline.kernels.ops import CollectiveShape
from roofline.specs.laws import CollectiveLaw, Form
from roofline.timing.laws.base import Device, KernelTime

__all__ = ["collective_time", "exchange_time", "wire_factor"]


def wire_factor(form: Form, ranks: int) -> float:
    """Return the bytes over a rank's link per byte of the tensor.

    One-shot: every rank reads all its peers' tensors, n - 1. Two-shot and NCCL's bulk path:
    reduce-scatter and all-gather, 2 (n - 1) / n.

    >>> wire_factor("one_shot", 4), wire_factor("two_shot", 4)
    (3.0, 1.5)
    """
    return float(ranks - 1) if form == "one_shot" else 2 * (ranks - 1) / ranks


def collective_time(shape: CollectiveShape, device: Device, law: CollectiveLaw) -> KernelTime:
    """Return the time of an all-reduce of S bytes: min over forms of start + w S / (link share).

    >>> from roofline.specs.laws import Ranks
    >>> device = Device(bandwidth=3.35e12, peak=1.0, units=132, l2=50e6, link=450e9)
    >>> one = Ranks(start={"one_shot": 5e-6}, share={"one_shot": 0.5})
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

    >>> from roofline.specs.laws import Ranks
    >>> device = Device(bandwidth=3.35e12, peak=1.0, units=132, l2=50e6, link=450e9)
    >>> law = CollectiveLaw(ranks={8: Ranks(start={"two_shot": 5e-6}, share={"two_shot": 0.5})})
    >>> time = exchange_time(sent=2.25e6, ranks=8, device=device, law=law)
    >>> round(1e6 * float(time.total), 3)  # 5 + 2.25 MB at half of 450 GB/s
    15.0
    """
    known = law.among(ranks)
    form: Form = "two_shot" if "two_shot" in known.start else next(iter(known.start))
    wire = np.asarray(sent, dtype=np.float64) / (device.link * known.share[form])
    start = known.start[form]
    return KernelTime(floor=start, memory=wire, compute=np.zeros_like(wire), total=start + wire)
