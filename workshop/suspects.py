"""``python -m workshop.suspects``: compare all tables of one format on one accelerator.

At equal shapes, each pair of tables of the same kind and format: the median ratio of their times,
at few rows and at many. Versions and engines that time the same kernel should agree; where they do
not, one of the benchmarks is at fault, and an entry in ``tables/dropped.yaml`` says which and why.
The last column is the median share of the textbook roofline that the first table reaches: a slow
kernel reaches little as well, which is no fault.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.specs.gpu import load_hardware
from roofline.validation.kernel_families import FAMILIES
from workshop.import_tables import ENGINES, TABLE_FAMILIES
from workshop.tables.dropped import reason_to_drop
from workshop.tables.family import TableGroup
from workshop.tables.parquet import FOLDERS, data_folder, find_tables

__all__ = ["compare", "main", "table_groups"]

#: Kinds whose formats several kernels or engines time, and the column that counts rows.
ROWS = {"gemm": "m", "moe": "tokens"}
FEW = 8  # rows up to which a product reads weights and does little else
APART = 1.5  # tables of one kernel differ by less
LEAST = 50  # equal rows that a comparison needs


def table_groups(root: Path, gpu: str, kind: str) -> list[TableGroup]:
    """Return the cleaned rows of every version and engine."""
    profile, family = load_hardware(gpu), TABLE_FAMILIES[kind]
    groups: list[TableGroup] = []
    for table in find_tables(root, gpus=[gpu], engines=ENGINES):
        if (table.family, table.name) in family.tables:
            groups += family.read_groups(table, profile)
    return groups


def compare(first: TableGroup, second: TableGroup) -> tuple[int, float, float] | None:
    """Return equal rows, and the median of first over second at few and at many rows.

    None where too few shapes are equal.
    """
    seconds = _by_shape(second)
    pairs = [
        (key[-1], mine, seconds[key]) for key, mine in _by_shape(first).items() if key in seconds
    ]
    if len(pairs) < LEAST:
        return None
    counts, mine, other = np.array(pairs).T
    ratio, few = mine / other, counts <= FEW
    return len(pairs), _median(ratio[few]), _median(ratio[~few])


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values)) if values.size else float("nan")


def _by_shape(group: TableGroup) -> dict[tuple[object, ...], float]:
    """Return seconds by everything that names a row, its number of rows last."""
    rows = ROWS[group.kind]
    names = [name for name in ("alpha",) if name in group.columns]
    columns = [group.columns[name].tolist() for name in (*names, rows)]
    keys = zip(group.keys.tolist(), *columns, strict=True)
    return dict(zip(keys, group.seconds.tolist(), strict=True))


def suspects(root: Path, gpu: str, kind: str, *, every: bool) -> Iterator[str]:
    """Yield a line for each pair of tables that are far apart, or for every pair."""
    by_dtype: dict[str, list[TableGroup]] = defaultdict(list)
    for group in table_groups(root, gpu, kind):
        by_dtype[str(group.label["dtype"])].append(group)
    for dtype, groups in sorted(by_dtype.items()):
        for first, second in combinations(groups, 2):
            found = compare(first, second)
            if found is None:
                continue
            count, few, many = found
            apart = max(abs(np.log(few)), abs(np.log(many)))
            if not every and apart < np.log(APART):
                continue
            reached = FAMILIES[kind].textbook(first.columns, first.label, load_hardware(gpu))
            share = float(np.median(reached / first.seconds))
            yield (
                f"{gpu} {kind} {dtype}: {_title(first)} / {_title(second)}: {few:.2f} to {FEW} "
                f"rows, {many:.2f} beyond ({count} equal rows; first at {100 * share:.0f} % of "
                "the textbook)\n"
            )


def _title(group: TableGroup) -> str:
    mark = " [dropped]" if reason_to_drop(group) else ""
    return f"{group.engine} {group.version} {group.label.get('kernel', '')}".rstrip() + mark


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and print the comparisons."""
    parser = argparse.ArgumentParser("python -m workshop.suspects", description=__doc__)
    parser.add_argument("--gpu", action="append", choices=list(FOLDERS), help="repeatable")
    parser.add_argument("--kind", action="append", choices=list(ROWS), help="repeatable")
    parser.add_argument("--tables", type=Path, help="folder of the unpacked wheel")
    parser.add_argument("--all", action="store_true", help="also the pairs that agree")
    options = parser.parse_args(arguments)
    try:
        root = data_folder(options.tables)
        for gpu in options.gpu or FOLDERS:
            for kind in options.kind or ROWS:
                sys.stdout.writelines(suspects(root, gpu, kind, every=options.all))
    except InputError as error:
        parser.exit(2, f"workshop: {error}\n")


if __name__ == "__main__":
    main()
