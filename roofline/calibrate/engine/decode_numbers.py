"""The engine's own numbers, fitted on served decode runs on top of the kernels' laws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.engine.decode_rows import DecodeRow, Features, features
from roofline.calibrate.fit.core import least_log_error, rounded

__all__ = [
    "GENERIC",
    "SKEWS",
    "EngineNumbers",
    "fit_numbers",
    "fit_with_skew",
    "leave_one_gpu_out",
    "predict",
]

Array = NDArray[np.float64]
#: Popularity skews of experts that are tried; one serves all engines and models.
SKEWS = (0.0, 0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineNumbers:
    """What an engine makes of the kernels' times."""

    floor_scale: float  # of the launch floors outside the expert kernels
    expert_floor_scale: float  # of the expert kernels'
    per_layer: float  # [s]
    per_step: float  # [s]
    per_sequence: float  # [s]


#: The generic engine that a fit is pulled towards, and how far it may stray (one deviation).
GENERIC = np.array([0.9, 0.9, 4e-6, 0.5e-3, 2e-6])
STRAY = np.array([0.2, 0.2, 5e-6, 0.02e-3, 5e-6])
LOW = np.array([0.1, 0.1, 0.0, 0.0, 0.0])
HIGH = np.array([1.5, 1.5, 50e-6, 4e-3, 30e-6])
ROW_ERROR = 0.08  # deviation of one row's logarithm


def predict(numbers: EngineNumbers, given: Features) -> Array:
    """Return the time per output token of plain decoding [s].

    kernels + (floor_scale - 1) floors + (expert_floor_scale - 1) expert floors + per_layer layers
    + per_step + per_sequence B.
    """
    return (
        given.kernels
        + (numbers.floor_scale - 1) * given.floors
        + (numbers.expert_floor_scale - 1) * given.expert_floors
        + numbers.per_layer * given.layers
        + numbers.per_step
        + numbers.per_sequence * given.batch
    )


def fit_numbers(given: Features, measured: Array) -> tuple[EngineNumbers, float]:
    """Return the numbers nearest to the generic engine that explain the rows, and the loss."""

    def residual(x: Array) -> Array:
        ratio = predict(_numbers(x * HIGH), given) / measured
        return np.concatenate([np.log(ratio) / ROW_ERROR, (x * HIGH - GENERIC) / STRAY])

    found, loss = least_log_error(residual, GENERIC / HIGH, LOW / HIGH, HIGH / HIGH, f_scale=1.0)
    return _numbers([rounded(float(v)) for v in found * HIGH]), loss


def _numbers(values: Array | list[float]) -> EngineNumbers:
    return EngineNumbers(**dict(zip(EngineNumbers.__slots__, map(float, values), strict=True)))


def fit_with_skew(
    rows: list[DecodeRow], by_skew: dict[float, Features]
) -> tuple[float, dict[str, EngineNumbers]]:
    """Return the one skew that explains all engines best, and each engine's numbers at it."""
    tried = []
    for skew, given in by_skew.items():
        fitted = {engine: _fit_engine(rows, given, engine) for engine in _engines(rows)}
        loss = sum(engine_loss for _, engine_loss in fitted.values())
        tried.append((loss, skew, {engine: numbers for engine, (numbers, _) in fitted.items()}))
    _, skew, numbers = min(tried, key=lambda each: each[0])
    return skew, numbers


def _engines(rows: list[DecodeRow]) -> list[str]:
    return sorted({row.engine for row in rows})


def _fit_engine(rows: list[DecodeRow], given: Features, engine: str) -> tuple[EngineNumbers, float]:
    mask = np.array([row.engine == engine for row in rows])
    measured = np.array([row.tpot for row in rows])
    return fit_numbers(given.pick(mask), measured[mask])


def leave_one_gpu_out(rows: list[DecodeRow]) -> tuple[Array, Array]:
    """Return (predicted, textbook) of every row, its GPU's rows unseen by numbers and skew [s]."""
    by_skew = {skew: features(rows, skew=skew) for skew in SKEWS}
    predicted = np.full(len(rows), np.nan)
    for gpu in sorted({row.gpu for row in rows}):
        unseen = np.array([row.gpu == gpu for row in rows])
        seen = [row for row, out in zip(rows, unseen, strict=True) if not out]
        skew, numbers = fit_with_skew(seen, {s: f.pick(~unseen) for s, f in by_skew.items()})
        for engine in {row.engine for row, out in zip(rows, unseen, strict=True) if out}:
            mask = unseen & np.array([row.engine == engine for row in rows])
            known = numbers.get(engine) or _numbers(GENERIC)
            predicted[mask] = predict(known, by_skew[skew].pick(mask))
    return predicted, by_skew[SKEWS[0]].textbook
