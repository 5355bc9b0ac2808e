"""Pairs of predictions and measurements, pooled and scored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    error = np.concatenate([m.predicted / m.measured - 1 for m in members])
    textbook = np.concatenate([m.textbook / m.measured - 1 for m in members])
    suite, kind, gpu, engine, dtype, group = key
    masks = [m.above_floor for m in members if m.above_floor is not None]
    above = error[np.concatenate(masks)] if masks else np.array([])
    return ScoreRow(
        suite=suite,
        kind=kind,
        gpu=gpu,
        engine=engine,
        dtype=dtype,
        n=len(error),
        median_abs_error=float(np.median(np.abs(error))),
        p90_abs_error=float(np.quantile(np.abs(error), 0.9)),
        bias=float(np.median(error)),
        textbook_median_abs_error=float(np.median(np.abs(textbook))),
        textbook_p90_abs_error=float(np.quantile(np.abs(textbook), 0.9)) if group else None,
        group=group,
        above_floor_median_abs_error=float(np.median(np.abs(above))) if len(above) else None,
        above_floor_p90_abs_error=float(np.quantile(np.abs(above), 0.9)) if len(above) else None,
    )


def worst(parts: Iterable[Compared], count: int) -> list[dict[str, Any]]:
    """Return the rows that are furthest off, furthest first, at most three of one law."""
    found: list[dict[str, Any]] = []
    for part in parts:
        ratio = part.predicted / part.measured
        order = np.argsort(-np.abs(np.log(ratio)))[:3]
        found += [
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
    found.sort(key=lambda row: -abs(np.log(row["ratio"])))
    return found[:count]
