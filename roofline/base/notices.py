"""What to know beside an answer, as a code with values; `render` has the sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["ASSUMED", "Code", "Notice", "notice", "texts"]


class Code(StrEnum):
    """What a notice says, under its name in JSON."""

    TEXT = "text"
    # what was assumed where the question left it open
    CONFIG_LEFT_OPEN = "config-left-open"
    HEAD_ASSUMED = "head-assumed"
    HEAD_DERIVED = "head-derived"
    HOST_ASSUMED = "host-assumed"
    NO_FP16_RATE = "no-fp16-rate"
    ACCEPTANCE_ASSUMED = "acceptance-assumed"
    # what may be wrong with an answer
    ALIAS = "alias"
    ENGINE_ELSEWHERE = "engine-elsewhere"
    FEW_BITS = "few-bits"
    NO_16_BIT_RATE = "no-16-bit-rate"
    PRE_RELEASE = "pre-release"
    UNKNOWN_GENERATION = "unknown-generation"
    BEYOND_TRAINED_CONTEXT = "beyond-trained-context"
    LENGTHS_NOT_TAKEN = "lengths-not-taken"
    LONGEST_IS_BEST = "longest-is-best"
    ONE_RATE_IN_LONG_DRAFTS = "one-rate-in-long-drafts"
    DRAFTS_DO_NOT_FIT = "drafts-do-not-fit"
    DOES_NOT_FIT = "does-not-fit"
    PAST_GRAPHS = "past-graphs"
    PAST_GRAPHS_IN_SWEEP = "past-graphs-in-sweep"
    SLOWER_THAN_WIDE = "slower-than-wide"
    # what an engine makes of a schedule
    NO_SCHEDULE = "no-schedule"
    LAST_BAND_KEPT = "last-band-kept"
    NOTHING_DRAFTED_ABOVE = "nothing-drafted-above"
    SCHEDULE_GRAPH_MODE = "schedule-graph-mode"
    SCHEDULE_OFF_IN_COPIES = "schedule-off-in-copies"
    SCHEDULE_OFF_IN_GROUPS = "schedule-off-in-groups"
    FORM_REJECTED = "form-rejected"
    FORM_PROPOSED = "form-proposed"
    LEAVE_FLAG_OUT = "leave-flag-out"
    DEFAULT_SIZES = "default-sizes"
    GIVEN_SIZES = "given-sizes"
    NEAREST_SCHEDULE = "nearest-schedule"
    DRAFTER_CACHE_BEHIND = "drafter-cache-behind"
    OTHER_RELEASES_REFUSE = "other-releases-refuse"
    OTHER_RELEASES_DIFFER = "other-releases-differ"
    OTHER_RELEASES_AGREE = "other-releases-agree"
    COSTS_HOLD_WITH = "costs-hold-with"


#: Notices that state an assumption; all others warn.
ASSUMED = frozenset(
    {
        Code.CONFIG_LEFT_OPEN,
        Code.HEAD_ASSUMED,
        Code.HEAD_DERIVED,
        Code.HOST_ASSUMED,
        Code.NO_FP16_RATE,
        Code.ACCEPTANCE_ASSUMED,
    }
)


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to know: its code, and the values that its sentence names."""

    code: Code
    pairs: tuple[tuple[str, Any], ...] = ()

    @property
    def values(self) -> Mapping[str, Any]:
        """The values by name."""
        return dict(self.pairs)

    @property
    def assumption(self) -> bool:
        """Whether it states an assumption; else it warns."""
        return self.code in ASSUMED


def notice(code: Code, **values: Any) -> Notice:
    """Return a notice; values are hashable, so that equal notices can be told once."""
    return Notice(code=code, pairs=tuple(values.items()))


def texts(sentences: Iterable[str]) -> list[Notice]:
    """Return sentences as notices."""
    return [notice(Code.TEXT, text=text) for text in sentences]
