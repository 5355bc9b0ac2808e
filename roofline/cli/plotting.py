"""What the plot commands share: the options of a chart's files, its source line, writing it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from roofline.base.errors import InputError
from roofline.base.units import format_size
from roofline.base.values import one_size
from roofline.cli.panels import OUTPUT as OUTPUT_PANEL
from roofline.cli.panels import QUESTION
from roofline.cli.printing import emit_notes, talk, typed
from roofline.cli.question import hints, option, show_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from roofline.advice.configuration import Configuration
    from roofline.advice.deployment import Deployment
    from roofline.advice.question import Workload
    from roofline.advice.recommend import Recommendation
    from roofline.base.notices import Notice
    from roofline.render.charts.figure import Caption

#: Draws rows in axes.
Draw = Callable[["Axes", Sequence[Any]], object]
__all__ = [
    "Batch",
    "Batches",
    "ChartFiles",
    "Context",
    "Contexts",
    "answered",
    "at_one_point",
    "doublings",
    "draw_answer",
    "draw_chart",
    "draw_for_deployment",
    "draws_chart",
    "one_value",
    "point_name",
    "source_line",
    "span",
    "without_options",
]


Batches = Annotated[
    str,
    option(QUESTION, "Sequences decoded together: 1,8 or 1..64.", "--batch", metavar="N,..."),
]
Batch = Annotated[str, option(QUESTION, "Sequences decoded together.", "--batch", metavar="N")]
Context = Annotated[str, option(QUESTION, "Tokens in the KV cache.", "--context", metavar="N")]
Contexts = Annotated[
    str, option(QUESTION, "Tokens in the KV cache: 1k,8k.", "--context", metavar="N,...")
]
#: Options that say where a chart goes, not what it shows.
_WHERE = ("-o", "--output", "--plot", "--data", "--dpi", "--size")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartFiles:
    """The files of one chart, and its size."""

    image: Path | None
    data: Path | None
    dots: int  # per inch
    size: tuple[float, float]  # [inches]


def _chart_files(
    default_size: tuple[float, float],
    output: Annotated[
        Path | None,
        option(
            OUTPUT_PANEL,
            "Chart to write: .png, .svg or .pdf.",
            "-o",
            "--output",
            metavar="FILE",
        ),
    ] = None,
    data: Annotated[
        Path | None, option(OUTPUT_PANEL, "The chart's numbers as CSV.", metavar="FILE")
    ] = None,
    dpi: Annotated[int, option(OUTPUT_PANEL, "Dots per inch of a PNG.", metavar="N")] = 150,
    size: Annotated[
        str | None, option(OUTPUT_PANEL, "Inches: 7x5.  [by chart]", metavar="WxH")
    ] = None,
) -> ChartFiles:
    """Return where these options write a chart; refuse wrong ones before it is computed."""
    from roofline.render.charts.figure import check_chart_path

    if output is None and data is None:
        raise InputError("-o: give FILE.png, .svg or .pdf for the chart, or --data FILE.csv")
    if output is not None and output.suffix.lower() == ".csv":
        raise InputError(
            f"-o {output}: the chart is a .png, .svg or .pdf; its numbers go to --data {output}"
        )
    if data is not None and data.suffix.lower() != ".csv":
        raise InputError(f"--data {data}: expected a name ending in .csv")
    if not 30 <= dpi <= 1200:
        raise InputError(f"--dpi {dpi}: expected 30 to 1200 dots per inch")
    inches = default_size if size is None else _size(size)
    if output is not None:
        check_chart_path(output, inches=max(inches), dots=dpi)
    return ChartFiles(image=output, data=data, dots=dpi, size=inches)


def draws_chart(width: float, height: float) -> Callable[[Callable[..., None]], Any]:
    """Give a command the options of ``_chart_files`` after its own; it receives ``files``.

    ``width`` and ``height`` are the default size of the chart [inches].
    """
    options = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(_chart_files).parameters.values())[1:]
    ]

    def wrap(plot: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(plot).parameters.values() if p.name != "files"]
        annotations = hints(plot) | hints(_chart_files)
        parameters = [p.replace(annotation=annotations[p.name]) for p in (*own, *options)]

        @functools.wraps(plot)
        def run(*question: Any, **values: Any) -> None:
            where = {option.name: values.pop(option.name) for option in options}
            plot(*question, files=_chart_files((width, height), **where), **values)

        return show_parameters(run, parameters)

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
    """Return what drew a chart: tool, version and the command, without the options of its files."""
    import shlex

    from roofline.base import __version__

    return f"roofline {__version__}: {shlex.join(['roofline', *without_options(sys.argv[1:])])}"


def without_options(arguments: Sequence[str], names: Sequence[str] = _WHERE) -> list[str]:
    """Return the arguments without these options, by default those that name files and sizes.

    >>> without_options(["plot", "speedup", "qwen3-8b", "-o", "a.png", "--data=a.csv", "--tp", "8"])
    ['plot', 'speedup', 'qwen3-8b', '--tp', '8']
    """
    from roofline.base.files import without_queries

    kept: list[str] = []
    skip = False
    for argument in arguments:
        name = argument.split("=", 1)[0]
        if skip:
            skip = False
        elif name in names:
            skip = "=" not in argument
        elif not (argument.startswith("-o") and not argument.startswith("--")):
            kept.append(without_queries(argument))
    return kept


def draw_chart(
    files: ChartFiles,
    rows: Sequence[Any],
    caption: Caption,
    *draws: Draw,
    heights: Sequence[float] = (1.0,),
    shared: Mapping[str, str | int] | None = None,
    notices: Iterable[Notice] = (),
    about: Sequence[str] = (),
) -> None:
    """Write the rows as CSV, and the chart that they are drawn as, each if it has a file.

    Each of ``draws`` draws the rows in axes of its own, one above another, whose relative
    ``heights`` are given; ``shared`` are columns in front. What there is to know follows.
    """
    written = []
    if files.image is not None:
        from roofline.render.charts.figure import write_chart

        def paint(axes: Sequence[Axes]) -> None:
            for panel, draw in zip(axes, draws, strict=True):
                draw(panel, rows)

        write_chart(files.image, caption, paint, size=files.size, panels=heights, dots=files.dots)
        written.append(files.image)
    if files.data is not None:
        from roofline.base.files import csv_text, write_atomically

        cells = [{**(shared or {}), **row._asdict()} for row in rows]
        write_atomically(files.data, typed(csv_text(cells)))
        written.append(files.data)
    from roofline.render.notices import notes

    emit_notes(notes(notices), about=about)
    talk(f"wrote {path}" for path in written)


def draw_for_deployment(
    files: ChartFiles,
    deployment: Deployment,
    rows: Sequence[Any],
    *draws: Draw,
    title: str,
    where: str,
    notices: Iterable[Notice],
    about: Sequence[str] = (),
    drafting: Sequence[str] = (),
    heights: Sequence[float] = (1.0,),
    left_out: Sequence[str] = (),
) -> None:
    """Draw a chart about a deployment, whose names stand in front of every row.

    ``left_out`` are names that the rows do not have; ``drafting`` is what the caption says of
    drafter and acceptance.
    """
    from roofline.render.charts.figure import caption_for

    caption = caption_for(deployment, title, where=where, drafting=drafting, source=source_line())
    names = _names(deployment)
    shared = {name: value for name, value in names.items() if name not in left_out}
    draw_chart(
        files, rows, caption, *draws, heights=heights, shared=shared, notices=notices, about=about
    )


def answered(configuration: Configuration, workload: Workload) -> Recommendation:
    """Return the answer that a chart shows."""
    from roofline.advice.question import ask
    from roofline.advice.recommend import recommend

    return recommend(ask(configuration, workload))


def draw_answer(
    files: ChartFiles,
    answer: Recommendation,
    rows: Sequence[Any],
    draw: Draw,
    *,
    title: str,
    where: str,
    notices: Iterable[Notice] | None = None,
    unfit: bool = True,
) -> None:
    """Draw a chart of an answer; ``unfit`` says what does not fit, if a point was asked for."""
    from roofline.render.deployment import drafting
    from roofline.render.refusals import refused_lines

    draw_for_deployment(
        files,
        answer.deployment,
        rows,
        draw,
        title=title,
        where=where,
        notices=answer.notices if notices is None else notices,
        about=refused_lines(answer.deployment, answer.refused) if unfit else (),
        drafting=drafting(answer.question),
    )


def one_value(field: str, text: str) -> tuple[int]:
    """Read the one batch or context that a chart is drawn for."""
    return (one_size(field, text, "this chart is drawn for one value; give one"),)


def at_one_point(workload: Workload, batch: str, context: str) -> Workload:
    """Return the workload at the one batch and context that a chart is drawn for."""
    return replace(
        workload, batches=one_value("batch", batch), contexts=one_value("context", context)
    )


def doublings(configuration: Configuration) -> tuple[int, ...]:
    """Return 512, 1k, ... up to 128k or the longest context that target and drafter handle."""
    from roofline.advice.deployment import deploy

    deployment, _ = deploy(configuration)
    longest = deployment.target.model.max_context
    longest_of_drafter = getattr(deployment.drafter.network, "max_context", None)
    if longest_of_drafter:
        longest = min(longest, longest_of_drafter)
    return tuple(2**i for i in range(9, 18) if 2**i <= longest) or (longest,)


def _names(deployment: Deployment) -> dict[str, str | int]:
    """Return the columns that every row of a chart shares."""
    return {
        "model": deployment.target.model.id,
        "gpu": deployment.gpu.id,
        "gpus": deployment.cards,
        "tp": deployment.target.placement.tp,
        "engine": deployment.engine.id,
        "drafter": deployment.drafter.name,
    }


def point_name(workload: Workload) -> str:
    """Name the one batch and context of a chart."""
    return f"batch {workload.batches[0]}, context {format_size(workload.contexts[0])}"


def span(lengths: Sequence[int]) -> str:
    """Return the range of some numbers.

    >>> span([3, 5, 0]), span([4])
    ('0 to 5', '4')
    """
    low, high = min(lengths), max(lengths)
    return f"{low}" if low == high else f"{low} to {high}"
