"""Predicted against measured time of every row that a machine's laws were fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roofline.calibrate.fit.fitted_law import FittedLaw
from roofline.render.calibration import law_name
from roofline.render.charts.figure import PALETTE, Caption, label_ticks, write_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["write_residuals"]

MARKERS = "os^"  # one for each time the palette is used again


def write_residuals(laws: Sequence[FittedLaw], path: Path, *, device: str, source: str) -> None:
    """Draw every row of every law, held-out rows hollow."""
    caption = Caption(
        title=f"Predicted against measured kernels on {device}",
        setting=f"{len(laws)} laws; hollow: held out, not fitted",
        source=source,
    )
    write_chart(path, caption, lambda axes: _draw(axes[0], laws), size=(6.5, 6.4))


def _draw(axes: Axes, laws: Sequence[FittedLaw]) -> None:
    times: list[float] = []
    for number, law in enumerate(laws):
        measured = 1e6 * law.measured
        predicted = 1e6 * law.predicted
        repeat, colour = divmod(number, len(PALETTE))
        for which, face in ((~law.held, PALETTE[colour]), (law.held, "none")):
            axes.scatter(
                measured[which],
                predicted[which],
                s=14,
                facecolors=face,
                edgecolors=PALETTE[colour],
                marker=MARKERS[repeat % len(MARKERS)],
                label=law_name(law) if face != "none" else None,
            )
        times += [*measured, *predicted]
    ends = (min(times) / 1.5, max(times) * 1.5)
    axes.plot(ends, ends, color="0.5", linewidth=1)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=ends,
        xlabel="measured time of one call (µs)",
        ylabel="predicted time of one call (µs)",
    )
    for axis in (axes.xaxis, axes.yaxis):
        label_ticks(axis, low=ends[0], high=ends[1])
    axes.legend(fontsize="x-small")
