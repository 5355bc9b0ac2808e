"""SGLang: acceptance on its pages, in its log and JSON (0.5.23); the schedules that it takes.

Acceptance (sglang/srt/observability/metrics_collector.py, managers/scheduler_components and
managers/tokenizer_manager.py): ``accept length`` counts the bonus token; older builds have it
alone. ``accept rate`` is correct drafts over drafts since 2026-04, (AL - 1) / D; before, it counted
the bonus token on both sides, AL / (D + 1). DFLASH and DSPARK fill a block in one step, and NGRAM
takes a tree of drafts, so of these ``speculative_num_draft_tokens`` - 1 is D
(arg_groups/speculative_hook.py). With ``speculative_adaptive`` D changes while the server runs.

Schedules (python/sglang/srt/speculative/adaptive_spec_params.py at 015c87262,
adaptive_step_router.py at a12239f6a): slots of candidate steps, in the file that
``--speculative-adaptive-config`` names. A batch is padded to the next captured CUDA-graph size,
then the slot with the largest key up to that size is used, so keys are lower bounds. Every slot has
``candidate_steps`` of at least one number; 0 means no speculation; with one candidate the slot is
fixed. Only EAGLE and EAGLE3 (NEXTN is EAGLE) with top-k 1, and no data-parallel attention.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.engines.counted import Bonus, Counted, Passes, Tokens, lengths_that_fit
from roofline.engines.counts import (
    Reading,
    from_counts,
    from_histogram,
    pooled_histogram,
    whole_length,
)
from roofline.engines.fields import (
    DECIMAL,
    WHOLE,
    checked_number,
    incomplete_log,
    mappings_with,
    one_record,
)
from roofline.engines.prometheus import Page
from roofline.engines.writing import Band, EngineText, Launch, NoScheduleError

__all__ = [
    "BENCH_KEY",
    "BENCH_MARKS",
    "CAPTURED",
    "DRAFT_SERIES",
    "GENERATED",
    "INFO_KEY",
    "LOG_LINES",
    "LOG_MARKS",
    "RESPONSE_KEY",
    "RETRACTIONS",
    "SERIES",
    "cell_starts",
    "check_scheduled",
    "read_bench",
    "read_bench_json",
    "read_log",
    "read_meta",
    "read_page",
    "read_server_info",
    "schedule",
    "schedule_slots",
]

#: How the series begin that count drafts.
DRAFT_SERIES = "sglang:spec_"
GENERATED = "sglang:generation_tokens"
#: Beginnings of all series that are read.
SERIES = (DRAFT_SERIES, GENERATED)
#: The series that counts requests that lost their cache.
RETRACTIONS = "sglang:num_retracted_requests_total"
#: What marks a log, and parts of all its lines that are read: the server's arguments as well.
LOG_MARKS = ("accept len:",)
LOG_LINES = (*LOG_MARKS, "server_args=")
#: What marks the report of ``sglang.bench_serving``, and the key of its JSON.
BENCH_MARKS = ("Accept length:",)
BENCH_KEY = "accept_length"
#: Keys that a response's meta_info and server_info hold where they tell the acceptance.
RESPONSE_KEY, INFO_KEY = "spec_verify_ct", "avg_spec_accept_length"
#: What it counts: every pass is a verify call.
COUNTED = Counted(engine="sglang", passes=Passes.ALL, bonus=Bonus.IN, tokens=Tokens.ACCEPTED)
#: Algorithms that draft all tokens in one step.
ONE_STEP = ("dflash", "dspark", "ngram")
#: No published drafts of this engine are longer; beyond it, length and rate in a log disagree.
UNUSUAL = 16
#: The fields of such a line that are read.
_FIELDS = {
    "Decode batch": re.compile(r"(Decode batch)"),
    "#running-req": re.compile(rf"#running-req: ({WHOLE})"),
    "accept len": re.compile(rf"accept len: ({DECIMAL})\b"),
}
_RATE = re.compile(rf"accept rate: ({DECIMAL})")
_LOG = re.compile(
    rf"Decode batch.*?#running-req: (?P<running>{WHOLE}).*?accept len: (?P<length>{DECIMAL})\b"
    rf"(?:, (?:[^,]*, )?accept rate: (?P<rate>{DECIMAL}))?"
)
_ARGUMENT = re.compile(
    r"\bspeculative_(?P<name>num_steps|num_draft_tokens|algorithm|adaptive)="
    rf"(?P<value>{WHOLE}|True|'\w+'|\"\w+\")"
)
_BENCH = re.compile(rf"^\s*Accept length:\s+({DECIMAL})", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Settings:
    """How a server drafts, as far as a source says it."""

    steps: int | None = None
    tokens: int | None = None
    algorithm: str | None = None
    adaptive: bool = False

    def lengths(self, mean: float) -> tuple[int, ...]:
        """Return the draft lengths that the settings allow at ``mean`` tokens per step.

        A page says one step and 8 draft tokens of a block of 7, and of a tree one step deep.
        """
        by_tokens = None if self.tokens is None else self.tokens - 1
        if by_tokens and (self.algorithm in ONE_STEP or self.steps is None):
            return (by_tokens,)
        if self.steps is None:
            return ()
        if self.steps == 1 and by_tokens and by_tokens > 1 and self.algorithm is None:
            return (by_tokens,) if mean > 1 + self.steps else (1, by_tokens)
        return (self.steps,)

    def notices(self, where: str, lengths: tuple[int, ...]) -> tuple[Notice, ...]:
        """Return the notice of a tree, or of draft tokens that are taken for a block."""
        if not self.steps or not self.tokens or self.tokens == self.steps + 1:
            return ()
        if self.algorithm in ("dflash", "dspark") or len(lengths) > 1:
            return ()
        if self.algorithm is None and self.steps not in lengths:
            return (notice(Code.TAKEN_FOR_BLOCK, where=where, tokens=self.tokens),)
        return (notice(Code.DRAFT_TREE, where=where, tokens=self.tokens, steps=self.steps),)

    def check(self, mean: float, where: str) -> None:
        """Refuse tokens per step of draft lengths that changed."""
        if self.adaptive:
            raise _changing(mean, where, "speculative_adaptive is on")


def _changing(mean: float, where: str, why: str) -> InputError:
    return InputError(
        f"{mean:.4g} tokens per step belong to no one draft length ({why}); read a server that "
        "runs without --speculative-adaptive",
        where=where,
    )


def _with_settings(reading: Reading, settings: _Settings) -> Reading:
    """Return the reading at the draft length that the settings tell, or at those they allow."""
    settings.check(reading.tokens_per_step, reading.where)
    lengths = settings.lengths(reading.tokens_per_step)
    told = settings.notices(reading.where, lengths)
    return replace(reading, notices=(*reading.notices, *told)).with_draft_lengths(lengths)


def read_page(page: Page, model: str | None) -> Reading:
    """Read the gauges, or between two reads the counters where the build has them."""
    page, name = page.for_model(model, DRAFT_SERIES)
    verify = page.total("sglang:spec_verify_calls_total")
    tokens = page.total(f"{GENERATED}_total")
    notices: tuple[Notice, ...] = ()
    drafts = None
    if page.is_difference and verify and tokens:
        how, mean, drafts = page.how, tokens / verify, verify
        notices = (notice(Code.COUNTED_AT_END, where=page.where),)
    else:
        how = "gauge of its last log interval"
        mean = page.mean("sglang:spec_accept_length") or 0.0
    if mean < 1:
        raise InputError(
            f"sglang:spec_accept_length is {mean:g}: nothing was decoded with drafts "
            "in the last log interval, or speculation is off",
            where=page.where,
        )
    steps, tokens = (page.mean(f"{DRAFT_SERIES}num_{what}") for what in ("steps", "draft_tokens"))
    rate = page.mean("sglang:spec_accept_rate")
    settings = _Settings(steps=_whole(steps), tokens=_whole(tokens))
    reading = Reading(
        counted=replace(COUNTED, tokens=Tokens.EMITTED) if drafts else COUNTED,
        how=how,
        where=page.where,
        model=name,
        tokens_per_step=mean,
        drafts=drafts,
        notices=notices,
    )
    if settings == _Settings():
        return reading if not rate else reading.with_draft_lengths(_by_rate([(mean, rate)]))
    gauge = page.mean("sglang:spec_accept_length")
    if gauge and rate and settings.tokens and not _fits(gauge, rate, settings.tokens):
        why = f"accept length {gauge:.4g} at rate {rate:.4g} is not of {settings.tokens - 1} drafts"
        raise _changing(mean, page.where, why)
    return _with_settings(reading, settings)


def _whole(value: float | None) -> int | None:
    return int(value) if value and value == int(value) else None


def _fits(mean: float, rate: float, tokens: int) -> bool:
    """Return whether length and rate may be of passes over ``tokens`` draft tokens."""
    return any(
        tokens - 1
        in lengths_that_fit(
            tokens_per_step=mean, rate=rate, bonus_in_rate=older, longest=max(tokens, 2)
        )
        for older in (False, True)
    )


def _by_rate(lines: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """Return the draft lengths that fit every pair of length and rate, by either definition.

    Both are printed with two decimals. 2.50 at 0.50 is D = 3, or 4 where the rate is of before
    2026-04; a second line of the same server, 2.00 at 0.33, leaves 3 alone.

    >>> _by_rate([(2.5, 0.5)]), _by_rate([(2.5, 0.5), (2.0, 0.33)])
    ((3, 4), (3,))
    """
    fitting: set[int] = set()
    for older in (False, True):
        each = [
            lengths_that_fit(tokens_per_step=mean, rate=rate, bonus_in_rate=older)
            for mean, rate in lines
        ]
        fitting |= frozenset.intersection(*each)
    usual = tuple(sorted(length for length in fitting if length <= UNUSUAL))
    if usual or not fitting:
        return usual
    means = [sum(column) / len(lines) for column in zip(*lines, strict=True)]
    nearest = round((means[0] - 1) / means[1]) if means[1] else 0
    return (nearest,) if nearest in fitting else tuple(sorted(fitting))[:1]


def read_log(lines: Sequence[str], where: str) -> Reading:
    """Average the ``Decode batch`` lines, each weighted by its running requests."""
    weights = lengths = 0.0
    pairs: list[tuple[float, float]] = []
    used = 0
    settings = _arguments(lines)
    if not any(map(_LOG.search, lines)):
        record = one_record(lines, _FIELDS)
        if _LOG.search(record) is None:
            raise _incomplete(record, where)
        lines = [record]
    for line in lines:
        match = _LOG.search(line)
        if match is None or float(match["length"]) < 1:
            continue
        weight = max(float(match["running"]), 1.0)
        weights += weight
        lengths += weight * float(match["length"])
        used += 1
        if match["rate"] is not None:
            pairs.append((float(match["length"]), float(match["rate"])))
    if not used:
        raise InputError("no 'Decode batch' line with an accept len of at least 1", where=where)
    mean = lengths / weights
    reading = Reading(
        counted=COUNTED,
        how=f"{used} log lines" if used > 1 else "1 log line",
        where=where,
        tokens_per_step=mean,
    )
    if settings != _Settings():
        return _with_settings(reading, settings)
    if len(pairs) < used:
        return reading
    possible = _by_rate(pairs)
    if not possible:
        if used > 1:
            raise _changing(mean, where, "its lines fit no one draft length")
        return reading
    if len(possible) == 1 and possible[0] > UNUSUAL:
        rate = sum(rate for _, rate in pairs) / used
        reading = reading.with_notice(
            notice(
                Code.UNUSUAL_DRAFT_LENGTH,
                where=where,
                tokens_per_step=mean,
                rate=rate,
                draft_length=possible[0],
            )
        )
    return reading.with_draft_lengths(possible)


def _arguments(lines: Sequence[str]) -> _Settings:
    """Return the settings in the last ``server_args=`` line of a log."""
    last = next((line for line in reversed(lines) if "server_args=" in line), "")
    found = {match["name"]: match["value"].strip("'\"") for match in _ARGUMENT.finditer(last)}
    return _settings({f"speculative_{name}": value for name, value in found.items()})


def _settings(values: dict[str, Any]) -> _Settings:
    """Return the settings that ``server_info``, or a line of arguments, states."""

    def whole(name: str) -> int | None:
        value = str(values.get(f"speculative_{name}"))
        return int(value) if value.isdecimal() and len(value) < 6 else None

    algorithm = values.get("speculative_algorithm")
    return _Settings(
        steps=whole("num_steps"),
        tokens=whole("num_draft_tokens"),
        algorithm=algorithm.lower() if isinstance(algorithm, str) else None,
        adaptive=str(values.get("speculative_adaptive")) == "True",
    )


def read_bench(lines: Sequence[str], where: str) -> Reading:
    """Read the report of ``sglang.bench_serving``: the server's mean since its start."""
    means = [float(text) for text in _BENCH.findall("\n".join(lines))]
    if not means or means[-1] < 1:
        raise InputError("no accept length of at least 1", where=where)
    if len(set(means)) > 1:
        raise InputError(
            f"holds {len(means)} reports, of {min(means):g} to {max(means):g} tokens per step; "
            "give one of them",
            where=where,
        )
    return Reading(
        counted=COUNTED,
        how="report of bench_serving, since the server's start",
        where=where,
        tokens_per_step=means[-1],
    )


