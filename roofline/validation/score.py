"""Pairs of predictions and measurements, pooled and scored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import score

__all__ = ["Compared", "ScoreRow", "pool", "worst"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """Predicted, measured and textbook seconds of rows that belong together."""

    suite: str
    kind: str
    gpu: str
    engine: str
    dtype: str
    name: str
    predicted: Array
    measured: Array
    textbook: Array
    group: str = ""
    above_floor: NDArray[np.bool_] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreRow:
    """Errors of one pool of rows, as shares of the measurement."""

    suite: str
    kind: str
    gpu: str
    engine: str
    dtype: str
    n: int
    median_abs_error: float
    p90_abs_error: float
    bias: float
    textbook_median_abs_error: float
    textbook_p90_abs_error: float | None = None
    group: str = ""
    above_floor_median_abs_error: float | None = None
    above_floor_p90_abs_error: float | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the row as JSON writes it; attention alone has errors above the floor."""
        data = {name: getattr(self, name) for name in self.__slots__}
        if self.kind != "attention":
            del data["above_floor_median_abs_error"], data["above_floor_p90_abs_error"]
        if not self.group:
            del data["group"], data["textbook_p90_abs_error"]
        return data


def pool(parts: Iterable[Compared]) -> list[ScoreRow]:
    """Return one score for each kind, accelerator, engine and format, rows pooled."""
    pools: dict[tuple[str, ...], list[Compared]] = {}
    for part in parts:
        key = (part.suite, part.kind, part.gpu, part.engine, part.dtype, part.group)
        pools.setdefault(key, []).append(part)
    return [_score(key, members) for key, members in sorted(pools.items())]


def _score(key: tuple[str, ...], members: list[Compared]) -> ScoreRow:
    predicted, measured, textbook = (
        np.concatenate([getattr(part, name) for part in members])
        for name in ("predicted", "measured", "textbook")
    )
    suite, kind, gpu, engine, dtype, group = key
    error, textbook_error = score(predicted, measured), score(textbook, measured)
    masks = [part.above_floor for part in members if part.above_floor is not None]
    above = np.concatenate(masks) if masks else np.zeros(len(measured), dtype=bool)
    above_error = score(predicted[above], measured[above]) if above.any() else None
    return ScoreRow(
        suite=suite,
        kind=kind,
        gpu=gpu,
        engine=engine,
        dtype=dtype,
        n=error.rows,
        median_abs_error=error.median,
        p90_abs_error=error.p90,
        bias=error.bias,
        textbook_median_abs_error=textbook_error.median,
        textbook_p90_abs_error=textbook_error.p90 if group else None,
        group=group,
        above_floor_median_abs_error=above_error.median if above_error else None,
        above_floor_p90_abs_error=above_error.p90 if above_error else None,
    )


def worst(parts: Iterable[Compared], count: int) -> list[dict[str, Any]]:
    """Return the rows that are furthest off, furthest first, at most three of one law."""
    rows: list[dict[str, Any]] = []
    for part in parts:
        ratio = part.predicted / part.measured
        order = np.argsort(-np.abs(np.log(ratio)))[:3]
        rows += [
            {
                "kind": part.kind,
                "gpu": part.gpu,
                "engine": part.engine,
                "name": part.name,
                "measured_us": 1e6 * float(part.measured[i]),
                "predicted_us": 1e6 * float(part.predicted[i]),
                "ratio": float(ratio[i]),
            }
            for i in order
        ]
    rows.sort(key=lambda row: -abs(np.log(row["ratio"])))
    return rows[:count]
