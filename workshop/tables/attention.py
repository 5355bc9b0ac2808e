"""Decode-attention tables: one new token for each of a batch of cached sequences.

A row times one call that is repeated, so that a small cache lies in L2. Sizes are those of one GPU,
``isl`` is 1 (the new token) and ``step`` the tokens cached before it; ``latency`` is in ms.
``attn_dtype`` and ``mla_dtype`` say bfloat16 whatever the cache holds: ``kv_cache_dtype`` tells it.
An engine may have several kernels for one shape; each has its own law.

Two families: grouped-query kernels (GQA and MHA), where a ``window_size`` above 0 limits the tokens
read, and absorbed MLA, where all heads read one latent vector per cached token. (The
``mla_*_module`` tables hold projections too, and are not read.)

Both laws are fitted by bounded least squares on log error, from two fixed starts. Everything is
deterministic: rows are taken at a fixed stride, and which constants are free follows from the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import Columns, Label, least_log_error, rounded, score
from roofline.kernels.ops import AttentionShape
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import AttentionLaw
from roofline.timing.laws.attention import ROW_BANDS
from roofline.validation.kernel_families import (
    KV_BYTES,
    attention_shape,
    call_seconds,
    latent_shape,
)
from workshop.tables.family import TableFamily, TableGroup
from workshop.tables.parquet import RawColumns, Table, clean, kinds, latency, pick, read

__all__ = [
    "BOUNDS",
    "CACHES",
    "FAMILY",
    "LATENT_FAMILY",
    "fit",
    "fit_latent",
    "max_group",
    "read_groups",
    "read_latent_groups",
]

Array = NDArray[np.float64]

#: The tables' ``kv_cache_dtype``, as the laws' blocks say it.
CACHES = {"bfloat16": "bf16", "fp8": "fp8"}
SHAPE = ("num_heads", "num_key_value_heads", "head_dim", "window_size")
_SIZES = ("batch_size", "num_heads", "num_key_value_heads", "head_dim", "isl", "step")
_COLUMNS = ("kernel_source", "kv_cache_dtype", "latency", *_SIZES)
_LATENT_COLUMNS = (
    "kernel_source",
    "kv_cache_dtype",
    "num_heads",
    "batch_size",
    "isl",
    "step",
    "latency",
)
FLOORS = 3.0  # a row this many times above the fastest hundredth measures more than the launch
CLIFF = 5.0  # a group this many times slower than small groups has left the fast path
SMALL_GROUP = 8
#: Low, high, and whether the constant is sought on a log scale.
BOUNDS: Mapping[str, tuple[float, float, bool]] = {
    "floor": (1e-6, 1e-4, True),
    "mem_eff": (0.3, 1.05, True),
    "compute_eff": (0.2, 1.0, True),
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


def read_groups(table: Table, gpu: HardwareProfile) -> list[TableGroup]:  # noqa: ARG001
    """Read, clean and divide a table by cache format, head size and kernel, most rows first.

    Rejected by name beside what ``clean`` rejects: ``impossible_shape``, a size below 1 or heads
    that the KV heads do not divide.
    """
    raw = read(table, _COLUMNS, optional=("window_size",))
    raw.setdefault("window_size", np.zeros(len(raw["latency"])))
    raw["context"] = raw["isl"].astype(np.float64) + raw["step"].astype(np.float64)
    groups = []
    for cache, head_dim, kernel in kinds(raw, ("kv_cache_dtype", "head_dim", "kernel_source")):
        inside = (raw["kv_cache_dtype"] == cache) & (raw["head_dim"] == head_dim)
        rows, rejected = _usable(pick(raw, inside & (raw["kernel_source"] == kernel)))
        if cache not in CACHES or not len(rows["latency"]):
            continue
        groups.append(
            TableGroup.of(
                table,
                rows,
                kind=FAMILY.kind,
                label={"dtype": CACHES[cache], "kernel": kernel, "head_dim": int(head_dim)},
                columns=_columns(rows),
                shape=SHAPE,
                rejected=rejected,
            )
        )
    return groups


def _usable(rows: RawColumns) -> tuple[RawColumns, Counter[str]]:
    """Return the rows that can be fitted, and the count of others by reason."""
    sizes = ("batch_size", "num_heads", "num_key_value_heads", "context")
    possible = at_least_one(rows, sizes)
    heads, kv_heads, window = (
        rows[name].astype(np.float64)
        for name in ("num_heads", "num_key_value_heads", "window_size")
    )
    possible &= (heads % np.maximum(kv_heads, 1) == 0) & (window >= 0)
    curve = ("num_heads", "num_key_value_heads", "window_size", "batch_size")
    return clean_possible(rows, possible, curve=curve)


def at_least_one(rows: RawColumns, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return where all of these sizes are 1 or more."""
    return np.asarray(np.all([rows[name].astype(np.float64) >= 1 for name in names], axis=0))


