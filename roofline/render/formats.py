"""The four ways an answer is written."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, Any, assert_never

from roofline.advice.decide import Point
from roofline.advice.paste import pasted
from roofline.advice.question import Question
from roofline.advice.recommend import Recommendation
from roofline.base.files import csv_text
from roofline.base.units import format_pace, format_size
from roofline.kernels.ops import Part
from roofline.render.columns import markdown_table, text_table, wrap
from roofline.render.data import as_data, explain_rows, summary
from roofline.render.deployment import gpus_named, set_line, stored_as
from roofline.render.notices import assumptions
from roofline.render.refusals import refused_lines, room_columns
from roofline.render.sentences import cost_line, likely_line, past_lines, timing_lines
from roofline.render.why import caveat, headline, reason

if TYPE_CHECKING:
    from roofline.questions.goals import Choice, Goal

__all__ = ["OutputFormat", "render", "setting"]


class OutputFormat(StrEnum):
    """How to write the answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


_COLUMNS = (
    ("D", "draft_length", "{:d}"),
    ("tokens\nper step", "tokens_per_step", "{:.2f}"),
    ("step\nms", "step_ms", "{:.2f}"),
    ("verify\nms", "verify_ms", "{:.2f}"),
    ("draft\nms", "draft_ms", "{:.2f}"),
    ("overhead\nms", "overhead_ms", "{:.2f}"),
    ("cost ratio =\nbreak-even", "cost_ratio", "{:.3f}"),
    ("speedup", "speedup", "{:.2f}x"),
    ("tokens/s\nbatch", "tokens_per_s", ""),  # see format_pace
)


_COST = ("$/M\ntokens", "dollars_per_million_tokens", "{:.3g}")
_NARROW = {"overhead\nms": "over-\nhead ms", "cost ratio =\nbreak-even": "cost\nratio"}


def _columns(question: Question) -> tuple[tuple[str, str, str], ...]:
    """Return the columns of the table, with a price the cost."""
    return _COLUMNS if question.workload.gpu_hour is None else (*_COLUMNS, _COST)


def _headings(columns: tuple[tuple[str, str, str], ...]) -> list[str]:
    """Return the headings, the broad ones narrow where the cost needs their room in a terminal."""
    names = [name for name, _, _ in columns]
    return [_NARROW.get(name, name) for name in names] if _COST in columns else names


def render(
    answer: Recommendation,
    how: OutputFormat,
    *,
    explain: bool = False,
    met: tuple[Goal, list[Choice]] | None = None,
) -> str:
    """Return the answer in the format asked for, ending in a newline.

    ``met`` is a goal with the choices that meet it.
    """
    goal_lines, goal = _goal(met)
    match how:
        case OutputFormat.TABLE:
            return "".join(f"{wrap(line)}\n\n" for line in goal_lines) + _text(
                answer, explain=explain
            )
        case OutputFormat.JSON:
            data = as_data(answer, explain=explain) | goal
            return json.dumps(data, indent=2, allow_nan=False) + "\n"
        case OutputFormat.CSV:
            return _csv(answer)
        case OutputFormat.MARKDOWN:
            return "".join(f"{line}\n\n" for line in goal_lines) + _markdown(
                answer, explain=explain
            )
        case _:
            assert_never(how)


