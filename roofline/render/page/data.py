"""What the page's script works on: priced steps, decisions, and the words of an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.models import fit_constant
from roofline.advice.decide import Point
from roofline.advice.recommend import Recommendation
from roofline.advice.remedies import explain_refusal
from roofline.advice.why import Outcome, captured_steps
from roofline.base.files import without_queries
from roofline.base.units import format_size
from roofline.render.charts.breakdown import SLICES, BreakdownRow, breakdown_rows
from roofline.render.charts.figure import shades
from roofline.render.charts.heatmap import CAUSES
from roofline.render.charts.rooflines import GROUPS, RooflineRow, drawn_tracks
from roofline.render.page.decisions import decisions_of, stops_of
from roofline.render.page.report import Report
from roofline.render.refusals import drafts_without_room
from roofline.render.why import (
    BEYOND,
    NO_GAIN,
    NOTHING_DRAFTED,
    PAST,
    opening,
    reason_template,
    without_acceptance,
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
    "left_out": "At this context these batches do not fit: {batches}.",
    "copied": "Copied",
    "not_copied": "Select and copy by hand",
    "undrafted": "plain decoding",
}
#: Why, by what an answer says, beside that of drafts; where none can run a cell has its own words.
REASONS = {
    Outcome.PAST_GRAPHS: PAST,
    Outcome.ALONE: NOTHING_DRAFTED,
}
DIGITS = 6  # of numbers that are only drawn
#: The charts' markers and dashes in the words of plotly.js, in the same order.
SYMBOLS = (
    *("circle", "square", "triangle-up", "diamond", "triangle-down", "x", "pentagon"),
    *("triangle-left", "hexagon", "triangle-right", "diamond-tall", "star"),
)
DASHES = ("solid", "dash", "dot", "dashdot", "longdashdot")


def page_data(report: Report, command: list[str]) -> dict[str, Any]:
    """Return the data of the page; ``command`` asks the same without batch and acceptance."""
    answer, grid = report.answer, report.grid
    question, batches, contexts = answer.question, report.batches, report.contexts
    point, asked = answer.points[0], question.workload.acceptance
    stops = stops_of(report)
    decisions = decisions_of(report, stops)
    ranges = _ranges_with_acceptance_error(report)
    cells = {(p.batch, p.context): p for p in grid.points}
    refused = {(r.batch, r.context): r for r in grid.refused}
    engine, lengths = question.deployment.engine, grid.question.draft_lengths
    return {
        "command": command,
        "acceptance": without_queries(asked) if isinstance(asked, str) else None,
        "rounds": question.workload.acceptance_rounds,
        "counted": question.rounds is not None,
        "gpus": question.deployment.cards,
        "gpu_hour": question.workload.gpu_hour,
        "draft_lengths": list(lengths),
        "verify_rows": question.deployment.grid((1,), (1,), lengths).rows.ravel().tolist(),
        "batches": batches,
        "contexts": contexts,
        "context_names": [format_size(context) for context in contexts],
        "asked": {
            "batch": batches.index(point.batch),
            "context": contexts.index(point.context),
        },
        "scales": list(stops.scales),
        "rates": list(stops.rates),
        "rate": _one_rate(answer, stops.rates),
        "tokens": [[_numbers(row) for row in stop] for stop in stops.tokens],
        "shares": [_numbers(row) for row in stops.shares],
        "decisions": decisions.distinct,
        "cells": [
            [
                _cell(report, cells[batch, context])
                | ranges.get((batch, context), {})
                | {
                    "decided": decisions.held[:, b, c].tolist(),
                    "on_plain_curve": bool(decisions.on_plain_curve[b, c]),
                }
                if (batch, context) in cells
                else {"refused": explain_refusal(grid.memory, refused[batch, context])}
                for c, context in enumerate(contexts)
            ]
            for b, batch in enumerate(batches)
        ],
        "slices": [{"key": key, "name": name, "colour": c} for key, name, c, _ in SLICES],
        "roofs": [_roof(row) for row in report.kernels if row.group == "roof"],
        "tracks": _tracks(report.kernels),
        "shades": dict(zip(lengths, (shades(max(lengths))[d] for d in lengths), strict=True)),
        **_flags(report),
        "engine": engine.name,
        "largest": engine.graphs.largest if engine.graphs else None,
        "flag_name": engine.name_of_length(question.deployment.drafter.kind),
        "words": {
            "headlines": decisions.headlines,
            "reasons": {
                **dict.fromkeys(("drafts", "plain"), reason_template(question.deployment.hit_rate)),
                **{outcome.value: text for outcome, text in REASONS.items()},
            },
            "cells": {outcome.value: words for outcome, (words, _, _) in CAUSES.items()},
            "no_gain": {outcome.value: text for outcome, text in NO_GAIN.items()},
            "beyond": BEYOND,
            **PAGE_WORDS,
        },
    }


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Return numbers for JSON, None for NaN."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _roof(row: RooflineRow) -> dict[str, Any]:
    return {"name": row.op, "x": row.intensity_flop_per_byte, "y": row.attained_tflop_per_s}


def _tracks(kernels: Sequence[RooflineRow]) -> list[dict[str, Any]]:
    """Return the tracks that the chart of kernels draws, each with its look."""
    tracks, of_group = [], Counter[str]()
    for number, rows in enumerate(drawn_tracks(kernels)):
        group = rows[0].group
        name, colour = GROUPS[group]
        tracks.append(
            {
                "name": name if group == "draft" else rows[0].op,
                "colour": colour,
                "symbol": SYMBOLS[number % len(SYMBOLS)],
                "dash": DASHES[of_group[group] % len(DASHES)],
                "x": [_rounded(row.intensity_flop_per_byte) for row in rows],
                "y": [_rounded(row.attained_tflop_per_s) for row in rows],
                "length": [row.draft_length for row in rows],
                "ms": [_rounded(row.time_ms or 0.0) for row in rows],
            }
        )
        of_group[group] += 1
    return tracks


def _cell(report: Report, point: Point) -> dict[str, Any]:
    """Return one batch and context: seconds, and t(0) / t(D) at the ends of the model's error."""
    grid = report.grid
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
        "reasons": _own_reasons(report, point),
    }