def read_bench_json(results: Sequence[dict[str, Any]], where: str) -> Reading:
    """Read the last result of ``sglang.bench_serving``, with the server's settings in it."""
    last = results[-1]
    if last[BENCH_KEY] is None:
        return read_server_info(results, where)
    mean = checked_number(last[BENCH_KEY], BENCH_KEY, where)
    if mean < 1:
        raise InputError(f"{BENCH_KEY} is {mean:g}: nothing was drafted", where=where)
    info = last.get("server_info")
    version = info.get("version") if isinstance(info, dict) else None
    reading = Reading(
        counted=replace(COUNTED, version=version if isinstance(version, str) else None),
        how="result of bench_serving, since the server's start",
        where=where,
        tokens_per_step=mean,
    )
    return _with_settings(reading, _settings(info if isinstance(info, dict) else {}))


def _incomplete(record: str, where: str) -> InputError:
    """Return the refusal of a line that lacks fields."""
    found = {name: match[1] for name, p in _FIELDS.items() if (match := p.search(record))}
    rate = _RATE.search(record)
    return incomplete_log(
        where,
        record="'Decode batch' line",
        missing=[name for name in _FIELDS if name not in found],
        tokens_per_step=float(found["accept len"]) if "accept len" in found else None,
        rate=float(rate[1]) if rate else None,
    )


