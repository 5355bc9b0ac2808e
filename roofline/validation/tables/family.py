"""What a family of kernels must know for its tables to be fitted, scored and shipped as a sample.

Each family is a module with the functions of ``Family``; the importer and the validation walk over
all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from roofline.specs.gpu import HardwareProfile
from roofline.validation.tables.tables import Columns, Table, latency, shape_keys

__all__ = ["Family", "Group", "Label", "Numbers", "all_rows"]

Numbers = Mapping[str, NDArray[np.float64]]
Label = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The rows of one table that one law prices, cleaned.

    ``label`` holds what tells its block from others of the kind (dtype, kernel, head_dim, ...);
    ``columns`` are the numbers a prediction needs, under the names the shipped sample uses;
    ``keys`` name each row's shape for the hold-out.
    """

    kind: str
    gpu: str
    engine: str
    version: str
    source: str
    label: Label
    columns: Numbers
    seconds: NDArray[np.float64]
    keys: NDArray[np.str_]
    rejected: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        table: Table,
        rows: Columns,
        *,
        kind: str,
        label: Label,
        columns: Numbers,
        shape: Sequence[str],
        rejected: Mapping[str, int],
    ) -> Group:
        """Return the group of a table's cleaned rows; ``shape`` are the columns that name one."""
        return cls(
            kind=kind,
            gpu=table.gpu,
            engine=table.engine,
            version=table.version,
            source=table.label,
            label=label,
            columns=columns,
            seconds=latency(rows),
            keys=shape_keys(*(rows[name] for name in shape)),
            rejected=dict(rejected),
        )

    def pick(
        self, rows: NDArray[np.bool_] | NDArray[np.intp]
    ) -> tuple[Numbers, NDArray[np.float64]]:
        """Return the columns and the seconds of some rows."""
        return {name: column[rows] for name, column in self.columns.items()}, self.seconds[rows]


class Family(Protocol):
    """The functions of a family's module."""

    KIND: str
    #: (folder, file stem) of the tables that hold this family.
    TABLES: Sequence[tuple[str, str]]

    def groups(self, table: Table, gpu: HardwareProfile) -> list[Group]:
        """Read, clean and divide a table."""

    def seconds(
        self, columns: Numbers, label: Label, law: Any, gpu: HardwareProfile
    ) -> NDArray[np.float64]:
        """Predict the measured seconds, under the benchmark's conditions (warm caches)."""

    def textbook(self, columns: Numbers, label: Label, gpu: HardwareProfile) -> NDArray[np.float64]:
        """Return max(bytes / bandwidth, FLOP / peak) with datasheet figures [s]."""

    def fit(
        self, columns: Numbers, label: Label, seconds: NDArray[np.float64], gpu: HardwareProfile
    ) -> tuple[Any, dict[str, Any]]:
        """Return the law, constants rounded, and what else its block states (as ``max_group``)."""

    def scored(self, columns: Numbers, label: Label) -> NDArray[np.bool_]:
        """Return the rows that count when the law is judged."""


def all_rows(columns: Numbers, label: Label) -> NDArray[np.bool_]:  # noqa: ARG001
    """Return that every row counts when the law is judged."""
    return np.ones(len(next(iter(columns.values()))), dtype=bool)
