"""What the plot commands share: where a chart goes, what it says drew it, and writing it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.base.errors import InputError
from roofline.base.files import printable
from roofline.base.units import format_size
from roofline.cli.listing import typed
from roofline.cli.question import hints, signed
from roofline.cli.values import one_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from roofline.acceptance import Acceptance
    from roofline.advice.deployment import Configuration, Deployment
    from roofline.advice.question import Workload
    from roofline.advice.recommend import Recommendation
    from roofline.render.charts.figure import Caption

__all__ = [
    "Batch",
    "Batches",
    "Context",
    "Contexts",
    "Target",
    "asked",
    "at",
    "at_one",
    "charts",
    "doublings",
    "draw",
    "not_fitting",
    "one",
    "said",
    "show",
    "source_line",
    "span",
    "told",
]


Batches = Annotated[str, typer.Option("--batch", help="Sequences decoded together: 1,8 or 1..64.")]
Batch = Annotated[str, typer.Option("--batch", help="Sequences decoded together.")]
Context = Annotated[str, typer.Option("--context", help="Tokens in the KV cache.")]
Contexts = Annotated[str, typer.Option("--context", help="Tokens in the KV cache: 1k,8k.")]
#: Options that say where a chart goes, not what it shows.
_WHERE = ("-o", "--output", "--plot", "--data", "--dpi", "--size")
MOST_WARNINGS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The files of one chart."""

    image: Path | None
    data: Path | None
    dots: int
    size: tuple[float, float]


def _target(
    usual: tuple[float, float],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Chart to write: .png, .svg or .pdf.")
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The chart's numbers as CSV.")] = None,
    dpi: Annotated[int, typer.Option("--dpi", help="Dots per inch of a PNG.")] = 150,
    size: Annotated[str | None, typer.Option(help="Inches: 7x5.  [by chart]")] = None,
) -> Target:
    """Return where these options send a chart; wrong ones are refused before it is computed."""
    from roofline.render.charts.figure import check_target

    if output is None and data is None:
        raise InputError("-o: give FILE.png, .svg or .pdf for the chart, or --data FILE.csv")
    if data is not None and data.suffix.lower() != ".csv":
        raise InputError(f"--data {data}: expected a name ending in .csv")
    if not 30 <= dpi <= 1200:
        raise InputError(f"--dpi {dpi}: expected 30 to 1200 dots per inch")
    inches = usual if size is None else _size(size)
    if output is not None:
        check_target(output, inches=max(inches), dots=dpi)
    return Target(image=output, data=data, dots=dpi, size=inches)


