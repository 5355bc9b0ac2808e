"""The file of measurements: one CSV row for each case and round, written as soon as it is known."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from roofline.base.errors import InputError, Option
from roofline.base.files import check_output, read_at_most
from roofline.calibrate.measure.backend import Status
from roofline.calibrate.measure.cases import Case
from roofline.specs.formats import DType

__all__ = ["Row", "RowFile", "read_rows", "row_of"]

MAX_BYTES = 50_000_000
MOST = 1e24  # of any number [FLOP, B, s]
LEAST_SECONDS = 1e-12
SHAPE = re.compile(r"(?:[a-z_]+=[0-9]{1,15}(?: (?=[a-z])|$))+")
FACTS = "facts"  # kind of the first row: who measured, with what


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One case in one round. Times in s; ``spread`` and ``error`` are shares."""

    round: int
    kind: str
    op: str
    dtype: str
    kernel: str
    shape: str
    flops: float = 0.0
    bytes: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0  # median of the samples
    spread: float = 0.0  # interquartile range over the median
    samples: int = 0
    outliers: int = 0  # samples left out of the median
    clock: str = ""  # what was read: cpu, wall, events, graph
    cold: str = ""  # why the operands are not in a cache
    error: float = 0.0  # largest deviation from fp64, over the largest value
    probe: float = 0.0  # the reference kernel just before
    waited: float = 0.0  # time spent waiting for a core, over the time measured
    status: str = Status.OK  # another word in a file counts as a reason to leave the row out
    note: str = ""

    @property
    def key(self) -> str:
        """Return the name of the case."""
        return f"{self.kind}/{self.op}/{self.dtype}/{self.kernel}/{self.shape}"

    @property
    def sizes(self) -> dict[str, int]:
        """Return the shape's numbers by name."""
        return {name: int(value) for name, value in (p.split("=") for p in self.shape.split())}


COLUMNS = [field.name for field in fields(Row)]
_TYPES = {
    field.name: {"int": int, "float": float}.get(str(field.type), str) for field in fields(Row)
}


def row_of(case: Case, *, round: int, **measured: Any) -> Row:
    """Return the row of a case with its measured values."""
    return Row(
        round=round,
        kind=case.kind,
        op=case.op,
        dtype=case.dtype,
        kernel=case.kernel,
        shape=case.shape_text,
        flops=case.flops,
        bytes=case.bytes,
        rows=case.rows,
        **measured,
    )


class RowFile:
    """A CSV file that grows by whole rows, each on disk before the next is measured."""

    def __init__(self, path: Path, facts: Mapping[str, Any], *, resume: bool) -> None:
        check_output(path)
        self._path = path
        if path.exists() and not resume:
            raise InputError(
                f"exists; give {Option('resume')} to continue it, or another name",
                field="output",
                value=path,
            )
        self.rows: list[Row] = []
        if path.exists():
            self.facts, self.rows = read_rows(path)
            _check_same_machine(path, self.facts, facts)
            self._cut_torn_line()
        else:
            self.facts = dict(facts)
            self._write(",".join(COLUMNS) + "\r\n")
            note = json.dumps(self.facts)
            self._append(Row(round=0, kind=FACTS, op="", dtype="", kernel="", shape="", note=note))

    def add(self, row: Row) -> None:
        """Append one row and see it to the disk."""
        self._append(row)
        self.rows.append(row)

    def _append(self, row: Row) -> None:
        line = io.StringIO()
        csv.DictWriter(line, COLUMNS).writerow(
            {n: f"{v:.6g}" if isinstance(v, float) else v for n, v in asdict(row).items()}
        )
        self._write(line.getvalue())

    def _write(self, text: str) -> None:
        try:
            with self._path.open("a", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(
                f"cannot be written ({error.strerror})", field="output", value=self._path
            ) from None

    def _cut_torn_line(self) -> None:
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            self._path.write_bytes(whole)


def _check_same_machine(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for name in ("device", "library", "threads", "model"):
        if old.get(name) != new.get(name):
            raise InputError(
                f"was measured with {name} {old.get(name)!r}, this is {new.get(name)!r}; give "
                "another file",
                field="resume",
                value=path,
            )


def read_rows(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Return the facts and the rows of a file; a last line without its end is left out."""
    try:
        text = read_at_most(path, MAX_BYTES, "a CSV of measurements").decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is no CSV of measurements (not UTF-8)") from None
    whole = text[: text.rfind("\n") + 1]
    try:
        reader = csv.DictReader(io.StringIO(whole, newline=""))
        if reader.fieldnames != COLUMNS:
            raise InputError(
                f"{path}: is no CSV of measurements; expected the columns of 'roofline calibrate "
                f"measure', got {','.join(reader.fieldnames or [])[:60]!r}"
            )
        rows = [_parsed(path, number, raw) for number, raw in enumerate(reader, start=2)]
    except csv.Error as error:
        raise InputError(f"{path}: is no CSV of measurements ({error})") from None
    if not rows or rows[0].kind != FACTS:
        raise InputError(f"{path}: line 2: expected the facts of the machine; measure it anew")
    return _facts(path, rows[0].note), rows[1:]


def _facts(path: Path, text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise InputError(f"{path}: line 2: the facts of the machine are no JSON object")
    return facts


def _parsed(path: Path, number: int, raw: Mapping[str, str]) -> Row:
    values: dict[str, Any] = {}
    for name in COLUMNS:
        try:
            values[name] = _TYPES[name](raw[name])
        except (ValueError, TypeError):
            raise InputError(
                f"{path}: line {number}: {name}: expected a number, got {raw[name]!r}"
            ) from None
    row = Row(**values)
    if row.kind == FACTS:
        return row
    if not all(0 <= v < MOST for v in values.values() if isinstance(v, float)):
        raise InputError(f"{path}: line {number}: expected numbers from 0 to {MOST:g}")
    if row.status == Status.OK and row.seconds < LEAST_SECONDS:
        raise InputError(f"{path}: line {number}: seconds: expected a positive number")
    if row.status == Status.OK and row.kind != "launch" and row.bytes < 1:
        raise InputError(f"{path}: line {number}: bytes: expected what the kernel moves")
    if not SHAPE.fullmatch(row.shape):
        raise InputError(f"{path}: line {number}: shape: expected sizes such as 'm=1 n=64 k=64'")
    if row.dtype.removesuffix("-wo") not in list(DType):
        raise InputError(f"{path}: line {number}: dtype: '{row.dtype[:40]}' is no format")
    return row
