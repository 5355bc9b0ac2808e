"""TensorRT-LLM: iteration statistics as JSON, and its Prometheus page (the 1.3 line).

Read in tensorrt_llm/metrics/collector.py and the tests that use LLM.get_stats().
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.base.errors import InputError
from roofline.engines.facts import Fact, Read, Unread
from roofline.engines.page import Page
from roofline.engines.reading import Decoded, Reading, count, from_counts, whole_length

__all__ = ["SERIES", "load_of", "read_page", "read_stats"]

SERIES = "trtllm_"
PREFIX = "trtllm_spec_decode_"


def read_page(page: Page, model: str | None) -> Reading:
    """Read the counters by position, else the acceptance-length gauge."""
    page, name = page.for_model(model)
    drafted = page.by_label("token_position", f"{PREFIX}drafted_tokens_total")
    accepted = page.by_label("token_position", f"{PREFIX}accepted_tokens_total")
    if drafted and len(drafted) == len(accepted):
        return from_counts(
            engine="trtllm",
            how=f"{page.how}, finished requests",
            where=page.where,
            model=name,
            drafts=drafted[0],
            drafted=sum(drafted),
            accepted=sum(accepted),
            per_position=accepted,
        )
    mean = page.mean(f"{PREFIX}acceptance_length")
    if mean is None:
        raise InputError(
            f"the page has neither {PREFIX}drafted_tokens_total by position "
            f"(return_perf_metrics: true) nor {PREFIX}acceptance_length",
            where=page.where,
        )
    if mean < 1:
        raise InputError(
            f"{PREFIX}acceptance_length is {mean:g}: nothing drafted", where=page.where
        )
    return Reading(
        engine="trtllm",
        how="gauge of its last iteration",
        where=page.where,
        model=name,
        tokens_per_step=mean,
        draft_length=_gauge_length(page, mean),
    )


def _gauge_length(page: Page, mean: float) -> int | None:
    """Return D = (AL - 1) / (accepted / drafted) where older builds' gauges give a whole one."""
    drafted = page.total(f"{PREFIX}num_draft_tokens_total", f"{PREFIX}num_draft_tokens")
    accepted = page.total(f"{PREFIX}num_accepted_tokens_total", f"{PREFIX}num_accepted_tokens")
    return whole_length((mean - 1) * drafted / accepted) if drafted and accepted else None


def read_stats(found: Sequence[dict[str, Any]], where: str) -> Reading:
    """Pool ``specDecodingStats`` of many iterations: AL = (accepted + requests) / requests.

    Requests and iterations without drafts count where ``inflightBatchingStats`` holds them.
    """
    drafted = accepted = requests = passes = 0.0
    used, whole = 0, True
    for item in found:
        passes += _inner(item, "inflightBatchingStats", "numGenRequests") or 0.0
        whole = whole and isinstance(item.get("inflightBatchingStats"), dict)
        stats = item["specDecodingStats"]
        if not isinstance(stats, dict):
            continue
        tokens = count(stats.get("numDraftTokens"), "numDraftTokens", where)
        if tokens == 0:
            continue
        used += 1
        drafted += tokens
        accepted += count(stats.get("numAcceptedTokens"), "numAcceptedTokens", where)
        requests += count(
            stats.get("numRequestsWithDraftTokens"), "numRequestsWithDraftTokens", where
        )
    return from_counts(
        engine="trtllm",
        how=f"{used} iterations" if used != 1 else "1 iteration",
        where=where,
        drafts=requests,
        drafted=drafted,
        accepted=accepted,
        decoded=Decoded(tokens=passes + accepted, passes=passes) if whole and passes else None,
    )


def load_of(found: Sequence[dict[str, Any]]) -> dict[str, Fact]:
    """Return batch and context over iterations that generated; each says what was in flight."""
    batches, tokens = [], []
    for item in found:
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
    """Return a plausible number of a nested mapping."""
    inside = item.get(group)
    value = inside.get(name) if isinstance(inside, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        return None
    return float(value)
