"""Speedup by draft length: a line for each batch, with its error band and its ties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofline.advice.recommend import Recommendation
from roofline.base.errors import InputError, Option
from roofline.base.units import format_size
from roofline.render.charts.figure import MARKERS, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = [
    "LINES",
    "MOST_LINES",
    "UNCAPTURED",
    "SpeedupRow",
    "draw_speedup",
    "mark_uncaptured",
    "speedup_rows",
]

#: What the crosses of a chart mark.
UNCAPTURED = "past the captured graphs"
#: The palette's last colour is too light for a line.
MOST_LINES = len(PALETTE) - 1
LINES = ("-", "dashed", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (6, 2)), (0, (3, 1)))


class SpeedupRow(NamedTuple):
    """One draft length at one batch and context."""

    batch: int
    context: int
    draft_length: int
    speedup: float
    speedup_low: float
    speedup_high: float
    tie: bool  # within 1 % of the best
    recommended: bool
    captured: bool  # the engine's graphs cover the verify pass, or it has none


def speedup_rows(answer: Recommendation) -> list[SpeedupRow]:
    """Return every draft length that can be run, point by point."""
    return [
        SpeedupRow(
            batch=point.batch,
            context=point.context,
            draft_length=d,
            speedup=float(point.speedup[i]),
            speedup_low=float(point.low[i]),
            speedup_high=float(point.high[i]),
            tie=bool(point.tie[i]),
            recommended=i == point.best,
            captured=bool(point.captured[i]),
        )
        for point in answer.points
        for i, d in enumerate(point.draft_lengths)
        if point.feasible[i]
    ]


def draw_speedup(axes: Axes, rows: Sequence[SpeedupRow]) -> dict[tuple[int, int], Line2D]:
    """Draw a line for each (batch, context); return the lines by that pair.

    Filled points tie with the best, the large one is the advice, the shade is the model's error. A
    cross is a draft length whose verify pass leaves the captured graphs.
    """
    keys = list(dict.fromkeys((row.batch, row.context) for row in rows))
    if len(keys) > MOST_LINES:
        raise InputError(
            f"{Option('batch')}, {Option('context')}: {len(keys)} lines are more than the "
            f"{MOST_LINES} that can be told apart; ask for fewer, or draw the heatmap"
        )
    contexts = {context for _, context in keys}
    lines = {}
    for number, key in enumerate(keys):
        line_rows = [row for row in rows if (row.batch, row.context) == key]
        where = f", context {format_size(key[1])}" if len(contexts) > 1 else ""
        lines[key] = _draw_line(axes, line_rows, number, where)
    axes.axhline(1.0, color="black", linewidth=1, label="plain decoding")
    mark_uncaptured(axes, [(row.draft_length, row.speedup) for row in rows if not row.captured])
    axes.set_xlabel("draft length D (tokens drafted for each verify pass)")
    axes.set_ylabel("speedup over plain decoding (times)")
    axes.set_xticks(sorted({row.draft_length for row in rows}))
    # the legend stands above all curves
    low, high = axes.get_ylim()
    columns = 1 + (len(keys) > 2)
    entries = len(axes.get_legend_handles_labels()[0])
    axes.set_ylim(low, high + (0.09 + 0.06 * -(-entries // columns)) * (high - low))
    axes.legend(
        loc="upper left",
        ncols=columns,
        title="large: advised; filled: within 1 % of the best; shade: model error",
        title_fontsize=7.5,
        alignment="left",
    )
    return lines


def _draw_line(axes: Axes, rows: Sequence[SpeedupRow], number: int, where: str) -> Line2D:
    """Draw one batch: band, line and points; filled points tie, the large one is advised."""
    colour, marker = PALETTE[number], MARKERS[number]
    x = np.array([row.draft_length for row in rows])
    y = np.array([row.speedup for row in rows])
    low, high = ([getattr(r, f"speedup_{end}") for r in rows] for end in ("low", "high"))
    axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
    (best,) = (row for row in rows if row.recommended)
    (line,) = axes.plot(
        x,
        y,
        color=colour,
        linestyle=LINES[number],
        marker=marker,
        markersize=5,
        markerfacecolor="white",
        label=f"batch {best.batch}{where}: D = {best.draft_length}, {best.speedup:.2f}x",
    )
    tied = np.array([row.tie for row in rows])
    axes.plot(x[tied], y[tied], color=colour, linestyle="", marker=marker, markersize=5)
    axes.plot(
        [best.draft_length],
        [best.speedup],
        color=colour,
        linestyle="",
        marker=marker,
        markersize=10,
        markeredgecolor="black",
    )
    return line


def mark_uncaptured(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Put a cross on the draft lengths whose verify pass no captured graph covers."""
    if points:
        axes.plot(
            *zip(*points, strict=True),
            color="black",
            linestyle="",
            marker="x",
            markersize=7,
            markeredgewidth=1.4,
            label=UNCAPTURED,
        )
