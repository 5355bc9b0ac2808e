"""GEMM tables: one product of M x K activations and N x K weights, by dtype.

A row times one call of the engine's linear layer, activation quantisation included where it has
any; ``latency`` is in ms, the output is bf16. Several kernels may share a dtype
(``kernel_source``): an engine picks among them by M, so one law covers them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.kernels.formulas import gemm_bytes, gemm_flops
from roofline.kernels.ops import GemmShape
from roofline.specs.formats import DType, bytes_per_element, rate_name
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import GemmLaw
from roofline.timing.laws.base import Device
from roofline.timing.laws.gemm import gemm_time
from roofline.timing.machine import Machine
from roofline.validation.tables.family import Group, Label, Numbers
from roofline.validation.tables.gemm_fit import fit_law
from roofline.validation.tables.tables import Table, clean, latency, pick, read

__all__ = [
    "FORMATS",
    "KIND",
    "LEAST_ROWS",
    "TABLES",
    "fit",
    "groups",
    "scored",
    "seconds",
    "textbook",
]

KIND = "gemm"
TABLES: Sequence[tuple[str, str]] = (("gemm", "gemm_perf"),)
Array = NDArray[np.float64]

SHAPE = ("n", "k")
_COLUMNS = ("op_name", "gemm_dtype", "m", "n", "k", "latency")
#: The region that the law is judged on.
MAX_M, LEAST_NK = 1024, 512
LEAST_ROWS = 100  # judged rows that a fit needs
OUTPUT = 2.0  # bytes of an output element [B]


@dataclass(frozen=True, slots=True)
class _Format:
    label: str  # as the laws' blocks say it
    storage: DType  # of the weights
    compute: DType  # of the activations: the rate the product runs at


#: The tables' ``gemm_dtype``.
FORMATS = {
    "bfloat16": _Format("bf16", DType.BF16, DType.BF16),
    "fp8": _Format("fp8", DType.FP8, DType.FP8),
    "fp8_block": _Format("fp8-block", DType.FP8_BLOCK, DType.FP8),
    "nvfp4": _Format("nvfp4", DType.NVFP4, DType.NVFP4),
    "int8_wo": _Format("int8-wo", DType.INT8, DType.BF16),
    "int4_wo": _Format("int4-wo", DType.INT4_G128, DType.BF16),
    "sq": _Format("int8", DType.INT8, DType.INT8),  # SmoothQuant, W8A8
}
_BY_LABEL = {known.label: known for known in FORMATS.values()}


def groups(table: Table, gpu: HardwareProfile) -> list[Group]:
    """Read, clean and divide a table by dtype.

    Dtypes that the laws do not know, or without a datasheet rate on this GPU, are left out.
    """
    raw = read(table, _COLUMNS)
    found = []
    for name, known in FORMATS.items():
        inside = (raw["gemm_dtype"] == name) & (raw["op_name"] == "gemm")
        if rate_name(known.compute) not in gpu.rates or not inside.any():
            continue
        rows = pick(raw, inside)
        index, why = clean(rows, latency(rows), size="m", curve=SHAPE)
        if not len(index):
            continue
        rows = pick(rows, index)
        columns = {size: rows[size].astype(np.float64) for size in ("m", "n", "k")}
        label = {"dtype": known.label}
        found.append(
            Group.of(
                table, rows, kind=KIND, label=label, columns=columns, shape=SHAPE, rejected=why
            )
        )
    return found


def _shape(columns: Numbers, label: Label) -> GemmShape:
    known = _BY_LABEL[label["dtype"]]
    sizes: dict[str, Any] = {size: columns[size] for size in ("m", "n", "k")}
    return GemmShape(
        **sizes,
        weight=bytes_per_element(known.storage),
        activation=bytes_per_element(known.compute),
    )


def _device(label: Label, gpu: HardwareProfile) -> Device:
    return Machine(gpu).device(rate_name(_BY_LABEL[label["dtype"]].compute))


def seconds(columns: Numbers, label: Label, law: GemmLaw, gpu: HardwareProfile) -> Array:
    """Predict a call of the benchmark, which may find small weights in L2 [s]."""
    time = gemm_time(_shape(columns, label), _device(label, gpu), law, warm=True)
    return np.asarray(time.total)


def textbook(columns: Numbers, label: Label, gpu: HardwareProfile) -> Array:
    """Return max(bytes / bandwidth, FLOP / peak) of weights, activations and bf16 outputs [s]."""
    known, device = _BY_LABEL[label["dtype"]], _device(label, gpu)
    moved = gemm_bytes(
        m=columns["m"],
        n=columns["n"],
        k=columns["k"],
        weight=bytes_per_element(known.storage),
        activation=bytes_per_element(known.compute),
        output=OUTPUT,
    )
    flops = gemm_flops(m=columns["m"], n=columns["n"], k=columns["k"])
    return np.maximum(np.asarray(moved) / device.bandwidth, np.asarray(flops) / device.peak)


def scored(columns: Numbers, label: Label) -> NDArray[np.bool_]:  # noqa: ARG001
    """Return the rows that count when the law is judged: M <= 1024, N and K >= 512."""
    wide = (columns["n"] >= LEAST_NK) & (columns["k"] >= LEAST_NK)
    return np.asarray((columns["m"] <= MAX_M) & wide)


def fit(
    columns: Numbers, label: Label, seconds: Array, gpu: HardwareProfile
) -> tuple[GemmLaw, dict[str, Any]]:
    """Return the law, with the tile set that predicts best on some of the shapes given.

    Rows that are too few in the judged region are refused: a law could not be checked there.
    """
    judged = scored(columns, label)
    if judged.sum() < LEAST_ROWS:
        raise ValueError(
            f"{judged.sum()} rows with M <= {MAX_M} and N, K >= {LEAST_NK}, of {LEAST_ROWS} needed"
        )
    device = _device(label, gpu)

    def predict(rows: Numbers, law: GemmLaw) -> Array:
        return np.asarray(gemm_time(_shape(rows, label), device, law, warm=True).total)

    law = fit_law(columns, seconds, judged=judged, predict=predict, l2=device.l2)
    return law, {}
