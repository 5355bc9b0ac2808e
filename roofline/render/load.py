"""The answer over a load, in the four ways an answer is written."""

from __future__ import annotations

import json
import math
from typing import Any

from roofline.advice.decide import dollars_per_million
from roofline.advice.paste import flag, pasted
from roofline.base.files import csv_text
from roofline.questions.load.answer import LoadAnswer
from roofline.questions.load.policies import Policy
from roofline.render.columns import markdown_table, text_table, wrap
from roofline.render.data import inputs_data, provenance, summary
from roofline.render.formats import OutputFormat, setting
from roofline.render.load_sentences import (
    headline,
    overloaded,
    past,
    reading,
    schedule_notes,
    scheduled,
    where,
)
from roofline.render.notices import assumptions, warnings
from roofline.render.sentences import dollars

__all__ = ["render_load"]

SCHEMA = "roofline.load/1"
_SHARED = (
    ("tokens\nper burst", "tokens_per_step", "{:.2f}"),
    ("TPOT\nms", "tpot_ms", "{:.2f}"),
    ("gap\np50 ms", "gap_p50_ms", "{:.1f}"),
    ("gap\np99 ms", "gap_p99_ms", "{:.1f}"),
    ("gain", "gain", "{:.2f}x"),
)
_ARRIVALS = (
    ("running\nbatch", "running", "{:.1f}"),
    *_SHARED,
    ("most\nreq/s", "most_rps", "{:.3g}"),
)
_HISTOGRAM = (*_SHARED, ("tokens/s\nof all", "tokens_per_s", "{:.0f}"))
_FULL = ("$/M\nat most", "dollars_per_million_at_most", "{:.3g}")
_COST = ("$/M\ntokens", "dollars_per_million_tokens", "{:.3g}")


def render_load(answer: LoadAnswer, how: OutputFormat) -> str:
    """Return the answer in the format asked for, ending in a newline."""
    if how is OutputFormat.JSON:
        return json.dumps(as_data(answer), indent=2, allow_nan=False) + "\n"
    if how is OutputFormat.CSV:
        return _csv(answer)
    marked = how is OutputFormat.MARKDOWN
    headers, rows = _table(answer)
    lines = [
        *(f"**{line}**" if marked else line for line in [headline(answer)]),
        setting(answer.question, where=where(answer)),
    ]
    after = [
        reading(answer),
        *past(answer),
        *overloaded(answer),
        *_cost(answer),
        scheduled(answer),
    ]
    table = markdown_table(headers, rows) if marked else text_table(headers, rows)
    text = f"{answer.question.deployment.engine.name}:\n  {_paste(answer)}"
    if marked:
        return (
            "\n\n".join([*lines, table, *after, f"```\n{_paste(answer)}\n```", *_foot(answer)])
            + "\n"
        )
    foot = "\n".join(map(wrap, _foot(answer)))
    return "\n\n".join([*map(wrap, lines), table, *map(wrap, after), text, foot]) + "\n"


def as_data(answer: LoadAnswer) -> dict[str, Any]:
    """Return the whole answer as JSON-ready data."""
    load, cut = answer.load, answer.chunks
    return {
        "schema": SCHEMA,
        "inputs": inputs_data(answer.question),
        "load": {
            "rps": load.rps,
            "input_tokens": load.input_tokens,
            "output_tokens": load.output_tokens,
            "histogram": None
            if load.histogram is None
            else [{"batch": batch, "share": float(load.share[batch])} for batch in load.histogram],
            "context": load.length,
            "chunk_tokens": cut.each,
            "chunks_per_prompt": cut.per_prompt,
            "chunks_per_step": cut.most,
        },
        "draft_length": answer.advised.draft_length,
        "gain": _number(answer.advised.gain),
        "headline": headline(answer),
        "flag": flag(
            answer.question.deployment,
            answer.advised.draft_length or 0,
            running=answer.advised.slots,
        ),
        "policies": [_policy(answer, policy) for policy in answer.policies],
        "schedule": None if answer.schedule is None else answer.schedule.text,
        "notes": schedule_notes(answer),
        "warnings": warnings(answer.notices),
        "provenance": provenance(answer.question, answer.times),
    }


