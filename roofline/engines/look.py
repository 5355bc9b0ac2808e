"""One look at a server's metrics: which engine it is, and the lines or iterations that matter."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roofline.base.errors import InputError
from roofline.engines import http
from roofline.engines.client import Client
from roofline.engines.facts import Document
from roofline.engines.page import Page, clean, is_page, parse_lines
from roofline.engines.serving_names import ServerNames, serving_names

__all__ = ["Look", "documents", "look"]

METRICS = ("/metrics", "/prometheus/metrics")


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """A page of series, TensorRT-LLM's list of iterations, both or (SGLang) neither."""

    at: float  # on the monotonic clock [s]
    engine: str
    page: Page | None = None
    iterations: tuple[dict[str, Any], ...] = ()


def look(client: Client) -> Look:
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
            return Look(at=at, engine=engine, page=page, iterations=tuple(iterations or ()))
        if iterations is None:
            iterations = _iterations(text)
        if iterations is None:
            refusal = refusal or InputError(f"{client.where}{path}: {_what(text)}")
    if iterations is not None:
        return Look(at=time.monotonic(), engine="trtllm", iterations=tuple(iterations))
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


def _iterations(text: str) -> list[dict[str, Any]] | None:
    """Return TensorRT-LLM's list of iterations, None where a text is none."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else None


def _without_metrics(client: Client, refusal: InputError | None) -> Look:
    """Return a look at a server that only describes itself: SGLang without --enable-metrics."""
    for path in serving_names().engines["sglang"].documents[0].paths:
        try:
            data = client.get_json(path)
        except InputError:
            continue
        if isinstance(data, dict) and "internal_states" in data:
            return Look(at=time.monotonic(), engine="sglang")
    known = ", ".join(names.name for names in serving_names().engines.values())
    raise InputError(
        f"{refusal}; expected the address of a server of {known} (SGLang with --enable-metrics)"
    )


def documents(client: Client, names: ServerNames) -> Sequence[Document]:
    """Return the pages that describe the server, or why they could not be read."""
    return [_document(client, page) for page in names.documents]


def _document(client: Client, page: Any) -> Document:
    refusal = ""
    for path in page.paths:
        bare = path.partition("?")[0]
        try:
            return Document(names=page, path=bare, data=client.get_json(path))
        except InputError as error:
            refusal = refusal or str(error).removeprefix(client.where)
    hint = f" (needs {page.optional})" if page.optional else ""
    return Document(names=page, path=page.paths[0], refusal=refusal + hint)
