"""How far each law is off: a table for people, and a parity plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roofline.base.units import format_seconds
from roofline.calibrate.fit.core import score
from roofline.calibrate.fit.groups import Judged
from roofline.render.charts.figure import PALETTE, Caption, label_ticks, write_chart
from roofline.render.columns import text_table, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["parity_plot", "residual_table"]

MARKERS = "os^"  # one for each time the palette is used again
FAR = 0.25  # a law this far off a row names it
HEADERS = (
    "law", "kernel", "format", "rows", "held\nout", "median\n%", "p90\n%", "bias\n%", "worst\n%",
)  # fmt: skip


def residual_rows(laws: Sequence[Judged]) -> list[list[str]]:
    """Return one line of text cells for each law; errors on held-out rows where there are any."""
    lines = []
    for judged in laws:
        block, name = judged.block, _name(judged)
        measured = np.array([row.seconds for row in judged.rows])
        which = judged.held if judged.held.any() else ~judged.held
        own = score(judged.predicted[which], measured[which])
        kernel = str(block.get("kernel", ""))
        lines.append([
            name, "" if kernel in (name, "linear") or _many_kernels(judged) else kernel,
            str(block.get("dtype", "-")), str(len(judged.rows)), str(int(judged.held.sum())),
            f"{100 * own.median:.1f}", f"{100 * own.p90:.1f}", f"{100 * own.bias:+.1f}",
            f"{100 * _off(judged).max():.0f}",
        ])  # fmt: skip
    return lines


def _name(judged: Judged) -> str:
    block = judged.block
    return str(block.get("op") or block.get("covers") or block["kind"])


def _many_kernels(judged: Judged) -> bool:
    return len({row.kernel for row in judged.rows}) > 1


def _off(judged: Judged) -> NDArray[np.float64]:
    measured = np.array([row.seconds for row in judged.rows])
    return np.asarray(np.abs(judged.predicted / measured - 1))


def worst_rows(laws: Sequence[Judged]) -> list[str]:
    """Return a line for the worst row of each law that is over 25 % off it.

    Sizes are left out where all rows of the law share them.
    """
    lines = []
    for judged in laws:
        off = _off(judged)
        worst = judged.rows[int(off.argmax())]
        if off.max() <= FAR:
            continue
        shared = set.intersection(*({*row.shape.split()} for row in judged.rows))
        sizes = " ".join(size for size in worst.shape.split() if size not in shared)
        own = "" if worst.op == _name(judged) else f"{worst.op} "
        lines.append(
            f"{_name(judged)}: {off.max():.0%} off at {own}{sizes} "
            f"({format_seconds(worst.seconds)} measured)"
        )
    return lines


def residual_table(laws: Sequence[Judged]) -> str:
    """Return the residuals as columns, and the worst rows under them."""
    cells = residual_rows(laws)
    if not any(line[1] for line in cells):
        cells = [[line[0], *line[2:]] for line in cells]
    headers = HEADERS if len(cells[0]) == len(HEADERS) else (HEADERS[0], *HEADERS[2:])
    table = text_table(headers, cells, names_first=True)
    return "\n".join([table, *(wrap(line) for line in worst_rows(laws))]) + "\n"


def parity_plot(laws: Sequence[Judged], path: Path, *, device: str, source: str) -> None:
    """Draw predicted against measured time of every row, held-out rows hollow."""
    words = Caption(
        title=f"Predicted against measured kernels on {device}",
        setting=f"{len(laws)} laws; hollow: held out, not fitted",
        source=source,
    )
    write_chart(path, words, lambda axes: _draw(axes[0], laws), size=(6.5, 6.4))


def _draw(axes: Axes, laws: Sequence[Judged]) -> None:
    spans: list[float] = []
    for number, judged in enumerate(laws):
        measured = np.array([1e6 * row.seconds for row in judged.rows])
        predicted = 1e6 * judged.predicted
        again, colour = divmod(number, len(PALETTE))
        for which, face in ((~judged.held, PALETTE[colour]), (judged.held, "none")):
            axes.scatter(
                measured[which], predicted[which], s=14, facecolors=face,
                edgecolors=PALETTE[colour], marker=MARKERS[again % len(MARKERS)],
                label=_name(judged) if face != "none" else None,
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
