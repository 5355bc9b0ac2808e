"""How best D, speedup, knee and KV bytes change along one axis; a line for each other value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.base.units import format_size
from roofline.questions.explore import Exploration, Variant
from roofline.render.charts.figure import PALETTE, caption, caption_for, new_panels, save, styled
from roofline.render.deployment import drafting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["draw_exploration", "lines_of", "panels_of", "write_exploration"]

_STYLES = ("-", "dashed", ":", "-.")
LABEL = 0.06  # height of a tick's label, as a share of the panel
MOST_LINES = len(PALETTE) * len(_STYLES)


def _best(variant: Variant) -> float:
    return math.nan if variant.draft_length is None else variant.draft_length


def _speedup(variant: Variant) -> float:
    return math.nan if variant.draft_length is None else float(variant.speedup[variant.best])


def _knee(variant: Variant) -> float:
    """Return the batch from which on D falls; where it never does, the last one tried."""
    if not any(variant.by_batch):
        return math.nan
    return variant.falls_from or variant.batches[-1]


def _never_falls(variant: Variant) -> bool:
    return any(variant.by_batch) and variant.falls_from is None


def _kv(variant: Variant) -> float:
    return variant.kv_per_token_gpu / 1e3


class Panel(NamedTuple):
    """One quantity of the variants."""

    title: str
    value: Callable[[Variant], float]
    logarithmic: bool
    #: Whether a variant has more than the value drawn: it is then drawn hollow, pointing up.
    more: Callable[[Variant], bool] = lambda _: False


PANELS = (
    Panel("best draft length", _best, False),
    Panel("speedup (times plain decoding)", _speedup, False),
    Panel("batch from which D falls", _knee, True, _never_falls),
    Panel("KV of one GPU (kB a token)", _kv, True),
)
NOT_YET = "hollow: not up to this batch"


def panels_of(exploration: Exploration) -> list[Panel]:
    """Return the panels that have something to show."""
    return [
        panel
        for panel in PANELS
        if any(math.isfinite(panel.value(variant)) for variant in exploration.variants)
    ]


def lines_of(exploration: Exploration) -> dict[str, list[Variant]]:
    """Return the variants that differ only in the first axis, by the values of the other axes."""
    names = [axis.path.rsplit(".", 1)[-1] for axis in exploration.axes[1:]]
    lines: dict[str, list[Variant]] = {}
    for variant in exploration.variants:
        label = ", ".join(f"{n} = {v}" for n, v in zip(names, variant.values[1:], strict=True))
        lines.setdefault(label, []).append(variant)
    return lines


def draw_exploration(axes: Sequence[Axes], exploration: Exploration) -> dict[str, list[Line2D]]:
    """Draw the panels that have something to show; return each panel's lines by its title."""
    lines, first = lines_of(exploration), exploration.axes[0]
    if len(lines) > MOST_LINES:
        raise InputError(
            f"{len(lines)} lines, at most {MOST_LINES} can be told apart", field="plot"
        )
    drawn: dict[str, list[Line2D]] = {}
    for axis, panel in zip(axes, panels_of(exploration), strict=True):
        drawn[panel.title] = [
            _draw_line(axis, panel, variants, first.values, label=label, number=number)
            for number, (label, variants) in enumerate(lines.items())
        ]
        some_more = any(panel.more(variant) for variant in exploration.variants)
        axis.set_ylabel(f"{panel.title}\n({NOT_YET})" if some_more else panel.title)
        axis.set_xticks(range(len(first.values)), first.values)
        axis.set_xlim(-0.3, len(first.values) - 0.7)
        place = axis.get_subplotspec()
        if place is None or place.is_last_row():
            axis.set_xlabel(first.path)
        _scale(axis, drawn[panel.title], logarithmic=panel.logarithmic)
    return drawn


def _draw_line(
    axis: Axes,
    panel: Panel,
    variants: Sequence[Variant],
    values: Sequence[str],
    *,
    label: str,
    number: int,
) -> Line2D:
    """Draw one line; values that are really more are hollow and point up."""
    colour = PALETTE[number % len(PALETTE)]
    x = np.array([values.index(variant.values[0]) for variant in variants])
    y = np.array([panel.value(variant) for variant in variants])
    more = np.array([panel.more(variant) for variant in variants])
    (line,) = axis.plot(
        x,
        y,
        marker="o",
        markersize=4,
        markevery=np.flatnonzero(~more).tolist(),
        color=colour,
        linestyle=_STYLES[number // len(PALETTE)],
        label=label or None,
    )
    axis.plot(
        x[more],
        y[more],
        marker="^",
        markersize=7,
        markerfacecolor="white",
        color=colour,
        linestyle="",
    )
    return line


def _scale(panel: Axes, lines: Sequence[Line2D], *, logarithmic: bool) -> None:
    """Give a panel whole draft lengths, or powers of two."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in lines])
    values = drawn[np.isfinite(drawn)]
    if logarithmic and values.max() >= 4 * values.min():
        panel.set_yscale("log", base=2)
        panel.yaxis.set_major_locator(LogLocator(base=2))
        panel.yaxis.set_major_formatter(ScalarFormatter())
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_ylim(values.min() / 1.5, values.max() * 1.5)
    elif logarithmic:
        panel.set_ylim(0, 1.2 * values.max())
        _tick_whole(panel, values)
    elif (values == np.round(values)).all():
        panel.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        panel.set_ylim(values.min() - 0.5, values.max() + 0.5)


def _tick_whole(panel: Axes, values: NDArray[np.float64]) -> None:
    """Put the ticks at whole values, such as batches, if their labels have room."""
    ticks = np.unique(values)
    low, high = panel.get_ylim()
    if (ticks == np.round(ticks)).all() and (np.diff(ticks) > LABEL * (high - low)).all():
        panel.set_yticks(ticks, [f"{value:.0f}" for value in ticks])


def write_exploration(exploration: Exploration, path: Path, *, source: str) -> None:
    """Write the chart to a file."""
    question, axis = exploration.variants[0].question, exploration.axes[0]
    where = f"batch {exploration.batch}, context {format_size(exploration.context)}"
    words = caption_for(
        question.deployment,
        f"what {axis.path} changes",
        where=where,
        drafting=drafting(question),
        source=source,
    )
    with styled():
        panels = panels_of(exploration)
        rows, columns = (2, 2) if len(panels) == 4 else (1, len(panels))
        figure, axes = new_panels(rows, columns, height=3.4 * rows)
        lines = draw_exploration(axes, exploration)
        caption(figure, words)
        if len(exploration.axes) > 1:
            figure.legend(handles=lines[panels[0].title], loc="outside right upper")
        save(figure, path, words=words)
