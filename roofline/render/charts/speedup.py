"""Speedup by draft length: a line for each batch, with its error band and its ties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from roofline.advice.recommend import Recommendation
from roofline.base.errors import InputError, Option
from roofline.base.units import format_size
from roofline.render.charts.by_draft_length import (
    MOST_LINES,
    draw_legend,
    draw_line,
    mark_uncaptured,
    name_lines,
    range_words,
    require_drafts,
    runnable,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["SpeedupRow", "draw_speedup", "speedup_rows"]


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
    require_drafts(answer)
    return [
        SpeedupRow(
            batch=point.batch,
            context=point.context,
            draft_length=length,
            speedup=float(point.speedup[i]),
            speedup_low=float(point.low[i]),
            speedup_high=float(point.high[i]),
            tie=bool(point.tie[i]),
            recommended=i == point.best,
            captured=bool(point.captured[i]),
        )
        for point, i, length in runnable(answer)
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
        of_key = [row for row in rows if (row.batch, row.context) == key]
        (at,) = (i for i, row in enumerate(of_key) if row.recommended)
        best, where = of_key[at], f", context {format_size(key[1])}" if len(contexts) > 1 else ""
        lines[key] = draw_line(
            axes,
            [row.draft_length for row in of_key],
            [row.speedup for row in of_key],
            ([row.speedup_low for row in of_key], [row.speedup_high for row in of_key]),
            number=number,
            of=len(keys),
            label=f"batch {best.batch}{where}: D = {best.draft_length}, {best.speedup:.2f}x",
            advised=at,
            filled=[row.tie for row in of_key],
        )
    axes.axhline(1.0, color="black", linewidth=1, label="plain decoding")
    mark_uncaptured(axes, [(row.draft_length, row.speedup) for row in rows if not row.captured])
    axes.set_ylabel("speedup over plain decoding (times)")
    axes.set_xticks(sorted({row.draft_length for row in rows}))
    # the legend stands above all curves
    low, high = axes.get_ylim()
    columns = 1 + (len(keys) > 2)
    entries = len(axes.get_legend_handles_labels()[0])
    axes.set_ylim(low, high + (0.09 + 0.06 * -(-entries // columns)) * (high - low))
    draw_legend(
        axes,
        columns=columns,
        title=f"large: advised; filled: within 1 % of the best; {range_words(len(keys))}",
    )
    several = {
        f"{batch}" if len(contexts) == 1 else f"{batch}, {format_size(context)}": line
        for (batch, context), line in lines.items()
    }
    if len(keys) > 1:
        name_lines(axes, {f"batch {name}": line for name, line in several.items()})
    return lines
