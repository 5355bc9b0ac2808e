"""What a load is: requests per second, or shares of time by batch."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError, Option
from roofline.base.files import read_at_most
from roofline.base.values import (
    MILLISECONDS,
    PER_SECOND,
    PERCENT,
    SECONDS,
    amount,
    one_size,
    shares,
)
from roofline.questions.load.latency import Limits

__all__ = ["LARGEST_BATCH", "MAX_BATCH", "Load", "check_beside", "histogram_of", "load_of"]

Array = NDArray[np.float64]
#: Sequences that engines run at most where memory would take more.
MAX_BATCH = 1024
#: The most that may be asked for.
LARGEST_BATCH = 4096
LARGEST_HISTOGRAM = 2**20  # [B]
LONGEST_THOUGHT = 86400.0  # [s]
DEFAULT_PERCENTILE, LEAST_PERCENTILE, LARGEST_PERCENTILE = 95.0, 1.0, 99.9


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
    concurrency: int | None = None  # clients, each with one request at a time
    think_time: float = 0.0  # between an answer and the next request [s]
    slo: Limits | None = None  # what requests shall meet
    context_mix: Mapping[int, float] | None = None  # shares of the sequences of a batch

    @property
    def arrives(self) -> bool:
        """Whether requests come, rather than a batch being given."""
        return self.histogram is None

    @property
    def most_running(self) -> int:
        """The most sequences that are worth pricing."""
        if self.histogram is not None:
            return max(self.histogram)
        if self.concurrency is None or self.slo is not None:
            return self.max_batch
        return min(self.max_batch, self.concurrency)

    def at_context(self, context: int) -> Load:
        """Return the load at a context, unless its lengths or its mix say one."""
        if self.input_tokens is not None or self.context_mix is not None:
            return self
        return replace(self, context=context)

    @property
    def clients(self) -> int:
        """Clients of a closed loop; 0 without one."""
        return self.concurrency or 0

    def __post_init__(self) -> None:
        """Refuse loads that nobody has."""
        self._check_mix()
        loads = (self.rps, self.histogram, self.concurrency)
        given = sum(load is not None for load in loads)
        if given > 1 or (given == 0 and self.slo is None):
            names = ("rps", "batches_histogram", "concurrency")
            listed = ", ".join(str(Option(name)) for name in names)
            raise InputError(f"{listed}: expected one of them")
        if self.concurrency is not None and not 1 <= self.concurrency <= LARGEST_BATCH:
            raise InputError(
                f"expected 1 to {LARGEST_BATCH} clients",
                field="concurrency",
                value=self.concurrency,
            )
        if not 0 <= self.think_time <= LONGEST_THOUGHT:
            raise InputError(
                f"expected 0 to {LONGEST_THOUGHT:g} seconds",
                field="think_time",
                value=f"{self.think_time:g}",
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
        if self.arrives and self.input_tokens is None:
            limits = {"slo_ttft": "ttft", "slo_tpot": "tpot", "slo_e2e": "e2e"}
            of = {name: getattr(self.slo, key, math.inf) for name, key in limits.items()}
            field = "rps" if self.rps is not None else "concurrency"
            if self.rps is None and self.concurrency is None:
                field = min(of, key=lambda name: of[name] == math.inf)
            raise InputError(
                f"give {lengths[0]} and {lengths[1]} of a request as well", field=field
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

    def _check_mix(self) -> None:
        lengths = Option("input_tokens"), Option("output_tokens")
        if self.context_mix is not None and (
            self.histogram is None or self.context is not None or self.input_tokens is not None
        ):
            raise InputError(
                f"belongs to {Option('batches_histogram')}, in place of {Option('context')}; the "
                f"contexts of requests follow from {lengths[0]} and {lengths[1]}",
                field="context_mix",
            )

    @property
    def length(self) -> int:
        """Mean tokens in the cache of a sequence at any time: input + output / 2."""
        if self.context_mix is not None:
            whole = sum(self.context_mix.values())
            return round(sum(size * share for size, share in self.context_mix.items()) / whole)
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
    concurrency: int | None = None,
    think_time: str | None = None,
    slo_ttft: str | None = None,
    slo_tpot: str | None = None,
    slo_e2e: str | None = None,
    slo_percentile: str | None = None,
    context_mix: str | None = None,
) -> Load | None:
    """Return the load that options describe, if they do."""
    slo = _limits(ttft=slo_ttft, tpot=slo_tpot, e2e=slo_e2e, percentile=slo_percentile)
    lengths = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    options = lengths | {
        "max_batch": max_batch,
        "prefill_chunk": prefill_chunk,
        "think_time": think_time,
        "context_mix": context_mix,
    }
    loads = (rps, batches_histogram, concurrency)
    if all(each is None for each in loads):
        of_requests = slo_ttft or slo_e2e or slo_percentile
        if slo is None or not (of_requests or all(lengths.values())):
            for field, value in options.items():
                if value is not None:
                    raise InputError(
                        f"describes a load; give {Option('rps')} or {Option('batches_histogram')}",
                        field=field,
                    )
            return None
    if max_batch is not None and batches_histogram is not None:
        raise InputError("a histogram has its own largest batch", field="max_batch")
    if slo is not None and batches_histogram is not None:
        if slo_tpot is not None:
            slo = None  # refused beside it
        else:
            raise InputError(
                f"limits of requests need a load of requests; give {Option('rps')}",
                field="slo_ttft" if slo_ttft else "slo_e2e" if slo_e2e else "slo_percentile",
            )
    if think_time is not None and concurrency is None:
        raise InputError(f"belongs to {Option('concurrency')}", field="think_time")
    return Load(
        rps=None if rps is None else amount("rps", rps, PER_SECOND, "requests/s, such as 4"),
        input_tokens=_one("input_tokens", input_tokens),
        output_tokens=_one("output_tokens", output_tokens),
        histogram=None if batches_histogram is None else _histogram(batches_histogram),
        context=_one("context", context),
        max_batch=MAX_BATCH if max_batch is None else max_batch,
        prefill_chunk=_one("prefill_chunk", prefill_chunk),
        concurrency=concurrency,
        think_time=0.0
        if think_time is None
        else amount("think_time", think_time, SECONDS, "a time such as 5 or 5s"),
        slo=slo,
        context_mix=None if context_mix is None else shares("context_mix", context_mix),
    )


def _limits(
    *, ttft: str | None, tpot: str | None, e2e: str | None, percentile: str | None
) -> Limits | None:
    """Return the limits that requests shall meet, if any is given.

    >>> _limits(ttft="1s", tpot="25", e2e=None, percentile="90")
    Limits(ttft=1.0, tpot=0.025, e2e=inf, share=0.9)
    """
    given = {"slo_ttft": ttft, "slo_tpot": tpot, "slo_e2e": e2e}
    if all(each is None for each in given.values()):
        if percentile is not None:
            raise InputError(
                f"of which limit? give {Option('slo_ttft')}, {Option('slo_tpot')} or "
                f"{Option('slo_e2e')}",
                field="slo_percentile",
            )
        return None
    limits = {}
    for field, text in given.items():
        if text is None:
            continue
        units, example = (MILLISECONDS, "ms, such as 500 or 500ms")
        value = amount(field, text, units, example) / 1e3
        if not 0 < value < float("inf"):
            raise InputError("expected a finite number above 0", field=field, value=text)
        limits[field.removeprefix("slo_")] = value
    share = DEFAULT_PERCENTILE
    if percentile is not None:
        share = amount("slo_percentile", percentile.removeprefix("p"), PERCENT, "a percentile")
    if not LEAST_PERCENTILE <= share <= LARGEST_PERCENTILE:
        raise InputError(
            f"expected a percentile from {LEAST_PERCENTILE:g} to {LARGEST_PERCENTILE:g}, such as "
            "95: 100 promises what no queue can, 0 promises nothing",
            field="slo_percentile",
            value=percentile,
        )
    return Limits(**limits, share=share / 100)


def check_beside(load: Load, options: Mapping[str, object]) -> None:
    """Refuse options that belong to one batch and are given beside a load."""
    given = {"rps": load.rps, "concurrency": load.concurrency, "batches_histogram": load.histogram}
    names = [name for name, value in given.items() if value is not None]
    beside = Option(names[0] if names else "input_tokens")
    for field, value in options.items():
        if value is not None:
            raise InputError(f"belongs to one batch; leave it out beside {beside}", field=field)


def _one(field: str, text: str | None) -> int | None:
    expected = "expected one number, since a load has one"
    return None if text is None else one_size(field, text, expected)


def _histogram(text: str) -> dict[int, float]:
    return histogram_of("batches_histogram", text)


def histogram_of(field: str, text: str) -> dict[int, float]:
    """Read ``8:0.5,32:0.5``, or a CSV file of batch,share."""
    if not text.lower().endswith(".csv"):
        return shares(field, text)
    try:
        content = read_at_most(Path(text), LARGEST_HISTOGRAM, "a histogram").decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(content)) if row]
    except (UnicodeDecodeError, csv.Error):
        raise InputError("expected CSV text", field=field, value=text) from None
    if rows and rows[0][0].strip() in ("batch", "tokens"):
        rows = rows[1:]
    if not rows or any(len(row) != 2 for row in rows):
        raise InputError("expected rows of batch,share such as 8,0.5", field=field, value=text)
    return shares(field, ",".join(f"{batch.strip()}:{share.strip()}" for batch, share in rows))
