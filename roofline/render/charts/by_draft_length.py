"""Lines over the draft length: one for each batch and context, its band and its advised point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline.advice.decide import Point
from roofline.advice.recommend import Recommendation
from roofline.base.errors import InputError, Option
from roofline.render.charts.figure import MARKERS, PALETTE, line_colours, spread_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = [
    "MOST_LINES",
    "UNCAPTURED",
    "draw_legend",
    "draw_line",
    "mark_uncaptured",
    "name_lines",
    "range_words",
    "require_drafts",
    "runnable",
]

#: What the crosses of a chart mark.
UNCAPTURED = "past the captured graphs"
#: The palette's last colour is too light for a line.
MOST_LINES = len(PALETTE) - 1
SHADED = 2  # lines whose shades can be told apart
BESIDE = 0.07  # draft lengths between the bars of two lines
APART = 0.042  # between two names beside the axes, as a share of their height
LINES = ("-", "dashed", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (6, 2)), (0, (3, 1)))


def require_drafts(answer: Recommendation) -> None:
    """Refuse a chart over draft lengths where nothing is drafted."""
    if len(answer.question.draft_lengths) == 1:
        raise InputError(
            "nothing is drafted, so there is one draft length and no line to draw; give "
            f"{Option('drafter')} and {Option('acceptance')}"
        )


def runnable(answer: Recommendation) -> Iterator[tuple[Point, int, int]]:
    """Yield every point's draft lengths that fit: the point, their position, their length."""
    for point in answer.points:
        for i, length in enumerate(point.draft_lengths):
            if point.feasible[i]:
                yield point, i, length


def draw_line(
    axes: Axes,
    x: Sequence[int],
    y: Sequence[float],
    band: tuple[Sequence[float], Sequence[float]],
    *,
    number: int,
    of: int,
    label: str,
    advised: int,
    filled: Sequence[bool] = (),
) -> Line2D:
    """Draw one line with the range of its error; the point at position ``advised`` is large.

    ``number`` of the lines ``of`` the chart sets colour, dash and marker; ``filled`` says which
    points are. A few lines have a shade; shades of more would merge, so these have a bar at the
    advised point, each a little beside the last.
    """
    colour, marker = line_colours(of)[number], MARKERS[number]
    points: dict[str, Any] = {"color": colour, "marker": marker}
    if of <= SHADED:
        axes.fill_between(x, *band, color=colour, alpha=0.15, linewidth=0)
    else:
        at = x[advised] + BESIDE * (number - (of - 1) / 2)
        ends = [side[advised] for side in band]
        axes.plot([at, at], ends, color=colour, marker="_", linewidth=1.3, markersize=6, zorder=1.5)
    (line,) = axes.plot(
        x, y, **points, linestyle=LINES[number], markersize=5, markerfacecolor="white", label=label
    )
    if any(filled):
        inside = np.array(filled)
        axes.plot(np.array(x)[inside], np.array(y)[inside], **points, linestyle="", markersize=5)
    axes.plot(
        [x[advised]], [y[advised]], **points, linestyle="", markersize=10, markeredgecolor="black"
    )
    return line


def name_lines(axes: Axes, lines: Mapping[str, Line2D]) -> None:
    """Write each line's name right of the axes at the height of its last point, none on another."""
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = {name: np.asarray(line.get_xydata())[-1] for name, line in lines.items()}
    heights = {name: float(to_axes.transform(end)[1]) for name, end in ends.items()}
    order = sorted(heights, key=lambda name: -heights[name])
    placed = spread_out([heights[name] for name in order], apart=APART, high=1.0)
    for name, height in zip(order, placed, strict=True):
        axes.annotate(
            name,
            tuple(to_axes.transform(ends[name])),
            xycoords="axes fraction",
            xytext=(1.015, height),
            textcoords="axes fraction",
            va="center",
            size=7.5,
            color=lines[name].get_color(),
            arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.5, "shrinkB": 4},
        )


def range_words(lines: int) -> str:
    """Say how the likely range is drawn."""
    return "shade: likely range" if lines <= SHADED else "bar: likely range at the advised D"


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


def draw_legend(axes: Axes, *, columns: int, title: str) -> None:
    """Draw the legend that stands above all lines, and name the axis of the draft length."""
    axes.set_xlabel("draft length D (tokens drafted for each verify pass)")
    axes.legend(loc="upper left", ncols=columns, title=title, title_fontsize=7.5, alignment="left")
