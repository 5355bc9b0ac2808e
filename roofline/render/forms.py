"""How an answer is written that has no rows to put in a spreadsheet."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TableOrJson"]


class TableOrJson(StrEnum):
    """A table for people, or JSON for programs."""

    TABLE = "table"
    JSON = "json"
