"""What all charts share: palette, style, captions, ticks, and writing the file."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline.advice.deployment import Deployment
from roofline.base.errors import InputError, Option
from roofline.base.files import write_bytes_atomically
from roofline.render.deployment import fixed_changes, gpus_named, set_line, stored_as

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "MARKERS",
    "NOTHING",
    "PALETTE",
    "SEQUENCE",
    "Caption",
    "caption",
    "caption_for",
    "check_chart_path",
    "label_ticks",
    "line_colours",
    "new_panels",
    "save",
    "shades",
    "spread_out",
    "styled",
    "write_chart",
]

#: Colours that people with any common colour blindness can tell apart (M. Okabe and K. Ito,
#: "Color Universal Design", 2008).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
#: A sequence from light to dark that people with any common colour blindness read in order:
#: viridis, reversed (S. van der Walt and N. Smith, matplotlib 1.5, 2015), in eighths.
SEQUENCE = (
    *("#FDE725", "#AADC32", "#5CC863", "#27AD81", "#21908D"),
    *("#2C718E", "#3B518B", "#472C7A", "#440154"),
)
NOTHING = "#DEDEDE"  # of D = 0
#: One for each colour, so that a black-and-white print can be read.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FORMATS = (".png", ".svg", ".pdf")
DOTS = 150  # per inch, of PNG
MOST_DOTS = 16_000  # of one side
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # matplotlib brings it along: the same on every machine
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.framealpha": 0.9,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "roofline",
    "pdf.fonttype": 42,
}
TITLE, SMALL, SOURCE = 10.5, 8.0, 6.5  # points
WIDE, BOLD = 0.56, 0.62  # mean width of a letter over its size, plain and bold


@dataclass(frozen=True, kw_only=True, slots=True)
class Caption:
    """The words around a chart: what it says, of what, and what drew it."""

    title: str
    setting: str
    source: str


def shades(longest: int) -> list[str]:
    """Return a colour for each D from 0 to the longest: grey for 0, then light to dark.

    >>> shades(2)
    ['#DEDEDE', '#E2E329', '#461D6C']
    """
    return [NOTHING, *_in_sequence(0.04, 0.92, longest)]


def line_colours(count: int) -> list[str]:
    """Return a colour for each of some lines in order, from one that is seen on white to dark.

    >>> line_colours(2)
    ['#47BD6F', '#440154']
    """
    return _in_sequence(0.3, 1.0, count) if count > 1 else [PALETTE[0]]


def _in_sequence(first: float, last: float, count: int) -> list[str]:
    """Return colours in equal steps between two places in the sequence, of which 1 is the end."""
    parts = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in SEQUENCE])
    at = np.linspace(first, last, count) * (len(SEQUENCE) - 1)
    mixed = [np.interp(at, np.arange(len(SEQUENCE)), part) for part in parts.T]
    return [f"#{r:02X}{g:02X}{b:02X}" for r, g, b in np.rint(mixed).astype(int).T]


@contextmanager
def styled() -> Iterator[None]:
    """Set the style of the charts for drawing and saving, whatever the user's settings are."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def write_chart(
    path: Path,
    words: Caption,
    paint: Callable[[Sequence[Axes]], object],
    *,
    size: tuple[float, float],
    panels: Sequence[float] = (1.0,),
    dots: int = DOTS,
) -> None:
    """Write what ``paint`` makes of some axes, captioned, in the charts' style.

    ``size`` is in inches; ``panels`` are the relative heights of the axes, one above another.
    """
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(panels), sharex=True, squeeze=False, height_ratios=list(panels))
        paint(list(axes.ravel()))
        caption(figure, words)
        save(figure, path, dots=dots, words=words)