def _goal(met: tuple[Goal, list[Choice]] | None) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the data about a goal; none where there is no goal."""
    if met is None:
        return [], {}
    from roofline.render.goals import goal_data, goal_lines

    return goal_lines(*met), {"goal": goal_data(*met)}


def _cells(point: dict[str, Any], columns: tuple[tuple[str, str, str], ...]) -> list[list[str]]:
    rows = []
    for entry in point["by_draft_length"]:
        cells = [
            form.format(entry[key]) if form else format_pace(entry[key]) for _, key, form in columns
        ]
        length = entry["draft_length"]
        mark = "*" if length == point["draft_length"] else " " if entry["captured"] else "!"
        cells[0] = f"{mark} {cells[0]}"
        rows.append(cells)
    return rows


def _text(answer: Recommendation, *, explain: bool) -> str:
    data, columns = as_data(answer, explain=False), _columns(answer.question)
    blocks = []
    for point, entry in zip(answer.points, data["points"], strict=True):
        blocks += [
            wrap(headline(answer, point) + caveat(answer, point)),
            wrap(setting(answer.question, where=_at(point))),
            text_table(_headings(columns), _cells(entry, columns)),
            *map(wrap, past_lines(answer, point)),
            *map(wrap, _costs(answer.question, entry)),
            wrap(f"Why: {reason(answer, point)}"),
            _to_paste(answer, point.draft_length),
        ]
        if len(point.tie_band) > 1:
            ties = ", ".join(map(str, point.tie_band))
            blocks.insert(-1, wrap(f"Within 1 % of the best: draft lengths {ties}."))
        blocks.insert(-1, wrap(likely_line(point, answer.question.unmeasured)))
        if explain:
            blocks.append(_explain_text(answer, point))
    blocks += map(wrap, refused_lines(answer.deployment, answer.refused))
    blocks.append("\n".join(wrap(line) for line in _footer(answer)))
    return "\n\n".join(blocks) + "\n"


def _flags(answer: Recommendation, draft_length: int) -> str:
    return pasted(answer.deployment, draft_length, running=answer.largest_batch)


def _to_paste(answer: Recommendation, draft_length: int) -> str:
    text = _flags(answer, draft_length).replace("\n", "\n  ")
    return f"{answer.deployment.engine.name}:\n  {text}"


def _at(point: Point) -> str:
    return f"batch {point.batch}, context {format_size(point.context)}"


def setting(question: Question, *, where: str) -> str:
    """Say what was asked: model, formats, GPUs, where, drafter and acceptance."""
    deployment = question.deployment
    target = deployment.target
    return (
        f"{target.model.name} ({stored_as(deployment)}, {target.precision.kv} KV) on "
        f"{gpus_named(deployment)}; {where}; drafter "
        f"{deployment.drafter.name}; acceptance: {question.acceptance.label}."
        f"{set_line(deployment.changes)}"
    )


def _costs(question: Question, entry: dict[str, Any]) -> list[str]:
    """Return what tokens cost, where a GPU has a price."""
    if question.workload.gpu_hour is None:
        return []
    return [cost_line(question, entry["by_draft_length"], entry["draft_length"])]


def _footer(answer: Recommendation) -> list[str]:
    lines = [f"Assumed: {text}" for text in assumptions(answer.question.notices)]
    lines.append(summary(answer.question, answer.times))
    return lines


_EXPLAIN_HEADERS = ("op", "count", "rows", "GFLOP", "MB", "FLOP/B", "ms", "bound", "share")
_PASSES = {
    "verify": "Verify pass",
    "draft": "First draft pass",
    "draft, further": "Further draft passes",
}


def _explain_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["op"],
        f"{row['count']}",
        f"{row['rows']:.0f}" if row["rows"] < 1e6 else f"{row['rows']:.1e}",
        f"{row['flops'] / 1e9:.3g}",
        f"{row['bytes'] / 1e6:.4g}",
        f"{row['intensity']:.1f}",
        f"{row['total_ms']:.3f}",
        row["bound"],
        f"{row['share']:.1%}",
    ]


def _explain_tables(answer: Recommendation, point: Point) -> dict[str, list[list[str]]]:
    """Return the kernels of the recommended step by pass."""
    tables: dict[str, list[list[str]]] = {}
    for row in explain_rows(answer, point):
        tables.setdefault(_PASSES[row["pass"]], []).append(_explain_cells(row))
    return tables


def _formula_lines(answer: Recommendation, point: Point) -> list[str]:
    """Return the formulas and the rules of a point."""
    from roofline.render.formulas import formulas
    from roofline.render.rules import rule_lines

    return [*formulas(answer, point), *rule_lines(answer, point)]


def _explain_text(answer: Recommendation, point: Point) -> str:
    blocks = [
        f"{title} (GFLOP and MB of one launch, ms of all):\n"
        + text_table(_EXPLAIN_HEADERS, rows, names_first=True)
        for title, rows in _explain_tables(answer, point).items()
    ]
    lines = _formula_lines(answer, point)
    return "\n\n".join([*blocks, *map(wrap, lines), *timing_lines(answer, point)])


def _csv(answer: Recommendation) -> str:
    """Return a row for every batch, context and draft length; what does not fit has no figures."""
    data, question = as_data(answer, explain=False), answer.question
    changes = "; ".join(map(str, answer.deployment.changes))
    points = {(point["batch"], point["context"]): point for point in data["points"]}
    names = [name for name in data["points"][0]["by_draft_length"][0] if name != "breakdown_ms"]
    rows = []
    for batch, context, length in product(
        question.workload.batches, question.workload.contexts, question.draft_lengths
    ):
        point = points.get((batch, context), {"by_draft_length": []})
        by_length = {entry["draft_length"]: entry for entry in point["by_draft_length"]}
        entry = by_length.get(length, {"draft_length": length})
        parts = entry.get("breakdown_ms", {})
        row = {
            **{name: data["inputs"][name] for name in ("model", "gpu", "gpus", "tp")},
            "batch": batch,
            "context": context,
            **{name: entry.get(name) for name in names},
            **{f"{part}_ms": parts.get(part) for part in Part},
            "confidence": point.get("confidence"),
            "recommended": int(length == point.get("draft_length")),
            **room_columns(answer.memory, batch=batch, context=context, draft_length=length),
        }
        rows.append(row | ({"set": changes} if changes else {}))
    return csv_text(rows)


def _markdown(answer: Recommendation, *, explain: bool) -> str:
    data, columns = as_data(answer, explain=False), _columns(answer.question)
    blocks = []
    for point, entry in zip(answer.points, data["points"], strict=True):
        headers = [name for name, _, _ in columns]
        blocks += [
            f"**{headline(answer, point)}**{caveat(answer, point)}",
            setting(answer.question, where=_at(point)),
            markdown_table(headers, _cells(entry, columns)),
            *past_lines(answer, point),
            *_costs(answer.question, entry),
            f"Why: {reason(answer, point)}",
            likely_line(point, answer.question.unmeasured),
            f"```\n{_flags(answer, point.draft_length)}\n```",
        ]
        if explain:
            for title, rows in _explain_tables(answer, point).items():
                blocks += [f"{title}:", markdown_table(_EXPLAIN_HEADERS, rows)]
            blocks += _formula_lines(answer, point)
            blocks += [f"```\n{text}\n```" for text in timing_lines(answer, point)]
    blocks += refused_lines(answer.deployment, answer.refused)
    blocks.append("  \n".join(_footer(answer)))
    return "\n\n".join(blocks) + "\n"
