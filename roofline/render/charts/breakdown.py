"""The time of one step by its parts, stacked by draft length, beside the time per token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofline.advice.decide import Point
from roofline.advice.recommend import Recommendation
from roofline.advice.why import grid_position, value_at
from roofline.kernels.ops import Part
from roofline.render.charts.figure import PALETTE
from roofline.timing.machine import by_part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.lines import Line2D

__all__ = ["SLICES", "BreakdownRow", "breakdown_rows", "draw_breakdown"]


class BreakdownRow(NamedTuple):
    """One draft length; the six verify parts, draft and overhead add up to the step."""

    batch: int
    context: int
    draft_length: int
    verify_linear_ms: float
    verify_attention_ms: float
    verify_moe_ms: float
    verify_lm_head_ms: float
    verify_communication_ms: float
    verify_other_ms: float
    draft_ms: float
    overhead_ms: float
    step_ms: float
    tpot_ms: float
    recommended: bool
    captured: bool  # the engine's graphs cover the verify pass, or it has none


#: Column, words, colour and hatch of each slice, from the bottom up.
SLICES = (
    ("verify_linear_ms", "verify: linear layers", PALETTE[0], ""),
    ("verify_attention_ms", "verify: attention", PALETTE[1], "//"),
    ("verify_moe_ms", "verify: experts", PALETTE[2], "\\\\"),
    ("verify_lm_head_ms", "verify: lm_head", PALETTE[3], ".."),
    ("verify_communication_ms", "verify: communication", PALETTE[7], "xx"),
    ("verify_other_ms", "verify: other kernels", "#BBBBBB", ""),
    ("draft_ms", "draft passes", PALETTE[5], 2 * "-"),  # a hatch: twice as dense as one
    ("overhead_ms", "engine overhead", "#FFFFFF", "||"),
)
NO_GRAPH = "no graph"  # below a draft length whose verify pass no captured graph covers
THIN = 0.002  # slices below this share of every step are left out of the picture


def breakdown_rows(answer: Recommendation, point: Point) -> list[BreakdownRow]:
    """Return every draft length of one point that can be run."""
    parts = by_part(answer.times.verify_ops)
    rows = []
    for i, d in enumerate(point.draft_lengths):
        if not point.feasible[i]:
            continue
        at = grid_position(answer, point, d)
        verify = {
            f"verify_{part.value}_ms": 1e3 * value_at(parts.get(part, 0.0), at) for part in Part
        }
        rows.append(
            BreakdownRow(
                batch=point.batch,
                context=point.context,
                draft_length=d,
                draft_ms=1e3 * float(point.draft[i]),
                overhead_ms=1e3 * float(point.overhead[i]),
                step_ms=1e3 * float(point.step[i]),
                tpot_ms=1e3 * float(point.time_per_token[i]),
                recommended=i == point.best,
                captured=bool(point.captured[i]),
                **verify,
            )
        )
    return rows


def _tick(row: BreakdownRow) -> str:
    """Name a draft length, and say what it is."""
    said = [
        word
        for word, holds in (("advised", row.recommended), (NO_GRAPH, not row.captured))
        if holds
    ]
    return "\n".join([f"{row.draft_length}", *said])


def draw_breakdown(
    axes: Axes, rows: Sequence[BreakdownRow]
) -> tuple[dict[str, BarContainer], Line2D]:
    """Draw the stacked steps and the time per token; return the bars by column, and the line."""
    x = np.array([row.draft_length for row in rows])
    step = np.array([row.step_ms for row in rows])
    base, bars = np.zeros(len(rows)), {}
    for column, words, colour, hatch in SLICES:
        height = np.array([getattr(row, column) for row in rows])
        if (height > THIN * step).any():
            bars[column] = axes.bar(
                x,
                height,
                bottom=base,
                width=0.72,
                color=colour,
                hatch=hatch,
                label=words,
                edgecolor="black",
                linewidth=0.5,
            )
        base = base + height
    per_token = [row.tpot_ms for row in rows]
    (line,) = axes.plot(
        x,
        per_token,
        color="black",
        marker="D",
        markersize=6,
        markerfacecolor="white",
        label="time per token of one sequence",
    )
    for length, height, diamond in zip(x, step, per_token, strict=True):
        clear = 7 if abs(diamond - height) < 0.05 * step.max() else 2  # points, above the diamond
        axes.annotate(
            f"{height:#.3g}".rstrip("."),
            (length, height),
            xytext=(0, clear),
            textcoords="offset points",
            ha="center",
            size=7.5,
        )
    axes.set_xticks(x, [_tick(row) for row in rows])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("draft length D (tokens drafted for each verify pass)")
    axes.set_ylabel("time of one step (ms)")
    entries = axes.get_legend_handles_labels()
    columns = 2
    lines = -(-len(entries[0]) // columns)
    axes.set_ylim(0, float(step.max()) * (1.08 + 0.062 * lines))
    axes.legend(loc="upper left", ncols=columns)
    return bars, line
