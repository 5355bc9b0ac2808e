"""vLLM: its metric page, log lines and per-request JSON (names of 0.33.0).

Read in vllm/v1/spec_decode/metrics.py and docs/features/speculative_decoding/
acceptance_metrics.md. Lengths count the bonus token; per-position rates are survival.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.base.errors import InputError
from roofline.engines.page import Page
from roofline.engines.reading import (
    DECIMAL,
    WHOLE,
    Decoded,
    Reading,
    count,
    from_counts,
    from_histogram,
    pooled_histogram,
)

__all__ = ["LOG_MARK", "read_log", "read_page", "read_responses"]

PREFIX = "vllm:spec_decode_"
#: Every pass after a request's first token observes one latency; the older name is the second.
LATENCIES = (
    "vllm:inter_token_latency_seconds_count",
    "vllm:time_per_output_token_seconds_count",
)
FIRST_TOKENS = "vllm:time_to_first_token_seconds_count"
GENERATED = ("vllm:generation_tokens_total", "vllm:generation_tokens")
LOG_MARK = "SpecDecoding metrics:"
_LOG = re.compile(
    rf"Mean acceptance length: (?P<length>{DECIMAL}|nan),.*?"
    rf"Accepted: (?P<accepted>{WHOLE}) tokens, Drafted: (?P<drafted>{WHOLE}) tokens, "
    rf"Per-position acceptance rate: (?P<rates>(?:(?:{DECIMAL}|nan), *)*)"
    rf"Avg Draft acceptance rate(?:: (?P<percent>{DECIMAL})%)?"
)


def read_page(page: Page, model: str | None) -> Reading:
    """Read the counters; data-parallel engines of one model are added up."""
    page, name = page.for_model(model)
    counters = {key: page.needed(*_names(key)) for key in ("num_drafts", "num_accepted_tokens")}
    per_position = page.by_label("position", *_names("num_accepted_tokens_per_pos"))
    drafted = page.total(*_names("num_draft_tokens"))
    if drafted is None:
        drafted = counters["num_drafts"] * len(per_position)
    return from_counts(
        engine="vllm",
        how=page.how,
        where=page.where,
        model=name,
        drafts=counters["num_drafts"],
        drafted=drafted,
        accepted=counters["num_accepted_tokens"],
        per_position=per_position,
        decoded=_decoded(page),
    )


def _decoded(page: Page) -> Decoded | None:
    """Return the tokens after the first of each request, and the passes that emitted them.

    vllm/v1/metrics/stats.py: a request's first output observes its time to first token, each later
    one an inter-token latency, however many tokens it holds.
    """
    generated = page.first_total(*GENERATED)
    first, passes = page.total(FIRST_TOKENS), page.first_total(*LATENCIES)
    if generated is None or first is None or not passes:
        return None
    return Decoded(tokens=generated - first, passes=passes)


def _names(key: str) -> tuple[str, str]:
    """Return the name on a page, and the one that vLLM's own client gives."""
    return f"{PREFIX}{key}_total", f"{PREFIX}{key}"


def read_log(lines: Sequence[str], where: str) -> Reading:
    """Pool the log's intervals, each weighted by its passes: accepted / (length - 1)."""
    matches = [match for line in lines if (match := _LOG.search(line)) is not None]
    intervals = [found for match in matches if (found := _interval(match)) is not None]
    if not intervals:
        raise InputError(
            "no 'SpecDecoding metrics' line in which anything was drafted", where=where
        )
    depth = len(intervals[-1][3])
    used = [interval for interval in intervals if len(interval[3]) == depth]
    drafts = sum(interval[0] for interval in used)
    made = from_counts(
        engine="vllm",
        how=f"{len(used)} log lines" if len(used) > 1 else "1 log line",
        where=where,
        drafts=drafts,
        drafted=max(sum(i[1] for i in used), sum(i[2] for i in used)),
        accepted=sum(i[2] for i in used),
        per_position=[sum(i[0] * i[3][p] for i in used) for p in range(depth)],
        doubts=_contradictions(matches, where),
    )
    if len(used) == len(intervals):
        return made
    warning = (
        f"{where}: {len(intervals) - len(used)} lines have another draft length than the last "
        f"({depth}) and are left out"
    )
    return _warned(made, warning)


def _warned(reading: Reading, warning: str) -> Reading:
    return replace(reading, warnings=(*reading.warnings, warning))


def _contradictions(matches: Sequence[re.Match[str]], where: str) -> list[str]:
    """Say of how many lines the numbers disagree by more than their rounding, and of the first."""
    found = [said for match in matches if (said := _contradiction(match)) is not None]
    if not found:
        return []
    lines = (
        "a line contradicts itself"
        if len(found) == 1
        else f"{len(found)} lines contradict themselves"
    )
    return [f"{where}: {lines} ({found[0]}), so do not rely on it"]


def _contradiction(match: re.Match[str]) -> str | None:
    """Return what disagrees in one line: AL - 1 = sum of S_i, and accepted / drafted."""
    found = _interval(match)
    if found is None:
        return None
    _, drafted, accepted, rates = found
    by_position = 1 + sum(rates)
    if abs(float(match["length"]) - by_position) > 0.0051 + 0.0005 * len(rates):
        return f"mean length {match['length']}, but {by_position:.2f} by position"
    percent = match["percent"]
    if percent is not None and abs(float(percent) - 100 * accepted / drafted) > 0.051:
        return f"{percent} % accepted, but {accepted:g} of {drafted:g} tokens"
    return None


def _interval(match: re.Match[str]) -> tuple[float, float, float, list[float]] | None:
    """Return (passes, drafted, accepted, survival) of one line, None where nothing was drafted."""
    if "nan" in match["length"] or "nan" in match["rates"]:
        return None
    rates = [float(item) for item in match["rates"].split(",") if item.strip()]
    length, accepted = float(match["length"]), float(match["accepted"])
    drafted = float(match["drafted"])
    if drafted == 0 or not rates:
        return None
    passes = accepted / (length - 1) if accepted and length > 1 else drafted / len(rates)
    return passes, drafted, accepted, rates


def read_responses(found: Sequence[dict[str, Any]], where: str) -> Reading:
    """Pool ``metrics.speculative_decoding`` of one or more responses; survival is exact."""
    histograms, drafted = [], 0.0
    for item in found:
        raw = item["acceptance_histogram"]
        if not isinstance(raw, list):
            raise InputError(f"acceptance_histogram: expected a list, got {raw!r:.40}", where=where)
        counts = [count(value, "acceptance_histogram", where) for value in raw]
        histograms.append(counts)
        full = sum(counts) * (len(counts) - 1)
        drafted += count(item.get("num_draft_tokens", full), "num_draft_tokens", where)
    return from_histogram(
        pooled_histogram(histograms),
        engine="vllm",
        how=_responses(len(found)),
        where=where,
        drafted=drafted,
    )


def _responses(number: int) -> str:
    return "1 response" if number == 1 else f"{number} responses"