def _own_reasons(report: Report, point: Point) -> dict[str, str]:
    """Return why no draft length can be advised, in the words of one cell."""
    grid, answer = report.grid, report.answer
    reasons = {}
    if not point.feasible.all():
        memory = grid.memory
        reasons[Outcome.NO_ROOM.value] = drafts_without_room(
            memory, batch=point.batch, context=point.context
        )
    known = answer.question.draft_lengths_at(point.context)
    asked = replace(answer, question=replace(answer.question, draft_lengths=known))
    unknown = without_acceptance(asked, point)
    return reasons | ({Outcome.UNKNOWN.value: unknown} if unknown else {})


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
    return 0.0 if row is None else _rounded(getattr(row, key))


def _rounded(value: float) -> float:
    """Return a number that is only drawn, to a few digits."""
    return float(f"{value:.{DIGITS}g}")


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


def _flags(report: Report) -> dict[str, Any]:
    """Return the distinct flags, and which of them starts each batch with each draft length.

    An engine that is told how many sequences run is told of all that were asked about.
    """
    launch, asked = report.answer.deployment.launch, report.answer
    batches = {point.batch for point in asked.points}
    texts = [
        [
            launch.flags(d, running=asked.largest_batch if batch in batches else batch)
            for d in report.grid.question.draft_lengths
        ]
        for batch in report.batches
    ]
    distinct = list(dict.fromkeys(text for line in texts for text in line))
    return {
        "flags": distinct,
        "flags_of": [[distinct.index(text) for text in line] for line in texts],
    }


def _one_rate(answer: Recommendation, rates: Sequence[int]) -> int | None:
    """Return the rate nearest to the acceptance given among the stops [%]; None without drafts."""
    point = answer.points[0]
    known = zip(point.draft_lengths, point.tokens_per_step, strict=True)
    curve = {d: float(al) for d, al in known if d}
    if not curve:
        return None
    rate = 100 * fit_constant(curve, depth=max(curve)).parameters["a"]
    return min(rates, key=lambda stop: abs(stop - rate))
