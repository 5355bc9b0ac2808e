"""vLLM's log: the acceptance in its lines, and how intervals of it are pooled.

vllm/v1/spec_decode/metrics.py (0.33.0): lengths count the bonus token; per-position rates are
survival. Lines of 2025 begin with the draft acceptance rate that later ones end with. Engine V0 (up
to 0.10, vllm/spec_decode/metrics.py) counts accepted drafts whatever came before them, so its rate
is no (AL - 1) / D; its emitted tokens are those up to the first refused draft, and the bonus token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.engines.counted import Bonus, Counted, Passes, Tokens
from roofline.engines.counts import (
    END_PASSES,
    DecodeTotals,
    Reading,
    from_counts,
    from_positions,
)
from roofline.engines.fields import (
    DECIMAL,
    WHOLE,
    incomplete_log,
    one_record,
)

__all__ = [
    "COUNTED",
    "ENGINE_V0_MARKS",
    "LOG_LINES",
    "LOG_MARKS",
    "Interval",
    "pooled",
    "read_engine_v0",
    "read_log",
    "worked_out",
]

#: Parts of the log lines that are read.
LOG_LINES = ("SpecDecoding metrics:", "Avg generation throughput:")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
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
    return pooled(intervals, where, what="log line", doubts=doubts)


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


def pooled(
    intervals: Sequence[Interval],
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
        decoded=worked_out([tokens], accepted, requests) if len(used) == len(intervals) else None,
        requests=requests,
    )
    every = worked_out([interval.generated for interval in used], accepted)
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


def worked_out(
    tokens: Sequence[float | None], accepted: float, requests: float | None = None
) -> DecodeTotals | None:
    """Return tokens and passes, of which each emitted one token beside the accepted drafts."""
    known = [number for number in tokens if number is not None]
    passes = sum(known) - accepted
    if not known or len(known) < len(tokens) or passes <= 0:
        return None
    ends = None if requests is None else REQUEST_ENDS * requests
    return DecodeTotals(tokens=sum(known), passes=passes, slack=END_PASSES, ends=ends)


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
) -> Interval | None:
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
    return Interval(
        passes=passes,
        drafted=drafted,
        accepted=accepted,
        rates=rates,
        generated=None if speed is None or seconds is None else speed * seconds,
    )
