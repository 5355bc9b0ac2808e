"""What lies at the edge of what was looked at, or beyond what is known: warnings of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.advice.lengths import what_ends
from roofline.advice.point import Point
from roofline.advice.prepare import Setup

__all__ = ["edges"]

#: Up to this draft length one rate at all positions is off by less than the model itself.
SHORT = 3


def edges(setup: Setup, points: Sequence[Point]) -> list[str]:
    """Say where the answer lies at the edge of what was looked at, or what memory ruled out."""
    found = []
    longest = setup.draft_lengths[-1]
    if longest and any(point.draft_length == longest for point in points):
        why = (
            "the acceptance given ends there"
            if setup.unmeasured
            else what_ends(setup.request, setup.drafter, setup.engine, longest)
        )
        found.append(
            f"{setup.drafter.name}: the best draft length found is the longest one tried "
            f"({longest}): {why}"
        )
    found += _one_rate(setup, points)
    for point in points:
        lost = [d for d, ok in zip(point.draft_lengths, point.feasible, strict=True) if not ok]
        if lost:
            found.append(
                f"batch {point.batch}, context {point.context}: draft lengths "
                f"{', '.join(map(str, lost))} do not fit beside the drafter and are left out"
            )
    return found


def _one_rate(setup: Setup, points: Sequence[Point]) -> list[str]:
    """Doubt long drafts that one rate at every position promises."""
    longest = max((point.draft_length for point in points), default=0)
    if not setup.acceptance.unlimited or longest <= SHORT:
        return []
    told = (
        f"{setup.drafter.name}: one rate at every position promises too much of long drafts (at "
        "D = 8 on 14 measured curves 27 % in the median, at most 112 %), so draft length "
        f"{longest} may be too long and its range is wide; measure rates by position: roofline "
        "acceptance read"
    )
    return [told]
