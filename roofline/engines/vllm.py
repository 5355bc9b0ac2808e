"""vLLM: the acceptance on its pages, in its log and its JSON; the schedules that it takes (0.33.0).

Acceptance (vllm/v1/spec_decode/metrics.py, docs/features/speculative_decoding/
acceptance_metrics.md): lengths count the bonus token; per-position rates are survival. Lines of
2025 begin with the draft acceptance rate that later ones end with. ``vllm bench serve``
(vllm/benchmarks/serve.py) prints the growth of the same counters, rates in per cent; its JSON has
the rate in per cent and the positions as shares. Engine V0 (up to 0.10,
vllm/spec_decode/metrics.py) counts accepted drafts whatever came before them, so its rate is no
(AL - 1) / D; its emitted tokens are those up to the first refused draft, and the bonus token.

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
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.engines.counted import Bonus, Counted, Passes, Tokens
from roofline.engines.counts import (
    DECIMAL,
    END_PASSES,
    WHOLE,
    DecodeTotals,
    Reading,
    checked_number,
    from_counts,
    from_histogram,
    from_positions,
    incomplete_log,
    mappings_with,
    one_record,
    pooled_histogram,
)
from roofline.engines.prometheus import Page
from roofline.engines.writing import Band, EngineText, Launch, insert_before_brace

__all__ = [
    "BENCH_KEY",
    "BENCH_MARKS",
    "DRAFT_SERIES",
    "ENGINE_V0_MARKS",
    "LOG_LINES",
    "LOG_MARKS",
    "PREEMPTIONS",
    "RESPONSE_KEY",
    "SERIES",
    "completion_tokens",
    "read_bench",
    "read_bench_json",
    "read_engine_v0",
    "read_log",
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
#: Parts of the log lines that are read.
LOG_LINES = ("SpecDecoding metrics:", "Avg generation throughput:")
#: The key of a response that holds its acceptance.
RESPONSE_KEY = "acceptance_histogram"
#: The key of a response that holds what it took in and gave out.
USAGE_KEY = "usage"
#: What its counters hold: passes that drafted, and accepted drafts, those after a stop as well.
COUNTED = Counted(engine="vllm", passes=Passes.DRAFTING, bonus=Bonus.OUT, tokens=Tokens.ACCEPTED)
#: The fields of such a line that are read.
_FIELDS = {
    "Mean acceptance length": re.compile(rf"Mean acceptance length: ({DECIMAL}|nan)"),
    "Accepted": re.compile(rf"Accepted: ({WHOLE}) tokens"),
    "Drafted": re.compile(rf"Drafted: ({WHOLE}) tokens"),
    "Per-position acceptance rate": re.compile(
        rf"Per-position acceptance rate: ((?:{DECIMAL}|nan)(?:, *(?:{DECIMAL}|nan))*)"
    ),
    "Avg Draft acceptance rate": re.compile(rf"Draft acceptance rate: ({DECIMAL}|nan)%"),
}
#: Speeds of one interval: of drafting, and of all generation on the line before [tokens/s].
_DRAFTED_SPEED = re.compile(rf"Drafted throughput: ({DECIMAL}) tokens/s")
_GENERATION = re.compile(rf"Avg generation throughput: ({DECIMAL}) tokens/s")
NOTHING_DRAFTED = "no 'SpecDecoding metrics' line in which anything was drafted"
#: What marks a log: a line of drafts, or one that was copied without its beginning.
LOG_MARKS = (
    "SpecDecoding metrics:",
    "Mean acceptance length:",
    "Per-position acceptance rate:",
    "Avg Draft acceptance",
)
#: The rate is at the end of a line, in those of 2025 at its beginning.
_LOG = re.compile(
    rf"(?:Draft acceptance rate: (?P<older>{DECIMAL})%, )?"
    rf"Mean acceptance length: (?P<length>{DECIMAL}|nan),.*?"
    rf"Accepted: (?P<accepted>{WHOLE}) tokens, Drafted: (?P<drafted>{WHOLE}) tokens, "
    rf"Per-position acceptance rate: (?P<rates>(?:{DECIMAL}|nan)?(?:, *(?:{DECIMAL}|nan))*)"
    rf"(?:, *)?(?:Avg Draft acceptance rate(?:: (?P<percent>{DECIMAL})%)?|(?(older)|(?!)))"
)
#: What marks a line of engine V0, and its fields.
ENGINE_V0_MARKS = ("Speculative metrics:",)
_ENGINE_V0 = {
    name: re.compile(rf"{name}: ({WHOLE})\b")
    for name in (
        "Number of speculative tokens",
        "Number of draft tokens",
        "Number of emitted tokens",
    )
}
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Interval:
    """What one line of the log, or one report, counts; ``rates`` are survival by position."""

    passes: float
    drafted: float
    accepted: float
    rates: list[float]
    generated: float | None = None  # tokens of all passes, the first of each request included


def read_log(lines: Sequence[str], where: str) -> Reading:
    """Pool the log's intervals, each weighted by its passes: accepted / (length - 1).

    The line before one of drafts states the speed of generation in the same interval. Its tokens
    less the accepted drafts are passes, so it says which share of them drafted. Each request's
    first token counts as a pass there: the share is a little low where answers are short. After
    idle intervals, which may print nothing, speeds of drafting are over all of them and that of
    generation is over the last one (vllm/v1/spec_decode/metrics.py, v1/metrics/loggers.py).
    """
    found = _with_speeds(lines)
    if not found:
        record = one_record(lines, _FIELDS)
        wrapped = _LOG.search(record)
        if wrapped is None:
            return _part_of_line(record, where)
        found = [(wrapped, None)]
    spans = [span for match, _ in found if (span := _seconds(match)) is not None]
    every = min(spans) if len(spans) > 1 else None
    intervals = [i for match, speed in found if (i := _interval(match, speed, every)) is not None]
    if not intervals:
        raise InputError(NOTHING_DRAFTED, where=where)
    doubts = _contradictions([match for match, _ in found], where)
    return _pooled(intervals, where, what="log line", doubts=doubts)


def _with_speeds(lines: Sequence[str]) -> list[tuple[re.Match[str], float | None]]:
    """Return the lines of drafts, each with the speed of generation stated since the one before."""
    found, speed = list[tuple[re.Match[str], float | None]](), None
    for line in lines:
        if (stated := _GENERATION.search(line)) is not None:
            speed = float(stated[1])
        if (match := _LOG.search(line)) is not None:
            found.append((match, speed))
            speed = None
    return found


def _pooled(
    intervals: Sequence[_Interval],
    where: str,
    *,
    what: str,
    doubts: Sequence[Notice] = (),
    requests: float | None = None,
    tokens: float | None = None,
) -> Reading:
    """Add up intervals that drafted as many tokens as the last one; say how many others did not.

    ``tokens`` are those of all intervals after the first one of each request.
    """
    depth = len(intervals[-1].rates)
    used = [interval for interval in intervals if len(interval.rates) == depth]
    accepted = sum(interval.accepted for interval in used)
    reading = from_counts(
        COUNTED,
        how=f"{len(used)} {what}s" if len(used) > 1 else f"1 {what}",
        where=where,
        drafts=sum(interval.passes for interval in used),
        drafted=max(sum(interval.drafted for interval in used), accepted),
        accepted=accepted,
        per_position=[sum(i.passes * i.rates[position] for i in used) for position in range(depth)],
        doubts=doubts,
        decoded=_worked_out([tokens], accepted, requests) if len(used) == len(intervals) else None,
        requests=requests,
    )
    every = _worked_out([interval.generated for interval in used], accepted)
    if every is not None and reading.drafts:
        reading = replace(reading, hit_rate=min(reading.drafts / every.passes, 1.0))
    if len(used) == len(intervals):
        return reading
    return reading.with_notice(
        notice(
            Code.LINES_LEFT_OUT,
            where=where,
            lines=len(intervals) - len(used),
            draft_length=depth,
        )
    )


#: Passes of a request that may draft nothing, whatever drafts: its first one and its last one.
REQUEST_ENDS = 2.0


def _worked_out(
    tokens: Sequence[float | None], accepted: float, requests: float | None = None
) -> DecodeTotals | None:
    """Return tokens and passes, of which each emitted one token beside the accepted drafts."""
    known = [number for number in tokens if number is not None]
    passes = sum(known) - accepted
    if not known or len(known) < len(tokens) or passes <= 0:
        return None
    ends = None if requests is None else REQUEST_ENDS * requests
    return DecodeTotals(tokens=sum(known), passes=passes, slack=END_PASSES, ends=ends)


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
    return _pooled(
        intervals,
        where,
        what="benchmark report",
        requests=sum(requests) if whole else None,
        tokens=sum(generated) - sum(requests) if whole and len(generated) == len(reports) else None,
    )


def read_engine_v0(lines: Sequence[str], where: str) -> Reading:
    """Read the last line of engine V0, whose counts run since its start.

    Passes are draft tokens / D, and AL = emitted tokens / passes.
    """
    marked = [line for line in lines if ENGINE_V0_MARKS[0] in line]
    record = marked[-1] if marked and len(lines) > 1 else one_record(lines, _ENGINE_V0)
    found = {n: int(match[1]) for n, p in _ENGINE_V0.items() if (match := p.search(record))}
    missing = [name for name in _ENGINE_V0 if name not in found]
    if missing:
        raise incomplete_log(where, record="'Speculative metrics' line", missing=missing)
    length, drafted, emitted = found.values()
    if not length or not drafted:
        raise InputError("no pass has verified a draft yet; send some requests first", where=where)
    passes = drafted / length
    return Reading(
        counted=replace(COUNTED, bonus=Bonus.IN),
        how="last log line of engine V0, since its start",
        where=where,
        tokens_per_step=emitted / passes,
        draft_length=length,
        drafts=passes,
        drafted=drafted,
    )


def _bench_rates(report: str) -> list[float]:
    """Return survival by position of a report; empty where a position is missing."""
    percents = {int(at): float(value) for at, value in _BENCH_POSITION.findall(report)}
    if sorted(percents) != list(range(len(percents))):
        return []
    return [percents[at] / 100 for at in sorted(percents)]


def _report(report: str, where: str) -> _Interval:
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
    return _Interval(
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
            _Interval(
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
    return _pooled(
        intervals,
        where,
        what="benchmark result",
        requests=sum(requests) if whole else None,
        tokens=sum(generated) - sum(requests) if whole and len(generated) == len(results) else None,
    )


def _part_of_line(record: str, where: str) -> Reading:
    """Read the positions of a line that lacks fields; refuse one that lacks these too."""
    texts = {name: match[1] for name, p in _FIELDS.items() if (match := p.search(record))}
    if any("nan" in text for text in texts.values()):
        raise InputError(NOTHING_DRAFTED, where=where)
    numbers = {name: [float(item) for item in text.split(",")] for name, text in texts.items()}
    average = numbers.get("Avg Draft acceptance rate")
    survival = numbers.get("Per-position acceptance rate", [])
    (length,) = numbers.get("Mean acceptance length", [None])
    if survival:
        reading = from_positions(COUNTED, what="log line", where=where, survival=survival)
        doubt = None if length is None else _wrong_length(texts["Mean acceptance length"], survival)
        return reading if doubt is None else reading.with_notice(_said_of(doubt, where, lines=1))
    raise incomplete_log(
        where,
        record="'SpecDecoding metrics' line",
        missing=[name for name in _FIELDS if name not in texts],
        tokens_per_step=length,
        rate=average[0] / 100 if average else None,
    )


def _contradictions(matches: Sequence[re.Match[str]], where: str) -> list[Notice]:
    """Return the notice of lines whose numbers disagree by more than rounding, with the first."""
    notices = [n for match in matches if (n := _contradiction(match)) is not None]
    if not notices:
        return []
    return [_said_of(notices[0], where, lines=len(notices))]


def _said_of(doubt: Notice, where: str, *, lines: int) -> Notice:
    return notice(doubt.code, where=where, lines=lines, **doubt.values)


def _wrong_length(length: str, rates: Sequence[float]) -> Notice | None:
    """Return the notice of a mean length that is not 1 and the sum of the rates by position."""
    by_position = 1 + sum(rates)
    if abs(float(length) - by_position) <= 0.0051 + 0.0005 * len(rates):
        return None
    return notice(Code.LENGTH_CONTRADICTS_POSITIONS, length=length, by_position=by_position)


def _contradiction(match: re.Match[str]) -> Notice | None:
    """Return the notice of what disagrees in one line: AL - 1 = sum of S_i, or accepted / drafted.

    The log rounds lengths to 0.01, rates of positions to 0.001 and percentages to 0.1.
    """
    interval = _interval(match)
    if interval is None:
        return None
    accepted, drafted = interval.accepted, interval.drafted
    wrong = _wrong_length(match["length"], interval.rates)
    if wrong is not None:
        return wrong
    percent = match["percent"] or match["older"]
    if percent is not None and abs(float(percent) - 100 * accepted / drafted) > 0.051:
        return notice(
            Code.RATE_CONTRADICTS_COUNTS, percent=percent, accepted=accepted, drafted=drafted
        )
    return None


#: So many times the shortest interval hold an idle one; the first one of a server starts earlier.
IDLE = 1.9
#: Seconds between two lines where nobody sets them (VLLM_LOG_STATS_INTERVAL).
LOG_INTERVAL = 10.0


def _seconds(match: re.Match[str]) -> float | None:
    """Return the seconds that a line's drafts were counted over: drafted tokens by their speed."""
    speed = _DRAFTED_SPEED.search(match[0])
    drafted = float(match["drafted"])
    return drafted / float(speed[1]) if speed and drafted and float(speed[1]) else None


