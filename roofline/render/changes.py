"""What the option ``set`` changed, as every answer states it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.specs.overrides import Change

__all__ = ["set_data", "set_line"]


def set_line(changes: Sequence[Change]) -> str:
    """Return one sentence with a blank before it; nothing where nothing was set.

    >>> set_line([Change(option="set", path="group_size", value="4", was="8")])
    ' Set: group_size = 4 (was 8).'
    """
    return f" Set: {'; '.join(map(str, changes))}." if changes else ""


def set_data(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Return the changes as JSON writes them."""
    return [{"path": c.path, "value": c.value, "was": c.was} for c in changes]