def read_server_info(data: Any, where: str) -> Reading:
    """Read ``/server_info`` (older ``/get_server_info``): the mean since start over its ranks."""
    means = [
        checked_number(item[INFO_KEY], INFO_KEY, where)
        for item in mappings_with(data, INFO_KEY)
        if item[INFO_KEY] is not None
    ]
    active = [value for value in means if value >= 1]
    if not active:
        raise InputError(f"{INFO_KEY} is not set: nothing was drafted yet", where=where)
    mean = sum(active) / len(active)
    stated = next(mappings_with(data, "speculative_num_steps"), {})
    version = next(mappings_with(data, "version"), {}).get("version")
    reading = Reading(
        counted=replace(COUNTED, version=version if isinstance(version, str) else None),
        how="server_info, since its start",
        where=where,
        model=stated.get("served_model_name"),
        tokens_per_step=mean,
    )
    return _with_settings(reading, _settings(stated))


def read_meta(responses: Sequence[dict[str, Any]], where: str) -> Reading:
    """Pool ``meta_info`` of one or more responses: the histogram where there is one."""
    how = "1 response" if len(responses) == 1 else f"{len(responses)} responses"

    def total(key: str) -> float:
        return sum(checked_number(item.get(key, 0), key, where) for item in responses)

    counted = replace(COUNTED, bonus=Bonus.OUT)
    calls, drafted = total(RESPONSE_KEY), total("spec_num_proposed_drafts")
    histograms = [
        [checked_number(value, "spec_correct_drafts_histogram", where) for value in raw]
        for item in responses
        if isinstance(raw := item.get("spec_correct_drafts_histogram"), list) and raw
    ]
    if len(histograms) == len(responses):
        counts = pooled_histogram(histograms)
        # the list grows with what was seen: positions never reached still belong to the draft
        depth = whole_length(drafted / sum(counts)) if drafted and sum(counts) else None
        counts += [0.0] * ((depth or 0) + 1 - len(counts))
        return from_histogram(counts, counted, how=how, where=where, drafted=drafted or None)
    return from_counts(
        counted,
        how=how,
        where=where,
        drafts=calls,
        drafted=drafted,
        accepted=total("spec_num_correct_drafts"),
    )