def charts(width: float, height: float) -> Callable[[Callable[..., None]], Any]:
    """Give a plot the options that say where it goes, after its own; it receives a ``Target``.

    ``width`` and ``height`` are those of the chart where none are asked for [inches].
    """
    options = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(_target).parameters.values())[1:]
    ]

    def wrap(plot: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(plot).parameters
        known = hints(plot) | hints(_target)
        taken = [
            parameter.replace(annotation=known[parameter.name])
            for parameter in (*(p for name, p in own.items() if name != "target"), *options)
        ]

        @functools.wraps(plot)
        def run(*asked: Any, **given: Any) -> None:
            where = {option.name: given.pop(option.name) for option in options}
            plot(*asked, target=_target((width, height), **where), **given)

        return signed(run, taken)

    return wrap


def _size(text: str) -> tuple[float, float]:
    try:
        width, height = (float(side) for side in text.lower().split("x"))
    except ValueError:
        raise InputError(f"--size {text}: expected width x height in inches, such as 7x5") from None
    if not (3 <= width <= 40 and 2.5 <= height <= 40):
        raise InputError(f"--size {text}: expected 3x2.5 to 40x40 inches")
    return width, height


def source_line() -> str:
    """Return what drew a chart: tool, version and the command, without where it was written to."""
    import shlex

    from roofline import __version__

    return f"roofline {__version__}: {shlex.join(['roofline', *asked(sys.argv[1:])])}"


def asked(arguments: Sequence[str], left_out: Sequence[str] = _WHERE) -> list[str]:
    """Return the arguments without some options, by default those that name files and sizes.

    >>> asked(["plot", "speedup", "qwen3-8b", "-o", "a.png", "--data=a.csv", "--batch", "8"])
    ['plot', 'speedup', 'qwen3-8b', '--batch', '8']
    """
    from roofline.base.files import without_queries

    kept: list[str] = []
    skip = False
    for argument in arguments:
        name = argument.split("=", 1)[0]
        if skip:
            skip = False
        elif name in left_out:
            skip = "=" not in argument
        elif not (argument.startswith("-o") and not argument.startswith("--")):
            kept.append(without_queries(argument))
    return kept


def draw(
    target: Target,
    rows: Sequence[Any],
    words: Caption,
    paint: Callable[[Sequence[Axes]], object],
    *,
    panels: Sequence[float] = (1.0,),
    warnings: Sequence[str] = (),
    same: Mapping[str, str | int] | None = None,
) -> None:
    """Write the rows as CSV and what ``paint`` makes of them as a chart, where each is wanted.

    ``panels`` are the heights of the axes, one above another; ``same`` are columns in front.
    """
    written = []
    if target.image is not None:
        from roofline.render.charts.figure import write_chart

        write_chart(target.image, words, paint, size=target.size, panels=panels, dots=target.dots)
        written.append(target.image)
    if target.data is not None:
        from roofline.base.files import csv_text, write_atomically

        cells = [{**(same or {}), **row._asdict()} for row in rows]
        write_atomically(target.data, typed(csv_text(cells)))
        written.append(target.data)
    for warning in warnings:
        typer.echo(printable(typed(f"warning: {warning}")), err=True)
    for path in written:
        typer.echo(printable(f"wrote {path}"), err=True)


def show(
    target: Target,
    deployment: Deployment,
    rows: Sequence[Any],
    paint: Callable[[Sequence[Axes]], object],
    *,
    title: str,
    where: str,
    warnings: Sequence[str],
    acceptance: Acceptance | None = None,
    panels: Sequence[float] = (1.0,),
    unsaid: Sequence[str] = (),
) -> None:
    """Draw a chart about a deployment, whose names stand in front of every row.

    ``unsaid`` are the names left out; without ``acceptance`` the caption names no drafter.
    """
    from roofline.render.charts.figure import caption_for

    words = caption_for(deployment, title, where=where, acceptance=acceptance, source=source_line())
    same = {name: value for name, value in _named(deployment).items() if name not in unsaid}
    draw(target, rows, words, paint, panels=panels, warnings=warnings, same=same)


def said(answer: Recommendation) -> list[str]:
    """Return the warnings of an answer."""
    from roofline.render.notices import warnings

    return warnings(answer.notices)


def not_fitting(answer: Recommendation) -> list[str]:
    """Return what is missing at the points that do not fit."""
    from roofline.render.refusals import refused_lines

    return refused_lines(answer.deployment, answer.refused)


def told(answer: Recommendation) -> list[str]:
    """Return the warnings of an answer over many points: the first few, and how many there are."""
    warnings = said(answer)
    more = len(warnings) - MOST_WARNINGS
    if more <= 1:
        return warnings
    return [*warnings[:MOST_WARNINGS], f"and {more} more, which roofline recommend prints"]


def one(flag: str, text: str) -> tuple[int]:
    """Read the one batch or context that a chart is drawn for."""
    return (one_size(flag, text, "this chart is drawn for one value; give one"),)


def at_one(workload: Workload, batch: str, context: str) -> Workload:
    """Return the workload at the one batch and context that a chart is drawn for."""
    return replace(workload, batches=one("--batch", batch), contexts=one("--context", context))


def doublings(configuration: Configuration) -> tuple[int, ...]:
    """Return 512, 1k, ... up to 128k or the longest context that target and drafter handle."""
    from roofline.advice.deployment import deploy

    deployment, _ = deploy(configuration)
    limits = [deployment.target.model.max_context]
    own = getattr(deployment.drafter.network, "max_context", None)
    longest = min([*limits, *([own] if own else [])])
    return tuple(2**i for i in range(9, 18) if 2**i <= longest) or (longest,)


def _named(deployment: Deployment) -> dict[str, str | int]:
    """Return the columns that every row of a chart shares."""
    return {
        "model": deployment.target.model.id,
        "gpu": deployment.gpu.id,
        "gpus": deployment.cards,
        "tp": deployment.target.placement.tp,
        "engine": deployment.engine.id,
        "drafter": deployment.drafter.name,
    }


def at(workload: Workload) -> str:
    """Name the one batch and context of a chart."""
    return f"batch {workload.batches[0]}, context {format_size(workload.contexts[0])}"


def span(lengths: Sequence[int]) -> str:
    """Return the range of some numbers.

    >>> span([3, 5, 0]), span([4])
    ('0 to 5', '4')
    """
    low, high = min(lengths), max(lengths)
    return f"{low}" if low == high else f"{low} to {high}"
