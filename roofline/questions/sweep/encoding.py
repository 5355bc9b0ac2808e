"""Rows as bytes: CSV, JSON lines and Parquet, part by part, and the parts as one file."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import numpy as np

from roofline.advice.columns import Column, ColumnKind
from roofline.base.errors import InputError
from roofline.base.files import cell as cell_of
from roofline.base.resources import how_to_install
from roofline.questions.sweep.frames import Frame, Values

__all__ = [
    "BYTES_PER_ROW",
    "SECONDS_PER_ROW",
    "SweepFormat",
    "check_format",
    "encode",
    "heading",
    "join",
    "missing_mask",
]


class SweepFormat(StrEnum):
    """How rows are written."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


#: About how long a row is [B]; for the estimate of a large grid.
BYTES_PER_ROW = {SweepFormat.CSV: 420, SweepFormat.JSONL: 960, SweepFormat.PARQUET: 70}
#: And how long one core prices and writes it [s].
SECONDS_PER_ROW = {SweepFormat.CSV: 15e-6, SweepFormat.JSONL: 20e-6, SweepFormat.PARQUET: 2e-6}
NOTHING = -1  # in a column of whole numbers


def check_format(form: SweepFormat) -> None:
    """Refuse a format whose library is missing."""
    if form is not SweepFormat.PARQUET:
        return
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError(
            f"needs pyarrow ({how_to_install('parquet')}), or write .csv or .jsonl",
            field="format",
            value="parquet",
        )


def encode(frames: Sequence[Frame], columns: Sequence[Column], form: SweepFormat) -> bytes:
    """Return rows as one part of a file, without what stands once at its head."""
    match form:
        case SweepFormat.CSV:
            return _csv(frames, columns)
        case SweepFormat.JSONL:
            return _jsonl(frames, columns)
        case SweepFormat.PARQUET:
            return _parquet(frames, columns)


def heading(columns: Sequence[Column], form: SweepFormat) -> bytes:
    """Return what stands once at the head of a text file."""
    names = ",".join(column.key for column in columns)
    return f"{names}\n".encode() if form is SweepFormat.CSV else b""


def join(
    parts: Iterable[Path],
    file: IO[bytes],
    columns: Sequence[Column],
    form: SweepFormat,
    provenance: dict[str, Any],
) -> None:
    """Write the parts, in order, as one file; one part is held at a time."""
    if form is SweepFormat.PARQUET:
        _join_parquet(parts, file, columns, provenance)
        return
    file.write(heading(columns, form))
    for part in parts:
        with part.open("rb") as source:
            shutil.copyfileobj(source, file, 2**20)


def _cells(
    frame: Frame, column: Column, missing: object, text: Callable[[str], object] = str
) -> Iterable[object]:
    """Return a column's values as Python objects; ``text`` makes cells of words."""
    if column.key not in frame.columns:
        shared = frame.shared.get(column.key)
        same = missing if shared is None else _plain(shared)
        return itertools.repeat(text(same) if isinstance(same, str) else same, frame.rows)
    values = frame.columns[column.key]
    if column.key in frame.words:
        words = [missing if word is None else text(str(word)) for word in frame.words[column.key]]
        return [words[i] for i in values.tolist()]
    listed: list[object] = values.tolist()
    mask = missing_mask(values)
    if mask is not None:
        for i in np.flatnonzero(mask):
            listed[i] = missing
    return listed


def _plain(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def missing_mask(values: Values) -> Values | None:
    """Return the mask of missing values, None where all are there."""
    if values.dtype == np.float64:
        mask = np.isnan(values)
    elif values.dtype == np.int16:
        mask = values == NOTHING
    else:
        return None
    return mask if mask.any() else None


def _csv(frames: Sequence[Frame], columns: Sequence[Column]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for frame in frames:
        cells = [_cells(frame, column, "", cell_of) for column in columns]
        for i, column in enumerate(columns):
            if column.kind is ColumnKind.BOOLEAN:
                cells[i] = [
                    ("true" if cell else "false") if cell != "" else "" for cell in cells[i]
                ]
        writer.writerows(zip(*cells, strict=True))
    return text.getvalue().encode()


def _jsonl(frames: Sequence[Frame], columns: Sequence[Column]) -> bytes:
    names = [column.key for column in columns]
    lines: list[str] = []
    for frame in frames:
        rows = zip(*(_cells(frame, column, None) for column in columns), strict=True)
        lines += [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _schema(columns: Sequence[Column], provenance: dict[str, Any] | None = None) -> Any:
    import pyarrow as pa

    types = {
        ColumnKind.TEXT: pa.dictionary(pa.int32(), pa.string()),
        ColumnKind.INTEGER: pa.int64(),
        ColumnKind.NUMBER: pa.float64(),
        ColumnKind.BOOLEAN: pa.bool_(),
    }
    fields = [
        pa.field(column.key, types[column.kind], metadata={"meaning": column.meaning})
        for column in columns
    ]
    about = None if provenance is None else {"roofline": json.dumps(provenance)}
    return pa.schema(fields, metadata=about)


def _table(frame: Frame, columns: Sequence[Column], schema: Any) -> Any:
    import pyarrow as pa

    arrays = []
    for column, field in zip(columns, schema, strict=True):
        values = frame.columns.get(column.key)
        if values is None:
            arrays.append(_repeated(frame.shared.get(column.key), frame.rows, column, field.type))
        elif column.key in frame.words:
            words = frame.words[column.key]
            known = [word for word in words if word is not None]
            place = [known.index(word) if word is not None else NOTHING for word in words]
            codes = np.asarray(place, dtype=np.int32)[values]
            indices = pa.array(codes, mask=codes == NOTHING)
            texts = pa.array([str(word) for word in known], pa.string())
            arrays.append(pa.DictionaryArray.from_arrays(indices, texts))
        else:
            whole = values.astype(np.int64) if values.dtype.kind == "i" else values
            arrays.append(pa.array(whole, type=field.type, mask=missing_mask(values)))
    return pa.Table.from_arrays(arrays, schema=schema)


def _repeated(value: object, rows: int, column: Column, kind: Any) -> Any:
    import pyarrow as pa

    if value is None:
        return pa.nulls(rows, kind)
    if column.kind is ColumnKind.TEXT:
        codes = pa.array(np.zeros(rows, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(codes, pa.array([str(_plain(value))], pa.string()))
    return pa.array(np.full(rows, value), type=kind)


def _options(columns: Sequence[Column]) -> dict[str, Any]:
    """Return how Parquet is packed: words and small numbers by dictionary, figures as they are."""
    coded = [
        column.key for column in columns if column.kind in (ColumnKind.TEXT, ColumnKind.INTEGER)
    ]
    return {"compression": "zstd", "compression_level": 1, "use_dictionary": coded}


def _parquet(frames: Sequence[Frame], columns: Sequence[Column]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(columns)
    table = pa.concat_tables([_table(frame, columns, schema) for frame in frames])
    sink = pa.BufferOutputStream()
    pq.write_table(table.unify_dictionaries(), sink, **_options(columns))
    return bytes(sink.getvalue())


def _join_parquet(
    parts: Iterable[Path], file: IO[bytes], columns: Sequence[Column], provenance: dict[str, Any]
) -> None:
    import pyarrow.parquet as pq

    schema = _schema(columns, provenance)
    texts = [column.key for column in columns if column.kind is ColumnKind.TEXT]
    with pq.ParquetWriter(file, schema, **_options(columns)) as writer:
        for part in parts:
            table = pq.read_table(part, read_dictionary=texts, memory_map=True)
            writer.write_table(table.cast(schema))
