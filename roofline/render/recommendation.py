"""The answer of ``recommend`` as a table, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any, assert_never

from roofline.advice.decide import Point
from roofline.advice.question import Question
from roofline.advice.recommend import Recommendation
from roofline.base.files import csv_text
from roofline.base.units import format_pace, format_size
from roofline.kernels.ops import Part
from roofline.render.data import as_data, explain_rows, point_data, summary
from roofline.render.deployment import gpus_named, set_column, set_line, stored_as
from roofline.render.formats import Column, OutputFormat, markdown_table, text_table, wrap
from roofline.render.notices import assumed_lines
from roofline.render.refusals import refused_lines, room_columns
from roofline.render.sentences import cost_line, likely_line, timing_lines, uncaptured_lines
from roofline.render.why import caveat

if TYPE_CHECKING:
    from roofline.questions.goals import Goal, OperatingPoint

__all__ = ["COLUMNS", "COST", "render", "setting"]


_PACE = Column("tokens/s\nbatch", "tokens_per_s", "{value:.0f}")  # in text see format_pace
COLUMNS = (
    Column("D", "draft_length", "{value:d}"),
    Column("tokens\nper step", "tokens_per_step", "{value:.2f}"),
    Column("step\nms", "step_ms", "{value:.2f}"),
    Column("verify\nms", "verify_ms", "{value:.2f}"),
    Column("draft\nms", "draft_ms", "{value:.2f}"),
    Column("overhead\nms", "overhead_ms", "{value:.2f}"),
    Column("cost ratio =\nbreak-even", "cost_ratio", "{value:.3f}"),
    Column("speedup", "speedup", "{value:.2f}x"),
    _PACE,
)
#: One column more where a GPU has a price.
COST = Column("$/M\ntokens", "dollars_per_million_tokens", "{value:.3g}")
_NARROW = {"overhead\nms": "over-\nhead ms", "cost ratio =\nbreak-even": "cost\nratio"}


def _columns(question: Question) -> tuple[Column, ...]:
    return COLUMNS if question.workload.gpu_hour is None else (*COLUMNS, COST)


def _headings(columns: tuple[Column, ...]) -> list[str]:
    """Return the headings, narrower where the cost needs their room in a terminal."""
    headings = [column.heading for column in columns]
    return [_NARROW.get(name, name) for name in headings] if COST in columns else headings


def render(
    answer: Recommendation,
    how: OutputFormat,
    *,
    explain: bool = False,
    met: tuple[Goal, list[OperatingPoint]] | None = None,
) -> str:
    """Return the answer in the format asked for, ending in a newline.

    ``met`` is a goal with the choices that meet it.
    """
    goal_lines, goal = _goal(met)
    match how:
        case OutputFormat.TABLE:
            return "\n\n".join([*map(wrap, goal_lines), _text(answer, explain=explain)])
        case OutputFormat.JSON:
            data = as_data(answer, explain=explain) | goal
            return json.dumps(data, indent=2, allow_nan=False) + "\n"
        case OutputFormat.CSV:
            return _csv(answer)
        case OutputFormat.MARKDOWN:
            return "\n\n".join([*goal_lines, _markdown(answer, explain=explain)])
        case _:
            assert_never(how)


def _goal(met: tuple[Goal, list[OperatingPoint]] | None) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the data about a goal, if there is one."""
    if met is None:
        return [], {}
    from roofline.render.goals import goal_data, goal_lines

    return goal_lines(*met), {"goal": goal_data(*met)}


def _cells(point: dict[str, Any], columns: tuple[Column, ...]) -> list[list[str]]:
    rows = []
    for entry in point["by_draft_length"]:
        cells = [
            format_pace(entry[column.key])
            if column is _PACE
            else column.form.format(value=entry[column.key])
            for column in columns
        ]
        length = entry["draft_length"]
        mark = "*" if length == point["draft_length"] else " " if entry["captured"] else "!"
        cells[0] = f"{mark} {cells[0]}"
        rows.append(cells)
    return rows


def _text(answer: Recommendation, *, explain: bool) -> str:
    blocks, columns = list[str](), _columns(answer.question)
    for point in answer.points:
        entry = point_data(answer, point)
        blocks += [
            wrap(entry["headline"] + caveat(answer, point)),
            wrap(setting(answer.question, where=_at(point))),
            text_table(_headings(columns), _cells(entry, columns)),
            *map(wrap, uncaptured_lines(answer, point)),
            *map(wrap, _cost_lines(answer.question, entry)),
            wrap(f"Why: {entry['reason']}"),
            _flags_block(answer, point),
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


def _flags_to_paste(answer: Recommendation, point: Point) -> str:
    launch = answer.deployment.launch
    return launch.flags_and_omission(point.draft_length, running=answer.largest_batch)


def _flags_block(answer: Recommendation, point: Point) -> str:
    flags = _flags_to_paste(answer, point).replace("\n", "\n  ")
    return f"{answer.deployment.engine.name}:\n  {flags}"


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


def _cost_lines(question: Question, entry: dict[str, Any]) -> list[str]:
    """Return what tokens cost, if a GPU has a price."""
    if question.workload.gpu_hour is None:
        return []
    return [cost_line(question, entry["by_draft_length"], entry["draft_length"])]


def _footer(answer: Recommendation) -> list[str]:
    question = answer.question
    return [*assumed_lines(question.notices), summary(question, answer.times)]


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
    """Return a row for every batch, context and draft length, empty if it does not fit."""
    data, question = as_data(answer, explain=False), answer.question
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
        rows.append(row | set_column(answer.deployment.changes))
    return csv_text(rows)


def _markdown(answer: Recommendation, *, explain: bool) -> str:
    blocks, columns = list[str](), _columns(answer.question)
    for point in answer.points:
        entry = point_data(answer, point)
        blocks += [
            f"**{entry['headline']}**{caveat(answer, point)}",
            setting(answer.question, where=_at(point)),
            markdown_table([column.heading for column in columns], _cells(entry, columns)),
            *uncaptured_lines(answer, point),
            *_cost_lines(answer.question, entry),
            f"Why: {entry['reason']}",
            likely_line(point, answer.question.unmeasured),
            f"```\n{_flags_to_paste(answer, point)}\n```",
        ]
        if explain:
            for title, rows in _explain_tables(answer, point).items():
                blocks += [f"{title}:", markdown_table(_EXPLAIN_HEADERS, rows)]
            blocks += _formula_lines(answer, point)
            blocks += [f"```\n{text}\n```" for text in timing_lines(answer, point)]
    blocks += refused_lines(answer.deployment, answer.refused)
    blocks.append("  \n".join(_footer(answer)))
    return "\n\n".join(blocks) + "\n"
