"""The answer for whole requests: its blocks, its rows and its data."""

from __future__ import annotations

import math
from typing import Any

from roofline.advice.columns import printed
from roofline.base.units import format_count, format_size
from roofline.kernels.ops import PromptShape
from roofline.questions.request.answer import Ranged, RequestAnswer, RequestPoint
from roofline.render.blocks import Answer, Block, Note, Paragraph, Table, Tone, table
from roofline.render.data import acceptance_data, inputs_data, provenance, summary
from roofline.render.notices import notes, notes_data, warnings
from roofline.render.recommendation import engine_blocks, setting
from roofline.render.why import DO_NOT_SPECULATE, NOT_MEASURED

__all__ = ["answer_blocks", "as_answer", "data", "headline", "rows"]

SCHEMA = "roofline.request/1"
_TIMES = (
    printed("ttft_ms", "TTFT\nms", "{value:.0f}"),
    printed("tpot_ms", "TPOT\nms", "{value:.2f}"),
    printed("request_s", "request\ns", "{value:.2f}"),
    printed("prompt_share", "of it\nprompts", "{value:.0%}"),
    printed("speedup_per_step", "per\ntoken", "{value:.2f}x"),
    printed("speedup", "per\nrequest", "{value:.2f}x"),
    printed("speedup_low", "80 %\nrange", "{value:.2f}-{speedup_high:.2f}x"),
)
_BY_LENGTH = (
    printed("marked", "D", "{value}"),
    printed("tokens_per_step", "tokens\nper step", "{value:.2f}"),
    *_TIMES,
)
_BY_BATCH = (printed("batch", "batch", "{value}"), printed("draft_length", "D", "{value}"), *_TIMES)


def as_answer(answer: RequestAnswer) -> Answer:
    """Return the answer in every form."""
    return Answer(
        headlines=lambda: [headline(answer, point) for point in answer.points],
        blocks=lambda: answer_blocks(answer),
        notes=(*notes(answer.notices), *_own_notes(answer)),
        more=lambda: [Paragraph(summary(answer.question, answer.times))],
        data=lambda: data(answer),
        rows=lambda: rows(answer),
    )


def headline(answer: RequestAnswer, point: RequestPoint) -> str:
    """Return the advice for one batch in a sentence."""
    start = f"{_requests_named(answer)} at batch {point.batch}: "
    share = point.prompt_share[0]
    if point.draft_length == 0:
        return f"{start}{DO_NOT_SPECULATE}; prompts take {share:.0%} of its time."
    question = answer.question
    option = question.deployment.engine.name_of_length(question.deployment.drafter.kind)
    gain, low, high = point.per_request.at(point.best)
    token = point.per_step.at(point.best)[0]
    counted = f" ({NOT_MEASURED})" if question.acceptance.unknown else ""
    return (
        f"{start}run draft length {point.draft_length} ({option}): {token:.2f}x per token, "
        f"{gain:.2f}x per request ({low:.2f}x to {high:.2f}x){counted}; without speculation "
        f"prompts take {share:.0%} of its time."
    )


def _requests_named(answer: RequestAnswer) -> str:
    requests = answer.requests
    if requests.source is None:
        return (
            f"A request of {format_size(int(requests.mean_input))} tokens in and "
            f"{format_size(int(requests.mean_output))} out"
        )
    return (
        f"The mean of {requests.count} requests of {requests.source} "
        f"({requests.mean_input:.0f} tokens in, {requests.mean_output:.0f} out)"
    )


def answer_blocks(answer: RequestAnswer) -> list[Block]:
    """Return the advice of each batch, its numbers, and what to paste."""
    points, question = answer.points, answer.question
    blocks: list[Block] = [Paragraph(headline(answer, p), tone=Tone.HEADLINE) for p in points]
    if answer.refused:
        named = ", ".join(map(str, answer.refused))
        most = format_count(answer.largest_batch, "request")
        blocks.append(
            Paragraph(f"Batch {named}: does not fit in memory with these lengths; {most} do.")
        )
    blocks.append(Paragraph(setting(question, where=_where(answer))))
    blocks.append(_table(answer))
    blocks.append(Paragraph(_reading(answer), tone=Tone.QUIET, close=True))
    blocks += [Paragraph(_ranges(point)) for point in points[:1] if len(points) == 1]
    return [
        *blocks,
        *engine_blocks(question, points[0].draft_length, running=points[0].batch),
    ]


def _where(answer: RequestAnswer) -> str:
    return f"mean context {format_size(answer.requests.context)}"


def _table(answer: RequestAnswer) -> Table:
    """Return the draft lengths of one batch, or the advised one of several."""
    if len(answer.points) > 1:
        return table(_BY_BATCH, [_row(p, p.best) for p in answer.points])
    (point,) = answer.points
    shown = []
    for at, length in enumerate(point.draft_lengths):
        mark = "* " if at == point.best else "  " if point.usable[at] else "! "
        shown.append(_row(point, at) | {"marked": f"{mark}{length}"})
    return table(_BY_LENGTH, shown)


def _reading(answer: RequestAnswer) -> str:
    past = any(not point.usable.all() for point in answer.points)
    marks = "*: advised. " if len(answer.points) == 1 else ""
    if past and marks:
        marks += "!: does not fit, or leaves the captured graphs. "
    return (
        f"{marks}TTFT: time to the first token. TPOT: time per later token. Both hold the prompts "
        "of others, which ride along. Per token: speedup of passes without prompts; per request: "
        "of the whole time of a request."
    )


