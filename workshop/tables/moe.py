"""MoE tables: one GPU's shard of the routed experts, by kernel and dtype.

A row times top-k routing, permute, both grouped products, activation and combine, in a CUDA graph,
on the busiest rank of a synthetic routing; ``num_tokens`` are those of all ranks, ``latency`` is in
ms. The router's product, shared experts and communication are not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import Columns, Label, least_log_error, resident_share, rounded
from roofline.kernels.ops import MoeShape
from roofline.specs.formats import bytes_per_element
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import MoeLaw
from roofline.timing.laws.moe import ALIGNMENT, STEP_HIGH, STEP_LOW, moe_time, step_index
from roofline.validation.kernel_families import (
    EXPERT_FORMATS,
    ExpertFormat,
    expert_device,
    expert_shape,
)
from workshop.tables.family import TableFamily, TableGroup, has_gddr
from workshop.tables.parquet import RawColumns, Table, clean, latency, pick, read
from workshop.tables.routing import RankLoad, alpha_of, rank_load

__all__ = ["FAMILY", "fit", "read_groups"]

KIND = "moe"
Array = NDArray[np.float64]

SHAPE = ("num_experts", "topk", "hidden_size", "inter_size", "moe_tp_size", "moe_ep_size")
_COLUMNS = ("kernel_source", "moe_dtype", "num_tokens", "distribution", "latency", *SHAPE)


#: The tables' ``moe_dtype``, as the laws' blocks say it.
DTYPES = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "int4_wo": "int4-wo",
    "nvfp4": "nvfp4",
    "w4a16_mxfp4": "mxfp4-wo",
    "w4a8_mxfp4_mxfp8": "mxfp4",
}
#: (E, k, H, inter) whose router limits the groups (groups, kept): the synthetic picks are
#: overruled. DeepSeek-V3 and R1.
GROUP_LIMITED: dict[tuple[int, ...], tuple[int, int]] = {(256, 8, 7168, 2048): (8, 4)}
#: (E, k, H, inter) with two matrices (relu^2, no gate), which no column says: the Nemotrons.
UNGATED = frozenset(
    {(128, 6, 2688, 1856), (512, 22, 1024, 2688), (512, 22, 2048, 5120), (512, 22, 8192, 5120)}
)
#: Start (the prior of a constant the data cannot identify), low, high.
BOUNDS = {
    "floor": (1.5e-5, 1e-7, 2e-4),
    "serial": (1e-7, 0.0, 2e-6),
    "mem_eff": (0.9, 0.3, 1.05),
    "compute_eff": (0.6, 0.1, 1.05),
    "p": (1.2, 1.0, 8.0),
    "per_active": (3e-8, 0.0, 1e-5),
    "per_local": (3e-8, 0.0, 1e-5),
    "row_passes": (1.0, 0.0, 20.0),
    "all_passes": (1.0, 0.0, 20.0),
    "hottest_weight": (0.5, 0.0, 5.0),
    "misaligned": (1.0, 1.0, 8.0),
    "l2_saving": (0.3, 0.0, 0.95),
}
#: Tiles tried for ``min_width``, its prior first; another must fit clearly better.
TILES = (64.0, 16.0, 32.0, 128.0, 256.0)
CLEARLY = 0.01  # a share of the cost
AT_BOUND = 1e-3  # in units of the prior
PRECISE = {"ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12, "max_nfev": 200}
WIDTH_BANDS = 2
SHRINK = 30.0  # pseudo rows that pull a step of the staircase to 1


def read_groups(table: Table, gpu: HardwareProfile) -> list[TableGroup]:
    """Read, clean and divide a table by dtype and kernel.

    Dtypes that the laws do not know, or without a datasheet rate on this GPU, are left out.
    """
    raw = read(table, _COLUMNS)
    groups = []
    for dtype, kernel in sorted(set(zip(raw["moe_dtype"], raw["kernel_source"], strict=True))):
        name = DTYPES.get(dtype)
        if name is None or EXPERT_FORMATS[name].rate not in gpu.rates:
            continue
        inside = (raw["moe_dtype"] == dtype) & (raw["kernel_source"] == kernel)
        rows, rejected = _usable(pick(raw, inside))
        if not len(rows["latency"]):
            continue
        groups.append(
            TableGroup.of(
                table,
                rows,
                kind=KIND,
                label={"dtype": name, "kernel": str(kernel)},
                columns=_columns(rows, EXPERT_FORMATS[name], gpu),
                shape=SHAPE,
                rejected=rejected,
            )
        )
    return groups


def _usable(rows: RawColumns) -> tuple[RawColumns, Counter[str]]:
    """Return the rows that can be fitted, and the count of others by reason.

    Beside what ``clean`` rejects: ``uneven_ranks``, experts that do not divide over the ranks, and
    ``unknown_routing``, a distribution whose loads cannot be reproduced.
    """
    index, rejected = clean(rows, latency(rows), size="num_tokens", curve=(*SHAPE, "distribution"))
    rows = pick(rows, index)
    experts, ranks = (rows[name].astype(np.int64) for name in ("num_experts", "moe_ep_size"))
    even = experts % ranks == 0
    known = np.array([alpha_of(name) is not None for name in rows["distribution"]], dtype=bool)
    rejected["uneven_ranks"] = int((~even).sum())
    rejected["unknown_routing"] = int((even & ~known).sum())
    return pick(rows, even & known), +rejected


def _columns(rows: RawColumns, form: ExpertFormat, gpu: HardwareProfile) -> Columns:
    """Return what the law and the textbook need of each row, as plain numbers.

    ``alpha`` names the routing (0 balanced): rows of one shape and alpha differ in tokens only.
    """
    names = ("num_experts", "topk", "hidden_size", "inter_size")
    models = list(zip(*(rows[name].astype(int).tolist() for name in names), strict=True))
    matrices = np.array([2.0 if model in UNGATED else 3.0 for model in models])
    experts, top_k, hidden, inter = np.array(models, dtype=np.float64).T
    width = inter / rows["moe_tp_size"].astype(np.float64)
    work = _rank_loads(rows, models)
    touched = work["distinct"] * matrices * hidden * width * bytes_per_element(form.storage)
    l2 = gpu.compute.l2.value if gpu.compute.l2 else 0.0
    return {
        "tokens": rows["num_tokens"].astype(np.float64),
        "top_k": top_k,
        "experts": experts,
        "ranks": rows["moe_ep_size"].astype(np.float64),
        "hidden": hidden,
        "width": width,
        "matrices": matrices,
        "alpha": np.array([alpha_of(name) for name in rows["distribution"]], dtype=np.float64),
        **work,
        "resident": resident_share(touched, l2),
    }


def _rank_loads(rows: RawColumns, models: list[tuple[int, ...]]) -> dict[str, Array]:
    """Return the expected loads of each row's routing, as columns."""
    calls = zip(rows["distribution"], rows["num_tokens"], rows["moe_ep_size"], models, strict=True)
    loads = [
        rank_load(
            alpha=alpha_of(name) or 0.0,
            tokens=int(tokens),
            experts=model[0],
            top_k=model[1],
            ranks=int(ranks),
            groups=GROUP_LIMITED.get(model, (1, 1)),
        )
        for name, tokens, ranks, model in calls
    ]
    return {name: np.array([getattr(load, name) for load in loads]) for name in RankLoad.__slots__}


