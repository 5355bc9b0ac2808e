"""Cost ratio R(D) beside tokens per step AL(D): drafts pay where R lies below AL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofline.advice.recommend import Recommendation
from roofline.base.errors import InputError
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
    require_drafts(answer)
    one = np.ones((1, 1, 1, len(answer.question.draft_lengths)))
    low, high = speedup_range(answer.priced.drawn, one)
    rows = []
    for point, i, length in runnable(answer):
        at, ratio = (workload.batches.index(point.batch), 0, i), float(point.cost_ratio[i])
        rows.append(
            CostRatioRow(
                batch=point.batch,
                context=point.context,
                draft_length=length,
                tokens_per_step=float(point.tokens_per_step[i]),
                cost_ratio=ratio,
                cost_ratio_low=float(np.fmin(1 / high[at], ratio)),
                cost_ratio_high=float(np.fmax(1 / low[at], ratio)),
                speedup=float(point.speedup[i]),
                recommended=i == point.best,
                captured=bool(point.captured[i]),
            )
        )
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
        of_batch = [row for row in rows if row.batch == batch]
        (at,) = (i for i, row in enumerate(of_batch) if row.recommended)
        best = of_batch[at]
        lines[batch] = draw_line(
            axes,
            [row.draft_length for row in of_batch],
            [row.cost_ratio for row in of_batch],
            ([row.cost_ratio_low for row in of_batch], [row.cost_ratio_high for row in of_batch]),
            number=number,
            of=len(batches),
            label=f"cost ratio R(D), batch {batch}: D = {best.draft_length}, {best.speedup:.2f}x",
            advised=at,
        )
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
    axes.set_ylabel("plain steps that a step costs, tokens that it yields")
    draw_legend(
        axes,
        columns=2,
        title=f"R(D) below AL(D): drafts pay; large: advised; {range_words(len(batches))}",
    )
    name_lines(axes, {"AL(D)": lines["AL"], **{f"batch {b}": lines[b] for b in batches}})
    return lines
