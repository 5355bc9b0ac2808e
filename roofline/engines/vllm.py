"""vLLM: the acceptance on its pages, in its reports and JSON; the schedules that it takes (0.33.0).

Acceptance (vllm/v1/spec_decode/metrics.py, docs/features/speculative_decoding/
acceptance_metrics.md): lengths count the bonus token; per-position rates are survival.
``vllm bench serve`` (vllm/benchmarks/serve.py) prints the growth of the same counters, rates in per
cent; its JSON has the rate in per cent and the positions as shares.

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
from itertools import pairwise
from typing import Any

from roofline.base.errors import InputError
from roofline.base.notices import Code, notice
from roofline.engines.counts import (
    DecodeTotals,
    Reading,
    from_counts,
    from_histogram,
    from_positions,
    pooled_histogram,
)
from roofline.engines.fields import (
    DECIMAL,
    WHOLE,
    checked_number,
    incomplete_log,
    mappings_with,
)
from roofline.engines.prometheus import Page
from roofline.engines.vllm_log import COUNTED, Interval, pooled, worked_out
from roofline.engines.writing import Band, EngineText, Launch, insert_before_brace

__all__ = [
    "BENCH_KEY",
    "BENCH_MARKS",
    "DRAFT_SERIES",
    "PREEMPTIONS",
    "RESPONSE_KEY",
    "SERIES",
    "completion_tokens",
    "read_bench",
    "read_bench_json",
    "read_page",
    "read_responses",
    "schedule",
    "schedule_rows",
    "schedule_rows_with_contexts",
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
#: The series that counts requests that lost their cache.
PREEMPTIONS = "vllm:num_preemptions_total"
#: The key of a response that holds its acceptance.
RESPONSE_KEY = "acceptance_histogram"
#: The key of a response that holds what it took in and gave out.
USAGE_KEY = "usage"
#: What marks a report of ``vllm bench serve``; its fields, and its positions, in per cent.
BENCH_MARKS = ("Acceptance length:", "Per-position acceptance (%):")
_BENCH = {
    "Acceptance length": re.compile(rf"^Acceptance length:\s+({DECIMAL})", re.MULTILINE),
    "Drafts": re.compile(rf"^Drafts:\s+({WHOLE})\b", re.MULTILINE),
    "Draft tokens": re.compile(rf"^Draft tokens:\s+({WHOLE})\b", re.MULTILINE),
    "Accepted tokens": re.compile(rf"^Accepted tokens:\s+({WHOLE})\b", re.MULTILINE),
}
_BENCH_RATE = re.compile(rf"^Acceptance rate \(%\):\s+({DECIMAL})", re.MULTILINE)
_BENCH_POSITION = re.compile(rf"^\s*Position ({WHOLE}):\s+({DECIMAL})", re.MULTILINE)
_BENCH_REQUESTS = re.compile(rf"^Successful requests:\s+({WHOLE})\b", re.MULTILINE)
_BENCH_GENERATED = re.compile(rf"^Total generated tokens:\s+({WHOLE})\b", re.MULTILINE)
#: The key of its JSON that holds the acceptance.
BENCH_KEY = "spec_decode_acceptance_length"


def read_page(page: Page, model: str | None) -> Reading:
    """Read the counters; data-parallel engines of one model are added up."""
    page, name = page.for_model(model, DRAFT_SERIES)
    counters = {key: page.needed(*_names(key)) for key in ("num_drafts", "num_accepted_tokens")}
    per_position = page.by_label("position", *_names("num_accepted_tokens_per_pos"))
    drafted = page.total(*_names("num_draft_tokens"))
    if drafted is None:
        drafted = counters["num_drafts"] * len(per_position)
    return from_counts(
        COUNTED,
        how=page.how,
        where=page.where,
        model=name,
        drafts=counters["num_drafts"],
        drafted=drafted,
        accepted=counters["num_accepted_tokens"],
        per_position=per_position,
        decoded=_decoded(page),
        requests=page.total(FIRST_TOKENS),
    )


def _decoded(page: Page) -> DecodeTotals | None:
    """Return the tokens after the first of each request, and the passes that emitted them.

    vllm/v1/metrics/stats.py: a request's first output observes its time to first token, each later
    one an inter-token latency, however many tokens it holds.
    """
    generated = page.first_total(*GENERATED)
    first, passes = page.total(FIRST_TOKENS), page.first_total(*LATENCIES)
    if generated is None or first is None or not passes:
        return None
    return DecodeTotals(tokens=generated - first, passes=passes, exact=True)


def _names(key: str) -> tuple[str, str]:
    """Return the name of a series on a page, and in vLLM's own client."""
    return f"{DRAFT_SERIES}{key}_total", f"{DRAFT_SERIES}{key}"


