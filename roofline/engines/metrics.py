"""A running server's metrics: fetched, and the load that they show (batch, context, tokens/s)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.base.errors import InputError, Option, did_you_mean
from roofline.base.notices import Code, Notice, notice
from roofline.engines import http, trtllm
from roofline.engines.http import Client
from roofline.engines.prometheus import Page, Sample, checked, clean, is_page, parse_lines
from roofline.engines.server_facts import (
    FetchedJson,
    Names,
    Read,
    ServerNames,
    Unread,
    serving_names,
)

__all__ = [
    "MetricsRead",
    "batch_of",
    "context_of",
    "of_model",
    "rate_of",
    "read_documents",
    "read_metrics",
    "waiting_of",
]

LARGEST_BATCH, LONGEST_CONTEXT, FASTEST = 1e6, 2.0**27, 1e9
#: Two ways to the context that differ by more than this are worth a word.
FAR_APART = 2.0


def of_model(page: Page, model: str | None) -> tuple[Page, str | None]:
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


def by_copy(page: Page, series: Names, names: ServerNames) -> dict[tuple[str, ...], float]:
    """Return a gauge for each data-parallel copy; ranks that repeat a copy count once."""
    found: dict[tuple[str, ...], Sample] = {}
    for name in series:
        for sample in page.of(name):
            copy = tuple(sample.labels.get(label, "") for label in names.rank)
            kept = found.get(copy)
            if kept is None or _order(sample, names) < _order(kept, names):
                found[copy] = sample
        if found:
            break
    return {copy: checked(sample, page.where) for copy, sample in found.items()}


def _order(sample: Sample, names: ServerNames) -> tuple[str, ...]:
    return tuple(sample.labels.get(label, "") for label in names.copies)


def batch_of(pages: Sequence[Page], names: ServerNames) -> tuple[Read | Unread, int]:
    """Return the running sequences of one copy while it ran any, and how many copies there are."""
    seen = [by_copy(page, names.running, names) for page in pages]
    copies = max(len(values) for values in seen)
    if copies == 0:
        return Unread(reason=f"no {names.running[0]} on the page"), 1
    busy = [value for values in seen for value in values.values() if value > 0]
    if not busy:
        return Unread(reason="nothing was running"), copies
    mean = sum(busy) / len(busy)
    if mean > LARGEST_BATCH:
        return Unread(reason=f"{names.running[0]} says {mean:.3g}, which cannot be"), copies
    each = f" in each of {copies} copies" if copies > 1 else ""
    reads = f", mean of {len(pages)} reads" if len(pages) > 1 else ""
    return Read(value=mean, source=f"running requests{each}{reads}"), copies


def waiting_of(page: Page, names: ServerNames) -> Read | Unread:
    """Return the requests that wait, of all copies."""
    values = by_copy(page, names.waiting, names)
    if not values:
        return Unread(reason=f"no {names.waiting[0]} on the page")
    return Read(value=sum(values.values()), source="waiting requests")


def context_of(
    pages: Sequence[Page], counted: Page, names: ServerNames
) -> tuple[Read | Unread, list[Notice]]:
    """Return the tokens in the cache of a running sequence, and what is doubtful about them.

    In this order: the summed lengths of running sequences over their number; of finished requests
    the mean prompt and half the mean output (where a request is on average while it decodes); the
    cache in use over the running sequences.
    """
    summed = _ratio(pages, names.context_sum, names, 1.0)
    finished = _of_finished(counted, names)
    held = _ratio(pages, names.kv_usage, names, _capacity(pages[-1], names))
    ways = [
        (summed, "lengths of running sequences"),
        (finished, f"prompt + output/2 of finished requests ({counted.how})"),
        (held, "KV cache in use / running requests"),
        (_of_finished(pages[-1], names), "prompt + output/2 of finished requests since its start"),
    ]
    known = [(value, source) for value, source in ways if value is not None]
    if not known:
        return Unread(reason="neither finished requests nor the cache in use say it"), []
    value, source = known[0]
    if not 1 <= value <= LONGEST_CONTEXT:
        return Unread(reason=f"{source} gives {value:.3g} tokens, which cannot be"), []
    doubts = []
    if finished and held and max(finished / held, held / finished) > FAR_APART:
        doubts.append(
            notice(
                Code.CONTEXTS_DISAGREE, where=pages[-1].where, by_requests=finished, by_cache=held
            )
        )
    return Read(value=round(value), source=source), doubts


def _of_finished(page: Page, names: ServerNames) -> float | None:
    own = names.finished
    sums = [page.total(*own.prompt_sum), page.total(*own.output_sum)]
    counts = [page.total(*own.prompt_count), page.total(*own.output_count)]
    if None in sums or not all(counts):
        return None
    prompt, output = (s / c for s, c in zip(sums, counts, strict=True) if s is not None and c)
    return prompt + output / 2


def _ratio(pages: Sequence[Page], series: Names, names: ServerNames, scale: float) -> float | None:
    """Return the sum of a gauge, times ``scale``, over the sum of running sequences."""
    top = below = 0.0
    for page in pages:
        running = by_copy(page, names.running, names)
        for copy, value in by_copy(page, series, names).items():
            if running.get(copy, 0.0) > 0:
                top, below = top + scale * value, below + running[copy]
    return top / below if top > 0 and below > 0 else None


def _capacity(page: Page, names: ServerNames) -> float:
    """Return the tokens that the cache of one copy holds, 0 where the page does not say."""
    own = names.capacity
    if own.series is None:
        values = [page.mean(name) for name in own.gauges]
    else:
        found = page.of(own.series)
        values = [
            _number(found[0].labels.get(label, "")) if found else None for label in own.labels
        ]
    product = 1.0
    for value in values:
        product *= value or 0.0
    return product


def _number(text: str) -> float | None:
    return float(text) if text.isdecimal() and len(text) < 16 else None


def rate_of(
    pages: Sequence[Page], counted: Page, names: ServerNames, seconds: float | None
) -> Read | Unread:
    """Return the output tokens per second of all copies."""
    shown = [by_copy(page, names.throughput, names) for page in pages]
    busy = [sum(values.values()) for values in shown if sum(values.values()) > 0]
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


METRICS = ("/metrics", "/prometheus/metrics")


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
    for path in METRICS:
        try:
            text = client.get_text(path)
        except http.StatusError as error:
            if error.status in (401, 403):
                raise
            refusal = refusal or error
            continue
        engine = _engine_of(text)
        if engine is not None:
            page = parse_lines(text, client.where, serving_names().engines[engine].series)
            at = time.monotonic()
            return MetricsRead(at=at, engine=engine, page=page, iterations=tuple(iterations or ()))
        if iterations is None:
            iterations = trtllm.iterations_of(text)
        if iterations is None:
            refusal = refusal or InputError(_what(text), where=f"{client.where}{path}")
    if iterations is not None:
        return MetricsRead(at=time.monotonic(), engine="trtllm", iterations=tuple(iterations))
    return _without_metrics(client, refusal)


def _engine_of(text: str) -> str | None:
    """Return the engine whose series a Prometheus page holds."""
    if not is_page(text):
        return None
    lines = text.splitlines()
    for engine, names in serving_names().engines.items():
        if any(line.startswith(names.prefix) for line in lines):
            return engine
    return None


def _what(text: str) -> str:
    """Return what came instead of metrics."""
    if is_page(text):
        return "a Prometheus page without series of an engine known here"
    start = clean(text.strip()[:40])
    return (
        f"neither a Prometheus page nor a list of iterations ('{start}')" if start else "is empty"
    )


def _without_metrics(client: Client, refusal: InputError | None) -> MetricsRead:
    """Return what a server without metrics is: SGLang without --enable-metrics, else refused."""
    for path in serving_names().engines["sglang"].documents[0].paths:
        try:
            data = client.get_json(path)
        except InputError:
            continue
        if isinstance(data, dict) and "internal_states" in data:
            return MetricsRead(at=time.monotonic(), engine="sglang")
    known = ", ".join(names.name for names in serving_names().engines.values())
    said = "" if refusal is None else f"{refusal.text}; "
    raise InputError(
        f"{said}expected the address of a server of {known} (SGLang with --enable-metrics)"
    )


def read_documents(client: Client, names: ServerNames) -> Sequence[FetchedJson]:
    """Return the pages that describe the server, or why they could not be read."""
    return [_document(client, page) for page in names.documents]


def _at(client: Client, error: InputError) -> str:
    """Return what is wrong with a page of a server, the server itself left out."""
    if error.where is None:
        return error.text
    return f"{error.where.removeprefix(client.where)}: {error.problem}"


def _document(client: Client, page: Any) -> FetchedJson:
    refusal = ""
    for path in page.paths:
        bare = path.partition("?")[0]
        try:
            return FetchedJson(names=page, path=bare, data=client.get_json(path))
        except InputError as error:
            refusal = refusal or _at(client, error)
    hint = f" (needs {page.optional})" if page.optional else ""
    return FetchedJson(names=page, path=page.paths[0], refusal=refusal + hint)
