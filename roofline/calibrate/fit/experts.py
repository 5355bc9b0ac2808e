"""The law of routed experts on one machine's rows: ``MoeLaw``, or the five-number law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import least_log_error, rounded
from roofline.calibrate.fit.fitted_law import (
    FittedLaw,
    RowSource,
    better_law,
    fitted_law,
    held_out_rows,
)
from roofline.calibrate.fit.five_number import IDENTIFIED, fit_five_numbers
from roofline.calibrate.measure.rows import Row
from roofline.kernels.mlp import expert_rows
from roofline.kernels.ops import MoeShape
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.laws import MoeLaw
from roofline.timing.laws.moe import moe_time
from roofline.timing.laws.simple import Device

__all__ = ["expert_shape", "fit_experts"]

Array = NDArray[np.float64]
FEWEST = 8  # rows that ``MoeLaw`` needs
#: Lowest, start and highest of each constant; floor and per_local in units of the quickest row.
BOUNDS = {
    "floor": (0.0, 0.3, 1.0),
    "mem_eff": (0.01, 0.8, 1.05),
    "compute_eff": (0.002, 0.6, 1.05),
    "p": (1.0, 2.0, 8.0),
    "per_local": (0.0, 0.01, 1.0),
    "row_passes": (0.0, 1.0, 50.0),
}
ALWAYS = ("floor", "mem_eff", "compute_eff")
#: Constants that rows of one model on one rank do not identify, at values without effect.
FIXED = {
    "serial": 0.0,
    "per_active": 0.0,
    "all_passes": 0.0,
    "hottest_weight": 0.0,
    "min_width": 1.0,
}
#: Constants that are fitted only where they make the law better, by their values elsewhere.
OPTIONAL = {"p": 2.0, "per_local": 0.0, "row_passes": 0.0}


def fit_experts(rows: Sequence[Row], device: Device, source: RowSource) -> FittedLaw | None:
    """Return which of the two laws predicts held-out rows of one expert kernel better."""
    return better_law(_fit_moe_law(rows, device, source), fit_five_numbers(rows, device, source))


def expert_shape(rows: Sequence[Row]) -> MoeShape:
    """Return each row's shape as the law takes it, experts drawn uniformly and independently."""
    size = {n: np.array([float(row.sizes[n]) for row in rows]) for n in rows[0].sizes}
    tokens, top_k, experts = size["tokens"], rows[0].sizes["top_k"], rows[0].sizes["experts"]
    load = expert_rows(experts=experts, top_k=top_k, tokens=tokens, independent=tokens)
    return MoeShape(
        tokens=tokens,
        top_k=top_k,
        experts=experts,
        ranks=1,
        hidden=size["hidden"],
        width=size["width"],
        matrices=size["matrices"],
        weight=bytes_per_element(DType(rows[0].dtype)),
        distinct=load.distinct,
        awake=load.distinct,
        rows=tokens * top_k,
        hottest=load.hottest,
        padded=load.padded,
    )


def _fit_moe_law(rows: Sequence[Row], device: Device, source: RowSource) -> FittedLaw | None:
    """Return the law that public expert tables get, with FIXED out of the fit."""
    if len(rows) < FEWEST:
        return None
    held = held_out_rows(rows)
    shape, seconds = expert_shape(rows), np.array([row.seconds for row in rows])
    units = dict.fromkeys(("floor", "per_local"), float(seconds[~held].min()))

    def fit_constants(names: tuple[str, ...]) -> tuple[MoeLaw, float]:
        def constants(scaled: Array) -> dict[str, Any]:
            return {n: float(v) * units.get(n, 1.0) for n, v in zip(names, scaled, strict=True)}

        def residual(scaled: Array) -> Array:
            law = MoeLaw(**(FIXED | OPTIONAL | constants(scaled)))
            total = np.asarray(moe_time(shape, device, law).total)
            return np.asarray(np.log(total / seconds)[~held])

        low, start, high = (np.array([BOUNDS[n][i] for n in names]) for i in range(3))
        scaled, _ = least_log_error(residual, start, low, high, max_nfev=300)
        fitted: dict[str, Any] = {n: rounded(value) for n, value in constants(scaled).items()}
        loss = float(np.mean(np.abs(residual(scaled))))
        return MoeLaw(**(FIXED | OPTIONAL | fitted)), loss

    names: tuple[str, ...] = ALWAYS
    law, loss = fit_constants(names)
    for extra in OPTIONAL:
        wider, smaller_loss = fit_constants((*names, extra))
        if loss > IDENTIFIED * smaller_loss:
            law, loss, names = wider, smaller_loss, (*names, extra)
    predicted = np.asarray(moe_time(shape, device, law).total)
    constants = asdict(law)
    del constants["steps"]
    block = {"dtype": rows[0].dtype, "kernel": rows[0].kernel, "law": constants}
    return fitted_law(
        "moe", block, rows, predicted=predicted, held=held, device=device, source=source
    )
