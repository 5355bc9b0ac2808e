"""What the page's script works on: priced steps, tokens per step, and the words of an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.defaults import single_rate_ratio
from roofline.acceptance.models import fit_constant
from roofline.advice.decide import TIE, Point
from roofline.advice.recommend import Recommendation
from roofline.advice.remedies import explain_refusal
from roofline.advice.why import captured_steps
from roofline.base.files import without_queries
from roofline.base.units import format_size
from roofline.render.charts.breakdown import SLICES, BreakdownRow, breakdown_rows
from roofline.render.charts.rooflines import GROUPS
from roofline.render.page.report import Report
from roofline.render.refusals import drafts_without_room
from roofline.render.why import (
    BEYOND,
    HEADLINES,
    NOTHING_DRAFTED,
    PAST,
    REASON,
    VERDICTS,
    opening,
)

__all__ = ["PAGE_WORDS", "page_data"]

#: What the page's script says while its sliders move, beside the sentences of an answer.
PAGE_WORDS = {
    "tie": "Within 1 % of the best: draft lengths {lengths}.",
    "edge": "{length:d} is the longest draft length of this report: a longer one may be better.",
    "unfit": "This does not fit: {reason}",
    "given": "as given",
    "scaled": "accepted drafts x {scale:.2f}",
    "rate": "rate {rate:.2f} at every position",
    "sampling": "The range leaves out the sampling error of the acceptance.",
    "nothing_kept": PAST,
    "beyond": BEYOND,
    "left_out": "At this context these batches do not fit: {batches}.",
    "copied": "Copied",
    "not_copied": "Select and copy by hand",
    "undrafted": "plain decoding",
}
DIGITS = 6  # of numbers that are only drawn


def page_data(report: Report, command: list[str]) -> dict[str, Any]:
    """Return the data of the page; ``command`` asks the same without batch and acceptance."""
    answer, grid = report.answer, report.grid
    question, batches, contexts = answer.question, report.batches, report.contexts
    point, asked = answer.points[0], question.workload.acceptance
    ranges = _ranges_with_acceptance_error(report)
    cells = {(p.batch, p.context): p for p in grid.points}
    refused = {(r.batch, r.context): r for r in grid.refused}
    return {
        "command": command,
        "acceptance": without_queries(asked) if isinstance(asked, str) else None,
        "rounds": question.workload.acceptance_rounds,
        "fall": single_rate_ratio(),
        "gpus": question.deployment.cards,
        "tie": TIE,
        "draft_lengths": list(grid.question.draft_lengths),
        "batches": batches,
        "contexts": contexts,
        "context_names": [format_size(context) for context in contexts],
        "asked": {
            "batch": batches.index(point.batch),
            "context": contexts.index(point.context),
        },
        "given": _given(report),
        "rate": _one_rate(answer),
        "cells": [
            [
                _cell(grid, cells[batch, context]) | ranges.get((batch, context), {})
                if (batch, context) in cells
                else {"refused": explain_refusal(grid.memory, refused[batch, context])}
                for context in contexts
            ]
            for batch in batches
        ],
        "slices": [{"key": key, "name": name, "colour": c} for key, name, c, _ in SLICES],
        "groups": {key: {"name": name, "colour": c} for key, (name, c) in GROUPS.items()},
        "kernels": [row._asdict() for row in report.kernels],
        "flags": [
            question.deployment.launch.flags(d, running=grid.largest_batch)
            for d in grid.question.draft_lengths
        ],
        "engine": question.deployment.engine.name,
        "largest": question.deployment.engine.graphs.largest
        if question.deployment.engine.graphs
        else None,
        "flag_name": question.deployment.engine.name_of_length(question.deployment.drafter.kind),
        "words": {
            "headlines": HEADLINES,
            "verdicts": VERDICTS,
            "reason": REASON,
            "nothing": NOTHING_DRAFTED,
            **PAGE_WORDS,
        },
    }


def _cell(grid: Recommendation, point: Point) -> dict[str, Any]:
    """Return one batch and context: seconds, and t(0) / t(D) at the ends of the model's error."""
    openings = [opening(grid, point, d) for d in point.draft_lengths]
    rows = {row.draft_length: row for row in breakdown_rows(grid, point)}
    return {
        "step": _known(point.step, point.feasible),
        "verify": _known(point.verify, point.feasible),
        "draft": _known(point.draft, point.feasible),
        "overhead": _known(point.overhead, point.feasible),
        **_past(grid, point),
        "low": _known(point.low / point.tokens_per_step, point.feasible),
        "high": _known(point.high / point.tokens_per_step, point.feasible),
        "slices": {
            key: drawn
            for key, _, _, _ in SLICES
            if any(drawn := [_drawn(rows.get(d), key) for d in point.draft_lengths])
        },
        "opening": openings if len(set(openings)) > 1 else openings[:1],
        "no_room": None
        if point.feasible.all()
        else drafts_without_room(grid.memory, batch=point.batch, context=point.context),
    }


def _past(grid: Recommendation, point: Point) -> dict[str, Any]:
    """Return the rows, step and flag of each draft length that leaves the captured graphs."""
    graphs, left_out = grid.question.deployment.engine.graphs, point.feasible & ~point.candidates
    if graphs is None or not left_out.any():
        return {}
    rows = [float(rows) for rows in point.pass_rows]
    return {
        "past": [
            {"rows": count, "captured_step": float(step), "flag": graphs.capture_flag(count)}
            if out
            else None
            for count, step, out in zip(rows, captured_steps(point), left_out, strict=True)
        ]
    }


def _known(values: NDArray[np.float64], feasible: NDArray[np.bool_]) -> list[float | None]:
    return [float(v) if ok else None for v, ok in zip(values, feasible, strict=True)]


def _drawn(row: BreakdownRow | None, key: str) -> float:
    return 0.0 if row is None else float(f"{getattr(row, key):.{DIGITS}g}")


def _given(report: Report) -> dict[str, Any]:
    """Return the acceptance of the report: tokens per step by context."""
    question = report.answer.question
    tokens = question.acceptance.over_contexts(
        report.contexts,
        report.grid.question.draft_lengths,
        extrapolate=question.workload.extrapolate,
    )
    return {
        "label": question.acceptance.label,
        "counted": question.rounds is not None,
        "tokens": [[float(al) if np.isfinite(al) else None for al in row] for row in tokens],
    }


def _ranges_with_acceptance_error(report: Report) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the ranges that hold the acceptance's own error as well, by batch and context."""
    grid, ranges = report.grid_with_acceptance_error, {}
    for point in grid.points if grid is not None else ():
        ends = {}
        for name, values in (("low", point.low), ("high", point.high)):
            by_length = dict(zip(point.draft_lengths, _known(values, point.feasible), strict=True))
            ends[name] = [by_length.get(d) for d in report.grid.question.draft_lengths]
        ranges[point.batch, point.context] = {"counted": ends}
    return ranges


def _one_rate(answer: Recommendation) -> float | None:
    """Return the one rate nearest to the acceptance given, to two digits; None without drafts."""
    point = answer.points[0]
    known = zip(point.draft_lengths, point.tokens_per_step, strict=True)
    curve = {d: float(al) for d, al in known if d}
    if not curve:
        return None
    return round(fit_constant(curve, depth=max(curve)).parameters["a"], 2)
