"""Whether the range of an answer holds the measured value, on published runs it never saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.engine.spec_pricing import deployment_of
from roofline.calibrate.engine.spec_rows import SpecRow, drafter_of, grid_of, target_of
from roofline.specs.engine import load_engine
from roofline.specs.placement import Routing
from roofline.specs.priors import Spread, priors
from roofline.timing.uncertainty import drawn_steps
from roofline.validation.steps import PublishedRuns, published_runs

__all__ = ["GroupBand", "compare_bands"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupBand:
    """One group's scored cost ratios against the range that their answers would state."""

    group: str
    rows: int
    inside: float  # share of rows between the 10th and the 90th percentile
    error: float  # median of log measured / predicted
    spread: float  # median standard deviation of the drawn log R(D)


def compare_bands() -> list[GroupBand]:
    """Return each group's band."""
    published = published_runs()
    spread = priors().spread
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(published.rows):
        if row.scored and row.ratio:
            groups.setdefault(row.group, []).append(i)
    return [_band(published, name, members, spread) for name, members in sorted(groups.items())]


def _band(
    published: PublishedRuns, group: str, members: Sequence[int], spread: Spread
) -> GroupBand:
    drawn = np.array([_log_ratios(published.rows[i], spread) for i in members])
    measured = np.array([published.rows[i].ratio or np.nan for i in members])
    error = np.log(measured / published.predicted.ratio[list(members)])
    low, high = np.quantile(drawn, (0.1, 0.9), axis=1)
    return GroupBand(
        group=group,
        rows=len(members),
        inside=float(np.mean((error >= low) & (error <= high))),
        error=float(np.median(error)),
        spread=float(np.median(drawn.std(axis=1))),
    )


def _log_ratios(row: SpecRow, spread: Spread) -> Array:
    """Return the drawn logarithms of R(D) over its expected value."""
    stated = priors().routing
    target = target_of(row, Routing(skew=stated.skew, correlation=stated.correlation))
    grid, overhead = grid_of(row), load_engine(row.engine).overhead
    drafter = drafter_of(row, target)
    times = deployment_of(row, target, drafter, overhead).price(grid).times
    total = np.asarray(times.total[0, 0], dtype=np.float64)
    drawn = np.asarray(drawn_steps(times, grid, spread)[:, 0, 0], dtype=np.float64)
    growth = drawn[:, -1] / drawn[:, 0] * (total[0] / total[-1])
    return np.asarray(np.log(growth), dtype=np.float64)