def fit(
    columns: Columns, label: Label, seconds: Array, gpu: HardwareProfile
) -> tuple[MoeLaw, dict[str, Any]]:
    """Return the law: constants by least log error, then the staircase of what they leave."""
    shape, device = expert_shape(columns, label), expert_device(label, gpu)

    def log_ratio(law: MoeLaw) -> Array:
        time = moe_time(shape, device, law, resident=columns["resident"])
        return np.asarray(np.log(time.total / seconds))

    pinned = _pinned(columns, gpu)
    tied = not (columns["ranks"] > 1).any()  # then A = D: their costs are one number, shared evenly
    law, cost = MoeLaw(), np.inf
    for tile in _tiles(columns["width"]):
        fitted, reached = _constants(log_ratio, pinned=pinned | {"min_width": tile}, tied=tied)
        if reached < (1 - CLEARLY) * cost:
            law, cost = fitted, reached
    axis = steps_axis(label["kernel"])
    steps = fit_staircase(shape, -log_ratio(law), axis=axis)
    return replace(law, steps=steps, steps_axis=axis), {}


def _tiles(widths: Array) -> list[float]:
    """Return the tiles to try for ``min_width``: the prior, and those wider than some shard."""
    return [TILES[0], *(tile for tile in TILES[1:] if tile > widths.min())]