def read_bench(lines: Sequence[str], where: str) -> Reading:
    """Pool the reports of ``vllm bench serve``, each weighted by its passes (``Drafts``)."""
    bare = [line.strip() for line in lines]
    starts = [n for n, line in enumerate(bare) if line.startswith(BENCH_MARKS[0])]
    bounds = [0, *starts[1:], len(bare)]
    reports = ["\n".join(bare[a:b]) for a, b in pairwise(bounds)]
    if len(reports) == 1 and not _BENCH["Drafts"].search(reports[0]):
        rates = _bench_rates(reports[0])
        if rates:
            return from_positions(COUNTED, what="benchmark report", where=where, survival=rates)
    intervals = [_report(report, where) for report in reports]
    requests, generated = (
        [int(text) for report in reports for text in pattern.findall(report)]
        for pattern in (_BENCH_REQUESTS, _BENCH_GENERATED)
    )
    whole = len(requests) == len(reports)
    return pooled(
        intervals,
        where,
        what="benchmark report",
        requests=sum(requests) if whole else None,
        tokens=sum(generated) - sum(requests) if whole and len(generated) == len(reports) else None,
    )


def _bench_rates(report: str) -> list[float]:
    """Return survival by position of a report; empty where a position is missing."""
    percents = {int(at): float(value) for at, value in _BENCH_POSITION.findall(report)}
    if sorted(percents) != list(range(len(percents))):
        return []
    return [percents[at] / 100 for at in sorted(percents)]


def _report(report: str, where: str) -> Interval:
    """Return what one report counts; refuse one that lacks counts or positions."""
    found = {name: match[1] for name, p in _BENCH.items() if (match := p.search(report))}
    rates = _bench_rates(report)
    missing = [name for name in _BENCH if name not in found]
    if not rates:
        missing.append("Per-position acceptance")
    if missing:
        average = _BENCH_RATE.search(report)
        raise incomplete_log(
            where,
            record="benchmark report",
            missing=missing,
            tokens_per_step=float(found.get("Acceptance length", "nan")),
            rate=float(average[1]) / 100 if average else None,
        )
    return Interval(
        passes=float(found["Drafts"]),
        drafted=float(found["Draft tokens"]),
        accepted=float(found["Accepted tokens"]),
        rates=rates,
    )


def read_bench_json(results: Sequence[dict[str, Any]], where: str) -> Reading:
    """Pool the results of ``vllm bench serve --save-result``."""

    def number(item: dict[str, Any], key: str) -> float:
        return checked_number(item.get(f"spec_decode_{key}"), f"spec_decode_{key}", where)

    intervals = []
    for item in results:
        raw = item.get("spec_decode_per_position_acceptance_rates")
        if not isinstance(raw, list) or not raw:
            raise incomplete_log(
                where,
                record="benchmark result",
                missing=["spec_decode_per_position_acceptance_rates"],
                tokens_per_step=number(item, "acceptance_length"),
            )
        intervals.append(
            Interval(
                passes=number(item, "num_drafts"),
                drafted=number(item, "draft_tokens"),
                accepted=number(item, "accepted_tokens"),
                rates=[checked_number(rate, "per-position rate", where) for rate in raw],
            )
        )
    requests, generated = (
        [item[key] for item in results if isinstance(item.get(key), int)]
        for key in ("completed", "total_output_tokens")
    )
    whole = len(requests) == len(results)
    return pooled(
        intervals,
        where,
        what="benchmark result",
        requests=sum(requests) if whole else None,
        tokens=sum(generated) - sum(requests) if whole and len(generated) == len(results) else None,
    )


def completion_tokens(documents: Sequence[Any]) -> list[float]:
    """Return the tokens of each response, by the ``usage`` that it ends with.

    Chunks of a stream have one ``id``, and the last one's usage counts all of its tokens.
    """
    counted: dict[str, float] = {}
    for number, item in enumerate(mappings_with(documents, USAGE_KEY)):
        usage = item[USAGE_KEY]
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if isinstance(tokens, int):
            name = str(item.get("id", number))
            counted[name] = max(counted.get(name, 0.0), float(tokens))
    return list(counted.values())


