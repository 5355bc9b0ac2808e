"""llama.cpp: acceptance on its page and in its old and new logs.

Acceptance (tools/server/server-context.cpp, server-task.cpp and common/speculative.cpp, b11434):
drafts may stop early or be empty, so the draft length is only known where all were full. ``mean
len`` is over the passes that drafted. A pass emits one token and the drafts it accepted, so the
tokens of whole requests tell how many passes there were.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, notice
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
    checked_number,
    incomplete_log,
    one_record,
)
from roofline.engines.prometheus import Page

__all__ = [
    "DRAFT_SERIES",
    "LOG_LINES",
    "LOG_MARKS",
    "RESPONSE_KEY",
    "SERIES",
    "read_log",
    "read_page",
    "read_responses",
]

#: How the series begin that count drafts.
DRAFT_SERIES = "llamacpp:spec_decode_"
PREDICTED = "llamacpp:tokens_predicted_total"
DECODES = "llamacpp:n_decode_total"
BUSY_SLOTS = "llamacpp:n_busy_slots_per_decode"
#: Beginnings of all series that are read.
SERIES = (DRAFT_SERIES, PREDICTED, DECODES, BUSY_SLOTS)
#: What marks a log of llama.cpp, and parts of all its lines that are read.
LOG_MARKS = ("#gen drafts", "draft acceptance", "#acc rate/pos")
LOG_LINES = (*LOG_MARKS, "eval time =")
#: The key of a response's timings that counts its drafts.
RESPONSE_KEY = "draft_n"
#: What its counters hold, where they do not show how many passes drafted nothing.
COUNTED = Counted(
    engine="llamacpp", passes=Passes.DRAFTING, bonus=Bonus.OUT, tokens=Tokens.ACCEPTED
)
#: Decodes may exceed tokens - accepted by this share; more of them come from long prompts or from
#: requests that still run.
PROMPT_DECODES = 0.05
_STATISTICS = re.compile(
    rf"statistics\s+(?P<name>\S+?):?\s+#calls(?:\(b,g,a\)\s*=\s*{WHOLE}\s|\s*=)\s*"
    rf"(?P<calls>{WHOLE})\b.*?#gen drafts\s*=\s*(?P<drafts>{WHOLE}).*?"
    rf"#gen tokens\s*=\s*(?P<drafted>{WHOLE}).*?#acc tokens\s*=\s*(?P<accepted>{WHOLE})"
    rf"(?:.*?#acc rate/pos\s*=\s*\((?P<rates>{DECIMAL}(?:, ?{DECIMAL})*)\))?"
)
_REQUEST = re.compile(
    rf"draft acceptance(?: rate)?\s*=\s*[\d.]+\s*\(\s*(?P<accepted>{WHOLE}) accepted /\s*"
    rf"(?P<drafted>{WHOLE}) generated\)(?:, mean len\s*=\s*(?P<length>{DECIMAL}))?"
)
#: The fields of these lines that are read, and those of ``statistics`` that hold counts.
_FIELDS = {
    "draft acceptance": re.compile(rf"draft acceptance(?: rate)?\s*=\s*({DECIMAL})"),
    "accepted": re.compile(rf"({WHOLE}) accepted"),
    "generated": re.compile(rf"({WHOLE}) generated"),
    "mean len": re.compile(rf"mean (?:acc )?len\s*=\s*({DECIMAL})"),
    "#calls": re.compile(rf"#calls(?:\(b,g,a\)\s*=\s*{WHOLE}\s|\s*=)\s*({WHOLE})"),
    "#gen drafts": re.compile(rf"#gen drafts\s*=\s*({WHOLE})"),
    "#gen tokens": re.compile(rf"#gen tokens\s*=\s*({WHOLE})"),
    "#acc tokens": re.compile(rf"#acc tokens\s*=\s*({WHOLE})"),
    "#acc rate/pos": re.compile(rf"#acc rate/pos\s*=\s*\(({DECIMAL}(?:, ?{DECIMAL})*)\)"),
}
_TOTALS = ("#calls", "#gen drafts", "#gen tokens", "#acc tokens")
_GENERATED = re.compile(
    rf"(?<!prompt )\beval time\s*=\s*{DECIMAL} ms /\s*(?P<tokens>{WHOLE}) tokens"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Totals:
    """What a drafter counted: its calls, one in each pass, and the drafts that it made."""

    calls: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0

    def __add__(self, other: _Totals) -> _Totals:
        return _Totals(
            calls=self.calls + other.calls,
            drafts=self.drafts + other.drafts,
            drafted=self.drafted + other.drafted,
            accepted=self.accepted + other.accepted,
        )


def read_page(page: Page, model: str | None) -> Reading:
    """Read the counters of ``--metrics``; tokens and drafts are counted when a request ends."""
    page, name = page.for_model(model, DRAFT_SERIES)
    drafts, drafted, accepted = (
        page.needed(f"{DRAFT_SERIES}num_{what}_total")
        for what in ("drafts", "draft_tokens", "accepted_tokens")
    )
    if not drafts and page.total(PREDICTED) == 0:
        ended = "between the reads" if page.is_difference else "yet"
        raise InputError(
            f"no request has ended {ended}, and drafts are counted when one ends; wait for it",
            where=page.where,
        )
    per_position = page.by_label("position", f"{DRAFT_SERIES}num_accepted_tokens_per_pos_total")
    return from_counts(
        COUNTED,
        how=page.how,
        where=page.where,
        model=name,
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        per_position=per_position,
        decoded=_decoded(page, accepted),
    )


def _decoded(page: Page, accepted: float) -> DecodeTotals | None:
    """Return tokens and passes: those that the page counts, else tokens - accepted.

    200 tokens, 55 accepted drafts and 146 decodes are 146 passes: 145 that emitted a token of their
    own, and one more for the prompt. Decodes of long prompts, and of requests that still run, would
    count as passes too, so much larger counts are not used.
    """
    tokens = page.total(PREDICTED)
    if tokens is None or tokens <= accepted:
        return None
    passes = tokens - accepted
    decodes = page.total(DECODES) or 0.0
    sequences = decodes * (page.mean(BUSY_SLOTS) or 1.0)
    if passes <= sequences <= (1 + PROMPT_DECODES) * passes:
        passes = sequences
    return DecodeTotals(tokens=tokens, passes=passes, slack=END_PASSES)


def read_log(lines: Sequence[str], where: str) -> Reading:
    """Read the running totals where they are printed, else the lines of each request."""
    statistics = [match for line in lines if (match := _STATISTICS.search(line))]
    if not statistics and not any(map(_REQUEST.search, lines)):
        record = one_record(lines, _FIELDS)
        if not _STATISTICS.search(record) and not _REQUEST.search(record):
            return _part_of_line(record, where)
        return read_log([record], where)
    if any(int(match["drafts"]) > 0 for match in statistics):
        return _from_statistics(statistics, lines, where)
    return _from_requests(lines, where)


def _part_of_line(record: str, where: str) -> Reading:
    """Read the positions of a line that lacks fields; refuse one that lacks these too."""
    found = {name: match[1] for name, p in _FIELDS.items() if (match := p.search(record))}
    counts = ("accepted", "generated") if "draft acceptance" in found else _TOTALS
    survival, length = found.get("#acc rate/pos"), found.get("mean len")
    rate = found.get("draft acceptance")
    if survival:
        rates = [float(item) for item in survival.split(",")]
        return from_positions(COUNTED, what="log line", where=where, survival=rates)
    raise incomplete_log(
        where,
        record=f"'{'draft acceptance' if 'draft acceptance' in found else 'statistics'}' line",
        missing=[name for name in counts if name not in found],
        tokens_per_step=float(length) if length else None,
        rate=float(rate) if rate else None,
    )


def _from_statistics(
    statistics: Sequence[re.Match[str]], lines: Sequence[str], where: str
) -> Reading:
    """Add up the last totals of each drafter and of each run of the server."""
    last: dict[str, _Totals] = {}
    ended: dict[str, _Totals] = {}
    for match in statistics:
        name, new = match["name"], _totals(match)
        old = last.get(name, _Totals())
        if any(n < o for n, o in zip(astuple(new), astuple(old), strict=True)):
            ended[name] = ended.get(name, _Totals()) + old  # totals fell: a new run of the server
        last[name] = new
    by_name = {name: ended.get(name, _Totals()) + totals for name, totals in last.items()}
    drafting = [name for name, totals in by_name.items() if totals.drafts > 0]
    total = sum(by_name.values(), _Totals())
    # the first drafter is called in every pass, another one where those before it found nothing
    calls = max(totals.calls for totals in by_name.values())
    decoded = _of_requests(lines)
    if decoded is None or decoded.tokens - decoded.passes != total.accepted:
        decoded = DecodeTotals(tokens=calls + total.accepted, passes=calls, slack=END_PASSES)
    last_line = statistics[-1]
    one_run = total == replace(_totals(last_line), calls=total.calls)
    rates = last_line["rates"].split(",") if last_line["rates"] and one_run else []
    return from_counts(
        COUNTED,
        how="statistics of " + ", ".join(drafting),
        where=where,
        drafts=total.drafts,
        drafted=total.drafted,
        accepted=total.accepted,
        per_position=[total.drafts * float(rate) for rate in rates],
        decoded=decoded,
    )


def _totals(match: re.Match[str]) -> _Totals:
    return _Totals(
        calls=int(match["calls"]),
        drafts=int(match["drafts"]),
        drafted=int(match["drafted"]),
        accepted=int(match["accepted"]),
    )


def _of_requests(lines: Sequence[str]) -> DecodeTotals | None:
    """Return tokens and passes of the requests whose ``eval time`` the log holds.

    A request's first token comes with its prompt, so its decode passes emit one token less: 200
    tokens with 55 accepted drafts took 200 - 1 - 55 = 144 passes.
    """
    tokens = [int(match["tokens"]) for line in lines if (match := _GENERATED.search(line))]
    drafts = [int(match["accepted"]) for line in lines if (match := _REQUEST.search(line))]
    emitted = sum(tokens) - len(tokens)
    if len(tokens) < len(drafts) or emitted <= sum(drafts):
        return None
    return DecodeTotals(tokens=emitted, passes=emitted - sum(drafts), slack=END_PASSES)


def _from_requests(lines: Sequence[str], where: str) -> Reading:
    """Pool requests by ``mean len``: passes = accepted / (mean len - 1)."""
    passes = drafted = accepted = 0.0
    used = 0
    for line in lines:
        match = _REQUEST.search(line)
        if match is None or int(match["drafted"]) == 0:
            continue
        if match["length"] is None:
            raise InputError(
                "mean len is missing, and drafts vary in length: take the 'statistics' lines, or "
                f"give {Option('acceptance', f'rate:3={_rate(match):.3g}')}, with D in place of 3",
                where=where,
            )
        length = float(match["length"])
        if int(match["accepted"]) == 0 or length <= 1:
            continue  # nothing accepted: the number of passes is not printed
        used += 1
        passes += int(match["accepted"]) / (length - 1)
        drafted += int(match["drafted"])
        accepted += int(match["accepted"])
    if not used:
        raise InputError("no line in which a draft was accepted", where=where)
    decoded = _of_requests(lines)
    reading = from_counts(
        COUNTED,
        how=f"{used} requests" if used > 1 else "1 request",
        where=where,
        drafts=passes,
        drafted=drafted,
        accepted=accepted,
        decoded=decoded,
    )
    if decoded is not None:
        return reading
    return reading.with_notice(notice(Code.DRAFTING_PASSES_ONLY, where=where))


def read_responses(responses: Sequence[dict[str, Any]], where: str) -> Reading:
    """Pool the ``timings`` of responses: over all passes, AL = emitted / (emitted - accepted).

    A response of N tokens emits N - 1 in its decode passes. How many of these drafted is not in it,
    so neither is D.
    """
    emitted = drafted = accepted = 0.0
    for item in responses:
        tokens, drafts, kept = (
            checked_number(item.get(key), key, where)
            for key in ("predicted_n", RESPONSE_KEY, "draft_n_accepted")
        )
        emitted, drafted, accepted = emitted + tokens - 1, drafted + drafts, accepted + kept
    if not drafted or emitted <= accepted:
        raise InputError(
            f"{drafted:g} tokens drafted and {accepted:g} accepted of {emitted:g} after the first: "
            "nothing to read",
            where=where,
        )
    return Reading(
        counted=replace(COUNTED, passes=Passes.ALL),
        how="1 response" if len(responses) == 1 else f"{len(responses)} responses",
        where=where,
        tokens_per_step=emitted / (emitted - accepted),
        drafted=drafted,
        accepted=accepted,
        passes=emitted - accepted,
    )


def _rate(request: re.Match[str]) -> float:
    return int(request["accepted"]) / int(request["drafted"])
