"""What may be wrong with an acceptance that was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from roofline.acceptance.curve import Acceptance, survival_rise
from roofline.acceptance.names import same_model
from roofline.base.notices import Code, Notice, notice

__all__ = ["curve_notices", "filled_notices"]


def curve_notices(curve: Acceptance, *, model: Iterable[str], longest: int) -> list[Notice]:
    """Return the notices of a curve for a model of these names, drafted up to ``longest``."""
    names = list(model)
    others = [t for t in curve.targets if not any(same_model(t, name) for name in names)]
    notices = [
        notice(Code.COUNTED_ON_ANOTHER_MODEL, label=curve.label, counted=other, model=names[0])
        for other in dict.fromkeys(others)
    ]
    fall = _first_fall(curve.measured, longest)
    if fall is not None:
        first, second = fall
        notices.append(
            notice(
                Code.TOKENS_PER_STEP_FALL,
                label=curve.label,
                first=first,
                second=second,
                before=curve.table[first],
                after=curve.table[second],
            )
        )
    rise = survival_rise({d: al for d, al in curve.measured.items() if d <= longest})
    if rise is not None:
        notices.append(rise.notice(f"acceptance of {curve.label}"))
    return notices


def filled_notices(curve: Acceptance, *, longest: int) -> list[Notice]:
    """Return the notice of the draft lengths up to ``longest`` that were not measured."""
    lengths = tuple(curve.filled_up_to(longest))
    return [notice(Code.GAPS_FILLED, label=curve.label, lengths=lengths)] if lengths else []


def _first_fall(table: Mapping[int, float], longest: int) -> tuple[int, int] | None:
    """Return the first two neighbouring draft lengths between which tokens per step fall."""
    lengths = sorted(d for d in table if d <= longest)
    for first, second in pairwise(lengths):
        if table[second] < table[first]:
            return first, second
    return None
