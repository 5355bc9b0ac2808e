"""``roofline recommend``: the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.cli.listing import emit_text
from roofline.cli.question import OUTPUT, asks, format_for, sizes
from roofline.errors import InputError

if TYPE_CHECKING:
    from roofline.prepare import Request

__all__ = ["recommend"]

_SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".txt": "table"}


@asks()
def recommend(
    request: Request,
    *,
    batch: Annotated[str, typer.Option(help="Sequences decoded together: 1 or 1,8,32.")] = "1",
    context: Annotated[str, typer.Option(help="Tokens in the KV cache: 4k or 1k,8k.")] = "4k",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every kernel of the step.")
    ] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="table, json, csv, markdown.")
    ] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Say which draft length to run for MODEL, what it buys, and why."""
    from roofline.recommend import recommend as answer_for
    from roofline.report import OutputFormat, render

    how = format_for(form, output, suffixes=_SUFFIXES, kinds=OutputFormat)
    if explain and how == "csv":
        raise InputError("--explain: CSV has no place for it; use --format table, json or markdown")
    request = replace(
        request, batches=sizes("--batch", batch), contexts=sizes("--context", context)
    )
    answer = answer_for(request)
    emit_text(render(answer, how, explain=explain), output, answer.warnings)
