"""What came out of a timing: typed, or read from a file, and checked against what was asked."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofline.base.errors import FaultsError, InputError, Option
from roofline.base.files import read_at_most
from roofline.base.units import listed
from roofline.questions.tune.file import Timed

__all__ = ["COLUMNS", "check_timed", "read_results", "typed_result"]

MOST_BYTES = 8_000_000
#: The columns of a CSV of timings; those in brackets may be left out.
COLUMNS = "draft_length,tokens_per_s,tokens_per_step[,batch]"
_NEEDED = ("draft_length", "tokens_per_s")
_KNOWN = (*_NEEDED, "tokens_per_step", "batch", "repeats", "spread")
_WHOLE = ("draft_length", "batch", "repeats")


def read_results(path: Path, *, batch: int | None) -> tuple[Timed, ...]:
    """Return the timings in a file; ``batch`` is that of rows which state none."""
    try:
        text = read_at_most(path, MOST_BYTES, "a result").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path.name}: is no text; expected {_expected()}") from None
    lines = [line for line in text.splitlines() if line.strip()]
    header = [name.strip() for name in (lines[0].split(",") if lines else ())]
    if not set(_NEEDED) <= set(header):
        raise InputError(f"{path.name}: holds no timing that is known; expected {_expected()}")
    unknown = [name for name in header if name not in _KNOWN]
    if unknown:
        raise InputError(f"{path.name}:1: unknown column '{unknown[0]}'; expected {COLUMNS}")
    if len(lines) == 1:
        raise InputError(f"{path.name}: has no row below its header")
    rows = csv.DictReader(lines, skipinitialspace=True)
    return tuple(
        _row(row, where=f"{path.name}:{number}", batch=batch, source=path.name)
        for number, row in enumerate(rows, 2)
    )


def _expected() -> str:
    return f"a CSV with the columns {COLUMNS}"


def _row(row: Mapping[Any, Any], *, where: str, batch: int | None, source: str) -> Timed:
    if None in row or None in row.values():
        raise InputError(f"{where}: expected as many values as the header has names")
    values: dict[str, Any] = {"source": source}
    for name, text in row.items():
        if text.strip():
            values[name] = _number(text.strip(), name, where)
    for name in _NEEDED:
        if name not in values:
            raise InputError(f"{where}: {name} is missing")
    return _timed(values if batch is None else {"batch": batch} | values, where)


def _number(text: str, name: str, where: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {name}: expected a number, got {text!r}") from None
    if not math.isfinite(value) or (name in _WHOLE and value != int(value)):
        kind = "a whole number" if name in _WHOLE else "a number"
        raise InputError(f"{where}: {name}: expected {kind}, got {text!r}")
    return int(value) if name in _WHOLE else value


def typed_result(**values: Any) -> Timed:
    """Return the timing that options describe; what is None was not given."""
    for name in _NEEDED:
        if values.get(name) is None:
            raise InputError("is missing; a timing needs it", field=name)
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError("expected a finite number", field=name, value=value)
    return _timed({name: value for name, value in values.items() if value is not None}, "typed")


def _timed(values: Mapping[str, Any], where: str) -> Timed:
    """Validate one timing as the file's schema does; the fault is one line."""
    from pydantic import ValidationError

    if "batch" not in values:
        raise InputError(f"{where}: has no batch; add it, or give {Option('batch')}")
    try:
        return Timed.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"][0].lower() + first["msg"][1:]
        raise FaultsError([f"{where}: {place}: {message}, got {first['input']!r}"]) from None


def check_timed(
    timed: Timed, *, draft_lengths: tuple[int, ...], batches: tuple[int, ...], where: str
) -> None:
    """Refuse a timing of what the question does not ask about, or that contradicts itself."""
    length, tokens = timed.draft_length, timed.tokens_per_step
    if length not in draft_lengths:
        raise InputError(
            f"{where}: draft length {length} is not asked about; the file's question has "
            f"{listed([str(d) for d in draft_lengths])}"
        )
    if timed.batch not in batches:
        known = ", ".join(map(str, batches))
        raise InputError(
            f"{where}: batch {timed.batch} is not asked about; the file's question has {known}"
        )
    if tokens is not None and tokens > 1 + length:
        raise InputError(
            f"{where}: {tokens:g} tokens per step at draft length {length}: no pass emits more "
            f"than {1 + length}"
        )
    if timed.survival and len(timed.survival) != length:
        raise InputError(
            f"{where}: {len(timed.survival)} shares of accepted drafts at draft length {length}"
        )
