"""The answer over a load as a table, JSON, CSV or Markdown."""

from __future__ import annotations

import json
import math
from typing import Any

from roofline.advice.decide import dollars_per_million
from roofline.base.errors import Option
from roofline.base.files import csv_text
from roofline.questions.load.answer import LoadAnswer
from roofline.questions.load.policies import Policy
from roofline.render.data import inputs_data, provenance, summary
from roofline.render.formats import Column, OutputFormat, markdown_table, text_table, wrap
from roofline.render.load_sentences import (
    headline,
    overloaded,
    reading,
    schedule_line,
    schedule_notes,
    uncaptured,
    where,
)
from roofline.render.notices import assumed_lines, warnings
from roofline.render.recommendation import COST, setting
from roofline.render.sentences import dollars

__all__ = ["render_load"]

SCHEMA = "roofline.load/1"
_SHARED = (
    Column("tokens\nper burst", "tokens_per_step", "{value:.2f}"),
    Column("TPOT\nms", "tpot_ms", "{value:.2f}"),
    Column("gap\np50 ms", "gap_p50_ms", "{value:.1f}"),
    Column("gap\np99 ms", "gap_p99_ms", "{value:.1f}"),
    Column("gain", "gain", "{value:.2f}x"),
)
_ARRIVALS = (
    Column("running\nbatch", "running", "{value:.1f}"),
    *_SHARED,
    Column("most\nreq/s", "most_rps", "{value:.3g}"),
)
_HISTOGRAM = (*_SHARED, Column("tokens/s\nof all", "tokens_per_s", "{value:.0f}"))
_COST_AT_MOST = Column("$/M\nat most", "dollars_per_million_at_most", "{value:.3g}")


def render_load(answer: LoadAnswer, how: OutputFormat) -> str:
    """Return the answer in the format asked for, ending in a newline."""
    if how is OutputFormat.JSON:
        return json.dumps(as_data(answer), indent=2, allow_nan=False) + "\n"
    if how is OutputFormat.CSV:
        return _csv(answer)
    headers, rows = _table(answer)
    description = setting(answer.question, where=where(answer))
    after = [
        reading(answer),
        *uncaptured(answer),
        *overloaded(answer),
        *_cost_lines(answer),
        schedule_line(answer),
    ]
    if how is OutputFormat.MARKDOWN:
        blocks = [
            f"**{headline(answer)}**",
            description,
            markdown_table(headers, rows),
            *after,
            f"```\n{_to_paste(answer)}\n```",
            *_footer(answer),
        ]
    else:
        blocks = [
            wrap(headline(answer)),
            wrap(description),
            text_table(headers, rows),
            *map(wrap, after),
            f"{answer.question.deployment.engine.name}:\n  {_to_paste(answer)}",
            "\n".join(map(wrap, _footer(answer))),
        ]
    return "\n\n".join(blocks) + "\n"


def as_data(answer: LoadAnswer) -> dict[str, Any]:
    """Return the whole answer as JSON-ready data."""
    load, chunks = answer.load, answer.chunks
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
            "chunk_tokens": chunks.each,
            "chunks_per_prompt": chunks.per_prompt,
            "chunks_per_step": chunks.most,
        },
        "draft_length": answer.advised.draft_length,
        "gain": _number(answer.advised.gain),
        "headline": headline(answer),
        "flag": answer.question.deployment.launch.flags(
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
    tokens_at_most = (policy.most_rps or math.nan) * (answer.load.output_tokens or 0)
    rates = {"tokens": policy.tokens_per_s, "at_most": tokens_at_most}
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
        columns = (*columns, _COST_AT_MOST if arrivals else COST)
    rows = []
    for policy in answer.policies:
        data = _policy(answer, policy)
        name = "schedule" if policy.draft_length is None else f"{policy.draft_length}"
        mark = "* " if policy is answer.advised else "! " if policy.past else ""
        cells = [
            "-" if data[column.key] is None else column.form.format(value=data[column.key])
            for column in columns
        ]
        rows.append([f"{mark}{name}", *cells])
    return ["D", *(column.heading for column in columns)], rows


def _cost_lines(answer: LoadAnswer) -> list[str]:
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


def _to_paste(answer: LoadAnswer) -> str:
    if answer.schedule is not None and answer.schedule_pays:
        return answer.schedule.text
    advised = answer.advised
    return answer.question.deployment.launch.flags_and_omission(
        advised.draft_length or 0, running=advised.slots
    )


def _footer(answer: LoadAnswer) -> list[str]:
    load, chunks = answer.load, answer.chunks
    lines = []
    if load.rps is not None:
        lines.append(
            "Assumed: requests arrive at random and independently (Poisson) with these lengths; at "
            f"most {answer.advised.slots} run at once"
        )
    if chunks.most:
        lines.append(
            f"Assumed: prompts are read in {chunks.per_prompt} chunk(s) of {chunks.each:.0f} "
            f"tokens, up to {chunks.most} in a step ({Option('prefill_chunk')})"
        )
    question = answer.question
    return [*lines, *assumed_lines(question.notices), summary(question, answer.times)]


def _csv(answer: LoadAnswer) -> str:
    inputs = inputs_data(answer.question)
    shared = {key: inputs[key] for key in ("model", "gpu", "gpus", "tp")}
    return csv_text(
        [
            {**shared, **_policy(answer, policy), "recommended": policy is answer.advised}
            for policy in answer.policies
        ]
    )
