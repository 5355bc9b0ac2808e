"""``python -m workshop.published_heads``: name the heads of the table of published values.

It reads `roofline/data/acceptance/values.csv` and writes `roofline/data/published_heads.yaml`:
kind, target and trained context of every head that is called by its repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from roofline.acceptance.values import value_rows
from roofline.base.schema import dump_yaml
from roofline.specs.network import HEAD_KINDS, network_named

__all__ = ["FILE", "heads", "main"]

FILE = Path(__file__).resolve().parent.parent / "roofline" / "data" / "published_heads.yaml"
HEADER = """\
# Heads by their repositories, as values.csv names them: kind, the model they are made for, and the
# context they were trained on where it is stated. Written by `python -m workshop.published_heads`.
"""
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def heads() -> dict[str, dict[str, Any]]:
    """Return kind, target and trained context by repository."""
    found: dict[str, dict[str, Any]] = {}
    for row in value_rows():
        if row["kind"] not in HEAD_KINDS or not _REPOSITORY.fullmatch(row["drafter"]):
            continue
        named = network_named(row["target"])
        target = row["target"] if named is None or named.id is None else named.id
        head = found.setdefault(row["drafter"], {"kind": row["kind"], "target": target})
        if row["trained_context"]:
            head["trained_context"] = int(row["trained_context"])
    return dict(sorted(found.items(), key=lambda pair: pair[0].lower()))


def main() -> None:
    """Write the file."""
    FILE.write_text(HEADER + dump_yaml({"schema": 1, "heads": heads()}), encoding="utf-8")


if __name__ == "__main__":
    main()
