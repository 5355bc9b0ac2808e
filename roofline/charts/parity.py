"""Predicted against measured, every row a point, with the textbook roofline in grey."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roofline.figure import PALETTE, new_figure, save
from roofline.validation.score import Compared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

__all__ = ["draw_parity", "write_parity"]

BAND = 1.25  # the factor of the dashed lines


def draw_parity(axes: Axes, parts: Sequence[Compared]) -> dict[str, PathCollection]:
    """Draw one point for each row; return the points of each kind by name."""
    everything = np.concatenate([p.measured for p in parts]) * 1e6
    textbook = np.concatenate([p.textbook for p in parts]) * 1e6
    low, high = 0.7 * float(everything.min()), 1.4 * float(everything.max())
    ends = np.array([low, high])
    grey = axes.scatter(everything, textbook, s=6, c="#BBBBBB", label="textbook roofline")
    found = {"textbook": grey}
    for colour, kind in zip(PALETTE, sorted({p.kind for p in parts}), strict=False):
        mine = [p for p in parts if p.kind == kind]
        measured = np.concatenate([p.measured for p in mine]) * 1e6
        predicted = np.concatenate([p.predicted for p in mine]) * 1e6
        label = f"{kind} ({len(measured)} rows)"
        found[kind] = axes.scatter(measured, predicted, s=8, c=colour, label=label, alpha=0.7)
    axes.plot(ends, ends, color="black", linewidth=1)
    for factor in (BAND, 1 / BAND):
        axes.plot(ends, factor * ends, color="black", linewidth=0.7, linestyle="--")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    _label_ticks(axes, decades=float(np.log10(high / low)))
    axes.set_xlabel("measured (µs)")
    axes.set_ylabel("predicted (µs)")
    axes.set_title("Predicted against measured; dashed: a factor of 1.25")
    axes.legend(loc="upper left", fontsize=8, framealpha=0.9)
    return found


def _label_ticks(axes: Axes, *, decades: float) -> None:
    """Label whole decades, or 1, 2 and 5 of each where there are few: labels never overlap."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 3 else (1.0,)))
        axis.set_major_formatter("{x:,.0f}")
        axis.set_minor_formatter(NullFormatter())


def write_parity(parts: Sequence[Compared], path: Path) -> None:
    """Write the parity plot to a file."""
    figure, axes = new_figure(6.5, 6.0)
    draw_parity(axes, parts)
    save(figure, path)
