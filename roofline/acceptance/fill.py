"""A curve with gaps, filled in: for a default that nobody measured on this drafter anyway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from roofline.acceptance.convert import iid_rate
from roofline.acceptance.curve import Acceptance

__all__ = ["filled", "with_gaps_filled"]


def filled(table: Mapping[int, float]) -> dict[int, float]:
    """Return AL(D) with one conditional rate in each gap, such that the next known AL is met.

    Between known d and e: AL(e) - AL(d) = S_d (r + r^2 + ... + r^(e-d)), S_0 = 1. A gap in which AL
    falls, or rises faster than r = 1 allows, stays open. Real rates fall within a gap, so AL comes
    out too low there rather than too high.

    One rate that yields 2.533 at D = 3 is 0.7, hence 1.7 and 2.19 before:

    >>> {d: round(al, 2) for d, al in filled({0: 1.0, 3: 2.533}).items()}
    {0: 1.0, 1: 1.7, 2: 2.19, 3: 2.53}
    """
    full, survival = dict(table), 1.0
    for before, after in pairwise(sorted(table)):
        gain, steps = table[after] - table[before], after - before
        if not 0 < gain <= steps * survival:
            survival = min(survival, max(gain / steps, 0.0))
            continue
        rate = iid_rate(tokens_per_step=1 + gain / survival, draft_length=steps)
        for d in range(before + 1, after):
            full[d] = full[d - 1] + survival * rate ** (d - before)
        survival *= rate**steps
    return dict(sorted(full.items()))


def with_gaps_filled(curve: Acceptance) -> Acceptance:
    """Return an acceptance without gaps, at every context; beyond its end nothing changes."""
    contexts = tuple((context, with_gaps_filled(part)) for context, part in curve.contexts)
    return replace(curve, table=filled(curve.table), contexts=contexts)
