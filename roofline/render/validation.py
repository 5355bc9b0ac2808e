"""The answers of ``validate`` as a table, JSON or Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from roofline.render.formats import OutputFormat, captioned_table, markdown_table, text_table, wrap
from roofline.validation.advice import RULES, Sign, SweepChoice, regret_rows, sign_rows
from roofline.validation.score import ScoreRow

__all__ = ["render_advice", "render_scores", "render_steps"]

SCHEMA = "roofline.validate/1"
_HEADERS = (
    "kind",
    "gpu",
    "engine",
    "dtype",
    "rows",
    "median\n%",
    "p90\n%",
    "bias\n%",
    "text-\nbook %",
)
#: Columns of attention alone, whose time above a kernel's floor is scored as well.
_ABOVE_FLOOR = ("above\nfloor %", "p90\n%")
_WORST_NAMES = ("kind", "gpu", "engine", "law")
_WORST_NUMBERS = ("measured us", "predicted us", "ratio")
_STEP_HEADERS = (
    "kind",
    "group",
    "what",
    "rows",
    "median\n%",
    "p90\n%",
    "bias\n%",
    "text-\nbook %",
    "p90\n%",
)
_REGRET_HEADERS = ("group", "sweeps", "rule", "mean\n%", "p90\n%", "worst\n%")
_SIGN_HEADERS = ("group", "rows", "right", "wrong")


def render_scores(
    rows: Sequence[ScoreRow], worst: Sequence[dict[str, Any]], form: OutputFormat
) -> str:
    """Return the scores of kernels or served runs, and the worst rows, ending in a newline."""
    if form is OutputFormat.JSON:
        return _json({"rows": [row.as_data() for row in rows], "worst": list(worst)})
    names = [[row["kind"], row["gpu"], row["engine"], row["name"]] for row in worst]
    numbers = [
        [f"{row['measured_us']:.1f}", f"{row['predicted_us']:.1f}", f"{row['ratio']:.2f}"]
        for row in worst
    ]
    above_floor = any(row.kind == "attention" for row in rows)
    headers = [*_HEADERS, *_ABOVE_FLOOR] if above_floor else [*_HEADERS]
    if form is OutputFormat.MARKDOWN:
        scores = markdown_table(headers, [_score_cells(row)[: len(headers)] for row in rows])
        cells = [[*name, *line] for name, line in zip(names, numbers, strict=True)]
        table = markdown_table([*_WORST_NAMES, *_WORST_NUMBERS], cells)
    else:
        scores = _scores_by_gpu(rows, headers)
        captions = [f"{', '.join(name[:3])}: {name[3]}" for name in names]
        table = captioned_table(_WORST_NUMBERS, captions, numbers)
    return f"{scores}\n\nFurthest off (at most three rows of one law):\n\n{table}\n"


def _scores_by_gpu(rows: Sequence[ScoreRow], headers: Sequence[str]) -> str:
    """Return one table for each accelerator, under its name."""
    column, tables = headers.index("gpu"), []
    for gpu in dict.fromkeys(row.gpu for row in rows):
        cells = [_score_cells(row)[: len(headers)] for row in rows if row.gpu == gpu]
        table = text_table(
            _without(headers, column), [_without(line, column) for line in cells], names_first=True
        )
        tables.append(f"{gpu}\n\n{table}")
    return "\n\n".join(tables)


def _without(cells: Sequence[str], column: int) -> list[str]:
    return [*cells[:column], *cells[column + 1 :]]


def _score_cells(row: ScoreRow) -> list[str]:
    numbers = (
        row.median_abs_error,
        row.p90_abs_error,
        row.bias,
        row.textbook_median_abs_error,
        row.above_floor_median_abs_error,
        row.above_floor_p90_abs_error,
    )
    shown = ["-" if value is None else f"{100 * value:.1f}" for value in numbers]
    return [row.kind, row.gpu, row.engine, row.dtype, str(row.n), *shown]


def render_steps(
    rows: Sequence[ScoreRow], left_out: Sequence[dict[str, Any]], form: OutputFormat
) -> str:
    """Return the scores of published steps, and why others are left out, ending in a newline."""
    if form is OutputFormat.JSON:
        return _json({"rows": [row.as_data() for row in rows], "left_out": list(left_out)})
    table = _table(_STEP_HEADERS, [_step_cells(row) for row in rows], form)
    return f"{table}\n\n{_left_out_line(left_out)}\n"


def _step_cells(row: ScoreRow) -> list[str]:
    numbers = (
        row.median_abs_error,
        row.p90_abs_error,
        row.bias,
        row.textbook_median_abs_error,
        row.textbook_p90_abs_error or 0.0,
    )
    what = "R(D)" if row.kind == "cost-ratio" else row.kind
    return [what, row.group, row.dtype, str(row.n), *(f"{100 * x:.1f}" for x in numbers)]


def _left_out_line(left_out: Sequence[dict[str, Any]]) -> str:
    if not left_out:
        return "Nothing left out."
    counts: dict[str, int] = {}
    for row in left_out:
        counts[row["left_out"]] = counts.get(row["left_out"], 0) + 1
    reasons = "; ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return wrap(f"Shown in --format json, never scored: {reasons}.")


def render_advice(sweeps: Sequence[SweepChoice], signs: Sequence[Sign], form: OutputFormat) -> str:
    """Return the regrets, the signs of speedups and every sweep, ending in a newline."""
    regrets, sign_counts = regret_rows(sweeps), sign_rows(signs)
    if form is OutputFormat.JSON:
        return _json(
            {
                "rows": [*regrets, *sign_counts],
                "sweeps": [choice.as_data() for choice in sweeps],
                "wrong_signs": [sign.as_data() for sign in signs if not sign.right],
            }
        )
    counts = [
        [row["group"], str(row["n"]), str(row["right"]), str(row["wrong"])] for row in sign_counts
    ]
    blocks = [
        _table(_REGRET_HEADERS, [_regret_cells(row) for row in regrets], form),
        _table(_SIGN_HEADERS, counts, form),
        _sweep_table([choice.cells() for choice in sweeps], form),
    ]
    return "\n\n".join(blocks) + "\n"


def _regret_cells(row: dict[str, Any]) -> list[str]:
    numbers = (row["mean_regret"], row["p90_regret"], row["worst_regret"])
    return [row["group"], str(row["n"]), row["rule"], *(f"{100 * x:.1f}" for x in numbers)]


def _sweep_table(cells: Sequence[list[str]], form: OutputFormat) -> str:
    """Return the sweeps; in text the whole name of each stands above it."""
    headers = ("own AL", "D", "best", *RULES)
    if form is OutputFormat.MARKDOWN:
        return markdown_table(("sweep", *headers), cells)
    return captioned_table(headers, [line[0] for line in cells], [line[1:] for line in cells])


def _table(headers: Sequence[str], cells: Sequence[list[str]], form: OutputFormat) -> str:
    if form is OutputFormat.MARKDOWN:
        return markdown_table(headers, cells)
    return text_table(headers, cells, names_first=True)


def _json(data: dict[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, **data}, indent=2) + "\n"
