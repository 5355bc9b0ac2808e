"""TensorRT-LLM: its iteration statistics and Prometheus page, and the schedules that it takes.

Statistics (the 1.3 line): tensorrt_llm/metrics/collector.py and the tests that use
LLM.get_stats(). ``trtllm-bench`` (tensorrt_llm/bench/dataclasses/reporting.py at 024997657): a
request's acceptance length is its output tokens over its iterations, the first one included; it
prints means over requests. Releases of 2025 call it [AR]; later ones [AL], with the rate of
accepted over drafted [DAR], and [DT] and [ADT], the draft and accepted tokens of a request.

Schedules, from 1.3 on (tensorrt_llm/llmapi/llm_args.py at 000439672): the keys of
``draft_len_schedule`` are upper bounds, nothing is drafted above the last, the value of the
smallest key must be ``max_draft_len`` and no value may exceed it; ``max_concurrency`` excludes a
schedule and stands for one with a single key. Eagle3, MTP and Draft_Target take a schedule, NGram
does not. The gate is ``acceptance_rate_threshold`` on accepted / drafted: break-even at
(R(D) - 1) / D.
Before 1.3 (the same file after PR 8194, replaced by PR 10860 in 2026-01): keys are lower bounds,
key 1 is required and must hold ``max_draft_len``, the last value carries on. The gate is
``acceptance_length_threshold`` on accepted drafts (speculation_gate.py at 41080dc5): R(D) - 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.engines.counted import Bonus, Counted, Passes, Tokens, lengths_that_fit
from roofline.engines.counts import DecodeTotals, Reading, from_counts, whole_length
from roofline.engines.fields import (
    DECIMAL,
    checked_number,
    incomplete_log,
)
from roofline.engines.prometheus import Page
from roofline.engines.server_facts import Fact, Read, Unread
from roofline.engines.writing import Band, EngineText, Launch, NoScheduleError, insert_before_brace

__all__ = [
    "BENCH_KEY",
    "BENCH_MARKS",
    "DRAFT_SERIES",
    "SERIES",
    "STATISTICS_KEY",
    "Releases",
    "check_scheduled",
    "drafts_most_first",
    "iterations_of",
    "load_of",
    "read_bench",
    "read_bench_json",
    "read_page",
    "read_stats",
    "releases_of",
    "schedule",
    "schedule_keys",
    "scheduled_length",
]

#: How the series begin that count drafts.
DRAFT_SERIES = "trtllm_spec_decode_"
#: Beginnings of all series that are read.
SERIES = (DRAFT_SERIES,)
#: The key of an iteration that holds its acceptance.
STATISTICS_KEY = "specDecodingStats"
#: What its counters hold: requests that drafted, and accepted drafts.
COUNTED = Counted(engine="trtllm", passes=Passes.DRAFTING, bonus=Bonus.OUT, tokens=Tokens.ACCEPTED)
#: What marks the report of ``trtllm-bench``, and its lines: mean, minimum, ... of a figure.
BENCH_MARKS = ("[AR] AVERAGE", "[AL] AVERAGE")
_AVERAGE = re.compile(rf"\[(?P<what>AR|AL|DAR|DT|ADT)\] AVERAGE\s*:\s*(?P<value>{DECIMAL})")
_VERSION = re.compile(r"TensorRT[- ]LLM Version:\s*(\S+)")
#: The key of its JSON report that holds the same.
BENCH_KEY = "decoding_stats"


def read_page(page: Page, model: str | None) -> Reading:
    """Read the counters by position, else the acceptance-length gauge."""
    page, name = page.for_model(model, DRAFT_SERIES)
    drafted = page.by_label("token_position", f"{DRAFT_SERIES}drafted_tokens_total")
    accepted = page.by_label("token_position", f"{DRAFT_SERIES}accepted_tokens_total")
    if drafted and len(accepted) <= len(drafted):
        # a position has no line until it accepts a draft
        accepted = [*accepted, *[0.0] * (len(drafted) - len(accepted))]
        return from_counts(
            COUNTED,
            how=f"{page.how}, finished requests",
            where=page.where,
            model=name,
            drafts=drafted[0],
            drafted=sum(drafted),
            accepted=sum(accepted),
            per_position=accepted,
        )
    mean = page.mean(f"{DRAFT_SERIES}acceptance_length")
    if mean is None:
        raise InputError(
            f"the page has neither {DRAFT_SERIES}drafted_tokens_total by position "
            f"(return_perf_metrics: true) nor {DRAFT_SERIES}acceptance_length",
            where=page.where,
        )
    if mean < 1:
        raise InputError(
            f"{DRAFT_SERIES}acceptance_length is {mean:g}: nothing drafted", where=page.where
        )
    return Reading(
        counted=replace(COUNTED, bonus=Bonus.IN),
        how="gauge of its last iteration",
        where=page.where,
        model=name,
        tokens_per_step=mean,
        draft_length=_gauge_length(page, mean),
    )


def _gauge_length(page: Page, mean: float) -> int | None:
    """Return D = (AL - 1) / (accepted / drafted) where older builds' gauges give a whole one."""
    drafted = page.total(f"{DRAFT_SERIES}num_draft_tokens_total", f"{DRAFT_SERIES}num_draft_tokens")
    accepted = page.total(
        f"{DRAFT_SERIES}num_accepted_tokens_total", f"{DRAFT_SERIES}num_accepted_tokens"
    )
    return whole_length((mean - 1) * drafted / accepted) if drafted and accepted else None


