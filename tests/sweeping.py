"""A grid that tests sweep, and the rows of a sweep with their types."""

from __future__ import annotations

import csv
import io
from typing import Any

from roofline.questions.sweep.columns import COLUMNS

ASKED = ("sweep", "llama-3.1-8b", "--acceptance", "0.7", "--max-draft-length", "3")
GRID = (*ASKED, "--batch", "1..40", "--context", "1k..8k*2")
POINTS = 40 * 4 * 4
Row = dict[str, Any]
WORDS = {"true": True, "false": False, "": None}


def rows(text: str) -> list[Row]:
    """Read a CSV sweep with its types."""
    kinds = {column.key: column.kind.value for column in COLUMNS}

    def value(name: str, cell: str) -> Any:
        if cell in WORDS:
            return WORDS[cell]
        kind = kinds.get(name, "text")
        return {"integer": int, "number": float}.get(kind, str)(cell)

    return [
        {name: value(name, cell) for name, cell in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]