def _ranges(point: RequestPoint) -> str:
    """Say the ranges of the advised times."""
    shown = []
    for name, ranged, unit, scale in (
        ("TTFT", point.ttft, "ms", 1e3),
        ("TPOT", point.tpot, "ms", 1e3),
        ("a request", point.e2e, "s", 1.0),
    ):
        value, low, high = ranged.at(point.best)
        if not math.isnan(value):
            digits = 0 if name == "TTFT" else 2
            shown.append(f"{name} {scale * low:.{digits}f} to {scale * high:.{digits}f} {unit}")
    plain = [f"{1e3 * x:.0f}" for x in point.ttft.at(0)]
    return (
        f"In four of five cases {', '.join(shown)}. Without speculation the first token comes "
        f"after {plain[0]} ms ({plain[1]} to {plain[2]})."
    )


def _row(point: RequestPoint, at: int) -> dict[str, Any]:
    """Return one draft length at one batch."""
    row: dict[str, Any] = {
        "batch": point.batch,
        "draft_length": point.draft_lengths[at],
        "usable": bool(point.usable[at]),
        "recommended": at == point.best,
        "tokens_per_step": float(point.tokens_per_step[at]),
    }
    named: tuple[tuple[str, Ranged, float], ...] = (
        ("ttft_ms", point.ttft, 1e3),
        ("tpot_ms", point.tpot, 1e3),
        ("request_s", point.e2e, 1.0),
        ("speedup_per_step", point.per_step, 1.0),
        ("speedup_per_token", point.per_token, 1.0),
        ("speedup", point.per_request, 1.0),
    )
    for key, ranged, scale in named:
        start, _, unit = key.partition("_") if key[0] != "s" else (key, "", "")
        for suffix, value in zip(("", "_low", "_high"), ranged.at(at), strict=True):
            name = f"{start}{suffix}_{unit}" if unit else f"{start}{suffix}"
            row[name] = scale * value if math.isfinite(value) else None
    row["prompt_share"] = float(point.prompt_share[at])
    return row


def rows(answer: RequestAnswer) -> list[dict[str, Any]]:
    """Return a row for every batch and draft length."""
    inputs = inputs_data(answer.question)
    shared = {key: inputs[key] for key in ("model", "gpu", "gpus", "tp")}
    return [
        {**shared, **_row(point, at)}
        for point in answer.points
        for at in range(len(point.draft_lengths))
    ]


def data(answer: RequestAnswer) -> dict[str, Any]:
    """Return the whole answer as JSON-ready data."""
    requests, question = answer.requests, answer.question
    return {
        "schema": SCHEMA,
        "inputs": inputs_data(question),
        "acceptance": acceptance_data(question),
        "requests": {
            "trace": requests.source,
            "count": requests.count,
            "requests_per_s": requests.rate,
            "chunk_tokens": answer.priced.budget,
            "groups": [
                {"share": s, "input_tokens": i, "output_tokens": o, "prefix_tokens": p}
                for s, i, o, p in zip(
                    requests.shares,
                    requests.input_tokens,
                    requests.output_tokens,
                    requests.prefix_tokens,
                    strict=True,
                )
            ],
        },
        "points": [
            {
                "batch": point.batch,
                "draft_length": point.draft_length,
                "headline": headline(answer, point),
                "flag": question.deployment.launch.flags(point.draft_length, running=point.batch),
                "by_draft_length": [_row(point, at) for at in range(len(point.draft_lengths))],
            }
            for point in answer.points
        ],
        "refused": [{"batch": batch} for batch in answer.refused],
        "warnings": warnings(answer.notices),
        "notes": [
            *notes_data(answer.notices),
            *(note._asdict() for note in _own_notes(answer)),
        ],
        "provenance": provenance(question, answer.times),
    }


def _own_notes(answer: RequestAnswer) -> tuple[Note, ...]:
    """Return what was assumed of requests."""
    requests = answer.requests
    most = max(answer.priced.counts)
    found = [
        Note(
            code="closed-loop",
            text="as many requests as the batch are always there: each one that ends is followed "
            "by the next, which waits for the pass that is under way",
            assumption=True,
        ),
        Note(
            code="front-end",
            text=f"TTFT holds {1e3 * answer.priced.front_end:.0f} ms of what a server does around "
            "its passes, as public runs do in their median: 8 to 140 ms in four of five",
            assumption=True,
        ),
        Note(
            code="request-chunks",
            text=f"prompts are read in up to {format_count(int(most), 'chunk')} of at most "
            f"{answer.priced.budget} tokens",
            assumption=True,
        ),
    ]
    if requests.mean_prefix:
        found.append(
            Note(
                code="prefix-hits",
                text=f"{requests.mean_prefix:.0f} tokens of a prompt are found in the prefix "
                "cache: attended to, not computed",
                assumption=True,
            )
        )
    if requests.rate is not None:
        found.append(
            Note(
                code="trace-rate",
                text=f"the trace brings {requests.rate:.3g} requests/s; the answer is for the "
                "batch asked about",
            )
        )
    reading = [t for t in answer.times.verify_ops if isinstance(t.op.shape, PromptShape)]
    if any(time.chosen.provenance == "assumed" for time in reading):
        sources = ", ".join(sorted({t.chosen.detail for t in reading}))
        found.append(
            Note(
                code="prompt-kernels-assumed",
                text=f"kernels that read prompts were not measured here: {sources}",
                assumption=True,
            )
        )
    return tuple(found)
