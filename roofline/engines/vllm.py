"""vLLM: the acceptance on its pages, in its log and its JSON; the schedules that it takes (0.33.0).

Acceptance (vllm/v1/spec_decode/metrics.py, docs/features/speculative_decoding/
acceptance_metrics.md): lengths count the bonus token; per-position rates are survival.

Schedules (vllm/v1/spec_decode/dynamic/utils.py, vllm/config/speculative.py): rows [start, end, K]
in ``num_speculative_tokens_per_batch_size``, three whole numbers, both ends included; the first
starts at 1; no overlap; a gap and the tail carry the last K; K above ``num_speculative_tokens`` is
cut to it without a word; switched off, with a warning, where the data-parallel size is above 1.
Rows of five are an open proposal (RFC 48627, PR 48944 at 14b450ca5): a full grid of batch and
context ranges, contexts without gaps from 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.engines.counts import (
    DECIMAL,
    WHOLE,
    Decoded,
    Reading,
    count,
    from_counts,
    from_histogram,
    pooled_histogram,
)
from roofline.engines.prometheus import Page
from roofline.engines.writing import Band, EngineText, Launch, inside

__all__ = [
    "DRAFT_SERIES",
    "LOG_LINES",
    "PREEMPTIONS",
    "RESPONSE_KEY",
    "SERIES",
    "read_log",
    "read_page",
    "read_responses",
    "rows",
    "rows_with_contexts",
    "schedule",
]

#: How the series begin that count drafts.
DRAFT_SERIES = "vllm:spec_decode_"
#: Every pass after a request's first token observes one latency; the older name is the second.
LATENCIES = (
    "vllm:inter_token_latency_seconds_count",
    "vllm:time_per_output_token_seconds_count",
)
FIRST_TOKENS = "vllm:time_to_first_token_seconds_count"
GENERATED = ("vllm:generation_tokens_total", "vllm:generation_tokens")
#: Beginnings of all series that are read.
SERIES = (DRAFT_SERIES, *GENERATED, *LATENCIES, FIRST_TOKENS)
#: Counts requests that gave up their cache.
PREEMPTIONS = "vllm:num_preemptions_total"
#: Parts of the log lines that are read.
LOG_LINES = ("SpecDecoding metrics:",)
#: What a response with acceptance holds.
RESPONSE_KEY = "acceptance_histogram"
_LOG = re.compile(
    rf"Mean acceptance length: (?P<length>{DECIMAL}|nan),.*?"
    rf"Accepted: (?P<accepted>{WHOLE}) tokens, Drafted: (?P<drafted>{WHOLE}) tokens, "
    rf"Per-position acceptance rate: (?P<rates>(?:(?:{DECIMAL}|nan), *)*)"
    rf"Avg Draft acceptance rate(?:: (?P<percent>{DECIMAL})%)?"
)


def read_page(page: Page, model: str | None) -> Reading:
    """Read the counters; data-parallel engines of one model are added up."""
    page, name = page.for_model(model, DRAFT_SERIES)
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
    return f"{DRAFT_SERIES}{key}_total", f"{DRAFT_SERIES}{key}"


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
    return made.with_notice(
        notice(
            Code.LINES_LEFT_OUT,
            where=where,
            lines=len(intervals) - len(used),
            draft_length=depth,
        )
    )


def _contradictions(matches: Sequence[re.Match[str]], where: str) -> list[Notice]:
    """Say of how many lines the numbers disagree by more than their rounding, and of the first."""
    found = [told for match in matches if (told := _contradiction(match)) is not None]
    if not found:
        return []
    return [notice(found[0].code, where=where, lines=len(found), **found[0].values)]


def _contradiction(match: re.Match[str]) -> Notice | None:
    """Return what disagrees in one line: AL - 1 = sum of S_i, and accepted / drafted."""
    found = _interval(match)
    if found is None:
        return None
    _, drafted, accepted, rates = found
    by_position = 1 + sum(rates)
    if abs(float(match["length"]) - by_position) > 0.0051 + 0.0005 * len(rates):
        return notice(
            Code.LENGTH_CONTRADICTS_POSITIONS, length=match["length"], by_position=by_position
        )
    percent = match["percent"]
    if percent is not None and abs(float(percent) - 100 * accepted / drafted) > 0.051:
        return notice(
            Code.RATE_CONTRADICTS_COUNTS, percent=percent, accepted=accepted, drafted=drafted
        )
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
        raw = item[RESPONSE_KEY]
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


SCHEDULE_KEY = "num_speculative_tokens_per_batch_size"
RELEASE = "0.33.0"
#: What the graph mode of schedules was seen to cost, in vLLM's issues. Model Runner V1 replaces
#: whole CUDA graphs by piecewise ones as soon as a schedule is given.
GRAPH_MODE = {
    "runner": "Model Runner V1",
    # one stream "about 14 %" (59.6 to 50.0 tokens/s); 8 requests 232 to 24-157 tokens/s with rows
    # [1, 4, 2], [5, 512, 0], against a static 2
    "stream_issue": 49548,
    "stream_loss_percent": 14,
    "static_tokens_per_s": 232,
    "scheduled_tokens_per_s": (24, 157),
    # H100, 256 clients, contexts of 400, 900, 1,900 and 4,000: a schedule 31, 27, 22 and 20 % below
    # plain decoding, a static 3 at -21, -7, 0 and +10 %
    "clients_issue": 49986,
    "schedule_below_percent": (20, 31),
    "other_static": 3,
    "static_below_percent": 21,
    "static_above_percent": 10,
    # capture of the drafter's graphs fails
    "crash_issue": 48494,
    "crash_with": "MTP",
}


def rows(bands: Sequence[Band]) -> list[list[int]]:
    """Return the 3-item rows.

    >>> rows([Band(first=1, last=4, draft_lengths=(3,)), Band(first=5, last=9, draft_lengths=(0,))])
    [[1, 4, 3], [5, 9, 0]]
    """
    return [[band.first, band.last, band.draft_length] for band in bands]


def rows_with_contexts(
    bands: Sequence[Band], contexts: Sequence[tuple[int, int]]
) -> list[list[int]]:
    """Return the 5-item rows of the proposal; neighbouring contexts that never differ are one.

    >>> rows_with_contexts([Band(first=1, last=8, draft_lengths=(3, 3, 5))],
    ...                    [(1, 10), (11, 20), (21, 99)])
    [[1, 8, 1, 20, 3], [1, 8, 21, 99, 5]]
    """
    columns = list(zip(*(band.draft_lengths for band in bands), strict=True))
    starts = [i for i, column in enumerate(columns) if i == 0 or column != columns[i - 1]]
    ends = [*(start - 1 for start in starts[1:]), len(columns) - 1]
    return [
        [band.first, band.last, contexts[a][0], contexts[b][1], band.draft_lengths[a]]
        for band in bands
        for a, b in zip(starts, ends, strict=True)
    ]


def schedule(
    bands: Sequence[Band],
    *,
    launch: Launch,
    static: int,
    contexts: Sequence[tuple[int, int]] | None = None,
    data_parallel: int = 1,
) -> EngineText:
    """Return the ``--speculative-config``; without rows where one draft length is for all.

    ``static`` is the draft length to compare the schedule with. ``contexts`` are the ranges that
    the draft lengths of a band are for, where rows of five are wanted.
    """
    deepest = max(max(band.draft_lengths) for band in bands)
    last = bands[-1].last
    flags = launch.flags(deepest, running=last)
    if all(set(band.draft_lengths) == {deepest} for band in bands):
        return EngineText(text=flags)
    name = launch.engine.name
    notes = [
        notice(Code.LAST_BAND_KEPT, engine=name, above=last, item="row's K", prefills_count=True),
        notice(Code.SCHEDULE_GRAPH_MODE, engine=name, length_name="K", static=static, **GRAPH_MODE),
    ]
    table = rows(bands) if contexts is None else rows_with_contexts(bands, contexts)
    if contexts is not None:
        notes.append(_rejected(name))
    if data_parallel > 1:
        notes.append(
            notice(
                Code.SCHEDULE_OFF_IN_COPIES,
                engine=name,
                data_parallel=data_parallel,
                draft_length=deepest,
            )
        )
    text = inside(flags, f', "{SCHEDULE_KEY}": {json.dumps(table)}')
    return EngineText(text=text, notes=tuple(notes))


def _rejected(name: str) -> Notice:
    return notice(
        Code.FORM_REJECTED,
        engine=f"{name} {RELEASE}",
        form="rows of five items",
        proposal="PR 48944",
    )
