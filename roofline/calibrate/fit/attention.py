"""How an attention kernel reads the cache for its q rows, as its times show, and its law."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import least_log_error, rounded
from roofline.calibrate.fit.fitted_law import FittedLaw, RowSource, fitted_law, held_out_rows
from roofline.calibrate.fit.five_number import (
    FEWEST,
    KernelRows,
    fit_five_numbers,
    fit_simple,
    predict,
)
from roofline.calibrate.measure.rows import Row
from roofline.kernels.ops import AttentionShape
from roofline.specs.laws import AttentionLaw, SimpleLaw
from roofline.specs.placement import VerifyAttention
from roofline.timing.laws.attention import attention_time
from roofline.timing.laws.simple import Device

__all__ = [
    "ReadMode",
    "find_read_mode",
    "fit_attention",
    "fit_split_attention",
    "read_modes",
    "rows_read_as",
]

Array = NDArray[np.float64]
TILES = (16, 32, 64, 128)
APART = 0.85  # the best mode's error over the next one's, above which they are not told apart
ROW_TILES = (16, 32, 64, 128)
#: Lowest, start, highest and unit of the split-cache law's constants.
BOUNDS = {
    "floor": (0.2, 4.0, 60.0, 1e-6),
    "mem_eff": (0.3, 0.85, 1.05, 1.0),
    "compute_eff": (0.02, 0.5, 1.05, 1.0),
    "p": (1.0, 2.0, 8.0, 1.0),
    "cta_s": (0.0, 2.0, 50.0, 1e-6),
    "token_s": (0.0, 5.0, 200.0, 1e-9),
    "max_splits": (1.0, 16.0, 256.0, 1.0),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadMode:
    """The way of reading that fits best, and the mean log error of each."""

    mode: VerifyAttention
    tile_rows: int
    errors: dict[str, float]
    law: SimpleLaw  # under the mode's own count of FLOPs and bytes

    @property
    def told_apart(self) -> bool:
        """Whether the best mode fits clearly better than the others."""
        first, second = sorted(self.errors.values())[:2]
        return first < APART * second


def rows_read_as(
    rows: Sequence[Row], mode: VerifyAttention, *, tile: int, peak: float, bandwidth: float
) -> KernelRows:
    """Return the rows with FLOPs and bytes as they are counted when the cache is read so.

    Each row's own count is that of ``kv_once``: B H_kv L d (2 b) bytes, and 4 B q A d L FLOPs.
    ``tile``: arithmetic in whole tiles of G q rows; ``kv_per_query``: the cache q times. ``peak``
    [FLOP/s] and ``bandwidth`` [B/s] are the machine's.
    """
    sizes = [row.sizes for row in rows]
    q = np.array([s["q"] for s in sizes], dtype=np.float64)
    packed = q * np.array([s["group"] for s in sizes])
    flops = np.array([row.flops for row in rows])
    moved = np.array([row.bytes for row in rows])
    work = flops / np.array([s["batch"] * s["kv_heads"] for s in sizes])
    cached = np.array([_cache_bytes(row, s) for row, s in zip(rows, sizes, strict=True)])
    if mode is VerifyAttention.TILE:
        flops = flops * np.ceil(packed / tile) * tile / packed
    if mode is VerifyAttention.KV_PER_QUERY:
        moved = moved + (q - 1) * cached
    return KernelRows(
        flops=flops,
        bytes=moved,
        rows=packed,
        depth=np.zeros_like(q),
        work=work,
        seconds=np.array([row.seconds for row in rows]),
        peak=peak,
        bandwidth=bandwidth,
    )


def _cache_bytes(row: Row, s: dict[str, int]) -> float:
    """Return the bytes of keys and values: all bytes less those of queries and outputs."""
    elements = 2 * s["batch"] * s["kv_heads"] * s["head_dim"]
    if row.dtype in ("bf16", "fp16", "fp32"):  # queries and outputs are as wide as the cache
        width = row.bytes / (elements * (s["context"] + s["q"] * s["group"]))
        return elements * s["context"] * width
    return row.bytes - elements * s["q"] * s["group"] * 2.0


def find_read_mode(rows: Sequence[Row], *, peak: float, bandwidth: float) -> ReadMode:
    """Return the way of reading the cache that explains the rows of one kernel best.

    The plain five-number law is fitted under each mode's count (no staircase, which could imitate
    any); the least mean log error wins, each curve over q moved to its own level, since a level
    says nothing of how often the cache is read. ``kv_once`` stays where modes are not told apart.
    """
    tried: dict[tuple[VerifyAttention, int], tuple[float, SimpleLaw]] = {}
    untiled = [(VerifyAttention.KV_ONCE, 128), (VerifyAttention.KV_PER_QUERY, 128)]
    for mode, tile in [*untiled, *((VerifyAttention.TILE, t) for t in TILES)]:
        bench = rows_read_as(rows, mode, tile=tile, peak=peak, bandwidth=bandwidth)
        law = fit_simple(bench, stepped=False)
        log_error = np.log(predict(bench, law) / bench.seconds)
        tried[mode, tile] = (float(np.mean(np.abs(_centred(log_error, rows)))), law)
    by_mode = {
        mode: min((loss, tile) for (m, tile), (loss, _) in tried.items() if m is mode)
        for mode in dict.fromkeys(mode for mode, _ in tried)
    }
    best = min(by_mode, key=lambda mode: by_mode[mode][0])
    read_mode = _read_mode(best, by_mode, tried)
    if not read_mode.told_apart:
        read_mode = _read_mode(VerifyAttention.KV_ONCE, by_mode, tried)
    return read_mode


def _centred(residual: Array, rows: Sequence[Row]) -> Array:
    """Return log errors less the median of their curve, so that only the course over q counts."""
    shapes = [[size for size in row.shape.split() if not size.startswith("q=")] for row in rows]
    curves = np.array([" ".join(sizes) for sizes in shapes])
    centred = residual.copy()
    for curve in np.unique(curves):
        centred[curves == curve] -= np.median(residual[curves == curve])
    return centred


def _read_mode(
    mode: VerifyAttention,
    by_mode: dict[VerifyAttention, tuple[float, int]],
    tried: dict[tuple[VerifyAttention, int], tuple[float, SimpleLaw]],
) -> ReadMode:
    tile = by_mode[mode][1]
    errors = {m.value: rounded(loss) for m, (loss, _) in by_mode.items()}
    return ReadMode(mode=mode, tile_rows=tile, errors=errors, law=tried[mode, tile][1])


def read_modes(rows: Iterable[Row], device: Device) -> dict[tuple[str, str], ReadMode]:
    """Return how each attention kernel reads the cache, by (kernel, cache format)."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.kind == "attention":
            groups.setdefault((row.kernel, row.dtype), []).append(row)
    return {
        name: find_read_mode(group, peak=device.peak, bandwidth=device.bandwidth)
        for name, group in groups.items()
        if len(group) >= FEWEST and len({row.sizes["q"] for row in group}) > 1
    }


