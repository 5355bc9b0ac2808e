"""``roofline explore``: how the answer moves with the architecture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from roofline.base.values import one_size, sizes_or_range
from roofline.cli.panels import OUTPUT as OUTPUT_PANEL
from roofline.cli.panels import QUESTION
from roofline.cli.printing import emit_answer, talk
from roofline.cli.question import FORMATS, OUTPUT, asks, format_for, option

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload

__all__ = ["explore"]


@asks("acceptance_rounds")
def explore(
    configuration: Configuration,
    workload: Workload,
    *,
    vary: Annotated[
        list[str],
        option(
            QUESTION,
            "What to vary, as in --set: group_size=1,2,4,8; repeat for every combination.",
            metavar="PATH=A,B,...",
        ),
    ],
    batch: Annotated[int, option(QUESTION, "Sequences decoded together.", metavar="N")] = 1,
    context: Annotated[str, option(QUESTION, "Tokens in the KV cache: 4k.", metavar="N")] = "4k",
    batches: Annotated[
        str | None,
        option(
            QUESTION, "Batches to look for knees at.  [1 to 1024, two a doubling]", metavar="N,..."
        ),
    ] = None,
    explain: Annotated[
        bool, option(OUTPUT_PANEL, "Show every draft length's speedup and cost ratio.", "--explain")
    ] = False,
    plot: Annotated[
        Path | None,
        option(
            OUTPUT_PANEL, "Draw the four quantities to FILE: .png, .svg or .pdf.", metavar="FILE"
        ),
    ] = None,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Show how the answer moves with the architecture of MODEL.

    Best D, speedup, the batch at which it falls, and KV bytes, for every combination of --vary.

    Example: roofline explore llama-3.1-8b --vary group_size=1,2,4,8
    """
    from roofline.questions.explore import EXPLORED_BATCHES, parse_axis
    from roofline.questions.explore import explore as vary_over
    from roofline.render.explore import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat, chart="--plot")
    notes = list[str]()
    if explain and how in (OutputFormat.CSV, OutputFormat.JSON):
        notes.append("--explain changes nothing here: CSV and JSON hold every draft length anyway")
    exploration = vary_over(
        configuration,
        replace(workload, contexts=(one_size("context", context, "expected one context here"),)),
        [parse_axis(text) for text in vary],
        batch=batch,
        batches=EXPLORED_BATCHES if batches is None else sizes_or_range("batches", batches),
    )
    if plot is not None:
        from roofline.cli.plotting import source_line
        from roofline.render.charts.explore import write_exploration

        write_exploration(exploration, plot, source=source_line())
        talk([f"wrote {plot}"])
    emit_answer(as_answer(exploration, explain=explain), how, output, about=notes)