#: Batches that CUDA graphs are captured for by default, with speculation: 1 to 8, 10 to 32 by 2, 40
#: to 64 by 4, 72 to 256 by 8, then by 16 (generate_decode_cuda_graph_batch_sizes).
CAPTURED = tuple(
    size
    for first, last, step in ((1, 8, 1), (10, 32, 2), (40, 64, 4), (72, 256, 8), (272, 4096, 16))
    for size in range(first, last + 1, step)
)
SCHEDULED = ("eagle1", "eagle3", "mtp")


def check_scheduled(drafter_kind: str) -> None:
    """Refuse a kind of drafter that SGLang takes no schedule for."""
    if drafter_kind not in SCHEDULED:
        raise NoScheduleError(
            f"SGLang adapts EAGLE, EAGLE3 and NEXTN (MTP) only, not {drafter_kind}"
        )


def cell_starts(count: int, captured: Sequence[int] = CAPTURED) -> NDArray[np.intp]:
    """Return where the cell of each batch from 1 to ``count`` starts.

    A cell is the batches that are padded to one captured size; positions count from 0.

    >>> cell_starts(7, [1, 2, 4, 8]).tolist()
    [0, 1, 2, 2, 4, 4, 4]
    """
    sizes = np.unique([0, *captured])
    batches = np.arange(1, count + 1)
    above = np.searchsorted(sizes, batches)  # the captured size that holds a batch
    return np.where(above < len(sizes), sizes[above - 1], batches - 1)


