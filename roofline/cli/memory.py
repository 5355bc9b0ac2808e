"""``roofline memory``: where the bytes go, and how many sequences drafts cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.values import sizes
from roofline.cli.panels import QUESTION
from roofline.cli.printing import emit_answer
from roofline.cli.question import FORMATS, OUTPUT, asks, format_for, given_by_flag, option

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload

__all__ = ["memory"]


@asks("acceptance_rounds")
def memory(
    configuration: Configuration,
    workload: Workload,
    *,
    context: Annotated[
        str, option(QUESTION, "Tokens of each sequence: 4k or 2k,32k.", metavar="N,...")
    ] = "4k",
    batch: Annotated[
        int | None,
        option(QUESTION, "Account for this batch.  [the largest that fits]", metavar="N"),
    ] = None,
    draft_length: Annotated[
        int | None,
        option(QUESTION, "D to account for.  [best throughput at equal memory]", metavar="D"),
    ] = None,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    options: typer.Context,
) -> None:
    """Say where memory goes, what fits, and what drafting takes.

    Weights, cache and reserve of each GPU; how many sequences fit, without and with drafts.

    Example: roofline memory llama-3.1-70b --gpu h100-sxm --tp 4 --context 8k
    """
    from roofline.questions.memory import memory_accounts
    from roofline.render.memory import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    accounts = memory_accounts(
        configuration,
        replace(workload, contexts=sizes("context", context)),
        batch=batch,
        draft_length=draft_length,
        longest_is_given="max_draft_length" in given_by_flag(options),
    )
    emit_answer(as_answer(accounts), how, output)
