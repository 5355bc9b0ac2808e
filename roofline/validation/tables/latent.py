"""Absorbed-MLA decode tables: one latent vector per cached token, read by all heads.

``num_heads`` is per GPU already (128 / ``tp_size``), ``isl`` is 1 (the new token), ``step`` the
tokens cached before it, and ``latency`` is in ms. ``mla_dtype`` says bfloat16 whatever the cache
holds: ``kv_cache_dtype`` tells it. The ``mla_*_module`` tables hold projections too, and are not
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.kernels.ops import AttentionShape
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import AttentionLaw
from roofline.validation.tables.attention import CACHES, at_least_one, clean_possible
from roofline.validation.tables.attention_fit import (
    KV_BYTES,
    fit_law,
    law_seconds,
    textbook_seconds,
)
from roofline.validation.tables.family import Group, Label, Numbers
from roofline.validation.tables.family import all_rows as scored
from roofline.validation.tables.tables import Table, kinds, pick, read

__all__ = ["KIND", "TABLES", "fit", "groups", "scored", "seconds", "textbook"]

KIND = "mla"
TABLES: Sequence[tuple[str, str]] = (("mla", "generation_mla_perf"),)
Array = NDArray[np.float64]

KEY_WIDTH, VALUE_WIDTH = 576, 512  # the latent with its rotary part, and what of it is the value
_COLUMNS = ("kernel_source", "kv_cache_dtype", "num_heads", "batch_size", "isl", "step", "latency")


def groups(table: Table, gpu: HardwareProfile) -> list[Group]:  # noqa: ARG001
    """Read, clean and divide a table by cache format and kernel, most rows first.

    Rejected by name beside what ``clean`` rejects: ``impossible_shape``, a size below 1.
    """
    raw = read(table, _COLUMNS)
    raw["context"] = raw["isl"].astype(np.float64) + raw["step"].astype(np.float64)
    found = []
    for cache, kernel in kinds(raw, ("kv_cache_dtype", "kernel_source")):
        of_kernel = pick(raw, (raw["kv_cache_dtype"] == cache) & (raw["kernel_source"] == kernel))
        possible = at_least_one(of_kernel, ("batch_size", "num_heads", "context"))
        rows, why = clean_possible(of_kernel, possible, curve=("num_heads", "batch_size"))
        if cache not in CACHES or not len(rows["latency"]):
            continue
        found.append(
            Group.of(
                table,
                rows,
                kind=KIND,
                label={"dtype": CACHES[cache], "kernel": kernel},
                columns={
                    "batch": rows["batch_size"].astype(np.float64),
                    "heads": rows["num_heads"].astype(np.float64),
                    "context": rows["context"].astype(np.float64),
                },
                shape=("num_heads",),
                rejected=why,
            )
        )
    return found


def _shape(columns: Numbers, label: Label) -> AttentionShape:
    return AttentionShape(
        pairs=columns["batch"],
        rows=columns["heads"],
        length=columns["context"],
        context=columns["context"],
        kv_width=KEY_WIDTH,
        mac_width=KEY_WIDTH + VALUE_WIDTH,
        kv=KV_BYTES[label["dtype"]],
    )


def seconds(columns: Numbers, label: Label, law: AttentionLaw, gpu: HardwareProfile) -> Array:
    """Predict a call of the benchmark, which finds a small cache in L2 [s]."""
    return law_seconds(_shape(columns, label), law, gpu)


def textbook(columns: Numbers, label: Label, gpu: HardwareProfile) -> Array:
    """Return max(bytes / bandwidth, FLOP / peak), the latents read once for all heads [s]."""
    return textbook_seconds(_shape(columns, label), gpu)


def fit(
    columns: Numbers, label: Label, seconds: Array, gpu: HardwareProfile
) -> tuple[AttentionLaw, dict[str, Any]]:
    """Return the law, by least log error."""
    return fit_law(_shape(columns, label), seconds, gpu), {}
