"""GEMM tables: one product of M x K activations and N x K weights, by dtype.

A row times one call of the engine's linear layer, activation quantisation included where it has
any; ``latency`` is in ms, the output is bf16. Several kernels may share a dtype
(``kernel_source``): an engine picks among them by M, so one law covers them all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import Columns, Label
from roofline.calibrate.fit.tiles import PRODUCT_FORMATS, fit_product_law
from roofline.specs.formats import rate_name
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import GemmLaw
from workshop.tables.family import TableFamily, TableGroup
from workshop.tables.parquet import Table, clean, latency, pick, read

__all__ = ["DTYPES", "FAMILY", "fit", "read_groups"]

KIND = "gemm"
Array = NDArray[np.float64]
SHAPE = ("n", "k")
_COLUMNS = ("op_name", "gemm_dtype", "m", "n", "k", "latency")
#: The tables' ``gemm_dtype``, as the laws' blocks say it.
DTYPES = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "nvfp4": "nvfp4",
    "int8_wo": "int8-wo",
    "int4_wo": "int4-wo",
    "sq": "int8",  # SmoothQuant, W8A8
}


def read_groups(table: Table, gpu: HardwareProfile) -> list[TableGroup]:
    """Read, clean and divide a table by dtype.

    Dtypes that the laws do not know, or without a datasheet rate on this GPU, are left out.
    """
    raw = read(table, _COLUMNS)
    groups = []
    for name, dtype in DTYPES.items():
        inside = (raw["gemm_dtype"] == name) & (raw["op_name"] == "gemm")
        if rate_name(PRODUCT_FORMATS[dtype].compute) not in gpu.rates or not inside.any():
            continue
        rows = pick(raw, inside)
        index, rejected = clean(rows, latency(rows), size="m", curve=SHAPE)
        if not len(index):
            continue
        rows = pick(rows, index)
        columns = {size: rows[size].astype(np.float64) for size in ("m", "n", "k")}
        groups.append(
            TableGroup.of(
                table,
                rows,
                kind=KIND,
                label={"dtype": dtype},
                columns=columns,
                shape=SHAPE,
                rejected=rejected,
            )
        )
    return groups


def fit(
    columns: Columns, label: Label, seconds: Array, gpu: HardwareProfile
) -> tuple[GemmLaw, dict[str, Any]]:
    """Return the law, with the tile set that predicts best on some of the shapes given."""
    return fit_product_law(columns, label, seconds, gpu), {}


FAMILY = TableFamily(kind=KIND, tables=(("gemm", "gemm_perf"),), read_groups=read_groups, fit=fit)
