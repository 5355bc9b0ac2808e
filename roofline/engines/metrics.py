"""A running server's metrics: fetched, and the load that they show (batch, context, tokens/s)."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.base.errors import InputError, Option, did_you_mean
from roofline.base.notices import Code, Notice, notice
from roofline.engines import http, trtllm
from roofline.engines.http import Client
from roofline.engines.prometheus import Page, Sample, checked, is_page, parse_lines, printable
from roofline.engines.server_facts import (
    EngineNames,
    FetchedJson,
    JsonPage,
    Names,
    Read,
    Unread,
    serving_names,
)

__all__ = [
    "FASTEST",
    "LARGEST_BATCH",
    "MetricsRead",
    "batch_of",
    "context_of",
    "engine_of_page",
    "page_of_model",
    "rate_of",
    "read_documents",
    "read_metrics",
    "waiting_of",
]

LARGEST_BATCH, LONGEST_CONTEXT, FASTEST = 1e6, 2.0**27, 1e9
#: Two estimates of the context that differ by more than this factor are worth a notice.
FAR_APART = 2.0


def page_of_model(page: Page, model: str | None) -> tuple[Page, str | None]:
    """Return the lines of one model, and its name; ask which model where there are several.

    Lines that name no model are its lines too.
    """
    names = sorted({s.labels["model_name"] for s in page.samples if s.labels.get("model_name")})
    if model is None and len(names) > 1:
        raise InputError(
            f"serves {len(names)} models; say which, as {page.where}#{names[0]}: "
            + ", ".join(names),
            where=page.where,
        )
    wanted = model if model is not None else (names[0] if names else None)
    if model is not None and model not in names:
        raise InputError(f"no model '{model}': {did_you_mean(model, names)}", where=page.where)
    kept = [s for s in page.samples if s.labels.get("model_name", wanted) in (wanted, "")]
    return replace(page, samples=tuple(kept)), wanted


def by_copy(page: Page, series: Names, names: EngineNames) -> dict[tuple[str, ...], float]:
    """Return a gauge for each data-parallel copy; ranks that repeat a copy count once."""
    samples: dict[tuple[str, ...], Sample] = {}
    for name in series:
        for sample in page.of(name):
            copy = tuple(sample.labels.get(label, "") for label in names.rank)
            known = samples.get(copy)
            if known is None or _order(sample, names) < _order(known, names):
                samples[copy] = sample
        if samples:
            break
    return {copy: checked(sample, page.where) for copy, sample in samples.items()}


def _order(sample: Sample, names: EngineNames) -> tuple[str, ...]:
    return tuple(sample.labels.get(label, "") for label in names.copies)


def batch_of(pages: Sequence[Page], names: EngineNames) -> tuple[Read | Unread, int]:
    """Return the running sequences of one copy while it ran any, and how many copies there are."""
    running = [by_copy(page, names.running, names) for page in pages]
    copies = max(len(values) for values in running)
    if copies == 0:
        return Unread(reason=f"no {names.running[0]} on the page"), 1
    busy = [value for values in running for value in values.values() if value > 0]
    if not busy:
        return Unread(reason="nothing was running"), copies
    mean = sum(busy) / len(busy)
    if mean > LARGEST_BATCH:
        return Unread(reason=f"{names.running[0]} says {mean:.3g}, which cannot be"), copies
    per_copy = f" in each of {copies} copies" if copies > 1 else ""
    reads = f", mean of {len(pages)} reads" if len(pages) > 1 else ""
    return Read(value=mean, source=f"running requests{per_copy}{reads}"), copies


def waiting_of(page: Page, names: EngineNames) -> Read | Unread:
    """Return the requests that wait, of all copies."""
    values = by_copy(page, names.waiting, names)
    if not values:
        return Unread(reason=f"no {names.waiting[0]} on the page")
    return Read(value=sum(values.values()), source="waiting requests")


def context_of(
    pages: Sequence[Page], counted: Page, names: EngineNames
) -> tuple[Read | Unread, list[Notice]]:
    """Return the tokens in the cache of a running sequence, and what is doubtful about them.

    The first known of these is used: the summed lengths of running sequences over their number; the
    mean prompt and half the mean output of finished requests, which is the mean length while a
    request decodes; the cache in use over the running sequences.
    """
    by_lengths = _ratio(pages, names.context_sum, names, 1.0)
    by_requests = _of_finished(counted, names)
    by_cache = _ratio(pages, names.kv_usage, names, _capacity(pages[-1], names))
    estimates = [
        (by_lengths, "lengths of running sequences"),
        (by_requests, f"prompt + output/2 of finished requests ({counted.how})"),
        (by_cache, "KV cache in use / running requests"),
        (_of_finished(pages[-1], names), "prompt + output/2 of finished requests since its start"),
    ]
    known = [(value, source) for value, source in estimates if value is not None]
    if not known:
        return Unread(reason="neither finished requests nor the cache in use say it"), []
    value, source = known[0]
    if not 1 <= value <= LONGEST_CONTEXT:
        return Unread(reason=f"{source} gives {value:.3g} tokens, which cannot be"), []
    doubts = []
    if by_requests and by_cache and max(by_requests / by_cache, by_cache / by_requests) > FAR_APART:
        doubts.append(
            notice(
                Code.CONTEXTS_DISAGREE,
                where=pages[-1].where,
                by_requests=by_requests,
                by_cache=by_cache,
            )
        )
    return Read(value=round(value), source=source), doubts


def _of_finished(page: Page, names: EngineNames) -> float | None:
    """Return mean prompt + mean output / 2 of finished requests; None if uncounted."""
    series = names.finished
    sums = [page.total(*series.prompt_sum), page.total(*series.output_sum)]
    counts = [page.total(*series.prompt_count), page.total(*series.output_count)]
    if None in sums or not all(counts):
        return None
    prompt, output = (s / c for s, c in zip(sums, counts, strict=True) if s is not None and c)
    return prompt + output / 2


def _ratio(pages: Sequence[Page], series: Names, names: EngineNames, scale: float) -> float | None:
    """Return the sum of a gauge, times ``scale``, over the sum of running sequences."""
    total = sequences = 0.0
    for page in pages:
        running = by_copy(page, names.running, names)
        for copy, value in by_copy(page, series, names).items():
            if running.get(copy, 0.0) > 0:
                total, sequences = total + scale * value, sequences + running[copy]
    return total / sequences if total > 0 and sequences > 0 else None


def _capacity(page: Page, names: EngineNames) -> float:
    """Return the tokens that the cache of one copy holds, 0 where the page does not say."""
    capacity = names.capacity
    if capacity.series is None:
        values = [page.mean(name) for name in capacity.gauges]
    else:
        samples = page.of(capacity.series)
        values = [
            _number(samples[0].labels.get(label, "")) if samples else None
            for label in capacity.labels
        ]
    return math.prod((value or 0.0 for value in values), start=1.0)


def _number(text: str) -> float | None:
    return float(text) if text.isdecimal() and len(text) < 16 else None


def rate_of(
    pages: Sequence[Page], counted: Page, names: EngineNames, seconds: float | None
) -> Read | Unread:
    """Return the output tokens per second of all copies."""
    gauges = [sum(by_copy(page, names.throughput, names).values()) for page in pages]
    busy = [rate for rate in gauges if rate > 0]
    if busy:
        return _plausible(sum(busy) / len(busy), "gauge of its last log intervals")
    if seconds is None:
        return Unread(reason=f"one read has no rate; give {Option('interval')}")
    tokens = counted.total(*names.generated)
    if tokens is None:
        return Unread(reason=f"no {names.generated[0]} on the page")
    if tokens == 0:
        ended = "no request ended" if names.counted_at_end else "nothing was generated"
        return Unread(reason=f"{ended} between the reads")
    counting = ", counted when requests end" if names.counted_at_end else ""
    return _plausible(tokens / seconds, f"counter over {seconds:.3g} s{counting}")


def _plausible(rate: float, source: str) -> Read | Unread:
    if rate > FASTEST:
        return Unread(reason=f"{source} gives {rate:.3g} tokens/s, which cannot be")
    return Read(value=rate, source=source)


#: Where servers have their metrics.
METRICS_PATHS = ("/metrics", "/prometheus/metrics")


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsRead:
    """A page of series, TensorRT-LLM's list of iterations, both or (SGLang) neither."""

    at: float  # on the monotonic clock [s]
    engine: str
    page: Page | None = None
    iterations: tuple[dict[str, Any], ...] = ()