def iterations_of(text: str) -> list[dict[str, Any]] | None:
    """Return the list of iterations that ``/metrics`` gives, None where a text is none."""
    if not text.lstrip().startswith("["):
        return None
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else None


def read_stats(iterations: Sequence[dict[str, Any]], where: str) -> Reading:
    """Pool ``specDecodingStats`` of many iterations: AL = (accepted + requests) / requests.

    Requests and iterations without drafts count where ``inflightBatchingStats`` holds them.
    """
    drafted = accepted = requests = passes = 0.0
    used, passes_known = 0, True
    for item in iterations:
        passes += _inner(item, "inflightBatchingStats", "numGenRequests") or 0.0
        passes_known = passes_known and isinstance(item.get("inflightBatchingStats"), dict)
        stats = item[STATISTICS_KEY]
        if not isinstance(stats, dict):
            continue
        _check_whole(stats, where)
        tokens = checked_number(stats.get("numDraftTokens"), "numDraftTokens", where)
        if tokens == 0:
            continue
        used += 1
        drafted += tokens
        accepted += checked_number(stats.get("numAcceptedTokens"), "numAcceptedTokens", where)
        requests += checked_number(
            stats.get("numRequestsWithDraftTokens"), "numRequestsWithDraftTokens", where
        )
    return from_counts(
        COUNTED,
        how=f"{used} iterations" if used != 1 else "1 iteration",
        where=where,
        drafts=requests,
        drafted=drafted,
        accepted=accepted,
        decoded=DecodeTotals(tokens=passes + accepted, passes=passes)
        if passes_known and passes
        else None,
    )


def read_bench(lines: Sequence[str], where: str) -> Reading:
    """Read the last report of ``trtllm-bench``."""
    text = "\n".join(lines)
    means = {match["what"]: float(match["value"]) for match in _AVERAGE.finditer(text)}
    version = _VERSION.findall(text)
    if "AL" not in means and "AR" not in means:
        raise incomplete_log(where, record="report of trtllm-bench", missing=["[AL] AVERAGE"])
    return _of_report(
        where,
        length=means.get("AL", means.get("AR", 0.0)),
        rate=means.get("DAR"),
        drafted=means.get("DT"),
        accepted=means.get("ADT"),
        version=version[-1] if version else None,
    )


def read_bench_json(reports: Sequence[dict[str, Any]], where: str) -> Reading:
    """Read ``decoding_stats`` of a JSON report of ``trtllm-bench``."""
    report = reports[-1]
    figures = report[BENCH_KEY]

    def mean(name: str) -> float | None:
        group = figures.get(f"{name}_percentiles") if isinstance(figures, dict) else None
        value = group.get("average") if isinstance(group, dict) else None
        return None if value is None else checked_number(value, name, where)

    length = mean("acceptance_length")
    if length is None:
        length = mean("acceptance")  # releases of 2025
    if length is None:
        raise incomplete_log(
            where, record=BENCH_KEY, missing=["average of acceptance_length_percentiles"]
        )
    engine = report.get("engine")
    version = engine.get("version") if isinstance(engine, dict) else None
    return _of_report(
        where,
        length=length,
        rate=mean("draft_acceptance_rate"),
        drafted=mean("num_draft_tokens"),
        accepted=mean("num_accepted_draft_tokens"),
        version=version if isinstance(version, str) else None,
    )


