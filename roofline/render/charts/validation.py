"""Charts of the validation: predicted against measured times, and the regret of each rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofline.render.charts.figure import MARKERS, PALETTE, Caption, label_ticks, write_chart
from roofline.validation.advice import RULES, SweepChoice
from roofline.validation.score import Compared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D

__all__ = [
    "ParityRow",
    "draw_parity",
    "draw_regrets",
    "parity_caption",
    "parity_rows",
    "write_parity",
    "write_regrets",
]

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
    """Return every row of every comparison."""
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
    points = {"textbook": grey}
    kinds = np.array([row.kind for row in rows])
    for number, kind in enumerate(sorted(set(kinds))):
        of_kind = kinds == kind
        points[str(kind)] = axes.scatter(
            measured[of_kind],
            predicted[of_kind],
            s=10,
            c=PALETTE[number % 7],
            marker=MARKERS[number % 7],
            linewidths=0,
            alpha=0.7,
            label=f"{kind} ({of_kind.sum():,} rows)",
        )
    axes.plot(ends, ends, color="black", linewidth=1)
    for factor in (BAND, 1 / BAND):
        label = f"a factor of {BAND} off" if factor == BAND else None
        axes.plot(
            ends, factor * ends, color="black", linewidth=0.7, linestyle="dashed", label=label
        )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        label_ticks(axis, low=low, high=high)
    axes.set_xlabel(f"measured ({unit})")
    axes.set_ylabel(f"predicted ({unit})")
    axes.legend(loc="upper left", markerscale=1.8)
    return points


def parity_caption(rows: Sequence[ParityRow], *, what: str, source: str) -> Caption:
    """Return the caption of a parity plot: what was compared, and on which accelerators."""
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
    caption = parity_caption(rows, what=what, source=source)
    write_chart(path, caption, lambda axes: draw_parity(axes[0], rows), size=(6.5, 6.4))


def draw_regrets(axes: Axes, choices: Sequence[SweepChoice]) -> dict[str, Line2D]:
    """Draw the sorted regrets of each rule; return the lines by rule."""
    share = 100 * (np.arange(len(choices)) + 0.5) / max(len(choices), 1)
    lines = {}
    for colour, rule in zip(PALETTE, RULES, strict=False):
        regret = 100 * np.sort([choice.regret[rule] for choice in choices])
        label = f"{rule} (mean {regret.mean():.1f} %)" if len(regret) else rule
        (lines[rule],) = axes.step(share, regret, where="mid", color=colour, label=label)
    axes.set_xlabel("share of the sweeps (%)")
    axes.set_ylabel("speed lost against the measured best (%)")
    axes.set_yscale("symlog", linthresh=1)
    axes.legend(loc="upper left")
    return lines


def write_regrets(choices: Sequence[SweepChoice], path: Path, *, source: str) -> None:
    """Write the plot to a file."""
    groups = len({choice.group for choice in choices})
    caption = Caption(
        title=f"Regret of each rule on {len(choices)} published sweeps",
        setting=f"{groups} groups of runs; who chooses the draft length, and what it costs",
        source=source,
    )
    write_chart(path, caption, lambda axes: draw_regrets(axes[0], choices), size=(6.5, 5.0))
