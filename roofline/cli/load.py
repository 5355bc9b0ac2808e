"""Read the options that describe a load."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from roofline.base.errors import InputError
from roofline.cli.values import PER_SECOND, amount, one_size, shares

if TYPE_CHECKING:
    from roofline.questions.load.load import Load

__all__ = ["load_of"]

LARGEST_HISTOGRAM = 2**20  # [B]


def load_of(
    rps: str | None,
    input_tokens: str | None,
    output_tokens: str | None,
    histogram: str | None,
    max_batch: int | None,
    prefill_chunk: str | None,
    context: str | None,
) -> Load | None:
    """Return the load that the options describe, if they do."""
    if rps is None and histogram is None:
        options = {
            "--input-tokens": input_tokens,
            "--output-tokens": output_tokens,
            "--max-batch": max_batch,
            "--prefill-chunk": prefill_chunk,
        }
        for flag, value in options.items():
            if value is not None:
                raise InputError(f"{flag}: describes a load; give --rps or --batches-histogram")
        return None
    from roofline.questions.load.load import MAX_BATCH, Load

    if max_batch is not None and rps is None:
        raise InputError("--max-batch: a histogram has its own largest batch")
    return Load(
        rps=None if rps is None else amount("--rps", rps, PER_SECOND, "requests/s, such as 4"),
        input_tokens=_one("--input-tokens", input_tokens),
        output_tokens=_one("--output-tokens", output_tokens),
        histogram=None if histogram is None else _histogram(histogram),
        context=_one("--context", context),
        max_batch=MAX_BATCH if max_batch is None else max_batch,
        prefill_chunk=_one("--prefill-chunk", prefill_chunk),
    )


def _one(flag: str, text: str | None) -> int | None:
    return (
        None if text is None else one_size(flag, text, "expected one number, since a load has one")
    )


def _histogram(text: str) -> dict[int, float]:
    """Read ``8:0.5,32:0.5``, or a CSV file of batch,share."""
    flag = "--batches-histogram"
    if not text.lower().endswith(".csv"):
        return shares(flag, text)
    from roofline.base.files import read_at_most

    try:
        content = read_at_most(Path(text), LARGEST_HISTOGRAM, "a histogram").decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(content)) if row]
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{flag} {text}: expected CSV text") from None
    if rows and rows[0][0].strip() == "batch":
        rows = rows[1:]
    if not rows or any(len(row) != 2 for row in rows):
        raise InputError(f"{flag} {text}: expected rows of batch,share such as 8,0.5")
    return shares(flag, ",".join(f"{batch.strip()}:{share.strip()}" for batch, share in rows))
