"""From step times and tokens per step to a decision: which draft length, and how sure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roofline.step import StepTimes

__all__ = [
    "TIE",
    "Confidence",
    "Decision",
    "decide",
    "near_best",
    "smallest_within_tie",
    "speedups",
]

#: Draft lengths whose expected speed is within this share of the best are equally good.
TIE = 0.01

Array = NDArray[np.float64]


class Confidence(StrEnum):
    """What the error of the model leaves of the answer. It never changes the draft length."""

    WIN = "win"  # speculating at the recommended length is faster even at the low end
    INSIDE_ERROR = "inside_error"  # the model's error is larger than the difference
    LOSS = "loss"  # no draft length is faster even at the high end


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The advice for every batch and context; arrays over (batches, contexts[, draft lengths]).

    ``speed`` is tokens per second of one sequence, NaN where a draft length cannot be run.
    """

    speed: Array
    speedup: Array
    low: Array
    high: Array
    best: NDArray[np.intp]  # position along the draft lengths
    tie: NDArray[np.bool_]
    near_best: Array  # probability of being within 1 % of the best


def speedups(tokens_per_step: Array, step_seconds: Array) -> Array:
    """Return AL(D) / R(D) with R(D) = step(D) / step(0); draft lengths run along the last axis.

    >>> speedups(np.array([1.0, 1.8]), np.array([10.0, 12.0]))
    array([1. , 1.5])
    """
    return tokens_per_step * step_seconds[..., :1] / step_seconds


def smallest_within_tie(speed: Array, tie: float = TIE) -> tuple[NDArray[np.intp], Array]:
    """Return the first position within ``tie`` of the largest speed, and the mask of all such.

    NaN marks what cannot be run.

    >>> smallest_within_tie(np.array([1.0, 1.494, 1.5, np.nan]))[0]
    np.int64(1)
    """
    usable = np.where(np.isnan(speed), -np.inf, speed)
    within = usable >= (1 - tie) * usable.max(axis=-1, keepdims=True)
    return within.argmax(axis=-1), within


def near_best(drawn_speed: Array, tie: float = TIE) -> Array:
    """Return the share of draws in which each draft length is within ``tie`` of the best.

    Draws first, draft lengths last; NaN cannot be run.

    >>> near_best(np.array([[1.0, 2.0, 1.0], [1.0, 2.0, 1.99]]))
    array([0. , 1. , 0.5])
    """
    return np.asarray(smallest_within_tie(drawn_speed, tie)[1].mean(axis=0))


def decide(
    times: StepTimes,
    drawn: Array,
    tokens_per_step: Array,
    feasible: NDArray[np.bool_],
    drawn_tokens: Array | None = None,
) -> Decision:
    """Choose the smallest draft length within 1 % of the best expected speed, D = 0 included.

    ``drawn`` holds step times under joint draws of the law constants, draws first, and
    ``drawn_tokens`` tokens per step under draws of its counts; the 10th and 90th percentiles of
    both together give the range of each speedup.
    """
    tokens = tokens_per_step if drawn_tokens is None else drawn_tokens
    speed = np.where(feasible, tokens_per_step / times.total, np.nan)
    best, tie = smallest_within_tie(speed)
    ordered = np.sort(speedups(tokens, drawn), axis=0)  # np.quantile imports numpy.ma
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.9))
    return Decision(
        speed=speed,
        speedup=speedups(tokens_per_step, times.total),
        low=low,
        high=high,
        best=best,
        tie=np.asarray(tie, dtype=bool),
        near_best=near_best(np.where(feasible, tokens / drawn, np.nan)),
    )


def confidence(low: Array, high: Array, best: int, feasible: NDArray[np.bool_]) -> Confidence:
    """Put the range of one point's speedups into a word; draft lengths run along the axis."""
    drafts = feasible.copy()
    drafts[0] = False
    if best > 0:
        return Confidence.WIN if low[best] > 1 else Confidence.INSIDE_ERROR
    return Confidence.INSIDE_ERROR if (high[drafts] > 1).any() else Confidence.LOSS