def read_metrics(client: Client) -> MetricsRead:
    """Read the metrics, from the first place that has some."""
    refusal: InputError | None = None
    iterations: list[dict[str, Any]] | None = None
    for path in METRICS_PATHS:
        try:
            text = client.get_text(path)
        except http.StatusError as error:
            if error.status in (401, 403):
                raise
            refusal = refusal or error
            continue
        engine = engine_of_page(text)
        if engine is not None:
            page = parse_lines(text, client.where, serving_names().engines[engine].series)
            at = time.monotonic()
            return MetricsRead(at=at, engine=engine, page=page, iterations=tuple(iterations or ()))
        if iterations is None:
            iterations = trtllm.iterations_of(text)
        if iterations is None:
            refusal = refusal or InputError(_without_series(text), where=f"{client.where}{path}")
    if iterations is not None:
        return MetricsRead(at=time.monotonic(), engine="trtllm", iterations=tuple(iterations))
    return _without_metrics(client, refusal)


def engine_of_page(text: str) -> str | None:
    """Return the engine whose series a Prometheus page holds."""
    if not is_page(text):
        return None
    lines = text.splitlines()
    for engine, names in serving_names().engines.items():
        if any(line.startswith(names.prefix) for line in lines):
            return engine
    return None


def _without_series(text: str) -> str:
    """Return what came instead of metrics."""
    if is_page(text):
        return "a Prometheus page without series of an engine known here"
    start = printable(text.strip()[:40])
    return (
        f"neither a Prometheus page nor a list of iterations ('{start}')" if start else "is empty"
    )


