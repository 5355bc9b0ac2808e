"""Requests by their lengths: one kind, or the groups that a trace is summed up in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roofline.base.errors import InputError, Option
from roofline.base.values import one_size

__all__ = ["LONGEST", "Requests", "check_alone", "check_in_load", "lengths_of", "requests_of"]

LONGEST = 2**30
#: Groups that the requests of a trace are summed up in, by the length of their prompts.
GROUPS = 16
#: The least chunk that an engine takes.
LEAST_CHUNK = 16


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


def lengths_of(
    *,
    input_tokens: str | None = None,
    output_tokens: str | None = None,
    prefix_tokens: str | None = None,
    prefill_chunk: str | None = None,
    trace: str | None = None,
) -> Requests | None:
    """Return the requests that options describe, if they do."""
    given = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    chunk = _one("prefill_chunk", prefill_chunk, least=LEAST_CHUNK)
    if trace is not None:
        for field, value in (given | {"prefix_tokens": prefix_tokens}).items():
            if value is not None:
                raise InputError(
                    f"stands in the trace; leave it out beside {Option('trace')}", field=field
                )
        from roofline.questions.request.traces import read_trace

        return read_trace(trace, chunk=chunk)
    if all(value is None for value in given.values()):
        for field, value in (("prefix_tokens", prefix_tokens), ("prefill_chunk", prefill_chunk)):
            if value is not None:
                raise InputError(
                    f"describes a request; give {Option('input_tokens')} and "
                    f"{Option('output_tokens')}, or {Option('trace')}",
                    field=field,
                )
        return None
    if None in given.values():
        raise InputError(f"{Option('input_tokens')}, {Option('output_tokens')}: expected both")
    prompt, answer = (_one(field, value, least=1) or 0 for field, value in given.items())
    prefix = _one("prefix_tokens", prefix_tokens, least=0) or 0
    if prefix >= prompt:
        raise InputError(
            f"expected fewer than the {prompt} of {Option('input_tokens')}: the last token of a "
            "prompt is computed always",
            field="prefix_tokens",
            value=prefix,
        )
    return requests_of((prompt,), (answer,), (prefix,), chunk=chunk)


def check_in_load(options: Mapping[str, object]) -> None:
    """Refuse options of requests that a load does not take."""
    for field in ("trace", "prefix_tokens"):
        if options[field] is not None:
            raise InputError("is for requests at a batch; leave it out beside a load", field=field)


def check_alone(options: Mapping[str, object]) -> None:
    """Refuse options that say nothing of whole requests."""
    for field, value in options.items():
        if value is not None:
            how = "follows from the lengths of requests" if field == "context" else "is not for"
            what = "; leave it out" if field == "context" else " whole requests; leave it out"
            raise InputError(f"{how}{what}", field=field)


def _one(field: str, text: str | None, *, least: int) -> int | None:
    if text is None or (least == 0 and text.strip() == "0"):
        return None if text is None else 0
    size = one_size(field, text, "expected one number, since a request has one")
    if not least <= size <= LONGEST:
        raise InputError(f"expected at least {least}", field=field, value=size)
    return size