def clean_possible(
    rows: RawColumns, possible: NDArray[np.bool_], *, curve: Sequence[str]
) -> tuple[RawColumns, Counter[str]]:
    """Return the possible rows, cleaned along the context, and the count of others by reason."""
    rows = pick(rows, possible)
    index, rejected = clean(rows, latency(rows), size="context", curve=curve)
    rejected["impossible_shape"] = int((~possible).sum())
    return pick(rows, index), +rejected


def _columns(rows: RawColumns) -> Columns:
    """Return batch, KV heads, query heads for each of them, tokens cached, and window (0: none)."""
    names = ("batch_size", "num_heads", "num_key_value_heads", "context", "window_size")
    batch, heads, kv_heads, context, window = (rows[name].astype(np.float64) for name in names)
    return {
        "batch": batch,
        "kv_heads": kv_heads,
        "group": heads / kv_heads,
        "context": context,
        "window": window,
    }


def read_latent_groups(table: Table, gpu: HardwareProfile) -> list[TableGroup]:  # noqa: ARG001
    """Read, clean and divide a table by cache format and kernel, most rows first.

    Rejected by name beside what ``clean`` rejects: ``impossible_shape``, a size below 1.
    """
    raw = read(table, _LATENT_COLUMNS)
    raw["context"] = raw["isl"].astype(np.float64) + raw["step"].astype(np.float64)
    groups = []
    for cache, kernel in kinds(raw, ("kv_cache_dtype", "kernel_source")):
        of_kernel = pick(raw, (raw["kv_cache_dtype"] == cache) & (raw["kernel_source"] == kernel))
        possible = at_least_one(of_kernel, ("batch_size", "num_heads", "context"))
        rows, rejected = clean_possible(of_kernel, possible, curve=("num_heads", "batch_size"))
        if cache not in CACHES or not len(rows["latency"]):
            continue
        groups.append(
            TableGroup.of(
                table,
                rows,
                kind=LATENT_FAMILY.kind,
                label={"dtype": CACHES[cache], "kernel": kernel},
                columns={
                    "batch": rows["batch_size"].astype(np.float64),
                    "heads": rows["num_heads"].astype(np.float64),
                    "context": rows["context"].astype(np.float64),
                },
                shape=("num_heads",),
                rejected=rejected,
            )
        )
    return groups


def fit(
    columns: Columns, label: Label, seconds: Array, gpu: HardwareProfile
) -> tuple[AttentionLaw, dict[str, Any]]:
    """Return the law of the fast path, and the largest group that takes it (None: no limit)."""
    largest = max_group(columns, seconds)
    if largest is not None:
        fast = columns["group"] <= largest
        columns = {name: column[fast] for name, column in columns.items()}
        seconds = seconds[fast]
    return fit_attention_law(attention_shape(columns, label), seconds, gpu), {"max_group": largest}


def max_group(columns: Columns, seconds: Array) -> int | None:
    """Return the largest group before the first cliff; None where there is none.

    At a cliff the median, over rows without a window, of t / t of groups <= 8 at the same batch, KV
    heads and context exceeds 5. Rows on the floor, three times the table's fastest hundredth, say
    nothing. The tables have one query per sequence: a cliff is a ratio of heads without a kernel.
    """
    whole = columns["window"] == 0
    group, time = columns["group"][whole], seconds[whole]
    small = group <= SMALL_GROUP
    if not small.any() or small.all():
        return None
    calls = np.stack([columns[name][whole] for name in ("kv_heads", "batch", "context")], axis=1)
    _, call = np.unique(calls, axis=0, return_inverse=True)
    usual = _medians(call.reshape(-1), time, small)
    known = usual > FLOORS * np.quantile(time, 0.01)
    for size in np.unique(group[known]):
        rows = known & (group == size)
        if np.median(time[rows] / usual[rows]) > CLIFF:
            below = columns["group"][columns["group"] < size]
            return int(below.max())
    return None


def _medians(call: NDArray[np.intp], time: Array, small: NDArray[np.bool_]) -> Array:
    """Return for each row the median time of the small groups' rows of its call; 0 without any."""
    medians = np.zeros(call.max() + 1)
    order = np.argsort(call[small], kind="stable")
    names, starts = np.unique(call[small][order], return_index=True)
    parts = np.split(time[small][order], starts[1:])
    medians[names] = [np.median(part) for part in parts]
    return medians[call]


