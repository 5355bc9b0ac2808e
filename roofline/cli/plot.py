"""``roofline plot``: charts of an answer, each with its numbers as CSV."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.units import format_size
from roofline.base.values import batches_in_order, sizes
from roofline.cli import plot_kernels
from roofline.cli.panels import QUESTION
from roofline.cli.plotting import (
    Batch,
    Batches,
    ChartFiles,
    Context,
    Contexts,
    answered,
    at_one_point,
    doublings,
    draw_answer,
    draw_for_deployment,
    draws_chart,
    one_value,
    point_name,
    span,
)
from roofline.cli.printing import help_if_bare
from roofline.cli.question import ANY_BATCH, asks, option

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload
    from roofline.advice.recommend import Recommendation
    from roofline.base.notices import Notice

app = typer.Typer(
    help="Draw charts of an answer: PNG, SVG or PDF, and CSV.",
    callback=help_if_bare,
    invoke_without_command=True,
)
#: Batches of the heatmap.
DOUBLINGS = ",".join(str(2**i) for i in range(11))


@app.command()
@asks()
@draws_chart(7.0, 5.0)
def speedup(
    configuration: Configuration,
    workload: Workload,
    files: ChartFiles,
    *,
    batch: Batches = "1,8,32,128",
    context: Contexts = "4k",
) -> None:
    """Draw the speedup by draft length, with its error.

    A line for each batch; the band is what the model's error leaves of it.

    Example: roofline plot speedup llama-3.1-8b --batch 1,8,64 -o speedup.png
    """
    from roofline.render.charts.speedup import draw_speedup, speedup_rows

    contexts = sizes("context", context)
    answer = answered(configuration, _at(workload, batch, contexts))
    draw_answer(
        files,
        answer,
        speedup_rows(answer),
        draw_speedup,
        title=f"speedup by draft length, {_advised(answer)}",
        where=f"context {', '.join(map(format_size, contexts))}{_left_out(answer)}",
    )


@app.command()
@asks()
@draws_chart(7.0, 5.2)
def cost_ratio(
    configuration: Configuration,
    workload: Workload,
    files: ChartFiles,
    *,
    batch: Batches = "1,32,128",
    context: Context = "4k",
) -> None:
    """Draw cost ratio R(D) beside tokens per step AL(D).

    Drafts pay where a step costs fewer plain steps than it yields tokens.

    Example: roofline plot cost-ratio llama-3.1-8b --batch 1,32 -o cost-ratio.png
    """
    from roofline.render.charts.cost_ratio import cost_ratio_rows, draw_cost_ratio

    contexts = one_value("context", context)
    answer = answered(configuration, _at(workload, batch, contexts))
    draw_answer(
        files,
        answer,
        cost_ratio_rows(answer),
        draw_cost_ratio,
        title=f"cost ratio and tokens per step, {_advised(answer)}",
        where=f"context {format_size(contexts[0])}{_left_out(answer)}",
    )


@app.command()
@asks()
@draws_chart(7.0, 5.0)
def tokens_per_step(
    configuration: Configuration,
    workload: Workload,
    files: ChartFiles,
    *,
    context: Context = "4k",
    batch: Annotated[str | None, ANY_BATCH] = None,
) -> None:
    """Draw tokens per step AL(D), its range, what was measured.

    Without --acceptance it is what public runs lead to expect.

    Example: roofline plot tokens-per-step llama-3.1-8b --domain code -o al.png
    """
    from roofline.advice.question import ask
    from roofline.render.charts.tokens_per_step import draw_tokens_per_step, tokens_rows
    from roofline.render.deployment import drafting

    contexts = one_value("context", context)
    question = ask(configuration, replace(workload, contexts=contexts))
    question = question.without_effect("batch", given=batch is not None)
    draw_for_deployment(
        files,
        question.deployment,
        tokens_rows(question, context=contexts[0]),
        draw_tokens_per_step,
        title="tokens per step by draft length",
        where=f"context {format_size(contexts[0])}",
        notices=question.notices,
        drafting=drafting(question),
    )


@app.command()
@asks("acceptance_rounds")
@draws_chart(8.0, 5.4)
def heatmap(
    configuration: Configuration,
    workload: Workload,
    files: ChartFiles,
    *,
    batch: Batches = DOUBLINGS,
    context: Annotated[
        str | None,
        option(
            QUESTION,
            "Tokens in the KV cache.  [512 to 128k by doublings]",
            metavar="N,...",
        ),
    ] = None,
) -> None:
    """Draw the best draft length over batch and context.

    The line is where speculation stops paying.

    Example: roofline plot heatmap llama-3.1-8b --gpu h200-sxm -o heatmap.png
    """
    from roofline.render.charts.heatmap import draw_heatmap, heatmap_rows

    contexts = doublings(configuration) if context is None else sizes("context", context)
    answer = answered(configuration, _at(workload, batch, contexts))
    draw_answer(
        files,
        answer,
        heatmap_rows(answer),
        draw_heatmap,
        title=f"{_advised(answer)}, by batch and context",
        where="cells: advised D and its speedup",
        notices=_notices_of_contexts_that_fit(answer),
        unfit=False,
    )


@app.command()
@asks("acceptance_rounds")
@draws_chart(7.0, 5.4)
def breakdown(
    configuration: Configuration,
    workload: Workload,
    files: ChartFiles,
    *,
    batch: Batch = "32",
    context: Context = "4k",
) -> None:
    """Draw where the time of a step goes by draft length.

    The time per token stands beside it.

    Example: roofline plot breakdown llama-3.1-8b --batch 32 -o breakdown.png
    """
    from roofline.render.charts.breakdown import breakdown_rows, draw_breakdown

    workload = at_one_point(workload, batch, context)
    answer = answered(configuration, workload)
    (point,) = answer.points
    draw_answer(
        files,
        answer,
        breakdown_rows(answer, point),
        draw_breakdown,
        title=f"one step by draft length, {_advised(answer)}",
        where=point_name(workload),
    )


@app.command()
@asks("acceptance_rounds")
@draws_chart(7.0, 5.2)
def frontier(
    configuration: Configuration,
    workload: Workload,
    files: ChartFiles,
    *,
    batch: Annotated[
        str | None,
        option(
            QUESTION,
            "Batches on the curve: 1,8 or 1..64.  [1 to 1024, those that fit]",
            metavar="N,...",
        ),
    ] = None,
    context: Context = "4k",
) -> None:
    """Draw throughput against interactivity, plain and advised.

    Example: roofline plot frontier llama-3.1-8b --context 8k -o frontier.png
    """
    from roofline.questions.goals import GOAL_BATCHES
    from roofline.render.charts.frontier import draw_frontier, frontier_rows

    contexts = one_value("context", context)
    batches = GOAL_BATCHES if batch is None else batches_in_order("batch", batch)
    answer = answered(configuration, replace(workload, batches=batches, contexts=contexts))
    draw_answer(
        files,
        answer,
        frontier_rows(answer),
        draw_frontier,
        title=f"what each batch gives, {_advised(answer)}",
        where=f"context {format_size(contexts[0])}{_left_out(answer) if batch else ''}",
        unfit=batch is not None,
    )


def _at(workload: Workload, batch: str, contexts: tuple[int, ...]) -> Workload:
    """Return the workload at the batches and contexts of a chart."""
    return replace(workload, batches=batches_in_order("batch", batch), contexts=contexts)


def _left_out(answer: Recommendation) -> str:
    """Say which points have no line, since they do not fit in memory."""
    from roofline.base.units import listed

    workload, drawn = answer.question.workload, {(p.batch, p.context) for p in answer.points}
    missing = {
        batch: [context for context in workload.contexts if (batch, context) not in drawn]
        for batch in workload.batches
    }
    names = []
    for batch, contexts in missing.items():
        if contexts and len(workload.contexts) > 1:
            names.append(f"{batch} at {', '.join(map(format_size, contexts))}")
        elif contexts:
            names.append(f"{batch}")
    return f"; batch {listed(names, 'or')} does not fit in memory" if names else ""


def _notices_of_contexts_that_fit(answer: Recommendation) -> tuple[Notice, ...]:
    """Return what there is to know of the contexts that fit at some batch, and of no other."""
    from roofline.advice.question import question_about
    from roofline.advice.recommend import recommend

    fit = tuple(sorted({point.context for point in answer.points}))
    question = answer.question
    if set(question.workload.contexts) == set(fit):
        return answer.notices
    workload = replace(question.workload, contexts=fit)
    asked = question_about(answer.deployment, workload, question.deployment_notices)
    return recommend(asked).notices


def _advised(answer: Recommendation) -> str:
    """Return the range of advised lengths, of the batches beside which drafts fit, for a title."""
    if len(answer.question.draft_lengths) == 1:
        return "plain decoding"
    points = [point for point in answer.points if point.feasible[1:].any()]
    return f"run D = {span([point.draft_length for point in points or answer.points])}"


app.command("roofline")(plot_kernels.roofline_chart)
app.command()(plot_kernels.attention)
app.command()(plot_kernels.parity)
