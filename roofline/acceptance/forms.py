"""Acceptance as it is typed in an option, and the form that a refused text probably meant."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from roofline.acceptance.curve import (
    Acceptance,
    Definition,
    from_curve,
    from_rates,
    from_survival,
    survival_rise,
    tokens_per_step_from_rate,
)
from roofline.acceptance.files import ACCEPTANCE_SHELF, curve_problem, load_acceptance
from roofline.base import resources
from roofline.base.errors import InputError, close_names

__all__ = ["FORMS", "parse_acceptance"]

#: The words before a colon, and what the numbers after it are.
FORMS = {
    "survival": Definition.SURVIVAL,
    "conditional": Definition.CONDITIONAL,
    "rate": Definition.RATE,
    "al": Definition.TOKENS_PER_STEP,
    "pos": Definition.SURVIVAL,  # the older words
    "cond": Definition.CONDITIONAL,
}
#: Rise of survival, AL(i+1) - 2 AL(i) + AL(i-1), that chance can explain where each AL comes from a
#: run of some 1000 passes, with a standard error of 0.04: twice 0.04 sqrt(1 + 4 + 1) is 0.2.
NOISE = 0.2
#: The draft length that a remedy names where none was given: the commonest in published runs.
EXAMPLE_LENGTH = 3
#: A single number up to this may be tokens per step; a larger one is taken for a percentage.
MOST_TOKENS = 9.0
_ITEM = re.compile(r"(?:(?P<length>\d{1,3})\s*=\s*)?(?P<number>\d+\.?\d*|\.\d+)\s*(?P<percent>%?)")
_SERVER = re.compile(r"[\w.-]+:\d{2,5}(/\S*)?")


def parse_acceptance(text: str) -> Acceptance:
    """Read acceptance as typed: a rate, rates or tokens per step after a word, or a YAML file.

    One bare rate is the same conditional rate at every position. Several without a word have two
    readings: they are returned as survival, with the other reading beside it.

    >>> round(parse_acceptance("survival:0.72,0.45,0.21").table[3], 3)  # 1 + 0.72 + 0.45 + 0.21
    2.38
    >>> round(parse_acceptance("conditional:0.8,0.7,0.6").table[3], 3)  # 1 + 0.8 + 0.56 + 0.336
    2.696
    >>> round(parse_acceptance("rate:3=0.54").table[3], 3)  # 1 + 3 x 0.54
    2.62
    >>> parse_acceptance("al:2=2.36,3=2.79").measured
    {0: 1.0, 2: 2.36, 3: 2.79}
    """
    if text.endswith((".yaml", ".yml")):
        return load_acceptance(text)
    try:
        return _read(text)
    except _Refusal as refusal:
        problem = refusal.problem
        if not refusal.names_remedy and (meant := _meant(text)) is not None:
            problem += f"; did you mean {meant}{_or_accepted_over_drafted(meant)}?"
        raise InputError(problem, field="acceptance", value=text) from None


def _or_accepted_over_drafted(meant: str) -> str:
    """Return the other meaning of a single percentage, which engines print for all positions."""
    if not meant.replace(".", "", 1).isdecimal():
        return ""
    return (
        f" (the same at every position) or rate:{EXAMPLE_LENGTH}={meant} (accepted over drafted at "
        f"D = {EXAMPLE_LENGTH})"
    )


class _Refusal(Exception):
    """Why a text is no acceptance; ``problem`` does not name the text."""

    def __init__(self, problem: str, *, names_remedy: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.names_remedy = names_remedy


def _read(text: str) -> Acceptance:
    word, body = _split(text)
    if not word:
        return _read_bare(text)
    match FORMS.get(word):
        case Definition.SURVIVAL:
            return _survival(_rates(body))
        case Definition.CONDITIONAL:
            rates = _rates(body)
            label = f"conditional rates {_listed(rates)}"
            return from_rates(rates, label=label, source="given")
        case Definition.RATE:
            if "," in body and "=" not in body:
                raise _Refusal("accepted over drafted needs the draft length of each value")
            return _accepted_over_drafted(_by_length(body, example=f"{EXAMPLE_LENGTH}=0.54"))
        case Definition.TOKENS_PER_STEP:
            return _tokens_per_step(_by_length(body, example=f"{EXAMPLE_LENGTH}=2.31"))
        case _ if _SERVER.fullmatch(text):
            problem = f"an address begins with http://; did you mean http://{text}?"
            raise _Refusal(problem, names_remedy=True)
        case _:
            raise _Refusal(f"unknown form '{word}:'; known: survival:, conditional:, rate:, al:")


def _split(text: str) -> tuple[str, str]:
    """Return the word before the colon, empty without one, and what follows."""
    word, colon, body = text.partition(":")
    return (word.strip().lower(), body) if colon else ("", text)


def _read_bare(text: str) -> Acceptance:
    """Read numbers without a word before them."""
    if "=" in text:
        raise _Refusal("values by draft length need a word before them (al: or rate:)")
    rates = _rates(text)
    if len(rates) > 1:
        return _bare_list(text, rates)
    label = f"rate {text} at every position"
    return from_rates(rates, label=label, source="given", unlimited=True)


def _bare_list(text: str, rates: Sequence[float]) -> Acceptance:
    """Return both readings of a list, or refuse one that cannot be told by its shape.

    A level at 0 or 1 is no doubt: both readings continue alike there.
    """
    for position, (before, after) in enumerate(pairwise(rates), start=2):
        if after > before:
            raise _Refusal(
                f"these rates rise ({before:g} to {after:g} at position {position}), and survival "
                "by position, as engines print it (survival:), never does; write "
                f"conditional:{text} if each is given that the drafts before it were accepted",
                names_remedy=True,
            )
    survival, conditional = _survival(rates), from_rates(rates)
    deepest = survival.deepest
    if math.isclose(survival.table[deepest], conditional.table[deepest]):
        return survival
    if any(after == before and 0 < after < 1 for before, after in pairwise(rates)):
        raise _Refusal(
            "rates that stay level may be either: write "
            f"survival:{text} if they are survival by position, as engines print it "
            f"({survival.table[deepest]:.4g} tokens per step at D={deepest}), conditional:{text} "
            "if each is given that the drafts before it were accepted "
            f"({conditional.table[deepest]:.4g})",
            names_remedy=True,
        )
    label = f"conditional rates {_listed(rates)}"
    other = replace(conditional, label=label, source="given")
    return replace(survival, without_prefix=text, other_reading=other)


def _survival(rates: Sequence[float]) -> Acceptance:
    for position, (before, after) in enumerate(pairwise(rates), start=2):
        if after > before:
            raise _Refusal(
                f"survival rises from {before:g} to {after:g} at position {position}, which it "
                "cannot"
            )
    label = f"survival by position {_listed(rates)}"
    return from_survival(rates, label=label, source="given")


def _accepted_over_drafted(rates: Mapping[int, float]) -> Acceptance:
    """Read accepted / drafted at some draft lengths: AL(D) = 1 + D x rate."""
    for rate in rates.values():
        _check_rate(rate)
    curve = {d: tokens_per_step_from_rate(rate=rate, draft_length=d) for d, rate in rates.items()}
    points = ", ".join(f"{rate:g} at D={d}" for d, rate in sorted(rates.items()))
    label = f"accepted over drafted {points}"
    return _checked_curve(curve, label=label, definition=Definition.RATE)


def _tokens_per_step(curve: Mapping[int, float]) -> Acceptance:
    points = ", ".join(f"{al:g} at D={d}" for d, al in sorted(curve.items()))
    label = f"tokens per step {points}"
    return _checked_curve(curve, label=label, definition=Definition.TOKENS_PER_STEP)


def _checked_curve(curve: Mapping[int, float], *, label: str, definition: Definition) -> Acceptance:
    problem = curve_problem({str(d): al for d, al in curve.items()})
    if problem is not None:
        raise _Refusal(problem)
    rise = survival_rise(curve, tolerance=NOISE)
    if rise is not None:
        raise _Refusal(
            f"survival rises from {rise.before:.2f} at D={rise.first} to {rise.after:.2f} at "
            f"D={rise.second}, which it cannot"
        )
    return from_curve(curve, label=label, source="given", definition=definition)


def _by_length(body: str, *, example: str) -> dict[int, float]:
    """Read ``2=2.36,3=2.79`` or ``1.8,2.4``, from D = 1 on, as values by draft length."""
    items, values = body.split(","), dict[int, float]()
    if len(items) == 1 and "=" not in body:
        _number(body)
        raise _Refusal("one value needs the draft length that it was measured at")
    for position, item in enumerate(items, start=1):
        key, equals, value = item.rpartition("=")
        draft_length = position
        if equals:
            key = key.strip()
            if not key.isdecimal() or len(key) > 6:
                raise _Refusal(f"expected a draft length and a value, such as {example}: '{item}'")
            draft_length = int(key)
        if draft_length in values:
            raise _Refusal(f"draft length {draft_length} is given twice")
        values[draft_length] = _number(value)
    return values


def _rates(body: str) -> list[float]:
    """Return rates of 0 to 1."""
    rates = [_number(item) for item in body.split(",")]
    for rate in rates:
        _check_rate(rate)
    return rates


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise _Refusal(f"a rate lies between 0 and 1, got {rate:g}")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    if text.strip().endswith("%"):
        raise _Refusal(f"rates are shares of 1 here, got '{text.strip()}'")
    if "=" in text:
        raise _Refusal(f"rates by position have no draft lengths, got '{text}'")
    raise _Refusal(
        "expected a rate (0.7), survival:0.72,0.45, tokens per step (al:3=2.31), a curve "
        "(roofline acceptance list), a file or an address, got "
        f"'{text}'"
    )


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


@dataclass(frozen=True, slots=True)
class _Item:
    """One value of a refused text, and its draft length where it has one."""

    length: int | None
    value: float
    percent: bool


def _meant(text: str) -> str | None:
    """Return the form that a refused text probably meant, one that can be read; None if unknown."""
    word, body = _split(text)
    for form in _candidates(word, body):
        if _can_be_read(form):
            return form
    return next(iter(close_names(text, resources.bundled_names(ACCEPTANCE_SHELF))), None)


def _can_be_read(text: str) -> bool:
    try:
        _read(text)
    except _Refusal:
        return False
    return True


def _candidates(word: str, body: str) -> Iterator[str]:
    """Yield what may have been meant, the likeliest first."""
    if word and word not in FORMS:
        yield from (f"{form}:{body}" for form in close_names(word, FORMS))
    matches = [_ITEM.fullmatch(item.strip()) for item in body.split(",")]
    items = [
        _Item(
            length=int(match["length"]) if match["length"] else None,
            value=float(match["number"]),
            percent=bool(match["percent"]),
        )
        for match in matches
        if match is not None
    ]
    if len(items) == len(matches):
        yield from _as_tokens(items)
        yield from _as_rates(word, items)


def _as_tokens(items: Sequence[_Item]) -> Iterator[str]:
    """Yield numbers above 1 as tokens per step."""
    if any(item.percent or not 1 <= item.value <= MOST_TOKENS for item in items):
        return
    if all(item.length is not None for item in items):
        yield "al:" + ",".join(f"{item.length}={item.value:g}" for item in items)
    elif len(items) > 1 and not any(item.length is not None for item in items):
        yield "al:" + ",".join(f"{item.value:g}" for item in items)
    if len(items) == 1:
        value = items[0].value
        yield f"al:{max(EXAMPLE_LENGTH, math.ceil(value - 1))}={value:g}"


def _as_rates(word: str, items: Sequence[_Item]) -> Iterator[str]:
    """Yield numbers as shares; as percentages where one is marked so or too large for tokens."""
    percentages = any(item.percent or item.value > MOST_TOKENS for item in items)
    scale = 100 if percentages else 1
    shares = [float(f"{item.value / scale:.10g}") for item in items]
    listed = ",".join(f"{share:g}" for share in shares)
    definition = FORMS.get(word)
    if all(item.length is not None for item in items):
        lengths = [item.length for item in items]
        if definition in (Definition.SURVIVAL, Definition.CONDITIONAL) and lengths == list(
            range(1, len(items) + 1)
        ):
            yield f"{word}:{listed}"
        yield "rate:" + ",".join(f"{d}={share:g}" for d, share in zip(lengths, shares, strict=True))
    elif len(items) == 1 and definition in (Definition.RATE, Definition.TOKENS_PER_STEP):
        yield f"rate:{EXAMPLE_LENGTH}={listed}"
    elif len(items) == 1:
        yield listed
    yield f"survival:{listed}"
    yield f"conditional:{listed}"
