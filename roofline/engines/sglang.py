"""SGLang: its gauges and counters, log lines, server_info and response meta_info (0.5.23).

Read in sglang/srt/observability/metrics_collector.py, managers/scheduler_components and
managers/tokenizer_manager.py. ``accept length`` counts the bonus token; older builds have it alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from roofline.base.errors import InputError
from roofline.engines.page import Page
from roofline.engines.reading import (
    DECIMAL,
    WHOLE,
    Reading,
    count,
    from_counts,
    from_histogram,
    mappings_with,
    pooled_histogram,
    whole_length,
)

__all__ = ["LOG_MARK", "read_log", "read_meta", "read_page", "read_server_info"]

LOG_MARK = "accept len:"
#: Deeper drafts than any published for this engine: a length and a rate that disagree.
UNUSUAL = 16
_LOG = re.compile(
    rf"Decode batch.*?#running-req: (?P<running>{WHOLE}).*?accept len: (?P<length>{DECIMAL})\b"
    rf"(?:, (?:[^,]*, )?accept rate: (?P<rate>{DECIMAL}))?"
)


def read_page(page: Page, model: str | None) -> Reading:
    """Read the gauges, or between two reads the counters where the build has them."""
    page, name = page.for_model(model)
    verify = page.total("sglang:spec_verify_calls_total")
    tokens = page.total("sglang:generation_tokens_total")
    warnings: tuple[str, ...] = ()
    drafts = None
    if page.is_difference and verify and tokens:
        how, mean, drafts = page.how, tokens / verify, verify
        warnings = (
            f"{page.where}: verify calls are counted when a request finishes; take a long interval",
        )
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
        warnings=warnings + _tree(page),
    )


def _tree(page: Page) -> tuple[str, ...]:
    steps, tokens = page.mean("sglang:spec_num_steps"), page.mean("sglang:spec_num_draft_tokens")
    if not steps or not tokens or tokens == steps + 1:
        return ()
    warning = (
        f"{page.where}: {tokens:g} draft tokens over {steps:g} steps is a tree; its tokens per "
        "step do not hold for a chain"
    )
    return (warning,)


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
    for line in lines:
        match = _LOG.search(line)
        if match is None or float(match["length"]) < 1:
            continue
        weight = max(float(match["running"]), 1.0)
        weights, lengths, used = (
            weights + weight,
            lengths + weight * float(match["length"]),
            used + 1,
        )
        rated = rated and match["rate"] is not None
        rates += weight * float(match["rate"] or 0)
    if not used:
        raise InputError("no 'Decode batch' line with an accept len of at least 1", where=where)
    mean, rate = lengths / weights, rates / weights
    length = _length(mean, steps=None, tokens=None, rate=rate if rated else None)
    doubt = (
        f"{where}: accept len {mean:.2f} at accept rate {rate:.2f} would be {length} drafts a "
        "pass: if the server makes fewer, the two contradict each other"
    )
    return Reading(
        engine="sglang",
        how=f"{used} log lines" if used > 1 else "1 log line",
        where=where,
        tokens_per_step=mean,
        draft_length=length,
        warnings=(doubt,) if length is not None and length > UNUSUAL else (),
    )


def read_server_info(data: Any, where: str) -> Reading:
    """Read ``/server_info`` (older ``/get_server_info``): the mean since start over its ranks."""
    found = [
        count(item["avg_spec_accept_length"], "avg_spec_accept_length", where)
        for item in mappings_with(data, "avg_spec_accept_length")
        if item["avg_spec_accept_length"] is not None
    ]
    active = [value for value in found if value >= 1]
    if not active:
        raise InputError("avg_spec_accept_length is not set: nothing was drafted yet", where=where)
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


def read_meta(found: Sequence[dict[str, Any]], where: str) -> Reading:
    """Pool ``meta_info`` of one or more responses: the histogram where there is one."""
    how = "1 response" if len(found) == 1 else f"{len(found)} responses"

    def total(key: str) -> float:
        return sum(count(item.get(key, 0), key, where) for item in found)

    calls, drafted = total("spec_verify_ct"), total("spec_num_proposed_drafts")
    histograms = [
        [count(value, "spec_correct_drafts_histogram", where) for value in raw]
        for item in found
        if isinstance(raw := item.get("spec_correct_drafts_histogram"), list) and raw
    ]
    if len(histograms) == len(found):
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
