"""Values of options as texts: words, numbers with units, lists, ranges and shares.

The command line and the Python functions read them here; ``field`` names the option at fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from roofline.base.errors import InputError, did_you_mean
from roofline.base.units import parse_size

__all__ = [
    "BYTES_PER_SECOND",
    "DOLLARS",
    "MILLISECONDS",
    "PERCENT",
    "PER_SECOND",
    "SECONDS",
    "WATTS",
    "Choice",
    "amount",
    "batches_in_order",
    "check_word",
    "choice",
    "distinct_sizes",
    "numbers",
    "one_size",
    "prompt_and_answer",
    "seconds",
    "shares",
    "sizes",
    "sizes_or_range",
]

LONGEST_RANGE = 4096
LONGEST_WAIT = 3600.0  # [s]
#: Units that may follow a number, and their factors; without one the documented unit is meant.
SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0}
MILLISECONDS = {"": 1.0, "ms": 1.0, "s": 1e3, "us": 1e-3, "µs": 1e-3}
PER_SECOND = dict.fromkeys(("", "/s", "tokens/s", "tok/s", "t/s", "requests/s", "req/s"), 1.0)
DOLLARS = dict.fromkeys(("", "$", "usd", "/h", "$/h", "usd/h"), 1.0)
PERCENT = {"": 1.0, "%": 1.0}
WATTS = {"": 1.0, "w": 1.0, "kw": 1e3}
BYTES_PER_SECOND = {"": 1e9, "gb/s": 1e9, "mb/s": 1e6, "tb/s": 1e12}
_AMOUNT = re.compile(
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?inf|nan)\s*(?P<unit>\D*)",
    re.IGNORECASE,
)


Choice = TypeVar("Choice", bound=StrEnum)


def check_word(field: str, text: str, known: Iterable[str], *, what: str = "value") -> None:
    """Refuse a word that is not known, with the closest ones that are."""
    words = list(known)
    if "," in text and text not in words:
        raise InputError(f"one {what} only", field=field, value=text)
    if text not in words:
        raise InputError(f"unknown {what} '{text}': {did_you_mean(text, words)}", field=field)


def choice(field: str, text: str, kinds: type[Choice]) -> Choice:
    """Return the member of ``kinds`` called ``text``."""
    check_word(field, text, kinds)
    return kinds(text)


def amount(field: str, text: str, units: Mapping[str, float], example: str) -> float:
    """Read a number with one of these units behind it, or with none; a price may begin with $.

    >>> amount("slo_tpot", "5ms", MILLISECONDS, "5"), amount("gpu_hour", "$2.5", DOLLARS, "2.5")
    (5.0, 2.5)
    """
    bare = text.strip()
    match = _AMOUNT.fullmatch(bare.removeprefix("$").strip() if "$" in units else bare)
    scale = units.get(match["unit"].strip().lower()) if match else None
    if match is None or scale is None:
        raise InputError(f"expected {example}", field=field, value=text)
    return float(match["number"]) * scale


def numbers(
    field: str, text: str | None, example: str, units: Mapping[str, float] | None = None
) -> tuple[float, ...] | None:
    """Read ``3,1`` as numbers, each with a unit if it may have one; None stays None.

    >>> numbers("tensor_split", "3,1", "3,1")
    (3.0, 1.0)
    """
    if text is None:
        return None
    try:
        return tuple(amount(field, item, units or {"": 1.0}, example) for item in text.split(","))
    except InputError:
        raise InputError(f"expected numbers such as {example}", field=field, value=text) from None


def sizes(field: str, text: str) -> tuple[int, ...]:
    """Read ``1,8k`` as numbers."""
    try:
        return tuple(parse_size(item) for item in text.split(","))
    except InputError as error:
        raise InputError(error.text, field=field) from None


def distinct_sizes(field: str, text: str) -> tuple[int, ...]:
    """Read ``1,8k`` as numbers of at least 1, each given once."""
    values = sizes(field, text)
    if min(values) < 1:
        raise InputError("expected whole numbers of at least 1", field=field, value=text)
    if len(set(values)) < len(values):
        raise InputError("a value is given twice; list each once", field=field, value=text)
    return values


def one_size(field: str, text: str, expected: str) -> int:
    """Read one number; refuse several with what was expected.

    >>> one_size("context", "4k", "expected one number")
    4096
    """
    values = sizes(field, text)
    if len(values) != 1:
        raise InputError(expected, field=field, value=text)
    return values[0]


def prompt_and_answer(field: str, text: str) -> tuple[int, int]:
    """Read ``2k:256`` as tokens of a prompt and of its answer.

    >>> prompt_and_answer("pools", "2k:256")
    (2048, 256)
    """
    prompt, _, answer = text.partition(":")
    try:
        (first,), (second,) = sizes(field, prompt), sizes(field, answer)
    except (InputError, ValueError):  # not numbers, or several
        first = second = 0
    if min(first, second) < 1:
        raise InputError("expected prompt and answer tokens: 2k:256", field=field, value=text)
    return first, second


def shares(field: str, text: str) -> dict[int, float]:
    """Read shares of time by batch.

    >>> shares("mix", "1:0.2,32:0.8")
    {1: 0.2, 32: 0.8}
    """
    share_of: dict[int, float] = {}
    for item in text.split(","):
        batch, _, share = item.partition(":")
        try:
            (size,), weight = sizes(field, batch), float(share)
        except ValueError:
            raise InputError(f"expected 1:0.2,32:0.8, got '{item}'", field=field) from None
        if size in share_of or size < 1 or not 0 < weight < float("inf"):
            raise InputError(f"each batch once with a share above 0, got '{item}'", field=field)
        share_of[size] = weight
    if sum(share_of.values()) == float("inf"):
        raise InputError("expected shares with a finite sum, such as 1:0.2,32:0.8", field=field)
    return share_of


def sizes_or_range(field: str, text: str) -> tuple[int, ...]:
    """Read ``1..256`` or ``1,2,4`` as numbers in rising order.

    >>> sizes_or_range("batches", "1..4")
    (1, 2, 3, 4)
    """
    first, dots, last = text.partition("..")
    if not dots:
        return tuple(sorted(distinct_sizes(field, text)))
    (low,), (high,) = sizes(field, first), sizes(field, last)
    if low > high or low < 1:
        raise InputError("expected a range such as 1..256, lowest first", field=field, value=text)
    if high - low >= LONGEST_RANGE:
        raise InputError(f"expected at most {LONGEST_RANGE} batches", field=field, value=text)
    return tuple(range(low, high + 1))


def batches_in_order(field: str, text: str) -> tuple[int, ...]:
    """Read ``1..64`` as all of these batches, or ``8,1`` as batches in the order given.

    >>> batches_in_order("batch", "1..3"), batches_in_order("batch", "8,1")
    ((1, 2, 3), (8, 1))
    """
    return sizes_or_range(field, text) if ".." in text else sizes(field, text)


def seconds(field: str, text: str, *, least: float, most: float = LONGEST_WAIT) -> float:
    """Read ``30s``, ``5m``, ``1h`` or a plain number of seconds.

    >>> seconds("interval", "5m", least=0), seconds("interval", "0", least=0)
    (300.0, 0.0)
    """
    value = amount(field, text, SECONDS, "a time such as 30s or 5m")
    if not least <= value <= most:
        raise InputError(f"expected {least:g} to {most:g} seconds", field=field, value=text)
    return value
