"""Fitting the attention law: bounded least squares on log error, from two fixed starts.

Shared by the tables of grouped-query kernels and of absorbed MLA. Everything is deterministic: rows
are taken at a fixed stride, and which constants are free follows from the rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import least_log_error, rounded, score
from roofline.kernels.ops import AttentionShape
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import AttentionLaw
from roofline.timing.laws.attention import ROW_BANDS, attention_time
from roofline.timing.laws.base import Device
from roofline.timing.machine import Machine

__all__ = ["BOUNDS", "KV_BYTES", "fit_law", "law_seconds", "textbook_seconds"]

Array = NDArray[np.float64]

KV_BYTES = {"bf16": 2.0, "fp8": 1.0}  # of a cached element [B], by a block's dtype
#: Low, high, and whether the constant is sought on a log scale.
BOUNDS: Mapping[str, tuple[float, float, bool]] = {
    "floor": (1e-6, 1e-4, True),
    "mem_eff": (0.3, 1.05, True),
    "p": (1.0, 8.0, True),
    "cta_s": (1e-8, 5e-5, True),
    "token_s": (1e-10, 5e-7, True),
    "max_splits": (1.0, 256.0, True),
    "split_s": (0.0, 2e-5, False),
    "row_s": (0.0, 1e-8, False),
    "l2_gain": (1.0, 20.0, True),
    "window_s": (0.0, 2e-5, False),
    "window_pad": (0.0, 256.0, False),
    "convert_s": (0.0, 1e-8, False),
}
BAND_BOUNDS = (0.5, 6.0, True)  # of a band's cost factor
WINDOWED = ("window_s", "window_pad")
#: What differs from the law's defaults at each start: cheap tokens and few splits, or the reverse.
STARTS = ({"token_s": 1e-9, "max_splits": 8.0}, {"token_s": 1e-8, "max_splits": 40.0})
#: Query rows of one thread block: tcgen05 takes 128, wgmma and mma 64. A prior.
ROW_TILES = {"blackwell": 128}
ROW_TILE = 64
#: Generations whose kernels multiply an fp8 cache in fp8; others turn it into bf16. A prior.
FP8_MATH = ("blackwell", "blackwell-consumer")
LEAST_ROWS = 60  # fewer rows cannot tell ten constants
BAND_ROWS = 30  # fewer rows in a band of query rows leave its factor at its neighbour's
MAX_ROWS = 1600  # more are thinned to every k-th
ROUGH = 0.06  # median log error above which a pass that converts the cache is tried
CONVERTED = 0.7  # share of the cost below which it is believed
UNUSABLE = 0.3  # median error on the very rows fitted above which the law does not hold


def law_seconds(shape: AttentionShape, law: AttentionLaw, gpu: HardwareProfile) -> Array:
    """Predict calls of a benchmark that repeats them: a small cache is found in L2 [s]."""
    device = _device(gpu, law)
    return np.asarray(attention_time(shape, device, law, warm=True).total)


def _device(gpu: HardwareProfile, law: AttentionLaw) -> Device:
    return Machine(gpu).device("fp8" if law.fp8_math else "bf16")


def textbook_seconds(shape: AttentionShape, gpu: HardwareProfile) -> Array:
    """Return max(bytes / bandwidth, FLOP / bf16 peak): the cache once, Q and O in two bytes [s]."""
    pairs, rows, length = (np.asarray(x) for x in (shape.pairs, shape.rows, shape.length))
    moved = pairs * (length * shape.kv_width * shape.kv + 2 * rows * shape.mac_width)
    flops = 2 * pairs * rows * length * shape.mac_width
    return np.asarray(np.maximum(moved / gpu.bandwidth, flops / gpu.peak("bf16")))


def fit_law(shape: AttentionShape, seconds: Array, gpu: HardwareProfile) -> AttentionLaw:
    """Return the law, constants rounded; ``ValueError`` where no law holds.

    Constants of windows are free only where a window cuts, a band's factor only where it has rows,
    and a pass that converts an fp8 cache only where its rows are clearly better told with it.
    """
    if len(seconds) < LEAST_ROWS:
        raise ValueError(f"only {len(seconds)} rows")
    thinned = slice(None, None, -(-len(seconds) // MAX_ROWS))
    few = _Bench(shape=_pick(shape, thinned), seconds=seconds[thinned], gpu=gpu)
    names = [name for name in BOUNDS if name != "convert_s"]
    if not np.any(np.asarray(few.shape.context) > few.shape.length):
        names = [name for name in names if name not in WINDOWED]
    narrow = shape.kv == KV_BYTES["fp8"]
    base = AttentionLaw(
        floor=0.9 * float(np.quantile(few.seconds, 0.05)),
        l2_gain=2.0,
        row_tile=ROW_TILES.get(gpu.generation, ROW_TILE),
        fp8_math=narrow and gpu.generation in FP8_MATH,
    )
    law, cost = _best(few, base, names)
    if narrow and np.median(np.abs(few.log_error(law))) > ROUGH:
        other, reached = _best(few, base, [*names, "convert_s"])
        law = other if reached < CONVERTED * cost else law
    law = _rounded(law)
    own = score(law_seconds(shape, law, gpu), seconds)
    if own.median > UNUSABLE:
        raise ValueError(
            f"the law misses the rows it was fitted on by {100 * own.median:.0f} % in the median"
        )
    return law


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bench:
    """Measured rows and the GPU that they were measured on."""

    shape: AttentionShape
    seconds: Array
    gpu: HardwareProfile

    def log_error(self, law: AttentionLaw) -> Array:
        return np.log(law_seconds(self.shape, law, self.gpu) / self.seconds)


@dataclass(frozen=True, slots=True)
class _Scale:
    """How the solver sees constants: logs, or shares of their upper bounds."""

    low: Array
    high: Array
    log: NDArray[np.bool_]

    def encode(self, values: Array) -> Array:
        logs = np.log(np.maximum(values, np.finfo(float).tiny))
        return np.where(self.log, logs, values / self.high)

    def decode(self, seen: Array) -> Array:
        return np.where(self.log, np.exp(np.where(self.log, seen, 0.0)), seen * self.high)


def _best(bench: _Bench, base: AttentionLaw, names: Sequence[str]) -> tuple[AttentionLaw, float]:
    """Return the better of the laws reached from the fixed starts, and its cost."""
    bands = _known_bands(np.asarray(bench.shape.rows))
    low, high, log = np.array([BOUNDS[name] for name in names] + [BAND_BOUNDS] * len(bands)).T
    scale = _Scale(low, high, log.astype(bool))
    least, most = scale.encode(low), scale.encode(high)

    def law_of(seen: Array) -> AttentionLaw:
        values = scale.decode(seen).tolist()
        constants: dict[str, Any] = dict(zip(names, values, strict=False))
        return replace(base, **constants, row_costs=_row_costs(bands, values[len(names) :]))

    best, cost = base, np.inf
    for start in STARTS:
        first = [start.get(name, getattr(base, name)) for name in names] + [1.0] * len(bands)
        found, reached = least_log_error(
            lambda seen: bench.log_error(law_of(seen)),
            np.clip(scale.encode(np.array(first)), least, most),
            least - 1e-9,
            most + 1e-9,
            max_nfev=50,
        )
        if reached < cost:
            best, cost = law_of(np.clip(found, least, most)), reached
    return best, cost


def _known_bands(rows: Array) -> list[int]:
    """Return the positions, after the first, of the bands with enough rows to fit a factor."""
    counts = np.bincount(np.searchsorted(ROW_BANDS, rows), minlength=len(ROW_BANDS) + 1)
    return [band for band in range(1, len(ROW_BANDS)) if counts[band] >= BAND_ROWS]


def _row_costs(bands: Sequence[int], factors: Sequence[float]) -> tuple[float, ...]:
    """Return the factor of every band up to the last known one; a gap takes its left neighbour's.

    >>> _row_costs([1, 3], [1.1, 1.3])
    (1.0, 1.1, 1.1, 1.3)
    """
    known = dict(zip(bands, factors, strict=True))
    costs = [1.0]
    for band in range(1, max(bands, default=0) + 1):
        costs.append(known.get(band, costs[-1]))
    return tuple(costs)


def _pick(shape: AttentionShape, rows: slice) -> AttentionShape:
    names = ("pairs", "rows", "length", "context")
    fewer: dict[str, Any] = {name: getattr(shape, name)[rows] for name in names}
    return replace(shape, **fewer)


def _rounded(law: AttentionLaw) -> AttentionLaw:
    short: dict[str, Any] = {name: rounded(getattr(law, name)) for name in BOUNDS}
    costs = tuple(rounded(factor) for factor in law.row_costs)
    return replace(law, **short, row_costs=costs)
