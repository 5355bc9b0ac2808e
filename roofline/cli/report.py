"""``roofline report``: the answer with its grid, charts and sliders, as one HTML file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.base.values import batches_in_order, distinct_sizes, one_size, sizes_or_range
from roofline.cli.panels import QUESTION
from roofline.cli.plotting import (
    Batches,
    Context,
    doublings,
    source_line,
    without_options,
)
from roofline.cli.printing import emit_answer, talk, typed
from roofline.cli.question import GPU_HOUR, asks, option, price

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload

__all__ = ["report"]

_SUFFIXES = (".html", ".htm")
#: Options that the page has controls for, or that recommend does not have.
_CONTROLS = (
    "-o",
    "--output",
    "--batch",
    "--context",
    "--batches",
    "--contexts",
    "--acceptance",
    "--acceptance-rounds",
)


@asks()
def report(
    configuration: Configuration,
    workload: Workload,
    *,
    batch: Batches = "1",
    context: Context = "4k",
    batches: Annotated[
        str | None,
        option(QUESTION, "Batches to move through.  [1 to 1024, two a doubling]", metavar="N,..."),
    ] = None,
    contexts: Annotated[
        str | None,
        option(QUESTION, "Contexts to move through.  [512 to 128k by doublings]", metavar="N,..."),
    ] = None,
    gpu_hour: Annotated[str | None, GPU_HOUR] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Report to write: .html.")
    ] = None,
) -> None:
    """Write the answer as one HTML file with charts and sliders.

    Its grid of batch, context and D, the schedule, and all sources are in it too. It opens at the
    first batch and states the answer of each.

    Example: roofline report llama-3.1-8b --gpu h100-sxm -o report.html
    """
    from roofline.base.files import write_atomically
    from roofline.questions.explore import EXPLORED_BATCHES
    from roofline.render.page.page import render_page
    from roofline.render.page.report import report_for
    from roofline.render.recommendation import as_answer, headline_blocks
    from roofline.render.writers import OutputFormat

    if output is None:
        raise InputError("-o: give FILE.html for the report")
    if output.suffix.lower() not in _SUFFIXES:
        raise InputError(f"-o {output}: expected a name in .html")
    one_context = "expected the one context that the report opens at; --contexts lists others"
    content = report_for(
        configuration,
        replace(
            workload,
            batches=batches_in_order("batch", batch),
            contexts=(one_size("context", context, one_context),),
            gpu_hour=price(gpu_hour),
        ),
        batches=EXPLORED_BATCHES if batches is None else sizes_or_range("batches", batches),
        contexts=doublings(configuration)
        if contexts is None
        else distinct_sizes("contexts", contexts),
        named=batches is not None or contexts is not None,
    )
    command = ["roofline", "recommend", *without_options(sys.argv[1:], _CONTROLS)[1:]]
    write_atomically(
        output, render_page(content, source=source_line(), command=command, spell=typed)
    )
    answer = content.answer
    shown = replace(as_answer(answer), blocks=lambda: headline_blocks(answer), more=tuple)
    emit_answer(shown, OutputFormat.TABLE)
    talk([f"wrote {output}"])
