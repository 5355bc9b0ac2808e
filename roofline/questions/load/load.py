"""What a load is: requests per second, or shares of time by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError, Option

__all__ = ["MAX_BATCH", "Load"]

Array = NDArray[np.float64]
#: Sequences that engines run at most where memory would take more.
MAX_BATCH = 1024
#: The most that may be asked for.
LARGEST_BATCH = 4096


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
