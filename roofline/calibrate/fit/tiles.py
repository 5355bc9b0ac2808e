"""The tile law of products: what it predicts for measured rows, and how it is fitted.

The constants of each tile set come from bounded least squares on log error; the tile set is the
one that predicts best on shapes set aside among the fitted rows. Everything is deterministic: one
fixed start, and rows chosen by fixed rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import Columns, Label, least_log_error, rounded, score, shape_keys
from roofline.calibrate.fit.fitted_law import FittedLaw, RowSource, fitted_law, held_out_rows
from roofline.calibrate.measure.rows import Row
from roofline.kernels.formulas import gemm_bytes, gemm_flops
from roofline.kernels.ops import GemmShape
from roofline.specs.formats import DType, bytes_per_element, rate_name
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import ROW_EDGES, GemmLaw, TileSet
from roofline.timing.laws.gemm import gemm_time
from roofline.timing.laws.simple import Device
from roofline.timing.machine import device_of

__all__ = [
    "BOUNDS",
    "LEAST_ROWS",
    "PRODUCT_FORMATS",
    "ProductFormat",
    "ProductRows",
    "fit_gemm_law",
    "fit_product_law",
    "fit_products_by_tiles",
    "fit_tile_set",
    "free_constants",
    "product_scored",
    "product_seconds",
    "product_textbook",
    "scattered",
]

Array = NDArray[np.float64]
Predict = Callable[[Columns, GemmLaw], Array]
#: The region that the law is scored in.
SCORED_M, LEAST_NK = 1024, 512
LEAST_ROWS = 100  # scored rows that a fit needs
OUTPUT = 2.0  # bytes of an output element [B]


@dataclass(frozen=True, slots=True)
class ProductFormat:
    """How a product's weights are stored, and what its activations are multiplied in."""

    storage: DType
    compute: DType


