"""The engine's own numbers, fitted on served decode runs on top of the kernels' laws."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofline.base.files import write_atomically
from roofline.calibrate.fit.core import least_log_error, rounded
from roofline.specs.network import load_model
from roofline.validation.decode_rows import DecodeRow, Features, features, load_rows
from roofline.validation.engine_file import with_overhead

__all__ = [
    "EngineNumbers",
    "fit_numbers",
    "fit_with_skew",
    "leave_one_gpu_out",
    "predict",
    "write_engines",
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


def write_engines(folder: Path) -> list[str]:
    """Fit all engines on all scored rows, write their files, and say what was found."""
    rows = [row for row in load_rows() if not row.left_out]
    skew, fitted = fit_with_skew(rows, {s: features(rows, skew=s) for s in SKEWS})
    said = [f"expert popularity skew {skew:g} (priors.yaml states the one in use)"]
    for engine, numbers in fitted.items():
        path = folder / f"{engine}.yaml"
        own = [row for row in rows if row.engine == engine]
        lines = as_yaml(numbers, _layers(own))
        fitted_lines = lines | {"fitted_rows": len(own)}
        text = with_overhead(path.read_text("utf-8"), fitted_lines, file=path.name, add=False)
        write_atomically(path, text)
        said.append(f"{path.name}: {lines}")
    return said


def as_yaml(numbers: EngineNumbers, layers: Array) -> dict[str, float | str]:
    """Return the numbers as an engine file writes them.

    ``layers`` counts, for each model that was served, all layers, those with experts and those with
    a recurrent state. Rows of models with experts only say nothing of a dense layer: what they add
    to the generic engine's cost per layer is then charged to layers with experts and layers with a
    state, by the smallest such costs that explain it (least squares of least norm). 4 us generic
    and 18 us more in 60 layers, all with experts, 45 with a state: 18 x 60 / (60^2 + 45^2) x 60 and
    x 45.

    >>> numbers = EngineNumbers(floor_scale=1.1, expert_floor_scale=1.0, per_layer=22e-6,
    ...                         per_step=0.5e-3, per_sequence=2e-6)
    >>> lines = as_yaml(numbers, np.array([[60.0, 60.0, 45.0]]))
    >>> [lines[name] for name in ("per_layer", "per_expert_layer", "per_state_layer")]
    ['4.0 us', '11.52 us', '8.64 us']
    """
    generic = float(GENERIC[EngineNumbers.__slots__.index("per_layer")])
    dense_seen = bool(np.any(layers[:, 1] == 0))
    every = numbers.per_layer if dense_seen else min(numbers.per_layer, generic)
    extra = (numbers.per_layer - every) * layers[:, 0]
    experts, states = np.linalg.lstsq(layers[:, 1:], extra)[0]
    times = asdict(numbers) | {
        "per_layer": every,
        "per_expert_layer": float(experts),
        "per_state_layer": float(states),
    }
    return {
        name: value
        if name.endswith("scale")
        else f"{rounded(1e6 * value) if value > 1e-12 else 0.0} us"
        for name, value in times.items()
    }


def _layers(rows: list[DecodeRow]) -> Array:
    """Return, for each model of the rows, its layers: all, with experts, with a state."""
    models = [load_model(name) for name in sorted({row.model for row in rows})]
    counts = [(m.num_layers, m.num_expert_layers, m.num_state_layers) for m in models]
    return np.array(counts, dtype=np.float64)
