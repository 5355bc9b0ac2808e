"""The best draft length over batch and context, and where speculation stops paying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.recommend import Recommendation
from roofline.advice.why import Outcome, deciding_limit
from roofline.base.units import format_size
from roofline.render.charts.figure import NOTHING, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

__all__ = [
    "CAUSES",
    "HeatmapRow",
    "break_even_edges",
    "draw_heatmap",
    "heatmap_rows",
]

Array = NDArray[np.float64]


#: Where drafts would win but for a limit: words for a cell, words for the legend, and the hatch.
CAUSES = {
    Outcome.NO_ROOM: ("no memory", "no memory: drafts would win if they fitted", "xxx"),
    Outcome.PAST_GRAPHS: ("no graph", "no graph: drafts would win in captured graphs", "..."),
    Outcome.UNKNOWN: ("no AL", "no AL: acceptance unknown where drafts may win", "|||"),
}

#: What does not fit: light, for it may be most of the chart.
UNFIT: dict[str, Any] = {"facecolor": "#FAFAFA", "edgecolor": "#E3E3E3", "hatch": "//"}
EDGE = "#D55E00"  # of the break-even
BELOW = 32  # points from the cells to the legend: ticks and label of the axis stand between
MOST_COLUMNS, MOST_ROWS = 13, 12  # with more, numbers have no room in the cells and beside them


class HeatmapRow(NamedTuple):
    """One cell; what does not fit in memory has no numbers."""

    batch: int
    context: int
    fits: bool
    draft_length: int | None
    speedup: float | None
    best_speculative_speedup: float | None  # of all D > 0: below 1 plain decoding is faster
    no_draft_because: Outcome | None  # one of CAUSES; None where drafts win or lose anyway
    memory_needed_bytes: float  # by plain decoding, on one GPU
    memory_available_bytes: float


def heatmap_rows(answer: Recommendation) -> list[HeatmapRow]:
    """Return every cell of the request's grid, those that do not fit included."""
    points = {(point.batch, point.context): point for point in answer.points}
    memory, rows = answer.memory, []
    batches, contexts = answer.question.workload.batches, answer.question.workload.contexts
    for batch in batches:
        for context in contexts:
            point = points.get((batch, context))
            needed, available = float(memory.needed(batch, context, 0)), memory.available
            if point is None:
                row = HeatmapRow(batch, context, False, None, None, None, None, needed, available)
                rows.append(row)
                continue
            drafts = point.speedup[1:][point.candidates[1:]]
            rows.append(
                HeatmapRow(
                    batch=batch,
                    context=context,
                    fits=True,
                    draft_length=point.draft_length,
                    speedup=float(point.speedup[point.best]),
                    best_speculative_speedup=float(drafts.max()) if len(drafts) else None,
                    no_draft_because=deciding_limit(answer, point),
                    memory_needed_bytes=needed,
                    memory_available_bytes=available,
                )
            )
    return rows


