"""Absorbed-MLA decode tables: one latent vector per cached token, read by all heads.

``num_heads`` is per GPU already (128 / ``tp_size``), ``isl`` is 1 (the new token), ``step`` the
tokens cached before it, and ``latency`` is in ms. ``mla_dtype`` says bfloat16 whatever the cache
holds: ``kv_cache_dtype`` tells it. The ``mla_*_module`` tables hold projections too, and are not
read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibration.attention import CACHES
from roofline.calibration.attention_fit import KV_BYTES, fit_law, law_seconds, textbook_seconds
from roofline.calibration.family import Group, Label, Numbers
from roofline.calibration.tables import Columns, Table, clean, read, shape_keys
from roofline.hardware import HardwareProfile
from roofline.laws.attention import AttentionLaw
from roofline.shapes import AttentionShape

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
    for cache, kernel in _kernels(raw):
        inside = (raw["kv_cache_dtype"] == cache) & (raw["kernel_source"] == kernel)
        rows, why = _usable({name: column[inside] for name, column in raw.items()})
        if not len(rows["latency"]):
            continue
        found.append(
            Group(
                kind=KIND,
                gpu=table.gpu,
                engine=table.engine,
                version=table.version,
                source=table.label,
                label={"dtype": CACHES[cache], "kernel": kernel},
                columns={
                    "batch": rows["batch_size"].astype(np.float64),
                    "heads": rows["num_heads"].astype(np.float64),
                    "context": rows["context"].astype(np.float64),
                },
                seconds=_seconds(rows),
                keys=shape_keys(rows["num_heads"]),
                rejected=dict(why),
            )
        )
    return found


def _kernels(raw: Columns) -> list[tuple[str, str]]:
    """Return each cache format and kernel of a table, kernels with most rows first."""
    names = ("kv_cache_dtype", "kernel_source")
    count = Counter(zip(*(raw[name].tolist() for name in names), strict=True))
    known = [kind for kind in count if kind[0] in CACHES]
    return sorted(known, key=lambda kind: (kind[0], -count[kind], kind[1]))


def _seconds(rows: Columns) -> Array:
    return rows["latency"].astype(np.float64) * 1e-3


def _usable(rows: Columns) -> tuple[Columns, Counter[str]]:
    """Return the rows that can be fitted, and the count of others by reason."""
    sizes = ("batch_size", "num_heads", "context")
    possible = np.all([rows[name].astype(np.float64) >= 1 for name in sizes], axis=0)
    rows = {name: column[possible] for name, column in rows.items()}
    curve = ("num_heads", "batch_size")
    index, why = clean(rows, _seconds(rows), size="context", curve=curve)
    why["impossible_shape"] = int((~possible).sum())
    return {name: column[index] for name, column in rows.items()}, +why


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


def scored(columns: Numbers, label: Label) -> NDArray[np.bool_]:  # noqa: ARG001
    """Return the rows that count when the law is judged: all."""
    return np.ones(len(columns["batch"]), dtype=bool)


def fit(
    columns: Numbers, label: Label, seconds: Array, gpu: HardwareProfile
) -> tuple[AttentionLaw, dict[str, Any]]:
    """Return the law, by least log error."""
    return fit_law(_shape(columns, label), seconds, gpu), {}
