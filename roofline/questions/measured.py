"""Measured steps in a CSV file; a diagnosis compares them and a calibration fits to them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from roofline.base.errors import InputError
from roofline.base.files import read_at_most
from roofline.base.numbers import LONGEST_DRAFT

__all__ = ["MeasuredStep", "read_steps"]

MAX_BYTES = 10_000_000
LARGEST_SIZE = 2**40  # batch or context, as in a question
COLUMNS = ("batch", "context", "draft_length", "step_ms")


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredStep:
    """The time of one decode step, or of one round of drafting and verifying [s]."""

    batch: int
    context: int
    draft_length: int
    seconds: float


def read_steps(path: Path) -> list[MeasuredStep]:
    """Return the steps in a file; refuse it with the line that is wrong and why."""
    try:
        text = read_at_most(path, MAX_BYTES, "a CSV of steps").decode("utf-8")
        lines = list(csv.DictReader(text.splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path.name}: cannot be read ({error})") from None
    missing = [name for name in COLUMNS if not lines or name not in lines[0]]
    if missing:
        raise InputError(
            f"{path.name}: expected the columns {','.join(COLUMNS)} and at least a row"
        )
    return [_step(line, number, path.name) for number, line in enumerate(lines, start=2)]


def _step(line: dict[str, str], number: int, name: str) -> MeasuredStep:
    try:
        batch, context, length = (int(line[column] or "") for column in COLUMNS[:3])
        seconds = float(line["step_ms"] or "") / 1e3
    except ValueError:
        raise InputError(
            f"{name}: line {number}: expected three whole numbers and a time"
        ) from None
    sizes = 1 <= batch <= LARGEST_SIZE and 1 <= context <= LARGEST_SIZE
    if not sizes or not 0 <= length <= LONGEST_DRAFT or not 1e-6 <= seconds < 100:
        raise InputError(
            f"{name}: line {number}: expected batch and context of at least 1, a draft length of 0 "
            f"to {LONGEST_DRAFT} and a step of 0.001 to 100,000 ms"
        )
    return MeasuredStep(batch=batch, context=context, draft_length=length, seconds=seconds)