def fit_latent(
    columns: Columns, label: Label, seconds: Array, gpu: HardwareProfile
) -> tuple[AttentionLaw, dict[str, Any]]:
    """Return the law, by least log error."""
    return fit_attention_law(latent_shape(columns, label), seconds, gpu), {}


def fit_attention_law(shape: AttentionShape, seconds: Array, gpu: HardwareProfile) -> AttentionLaw:
    """Return the law, constants rounded; ``ValueError`` where no law holds.

    Constants of windows are free only where a window cuts, the share of the peak only where a block
    computes whole tiles alone, a band's factor only where it has rows, and a pass that converts an
    fp8 cache only where its rows are clearly better told with it.
    """
    if len(seconds) < LEAST_ROWS:
        raise ValueError(f"only {len(seconds)} rows")
    thinned = slice(None, None, -(-len(seconds) // MAX_ROWS))
    few = _Bench(shape=_pick(shape, thinned), seconds=seconds[thinned], gpu=gpu)
    names = [name for name in BOUNDS if name not in ("compute_eff", "convert_s")]
    if np.any(np.asarray(few.shape.blocks) > 0):
        names.append("compute_eff")
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
    error = score(call_seconds(shape, law, gpu), seconds).median
    if error > UNUSABLE:
        raise ValueError(
            f"the law misses the rows it was fitted on by {100 * error:.0f} % in the median"
        )
    return law


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bench:
    """Measured rows and the GPU that they were measured on."""

    shape: AttentionShape
    seconds: Array
    gpu: HardwareProfile

    def log_error(self, law: AttentionLaw) -> Array:
        return np.log(call_seconds(self.shape, law, self.gpu) / self.seconds)


@dataclass(frozen=True, slots=True)
class _Scale:
    """How constants are scaled for the solver: logs, or shares of their upper bounds."""

    low: Array
    high: Array
    log: NDArray[np.bool_]

    def encode(self, values: Array) -> Array:
        logs = np.log(np.maximum(values, np.finfo(float).tiny))
        return np.where(self.log, logs, values / self.high)

    def decode(self, scaled: Array) -> Array:
        return np.where(self.log, np.exp(np.where(self.log, scaled, 0.0)), scaled * self.high)


def _best(bench: _Bench, base: AttentionLaw, names: Sequence[str]) -> tuple[AttentionLaw, float]:
    """Return the better of the laws reached from the fixed starts, and its cost."""
    bands = _known_bands(np.asarray(bench.shape.rows))
    low, high, log = np.array([BOUNDS[name] for name in names] + [BAND_BOUNDS] * len(bands)).T
    scale = _Scale(low, high, log.astype(bool))
    least, most = scale.encode(low), scale.encode(high)

    def law_of(scaled: Array) -> AttentionLaw:
        values = scale.decode(scaled).tolist()
        constants: dict[str, Any] = dict(zip(names, values, strict=False))
        return replace(base, **constants, row_costs=_row_costs(bands, values[len(names) :]))

    best, cost = base, np.inf
    for start in STARTS:
        first = [start.get(name, getattr(base, name)) for name in names] + [1.0] * len(bands)
        fitted, reached = least_log_error(
            lambda scaled: bench.log_error(law_of(scaled)),
            np.clip(scale.encode(np.array(first)), least, most),
            least - 1e-9,
            most + 1e-9,
            max_nfev=50,
        )
        if reached < cost:
            best, cost = law_of(np.clip(fitted, least, most)), reached
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
    names = ("pairs", "rows", "length", "context", "work", "blocks")
    fewer: dict[str, Any] = {
        name: values[rows] if np.ndim(values) else values
        for name, values in ((name, getattr(shape, name)) for name in names)
    }
    return shape._replace(**fewer)


def _rounded(law: AttentionLaw) -> AttentionLaw:
    constants: dict[str, Any] = {name: rounded(getattr(law, name)) for name in BOUNDS}
    costs = tuple(rounded(factor) for factor in law.row_costs)
    return replace(law, **constants, row_costs=costs)


FAMILY = TableFamily(
    kind="attention",
    tables=(("attention", "generation_attention_perf"),),
    read_groups=read_groups,
    fit=fit,
)
LATENT_FAMILY = TableFamily(
    kind="mla",
    tables=(("mla", "generation_mla_perf"),),
    read_groups=read_latent_groups,
    fit=fit_latent,
)
