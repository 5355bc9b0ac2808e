"""Public kernel tables: the parquet files of the ``aiconfigurator-core`` wheel, read as data.

None of the wheel's code is imported. Its files are found by the installed distribution's list of
files, or in a folder that the user names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.base.resources import how_to_install

__all__ = [
    "FOLDERS",
    "RawColumns",
    "Table",
    "clean",
    "data_folder",
    "find_tables",
    "kinds",
    "latency",
    "pick",
    "read",
]

WHEEL, WHEEL_VERSION = "aiconfigurator-core", "0.12.0"
#: The wheel's folder of each accelerator that has tables.
FOLDERS = {
    "a100-sxm-80gb": "a100_sxm",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-hgx": "b200_sxm",
    "b300-hgx": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx-pro-6000-blackwell-server": "rtx_pro_6000_server",
}
RawColumns = dict[str, NDArray[np.generic]]
UNIT_SHIFT = 50.0  # a row this far off its neighbours was written in another unit


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One parquet file of measured kernels."""

    gpu: str
    family: str  # the folder: gemm, attention, mla, moe, comm, linear_attention
    name: str  # the file's stem
    engine: str
    version: str
    path: Path

    @property
    def label(self) -> str:
        """Return the file's place in the wheel, for messages and provenance."""
        return f"{FOLDERS[self.gpu]}/{self.family}/{self.engine}/{self.version}/{self.name}"


def data_folder(unpacked: Path | None = None) -> Path:
    """Return the wheel's ``systems/data`` folder, of the installed wheel or in a folder."""
    if unpacked is not None:
        folder = next(unpacked.rglob("systems/data"), None)
        if folder is None:
            raise InputError(f"--tables {unpacked}: holds no systems/data folder of {WHEEL}")
        return folder
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files(WHEEL) or []
    except PackageNotFoundError:
        raise InputError(
            f"the kernel tables are not installed: {how_to_install('tables')} "
            f"({WHEEL} {WHEEL_VERSION}, Apache-2.0), or give --tables FOLDER"
        ) from None
    marker = next((f for f in listed if "/systems/data/" in f"/{f}"), None)
    if marker is None:
        raise InputError(f"{WHEEL} is installed but holds no systems/data folder")
    located = Path(str(marker.locate()))
    return next(parent for parent in located.parents if parent.name == "data")


def find_tables(root: Path, *, gpus: Sequence[str], engines: Sequence[str]) -> list[Table]:
    """Return the tables of these accelerators and engines, newest version last."""
    tables = []
    for gpu in gpus:
        for path in sorted((root / FOLDERS[gpu]).glob("*/*/*/*.parquet")):
            family, engine, version = path.parts[-4:-1]
            if engine in engines or engine == "nccl":
                tables.append(
                    Table(
                        gpu=gpu,
                        family=family,
                        name=path.stem,
                        engine=engine,
                        version=version,
                        path=path,
                    )
                )
    return sorted(
        tables, key=lambda t: (t.gpu, t.family, t.name, t.engine, _version_numbers(t.version))
    )


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def read(
    table: Table, columns: Sequence[str] | None = None, *, optional: Sequence[str] = ()
) -> RawColumns:
    """Return a table's columns as arrays; a malformed file is named.

    ``optional`` columns are read beside ``columns`` where the table has them.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError(f"reading the tables needs pyarrow: {how_to_install('tables')}") from None
    import pyarrow as pa

    try:
        present = parquet.read_schema(table.path).names
        absent = sorted(set(columns or ()) - set(present))
        if absent:
            raise InputError(f"{table.label}: has no column {', '.join(absent)}")
        wanted = [*columns, *(name for name in optional if name in present)] if columns else None
        data = parquet.read_table(table.path, columns=wanted)
    except (OSError, pa.ArrowException) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{table.label}: cannot be read as parquet ({first})") from None
    return {name: data[name].to_numpy() for name in data.column_names}


def pick(rows: RawColumns, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> RawColumns:
    """Return some rows of a table, by mask or by position."""
    return {name: column[chosen] for name, column in rows.items()}


def latency(rows: RawColumns) -> NDArray[np.float64]:
    """Return the measured time of each row, which tables give in ms [s]."""
    return rows["latency"].astype(np.float64) * 1e-3


def kinds(rows: RawColumns, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the distinct values of the columns ``names``, sorted; of the last, most rows first."""
    count = Counter(zip(*(rows[name].tolist() for name in names), strict=True))
    return sorted(count, key=lambda kind: (*kind[:-1], -count[kind], kind[-1]))


def clean(
    columns: RawColumns, seconds: NDArray[np.float64], *, size: str, curve: Sequence[str]
) -> tuple[NDArray[np.intp], Counter[str]]:
    """Return the positions of usable rows and the count of others by reason.

    Rejected by name: ``nan``, ``non_positive``, ``duplicate`` (the fastest of equal rows stays),
    ``unit_shifted`` (50 times off the median of its five neighbours along ``size`` on the curve of
    rows that share all ``curve`` columns).
    """
    rejected: Counter[str] = Counter()
    index = np.arange(len(seconds))
    finite = np.isfinite(seconds)
    rejected["nan"] = int((~finite).sum())
    index = index[finite]
    positive = seconds[index] > 0
    rejected["non_positive"] = int((~positive).sum())
    index = index[positive]
    codes = np.stack([_codes(columns[name][index]) for name in (*curve, size)], axis=1)
    order = np.lexsort((seconds[index], *codes.T[::-1]))
    index, codes = index[order], codes[order]
    first = np.ones(len(index), dtype=bool)
    first[1:] = (codes[1:] != codes[:-1]).any(axis=1)
    rejected["duplicate"] = int((~first).sum())
    index, codes = index[first], codes[first]
    shifted = _unit_shifted(seconds[index], codes[:, :-1])
    rejected["unit_shifted"] = int(shifted.sum())
    return index[~shifted], +rejected


def _codes(values: NDArray[np.generic]) -> NDArray[np.intp]:
    return np.asarray(np.unique(values, return_inverse=True)[1]).reshape(-1)


def _unit_shifted(seconds: NDArray[np.float64], curves: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return rows far off the median of the five nearest rows of their curve."""
    curve = np.zeros(len(seconds), dtype=np.intp)
    if len(seconds) > 1 and curves.shape[1]:
        curve[1:] = np.cumsum((curves[1:] != curves[:-1]).any(axis=1))
    logs = np.log(seconds)
    shifted = np.zeros(len(seconds), dtype=bool)
    if not len(seconds):
        return shifted
    starts = [int(i) for i in np.flatnonzero(np.diff(curve, prepend=-1))]
    for start, stop in zip(starts, [*starts[1:], len(seconds)], strict=True):
        part = logs[start:stop]
        if len(part) < 3:
            continue
        padded = np.pad(part, 2, constant_values=np.nan)  # fewer neighbours at the ends
        middle = np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
        shifted[start:stop] = np.abs(part - middle) > np.log(UNIT_SHIFT)
    return shifted