def read_responses(
    responses: Sequence[dict[str, Any]], where: str, *, tokens: Sequence[float] = ()
) -> Reading:
    """Pool ``metrics.speculative_decoding`` of one or more responses; survival is exact.

    ``tokens`` are those of each response, the first of which its prompt's pass emits: they tell how
    many passes there were, those without a draft as well.
    """
    accepted, decoded = 0.0, sum(tokens) - len(tokens)
    histograms, drafted = [], 0.0
    for item in responses:
        raw = item[RESPONSE_KEY]
        if not isinstance(raw, list):
            raise InputError(f"acceptance_histogram: expected a list, got {raw!r:.40}", where=where)
        counts = [checked_number(value, "acceptance_histogram", where) for value in raw]
        histograms.append(counts)
        accepted += sum(j * count for j, count in enumerate(counts))
        full = sum(counts) * (len(counts) - 1)
        drafted += checked_number(item.get("num_draft_tokens", full), "num_draft_tokens", where)
    return from_histogram(
        pooled_histogram(histograms),
        COUNTED,
        how="1 response" if len(responses) == 1 else f"{len(responses)} responses",
        where=where,
        drafted=drafted,
        decoded=worked_out([decoded], accepted, len(responses))
        if len(tokens) == len(responses)
        else None,
        requests=len(responses),
    )


SCHEDULE_KEY = "num_speculative_tokens_per_batch_size"
RELEASE = "0.33.0"
#: Where piecewise graphs were seen to cost what `schedules` in data/engines/vllm.yaml says.
PIECEWISE_ISSUES = (49548, 49986)


def schedule_rows(bands: Sequence[Band]) -> list[list[int]]:
    """Return the 3-item rows.

    >>> two = [Band(first=1, last=4, draft_lengths=(3,)), Band(first=5, last=9, draft_lengths=(0,))]
    >>> schedule_rows(two)
    [[1, 4, 3], [5, 9, 0]]
    """
    return [[band.first, band.last, band.draft_length] for band in bands]


def schedule_rows_with_contexts(
    bands: Sequence[Band], contexts: Sequence[tuple[int, int]]
) -> list[list[int]]:
    """Return the 5-item rows of the proposal; neighbouring contexts that never differ are one.

    >>> schedule_rows_with_contexts([Band(first=1, last=8, draft_lengths=(3, 3, 5))],
    ...                    [(1, 10), (11, 20), (21, 99)])
    [[1, 8, 1, 20, 3], [1, 8, 21, 99, 5]]
    """
    columns = list(zip(*(band.draft_lengths for band in bands), strict=True))
    starts = [i for i, column in enumerate(columns) if i == 0 or column != columns[i - 1]]
    ends = [*(start - 1 for start in starts[1:]), len(columns) - 1]
    return [
        [band.first, band.last, contexts[start][0], contexts[end][1], band.draft_lengths[start]]
        for band in bands
        for start, end in zip(starts, ends, strict=True)
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
    a band's draft lengths are for; without them rows have three items.
    """
    deepest = max(max(band.draft_lengths) for band in bands)
    last = bands[-1].last
    flags = launch.flags(deepest, running=last)
    if all(set(band.draft_lengths) == {deepest} for band in bands):
        return EngineText(text=flags, static=True)
    name = launch.engine.name
    notes = [
        notice(Code.LAST_BAND_KEPT, engine=name, above=last, item="row's K", prefills_count=True),
    ]
    rule = launch.engine.schedule_rule(launch.drafter_kind)
    if rule is not None:
        notes.append(
            notice(
                Code.SCHEDULE_GRAPH_MODE,
                engine=f"{name} {launch.engine.facts_of}",
                graphs=rule.graphs,
                cost=rule.cost,
                issues=PIECEWISE_ISSUES,
                length_name="K",
                static=static,
            )
        )
    table = (
        schedule_rows(bands) if contexts is None else schedule_rows_with_contexts(bands, contexts)
    )
    if contexts is not None:
        notes.append(
            notice(
                Code.FORM_REJECTED,
                engine=f"{name} {RELEASE}",
                form="rows of five items",
                proposal="PR 48944",
            )
        )
    if data_parallel > 1:
        notes.append(
            notice(
                Code.SCHEDULE_OFF_IN_COPIES,
                engine=name,
                data_parallel=data_parallel,
                draft_length=deepest,
            )
        )
    text = insert_before_brace(flags, f', "{SCHEDULE_KEY}": {json.dumps(table)}')
    return EngineText(text=text, notes=tuple(notes))