def _generating(span: float | None, every: float | None) -> float | None:
    """Return the seconds that the speed of generation is over, None where they are not known.

    ``span`` is what the line's drafts were counted over, ``every`` the shortest such of the log.

    >>> _generating(15.0, 5.0), _generating(8.9, 5.0), _generating(10.1, None)
    (5.0, 8.9, 10.1)
    >>> _generating(300.0, None) is None  # of one line: idle before it, or lines so far apart
    True
    """
    if span is None or span < IDLE * (every or LOG_INTERVAL):
        return span
    return every


def _interval(
    match: re.Match[str], speed: float | None = None, every: float | None = None
) -> _Interval | None:
    """Return the counts of one line; None where nothing was drafted.

    ``speed`` is that of generation [tokens/s], ``every`` the shortest interval of the log [s].
    """
    if "nan" in match["length"] or "nan" in match["rates"]:
        return None
    rates = [float(item) for item in match["rates"].split(",") if item.strip()]
    length, accepted = float(match["length"]), float(match["accepted"])
    drafted = float(match["drafted"])
    if drafted == 0 or not rates:
        return None
    passes = accepted / (length - 1) if accepted and length > 1 else drafted / len(rates)
    seconds = _generating(_seconds(match), every)
    return _Interval(
        passes=passes,
        drafted=drafted,
        accepted=accepted,
        rates=rates,
        generated=None if speed is None or seconds is None else speed * seconds,
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
        decoded=_worked_out([decoded], accepted, len(responses))
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
