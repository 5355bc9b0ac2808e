"""The plots of ``roofline plot`` that show kernels: their rates, attention, and how far off."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.cli.panels import QUESTION
from roofline.cli.plotting import (
    Batch,
    ChartFiles,
    Context,
    at_one_point,
    draw_chart,
    draw_for_deployment,
    draws_chart,
    point_name,
    source_line,
    span,
)
from roofline.cli.question import asks, option

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.deployment import Deployment, PricedGrid
    from roofline.advice.question import Workload
    from roofline.base.notices import Notice


__all__ = ["attention", "parity", "roofline_chart"]


@asks("acceptance_rounds", "prefill_tokens_per_step")
@draws_chart(8.0, 5.0)
def roofline_chart(
    configuration: Configuration,
    workload: Workload,
    files: ChartFiles,
    *,
    batch: Batch = "32",
    context: Context = "4k",
) -> None:
    """Draw the rate that each kernel reaches as D grows.

    Each number format has one roof, the datasheet's.

    Example: roofline plot roofline llama-3.1-8b --batch 32 -o roofline.png
    """
    from roofline.advice.question import check_unused, drafts_to_draw
    from roofline.advice.recommend import law_limit_notices, slow_format_notices
    from roofline.render.charts.rooflines import draw_roofline, roofline_rows

    workload = at_one_point(workload, batch, context)
    deployment, notices = _deployed(configuration, workload)
    check_unused(deployment, workload)
    deployment, lengths, of_lengths = drafts_to_draw(deployment, workload)
    priced = _priced(deployment, workload, lengths)
    drawn = tuple(d for d, fits in zip(lengths, priced.fits[0, 0], strict=True) if fits)
    if drawn != lengths:
        priced = _priced(deployment, workload, drawn)
        of_lengths = [*of_lengths, _left_out(workload, lengths, drawn)]
    draw_for_deployment(
        files,
        deployment,
        roofline_rows(priced),
        draw_roofline,
        title=f"kernels of a step, D = {span(drawn)}",
        where=point_name(workload),
        drafting=[] if len(drawn) == 1 else [f"drafter {deployment.drafter.name}"],
        notices=[
            *notices,
            *of_lengths,
            *law_limit_notices(priced.times),
            *slow_format_notices(
                deployment,
                batch=workload.batches[0],
                context=workload.contexts[0],
                times=priced.times,
            ),
        ],
    )


@asks(
    "drafter",
    "acceptance",
    "acceptance_rounds",
    "hit_rate",
    "domain",
    "dataset",
    "temperature",
    "max_draft_length",
    "extrapolate",
    "draft_tp",
    "draft_weights",
    "verify_width",
    "tree_topk",
    "draft_block",
    "first_pass_rows",
    "prefill_tokens_per_step",
    "overhead_ms",
    "memory_fraction",
)
@draws_chart(7.0, 6.4)
def attention(
    configuration: Configuration,
    workload: Workload,
    files: ChartFiles,
    *,
    batch: Batch = "32",
    context: Context = "4k",
) -> None:
    """Draw time and use of attention by its query rows.

    Rows are those of a verify pass that share one KV head's cache.

    Example: roofline plot attention llama-3.1-8b --context 32k -o attention.png
    """
    from roofline.render.charts.attention import (
        attention_rows,
        draw_attention_time,
        draw_attention_use,
    )

    workload = at_one_point(workload, batch, context)
    deployment, notices = _deployed(replace(configuration, drafter="none"), workload)
    _priced(deployment, workload, (0,))
    rows = attention_rows(deployment, batch=workload.batches[0], context=workload.contexts[0])
    groups = sorted({row.query_heads_per_kv_head for row in rows})
    draw_for_deployment(
        files,
        deployment,
        rows,
        draw_attention_time,
        draw_attention_use,
        title=f"attention of a verify pass, D = 0 to {max(row.draft_length for row in rows)}",
        where=f"{point_name(workload)}; G = {', '.join(map(str, groups))} query heads per KV head",
        notices=notices,
        heights=(1.3, 1.0),
        left_out=("drafter",),
    )


def _deployed(configuration: Configuration, workload: Workload) -> tuple[Deployment, list[Notice]]:
    """Return what kernels are drawn of, and what there is to know of it at the chart's point."""
    from roofline.advice.deployment import deploy
    from roofline.advice.question import context_notices

    deployment, notices = deploy(configuration)
    return deployment, [*notices, *context_notices(deployment, workload.contexts)]


def _left_out(workload: Workload, lengths: tuple[int, ...], drawn: tuple[int, ...]) -> Notice:
    """Say which draft lengths are not drawn because they do not fit."""
    from roofline.base.notices import Code, notice

    return notice(
        Code.DRAFTS_DO_NOT_FIT,
        batch=workload.batches[0],
        context=workload.contexts[0],
        lengths=tuple(d for d in lengths if d not in drawn),
    )


def _priced(
    deployment: Deployment, workload: Workload, draft_lengths: tuple[int, ...]
) -> PricedGrid:
    """Return the chart's point priced; refuse one that does not fit."""
    from roofline.advice.recommend import require_fit

    grid = deployment.grid(workload.batches, workload.contexts, draft_lengths)
    return require_fit(deployment.price(grid))


@draws_chart(6.5, 6.4)
def parity(
    files: ChartFiles,
    *,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WORD",
            help="kernels, or decode for served runs.",
            rich_help_panel=QUESTION,
        ),
    ] = "kernels",
    gpu: Annotated[
        list[str] | None,
        option(QUESTION, "Only this accelerator; repeatable.", metavar="NAME"),
    ] = None,
    engine: Annotated[
        list[str] | None, option(QUESTION, "Only this engine; repeatable.", metavar="NAME")
    ] = None,
) -> None:
    """Draw predictions beside public measurements.

    The measurements ship with the package.

    Example: roofline plot parity kernels --gpu h100-sxm -o parity.png
    """
    from roofline.cli.validate import compared
    from roofline.render.charts.validation import draw_parity, parity_caption, parity_rows
    from roofline.validation.kernels import compare_kernels
    from roofline.validation.steps import compare_decode

    suites = {"kernels": compare_kernels, "decode": compare_decode}
    if what not in suites:
        raise InputError(f"unknown comparison '{what}': expected kernels or decode")
    rows = parity_rows(compared(suites[what], gpu, engine))
    caption = parity_caption(rows, what=what, source=source_line())
    draw_chart(files, rows, caption, draw_parity)