def draw_heatmap(axes: Axes, rows: Sequence[HeatmapRow]) -> QuadMesh:
    """Draw the advised D of each cell with its speedup, and the edge where the best D > 0 loses.

    Return the cells; axes are in equal steps from one batch or context to the next.
    """
    batches = sorted({row.batch for row in rows})
    contexts = sorted({row.context for row in rows})
    best, gain = (np.full((len(contexts), len(batches)), np.nan) for _ in range(2))
    for row in rows:
        at = contexts.index(row.context), batches.index(row.batch)
        best[at] = np.nan if row.draft_length is None else row.draft_length
        speedup = row.best_speculative_speedup
        gain[at] = np.nan if speedup is None else speedup
    colours, norm = _scale(int(np.nanmax(best)))
    axes.set_facecolor(UNFIT["facecolor"])
    axes.patch.set_hatch(UNFIT["hatch"])
    axes.patch.set_edgecolor(UNFIT["edgecolor"])
    roomy = len(batches) <= MOST_COLUMNS and len(contexts) <= MOST_ROWS
    cells = axes.pcolormesh(
        best, cmap=colours, norm=norm, edgecolors="white", linewidth=1 if roomy else 0
    )
    shown = _hatch_causes(axes, rows, batches, contexts, roomy=roomy)
    if roomy:
        _name_cells(axes, rows, batches, contexts, cells)
    drawn = _draw_break_even(axes, gain)
    across, up = (
        slice(None, None, -(-n // most))
        for n, most in ((len(batches), MOST_COLUMNS), (len(contexts), MOST_ROWS))
    )
    axes.set_xticks((np.arange(len(batches)) + 0.5)[across], [str(b) for b in batches][across])
    axes.set_yticks((np.arange(len(contexts)) + 0.5)[up], [format_size(c) for c in contexts][up])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_xlabel("batch (sequences decoded together)", loc="left")
    axes.set_ylabel("context (tokens of one sequence)")
    _legend(axes, shown, drawn=drawn, full=not np.isnan(best).any())
    figure = axes.get_figure()
    if figure is not None:
        bar = figure.colorbar(cells, ax=axes, ticks=range(int(np.nanmax(best)) + 1))
        bar.set_label("advised draft length D (tokens)")
        bar.ax.minorticks_off()
        bar.ax.tick_params(length=0)
        bar.outline.set_visible(False)
    return cells


def _scale(longest: int) -> tuple[Any, Any]:
    """Return one colour for each D and the norm that maps D to it."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    colours = ListedColormap(shades(longest))
    return colours, BoundaryNorm(np.arange(-0.5, longest + 1), colours.N)


def _hatch_causes(
    axes: Axes,
    rows: Sequence[HeatmapRow],
    batches: Sequence[int],
    contexts: Sequence[int],
    *,
    roomy: bool,
) -> list[Any]:
    """Hatch the cells in which no draft length can be advised; return what the legend shows."""
    from matplotlib.patches import Patch, PathPatch
    from matplotlib.path import Path

    shown = []
    for cause, (_, words, hatch) in CAUSES.items():
        look: dict[str, Any] = {"facecolor": NOTHING, "edgecolor": "#C0C0C0", "hatch": hatch}
        corners = [
            np.array((batches.index(row.batch), contexts.index(row.context)))
            for row in rows
            if row.no_draft_because == cause
        ]
        if corners:
            squares = [Path(corner + Path.unit_rectangle().vertices) for corner in corners]
            one = Path.make_compound_path(*squares)
            axes.add_patch(PathPatch(one, **look, linewidth=0))
            if roomy:
                axes.add_patch(PathPatch(one, facecolor="none", edgecolor="white"))
            shown.append(Patch(**look, label=words))
    return shown


def _name_cells(
    axes: Axes,
    rows: Sequence[HeatmapRow],
    batches: Sequence[int],
    contexts: Sequence[int],
    cells: QuadMesh,
) -> None:
    for row in rows:
        if row.draft_length is None or row.speedup is None:
            continue
        red, green, blue, _ = cells.to_rgba(np.array(row.draft_length))
        # luma Y' = 0.2126 R' + 0.7152 G' + 0.0722 B' (ITU-R BT.709); 0.45 was chosen by eye
        dark = 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45
        x, y = batches.index(row.batch) + 0.5, contexts.index(row.context) + 0.5
        for text, points, align, size, weight in (
            (f"{row.draft_length}", 0.5, "bottom", 9.5, "bold"),
            (_gain(row), -1.5, "top", 7, "normal"),
        ):
            axes.annotate(
                text,
                (x, y),
                xytext=(0, points),
                textcoords="offset points",
                ha="center",
                va=align,
                size=size,
                weight=weight,
                color="white" if dark else "black",
            )


def _gain(row: HeatmapRow) -> str:
    """Return the speedup, or why nothing can be drafted."""
    if row.no_draft_because is not None:
        return CAUSES[row.no_draft_because][0]
    return f"{row.speedup:.2f}x"


def _draw_break_even(axes: Axes, gain: Array) -> bool:
    """Draw the edges between cells that gain and cells that lose; say whether there are any."""
    edges = break_even_edges(gain)
    if not edges:
        return False
    from matplotlib.collections import LineCollection

    lines = LineCollection(edges, colors=EDGE, linewidths=2.5, capstyle="round", zorder=3)
    axes.add_collection(lines, autolim=False)
    return True


def break_even_edges(gain: Array) -> list[list[tuple[int, int]]]:
    """Return the edges, as (x, y) ends in cells, where a gain above 1 meets one that is not.

    Cells without a number (nan) have no such edge. ``gain`` has shape (rows up, columns).

    >>> break_even_edges(np.array([[1.2, 0.9]]))
    [[(1, 0), (1, 1)]]
    """
    wins = np.where(np.isnan(gain), np.nan, gain > 1)
    across = np.argwhere(np.abs(np.diff(wins, axis=1)) == 1)
    upward = np.argwhere(np.abs(np.diff(wins, axis=0)) == 1)
    return [
        *([(int(x) + 1, int(y)), (int(x) + 1, int(y) + 1)] for y, x in across),
        *([(int(x), int(y) + 1), (int(x) + 1, int(y) + 1)] for y, x in upward),
    ]


def _legend(axes: Axes, causes_shown: Sequence[Any], *, drawn: bool, full: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    shown: list[Any] = [*causes_shown]
    if drawn:
        words = "break-even of the best D > 0"
        shown.insert(0, Line2D([], [], color=EDGE, linewidth=2.5, label=words))
    if not full:
        words = "does not fit in memory"
        shown.append(Patch(**UNFIT, label=words))
    figure = axes.get_figure()
    if shown and figure is not None:
        # below the cells, which fill the axes, and below the label of the axis
        axes.legend(
            handles=shown,
            loc="upper left",
            bbox_to_anchor=(0.0, 0.0),
            bbox_transform=axes.transAxes
            + ScaledTranslation(0, -BELOW / 72, figure.dpi_scale_trans),
            borderaxespad=0,
            ncols=2,
            columnspacing=1.2,
            fontsize=7.5,
            frameon=False,
        )