def new_panels(
    rows: int, columns: int, width: float = 9.0, height: float = 6.5
) -> tuple[Figure, list[Axes]]:
    """Return a figure of inches with a grid of axes that share x, in reading order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, sharex=True, squeeze=False).flat)


def caption(figure: Figure, words: Caption) -> None:
    """Write title and setting above the axes and the source below, wrapped to the width."""
    edge = 0.012
    room = (1 - 2 * edge) * figure.get_figwidth() * 72
    figure.suptitle(
        _wrapped(words.title, room / (BOLD * TITLE)), x=edge, ha="left", size=TITLE, weight="bold"
    )
    setting = _wrapped(words.setting, 0.88 * room / (WIDE * SMALL))
    figure.axes[0].set_title(setting, loc="left", size=SMALL, color="#444444")
    source = _wrapped(words.source, room / (WIDE * SOURCE))
    figure.supxlabel(source, x=edge, ha="left", size=SOURCE, color="#666666")


def _wrapped(text: str, letters: float) -> str:
    """Break lines between words; an equation such as ``run D = 0 to 5`` stays whole."""
    equation = r"(run )?\w = \d+( to \d+)?"
    whole = re.sub(equation, lambda m: m[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return textwrap.fill(whole, width=int(letters), break_on_hyphens=False)


def label_ticks(axis: Axis, *, low: float, high: float) -> None:
    """Label a logarithmic axis in plain numbers: the fewer decades, the more numbers of each."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ratio = high / low
    subs = (1, 1.5, *range(2, 10)) if ratio < 5 else (1, 2, 5) if ratio < 1e3 else (1,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=99))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def check_chart_path(path: Path, *, inches: float = 0.0, dots: int = DOTS) -> None:
    """Refuse a chart's path with another ending, and a size with too many dots."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: expected a name ending in {', '.join(FORMATS)}")
    if inches * dots > MOST_DOTS:
        raise InputError(
            f"{path}: {inches:g} inches of {dots} dots are more than {MOST_DOTS} dots; give a "
            f"smaller {Option('size')} or {Option('dpi')}"
        )


def save(figure: Figure, path: Path, *, dots: int = DOTS, words: Caption | None = None) -> None:
    """Write a figure in the format that the file's name asks for, its caption inside the file."""
    check_chart_path(path, inches=float(max(figure.get_size_inches())), dots=dots)
    form = path.suffix[1:].lower()
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, dpi=dots, metadata=_metadata(form, words))
    write_bytes_atomically(path, buffer.getvalue())


def _metadata(form: str, words: Caption | None) -> dict[str, str | None]:
    """Return what the file says about itself: no dates, so that the same chart is the same file."""
    undated: dict[str, dict[str, str | None]] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }
    data = undated.get(form, {})
    if words is None:
        return data
    source = "Subject" if form == "pdf" else "Source"
    return {**data, "Title": words.title, source: words.source}


def caption_for(
    deployment: Deployment,
    message: str,
    *,
    source: str,
    where: str = "",
    drafting: Sequence[str] = (),
) -> Caption:
    """Return the caption of a chart about a deployment.

    ``message`` follows model and accelerators in the title; ``where`` names the batch or context of
    the whole chart; ``drafting`` is what the caption says of drafter and acceptance.
    """
    target = deployment.target
    setting = [f"{stored_as(deployment)}, {target.precision.kv} KV", deployment.engine.name]
    setting += [where] if where else []
    setting += drafting
    changed = set_line(fixed_changes(deployment)).strip().rstrip(".")
    setting += [changed] if changed else []
    return Caption(
        title=f"{target.model.name} on {gpus_named(deployment)}: {message}",
        setting="; ".join(setting),
        source=source,
    )


def spread_out(heights: Sequence[float], *, apart: float, high: float) -> list[float]:
    """Return falling heights moved as little as needed to be ``apart``, the first at most ``high``.

    Neighbours that are too near share the way: the pools of isotonic regression. What would go
    below 0 moves up as a block.

    >>> [round(h, 3) for h in spread_out([0.9, 0.5, 0.5], apart=0.1, high=1.0)]
    [0.9, 0.55, 0.45]
    """
    pools: list[list[float]] = []  # of wanted heights of the pool's first member
    for i, height in enumerate(heights):
        pools.append([height + i * apart])
        while len(pools) > 1 and np.mean(pools[-1]) > np.mean(pools[-2]):
            last = pools.pop()
            pools[-1].extend(last)
    flat = [float(np.mean(pool)) for pool in pools for _ in pool]
    room = (len(heights) - 1) * apart
    return [
        float(np.clip(first, room, max(high, room))) - i * apart for i, first in enumerate(flat)
    ]
