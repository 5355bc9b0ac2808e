"""The list of bundled curves, from one small file, so that listing opens no other.

``python -m tests.test_acceptance_data`` writes it anew.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from functools import cache
from typing import Any

from roofline.acceptance.files import SHELF, AcceptanceFile, load_file
from roofline.base import resources

__all__ = ["COLUMNS", "INDEX", "bundled", "index_text", "lengths_of", "summary"]

INDEX = "index.csv"
COLUMNS = (
    "id", "target", "drafter", "datasets", "draft_lengths", "contexts", "temperature", "license",
    "source",
)  # fmt: skip


def bundled() -> list[dict[str, str]]:
    """Return one row per bundled file, from the index alone."""
    return [dict(row) for row in _rows()]


@cache
def _rows() -> tuple[dict[str, str], ...]:
    """Return the index, read once in a process."""
    text = (resources.shelf(SHELF) / INDEX).read_text("utf-8")
    return tuple(csv.DictReader(io.StringIO(text)))


def lengths_of(row: dict[str, str]) -> list[int]:
    """Return the draft lengths that a row of the index states.

    >>> lengths_of({"draft_lengths": "1-3 7"})
    [1, 2, 3, 7]
    """
    ends = [run.partition("-") for run in row["draft_lengths"].split()]
    return [d for first, _, last in ends for d in range(int(first), int(last or first) + 1)]


def index_text() -> str:
    """Return the index made from the files themselves."""
    names = resources.bundled_names(SHELF)
    rows = [{"id": name} | summary(load_file(name)[1]) for name in names]
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def summary(file: AcceptanceFile) -> dict[str, Any]:
    """Return what the list says about one file."""
    curves = [curve.read(label="", source="") for curve in file.all_curves()]
    lengths = {d for curve in curves for d in curve.table if d > 0}
    return {
        "target": file.target,
        "drafter": file.drafter,
        "datasets": _joined(file.parts()),
        "draft_lengths": _ranges(sorted(lengths)),
        "contexts": _joined(str(c.context) for c in file.all_curves() if c.context),
        "temperature": _joined(
            f"{c.temperature:g}" for c in file.all_curves() if c.temperature is not None
        ),
        "license": file.license,
        "source": file.source,
    }


def _joined(words: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(words))


def _ranges(numbers: list[int]) -> str:
    """Return sorted numbers with runs joined.

    >>> _ranges([1, 2, 3, 7])
    '1-3 7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
