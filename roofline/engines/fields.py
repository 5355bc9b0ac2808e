"""Fields of the log lines and the JSON that engines print: their numbers, and what is missing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roofline.base.errors import InputError, Option

__all__ = [
    "DECIMAL",
    "WHOLE",
    "checked_number",
    "incomplete_log",
    "mappings_with",
    "one_record",
]

#: Patterns of the numbers in a log line that float() and int() read; a mangled line has none.
WHOLE = r"\d{1,15}"
DECIMAL = rf"{WHOLE}(?:\.\d{{0,15}})?(?![\d.])"

#: Fields of a log line by the name that an engine prints, with a group for what follows it.
FieldPatterns = Mapping[str, re.Pattern[str]]
#: Characters up to which a text may be one line that a terminal wrapped.
LONGEST_LINE = 4096


def one_record(lines: Sequence[str], fields: FieldPatterns) -> str:
    """Return the one log line that a text holds, or its last one that has any of the fields.

    A line that was copied from a terminal may be wrapped, but has each field once.
    """
    whole = " ".join(line.strip() for line in lines)
    if len(whole) <= LONGEST_LINE and all(
        len(pattern.findall(whole)) <= 1 for pattern in fields.values()
    ):
        return whole
    marked = (line for line in reversed(lines) if any(p.search(line) for p in fields.values()))
    return next(marked, "")


def incomplete_log(
    where: str,
    *,
    record: str,
    missing: Sequence[str],
    tokens_per_step: float | None = None,
    rate: float | None = None,
) -> InputError:
    """Return the refusal of log lines that lack fields, with the form that says what they do hold.

    ``record`` is what holds the fields. Tokens per step say more than the ``rate`` of accepted over
    drafted; survival by position, which says most, is read (`from_positions`).
    """
    verb = "are" if len(missing) > 1 else "is"
    lacks = f"no {record} is whole: {', '.join(missing)} {verb} missing"
    example = ", with the server's draft length in place of 3"
    if tokens_per_step is not None and tokens_per_step >= 1:
        form = f"al:3={tokens_per_step:g}"
    elif rate is not None:
        form = f"rate:3={rate:.4g}"
    else:
        return InputError(lacks, where=where)
    return InputError(f"{lacks}; give {Option('acceptance', form)}{example}", where=where)


def checked_number(value: Any, what: str, where: str) -> float:
    """Return a JSON or page value as a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{what}: expected a number, got {value!r:.40}", where=where)
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{what} is {value}; expected a finite number of at least 0", where=where)
    return float(value)


def mappings_with(data: Any, key: str) -> Iterator[dict[str, Any]]:
    """Yield every mapping at any depth that has ``key``."""
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if key in item:
                yield item
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))
