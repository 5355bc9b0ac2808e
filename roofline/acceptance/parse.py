"""What is typed after ``--acceptance`` in numbers: a rate, rates by position, tokens per step."""

from __future__ import annotations

import math
import re

from roofline.acceptance.curve import Acceptance, from_curve, from_rates
from roofline.acceptance.doubts import rise
from roofline.acceptance.files import check_curve, load_acceptance
from roofline.base.errors import InputError

__all__ = ["parse_acceptance"]

#: How far survival may rise by chance: gains of three runs of some 1000 passes, twice their error.
NOISE = 0.2


def parse_acceptance(text: str) -> Acceptance:
    """Read ``--acceptance``: a rate, conditional rates, an ``al:`` curve, or a YAML file.

    >>> parse_acceptance("al:2=2.36,3=2.79").table
    {0: 1.0, 2: 2.36, 3: 2.79}
    """
    if text.endswith((".yaml", ".yml")):
        return load_acceptance(text)
    if text.lower().startswith("al:"):
        curve = parse_curve(text[3:])
        try:
            check_curve({str(d): al for d, al in curve.items()}, "--acceptance")
        except ValueError as error:
            raise InputError(str(error)) from None
        risen = rise(curve, beyond=NOISE)
        if risen is not None:
            raise InputError(f"--acceptance {text}: {risen.partition(',')[0]}, which it cannot")
        points = ", ".join(f"{al:g} at D={d}" for d, al in sorted(curve.items()))
        return from_curve(curve, label=f"tokens per step {points}", source="given")
    rates = [_number(item) for item in text.split(",")]
    for rate in rates:
        if not 0 <= rate <= 1:
            raise InputError(
                f"--acceptance {text}: a rate lies between 0 and 1, got {rate:g}; "
                "for tokens per step write al:1.8,2.4"
            )
    label = f"rate {text} at every position" if len(rates) == 1 else f"rates {text} by position"
    return from_rates(rates, label=label, source="given", unlimited=len(rates) == 1)


def parse_curve(body: str) -> dict[int, float]:
    """Read ``1.8,2.4`` or ``2=2.36,3=2.79`` as AL by draft length."""
    curve: dict[int, float] = {}
    for position, item in enumerate(body.split(","), start=1):
        key, equals, value = item.rpartition("=")
        draft_length = position
        if equals:
            key = key.strip()
            if not key.isdecimal() or len(key) > 6:
                raise InputError(f"--acceptance: expected 'al:2=2.36,3=2.79', got '{item}'")
            draft_length = int(key)
        if draft_length in curve:
            raise InputError(f"--acceptance: draft length {draft_length} is given twice")
        curve[draft_length] = _number(value)
    return curve


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    percent = re.fullmatch(r"(\d{1,2}(?:\.\d{1,6})?|100) ?%", text.strip())
    if percent is not None:
        rate = float(percent[1]) / 100
        raise InputError(f"--acceptance {text}: rates are shares of 1 here; write {rate:g}")
    if not math.isfinite(value):
        raise InputError(
            f"--acceptance: expected a rate (0.8), rates (0.8,0.7), a curve (al:1.8,2.4), the id "
            "of a bundled curve (roofline acceptance list), a mix (mix:0.7*A,0.3*B), a file or "
            f"an http address, got '{text}'"
        )
    return value