def _of_report(
    where: str,
    *,
    length: float,
    rate: float | None,
    drafted: float | None,
    accepted: float | None,
    version: str | None,
) -> Reading:
    """Return AL from means over requests; 1 + D accepted / drafted, over passes, where D is known.

    D = (AL - 1) / rate.
    """
    if length < 1:
        raise InputError(f"acceptance length {length:g}: nothing drafted", where=where)
    fitting = () if rate is None else lengths_that_fit(tokens_per_step=length, rate=rate)
    lengths = tuple(sorted(fitting))
    known = lengths[0] if len(lengths) == 1 else None
    by_pass = known is not None and drafted and accepted is not None
    if known is not None and drafted and accepted is not None:
        length = 1 + known * accepted / drafted
    reading = Reading(
        counted=Counted(
            engine="trtllm",
            passes=Passes.ALL,
            bonus=Bonus.IN,
            tokens=Tokens.EMITTED,
            version=version,
        ),
        how="report of trtllm-bench" + ("" if by_pass else ", mean over requests"),
        where=where,
        tokens_per_step=length,
        draft_length=known,
    )
    return reading.with_draft_lengths(lengths)


def _check_whole(stats: dict[str, Any], where: str) -> None:
    """Refuse statistics that lack a count, with what they do say."""
    missing = [
        key
        for key in ("numDraftTokens", "numAcceptedTokens", "numRequestsWithDraftTokens")
        if key not in stats
    ]
    if missing:
        length = stats.get("acceptanceLength")
        raise incomplete_log(
            where,
            record=STATISTICS_KEY,
            missing=missing,
            tokens_per_step=checked_number(length, "acceptanceLength", where) if length else None,
        )


def load_of(iterations: Sequence[dict[str, Any]]) -> dict[str, Fact]:
    """Return batch and context as means over the iterations that generated tokens."""
    batches, tokens = [], []
    for item in iterations:
        running = _inner(item, "inflightBatchingStats", "numGenRequests")
        used = _inner(item, "kvCacheStats", "usedNumBlocks")
        block = _inner(item, "kvCacheStats", "tokensPerBlock")
        if running:
            batches.append(running)
            if used and block:
                tokens.append(used * block / running)
    absent = "no iteration on the page generated (enable_iter_perf_stats: true)"
    source = f"mean of {len(batches)} iterations"
    return {
        "batch": Read(value=sum(batches) / len(batches), source=f"numGenRequests, {source}")
        if batches
        else Unread(reason=absent),
        "waiting": Unread(reason="the list of iterations does not say"),
        "context": Read(
            value=round(sum(tokens) / len(tokens)), source=f"KV blocks in use, {source}"
        )
        if tokens
        else Unread(reason=absent),
        "tokens_per_s": Unread(reason="needs /prometheus/metrics (return_perf_metrics: true)"),
    }