def _constants(
    log_ratio: Callable[[MoeLaw], Array], *, pinned: dict[str, Any], tied: bool
) -> tuple[MoeLaw, float]:
    """Return the law without its staircase, and its cost; constants close to a bound lie on it."""
    free = [name for name in BOUNDS if name not in pinned and not (tied and name == "per_local")]
    start, low, high = np.array([BOUNDS[name] for name in free]).T
    low, high = low / start, high / start  # in units of the prior

    def law_of(scaled: Array) -> MoeLaw:
        constants: dict[str, Any] = dict(zip(free, (scaled * start).tolist(), strict=True))
        if tied:
            constants["per_local"] = constants["per_active"]
        return MoeLaw(**pinned, **constants)

    scaled, cost = least_log_error(
        lambda x: log_ratio(law_of(x)), np.ones(len(free)), low, high, **PRECISE
    )
    scaled = np.where(scaled - low < AT_BOUND, low, scaled)
    law = law_of(np.where(high - scaled < AT_BOUND, high, scaled))
    names = [*free, "per_local"] if tied else free
    constants: dict[str, Any] = {name: rounded(getattr(law, name)) for name in names}
    return replace(law, **constants), cost


def _pinned(columns: Columns, gpu: HardwareProfile) -> dict[str, Any]:
    """Return the constants that these rows do not identify.

    Weights in L2 are read faster only where GDDR memory is so much slower: beside HBM the saving
    is not identified, and 0.
    """
    pinned: dict[str, Any] = {}
    if not has_gddr(gpu) or not (columns["resident"] > 0.1).any():
        pinned["l2_saving"] = 0.0
    if not (columns["width"] % ALIGNMENT).any():
        pinned["misaligned"] = 1.0
    return pinned


def steps_axis(kernel: str) -> Literal["rows", "tokens"]:
    """Return what a kernel picks its tile by: rows per expert, or tokens per expert held here.

    Triton's and CUTLASS's configurations are keyed by the number of tokens.

    >>> steps_axis("vllm_fp8moe_triton_tritonexperts"), steps_axis("sglang_flashinfer_trtllm_moe")
    ('tokens', 'rows')
    """
    keyed = any(word in kernel for word in ("triton", "cutlass", "fused_moe"))
    return "tokens" if keyed else "rows"


def fit_staircase(
    shape: MoeShape, log_excess: Array, *, axis: Literal["rows", "tokens"]
) -> tuple[tuple[float, ...], ...]:
    """Return the median of measured / law on each step, drawn to 1 where rows are few."""
    band, step = step_index(shape, axis)
    table = np.ones((WIDTH_BANDS, STEP_HIGH - STEP_LOW + 1))
    for b, s in sorted(set(zip(band.tolist(), step.tolist(), strict=True))):
        inside = log_excess[(band == b) & (step == s)]
        table[b, s] = np.exp(np.median(inside) * inside.size / (inside.size + SHRINK))
    return tuple(tuple(rounded(value) for value in row) for row in table.tolist())


FAMILY = TableFamily(kind=KIND, tables=(("moe", "moe_perf"),), read_groups=read_groups, fit=fit)
