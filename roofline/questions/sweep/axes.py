"""Axes as they are typed: lists, ranges and geometric ranges."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from roofline.base.errors import InputError
from roofline.base.units import parse_size

__all__ = ["numbers", "once"]

LONGEST_AXIS = 10**6
_RANGE = re.compile(r"(?P<first>\w+)\.\.(?P<last>\w+)(?:(?P<how>[*+])(?P<step>[\w.]+))?")


def numbers(field: str, text: str) -> tuple[int, ...]:
    """Read ``1,2,8k``, ``1..8``, ``0..32+4`` (steps of 4) or ``1..1024*2`` (factors of 2).

    >>> numbers("batch", "1..32*2"), numbers("batch", "2..8+3,1k")
    ((1, 2, 4, 8, 16, 32), (2, 5, 8, 1024))
    """
    found: list[int] = []
    for item in text.split(","):
        try:
            match = _RANGE.fullmatch(item.strip())
            found += _ranged(**match.groupdict()) if match else [parse_size(item.strip())]
        except InputError as error:
            raise InputError(error.text, field=field, value=text) from None
        if len(found) > LONGEST_AXIS:
            raise InputError(f"expected at most {LONGEST_AXIS} values", field=field)
    return tuple(found)


def _ranged(first: str, last: str, how: str | None, step: str | None) -> list[int]:
    low, high = parse_size(first), parse_size(last)
    if low > high:
        raise InputError(f"expected a range such as 1..256, lowest first, got {first}..{last}")
    if how == "*":
        return _geometric(low, high, step or "")
    each = parse_size(step) if step else 1
    if each < 1:
        raise InputError(f"expected steps of at least 1, got {step}")
    if (high - low) // each >= LONGEST_AXIS:
        raise InputError(f"expected at most {LONGEST_AXIS} values; give larger steps (+100, *2)")
    return list(range(low, high + 1, each))


def _geometric(low: int, high: int, step: str) -> list[int]:
    try:
        factor = float(step)
    except ValueError:
        factor = 0.0
    if not factor >= 1.01 or low < 1:
        raise InputError(f"expected a factor of at least 1.01 from at least 1, got {low} * {step}")
    found, exact = [], float(low)
    while exact <= high * (1 + 1e-12):
        found.append(round(exact))
        exact *= factor
    return list(dict.fromkeys(found))


def once(
    field: str, values: tuple[object, ...], sense: Callable[[Any], object] = lambda value: value
) -> None:
    """Refuse an axis that has a value twice, or none; ``sense`` is what a value stands for."""
    if not values:
        raise InputError("expected at least one value", field=field)
    seen: set[object] = set()
    for value in values:
        if sense(value) in seen:
            raise InputError(f"{value} is given twice; list each value once", field=field)
        seen.add(sense(value))
