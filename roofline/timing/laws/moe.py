"""The mixture-of-experts law: awake experts' weights, padded rows, and a cost for each expert."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array
from roofline.kernels.ops import MoeShape
from roofline.specs.laws import MoeLaw
from roofline.timing.laws.simple import Device, KernelTime, combine

__all__ = ["ALIGNMENT", "STEP_HIGH", "STEP_LOW", "moe_time", "step_index"]

ALIGNMENT = 16  # kernels load wide only where a shard's width is a multiple of this
STEP_LOW, STEP_HIGH = -5, 10  # the staircase covers 2^-5 ... 2^10 rows
WIDTH_EDGE = 512.5  # shards up to this width have a staircase of their own
ACTIVATION = 2.0  # bytes of a value between the products [B]


def moe_time(
    shape: MoeShape,
    device: Device,
    law: MoeLaw,
    *,
    staircase: bool = True,
    smooth: bool = False,
    resident: Array = 0.0,
) -> KernelTime:
    """Return the time of one rank's routed experts: both products, permute and combine.

    t = c(m) (floor + per_active A + per_local D + serial (H + I) / 64 + body), with
    body = q ((t_w^p + t_c^p)^(1/p) + t_rows + t_all); t_w = D n H I' b_w / (BW mem_eff) for D
    distinct experts of n matrices; t_c = 2 n H I' (padded + hottest_weight hottest) / (peak
    compute_eff); t_rows and t_all move the rows' values, I' = max(I, min_width). ``resident`` is
    the share of the weights that a benchmark finds in L2, 0 in a model. ``smooth`` draws lines
    between the steps: tables hold powers of two, so where between them a step lies is not known.
    Router, shared experts and communication are separate.

    >>> device = Device(bandwidth=4.8e12, peak=989.4e12, units=132, l2=60e6, link=450e9)
    >>> shape = MoeShape(tokens=1.0, top_k=8, experts=128, ranks=1, hidden=2048, width=768,
    ...     matrices=3, weight=2.0, distinct=8.0, awake=8.0, rows=8.0, hottest=1.0, padded=128.0)
    >>> round(1e6 * float(moe_time(shape, device, MoeLaw(mem_eff=1.0)).memory), 1)  # 75.5 MB
    15.7
    """
    width = np.maximum(shape.width, law.min_width)
    size = shape.matrices * shape.hidden * width
    kept = 1 - law.l2_saving * np.asarray(resident)
    weights = np.asarray(shape.distinct) * size * shape.weight * kept
    memory = np.asarray(weights / (device.bandwidth * law.mem_eff))
    effective_rows = np.asarray(shape.padded) + law.hottest_weight * np.asarray(shape.hottest)
    compute = np.asarray(2 * size * effective_rows / (device.peak * law.compute_eff))
    here = law.row_passes * np.asarray(shape.rows) * 2 * ACTIVATION
    here = here * (shape.matrices * width + shape.hidden) / device.bandwidth
    copies = np.asarray(shape.tokens) * shape.top_k * ACTIVATION * shape.hidden
    everywhere = law.all_passes * copies / device.bandwidth
    slow = np.where(np.asarray(shape.width) % ALIGNMENT != 0, law.misaligned, 1.0)
    body = slow * (combine(memory, compute, law.p) + here + everywhere)
    serial = law.serial * (shape.hidden + shape.width) / 64
    experts = law.per_active * shape.awake + law.per_local * shape.distinct
    fixed = law.floor + serial + experts
    rule = _between_steps if smooth else _staircase
    factor = rule(shape, law) if staircase else 1.0
    return KernelTime(
        floor=law.floor, memory=memory, compute=compute, total=(fixed + body) * factor
    )


def step_index(
    shape: MoeShape, axis: Literal["rows", "tokens"]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the band of the width, and the step: round(log2 m), clipped to what is covered.

    m is T k / E on ``rows``, T per expert held here on ``tokens``. 64 tokens, 8 of 128 experts
    each: m = 4, two steps above that of one row.

    >>> shape = MoeShape(tokens=64.0, top_k=8, experts=128, ranks=1, hidden=2048, width=768,
    ...     matrices=3, weight=2.0, distinct=8.0, awake=8.0, rows=8.0, hottest=1.0, padded=128.0)
    >>> band, step = step_index(shape, "rows")
    >>> int(band), int(step) + STEP_LOW
    (1, 2)
    """
    tokens = np.asarray(shape.tokens, dtype=np.float64)
    local = shape.experts / shape.ranks
    m = tokens * shape.top_k / shape.experts if axis == "rows" else tokens / local
    nearest = np.round(np.log2(m) - 0.01)  # an exact half-way m belongs to the lower step
    step = np.asarray(np.clip(nearest, STEP_LOW, STEP_HIGH) - STEP_LOW, dtype=np.intp)
    return np.asarray(np.asarray(shape.width) > WIDTH_EDGE, dtype=np.intp), step


def _staircase(shape: MoeShape, law: MoeLaw) -> Array:
    if not law.steps:
        return 1.0
    return np.asarray(np.asarray(law.steps)[step_index(shape, law.steps_axis)])


def _between_steps(shape: MoeShape, law: MoeLaw) -> Array:
    """Return the staircase's factor, interpolated in log2 m between the middles of its steps."""
    if not law.steps:
        return 1.0
    tokens, local = np.asarray(shape.tokens, dtype=np.float64), shape.experts / shape.ranks
    m = tokens * shape.top_k / shape.experts if law.steps_axis == "rows" else tokens / local
    band = law.steps[int(np.all(np.asarray(shape.width) > WIDTH_EDGE))]
    middles = np.arange(STEP_LOW, STEP_LOW + len(band))
    return np.asarray(np.interp(np.log2(m), middles, band))
