"""Linear-attention tables: the decode kernels of gated-delta-rule (GDN) layers.

Rows of phase ``generation`` are one token for each of ``batch_size`` sequences; ``latency`` is in
ms. Two kernels: the recurrent update of the state, and the short convolution before it. (The
``mamba2`` tables hold the convolution alone, and are not read.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import Columns, Label, least_log_error, resident_share, rounded
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import StateLaw
from roofline.validation.kernel_families import state_seconds
from workshop.tables.family import TableFamily, TableGroup, has_gddr
from workshop.tables.parquet import RawColumns, Table, clean, latency, pick, read

__all__ = ["FAMILY", "fit", "read_groups"]

KIND = "ssm"
Array = NDArray[np.float64]

SHAPE = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim")
_COLUMNS = ("kernel_source", "phase", "batch_size", "d_conv", "latency", *SHAPE)
VALUE = 2.0  # bytes of an activation [B]
#: Start (= prior), low, high.
BOUNDS = {
    "floor": (4e-6, 1e-7, 1e-4),
    "mem_eff": (0.8, 0.3, 1.05),
    "r": (1.5, 1.0, 8.0),
    "l2_saving": (0.3, 0.0, 0.95),
}
DIFFER = 0.5  # in the share of the state that L2 holds, between rows
PRECISE = {"f_scale": 0.05, "ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12, "max_nfev": 200}


def read_groups(table: Table, gpu: HardwareProfile) -> list[TableGroup]:
    """Read, clean and divide a table by kernel, updates of the state first."""
    raw = read(table, _COLUMNS)
    decode = raw["phase"] == "generation"
    kernels = set(raw["kernel_source"][decode].tolist())
    groups = []
    for kernel in sorted(kernels, key=lambda name: (_is_convolution(name), name)):
        inside = decode & (raw["kernel_source"] == kernel)
        rows = pick(raw, inside)
        index, rejected = clean(rows, latency(rows), size="batch_size", curve=(*SHAPE, "d_conv"))
        if not len(index):
            continue
        rows = pick(rows, index)
        groups.append(
            TableGroup.of(
                table,
                rows,
                kind=KIND,
                label={"dtype": "bf16" if _is_convolution(kernel) else "fp32", "kernel": kernel},
                columns=_columns(rows, kernel, table.engine, gpu),
                shape=SHAPE,
                rejected=rejected,
            )
        )
    return groups


def _is_convolution(kernel: str) -> bool:
    return "conv" in kernel


def _columns(rows: RawColumns, kernel: str, engine: str, gpu: HardwareProfile) -> Columns:
    """Return the bytes a step moves, and the share of its state that the loop finds in L2."""
    numbers = {name: rows[name].astype(np.float64) for name in (*SHAPE, "batch_size", "d_conv")}
    if _is_convolution(kernel):
        moved, kept = _convolution_bytes(numbers, keys_only=engine == "trtllm")
    else:
        moved, kept = _update_bytes(numbers, in_place="packed" in kernel)
    l2 = gpu.compute.l2.value if gpu.compute.l2 else 0.0
    return {"moved": moved, "resident": resident_share(kept, l2)}


def _update_bytes(rows: dict[str, Array], *, in_place: bool) -> tuple[Array, Array]:
    """Return the bytes moved by the recurrent update, and those of the state it touches [B].

    The state of B sequences, B H_v d_k d_v elements, is read and written; queries and keys, values
    and outputs beside it. Packed kernels update an fp32 state in place (8 B per element, 4 of them
    touched). Others read bf16 and write fp32 elsewhere (6 B): inferred from their speed.
    """
    sequences = rows["batch_size"]
    elements = sequences * rows["num_v_heads"] * rows["head_k_dim"] * rows["head_v_dim"]
    read, write = (4, 4) if in_place else (2, 4)
    state = elements * (read + write)
    keys = rows["num_k_heads"] * rows["head_k_dim"]
    values = rows["num_v_heads"] * rows["head_v_dim"]
    moved = state + sequences * VALUE * (2 * keys + 2 * values)
    return moved, elements * write if in_place else state


def _convolution_bytes(rows: dict[str, Array], *, keys_only: bool) -> tuple[Array, Array]:
    """Return the bytes moved by a convolution step, and those of the window it touches [B].

    Each channel reads and writes its last ``d_conv`` - 1 inputs, takes one and puts one out. The
    channels are those of queries, keys and values; TRT-LLM's rows time the keys' alone.
    """
    keys = rows["num_k_heads"] * rows["head_k_dim"]
    channels = keys if keys_only else 2 * keys + rows["num_v_heads"] * rows["head_v_dim"]
    moved = rows["batch_size"] * channels * VALUE * (2 * (rows["d_conv"] - 1) + 2)
    return moved, moved / 2


def fit(
    columns: Columns,
    label: Label,  # noqa: ARG001
    seconds: Array,
    gpu: HardwareProfile,
) -> tuple[StateLaw, dict[str, Any]]:
    """Return the law, by least log error."""
    pinned = _pinned(columns, gpu)
    free = [name for name in BOUNDS if name not in pinned]
    start, low, high = np.array([BOUNDS[name] for name in free]).T

    def law_of(scaled: Array) -> StateLaw:
        return StateLaw(**pinned, **dict(zip(free, (scaled * start).tolist(), strict=True)))

    def residual(scaled: Array) -> Array:
        return np.asarray(np.log(state_seconds(columns, law_of(scaled), gpu) / seconds))

    first = np.ones(len(start))
    scaled, _ = least_log_error(residual, first, low / start, high / start, **PRECISE)
    law = law_of(scaled)
    return StateLaw(**{name: rounded(getattr(law, name)) for name in BOUNDS}), {}


def _pinned(columns: Columns, gpu: HardwareProfile) -> dict[str, float]:
    """Return the constant that these rows do not identify, if there is one.

    Where rows hardly differ in what L2 holds, ``mem_eff`` and ``l2_saving`` act as one. Beside HBM
    there is then no saving; beside GDDR, where L2 is clearly faster, ``mem_eff`` is its prior.
    """
    if np.ptp(columns["resident"]) > DIFFER:
        return {}
    if has_gddr(gpu):
        return {"mem_eff": BOUNDS["mem_eff"][0]}
    return {"l2_saving": 0.0}


FAMILY = TableFamily(
    kind=KIND, tables=(("linear_attention", "gdn_perf"),), read_groups=read_groups, fit=fit
)
