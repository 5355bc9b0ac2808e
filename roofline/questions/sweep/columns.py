"""The columns of a sweep, of the one table that all answers take theirs from."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.advice.columns import Column, columns
from roofline.kernels.ops import Part

__all__ = [
    "ASKED",
    "ASKED_FOR",
    "COLUMNS",
    "COST",
    "FIGURES",
    "POINT",
    "columns_data",
    "columns_for",
    "columns_table",
    "option_column",
]

#: What was asked; the first columns of every sweep.
ASKED = columns(
    "model",
    "gpu",
    "engine",
    "tp",
    "gpus",
    "ep",
    "drafter",
    "acceptance",
    "weights",
    "kv",
)
#: Which point a row is.
POINT = columns("batch", "context", "draft_length")
#: What is found of it.
FIGURES = columns(
    "fits",
    "reason",
    "captured",
    "memory_needed_bytes",
    "memory_available_bytes",
    "tokens_per_step",
    "step_ms",
    "verify_ms",
    "draft_ms",
    "overhead_ms",
    *(f"{part.value}_ms" for part in Part),
    "cost_ratio",
    "speedup",
    "speedup_low",
    "speedup_high",
    "tokens_per_s_user",
    "tokens_per_s",
    "tie",
    "recommended",
    "recommended_draft_length",
    "limited_by",
    "confidence",
)
#: All of them. Times are in milliseconds, sizes in bytes.
COLUMNS = (*ASKED, *POINT, *FIGURES)


ASKED_FOR = "_asked"  # after the name of an option that is the name of a figure as well


def option_column(option: str) -> str:
    """Return the column of an option that varies.

    >>> option_column("verify_attention"), option_column("overhead_ms")
    ('verify_attention', 'overhead_ms_asked')
    """
    return f"{option}{ASKED_FOR}" if option in {column.key for column in COLUMNS} else option


#: The column of a grid with the price of a GPU.
COST = columns("dollars_per_million_tokens")


def columns_for(extra: Sequence[Column], *, priced: bool) -> tuple[Column, ...]:
    """Return all columns, those of further options of the grid after what was asked.

    The last one is the cost where the grid has a price.
    """
    return (*ASKED, *extra, *COLUMNS[len(ASKED) :], *(COST if priced else ()))


def columns_data(columns: Sequence[Column]) -> list[dict[str, str]]:
    """Return columns as JSON writes them."""
    return [
        {"name": column.key, "kind": column.kind.value, "meaning": column.meaning}
        for column in columns
    ]


def columns_table() -> str:
    """Return the columns as the Markdown table that docs/reference.md shows."""
    rows = [f"| `{c.key}` | {c.kind.value} | {c.meaning} |" for c in COLUMNS]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])
