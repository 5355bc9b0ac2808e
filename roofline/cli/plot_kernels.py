"""The plots of ``roofline plot`` that show kernels: their rates, attention, and how far off."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.cli.plotting import (
    Batch,
    Context,
    Target,
    at,
    at_one,
    charts,
    draw,
    show,
    source_line,
    span,
)
from roofline.cli.question import asks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from roofline.advice.prepare import Request

__all__ = ["attention", "parity", "roofline_chart"]


@asks()
@charts(8.0, 5.0)
def roofline_chart(
    request: Request,
    target: Target,
    *,
    batch: Batch = "32",
    context: Context = "4k",
) -> None:
    """Draw the rate that each kernel reaches as D grows.

    Roofs are those of the datasheet and of the fitted laws.
    """
    from roofline.advice.cautions import limits
    from roofline.advice.prepare import prepare
    from roofline.advice.recommend import costs
    from roofline.render.charts.rooflines import draw_roofline, roofline_rows

    asked = at_one(request, batch, context)
    setup = prepare(asked, needs_acceptance=False)
    found = costs(setup)
    rows = roofline_rows(setup, found)
    show(
        target, setup, rows, lambda axes: draw_roofline(axes[0], rows),
        title=f"kernels of a step, D = {span(setup.draft_lengths)}",
        where=f"{at(asked)}; drafter {setup.drafter.name}",
        warnings=[*setup.notes.warnings, *limits(found.times)],
        drafts=False,
    )  # fmt: skip


@asks("drafter", "acceptance", "acceptance_rounds", "max_draft_length", "extrapolate", "draft_tp",
      "draft_weights", "verify_width", "tree_topk", "draft_block", "first_pass_rows",
      "prefill_tokens_per_step", "overhead_ms", "memory_fraction")  # fmt: skip
@charts(7.0, 6.4)
def attention(
    request: Request,
    target: Target,
    *,
    batch: Batch = "32",
    context: Context = "4k",
) -> None:
    """Draw time and use of attention by its query rows.

    Rows are those of a verify pass that share one KV head's cache.
    """
    from roofline.advice.prepare import prepare
    from roofline.advice.recommend import costs
    from roofline.render.charts.attention import (
        attention_rows,
        draw_attention_time,
        draw_attention_use,
    )

    asked = replace(at_one(request, batch, context), drafter="none")
    setup = prepare(asked, needs_acceptance=False)
    costs(setup)  # refuses what does not fit
    rows = attention_rows(setup)
    groups = sorted({row.query_heads_per_kv_head for row in rows})

    def paint(axes: Sequence[Axes]) -> None:
        draw_attention_time(axes[0], rows)
        draw_attention_use(axes[1], rows)

    show(
        target, setup, rows, paint,
        title=f"attention of a verify pass, G = {', '.join(map(str, groups))}, "
        f"D = 0 to {max(row.draft_length for row in rows)}",
        where=at(asked),
        warnings=setup.notes.warnings,
        drafts=False,
        panels=(1.3, 1.0),
        unsaid=("drafter",),
    )  # fmt: skip


@charts(6.5, 6.4)
def parity(
    target: Target,
    *,
    what: Annotated[str, typer.Argument(help="kernels, or decode for served runs.")] = "kernels",
    gpu: Annotated[
        list[str] | None, typer.Option(help="Only this accelerator; repeatable.")
    ] = None,
    engine: Annotated[list[str] | None, typer.Option(help="Only this engine; repeatable.")] = None,
) -> None:
    """Draw predictions beside public measurements.

    The measurements ship with the package.
    """
    from roofline.cli.validate import compared
    from roofline.render.charts.parity import draw_parity, parity_rows, parity_words
    from roofline.validation.kernels import compare_kernels
    from roofline.validation.steps import compare_decode

    suites = {"kernels": compare_kernels, "decode": compare_decode}
    if what not in suites:
        raise InputError(f"unknown comparison '{what}': expected kernels or decode")
    rows = parity_rows(compared(suites[what], gpu, engine))
    words = parity_words(rows, what=what, source=source_line())
    draw(target, rows, words, lambda axes: draw_parity(axes[0], rows))
