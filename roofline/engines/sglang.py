"""SGLang: acceptance on its pages, in its log and JSON (0.5.23); the schedules that it takes.

Acceptance (sglang/srt/observability/metrics_collector.py, managers/scheduler_components and
managers/tokenizer_manager.py): ``accept length`` counts the bonus token; older builds have it
alone.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.engines.counts import (
    DECIMAL,
    WHOLE,
    Reading,
    checked_number,
    from_counts,
    from_histogram,
    incomplete_log,
    mappings_with,
    one_record,
    pooled_histogram,
    whole_length,
)
from roofline.engines.prometheus import Page
from roofline.engines.writing import Band, EngineText, Launch, NoScheduleError

__all__ = [
    "CAPTURED",
    "DRAFT_SERIES",
    "GENERATED",
    "INFO_KEY",
    "LOG_LINES",
    "RESPONSE_KEY",
    "RETRACTIONS",
    "SERIES",
    "cell_starts",
    "check_scheduled",
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
#: Parts of the log lines that are read.
LOG_LINES = ("accept len:",)
#: Keys that a response's meta_info and server_info hold where they tell the acceptance.
RESPONSE_KEY, INFO_KEY = "spec_verify_ct", "avg_spec_accept_length"
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
    return Reading(
        engine="sglang",
        how=how,
        where=page.where,
        model=name,
        tokens_per_step=mean,
        draft_length=_length(
            mean,
            steps=page.mean("sglang:spec_num_steps"),
            tokens=page.mean("sglang:spec_num_draft_tokens"),
            rate=page.mean("sglang:spec_accept_rate"),
        ),
        drafts=drafts,
        notices=notices + _tree(page),
    )


def _tree(page: Page) -> tuple[Notice, ...]:
    steps, tokens = page.mean("sglang:spec_num_steps"), page.mean("sglang:spec_num_draft_tokens")
    if not steps or not tokens or tokens == steps + 1:
        return ()
    return (notice(Code.DRAFT_TREE, where=page.where, tokens=tokens, steps=steps),)


def _length(
    mean: float, *, steps: float | None, tokens: float | None, rate: float | None
) -> int | None:
    """Return D: the steps, else draft tokens - 1, else (AL - 1) / rate where that is whole."""
    for known in (steps, tokens - 1 if tokens else None):
        if known and known == int(known):
            return int(known)
    # both are printed with two decimals: at D = 7 that leaves an error of about 0.1
    return whole_length((mean - 1) / rate, slack=0.2) if rate else None


def read_log(lines: Sequence[str], where: str) -> Reading:
    """Average the ``Decode batch`` lines, each weighted by its running requests."""
    weights = lengths = rates = 0.0
    used, rated = 0, True
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
        rated = rated and match["rate"] is not None
        rates += weight * float(match["rate"] or 0)
    if not used:
        raise InputError("no 'Decode batch' line with an accept len of at least 1", where=where)
    mean, rate = lengths / weights, rates / weights
    length = _length(mean, steps=None, tokens=None, rate=rate if rated else None)
    unusual = notice(
        Code.UNUSUAL_DRAFT_LENGTH,
        where=where,
        tokens_per_step=mean,
        rate=rate,
        draft_length=length,
    )
    return Reading(
        engine="sglang",
        how=f"{used} log lines" if used > 1 else "1 log line",
        where=where,
        tokens_per_step=mean,
        draft_length=length,
        notices=(unusual,) if length is not None and length > UNUSUAL else (),
    )


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
    settings = next(mappings_with(data, "speculative_num_steps"), {})
    steps, tokens = (settings.get(f"speculative_num_{key}") for key in ("steps", "draft_tokens"))
    return Reading(
        engine="sglang",
        how="server_info, since its start",
        where=where,
        model=settings.get("served_model_name"),
        tokens_per_step=mean,
        draft_length=_length(mean, steps=steps, tokens=tokens, rate=None),
    )


def read_meta(responses: Sequence[dict[str, Any]], where: str) -> Reading:
    """Pool ``meta_info`` of one or more responses: the histogram where there is one."""
    how = "1 response" if len(responses) == 1 else f"{len(responses)} responses"

    def total(key: str) -> float:
        return sum(checked_number(item.get(key, 0), key, where) for item in responses)

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
        return from_histogram(
            counts, engine="sglang", how=how, where=where, drafted=drafted or None
        )
    return from_counts(
        engine="sglang",
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