def _policy(answer: LoadAnswer, policy: Policy) -> dict[str, Any]:
    data = {
        "policy": "schedule" if policy.draft_length is None else "fixed",
        "draft_length": policy.draft_length,
        "usable": policy.usable,
        "running": _number(policy.running),
        "waiting": _number(policy.waiting),
        "slots": policy.slots,
        "tokens_per_step": _number(policy.tokens_per_step),
        "tpot_ms": _number(1e3 * policy.tpot),
        "gap_p50_ms": _number(1e3 * policy.gap_p50),
        "gap_p99_ms": _number(1e3 * policy.gap_p99),
        "gaps_with_prompt": _number(policy.with_prompt),
        "gaps_past_graphs": _number(policy.past_graphs),
        "tokens_per_s": _number(policy.tokens_per_s),
        "gain": _number(policy.gain),
        "most_rps": policy.most_rps,
    }
    price = answer.question.workload.gpu_hour
    if price is None:
        return data
    gpus = answer.question.deployment.cards
    full = (policy.most_rps or math.nan) * (answer.load.output_tokens or 0)
    rates = {"tokens": policy.tokens_per_s, "at_most": full}
    for name, rate in rates.items():
        cost = dollars_per_million(gpu_hour=price, gpus=gpus, tokens_per_s=rate or math.nan)
        data[f"dollars_per_million_{name}"] = _number(float(cost))
    return data


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _table(answer: LoadAnswer) -> tuple[list[str], list[list[str]]]:
    arrivals = answer.load.rps is not None
    columns = _ARRIVALS if arrivals else _HISTOGRAM
    if answer.question.workload.gpu_hour is not None:
        columns = (*columns, _FULL if arrivals else _COST)
    rows = []
    for policy in answer.policies:
        data = _policy(answer, policy)
        name = "schedule" if policy.draft_length is None else f"{policy.draft_length}"
        mark = "* " if policy is answer.advised else "! " if policy.past else ""
        cells = ["-" if data[key] is None else form.format(data[key]) for _, key, form in columns]
        rows.append([f"{mark}{name}", *cells])
    return ["D", *(name for name, _, _ in columns)], rows


def _cost(answer: LoadAnswer) -> list[str]:
    price = answer.question.workload.gpu_hour
    if price is None:
        return []
    best, plain = (_policy(answer, policy) for policy in (answer.advised, answer.plain))
    start = f"At {dollars(price)} per GPU-hour and {answer.question.deployment.cards} GPU(s): "
    length = f"draft length {answer.advised.draft_length}"

    def cost(policy: dict[str, Any], name: str) -> str:
        amount = policy[f"dollars_per_million_{name}"]
        return "nothing" if amount is None else dollars(amount)

    if answer.load.rps is None:
        line = (
            f"{start}{cost(best, 'tokens')} per million output tokens with {length}, "
            f"{cost(plain, 'tokens')} without speculation."
        )
    else:
        line = (
            f"{start}{cost(best, 'tokens')} per million output tokens at this load, whatever the "
            f"draft length; at the most requests that each can serve, {cost(best, 'at_most')} with "
            f"{length} and {cost(plain, 'at_most')} without speculation."
        )
    return [line]


def _paste(answer: LoadAnswer) -> str:
    if answer.schedule is not None and answer.schedule_pays:
        return answer.schedule.text
    advised = answer.advised
    return pasted(answer.question.deployment, advised.draft_length or 0, running=advised.slots)


def _foot(answer: LoadAnswer) -> list[str]:
    load, cut = answer.load, answer.chunks
    lines = []
    if load.rps is not None:
        lines.append(
            "Assumed: requests arrive at random and independently (Poisson) with these lengths; at "
            f"most {answer.advised.slots} run at once"
        )
    if cut.most:
        lines.append(
            f"Assumed: prompts are read in {cut.per_prompt} chunk(s) of {cut.each:.0f} tokens, up "
            f"to {cut.most} in a step (--prefill-chunk)"
        )
    lines += [f"Assumed: {text}" for text in assumptions(answer.question.notices)]
    return [*lines, summary(answer.question, answer.times)]


def _csv(answer: LoadAnswer) -> str:
    shared = {key: inputs_data(answer.question)[key] for key in ("model", "gpu", "gpus", "tp")}
    return csv_text(
        [
            {**shared, **_policy(answer, policy), "recommended": policy is answer.advised}
            for policy in answer.policies
        ]
    )
