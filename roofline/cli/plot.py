"""``roofline plot``: charts of an answer, each with its numbers as CSV."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.units import format_size
from roofline.cli import plot_kernels
from roofline.cli.listing import help_if_bare
from roofline.cli.plotting import (
    Batch,
    Batches,
    Context,
    Contexts,
    Target,
    at,
    at_one,
    charts,
    doublings,
    one,
    show,
    span,
    told,
)
from roofline.cli.question import asks
from roofline.cli.values import sizes, sizes_or_range

if TYPE_CHECKING:
    from roofline.advice.prepare import Request
    from roofline.advice.recommend import Recommendation

app = typer.Typer(
    help="Draw charts of an answer: PNG, SVG or PDF, and CSV.",
    callback=help_if_bare,
    invoke_without_command=True,
)
#: Batches of the heatmap.
DOUBLINGS = ",".join(str(2**i) for i in range(11))


def _batches(text: str) -> tuple[int, ...]:
    return sizes_or_range("--batch", text) if ".." in text else sizes("--batch", text)


@app.command()
@asks()
@charts(7.0, 5.0)
def speedup(
    request: Request,
    target: Target,
    *,
    batch: Batches = "1,8,32,128",
    context: Contexts = "4k",
) -> None:
    """Draw the speedup by draft length, with its error.

    A line for each batch; the band is what the model's error leaves of it.
    """
    from roofline.advice.recommend import recommend
    from roofline.render.charts.speedup import draw_speedup, speedup_rows
    from roofline.render.refusals import refused_lines

    contexts = sizes("--context", context)
    answer = recommend(replace(request, batches=_batches(batch), contexts=contexts))
    rows = speedup_rows(answer)
    show(
        target, answer.setup, rows, lambda axes: draw_speedup(axes[0], rows),
        title=f"speedup by draft length, run D = {_advised(answer)}",
        where=f"context {', '.join(map(format_size, contexts))}{_left_out(answer)}",
        warnings=[*answer.warnings, *refused_lines(answer.setup, answer.refused)],
    )  # fmt: skip


@app.command()
@asks()
@charts(8.0, 5.4)
def heatmap(
    request: Request,
    target: Target,
    *,
    batch: Batches = DOUBLINGS,
    context: Annotated[
        str | None,
        typer.Option("--context", help="Tokens in the KV cache.  [512 to 128k by doublings]"),
    ] = None,
) -> None:
    """Draw the best draft length over batch and context.

    The line is where speculation stops paying.
    """
    from roofline.advice.recommend import recommend
    from roofline.render.charts.heatmap import draw_heatmap, heatmap_rows

    contexts = doublings(request) if context is None else sizes("--context", context)
    answer = recommend(replace(request, batches=_batches(batch), contexts=contexts))
    rows = heatmap_rows(answer)
    show(
        target, answer.setup, rows, lambda axes: draw_heatmap(axes[0], rows),
        title=f"run D = {_advised(answer)}, by batch and context",
        where="cells: advised D and its speedup",
        warnings=told(_of_what_fits(answer)),
    )  # fmt: skip


@app.command()
@asks()
@charts(7.0, 5.4)
def breakdown(
    request: Request,
    target: Target,
    *,
    batch: Batch = "32",
    context: Context = "4k",
) -> None:
    """Draw where the time of a step goes by draft length.

    The time per token stands beside it.
    """
    from roofline.advice.recommend import recommend
    from roofline.render.charts.breakdown import breakdown_rows, draw_breakdown

    asked = at_one(request, batch, context)
    answer = recommend(asked)
    (point,) = answer.points
    rows = breakdown_rows(answer, point)
    show(
        target, answer.setup, rows, lambda axes: draw_breakdown(axes[0], rows),
        title=f"one step by draft length, D = {point.draft_length} advised",
        where=at(asked),
        warnings=answer.warnings,
    )  # fmt: skip


@app.command()
@asks()
@charts(7.0, 5.2)
def frontier(
    request: Request,
    target: Target,
    *,
    batch: Annotated[
        str | None,
        typer.Option(help="Batches on the curve: 1,8 or 1..64.  [1 to 1024, those that fit]"),
    ] = None,
    context: Context = "4k",
) -> None:
    """Draw throughput against interactivity, plain and advised."""
    from roofline.advice.recommend import recommend
    from roofline.questions.goals import BATCHES
    from roofline.render.charts.frontier import draw_frontier, frontier_rows
    from roofline.render.refusals import refused_lines

    contexts = one("--context", context)
    batches = BATCHES if batch is None else _batches(batch)
    answer = recommend(replace(request, batches=batches, contexts=contexts))
    rows = frontier_rows(answer)
    show(
        target, answer.setup, rows, lambda axes: draw_frontier(axes[0], rows),
        title=f"what each batch gives, plain and at D = {_advised(answer)}",
        where=f"context {format_size(contexts[0])}{_left_out(answer) if batch else ''}",
        warnings=[*told(answer), *(refused_lines(answer.setup, answer.refused) if batch else ())],
    )  # fmt: skip


def _left_out(answer: Recommendation) -> str:
    """Say which of the points asked for have no line, since they do not fit in memory."""
    from roofline.render.columns import listed

    request, drawn = answer.setup.request, {(p.batch, p.context) for p in answer.points}
    missing = {
        batch: [context for context in request.contexts if (batch, context) not in drawn]
        for batch in request.batches
    }
    said = [
        f"{batch}"
        + (f" at {', '.join(map(format_size, lost))}" if len(request.contexts) > 1 else "")
        for batch, lost in missing.items()
        if lost
    ]
    if not said:
        return ""
    return f"; batch {listed(said, 'or')} does not fit in memory"


def _of_what_fits(answer: Recommendation) -> Recommendation:
    """Return the answer for the contexts that fit at all: others have nothing to warn about."""
    from roofline.advice.recommend import recommend

    fit = tuple(sorted({point.context for point in answer.points}))
    if set(answer.setup.request.contexts) == set(fit):
        return answer
    return recommend(replace(answer.setup.request, contexts=fit))


def _advised(answer: Recommendation) -> str:
    """Return the advised lengths of the batches beside which drafts fit at all."""
    fits = [point for point in answer.points if point.feasible[1:].any()]
    return span([point.draft_length for point in fits or answer.points])


app.command("roofline")(plot_kernels.roofline_chart)
app.command()(plot_kernels.attention)
app.command()(plot_kernels.parity)
