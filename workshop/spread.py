"""What served builds do to R(D) beyond laws and engine numbers: python -m workshop.spread.

The numbers go into ``spread`` of roofline/data/priors.yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.engine.spec_pricing import deployment_of
from roofline.calibrate.engine.spec_rows import SpecRow, drafter_of, grid_of, target_of
from roofline.specs.engine import load_engine
from roofline.specs.placement import Routing
from roofline.specs.priors import Spread, priors
from roofline.timing.uncertainty import drawn_steps
from roofline.validation.steps import published_runs

__all__ = ["NAMES", "fit_served", "main"]

Array = NDArray[np.float64]
NAMES = ("served", "growth", "draft", "each")
#: A deviation below this says nothing: timings of one run scatter by as much [log].
NOISE = 0.015


class Run(NamedTuple):
    """One published cost ratio that no number was fitted on."""

    group: str
    error: float  # log measured / predicted
    laws: Array  # drawn log R(D) by laws and engine numbers alone
    verify: float  # shares of the step
    draft: float
    rise: float  # log2(1 + D) / 3
    length: int


def runs() -> list[Run]:
    """Return every scored cost ratio with what its error is made of."""
    published = published_runs()
    bare = priors().spread.model_copy(update=dict.fromkeys(NAMES, 0.0))
    return [
        _run(row, np.log(row.ratio / predicted), bare)
        for row, predicted in zip(published.rows, published.predicted.ratio, strict=True)
        if row.scored and row.ratio and row.draft_length
    ]


def _run(row: SpecRow, error: float, bare: Spread) -> Run:
    stated = priors().routing
    target = target_of(row, Routing(skew=stated.skew, correlation=stated.correlation))
    grid, overhead = grid_of(row), load_engine(row.engine).overhead
    times = deployment_of(row, target, drafter_of(row, target), overhead).price(grid).times
    drawn = np.log(drawn_steps(times, grid, bare)[:, 0, 0])
    total = float(times.total[0, 0, -1])
    return Run(
        group=row.group,
        error=float(error),
        laws=drawn[:, -1] - drawn[:, 0],
        verify=float(times.verify[0, 0, -1]) / total,
        draft=float(times.draft[0, 0, -1]) / total,
        rise=float(np.log2(1 + row.draft_length)) / 3,
        length=row.draft_length,
    )


def log_likelihood(values: Iterable[float], groups: Mapping[str, Sequence[Run]]) -> float:
    """Return the mean log likelihood of a group's errors under these standard deviations.

    A group's errors are jointly normal: what laws draw together, v^2 between all rows, g^2 and d^2
    times the shares that verify and draft passes have in both rows, e^2 between rows of one draft
    length, and the noise of a timing. Each group counts once, as the mean over its rows.
    """
    v, g, d, e = values
    total = 0.0
    for members in groups.values():
        laws = np.array([run.laws - run.laws.mean() for run in members])
        growth = np.array([run.verify * run.rise for run in members])
        draft = np.array([run.draft for run in members])
        lengths = np.array([run.length for run in members])
        covariance = laws @ laws.T / laws.shape[1] + v**2
        covariance += g**2 * np.outer(growth, growth) + d**2 * np.outer(draft, draft)
        covariance += e**2 * (lengths[:, None] == lengths) + NOISE**2 * np.eye(len(members))
        error = np.array([run.error for run in members])
        _, log_determinant = np.linalg.slogdet(covariance)
        square = error @ np.linalg.solve(covariance, error)
        total -= 0.5 * (square + log_determinant + len(members) * np.log(2 * np.pi)) / len(members)
    return total / len(groups)


def fit_served(every: Sequence[Run]) -> tuple[dict[str, float], float]:
    """Return the most likely standard deviations, and their log likelihood."""
    from scipy.optimize import minimize

    groups: dict[str, list[Run]] = {}
    for run in every:
        groups.setdefault(run.group, []).append(run)
    best = minimize(
        lambda logs: -log_likelihood(np.exp(logs), groups),
        np.log([0.06, 0.1, 0.3, 0.03]),
        method="Nelder-Mead",
        options={"xatol": 1e-3, "fatol": 1e-6, "maxiter": 2000},
    )
    return dict(zip(NAMES, np.exp(best.x).tolist(), strict=True)), -float(best.fun)


def main() -> None:
    """Print the numbers, and how likely the stated ones and the fitted ones make the runs."""
    every = runs()
    fitted, likelihood = fit_served(every)
    stated = [getattr(priors().spread, name) for name in NAMES]
    groups: dict[str, list[Run]] = {}
    for run in every:
        groups.setdefault(run.group, []).append(run)
    sys.stdout.write(f"{len(every)} cost ratios of {len(groups)} groups\n")
    sys.stdout.write(", ".join(f"{name}: {value:.3f}" for name, value in fitted.items()) + "\n")
    before = log_likelihood(np.maximum(stated, 1e-9), groups)
    sys.stdout.write(f"log likelihood per row {likelihood:.3f}, as stated {before:.3f}\n")


if __name__ == "__main__":
    main()
