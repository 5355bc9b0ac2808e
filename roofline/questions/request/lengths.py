"""Requests by their lengths: one kind, or the groups that a trace is summed up in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["LONGEST", "Requests", "requests_of"]

LONGEST = 2**30
#: Groups that the requests of a trace are summed up in, by the length of their prompts.
GROUPS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Requests:
    """Kinds of requests with their shares; of a trace, groups with mean lengths."""

    shares: tuple[float, ...]
    input_tokens: tuple[float, ...]
    output_tokens: tuple[float, ...]
    prefix_tokens: tuple[float, ...]  # of the prompt, found in the prefix cache
    chunk: int | None = None  # prompt tokens of one pass at most; None is the engine's
    source: str | None = None  # the trace
    count: int = 1  # requests of the trace
    rate: float | None = None  # its requests per second, where it has times

    @property
    def context(self) -> int:
        """Mean tokens in the cache of a sequence that decodes: input + output / 2.

        A request is there the longer, the longer its answer is.
        """
        outputs = np.array(self.output_tokens) * np.array(self.shares)
        held = np.array(self.input_tokens) + np.array(self.output_tokens) / 2
        return max(round(float((outputs * held).sum() / outputs.sum())), 1)

    @property
    def longest(self) -> int:
        """Tokens of the longest group at its end."""
        return round(max(map(sum, zip(self.input_tokens, self.output_tokens, strict=True))))

    @property
    def mean_input(self) -> float:
        """Mean tokens of a prompt."""
        return float(np.average(self.input_tokens, weights=self.shares))

    @property
    def mean_output(self) -> float:
        """Mean tokens of an answer."""
        return float(np.average(self.output_tokens, weights=self.shares))

    @property
    def mean_prefix(self) -> float:
        """Mean tokens of a prompt that are found in the prefix cache."""
        return float(np.average(self.prefix_tokens, weights=self.shares))


def requests_of(
    inputs: Sequence[int],
    outputs: Sequence[int],
    prefixes: Sequence[int],
    *,
    chunk: int | None = None,
    source: str | None = None,
    rate: float | None = None,
) -> Requests:
    """Sum requests up in groups of like prompts, as many in each; equal ones stay one group.

    >>> both = requests_of((100, 300), (10, 30), (0, 0))
    >>> both.input_tokens, both.shares, both.context  # (10 x 105 + 30 x 315) / 40
    ((100.0, 300.0), (0.5, 0.5), 262)
    """
    table = np.array([inputs, outputs, prefixes], dtype=np.float64)
    kinds, counts = np.unique(table, axis=1, return_counts=True)
    if kinds.shape[1] > GROUPS:
        order = np.argsort(table[0] - table[2], kind="stable")
        parts = np.array_split(order, GROUPS)
        kinds = np.stack([table[:, part].mean(axis=1) for part in parts], axis=1)
        counts = np.array([len(part) for part in parts])
    groups = [tuple(float(value) for value in row) for row in kinds]
    return Requests(
        shares=tuple(float(share) for share in counts / counts.sum()),
        input_tokens=groups[0],
        output_tokens=groups[1],
        prefix_tokens=groups[2],
        chunk=chunk,
        source=source,
        count=table.shape[1],
        rate=rate,
    )