def _without_metrics(client: Client, refusal: InputError | None) -> MetricsRead:
    """Return that the server is SGLang without its metrics; refuse any other.

    llama.cpp counts drafts there alone, so without them nothing is known of its drafts.
    """
    reason = "" if refusal is None else f"{refusal.text}; "
    for engine, names in serving_names().engines.items():
        if not names.metrics_flag or not _describes_itself(client, names):
            continue
        if engine == "sglang":
            return MetricsRead(at=time.monotonic(), engine=engine)
        raise InputError(f"{reason}start {names.name}'s server with {names.metrics_flag}")
    every = serving_names().engines.values()
    known = ", ".join(names.name for names in every)
    flags = ", ".join(f"{n.name} with {n.metrics_flag}" for n in every if n.metrics_flag)
    raise InputError(f"{reason}expected the address of a server of {known} ({flags})")


def _describes_itself(client: Client, names: EngineNames) -> bool:
    """Return whether the server has the page by which this engine describes itself."""
    for path in names.documents[0].paths:
        with contextlib.suppress(InputError):
            data = client.get_json(path)
            if isinstance(data, dict) and names.own_key in data:
                return True
    return False


def read_documents(client: Client, names: EngineNames) -> Sequence[FetchedJson]:
    """Return the pages that describe the server, or why they could not be read."""
    return [_document(client, page) for page in names.documents]


def _without_address(error: InputError, client: Client) -> str:
    """Return the text of an error about a page, without the server's address."""
    if error.where is None:
        return error.text
    return f"{error.where.removeprefix(client.where)}: {error.problem}"


def _document(client: Client, page: JsonPage) -> FetchedJson:
    """Return a JSON page from the first path that has it, else why the first has not."""
    refusal = ""
    for path in page.paths:
        bare = path.partition("?")[0]
        try:
            return FetchedJson(names=page, path=bare, data=client.get_json(path))
        except InputError as error:
            refusal = refusal or _without_address(error, client)
    hint = f" (needs {page.optional})" if page.optional else ""
    return FetchedJson(names=page, path=page.paths[0], refusal=refusal + hint)
