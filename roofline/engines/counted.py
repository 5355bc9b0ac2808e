"""What a source counted: which passes and tokens its tokens per step are the mean of."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from roofline.base.notices import Code, Notice, notice

__all__ = ["Bonus", "Counted", "Form", "Passes", "Tokens", "lengths_that_fit"]


class Passes(StrEnum):
    """Which passes are counted."""

    ALL = "all"  # those in which nothing was drafted as well
    DRAFTING = "drafting"  # only those in which something was


class Bonus(StrEnum):
    """Whether a count holds the token that every pass emits besides the accepted drafts."""

    IN = "in"
    OUT = "out"  # one is added for each pass


class Tokens(StrEnum):
    """Which tokens are counted."""

    EMITTED = "emitted"  # those that requests received
    ACCEPTED = "accepted"  # drafts after a stop as well, which were accepted and then trimmed


class Form(StrEnum):
    """What is known by position."""

    MEAN = "mean"  # nothing: tokens per step alone
    SURVIVAL = "survival"  # share of the passes in which draft i was accepted
    CONDITIONAL = "conditional"  # the same, given that all drafts before it were accepted


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What a source counted; None where it does not say.

    ``early_stops`` says that drafts ended before the last position (a confidence bound, a schedule,
    an adaptive length): a position's share is then of drafts that were made and accepted, and says
    nothing of longer ones. ``version`` is the engine's.
    """

    engine: str
    passes: Passes | None
    bonus: Bonus
    tokens: Tokens | None
    form: Form = Form.MEAN
    early_stops: bool = False
    version: str | None = None

    def data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    def known(self) -> dict[str, Any]:
        """Return what the source says beside its engine, and early stops where there were some."""
        return {
            name: "yes" if value is True else value
            for name, value in self.data().items()
            if value not in (None, False) and name != "engine"
        }

    def notice(self, where: str) -> Notice:
        """Return the notice that says it of the source ``where``."""
        return notice(Code.WHAT_WAS_COUNTED, where=where, **self.data())


def lengths_that_fit(
    *,
    tokens_per_step: float,
    rate: float,
    error: float = 0.005,
    bonus_in_rate: bool = False,
    longest: int = 64,
) -> frozenset[int]:
    """Return the draft lengths D that tokens per step and accepted over drafted allow.

    rate = (AL - 1) / D, or AL / (D + 1) where the rate counts the bonus token on both sides. Both
    are printed to within ``error`` (two decimals: 0.005), so several D may fit.

    AL 2.50 at a rate of 0.50 is 1.5 / 0.5 = 3 drafts, or 2.5 / 0.5 - 1 = 4.

    >>> sorted(lengths_that_fit(tokens_per_step=2.5, rate=0.5))
    [3]
    >>> sorted(lengths_that_fit(tokens_per_step=2.5, rate=0.5, bonus_in_rate=True))
    [4]
    """
    bonus = 0 if bonus_in_rate else 1
    least = (tokens_per_step - error - bonus) / (rate + error) + bonus - 1
    low = min(max(least, 1.0), longest + 1.0)
    high = float(longest)
    if rate > error:
        high = min((tokens_per_step + error - bonus) / (rate - error) + bonus - 1, high)
    slack = 1e-9  # of the division
    return frozenset(range(math.ceil(low - slack), math.floor(high + slack) + 1))
