"""What is typed after ``--acceptance`` in numbers: a rate, rates by position, tokens per step."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from roofline.acceptance.curve import Acceptance, from_curve, from_rates, from_survival
from roofline.acceptance.doubts import rise
from roofline.acceptance.files import check_curve, load_acceptance
from roofline.base.errors import InputError

__all__ = ["parse_acceptance"]

#: How far survival may rise by chance: gains of three runs of some 1000 passes, twice their error.
NOISE = 0.2
_SURVIVAL = ("pos", "survival")
_CONDITIONAL = ("cond", "conditional")


def parse_acceptance(text: str) -> Acceptance:
    """Read ``--acceptance``: a rate, rates by position, an ``al:`` curve, or a YAML file.

    Rates by position are survival S_i where they stand alone, for that is what engines print, or
    after ``pos:``; after ``cond:`` they are conditional rates a_i.

    >>> parse_acceptance("al:2=2.36,3=2.79").table
    {0: 1.0, 2: 2.36, 3: 2.79}
    >>> round(parse_acceptance("0.72,0.45,0.21").table[3], 3)  # 1 + 0.72 + 0.45 + 0.21
    2.38
    >>> round(parse_acceptance("cond:0.8,0.7,0.6").table[3], 3)  # 1 + 0.8 + 0.56 + 0.336
    2.696
    """
    if text.endswith((".yaml", ".yml")):
        return load_acceptance(text)
    form, colon, body = text.partition(":")
    form = form.strip().lower() if colon else ""
    if form == "al":
        return _tokens_per_step(text, body)
    if form in _CONDITIONAL:
        rates = _rates(text, body)
        return from_rates(rates, label=f"conditional rates {_listed(rates)}", source="given")
    if form in _SURVIVAL:
        return _survival(text, _rates(text, body))
    rates = _rates(text, text)
    if len(rates) > 1:
        return _bare(text, rates)
    label = f"rate {text} at every position"
    return from_rates(rates, label=label, source="given", unlimited=True)


def _tokens_per_step(text: str, body: str) -> Acceptance:
    curve = parse_curve(body)
    try:
        check_curve({str(d): al for d, al in curve.items()}, "--acceptance")
    except ValueError as error:
        raise InputError(str(error)) from None
    risen = rise(curve, beyond=NOISE)
    if risen is not None:
        raise InputError(f"--acceptance {text}: {risen.partition(',')[0]}, which it cannot")
    points = ", ".join(f"{al:g} at D={d}" for d, al in sorted(curve.items()))
    return from_curve(curve, label=f"tokens per step {points}", source="given")


def _bare(text: str, rates: Sequence[float]) -> Acceptance:
    """Read a list that does not say what it is: survival, and a warning says so.

    Equal rates are refused unless both readings agree: a drafter whose later drafts are never
    rejected is rarer than a reader who repeats one conditional rate.
    """
    survival = _survival(text, rates)
    conditional = from_rates(rates)
    deepest = survival.deepest
    if math.isclose(survival.table[deepest], conditional.table[deepest]):
        return survival
    if len(set(rates)) == 1:
        raise InputError(
            f"--acceptance {text}: equal rates are either survival by position, as engines print "
            f"it (pos:{text}, {survival.table[deepest]:.4g} tokens per step at D={deepest}), or "
            f"conditional (cond:{text}, {conditional.table[deepest]:.4g}); write which"
        )
    said = (
        f"--acceptance {text}: read as survival by position, as engines print it; where these are "
        f"conditional rates, write cond:{text}"
    )
    return replace(survival, warnings=(said,))


def _survival(text: str, rates: Sequence[float]) -> Acceptance:
    for position, (before, after) in enumerate(pairwise(rates), start=2):
        if after > before:
            raise InputError(
                f"--acceptance {text}: rates that rise ({before:g} to {after:g} at position "
                f"{position}) cannot be survival by position (pos:), as engines print it; where "
                f"they are conditional, write cond:{text.rpartition(':')[2]}"
            )
    label = f"survival by position {_listed(rates)}"
    return from_survival(rates, label=label, source="given")


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


def _rates(text: str, body: str) -> list[float]:
    """Return rates of 0 to 1."""
    rates = [_number(item) for item in body.split(",")]
    for rate in rates:
        if not 0 <= rate <= 1:
            raise InputError(
                f"--acceptance {text}: a rate lies between 0 and 1, got {rate:g}; "
                "for tokens per step write al:1.8,2.4"
            )
    return rates


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
            "--acceptance: expected a rate (0.8), survival by position (0.8,0.56), conditional "
            "rates (cond:0.8,0.7), a curve (al:1.8,2.4), the id of a bundled curve (roofline "
            "acceptance list), a mix (mix:0.7*A,0.3*B), a file or an http address, "
            f"got '{text}'"
        )
    return value
