"""The answer of ``compare`` as a table, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from roofline.base.files import csv_text
from roofline.base.units import format_size
from roofline.questions.compare import ComparedDrafter
from roofline.render.deployment import deployment_data, gpus_named, set_column, set_data, set_line
from roofline.render.formats import OutputFormat, markdown_table, text_table, wrap
from roofline.render.refusals import refused_data, refused_lines, room_columns
from roofline.specs.overrides import Change

__all__ = ["render_compare"]

SCHEMA = "roofline.compare/1"
WIDTH = 14  # characters of a drafter's name


def render_compare(points: list[list[ComparedDrafter]], how: OutputFormat) -> str:
    """Return the comparison in the format asked for, ending in a newline.

    ``points`` has the drafters of every batch and context.
    """
    if how is OutputFormat.JSON:
        data = {
            "schema": SCHEMA,
            "inputs": deployment_data(points[0][0].answer.deployment),
            "set": set_data(_changes(points)),
            "points": [_point(entries) for entries in points],
            "refused": refused_data(points[0][0].answer.refused),
        }
        return json.dumps(data, indent=2, allow_nan=False) + "\n"
    if how is OutputFormat.CSV:
        return _csv(points)
    answer = points[0][0].answer
    fold = str if how is OutputFormat.MARKDOWN else wrap
    refused = map(fold, refused_lines(answer.deployment, answer.refused))
    return "\n\n".join([*(_text(entries, how) for entries in points), *refused]) + "\n"


def _changes(points: list[list[ComparedDrafter]]) -> list[Change]:
    """Return what was set, for all drafters and for single ones, each once."""
    changes = (c for entries in points for e in entries for c in e.answer.deployment.changes)
    return list(dict.fromkeys(changes))


def _point(entries: list[ComparedDrafter]) -> dict[str, Any]:
    first = entries[0]
    return {
        "batch": first.point.batch,
        "context": first.point.context,
        "drafters": [_row(entry) for entry in entries],
    }


def _row(entry: ComparedDrafter) -> dict[str, Any]:
    """Return one drafter, as JSON and CSV have it."""
    answer, point, i = entry.answer, entry.point, entry.judged
    length = point.draft_lengths[i]
    return {
        "drafter": answer.deployment.drafter.name,
        "drafter_kind": answer.deployment.drafter.kind,
        "draft_length": point.draft_length,
        "best_draft_length": length,
        "speedup": float(point.speedup[i]),
        "speedup_low": float(point.low[i]),
        "speedup_high": float(point.high[i]),
        "confidence": point.confidence.value,
        "verify_ms": 1e3 * float(point.verify[i]),
        "draft_ms": 1e3 * float(point.draft[i]),
        "overhead_ms": 1e3 * float(point.overhead[i]),
        "tokens_per_step": float(point.tokens_per_step[i]),
        "break_even_tokens_per_step": float(point.cost_ratio[i]),
        "draft_weights_bytes": answer.memory.draft_weights,
        "slots_lost": entry.slots.lost,
        "acceptance": answer.question.acceptance.label,
        "acceptance_source": answer.question.acceptance.source,
        "flag": answer.question.deployment.launch.flags(length, running=answer.largest_batch),
    }


_HEADERS = (
    "drafter",
    "D",
    "speedup",
    "low-high",
    "step\nms",
    "split %",
    "AL",
    "AL\nneeded",
    "GB",
    "slots\nlost",
)


def _cells(entry: ComparedDrafter) -> list[str]:
    row = _row(entry)
    advised = row["draft_length"] == row["best_draft_length"] > 0
    parts = [row["verify_ms"], row["draft_ms"], row["overhead_ms"]]
    split = "/".join(f"{100 * part / sum(parts):.0f}" for part in parts)
    return [
        _short(entry),
        f"{'*' if advised else ''}{row['best_draft_length']}",
        f"{row['speedup']:.2f}x",
        f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}",
        f"{sum(parts):.2f}",
        split,
        f"{row['tokens_per_step']:.2f}",
        f"{row['break_even_tokens_per_step']:.2f}",
        f"{row['draft_weights_bytes'] / 1e9:.1f}",
        f"{row['slots_lost']:.0%}",
    ]


def _short(entry: ComparedDrafter) -> str:
    """Return the drafter's name without the target's in front, cut to its column."""
    deployment = entry.answer.deployment
    name = deployment.drafter.name.removeprefix(f"{deployment.target.model.id}-")
    return name[:WIDTH]


def _text(entries: list[ComparedDrafter], how: OutputFormat) -> str:
    first = entries[0]
    question, point = first.answer.question, first.point
    deployment = question.deployment
    where = (
        f"{deployment.target.model.name} on {gpus_named(deployment)}, batch {point.batch}, context "
        f"{format_size(point.context)}, {deployment.engine.name}. Each drafter at its own best D; "
        "* where it beats plain decoding. Split: verify/draft/engine. AL needed: the break-even. "
        "GB: the drafter's weights on one GPU."
    ) + set_line(_changes([entries]))
    cells = [_cells(entry) for entry in entries]
    acceptances = [
        f"{_short(e)}: {e.answer.question.acceptance.label} ({e.answer.question.acceptance.source})"
        for e in entries
    ]
    if how is OutputFormat.MARKDOWN:
        return "\n\n".join(
            [
                _verdict(entries),
                where,
                markdown_table(_HEADERS, cells),
                "Acceptance assumed:",
                "\n".join(f"- {line}" for line in acceptances),
            ]
        )
    return "\n\n".join(
        [
            wrap(_verdict(entries)),
            wrap(where),
            text_table(_HEADERS, cells, names_first=True),
            "Acceptance assumed:\n" + "\n".join(wrap(line) for line in acceptances),
        ]
    )


def _verdict(entries: list[ComparedDrafter]) -> str:
    best = entries[0]
    if best.point.best == 0:
        return "None of these drafters beats plain decoding here."
    inside = [
        _short(e) for e in entries[1:] if e.point.high[e.judged] >= best.point.low[best.point.best]
    ]
    speedup = best.point.speedup[best.point.best]
    fastest = f"{_short(best)} is fastest, {speedup:.2f}x at D = {best.point.draft_length}"
    if not inside:
        return f"{fastest}."
    return f"{fastest}; within the model's error of it: {', '.join(inside)}."


def _csv(points: list[list[ComparedDrafter]]) -> str:
    """Return a row for every batch, context and drafter, without figures if it does not fit."""
    changes = set_column(_changes(points))
    rows = []
    for entries in points:
        for entry in entries:
            at = {"batch": entry.point.batch, "context": entry.point.context}
            length = entry.point.draft_lengths[entry.judged]
            room = room_columns(entry.answer.memory, **at, draft_length=length)
            rows.append(at | _row(entry) | room | changes)
    for refused, entry in product(points[0][0].answer.refused, points[0]):
        at, row = {"batch": refused.batch, "context": refused.context}, _row(entry)
        empty = dict.fromkeys(row) | {key: row[key] for key in ("drafter", "drafter_kind")}
        room = room_columns(entry.answer.memory, **at, draft_length=refused.draft_length)
        rows.append(at | empty | room | changes)
    return csv_text(rows)
