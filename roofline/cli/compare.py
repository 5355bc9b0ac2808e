"""``roofline compare``: drafters side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from roofline.base.values import sizes
from roofline.cli.panels import QUESTION
from roofline.cli.printing import emit_answer
from roofline.cli.question import FORMATS, OUTPUT, asks, format_for, option

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload

__all__ = ["compare"]


@asks("drafter", "acceptance", "acceptance_rounds")
def compare(
    configuration: Configuration,
    workload: Workload,
    *,
    drafter: Annotated[
        list[str] | None,
        option(
            QUESTION,
            "NAME or NAME=ACCEPTANCE; repeat for each.  [bundled heads]",
            metavar="NAME[=CURVE]",
        ),
    ] = None,
    batch: Annotated[
        str, option(QUESTION, "Sequences decoded together: 1 or 1,8,32.", metavar="N,...")
    ] = "1",
    context: Annotated[
        str, option(QUESTION, "Tokens in the KV cache: 4k or 1k,8k.", metavar="N,...")
    ] = "4k",
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Compare drafters for MODEL, each at its own best draft length.

    Example: roofline compare qwen3-8b --drafter eagle3 --drafter ngram=0.5
    """
    from roofline.questions.compare import bundled_candidates, parse_candidate
    from roofline.questions.compare import compare as side_by_side
    from roofline.render.compare import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    candidates, left_out = [parse_candidate(name) for name in drafter or ()], list[str]()
    if not candidates:
        candidates, left_out = bundled_candidates(configuration)
    workload = replace(workload, batches=sizes("batch", batch), contexts=sizes("context", context))
    points = side_by_side(configuration, workload, candidates)
    emit_answer(as_answer(points, left_out=left_out), how, output)
