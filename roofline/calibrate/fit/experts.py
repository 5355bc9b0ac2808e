"""The law of routed experts on one machine's rows: the tables' form, or the five-number one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import least_log_error, rounded
from roofline.calibrate.fit.five_number import IDENTIFIED, fit_five_numbers
from roofline.calibrate.fit.judged import Judged, Source, better_law, hold_out, judge
from roofline.calibrate.measure.rows import Row
from roofline.kernels.mlp import expert_rows
from roofline.kernels.ops import MoeShape
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.laws import MoeLaw
from roofline.timing.laws.moe import moe_time
from roofline.timing.laws.simple import Device

__all__ = ["expert_shape", "fit_experts"]

Array = NDArray[np.float64]
FEWEST = 8  # rows that the tables' form needs
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
#: Constants that one model on one rank does not tell from others, out of the way.
OUT = {
    "serial": 0.0,
    "per_active": 0.0,
    "all_passes": 0.0,
    "hottest_weight": 0.0,
    "min_width": 1.0,
}
#: Constants that are fitted only where they make the law better, by their values elsewhere.
OPTIONAL = {"p": 2.0, "per_local": 0.0, "row_passes": 0.0}


def fit_experts(rows: Sequence[Row], device: Device, source: Source) -> Judged | None:
    """Return the law that predicts held-out rows of one expert kernel better."""
    return better_law(_tables_form(rows, device, source), fit_five_numbers(rows, device, source))


def expert_shape(rows: Sequence[Row]) -> MoeShape:
    """Return what the law asks of each row, with experts drawn uniformly and independently."""
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


def _tables_form(rows: Sequence[Row], device: Device, source: Source) -> Judged | None:
    """Return the law of the public expert tables, less what one model on one rank cannot tell."""
    if len(rows) < FEWEST:
        return None
    held = hold_out(rows)
    shape, seconds = expert_shape(rows), np.array([row.seconds for row in rows])
    units = dict.fromkeys(("floor", "per_local"), float(seconds[~held].min()))

    def best(names: tuple[str, ...]) -> tuple[MoeLaw, float]:
        def law_of(scaled: Array) -> MoeLaw:
            found: dict[str, Any] = {
                n: rounded(float(v) * units.get(n, 1.0)) for n, v in zip(names, scaled, strict=True)
            }
            return MoeLaw(**(OUT | OPTIONAL | found))

        def residual(scaled: Array) -> Array:
            exact: dict[str, Any] = {
                n: float(v) * units.get(n, 1.0) for n, v in zip(names, scaled, strict=True)
            }
            total = np.asarray(moe_time(shape, device, MoeLaw(**(OUT | OPTIONAL | exact))).total)
            return np.asarray(np.log(total / seconds)[~held])

        low, start, high = (np.array([BOUNDS[n][i] for n in names]) for i in range(3))
        scaled, _ = least_log_error(residual, start, low, high, max_nfev=300)
        return law_of(scaled), float(np.mean(np.abs(residual(scaled))))

    names: tuple[str, ...] = ALWAYS
    law, loss = best(names)
    for extra in OPTIONAL:
        wider, lower = best((*names, extra))
        if loss > IDENTIFIED * lower:
            law, loss, names = wider, lower, (*names, extra)
    predicted = np.asarray(moe_time(shape, device, law).total)
    constants = asdict(law)
    del constants["steps"]
    block = {"dtype": rows[0].dtype, "kernel": rows[0].kernel, "law": constants}
    return judge("moe", block, rows, predicted=predicted, held=held, device=device, source=source)
