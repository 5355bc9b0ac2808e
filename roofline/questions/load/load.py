"""What a load is: requests per second, or shares of time by batch."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError, Option
from roofline.base.files import read_at_most
from roofline.base.values import PER_SECOND, amount, one_size, shares

__all__ = ["MAX_BATCH", "Load", "check_beside", "load_of"]

Array = NDArray[np.float64]
#: Sequences that engines run at most where memory would take more.
MAX_BATCH = 1024
#: The most that may be asked for.
LARGEST_BATCH = 4096
LARGEST_HISTOGRAM = 2**20  # [B]


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Requests per second of given lengths, or shares of time by running sequences."""

    rps: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    histogram: Mapping[int, float] | None = None
    context: int | None = None  # None follows from the lengths
    max_batch: int = MAX_BATCH
    prefill_chunk: int | None = None  # None is the engine's

    def __post_init__(self) -> None:
        """Refuse loads that nobody has."""
        if (self.rps is None) == (self.histogram is None):
            raise InputError(
                f"{Option('rps')}, {Option('batches_histogram')}: expected one of them"
            )
        if self.rps is not None and not 0 < self.rps < 1e6:
            raise InputError(
                "expected more than 0 requests per second, below 1e6",
                field="rps",
                value=f"{self.rps:g}",
            )
        lengths = Option("input_tokens"), Option("output_tokens")
        if (self.input_tokens is None) != (self.output_tokens is None):
            raise InputError(f"{lengths[0]}, {lengths[1]}: expected both")
        if self.rps is not None and self.input_tokens is None:
            raise InputError(
                f"give {lengths[0]} and {lengths[1]} of a request as well", field="rps"
            )
        for field, size, least in (
            ("input_tokens", self.input_tokens, 1),
            ("output_tokens", self.output_tokens, 1),
            ("prefill_chunk", self.prefill_chunk, 16),
        ):
            if size is not None and not least <= size <= 2**30:
                raise InputError(f"expected at least {least}", field=field, value=size)
        if self.histogram and max(self.histogram) > LARGEST_BATCH:
            raise InputError(f"expected batches up to {LARGEST_BATCH}", field="batches_histogram")
        if not 1 <= self.max_batch <= LARGEST_BATCH:
            raise InputError(
                f"expected 1 to {LARGEST_BATCH}", field="max_batch", value=self.max_batch
            )
        if self.context is not None and self.input_tokens is not None:
            raise InputError(f"follows from {lengths[0]} and {lengths[1]}", field="context")

    @property
    def length(self) -> int:
        """Mean tokens in the cache of a sequence at any time: input + output / 2."""
        if self.input_tokens is None or self.output_tokens is None:
            return self.context or 4096
        return max(round(self.input_tokens + self.output_tokens / 2), 1)

    @property
    def share(self) -> Array:
        """The histogram as shares of time from 0 sequences on."""
        histogram = self.histogram or {}
        share = np.zeros(max(histogram) + 1)
        share[list(histogram)] = list(histogram.values())
        return np.asarray(share / share.sum())


def load_of(
    *,
    rps: str | None = None,
    input_tokens: str | None = None,
    output_tokens: str | None = None,
    batches_histogram: str | None = None,
    max_batch: int | None = None,
    prefill_chunk: str | None = None,
    context: str | None = None,
) -> Load | None:
    """Return the load that options describe, if they do."""
    if rps is None and batches_histogram is None:
        options = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "max_batch": max_batch,
            "prefill_chunk": prefill_chunk,
        }
        for field, value in options.items():
            if value is not None:
                raise InputError(
                    f"describes a load; give {Option('rps')} or {Option('batches_histogram')}",
                    field=field,
                )
        return None
    if max_batch is not None and rps is None:
        raise InputError("a histogram has its own largest batch", field="max_batch")
    return Load(
        rps=None if rps is None else amount("rps", rps, PER_SECOND, "requests/s, such as 4"),
        input_tokens=_one("input_tokens", input_tokens),
        output_tokens=_one("output_tokens", output_tokens),
        histogram=None if batches_histogram is None else _histogram(batches_histogram),
        context=_one("context", context),
        max_batch=MAX_BATCH if max_batch is None else max_batch,
        prefill_chunk=_one("prefill_chunk", prefill_chunk),
    )


def check_beside(load: Load, options: Mapping[str, object]) -> None:
    """Refuse options that belong to one batch and are given beside a load."""
    beside = Option("batches_histogram" if load.rps is None else "rps")
    for field, value in options.items():
        if value is not None:
            raise InputError(f"belongs to one batch; leave it out beside {beside}", field=field)


def _one(field: str, text: str | None) -> int | None:
    expected = "expected one number, since a load has one"
    return None if text is None else one_size(field, text, expected)


def _histogram(text: str) -> dict[int, float]:
    """Read ``8:0.5,32:0.5``, or a CSV file of batch,share."""
    field = "batches_histogram"
    if not text.lower().endswith(".csv"):
        return shares(field, text)
    try:
        content = read_at_most(Path(text), LARGEST_HISTOGRAM, "a histogram").decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(content)) if row]
    except (UnicodeDecodeError, csv.Error):
        raise InputError("expected CSV text", field=field, value=text) from None
    if rows and rows[0][0].strip() == "batch":
        rows = rows[1:]
    if not rows or any(len(row) != 2 for row in rows):
        raise InputError("expected rows of batch,share such as 8,0.5", field=field, value=text)
    return shares(field, ",".join(f"{batch.strip()}:{share.strip()}" for batch, share in rows))
