"""Drafters side by side, as a table, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from roofline.base.files import csv_text
from roofline.base.units import format_size
from roofline.questions.compare import Entry
from roofline.render.columns import markdown_table, text_table, wrap
from roofline.render.deployment import deployment_data, gpus_named, set_data, set_line
from roofline.render.formats import OutputFormat
from roofline.render.refusals import refused_data, refused_lines, room_columns
from roofline.specs.overrides import AppliedOverride

__all__ = ["render_compare"]

SCHEMA = "roofline.compare/1"


def render_compare(found: list[list[Entry]], how: OutputFormat) -> str:
    """Return the comparison in the format asked for, ending in a newline."""
    if how is OutputFormat.JSON:
        data = {
            "schema": SCHEMA,
            "inputs": deployment_data(found[0][0].answer.deployment),
            "set": set_data(_changes(found)),
            "points": [_point(entries) for entries in found],
            "refused": refused_data(found[0][0].answer.refused),
        }
        return json.dumps(data, indent=2, allow_nan=False) + "\n"
    if how is OutputFormat.CSV:
        return _csv(found)
    answer = found[0][0].answer
    fold = str if how is OutputFormat.MARKDOWN else wrap
    refused = map(fold, refused_lines(answer.deployment, answer.refused))
    return "\n\n".join([*(_text(entries, how) for entries in found), *refused]) + "\n"


def _changes(found: list[list[Entry]]) -> list[AppliedOverride]:
    """Return what was set, each drafter's own changes included, in the order met."""
    all_of = (c for entries in found for e in entries for c in e.answer.deployment.changes)
    return list(dict.fromkeys(all_of))


def _point(entries: list[Entry]) -> dict[str, Any]:
    first = entries[0]
    return {
        "batch": first.point.batch,
        "context": first.point.context,
        "drafters": [_row(entry) for entry in entries],
    }


def _row(entry: Entry) -> dict[str, Any]:
    """Return one drafter: the fields of JSON, and of CSV behind batch and context."""
    answer, point, i = entry.answer, entry.point, entry.looked_at
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


def _cells(entry: Entry) -> list[str]:
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


def _short(entry: Entry) -> str:
    """Return the drafter's name without the target's in front, cut to its column."""
    question = entry.answer.question
    return question.deployment.drafter.name.removeprefix(f"{question.deployment.target.model.id}-")[
        :14
    ]


def _text(entries: list[Entry], how: OutputFormat) -> str:
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
    seen = [
        f"{_short(e)}: {e.answer.question.acceptance.label} ({e.answer.question.acceptance.source})"
        for e in entries
    ]
    if how is OutputFormat.MARKDOWN:
        lines = [f"- {line}" for line in seen]
        return "\n\n".join([_verdict(entries), where, markdown_table(_HEADERS, cells)]) + (
            "\n\nAcceptance assumed:\n\n" + "\n".join(lines)
        )
    return "\n\n".join(
        [
            wrap(_verdict(entries)),
            wrap(where),
            text_table(_HEADERS, cells, names_first=True),
            "Acceptance assumed:\n" + "\n".join(wrap(line) for line in seen),
        ]
    )


def _verdict(entries: list[Entry]) -> str:
    best = entries[0]
    if best.point.best == 0:
        return "None of these drafters beats plain decoding here."
    inside = [
        _short(e)
        for e in entries[1:]
        if e.point.high[e.looked_at] >= best.point.low[best.point.best]
    ]
    said = f"{_short(best)} is fastest, {best.point.speedup[best.point.best]:.2f}x at D = "
    said += f"{best.point.draft_length}"
    return f"{said}; within the model's error of it: {', '.join(inside)}." if inside else f"{said}."


def _csv(found: list[list[Entry]]) -> str:
    """Return a row for every batch, context and drafter; what does not fit has no figures."""
    changes = "; ".join(map(str, _changes(found)))
    last = {"set": changes} if changes else {}
    rows = []
    for entries in found:
        for entry in entries:
            at = {"batch": entry.point.batch, "context": entry.point.context}
            length = entry.point.draft_lengths[entry.looked_at]
            room = room_columns(entry.answer.memory, **at, draft_length=length)
            rows.append(at | _row(entry) | room | last)
    for each, entry in product(found[0][0].answer.refused, found[0]):
        at, own = {"batch": each.batch, "context": each.context}, _row(entry)
        empty = dict.fromkeys(own) | {key: own[key] for key in ("drafter", "drafter_kind")}
        room = room_columns(entry.answer.memory, **at, draft_length=each.draft_length)
        rows.append(at | empty | room | last)
    return csv_text(rows)
