"""Rows as CSV that a spreadsheet may open: no cell is taken for a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["cell", "csv_text"]

#: What spreadsheets take for the start of a formula (OWASP, "CSV injection").
_FORMULA = re.compile(r"[=+\-@\t\r]")
#: Numbers, and what begins with a flag: without brackets, pipes and exclamation marks a formula
#: can call nothing and reach nothing outside its sheet.
_HARMLESS = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|--?[a-z][^(|!\t\r\n]*", re.ASCII)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return equal rows as CSV under the names of the first one's keys.

    >>> print(csv_text([{"gpu": "b200", "speedup": 2 / 3}, {"gpu": "=1+1", "speedup": None}]))
    gpu,speedup
    b200,0.666667
    '=1+1,
    <BLANKLINE>
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if rows:
        writer.writerow([cell(name) for name in rows[0]])
    writer.writerows([cell(value) for value in row.values()] for row in rows)
    return out.getvalue()


def cell(value: Any) -> Any:
    """Return a value as a cell: six digits, 0 or 1 for false or true, nothing for None.

    Text that begins with = + - @, a tab or a carriage return gets an apostrophe in front, which
    spreadsheets read as "this is text"; numbers and plain flags stay as they are.

    >>> [cell(value) for value in (True, 0.1234567, "-1.5", "@SUM(A1)", "--tp 2", "-a|b!A0")]
    [1, '0.123457', '-1.5', "'@SUM(A1)", '--tp 2', "'-a|b!A0"]
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and _FORMULA.match(value) and not _HARMLESS.fullmatch(value):
        value = f"'{value}"
    # a bare carriage return is not quoted, and readers begin a row after it
    return value.replace("\r", " ") if isinstance(value, str) else value
