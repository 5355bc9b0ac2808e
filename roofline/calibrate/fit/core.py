"""What every fit shares: least squares on log error, rounding, held-out rows and evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.specs.laws import Evidence

__all__ = [
    "Columns",
    "Label",
    "Pull",
    "Score",
    "evidence_of",
    "fit_near",
    "held_out",
    "held_out_shapes",
    "least_log_error",
    "ratio_error_of",
    "resident_share",
    "rounded",
    "score",
    "scored_rows",
    "shape_keys",
]

DIGITS = 4
Array = NDArray[np.float64]
Columns = Mapping[str, Array]  # one value for each row, by name
Label = Mapping[str, Any]  # what tells a law from others of its kind: dtype, kernel, head_dim, ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Errors of predictions against measurements, as shares of the measurement."""

    rows: int
    median: float
    p90: float
    bias: float


def score(predicted: Array, measured: Array) -> Score:
    """Return the median and 90th percentile of |p / m - 1|, and the median of p / m - 1.

    >>> score(np.array([1.1, 0.9, 1.0]), np.ones(3)).median
    0.1
    """
    if not len(measured):
        return Score(rows=0, median=np.nan, p90=np.nan, bias=np.nan)
    error = predicted / measured - 1
    size = np.abs(error)
    return Score(
        rows=len(measured),
        median=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        bias=float(np.median(error)),
    )


def rounded(value: float, digits: int = DIGITS) -> float:
    """Return ``value`` to four significant digits, as files keep it; dust becomes 0.

    >>> rounded(1.234567e-6), rounded(3e-15)
    (1.235e-06, 0.0)
    """
    return float(f"{value:.{digits}g}") if abs(value) > 1e-13 else 0.0


def scored_rows(held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows that a law is scored on: those held out, or all where none were."""
    return held if held.any() else ~held


def evidence_of(
    *,
    source: str,
    date: str,
    rows_fitted: int,
    rows_held_out: int,
    predicted: Array,
    textbook: Array,
    measured: Array,
    ratio_error: float | None,
    rejected: Mapping[str, int] | None = None,
) -> Evidence:
    """Return the evidence of a law from the rows that it is scored on. Times in s."""
    errors = score(predicted, measured)
    return Evidence(
        source=source,
        date=date,
        rows_fitted=rows_fitted,
        rows_held_out=rows_held_out,
        median_error=rounded(errors.median),
        p90_error=rounded(errors.p90),
        bias=rounded(errors.bias),
        textbook_median_error=rounded(score(textbook, measured).median),
        rejected=dict(rejected or {}),
        ratio_error=None if ratio_error is None else rounded(ratio_error),
    )


def ratio_error_of(
    shapes: Sequence[Hashable], rows: Sequence[float], predicted: Array, measured: Array
) -> float | None:
    """Return the median error of t(4 M) / t(M) at a fixed shape; None without such a pair.

    >>> ratio_error_of("aab", [1, 4, 4], np.array([1.0, 3.0, 9.0]), np.array([1.0, 2.0, 9.0]))
    0.5
    """
    points = list(zip(shapes, rows, strict=True))
    position = {point: i for i, point in enumerate(points)}
    pairs = [
        (i, position[shape, 4 * m])
        for i, (shape, m) in enumerate(points)
        if m and (shape, 4 * m) in position
    ]
    if not pairs:
        return None
    low, high = np.array(pairs).T
    growth = (predicted[high] / predicted[low]) / (measured[high] / measured[low])
    return float(np.median(np.abs(growth - 1)))


def least_log_error(
    residual: Callable[[Array], Array], start: Array, low: Array, high: Array, **options: Any
) -> tuple[Array, float]:
    """Return the bounded minimiser of a soft-L1 loss and its cost; deterministic."""
    from scipy.optimize import least_squares

    settings: dict[str, Any] = {"loss": "soft_l1", "f_scale": 0.1, "max_nfev": 80} | options
    solution = least_squares(residual, np.clip(start, low, high), bounds=(low, high), **settings)
    return np.asarray(solution.x), float(solution.cost)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pull:
    """What is known of a number before a fit: its usual value, one deviation off it, its bounds."""

    centre: float
    stray: float
    low: float = 0.0
    high: float


def fit_near(
    log_errors: Callable[[Array], Array], pulls: Sequence[Pull], *, max_nfev: int = 80
) -> tuple[Array, float]:
    """Return the numbers near their usual values that explain the rows, and the loss.

    ``log_errors`` are those of the rows, each in its own deviation; a number that lies one
    deviation off its usual value costs as much as a row that is one deviation off.
    """
    centre, stray, low, high = np.array([(p.centre, p.stray, p.low, p.high) for p in pulls]).T

    def residual(scaled: Array) -> Array:
        return np.concatenate([log_errors(scaled * stray), scaled - centre / stray])

    scaled, loss = least_log_error(
        residual, centre / stray, low / stray, high / stray, f_scale=1.0, max_nfev=max_nfev
    )
    return scaled * stray, loss


def resident_share(footprint: Array, l2: float) -> Array:
    """Return the share of ``footprint`` bytes that a benchmark's loop finds in L2.

    max(0, 1 - (footprint / l2)^8): nearly all of what fits, nothing of what does not. The exponent
    is that of the L2 edge of the attention law. 0 where the size of the L2 is not known.

    >>> resident_share(np.array([5e6, 10e6, 2e7]), 10e6).round(3)
    array([0.996, 0.   , 0.   ])
    """
    if l2 <= 0:
        return np.zeros_like(footprint)
    return np.maximum(0.0, 1 - (footprint / l2) ** 8)


def held_out(key: str) -> bool:
    """Return whether a shape is held out of fits: a fifth of them are, by a stable hash.

    >>> held_out("4096x4096"), held_out("2048x2048"), held_out("8192x8192")
    (False, True, True)
    """
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % 5 == 0


def shape_keys(*columns: NDArray[np.generic]) -> NDArray[np.str_]:
    """Return one key for each row: the columns' integers joined by ``x``."""
    texts = [np.asarray(column).astype(np.int64).astype(str).astype(object) for column in columns]
    keys = texts[0]
    for text in texts[1:]:
        keys = keys + "x" + text
    return keys.astype(str)


def held_out_shapes(keys: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Return which rows belong to held-out shapes; at least one shape is held out."""
    names, inverse = np.unique(keys, return_inverse=True)
    chosen = np.array([held_out(str(name)) for name in names])
    if len(names) > 1 and not chosen.any():
        digests = [hashlib.sha256(str(name).encode()).hexdigest() for name in names]
        chosen[int(np.argmin(digests))] = True
    return np.asarray(chosen[inverse])
