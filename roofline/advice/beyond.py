"""What a draft length past the engine's captured graphs would give if it were captured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import TIE, Point, smallest_within_tie
from roofline.advice.recommend import Recommendation

__all__ = ["BEYOND", "Beyond", "beyond", "captured_steps"]

#: What a page that moves says as well; ``flag`` begins with ``: add `` where there is one.
BEYOND = (
    "Draft length {length:d} would give {speedup:.2f}x with its {rows:.0f} rows captured; "
    "{engine} captures CUDA graphs for up to {largest:d}{flag}."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Beyond:
    """The best draft length that is not advised for want of a captured graph."""

    draft_length: int
    rows: float
    speedup: float  # captured
    flag: str  # has its rows captured; empty where the engine has none


def captured_steps(point: Point) -> NDArray[np.float64]:
    """Return the steps as they were if a graph covered every pass [s]."""
    return point.step - point.by_hand


def beyond(answer: Recommendation, point: Point) -> Beyond | None:
    """Return the draft length that a larger capture would make the best one; None without any."""
    graphs, lost = answer.deployment.engine.graphs, point.feasible & ~point.candidates
    if graphs is None or not lost.any():
        return None
    gain = point.tokens_per_step * point.step[0] / captured_steps(point)
    at, _ = smallest_within_tie(np.where(lost, gain, np.nan))
    if gain[at] * (1 - TIE) <= point.speedup[point.best]:
        return None
    rows = float(point.pass_rows[at])
    return Beyond(
        draft_length=point.draft_lengths[at],
        rows=rows,
        speedup=float(gain[at]),
        flag=graphs.raised(rows),
    )
