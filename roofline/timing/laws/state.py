"""The law of a recurrent mixer's step: its state read and written, beside a launch."""

from __future__ import annotations

import numpy as np

from roofline.base.arrays import Array
from roofline.specs.laws import StateLaw
from roofline.timing.laws.base import Device, KernelTime, combine

__all__ = ["state_time"]


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
