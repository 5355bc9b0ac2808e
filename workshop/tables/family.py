"""What a family of kernels must know for its tables to be read and its law fitted.

How its rows are predicted and judged is ``roofline.validation.kernel_rows.FAMILIES``, by the same
kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import Label, Numbers, shape_keys
from roofline.specs.gpu import HardwareProfile
from workshop.tables.parquet import Columns, Table, latency

__all__ = ["Group", "TableFamily"]

Array = NDArray[np.float64]


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
    seconds: Array
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

    def pick(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> tuple[Numbers, Array]:
        """Return the columns and the seconds of some rows."""
        return {name: column[rows] for name, column in self.columns.items()}, self.seconds[rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFamily:
    """How the tables of one kind of kernel are read, and its law fitted."""

    kind: str
    #: (folder, file stem) of the tables that hold this family.
    tables: Sequence[tuple[str, str]]
    #: Read, clean and divide a table.
    groups: Callable[[Table, HardwareProfile], list[Group]]
    #: Return the law, constants rounded, and what else its block states (as ``max_group``).
    fit: Callable[[Numbers, Label, Array, HardwareProfile], tuple[Any, dict[str, Any]]]
