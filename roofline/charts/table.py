"""The numbers of a chart as CSV: one line for each row, units in the names of the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["csv_text"]


def csv_text(rows: Sequence[NamedTuple], **same: str | int) -> str:
    """Return equal rows as CSV; ``same`` are columns in front that hold one value throughout.

    >>> class Row(NamedTuple):
    ...     draft_length: int
    ...     speedup: float | None
    >>> print(csv_text([Row(0, 1.0), Row(1, 2 / 3), Row(2, None)], gpu="b200").strip())
    gpu,draft_length,speedup
    b200,0,1
    b200,1,0.666667
    b200,2,
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*same, *(rows[0]._fields if rows else ())])
    for row in rows:
        writer.writerow([*same.values(), *map(_cell, row)])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
