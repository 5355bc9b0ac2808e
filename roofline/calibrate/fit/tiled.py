"""The laws of tiles and split caches, fitted to a GPU's own rows as to the public tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import least_log_error, rounded
from roofline.calibrate.fit.groups import Judged, evidence, hold_out
from roofline.calibrate.measure.rows import Row
from roofline.kernels.ops import AttentionShape, CollectiveShape
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import AttentionLaw, CollectiveLaw, Ranks
from roofline.timing.laws.attention import attention_time
from roofline.timing.laws.base import Device
from roofline.timing.laws.collective import collective_time

__all__ = ["fit_all_reduce", "fit_split_attention", "fit_tiles"]

Array = NDArray[np.float64]
ROW_TILES = (16, 32, 64, 128)
#: Lowest, start, highest and unit of the split-cache law's constants.
ATTENTION = {
    "floor": (0.2, 4.0, 60.0, 1e-6),
    "mem_eff": (0.3, 0.85, 1.05, 1.0),
    "compute_eff": (0.02, 0.5, 1.05, 1.0),
    "p": (1.0, 2.0, 8.0, 1.0),
    "cta_s": (0.0, 2.0, 50.0, 1e-6),
    "token_s": (0.0, 5.0, 200.0, 1e-9),
    "max_splits": (1.0, 16.0, 256.0, 1.0),
}


def fit_tiles(
    rows: Sequence[Row], gpu: HardwareProfile, device: Device, source: Mapping[str, str]
) -> Judged | None:
    """Return the tile law of a product format; None of an unknown one, or of too few rows."""
    from roofline.validation.tables import gemm

    label = {"dtype": rows[0].dtype}
    known = {form.label for form in gemm.FORMATS.values()}
    if label["dtype"] not in known or device.units == 0:
        return None
    columns = {n: np.array([float(row.sizes[n]) for row in rows]) for n in ("m", "n", "k")}
    seconds = np.array([row.seconds for row in rows])
    held = hold_out(rows)
    fitted = {name: column[~held] for name, column in columns.items()}
    if gemm.scored(fitted, label).sum() < gemm.LEAST_ROWS:
        return None
    law, _ = gemm.fit(fitted, label, seconds[~held], gpu)
    predicted = gemm.seconds(columns, label, law, gpu)
    return _judged("gemm", {**label, "law": asdict(law)}, rows, predicted, held, device, source)


def fit_split_attention(
    rows: Sequence[Row], device: Device, source: Mapping[str, str]
) -> Judged | None:
    """Return the split-cache law with the row tile that predicts best."""
    if device.units == 0 or rows[0].dtype not in ("bf16", "fp8") or len(rows) < 20:
        return None
    held = hold_out(rows)
    seconds = np.array([row.seconds for row in rows])
    shape = _attention_shape(rows)

    def residual_for(tile: int) -> tuple[AttentionLaw, float]:
        def law_of(scaled: Array) -> AttentionLaw:
            units = zip(ATTENTION.items(), scaled, strict=True)
            values: dict[str, Any] = {name: float(v) * unit for (name, (*_, unit)), v in units}
            return AttentionLaw(row_tile=tile, **values)

        def residual(scaled: Array) -> Array:
            total = np.asarray(attention_time(shape, device, law_of(scaled)).total)
            return np.asarray(np.log(total / seconds)[~held])

        low, start, high = (np.array([b[i] for b in ATTENTION.values()]) for i in range(3))
        found, cost = least_log_error(residual, start, low, high)
        return law_of(found), cost

    tried = {tile: residual_for(tile) for tile in ROW_TILES}
    law = tried[min(tried, key=lambda tile: tried[tile][1])][0]
    short: dict[str, Any] = {n: rounded(getattr(law, n)) for n in ATTENTION}
    law = replace(law, **short)
    predicted = np.asarray(attention_time(shape, device, law).total)
    head = rows[0].sizes["head_dim"]
    block = {"dtype": rows[0].dtype, "kernel": rows[0].kernel, "head_dim": head,
             "law": asdict(law) | {"row_costs": list(law.row_costs)}}  # fmt: skip
    return _judged("attention", block, rows, predicted, held, device, source)


def _attention_shape(rows: Sequence[Row]) -> AttentionShape:
    sizes = {n: np.array([float(row.sizes[n]) for row in rows]) for n in rows[0].sizes}
    head = rows[0].sizes["head_dim"]
    return AttentionShape(
        pairs=sizes["batch"] * sizes["kv_heads"], rows=sizes["group"] * sizes["q"],
        length=sizes["context"], context=sizes["context"], kv_width=2 * head, mac_width=2 * head,
        kv=1.0 if rows[0].dtype == "fp8" else 2.0,
    )  # fmt: skip


def fit_all_reduce(rows: Sequence[Row], device: Device, source: Mapping[str, str]) -> Judged | None:
    """Return the bulk form's start and share of the link among the GPUs that were there."""
    if len(rows) < 4:
        return None
    ranks = rows[0].sizes["ranks"]
    payload = np.array([float(row.sizes["payload"]) for row in rows])
    seconds = np.array([row.seconds for row in rows])
    shape = CollectiveShape(payload=payload, ranks=ranks)

    def law_of(scaled: Array) -> CollectiveLaw:
        one = Ranks(start={"bulk": float(scaled[0]) * 1e-6}, share={"bulk": float(scaled[1])})
        return CollectiveLaw(ranks={ranks: one})

    def residual(scaled: Array) -> Array:
        total = collective_time(shape, device, law_of(scaled)).total
        return np.asarray(np.log(np.asarray(total) / seconds))

    low, start, high = np.array([0.5, 0.02]), np.array([10.0, 0.7]), np.array([500.0, 3.0])
    found, _ = least_log_error(residual, start, low, high)
    law = law_of(np.array([rounded(float(v)) for v in found]))
    predicted = np.asarray(collective_time(shape, device, law).total)
    held = np.zeros(len(rows), dtype=bool)
    block = {"kernel": rows[0].kernel, "law": asdict(law)}
    return _judged("allreduce", block, rows, predicted, held, device, source)


def _judged(  # noqa: PLR0917
    kind: str, block: dict[str, Any], rows: Sequence[Row], predicted: Array,
    held: NDArray[np.bool_], device: Device, source: Mapping[str, str],
) -> Judged:  # fmt: skip
    whole = {"kind": kind, "engine": source["library"], "version": source["version"], **block}
    whole["evidence"] = evidence(rows, predicted, held, device, source)
    return Judged(block=whole, rows=tuple(rows), predicted=predicted, held=held)
