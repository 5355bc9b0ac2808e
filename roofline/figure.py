"""What all charts share: a colour-blind safe palette, sizes, and writing a figure whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from roofline.errors import InputError
from roofline.output import write_bytes_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PALETTE", "new_figure", "new_panels", "save"]

#: Okabe and Ito's colours, distinguishable with any common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
FORMATS = (".png", ".svg", ".pdf")
DOTS = 150  # per inch, of PNG


def new_figure(width: float = 7.0, height: float = 5.0) -> tuple[Figure, Axes]:
    """Return a figure of inches that no window system is needed for, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def new_panels(
    rows: int, columns: int, width: float = 9.0, height: float = 6.5
) -> tuple[Figure, list[Axes]]:
    """Return a figure of inches with a grid of axes that share x, in reading order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, sharex=True, squeeze=False).flat)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name asks for."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: expected a name ending in {', '.join(FORMATS)}")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:].lower(), dpi=DOTS)
    write_bytes_atomically(path, buffer.getvalue())
