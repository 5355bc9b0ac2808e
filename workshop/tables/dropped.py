"""Tables that are left out because their benchmark is at fault, with the reason."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, TypeAdapter

from roofline.base.schema import Schema
from workshop.tables.family import TableGroup

__all__ = ["Dropped", "dropped", "reason_to_drop"]

FILE = Path(__file__).with_name("dropped.yaml")


class Dropped(Schema):
    """One kernel's rows in the tables of one engine's version."""

    gpus: Annotated[tuple[str, ...], Field(min_length=1)]
    engine: str
    version: str
    kind: str
    dtype: str
    kernel: str  # a part of its name
    reason: str

    def holds(self, group: TableGroup) -> bool:
        """Return whether these rows are meant."""
        return (
            group.gpu in self.gpus
            and (group.engine, group.version, group.kind) == (self.engine, self.version, self.kind)
            and group.label.get("dtype") == self.dtype
            and self.kernel in str(group.label.get("kernel", ""))
        )


@cache
def dropped() -> tuple[Dropped, ...]:
    """Return every entry of ``dropped.yaml``."""
    data = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return TypeAdapter(tuple[Dropped, ...]).validate_json(json.dumps(data))


def reason_to_drop(group: TableGroup) -> str | None:
    """Return why a table's rows are left out; None where they are used."""
    return next((entry.reason for entry in dropped() if entry.holds(group)), None)
