"""The answer at one batch and context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import Confidence
from roofline.timing.launches import advisable

__all__ = ["LIKELY", "Point"]

#: Odds of being near the best from which on a draft length is worth a run.
LIKELY = 0.1
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
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
    pass_rows: Array  # of one rank's verify pass
    captured: NDArray[np.bool_]  # the engine's graphs cover those rows
    by_hand: Array  # what launching kernel by kernel adds, part of ``overhead``
    best: int  # position in draft_lengths
    confidence: Confidence

    @property
    def draft_length(self) -> int:
        """The recommended D."""
        return self.draft_lengths[self.best]

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
