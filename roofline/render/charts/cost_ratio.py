"""Cost ratio R(D) beside tokens per step AL(D): drafts pay where R lies below AL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofline.advice.recommend import Recommendation
from roofline.base.errors import InputError
from roofline.render.charts.figure import MARKERS, PALETTE
from roofline.render.charts.speedup import LINES, MOST_LINES, mark_uncaptured
from roofline.timing.uncertainty import speedup_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["CostRatioRow", "cost_ratio_rows", "draw_cost_ratio"]

LOSS = "#F3E3DA"  # where a step costs more plain steps than it yields tokens


class CostRatioRow(NamedTuple):
    """One draft length at one batch."""

    batch: int
    context: int
    draft_length: int
    tokens_per_step: float
    cost_ratio: float  # also the tokens per step at which this draft length breaks even
    cost_ratio_low: float
    cost_ratio_high: float
    speedup: float  # the first over the second
    recommended: bool
    captured: bool  # the engine's graphs cover the verify pass, or it has none


def cost_ratio_rows(answer: Recommendation) -> list[CostRatioRow]:
    """Return every draft length that can be run, point by point, at the answer's one context.

    The range of R(D) is that of the step times alone: 1 / R at 10th and 90th percentile.
    """
    workload = answer.question.workload
    if len(workload.contexts) != 1:
        raise InputError("tokens per step belong to one context; give one", field="context")
    one = np.ones((1, 1, 1, len(answer.question.draft_lengths)))
    low, high = speedup_range(answer.priced.drawn, one)
    rows = []
    for point in answer.points:
        at = workload.batches.index(point.batch), 0
        ratio = point.cost_ratio
        ends = np.fmin(1 / high[at], ratio), np.fmax(1 / low[at], ratio)
        rows += [
            CostRatioRow(
                batch=point.batch,
                context=point.context,
                draft_length=d,
                tokens_per_step=float(point.tokens_per_step[i]),
                cost_ratio=float(ratio[i]),
                cost_ratio_low=float(ends[0][i]),
                cost_ratio_high=float(ends[1][i]),
                speedup=float(point.speedup[i]),
                recommended=i == point.best,
                captured=bool(point.captured[i]),
            )
            for i, d in enumerate(point.draft_lengths)
            if point.feasible[i]
        ]
    return rows


def draw_cost_ratio(axes: Axes, rows: Sequence[CostRatioRow]) -> dict[int | str, Line2D]:
    """Draw AL(D), the loss above it, and R(D) of each batch; return lines by batch, and "AL".

    The speedup is the height of AL over that of R. The large point is the advice; the shade around
    a line is the model's error.
    """
    batches = list(dict.fromkeys(row.batch for row in rows))
    if len(batches) >= MOST_LINES:
        raise InputError(
            f"{len(batches)} batches, at most {MOST_LINES - 1} can be told apart; ask for fewer",
            field="batch",
        )
    known = dict(sorted({row.draft_length: row.tokens_per_step for row in rows}.items()))
    x, tokens = np.array(list(known)), np.array(list(known.values()))
    lines: dict[int | str, Line2D] = {}
    (lines["AL"],) = axes.plot(
        x,
        tokens,
        color="black",
        linewidth=2.2,
        marker="*",
        markersize=7,
        label="tokens per step AL(D)",
    )
    for number, batch in enumerate(batches):
        lines[batch] = _draw_line(axes, [row for row in rows if row.batch == batch], number)
    mark_uncaptured(axes, [(row.draft_length, row.cost_ratio) for row in rows if not row.captured])
    drawn = [row.cost_ratio_high if row.captured else row.cost_ratio for row in rows]
    top = max(float(tokens.max()), *drawn)
    entries = len(axes.get_legend_handles_labels()[0]) + 1
    high = 1 + (top - 1) * 1.06
    high += (0.075 + 0.062 * -(-entries // 2)) / 0.8 * (high - 0.8)
    axes.set_ylim(0.8, high)
    axes.fill_between(
        x, tokens, high, color=LOSS, linewidth=0, zorder=0, label="slower than plain decoding"
    )
    axes.set_xticks(x)
    axes.margins(x=0.03)
    axes.set_xlabel("draft length D (tokens drafted for each verify pass)")
    axes.set_ylabel("plain steps that a step costs, tokens that it yields")
    axes.legend(
        loc="upper left",
        ncols=2,
        title="R(D) below AL(D): drafts pay; large: advised; shade around a line: model error",
        title_fontsize=7.5,
        alignment="left",
    )
    return lines


def _draw_line(axes: Axes, rows: Sequence[CostRatioRow], number: int) -> Line2D:
    """Draw R(D) of one batch: band, line and points; the large one is advised."""
    colour, marker = PALETTE[number], MARKERS[number]
    x = np.array([row.draft_length for row in rows])
    low, high = ([getattr(row, f"cost_ratio_{end}") for row in rows] for end in ("low", "high"))
    axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    (best,) = (row for row in rows if row.recommended)
    (line,) = axes.plot(
        x,
        [row.cost_ratio for row in rows],
        color=colour,
        linestyle=LINES[number],
        marker=marker,
        markersize=5,
        markerfacecolor="white",
        label=f"cost ratio R(D), batch {best.batch}: D = {best.draft_length}, {best.speedup:.2f}x",
    )
    axes.plot(
        [best.draft_length],
        [best.cost_ratio],
        color=colour,
        linestyle="",
        marker=marker,
        markersize=10,
        markeredgecolor="black",
    )
    return line
