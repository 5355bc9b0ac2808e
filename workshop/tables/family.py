"""What a family of kernels provides so that its tables are read and its law fitted.

``roofline.validation.kernel_families.FAMILIES`` says, by the same kind, how its rows are predicted
and judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import Columns, Label, shape_keys
from roofline.specs.gpu import HardwareProfile
from workshop.tables.parquet import RawColumns, Table, latency

__all__ = ["TableFamily", "TableGroup", "has_gddr"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableGroup:
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
    columns: Columns
    seconds: Array
    keys: NDArray[np.str_]
    rejected: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        table: Table,
        rows: RawColumns,
        *,
        kind: str,
        label: Label,
        columns: Columns,
        shape: Sequence[str],
        rejected: Mapping[str, int],
    ) -> TableGroup:
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

    def pick(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> tuple[Columns, Array]:
        """Return the columns and the seconds of some rows."""
        return {name: column[rows] for name, column in self.columns.items()}, self.seconds[rows]


def has_gddr(gpu: HardwareProfile) -> bool:
    """Return whether L2 is clearly faster than the memory, which is then GDDR and not HBM."""
    return gpu.memory.kind.startswith("GDDR")


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFamily:
    """How the tables of one kind of kernel are read, and its law fitted."""

    kind: str
    #: (folder, file stem) of the tables that hold this family.
    tables: Sequence[tuple[str, str]]
    #: Read, clean and divide a table.
    read_groups: Callable[[Table, HardwareProfile], list[TableGroup]]
    #: Return the law, constants rounded, and what else its block states (as ``max_group``).
    fit: Callable[[Columns, Label, Array, HardwareProfile], tuple[Any, dict[str, Any]]]
