"""``roofline compare``: drafters side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from roofline.base.errors import InputError
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
    from roofline.acceptance.defaults import choose_curve
    from roofline.advice.deployment import model_names
    from roofline.importers.references import heads_for, open_model
    from roofline.questions.compare import compare as side_by_side
    from roofline.questions.compare import parse_candidate
    from roofline.render.compare import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    target = open_model(str(configuration.model))[0]
    heads, model_ids = heads_for(target.id), model_names(configuration.model, target)
    known = [
        head for head in heads if choose_curve(head, f"{target.id}-{head}", model_ids) is not None
    ]
    names = drafter or known or heads
    left_out = [] if drafter else [head for head in heads if head not in names]
    if not names:
        raise InputError(
            f"--drafter: no head is bundled for {configuration.model}; give NAME=ACCEPTANCE, once "
            "for each drafter"
        )
    workload = replace(workload, batches=sizes("batch", batch), contexts=sizes("context", context))
    points = side_by_side(configuration, workload, [parse_candidate(name) for name in names])
    emit_answer(as_answer(points, left_out=left_out), how, output)
