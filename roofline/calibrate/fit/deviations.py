"""How far predicted steps are off by draft length, fitted on published sweeps.

The deviations of `timing.timed` are those under which the sweeps are likeliest. Of each group of n
sweeps the log likelihood counts as sqrt(n), and every deviation is pulled to what a study found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import rounded
from roofline.timing.timed import GROWTH, Deviations, growth_covariance

__all__ = ["STUDY", "SweptSteps", "fit_deviations"]

Array = NDArray[np.float64]
#: From a study that replayed published sweeps of draft lengths: what the fit is pulled to.
STUDY = Deviations(
    level=GROWTH.level, drafting=0.10, growth=0.20, draft=0.60, overhead=0.60, own=0.025
)
#: How far a deviation may be from it [log].
STRAY = 1.0
_FITTED = ("drafting", "growth", "draft", "overhead", "own")


@dataclass(frozen=True, kw_only=True, eq=False)
class SweptSteps:
    """Measured over predicted steps of one sweep [log], in any unit, and the parts' shares."""

    group: str
    draft_lengths: tuple[int, ...]
    misses: Array
    verify: Array
    draft: Array
    overhead: Array
    priors_only: bool


def fit_deviations(sweeps: Sequence[SweptSteps]) -> Deviations:
    """Return the deviations under which these sweeps are likeliest."""
    from scipy.optimize import minimize

    start = np.log([getattr(STUDY, name) for name in _FITTED])
    sizes = {name: sum(sweep.group == name for sweep in sweeps) for name in _groups(sweeps)}
    weights = [float(sizes[sweep.group] ** -0.5) for sweep in sweeps]

    def cost(logs: Array) -> float:
        deviations = _deviations(np.exp(logs))
        unlikely = sum(
            weight * _surprise(sweep, deviations)
            for sweep, weight in zip(sweeps, weights, strict=True)
        )
        return unlikely + 0.5 * float(np.square((logs - start) / STRAY).sum())

    found = minimize(cost, start, method="Nelder-Mead", options={"xatol": 0.03, "fatol": 0.03})
    return _deviations(np.array([rounded(float(value), 2) for value in np.exp(found.x)]))


def _groups(sweeps: Sequence[SweptSteps]) -> set[str]:
    return {sweep.group for sweep in sweeps}


def _deviations(values: Array) -> Deviations:
    fitted = dict(zip(_FITTED, values.tolist(), strict=True))
    return Deviations(level=STUDY.level, **fitted)


def _surprise(sweep: SweptSteps, deviations: Deviations) -> float:
    """Return - log N(misses; 0, K), without its constant."""
    covariance = growth_covariance(
        draft_lengths=np.array(sweep.draft_lengths),
        verify=sweep.verify,
        draft=sweep.draft,
        overhead=sweep.overhead,
        deviations=deviations.priors_only() if sweep.priors_only else deviations,
    )
    root = np.linalg.cholesky(covariance)
    missed = np.linalg.solve(root, sweep.misses)
    return float(0.5 * missed @ missed + np.log(np.diag(root)).sum())
