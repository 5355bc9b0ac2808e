"""``roofline report``: the answer with its grid, charts and sliders, as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.cli.listing import typed
from roofline.cli.plotting import Batch, Context, asked, at_one, doublings, source_line, told
from roofline.cli.question import asks
from roofline.cli.values import sizes, sizes_or_range

if TYPE_CHECKING:
    from roofline.advice.deployment import Configuration
    from roofline.advice.question import Workload

__all__ = ["report"]

_SUFFIXES = (".html", ".htm")
#: Options that the page's own controls stand for, or that recommend does not have.
_MOVED = (
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
    batch: Batch = "1",
    context: Context = "4k",
    batches: Annotated[
        str | None,
        typer.Option(help="Batches to move through.  [1 to 1024, two a doubling]"),
    ] = None,
    contexts: Annotated[
        str | None,
        typer.Option(help="Contexts to move through.  [512 to 128k by doublings]"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Report to write: .html.")
    ] = None,
) -> None:
    """Write the answer as one HTML file with charts and sliders.

    Its grid of batch, context and D, the schedule, and all sources are in it too.
    """
    from roofline.base.files import write_atomically
    from roofline.questions.explore import EXPLORED_BATCHES
    from roofline.render.columns import wrap
    from roofline.render.page.findings import find
    from roofline.render.page.page import render_page
    from roofline.render.why import caveat, headline

    if output is None or output.suffix.lower() not in _SUFFIXES:
        given = "give FILE.html for the report" if output is None else "expected a name in .html"
        raise InputError(f"-o{'' if output is None else f' {output}'}: {given}")
    found = find(
        configuration,
        at_one(workload, batch, context),
        batches=EXPLORED_BATCHES if batches is None else sizes_or_range("--batches", batches),
        contexts=doublings(configuration) if contexts is None else sizes("--contexts", contexts),
        named=batches is not None or contexts is not None,
    )
    command = ["roofline", "recommend", *asked(sys.argv[1:], _MOVED)[1:]]
    write_atomically(output, render_page(found, source=source_line(), command=command, spell=typed))
    for warning in told(found.answer):
        typer.echo(typed(f"warning: {warning}"), err=True)
    typer.echo(f"wrote {output}", err=True)
    answer, point = found.answer, found.answer.points[0]
    typer.echo(typed(wrap(headline(answer, point) + caveat(answer, point))))
