"""What every fit shares: bounded least squares on log error, rounding, and the score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Score", "least_log_error", "resident_share", "rounded", "score"]

DIGITS = 4
Array = NDArray[np.float64]


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


def least_log_error(
    residual: Callable[[Array], Array], start: Array, low: Array, high: Array, **options: Any
) -> tuple[Array, float]:
    """Return the bounded minimiser of a soft-L1 loss and its cost; deterministic."""
    from scipy.optimize import least_squares

    settings: dict[str, Any] = {"loss": "soft_l1", "f_scale": 0.1, "max_nfev": 80} | options
    found = least_squares(residual, np.clip(start, low, high), bounds=(low, high), **settings)
    return np.asarray(found.x), float(found.cost)


def resident_share(footprint: Array, l2: float) -> Array:
    """Return the share of ``footprint`` bytes that a benchmark's loop finds in L2.

    max(0, 1 - (footprint / l2)^8): nearly all of what fits, nothing of what does not. 0 where the
    size of the L2 is not known.

    >>> resident_share(np.array([5e6, 10e6, 2e7]), 10e6).round(3)
    array([0.996, 0.   , 0.   ])
    """
    if l2 <= 0:
        return np.zeros_like(footprint)
    return np.maximum(0.0, 1 - (footprint / l2) ** 8)
