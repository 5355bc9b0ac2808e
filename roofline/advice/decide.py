"""From step times and tokens per step to a decision: which draft length, and how sure."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.timing.step import advisable

__all__ = [
    "CONFIDENCES",
    "EVEN",
    "LIKELY",
    "SURE",
    "TIE",
    "Confidence",
    "Decision",
    "Point",
    "check_price",
    "decide",
    "dollars_per_million",
    "near_best",
    "smallest_within_tie",
    "speedups",
    "time_at_odds",
]

#: Draft lengths whose expected speed is within this share of the best are equally good.
TIE = 0.01
#: Odds from which on the model's error is taken to be overcome: those that a schedule tells draft
#: lengths apart with, and those that a goal is met with.
SURE = 0.8

Array = NDArray[np.float64]


class Confidence(StrEnum):
    """What the error of the model leaves of the answer. It never changes the draft length."""

    WIN = "win"  # speculating at the recommended length is faster even at the low end
    INSIDE_ERROR = "inside_error"  # the model's error is larger than the difference
    LOSS = "loss"  # no draft length is faster even at the high end


CONFIDENCES = tuple(Confidence)


class Decision(NamedTuple):
    """The advice for every batch and context; arrays over (batches, contexts[, draft lengths])."""

    speedup: Array
    low: Array
    high: Array
    best: NDArray[np.intp]  # position along the draft lengths
    tie: NDArray[np.bool_]
    confidence: NDArray[np.int8]  # position in CONFIDENCES


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


def time_at_odds(drawn: Array, expected: Array, odds: float = SURE) -> Array:
    """Return the time that is kept with these odds: that share of the draws takes no longer.

    Draws first. It is no shorter than the ``expected`` one.

    >>> float(time_at_odds(np.array([5.0, 9.0, 6.0, 7.0, 8.0]), np.array(6.5)))  # 4 of 5
    8.0
    """
    last = math.ceil(odds * len(drawn) - 1e-9) - 1
    return np.asarray(np.maximum(np.partition(drawn, last, axis=0)[last], expected))


def decide(
    step: Array,
    tokens_per_step: Array,
    feasible: NDArray[np.bool_],
    reach: tuple[Array, Array],
    timed: NDArray[np.bool_] | None = None,
) -> Decision:
    """Choose the smallest draft length within 1 % of the best expected speed, D = 0 included.

    ``step`` [s] and ``feasible`` have the grid's shape, ``tokens_per_step`` one row for each
    context or one for all. ``reach`` is the low and high of each speedup. With few draws the range
    may miss the expected speedup; it is then widened to include it. Where draft lengths were
    ``timed`` (batches, 1, 1) the fastest is chosen: the tie rule is for what was not.
    """
    speed = np.where(feasible, tokens_per_step / step, np.nan)
    best, tie = smallest_within_tie(speed)
    if timed is not None:
        fastest = np.where(np.isnan(speed), -np.inf, speed).argmax(axis=-1)
        best = np.where(timed[..., 0], fastest, best)
    speedup = speedups(tokens_per_step, step)
    low, high = np.fmin(reach[0], speedup), np.fmax(reach[1], speedup)
    return Decision(
        speedup=speedup,
        low=low,
        high=high,
        best=best,
        tie=np.asarray(tie, dtype=bool),
        confidence=confidence(low, high, best, feasible),
    )


def confidence(
    low: Array, high: Array, best: NDArray[np.intp] | int, feasible: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """Return the confidence that the range of the speedups leaves, as a position in CONFIDENCES.

    Draft lengths run along the last axis.

    >>> low, high = np.array([[1.0, 1.2]]), np.array([[1.0, 1.5]])
    >>> CONFIDENCES[confidence(low, high, np.array([1]), np.array([[True, True]]))[0]]
    <Confidence.WIN: 'win'>
    """
    at_best = np.take_along_axis(low, np.asarray(best)[..., None], axis=-1)[..., 0]
    may_gain = ((high > 1) & feasible)[..., 1:].any(axis=-1)
    speculates = np.asarray(best) > 0
    win, inside, loss = map(CONFIDENCES.index, Confidence)
    position = np.where(
        speculates, np.where(at_best > 1, win, inside), np.where(may_gain, inside, loss)
    )
    return position.astype(np.int8)


#: Odds below which one thing is likelier not so.
EVEN = 0.5
#: Odds of being near the best from which on a draft length is worth a run.
LIKELY = 0.1


class Point(NamedTuple):
    """The answer at one batch and context; arrays run over ``draft_lengths``. Times in s."""

    batch: int
    context: int
    draft_lengths: tuple[int, ...]
    feasible: NDArray[np.bool_]
    tokens_per_step: Array
    step: Array
    verify: Array
    draft: Array
    overhead: Array
    parts: dict[str, Array]
    speedup: Array
    low: Array
    high: Array
    tie: NDArray[np.bool_]
    near_best: Array  # probability of being within 1 % of the best
    faster: Array  # probability of being faster than plain decoding
    sure_time_per_token: Array  # kept with the odds SURE, by the model's error
    pass_rows: Array  # the most of one rank's verify pass
    captured: NDArray[np.bool_]  # the engine's graphs cover all but rare passes
    by_hand: Array  # what launching kernel by kernel adds, part of ``overhead``
    best: int  # position in draft_lengths
    confidence: Confidence

    @property
    def draft_length(self) -> int:
        """The recommended D."""
        return self.draft_lengths[self.best]

    @property
    def rarely_faster(self) -> bool:
        """Whether the advised D is faster on the mean, and plain decoding in most draws."""
        return self.best > 0 and float(self.faster[self.best]) < EVEN

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """What fits and may be advised: not what leaves the graphs that plain decoding is in."""
        return self.feasible & advisable(self.captured)

    @property
    def tie_band(self) -> list[int]:
        """Every D within 1 % of the best."""
        return [d for d, tied in zip(self.draft_lengths, self.tie, strict=True) if tied]

    @property
    def by_odds(self) -> list[int]:
        """Return the positions that can run, the likeliest to be near the best first.

        Of equal odds the shorter draft comes first, as in the advice; where there are none, the
        faster.
        """
        usable = [i for i, ok in enumerate(self.candidates) if ok]
        odds = self.near_best
        return sorted(usable, key=lambda i: (-odds[i], i if odds[i] else -float(self.speedup[i])))

    @property
    def worth_benchmarking(self) -> list[int]:
        """Return the position of the advice and of one or two others that may be the best.

        Those with the highest probability; the second only if it is likely.
        """
        others = [i for i in self.by_odds if i != self.best]
        likely = [i for i in others[1:2] if self.near_best[i] >= LIKELY]
        return sorted([self.best, *others[:1], *likely])

    @property
    def cost_ratio(self) -> Array:
        """R(D), which is also the tokens per step at which D breaks even."""
        return np.asarray(self.step / self.step[0])

    @property
    def time_per_token(self) -> Array:
        """Seconds between the tokens of one sequence [s]."""
        return self.step / self.tokens_per_step


def dollars_per_million(
    *, gpu_hour: float, gpus: int, tokens_per_s: float | Array
) -> float | Array:
    """Return the price of a million output tokens: price x GPUs / 3600 / rate x 10^6 [$].

    ``gpu_hour`` is the price of one GPU for an hour [$]; ``tokens_per_s`` the rate of all of them.

    >>> dollars_per_million(gpu_hour=3.6, gpus=2, tokens_per_s=1000.0)  # 0.002 $/s, 1000 tokens/s
    2.0
    """
    return gpu_hour * gpus / 3600 / tokens_per_s * 1e6


def check_price(gpu_hour: float | None) -> None:
    """Refuse prices that nobody asks."""
    if gpu_hour is not None and not 0 < gpu_hour < 1e6:
        raise InputError(
            "expected more than 0 per GPU and hour, below 1e6",
            field="gpu_hour",
            value=f"{gpu_hour:g}",
        )
