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
    not_fitting,
    one,
    said,
    show,
    span,
    told,
)
from roofline.cli.question import asks
from roofline.cli.values import sizes, sizes_or_range

if TYPE_CHECKING:
    from roofline.advice.deployment import Configuration
    from roofline.advice.question import Workload
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
    configuration: Configuration,
    workload: Workload,
    target: Target,
    *,
    batch: Batches = "1,8,32,128",
    context: Contexts = "4k",
) -> None:
    """Draw the speedup by draft length, with its error.

    A line for each batch; the band is what the model's error leaves of it.
    """
    from roofline.advice.question import ask
    from roofline.advice.recommend import recommend
    from roofline.render.charts.speedup import draw_speedup, speedup_rows

    contexts = sizes("--context", context)
    answer = recommend(
        ask(configuration, replace(workload, batches=_batches(batch), contexts=contexts))
    )
    rows = speedup_rows(answer)
    show(
        target,
        answer.deployment,
        rows,
        lambda axes: draw_speedup(axes[0], rows),
        title=f"speedup by draft length, run D = {_advised(answer)}",
        where=f"context {', '.join(map(format_size, contexts))}{_left_out(answer)}",
        warnings=[*said(answer), *not_fitting(answer)],
        acceptance=answer.question.acceptance,
    )


@app.command()
@asks()
@charts(8.0, 5.4)
def heatmap(
    configuration: Configuration,
    workload: Workload,
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
    from roofline.advice.question import ask
    from roofline.advice.recommend import recommend
    from roofline.render.charts.heatmap import draw_heatmap, heatmap_rows

    contexts = doublings(configuration) if context is None else sizes("--context", context)
    answer = recommend(
        ask(configuration, replace(workload, batches=_batches(batch), contexts=contexts))
    )
    rows = heatmap_rows(answer)
    show(
        target,
        answer.deployment,
        rows,
        lambda axes: draw_heatmap(axes[0], rows),
        title=f"run D = {_advised(answer)}, by batch and context",
        where="cells: advised D and its speedup",
        warnings=told(_of_what_fits(answer)),
        acceptance=answer.question.acceptance,
    )


@app.command()
@asks()
@charts(7.0, 5.4)
def breakdown(
    configuration: Configuration,
    workload: Workload,
    target: Target,
    *,
    batch: Batch = "32",
    context: Context = "4k",
) -> None:
    """Draw where the time of a step goes by draft length.

    The time per token stands beside it.
    """
    from roofline.advice.question import ask
    from roofline.advice.recommend import recommend
    from roofline.render.charts.breakdown import breakdown_rows, draw_breakdown

    asked = at_one(workload, batch, context)
    answer = recommend(ask(configuration, asked))
    (point,) = answer.points
    rows = breakdown_rows(answer, point)
    show(
        target,
        answer.deployment,
        rows,
        lambda axes: draw_breakdown(axes[0], rows),
        title=f"one step by draft length, D = {point.draft_length} advised",
        where=at(asked),
        warnings=said(answer),
        acceptance=answer.question.acceptance,
    )


@app.command()
@asks()
@charts(7.0, 5.2)
def frontier(
    configuration: Configuration,
    workload: Workload,
    target: Target,
    *,
    batch: Annotated[
        str | None,
        typer.Option(help="Batches on the curve: 1,8 or 1..64.  [1 to 1024, those that fit]"),
    ] = None,
    context: Context = "4k",
) -> None:
    """Draw throughput against interactivity, plain and advised."""
    from roofline.advice.question import ask
    from roofline.advice.recommend import recommend
    from roofline.questions.goals import GOAL_BATCHES
    from roofline.render.charts.frontier import draw_frontier, frontier_rows

    contexts = one("--context", context)
    batches = GOAL_BATCHES if batch is None else _batches(batch)
    answer = recommend(ask(configuration, replace(workload, batches=batches, contexts=contexts)))
    rows = frontier_rows(answer)
    show(
        target,
        answer.deployment,
        rows,
        lambda axes: draw_frontier(axes[0], rows),
        title=f"what each batch gives, plain and at D = {_advised(answer)}",
        where=f"context {format_size(contexts[0])}{_left_out(answer) if batch else ''}",
        warnings=[*told(answer), *(not_fitting(answer) if batch else ())],
        acceptance=answer.question.acceptance,
    )


def _left_out(answer: Recommendation) -> str:
    """Say which of the points asked for have no line, since they do not fit in memory."""
    from roofline.render.columns import listed

    asked, drawn = answer.question.workload, {(p.batch, p.context) for p in answer.points}
    missing = {
        batch: [context for context in asked.contexts if (batch, context) not in drawn]
        for batch in asked.batches
    }
    said = [
        f"{batch}" + (f" at {', '.join(map(format_size, lost))}" if len(asked.contexts) > 1 else "")
        for batch, lost in missing.items()
        if lost
    ]
    if not said:
        return ""
    return f"; batch {listed(said, 'or')} does not fit in memory"


def _of_what_fits(answer: Recommendation) -> Recommendation:
    """Return the answer for the contexts that fit at all: others have nothing to warn about."""
    from roofline.advice.question import question_about
    from roofline.advice.recommend import recommend

    fit = tuple(sorted({point.context for point in answer.points}))
    question = answer.question
    if set(question.workload.contexts) == set(fit):
        return answer
    asked = replace(question.workload, contexts=fit)
    return recommend(question_about(answer.deployment, asked, question.deployment_notices))


def _advised(answer: Recommendation) -> str:
    """Return the advised lengths of the batches beside which drafts fit at all."""
    fits = [point for point in answer.points if point.feasible[1:].any()]
    return span([point.draft_length for point in fits or answer.points])


app.command("roofline")(plot_kernels.roofline_chart)
app.command()(plot_kernels.attention)
app.command()(plot_kernels.parity)
