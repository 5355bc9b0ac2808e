"""The list of bundled curves, from one small file, so that listing opens no other.

``python -m tests.test_acceptance_data`` writes it anew.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from roofline import resources
from roofline.acceptance.files import SHELF, AcceptanceFile, load_file

__all__ = ["COLUMNS", "INDEX", "bundled", "index_text", "summary"]

INDEX = "index.csv"
COLUMNS = (
    "id", "target", "drafter", "datasets", "draft_lengths", "contexts", "temperature", "license",
    "source",
)  # fmt: skip


def bundled() -> list[dict[str, str]]:
    """Return one row per bundled file, from the index alone."""
    text = (resources.shelf(SHELF) / INDEX).read_text("utf-8")
    return list(csv.DictReader(io.StringIO(text)))


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
