"""The engine's own numbers, fitted on served decode runs on top of the kernels' laws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.base.progress import tracked
from roofline.calibrate.engine.decode_rows import DecodeRow, Features, kernel_features
from roofline.calibrate.fit.core import Pull, fit_near, rounded

__all__ = [
    "GENERIC",
    "PULL",
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


#: The generic engine that a fit is pulled towards, by number of ``EngineNumbers``. A replayed graph
#: hides a part of a kernel's floor and lengthens none, so at most the whole of it shows.
PULL = {
    "floor_scale": Pull(centre=0.9, stray=0.2, low=0.1, high=1.0),
    "expert_floor_scale": Pull(centre=0.9, stray=0.2, low=0.1, high=1.0),
    "per_layer": Pull(centre=4e-6, stray=5e-6, high=50e-6),
    "per_step": Pull(centre=0.5e-3, stray=0.02e-3, high=4e-3),
    "per_sequence": Pull(centre=2e-6, stray=5e-6, high=30e-6),
}
GENERIC = EngineNumbers(**{name: pull.centre for name, pull in PULL.items()})
ROW_ERROR = 0.08  # deviation of one row's logarithm


def predict(numbers: EngineNumbers, features: Features) -> Array:
    """Return the time per output token of plain decoding [s].

    kernels + (floor_scale - 1) floors + (expert_floor_scale - 1) expert floors + per_layer layers
    + per_step + per_sequence B.
    """
    return (
        features.kernels
        + (numbers.floor_scale - 1) * features.floors
        + (numbers.expert_floor_scale - 1) * features.expert_floors
        + numbers.per_layer * features.layers
        + numbers.per_step
        + numbers.per_sequence * features.batch
    )


def fit_numbers(features: Features, measured: Array) -> tuple[EngineNumbers, float]:
    """Return the numbers nearest to the generic engine that explain the rows, and the loss."""

    def log_errors(values: Array) -> Array:
        return np.log(predict(_numbers(values), features) / measured) / ROW_ERROR

    fitted, loss = fit_near(log_errors, list(PULL.values()))
    return _numbers([rounded(float(value)) for value in fitted]), loss


def _numbers(values: Array | list[float]) -> EngineNumbers:
    return EngineNumbers(**dict(zip(PULL, map(float, values), strict=True)))


def fit_with_skew(
    rows: list[DecodeRow], by_skew: dict[float, Features]
) -> tuple[float, dict[str, EngineNumbers]]:
    """Return the one skew that explains all engines best, and each engine's numbers at it."""
    tried = []
    for skew, features in by_skew.items():
        engines = sorted({row.engine for row in rows})
        fitted = {engine: _fit_engine(rows, features, engine) for engine in engines}
        loss = sum(engine_loss for _, engine_loss in fitted.values())
        tried.append((loss, skew, {engine: numbers for engine, (numbers, _) in fitted.items()}))
    _, skew, numbers = min(tried, key=lambda result: result[0])
    return skew, numbers


def _fit_engine(
    rows: list[DecodeRow], features: Features, engine: str
) -> tuple[EngineNumbers, float]:
    mask = np.array([row.engine == engine for row in rows])
    measured = np.array([row.tpot for row in rows])
    return fit_numbers(features.pick(mask), measured[mask])


def leave_one_gpu_out(rows: list[DecodeRow]) -> tuple[Array, Array]:
    """Return (predicted, textbook) of every row, by numbers and a skew fitted on other GPUs [s]."""
    by_skew = {skew: kernel_features(rows, skew=skew) for skew in tracked(SKEWS, "passes")}
    predicted = np.full(len(rows), np.nan)
    for gpu in sorted({row.gpu for row in rows}):
        unseen = np.array([row.gpu == gpu for row in rows])
        seen = [row for row, out in zip(rows, unseen, strict=True) if not out]
        seen_features = {skew: features.pick(~unseen) for skew, features in by_skew.items()}
        skew, numbers = fit_with_skew(seen, seen_features)
        for engine in {row.engine for row, out in zip(rows, unseen, strict=True) if out}:
            mask = unseen & np.array([row.engine == engine for row in rows])
            predicted[mask] = predict(numbers.get(engine, GENERIC), by_skew[skew].pick(mask))
    return predicted, by_skew[SKEWS[0]].textbook