def schedule_slots(
    bands: Sequence[Band], candidates: Sequence[list[int]] | None = None
) -> dict[str, object]:
    """Return the file's content: one slot for each band, keyed by its first batch.

    >>> schedule_slots([Band(first=1, last=8, draft_lengths=(3,))])
    {'1': {'candidate_steps': [3]}}
    """
    steps = candidates or [[band.draft_length] for band in bands]
    return {
        str(band.first): {"candidate_steps": lengths}
        for band, lengths in zip(bands, steps, strict=True)
    }


def schedule(
    bands: Sequence[Band],
    *,
    launch: Launch,
    candidates: Sequence[list[int]] | None = None,
    default_sizes: bool = True,
    data_parallel: int = 1,
) -> EngineText:
    """Return the JSON file, with the flags that start the engine with it in a note.

    The flags start with the longest draft length, which must be one of the candidates. Bands begin
    where the cells of captured sizes do; ``default_sizes`` says that those are SGLang's own. Where
    one draft length is for all batches, the text is the flags for it.
    """
    name, last = launch.engine.name, bands[-1].last
    lengths = {band.draft_length for band in bands}
    copies = data_parallel if launch.placement.dp == 1 else 1
    flags = launch.flags(max(lengths), running=last * copies)
    if len(lengths) == 1 and not candidates:
        return EngineText(text=flags, static=True)
    flags += " --speculative-adaptive --speculative-adaptive-config FILE.json"
    sizes = (
        notice(Code.DEFAULT_SIZES, engine=name, where="/server_info (decode_cuda_graph_bs)")
        if default_sizes
        else notice(Code.GIVEN_SIZES, engine=name)
    )
    notes = [
        notice(Code.LAST_BAND_KEPT, engine=name, above=last, item="slot", flags=flags),
        sizes,
    ]
    if data_parallel > 1:
        notes.append(notice(Code.SCHEDULE_OFF_IN_GROUPS, engine=name))
    return EngineText(
        text=json.dumps(schedule_slots(bands, candidates), indent=1), notes=tuple(notes)
    )
