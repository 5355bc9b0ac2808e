"""How far each law is off: a table for people, and a parity plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roofline.calibration.fit import score
from roofline.figure import PALETTE, Caption, caption, label_ticks, new_figure, save, styled
from roofline.measure.groups import Judged
from roofline.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["parity_plot", "residual_table"]

MARKERS = "os^"  # one for each time the palette is used again
HEADERS = (
    "law", "dtype", "kernel", "rows", "held out", "median %", "p90 %", "bias %", "worst row",
)  # fmt: skip


def residual_rows(laws: Sequence[Judged]) -> list[list[str]]:
    """Return one line of text cells for each law; errors on held-out rows where there are any."""
    lines = []
    for judged in laws:
        block = judged.block
        measured = np.array([row.seconds for row in judged.rows])
        which = judged.held if judged.held.any() else ~judged.held
        own = score(judged.predicted[which], measured[which])
        off = np.abs(judged.predicted / measured - 1)
        worst = judged.rows[int(off.argmax())]
        name = block.get("op") or block.get("covers") or block["kind"]
        form = "" if block["kind"] == "simple" else " (tiles)"
        lines.append([
            name + form, str(block.get("dtype", "-")), str(block.get("kernel", "-")),
            str(len(judged.rows)), str(int(judged.held.sum())), f"{100 * own.median:.1f}",
            f"{100 * own.p90:.1f}", f"{100 * own.bias:+.1f}",
            f"{off.max():.0%} at {worst.op} {worst.shape} ({format_seconds(worst.seconds)})",
        ])  # fmt: skip
    return lines


def residual_table(laws: Sequence[Judged]) -> str:
    """Return the residuals as aligned text."""
    cells = [list(HEADERS), *residual_rows(laws)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADERS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in cells
    )


def parity_plot(laws: Sequence[Judged], path: Path, *, device: str, source: str) -> None:
    """Draw predicted against measured time of every row, held-out rows hollow."""
    words = Caption(
        title=f"Predicted against measured kernels on {device}",
        setting=f"{len(laws)} laws; hollow: held out, not fitted",
        source=source,
    )
    with styled():
        figure, axes = new_figure(6.5, 6.4)
        _draw(axes, laws)
        caption(figure, words)
        save(figure, path, words=words)


def _draw(axes: Axes, laws: Sequence[Judged]) -> None:
    spans: list[float] = []
    for number, judged in enumerate(laws):
        measured = np.array([1e6 * row.seconds for row in judged.rows])
        predicted = 1e6 * judged.predicted
        label = f"{judged.block.get('op') or judged.block.get('covers') or judged.block['kind']}"
        again, colour = divmod(number, len(PALETTE))
        for which, face in ((~judged.held, PALETTE[colour]), (judged.held, "none")):
            axes.scatter(
                measured[which], predicted[which], s=14, facecolors=face,
                edgecolors=PALETTE[colour], marker=MARKERS[again % len(MARKERS)],
                label=label if face != "none" else None,
            )  # fmt: skip
        spans += [*measured, *predicted]
    ends = (min(spans) / 1.5, max(spans) * 1.5)
    axes.plot(ends, ends, color="0.5", linewidth=1)
    axes.set(
        xscale="log", yscale="log", xlim=ends, ylim=ends,
        xlabel="measured time of one call (µs)", ylabel="predicted time of one call (µs)",
    )  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        label_ticks(axis, low=ends[0], high=ends[1])
    axes.legend(fontsize="x-small")