def fit_attention(
    rows: Sequence[Row], read_mode: ReadMode, device: Device, source: RowSource
) -> FittedLaw | None:
    """Return the five-number law of one attention kernel, counted as it reads the cache."""
    bench = rows_read_as(
        rows, read_mode.mode, tile=read_mode.tile_rows, peak=device.peak, bandwidth=device.bandwidth
    )
    return fit_five_numbers(rows, device, source, bench=bench)


def fit_split_attention(rows: Sequence[Row], device: Device, source: RowSource) -> FittedLaw | None:
    """Return the split-cache law with the row tile that predicts best."""
    if device.units == 0 or rows[0].dtype not in ("bf16", "fp8") or len(rows) < 20:
        return None
    held = held_out_rows(rows)
    seconds = np.array([row.seconds for row in rows])
    shape = _attention_shape(rows)

    def fit_row_tile(tile: int) -> tuple[AttentionLaw, float]:
        def law_of(scaled: Array) -> AttentionLaw:
            units = zip(BOUNDS.items(), scaled, strict=True)
            values: dict[str, Any] = {name: float(v) * unit for (name, (*_, unit)), v in units}
            return AttentionLaw(row_tile=tile, **values)

        def residual(scaled: Array) -> Array:
            total = np.asarray(attention_time(shape, device, law_of(scaled)).total)
            return np.asarray(np.log(total / seconds)[~held])

        low, start, high = (np.array([b[i] for b in BOUNDS.values()]) for i in range(3))
        scaled, cost = least_log_error(residual, start, low, high)
        return law_of(scaled), cost

    tried = {tile: fit_row_tile(tile) for tile in ROW_TILES}
    law = tried[min(tried, key=lambda tile: tried[tile][1])][0]
    constants: dict[str, Any] = {name: rounded(getattr(law, name)) for name in BOUNDS}
    law = replace(law, **constants)
    predicted = np.asarray(attention_time(shape, device, law).total)
    block = {
        "dtype": rows[0].dtype,
        "kernel": rows[0].kernel,
        "head_dim": rows[0].sizes["head_dim"],
        "law": asdict(law) | {"row_costs": list(law.row_costs)},
    }
    return fitted_law(
        "attention", block, rows, predicted=predicted, held=held, device=device, source=source
    )


def _attention_shape(rows: Sequence[Row]) -> AttentionShape:
    sizes = {n: np.array([float(row.sizes[n]) for row in rows]) for n in rows[0].sizes}
    head = rows[0].sizes["head_dim"]
    return AttentionShape(
        pairs=sizes["batch"] * sizes["kv_heads"],
        rows=sizes["group"] * sizes["q"],
        length=sizes["context"],
        context=sizes["context"],
        kv_width=2 * head,
        mac_width=2 * head,
        kv=1.0 if rows[0].dtype == "fp8" else 2.0,
    )
