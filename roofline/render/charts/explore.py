"""How best D, speedup, knee and KV bytes change along one axis; a line for each other value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.base.units import format_size
from roofline.questions.explore import Exploration, Variant
from roofline.render.charts.figure import PALETTE, caption, caption_for, new_panels, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["draw_exploration", "lines_of", "write_exploration"]

_STYLES = ("-", "dashed", ":", "-.")
LABEL = 0.06  # height of a tick's label, as a share of the panel
MOST_LINES = len(PALETTE) * len(_STYLES)


def _best(variant: Variant) -> float:
    return math.nan if variant.draft_length is None else variant.draft_length


def _speedup(variant: Variant) -> float:
    return math.nan if variant.draft_length is None else float(variant.speedup[variant.best])


def _knee(variant: Variant) -> float:
    return variant.falls_from or math.nan


def _kv(variant: Variant) -> float:
    return variant.kv_per_token_gpu / 1e3


_PANELS: tuple[tuple[str, Callable[[Variant], float], bool], ...] = (
    ("best draft length", _best, False),
    ("speedup (times plain decoding)", _speedup, False),
    ("batch from which D falls (gap: never)", _knee, True),
    ("KV of one GPU (kB a token)", _kv, True),
)


def lines_of(exploration: Exploration) -> dict[str, list[Variant]]:
    """Return the variants that differ only in the first axis, by the values of the other axes."""
    names = [axis.path.rsplit(".", 1)[-1] for axis in exploration.axes[1:]]
    lines: dict[str, list[Variant]] = {}
    for variant in exploration.variants:
        label = ", ".join(f"{n} = {v}" for n, v in zip(names, variant.values[1:], strict=True))
        lines.setdefault(label, []).append(variant)
    return lines


def draw_exploration(axes: Sequence[Axes], exploration: Exploration) -> dict[str, list[Line2D]]:
    """Draw the four panels; return each panel's lines by its title."""
    lines, first = lines_of(exploration), exploration.axes[0]
    if len(lines) > MOST_LINES:
        raise InputError(
            f"{len(lines)} lines, at most {MOST_LINES} can be told apart", field="plot"
        )
    drawn: dict[str, list[Line2D]] = {}
    for panel, (title, value, logarithmic) in zip(axes, _PANELS, strict=True):
        for i, (label, variants) in enumerate(lines.items()):
            (line,) = panel.plot(
                [first.values.index(variant.values[0]) for variant in variants],
                [value(variant) for variant in variants],
                marker="o",
                markersize=4,
                color=PALETTE[i % len(PALETTE)],
                linestyle=_STYLES[i // len(PALETTE)],
                label=label or None,
            )
            drawn.setdefault(title, []).append(line)
        panel.set_ylabel(title)
        panel.set_xticks(range(len(first.values)), first.values)
        _scale(panel, drawn[title], logarithmic=logarithmic)
    for panel in axes[-2:]:
        panel.set_xlabel(first.path)
    return drawn


def _scale(panel: Axes, lines: Sequence[Line2D], *, logarithmic: bool) -> None:
    """Give a panel whole draft lengths, or powers of two; say where it has nothing to show."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in lines])
    values = drawn[np.isfinite(drawn)]
    if not values.size:
        panel.set_yticks([])
        panel.text(0.5, 0.5, "never, up to the last batch", transform=panel.transAxes, ha="center")
    elif logarithmic and values.max() >= 4 * values.min():
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
        acceptance=question.acceptance,
        source=source,
    )
    with styled():
        figure, axes = new_panels(2, 2)
        lines = draw_exploration(axes, exploration)
        caption(figure, words)
        if len(exploration.axes) > 1:
            figure.legend(handles=lines[_PANELS[0][0]], loc="outside right upper")
        save(figure, path, words=words)
