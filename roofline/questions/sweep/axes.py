"""Axes of a sweep: lists and ranges as they are typed, and a whole grid as a YAML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field, create_model

from roofline.base.errors import InputError
from roofline.base.schema import Document, Readable, Schema
from roofline.base.units import parse_size

__all__ = ["axis_numbers", "check_distinct", "read_grid"]

LONGEST_AXIS = 10**6
_RANGE = re.compile(r"(?P<first>\w+)\.\.(?P<last>\w+)(?:(?P<how>[*+])(?P<step>[\w.]+))?")


def axis_numbers(field: str, text: str) -> tuple[int, ...]:
    """Read ``1,2,8k``, ``1..8``, ``0..32+4`` (steps of 4) or ``1..1024*2`` (factors of 2).

    >>> axis_numbers("batch", "1..32*2"), axis_numbers("batch", "2..8+3,1k")
    ((1, 2, 4, 8, 16, 32), (2, 5, 8, 1024))
    """
    values: list[int] = []
    for item in text.split(","):
        try:
            match = _RANGE.fullmatch(item.strip())
            values += _range(**match.groupdict()) if match else [parse_size(item.strip())]
        except InputError as error:
            raise InputError(error.text, field=field, value=text) from None
        if len(values) > LONGEST_AXIS:
            raise InputError(f"expected at most {LONGEST_AXIS} values", field=field)
    return tuple(values)


def _range(first: str, last: str, how: str | None, step: str | None) -> list[int]:
    low, high = parse_size(first), parse_size(last)
    if low > high:
        raise InputError(f"expected a range such as 1..256, lowest first, got {first}..{last}")
    if how == "*":
        return _geometric(low, high, step or "")
    increment = parse_size(step) if step else 1
    if increment < 1:
        raise InputError(f"expected steps of at least 1, got {step}")
    if (high - low) // increment >= LONGEST_AXIS:
        raise InputError(f"expected at most {LONGEST_AXIS} values; give larger steps (+100, *2)")
    return list(range(low, high + 1, increment))


def _geometric(low: int, high: int, step: str) -> list[int]:
    try:
        factor = float(step)
    except ValueError:
        factor = 0.0
    if not factor >= 1.01 or low < 1:
        raise InputError(f"expected a factor of at least 1.01 from at least 1, got {low} * {step}")
    values, exact = [], float(low)
    while exact <= high * (1 + 1e-12):
        values.append(round(exact))
        exact *= factor
    return list(dict.fromkeys(values))


def check_distinct(
    field: str, values: tuple[object, ...], sense: Callable[[Any], object] = lambda value: value
) -> None:
    """Refuse an axis with no value or one given twice; ``sense`` returns what a value means."""
    if not values:
        raise InputError("expected at least one value", field=field)
    seen: set[object] = set()
    for value in values:
        if sense(value) in seen:
            raise InputError(f"{value} is given twice; list each value once", field=field)
        seen.add(sense(value))


#: Cases of a grid file; each is a question of its own, checked before any is priced.
MOST_CASES = 10_000
Scalar = str | int | float | bool
AxisValues = Scalar | tuple[Scalar, ...]


def read_grid(file: Readable, options: Sequence[str]) -> dict[str, Any]:
    """Return the axes in ``file``; ``options`` are the names that an axis may have.

    ``batch`` and ``context`` are axes as well. ``cases`` is a list of mappings with the same keys:
    the options of one case go together, and are multiplied with the axes outside.
    """
    names = (*options, "batch", "context")
    axes: dict[str, Any] = dict.fromkeys(names, (AxisValues | None, None))
    case = create_model("Case", __base__=Schema, **{n: axes[n] for n in options})
    grid = create_model(
        "Grid",
        __base__=Document,
        cases=(Annotated[tuple[case, ...], Field(max_length=MOST_CASES)], ()),
        **axes,
    )
    return grid.load(file).model_dump(exclude_unset=True, exclude={"version"})
