"""Predicted against measured, every row a point, with the textbook roofline in grey."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofline.render.charts.figure import MARKERS, PALETTE, Caption, label_ticks, write_chart
from roofline.validation.score import Compared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

__all__ = ["ParityRow", "draw_parity", "parity_rows", "parity_words", "write_parity"]

BAND = 1.25  # the factor of the dashed lines


class ParityRow(NamedTuple):
    """One measurement beside its prediction."""

    kind: str
    gpu: str
    engine: str
    dtype: str
    name: str
    measured_us: float
    predicted_us: float
    textbook_us: float


def parity_rows(parts: Sequence[Compared]) -> list[ParityRow]:
    """Return every row of every part."""
    return [
        ParityRow(
            kind=part.kind,
            gpu=part.gpu,
            engine=part.engine,
            dtype=part.dtype,
            name=part.name,
            measured_us=1e6 * float(measured),
            predicted_us=1e6 * float(predicted),
            textbook_us=1e6 * float(textbook),
        )
        for part in parts
        for measured, predicted, textbook in zip(
            part.measured, part.predicted, part.textbook, strict=True
        )
    ]


def draw_parity(axes: Axes, rows: Sequence[ParityRow]) -> dict[str, PathCollection]:
    """Draw one point for each row, in µs or, if most take longer, ms; return the points by kind."""
    measured, predicted, textbook = (
        np.array([getattr(row, f"{what}_us") for row in rows])
        for what in ("measured", "predicted", "textbook")
    )
    unit, scale = ("ms", 1e-3) if np.median(measured) >= 1e3 else ("µs", 1.0)
    measured, predicted, textbook = (scale * times for times in (measured, predicted, textbook))
    low, high = 0.7 * float(measured.min()), 1.4 * float(measured.max())
    ends = np.array([low, high])
    grey = axes.scatter(measured, textbook, s=6, c="#BBBBBB", label="textbook roofline")
    found = {"textbook": grey}
    kinds = np.array([row.kind for row in rows])
    for number, kind in enumerate(sorted(set(kinds))):
        mine = kinds == kind
        found[str(kind)] = axes.scatter(
            measured[mine],
            predicted[mine],
            s=10,
            c=PALETTE[number % 7],
            marker=MARKERS[number % 7],
            linewidths=0,
            alpha=0.7,
            label=f"{kind} ({mine.sum():,} rows)",
        )
    axes.plot(ends, ends, color="black", linewidth=1)
    for factor in (BAND, 1 / BAND):
        words = f"a factor of {BAND} off" if factor == BAND else None
        axes.plot(
            ends, factor * ends, color="black", linewidth=0.7, linestyle="dashed", label=words
        )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        label_ticks(axis, low=low, high=high)
    axes.set_xlabel(f"measured ({unit})")
    axes.set_ylabel(f"predicted ({unit})")
    axes.legend(loc="upper left", markerscale=1.8)
    return found


def parity_words(rows: Sequence[ParityRow], *, what: str, source: str) -> Caption:
    """Return title, setting and source of a parity plot: what was compared, on which parts."""
    off = np.abs([row.predicted_us / row.measured_us - 1 for row in rows])
    gpus, engines = (sorted({getattr(row, name) for row in rows}) for name in ("gpu", "engine"))
    return Caption(
        title=f"Predicted against measured {what}: {len(rows):,} rows, "
        f"{100 * float(np.median(off)):.1f} % off in the median",
        setting=f"engines: {', '.join(engines)}; accelerators: {', '.join(gpus)}",
        source=source,
    )


def write_parity(parts: Sequence[Compared], path: Path, *, what: str, source: str) -> None:
    """Write the parity plot to a file."""
    rows = parity_rows(parts)
    words = parity_words(rows, what=what, source=source)
    write_chart(path, words, lambda axes: draw_parity(axes[0], rows), size=(6.5, 6.4))