def _inner(item: dict[str, Any], group: str, name: str) -> float | None:
    """Return a number of a nested mapping; None where it is missing or implausible."""
    nested = item.get(group)
    value = nested.get(name) if isinstance(nested, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        return None
    return float(value)


class Releases(StrEnum):
    """Releases that read the keys of a schedule alike."""

    NEWER = "newer"  # as upper bounds
    OLDER = "older"  # as lower bounds


#: The words for them in messages.
RELEASE_NAMES = {Releases.NEWER: "1.3 and later", Releases.OLDER: "before 1.3"}
SCHEDULED = {
    Releases.NEWER: ("eagle3", "mtp", "model"),
    Releases.OLDER: ("eagle3", "mtp", "model", "ngram"),
}
#: Iterations in the newer gate, completed requests in the older: a choice, not a default.
WINDOW = {Releases.NEWER: 1000, Releases.OLDER: 100}


def releases_of(version: str) -> Releases:
    """Return which releases a version belongs to.

    >>> releases_of("1.2.0"), releases_of("1.3.0rc20")
    (<Releases.OLDER: 'older'>, <Releases.NEWER: 'newer'>)
    """
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        raise InputError(
            "expected a release such as 1.2 or 1.3.0", field="engine_version", value=version or None
        )
    return Releases.NEWER if (int(match[1]), int(match[2])) >= (1, 3) else Releases.OLDER


def check_scheduled(drafter_kind: str, releases: Releases) -> None:
    """Refuse a kind of drafter that these releases take no schedule for."""
    if drafter_kind not in SCHEDULED[releases]:
        raise NoScheduleError(f"TensorRT-LLM ({releases}) takes no schedule for {drafter_kind}")


def scheduled_length(table: dict[int, int], batch: int, releases: Releases) -> int | None:
    """Return the D that releases run at ``batch``; None where they refuse the table.

    >>> table = {1: 4, 8: 2}
    >>> [scheduled_length(table, 5, each) for each in (Releases.NEWER, Releases.OLDER)]
    [2, 4]
    """
    if releases is Releases.NEWER:
        return next((table[key] for key in sorted(table) if batch <= key), 0)
    if 1 not in table:
        return None
    return table[max(key for key in table if key <= batch)]


def drafts_most_first(bands: Sequence[Band]) -> bool:
    """Return whether the first band drafts the most, as all releases demand."""
    return bands[0].draft_length == max(band.draft_length for band in bands)


def schedule_keys(bands: Sequence[Band], releases: Releases) -> dict[int, int]:
    """Return a schedule's table; the newer releases imply 0 above the last key.

    >>> two = [Band(first=1, last=4, draft_lengths=(4,)), Band(first=5, last=9, draft_lengths=(0,))]
    >>> schedule_keys(two, Releases.NEWER), schedule_keys(two, Releases.OLDER)
    ({4: 4}, {1: 4, 5: 0})
    """
    if releases is Releases.OLDER:
        return {band.first: band.draft_length for band in bands}
    last = max(i for i, band in enumerate(bands) if band.draft_length > 0)
    return {band.last: band.draft_length for band in bands[: last + 1]}


def schedule(
    bands: Sequence[Band],
    *,
    launch: Launch,
    releases: Releases,
    nearest: bool = False,
    break_even: tuple[float, float] | None = None,
) -> EngineText:
    """Return the ``speculative_config`` to paste, for bands of which the first drafts the most.

    ``nearest`` says that better bands could not be written. ``break_even`` adds the gate: the
    accepted drafts of a step, and their share of the drafts, below which every band loses.
    """
    most, last, name = bands[0].draft_length, bands[-1].last, launch.engine.name
    flags = launch.flags(most, running=last)
    if most == 0:
        return EngineText(text=flags, static=True)
    table = schedule_keys(bands, releases)
    notes = [notice(Code.NEAREST_SCHEDULE, engine=name)] if nearest else []
    addition = ""
    if len(bands) > 1 and releases is Releases.NEWER and len(table) == 1:
        addition = f", max_concurrency: {min(table)}"
    elif len(bands) > 1:
        text = ", ".join(f"{key}: {value}" for key, value in table.items())
        addition = f", draft_len_schedule: {{{text}}}"
        notes += [
            _above_table(table, last, releases, name=f"{name} ({releases})"),
            _in_other_releases(table, last, releases, name=name),
        ]
    if break_even is not None:
        addition += _gate(*break_even, releases=releases)
    if bands[-1].draft_length == 0:
        notes.append(notice(Code.DRAFTER_CACHE_BEHIND, engine=name, issue="PR 16888, open"))
    text = insert_before_brace(flags, addition)
    return EngineText(text=text, notes=tuple(notes), static=len(bands) == 1)


def _gate(accepted: float, share: float, *, releases: Releases) -> str:
    """Return the gate: accepted drafts of a step before 1.3, their share of the drafts after."""
    if releases is Releases.OLDER:
        return (
            f", acceptance_window: {WINDOW[releases]}, acceptance_length_threshold: "
            f"{max(accepted, 0):.3f}"
        )
    return (
        f", acceptance_rate_window_size: {WINDOW[releases]}, acceptance_rate_threshold: "
        f"{min(max(share, 0), 1):.3f}"
    )


def _above_table(table: dict[int, int], last: int, releases: Releases, *, name: str) -> Notice:
    """Return the notice of what happens at batches above the table."""
    if releases is Releases.NEWER:
        return notice(Code.NOTHING_DRAFTED_ABOVE, engine=name, above=max(table))
    return notice(Code.LAST_BAND_KEPT, engine=name, above=last, item="value")


def _in_other_releases(
    table: dict[int, int], last: int, releases: Releases, *, name: str
) -> Notice:
    """Return the notice of what the other releases make of the same text."""
    other = Releases.OLDER if releases is Releases.NEWER else Releases.NEWER
    others = f"{name} {RELEASE_NAMES[other]}"
    for batch in range(1, last + 1):
        length = scheduled_length(table, batch, releases)
        other_length = scheduled_length(table, batch, other)
        if other_length is None:
            return notice(Code.OTHER_RELEASES_REFUSE, engine=others, key=1)
        if length != other_length:
            return notice(
                Code.OTHER_RELEASES_DIFFER,
                engine=others,
                batch=batch,
                draft_length=length,
                other=other_length,
            )
    return notice(Code.OTHER_RELEASES_AGREE, engine=others)