#: By the dtype of a law's block.
PRODUCT_FORMATS = {
    "bf16": ProductFormat(DType.BF16, DType.BF16),
    "fp8": ProductFormat(DType.FP8, DType.FP8),
    "fp8-block": ProductFormat(DType.FP8_BLOCK, DType.FP8),
    "nvfp4": ProductFormat(DType.NVFP4, DType.NVFP4),
    "int8-wo": ProductFormat(DType.INT8, DType.BF16),
    "int4-wo": ProductFormat(DType.INT4_G128, DType.BF16),
    "int8": ProductFormat(DType.INT8, DType.INT8),  # SmoothQuant, W8A8
}
#: By constant: unit that keeps the solver near 1; then start, lowest and highest in that unit.
#: ``l2_fit`` starts at a share of the GPU's L2 and ends at its size instead.
BOUNDS: dict[str, tuple[float, float, float, float]] = {
    "floor": (1e-6, 3.0, 0.2, 60.0),
    "act": (1.0, 0.3, 0.0, 30.0),
    "latency": (1e-6, 0.08, 0.003, 5.0),
    "compute_eff": (1.0, 0.8, 0.05, 1.05),
    "edge": (1e-6, 0.4, 0.0, 10.0),
    "split": (1e-6, 3.0, 0.0, 20.0),
    "traffic": (1.0, 1.0, 0.0, 10.0),
    "mem_eff": (1.0, 0.85, 0.3, 1.05),
    "r": (1.0, 2.0, 1.0, 8.0),
    "q": (1.0, 0.5, 0.0, 1.0),
    "pad": (1.0, 0.1, 0.0, 3.0),
    "l2_fit": (1e6, 15.0, 4.0, 130.0),
    "l2_gain": (1.0, 2.5, 1.0, 8.0),
}
STEP = (1.0, 1.0, 0.1, 4.0)  # the same for a factor of the staircase
DUST = 1e-4  # a constant this small in its unit is 0
PRIOR = 0.015  # weight of "a step of the staircase is 1", times the square root of the rows
SOFT = 0.03  # log error beyond which a row counts linearly
ROWS, ROWS_TRIED = 4000, 1500  # scored rows of the fit, and of the fits that choose the tiles
OUTSIDE = 4  # for so many scored rows the fit takes one outside the region
OUTSIDE_WEIGHT = 0.2  # of its log error
MAX_M = 16384  # rows above say nothing of decoding
L2_START = 0.15  # most benchmarks rotate about six copies of the weights through L2
LEAST_GAIN = 1.1  # a smaller gain from L2 is not told from noise
_SCATTER = 2654435761  # 2^32 over the golden ratio: consecutive multiples lie far apart


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductRows:
    """Measured rows: m, n and k, their seconds, and the weight of their log errors."""

    columns: Columns
    seconds: Array
    weight: Array

    def pick(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> ProductRows:
        """Return some of the rows."""
        return ProductRows(
            columns={name: column[rows] for name, column in self.columns.items()},
            seconds=self.seconds[rows],
            weight=self.weight[rows],
        )


def fit_gemm_law(
    columns: Columns, seconds: Array, *, scored: NDArray[np.bool_], predict: Predict, l2: float
) -> GemmLaw:
    """Return the law with the tile set that predicts best, constants rounded.

    ``scored`` are the rows that count when the law is scored; ``l2`` is the GPU's cache [B], where
    a benchmark may leave small weights (0: not looked for). The order of the rows does not matter.
    """
    weight = np.where(scored, 1.0, np.where(columns["m"] <= MAX_M, OUTSIDE_WEIGHT, 0.0))
    bench = ProductRows(columns=columns, seconds=seconds, weight=weight)
    bench = bench.pick(np.lexsort((seconds, columns["k"], columns["n"], columns["m"])))
    tiles = _best_tiles(bench, predict, l2)
    sample = _few_rows(bench, ROWS)
    law = fit_tile_set(sample, tiles=tiles, predict=predict, l2=l2)
    if law.l2_fit > 0 and law.l2_gain < LEAST_GAIN:
        law = fit_tile_set(sample, tiles=tiles, predict=predict, l2=0.0)
    return law


def _best_tiles(bench: ProductRows, predict: Predict, l2: float) -> TileSet:
    """Return the tile set with the least 3 median + p90 error on shapes set aside."""
    aside = set_aside(shape_keys(bench.columns["n"], bench.columns["k"]))
    unseen = bench.pick(aside & (bench.weight == 1))
    sample = _few_rows(bench.pick(~aside), ROWS_TRIED)
    if not len(unseen.seconds) or not len(sample.seconds):  # too few shapes to set any aside
        unseen = sample = _few_rows(bench, ROWS_TRIED)

    def loss(tiles: TileSet) -> float:
        law = fit_tile_set(sample, tiles=tiles, predict=predict, l2=l2)
        error = score(predict(unseen.columns, law), unseen.seconds)
        return 3 * error.median + error.p90

    order: tuple[TileSet, ...] = ("split", "any", "fine", "wide", "pair", "static")
    return min(order, key=loss)


def set_aside(keys: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Return the rows of a quarter of the shapes, by the hash of another key than the hold-out's.

    >>> set_aside(np.array(["4096x4096", "8192x8192", "4096x4096"]))
    array([ True, False,  True])
    """
    names, inverse = np.unique(keys, return_inverse=True)
    digests = [hashlib.sha256(f"inner{name}".encode()).hexdigest() for name in names]
    return np.array([int(digest[:8], 16) % 4 == 0 for digest in digests])[inverse]


def _few_rows(bench: ProductRows, count: int) -> ProductRows:
    """Return ``count`` scored rows at most, and a quarter as many outside the region."""
    inside = np.flatnonzero(bench.weight == 1)
    outside = np.flatnonzero((bench.weight > 0) & (bench.weight < 1))
    inside = inside[scattered(len(inside), count)]
    outside = outside[scattered(len(outside), count // OUTSIDE)]
    return bench.pick(np.concatenate([inside, outside]))


def scattered(count: int, limit: int) -> NDArray[np.intp]:
    """Return ``limit`` of ``count`` positions, evenly scattered and always the same.

    >>> scattered(3, 8), scattered(10, 3)
    (array([0, 1, 2]), array([0, 2, 5]))
    """
    order = np.argsort((np.arange(count, dtype=np.int64) * _SCATTER) % 2**32, kind="stable")
    return np.sort(order[:limit])


def free_constants(tiles: TileSet, *, l2: bool) -> list[str]:
    """Return the constants that rows of a tile set identify; the others are 0.

    Only ``split`` slices K; with its many tiles the cost of empty rows cannot be seen.

    >>> [name for name in BOUNDS if name not in free_constants("split", l2=False)]
    ['pad', 'l2_fit', 'l2_gain']
    """
    unidentified = {"pad"} if tiles == "split" else {"split", "traffic"}
    if not l2:
        unidentified |= {"l2_fit", "l2_gain"}
    return [name for name in BOUNDS if name not in unidentified]


def fit_tile_set(bench: ProductRows, *, tiles: TileSet, predict: Predict, l2: float) -> GemmLaw:
    """Return the constants of the law of one tile set, rounded.

    The solver minimises soft_l1 of weight log(predicted / measured), and of log c times a weak
    prior: a step of the staircase that few rows see stays 1.
    """
    names = free_constants(tiles, l2=l2 > 0)
    scale, start, low, high = np.array([BOUNDS[name] for name in names] + [STEP] * len(ROW_EDGES)).T
    at = names.index("floor")
    start[at] = np.clip(0.9 * np.quantile(bench.seconds, 0.01) / scale[at], low[at], high[at])
    if l2 > 0:
        at = names.index("l2_fit")
        start[at], high[at] = L2_START * l2 / scale[at], l2 / scale[at]
    prior = PRIOR * len(bench.seconds) ** 0.5

    def law_of(scaled: Array) -> GemmLaw:
        values = np.where(scaled > DUST, scaled, 0.0) * scale
        return _law(tiles, names, values.tolist())

    def residual(scaled: Array) -> Array:
        law = law_of(scaled)
        log_error = np.log(predict(bench.columns, law) / bench.seconds)
        return np.append(bench.weight * log_error, prior * np.log(law.c))

    scaled, _ = least_log_error(
        residual,
        start,
        low,
        high,
        f_scale=SOFT,
        max_nfev=60,
        x_scale=np.maximum(np.abs(start), 1e-2),
        diff_step=1e-3,
    )
    law = law_of(scaled)
    constants: dict[str, Any] = {name: rounded(getattr(law, name)) for name in names}
    return replace(law, **constants, c=tuple(rounded(step) for step in law.c))


def _law(tiles: TileSet, names: list[str], values: list[float]) -> GemmLaw:
    """Return the law of these values: one for each name, then the steps of the staircase."""
    constants: dict[str, Any] = {"pad": 0.0, "split": 0.0, "traffic": 0.0}
    constants |= dict(zip(names, values[: len(names)], strict=True))
    return GemmLaw(tiles=tiles, **constants, c=tuple(values[len(names) :]))


def _shape(columns: Columns, label: Label) -> GemmShape:
    form = PRODUCT_FORMATS[label["dtype"]]
    sizes: dict[str, Any] = {size: columns[size] for size in ("m", "n", "k")}
    return GemmShape(
        **sizes,
        weight=bytes_per_element(form.storage),
        activation=bytes_per_element(form.compute),
    )


def _device(label: Label, gpu: HardwareProfile) -> Device:
    return device_of(gpu, rate_name(PRODUCT_FORMATS[label["dtype"]].compute))


def product_seconds(columns: Columns, label: Label, law: GemmLaw, gpu: HardwareProfile) -> Array:
    """Return the predicted time of a benchmark's call, which may find small weights in L2 [s]."""
    time = gemm_time(_shape(columns, label), _device(label, gpu), law, warm=True)
    return np.asarray(time.total)


def product_textbook(columns: Columns, label: Label, gpu: HardwareProfile) -> Array:
    """Return max(bytes / bandwidth, FLOP / peak) of weights, activations and bf16 outputs [s]."""
    form, device = PRODUCT_FORMATS[label["dtype"]], _device(label, gpu)
    moved = gemm_bytes(
        m=columns["m"],
        n=columns["n"],
        k=columns["k"],
        weight=bytes_per_element(form.storage),
        activation=bytes_per_element(form.compute),
        output=OUTPUT,
    )
    flops = gemm_flops(m=columns["m"], n=columns["n"], k=columns["k"])
    return np.maximum(np.asarray(moved) / device.bandwidth, np.asarray(flops) / device.peak)


def product_scored(columns: Columns) -> NDArray[np.bool_]:
    """Return the rows that count when the law is scored: M <= 1024, N and K >= 512."""
    wide = (columns["n"] >= LEAST_NK) & (columns["k"] >= LEAST_NK)
    return np.asarray((columns["m"] <= SCORED_M) & wide)


def fit_product_law(
    columns: Columns, label: Label, seconds: Array, gpu: HardwareProfile
) -> GemmLaw:
    """Return the law with the tile set that predicts best on some of the shapes.

    Too few rows in the scored region are refused: the law could not be checked.
    """
    scored = product_scored(columns)
    if scored.sum() < LEAST_ROWS:
        raise ValueError(
            f"{scored.sum()} rows with M <= {SCORED_M} and N, K >= {LEAST_NK}, "
            f"of {LEAST_ROWS} needed"
        )
    device = _device(label, gpu)

    def predict(rows: Columns, law: GemmLaw) -> Array:
        return np.asarray(gemm_time(_shape(rows, label), device, law, warm=True).total)

    return fit_gemm_law(columns, seconds, scored=scored, predict=predict, l2=device.l2)


def fit_products_by_tiles(
    rows: Sequence[Row], gpu: HardwareProfile, device: Device, source: RowSource
) -> FittedLaw | None:
    """Return the tile law of a machine's own products in one format.

    None where the format is unknown or the rows are too few.
    """
    label = {"dtype": rows[0].dtype}
    if label["dtype"] not in PRODUCT_FORMATS or device.units == 0:
        return None
    columns = {n: np.array([float(row.sizes[n]) for row in rows]) for n in ("m", "n", "k")}
    seconds = np.array([row.seconds for row in rows])
    held = held_out_rows(rows)
    fitted = {name: column[~held] for name, column in columns.items()}
    if product_scored(fitted).sum() < LEAST_ROWS:
        return None
    law = fit_product_law(fitted, label, seconds[~held], gpu)
    return fitted_law(
        "gemm",
        {**label, "law": asdict(law)},
        rows,
        predicted=product_seconds(columns, label, law, gpu),
        held=held,
        device=device,
        source=source,
    )
