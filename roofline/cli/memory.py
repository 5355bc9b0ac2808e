"""``roofline memory``: where the bytes go, and how many sequences drafts cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import DoesNotFitError, InputError
from roofline.cli.listing import emit_text
from roofline.cli.question import OUTPUT, asks, format_for
from roofline.cli.reading import given_by_flag
from roofline.cli.values import sizes

if TYPE_CHECKING:
    from roofline.advice.deployment import Configuration
    from roofline.advice.question import Workload
    from roofline.render.memory import MemoryAnswer

__all__ = ["memory"]


@asks("acceptance_rounds")
def memory(
    configuration: Configuration,
    workload: Workload,
    *,
    context: Annotated[str, typer.Option(help="Tokens of each sequence: 4k or 2k,32k.")] = "4k",
    batch: Annotated[
        int | None, typer.Option(help="Account for this batch.  [the largest that fits]")
    ] = None,
    draft_length: Annotated[
        int | None, typer.Option(help="D to account for.  [best throughput at equal memory]")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="table or json.  [by FILE; table]")
    ] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    options: typer.Context,
) -> None:
    """Say where memory goes, what fits, and what drafting takes.

    Weights, cache and reserve of each GPU; how many sequences fit, without and with drafts.
    """
    from roofline.render.forms import TableOrJson
    from roofline.render.memory import render_memory

    how = format_for(form, output, kinds=TableOrJson)
    if batch is not None and not 1 <= batch <= 2**40:
        raise InputError(f"--batch {batch}: expected a whole number of at least 1")
    if draft_length is not None and not 1 <= draft_length <= 64:
        raise InputError(f"--draft-length {draft_length}: expected 1 to 64")
    if draft_length is not None and request.drafter == "none":
        raise InputError(f"--draft-length {draft_length}: says nothing with --drafter none")
    longest = request.max_draft_length
    if "max_draft_length" in given_by_flag(options) and longest < (draft_length or 0):
        raise InputError(
            f"--draft-length {draft_length}: is above --max-draft-length {longest}; leave one out"
        )
    contexts = sizes("--context", context)
    request = replace(
        request,
        contexts=contexts,
        max_draft_length=max(draft_length or 0, longest),
    )
    answers = [_answer(request, size, batch, draft_length) for size in contexts]
    emit_text(render_memory(answers, how), output, answers[0].question.notices)


def _answer(
    request: Request, context: int, batch: int | None, draft_length: int | None
) -> MemoryAnswer:
    from roofline.advice.lengths import check_length
    from roofline.advice.remedies import remedies
    from roofline.questions.memory import equal_memory, slots
    from roofline.render.memory import MemoryAnswer
    from roofline.timing.memory import memory_for

    question = prepare(request, needs_acceptance=False)
    check_length(
        "--draft-length", draft_length or 1, question.deployment.drafter, question.deployment.engine
    )
    held = memory_for(
        question.deployment.target,
        question.deployment.drafter,
        question.deployment.gpu,
        question.deployment.engine.memory,
        question.deployment.host,
    )
    if held.largest_batch(context=context, draft_length=0) < (batch or 1):
        raise DoesNotFitError(
            f"{question.deployment.target.model.id} on {question.deployment.gpu.id}: "
            f"{held.explain(batch=batch or 1, context=context)}; "
            + remedies(request, batch=batch or 1, context=context)
        )
    known, drafts = (
        question.acceptance.source != "not given",
        question.deployment.drafter.kind != "none",
    )
    if drafts and not known and draft_length is None:
        raise InputError(
            f"--draft-length: no acceptance is known for {question.deployment.drafter.name}, so no best draft "
            "length either; give --draft-length or --acceptance"
        )
    fits_drafted = held.largest_batch(context=context, draft_length=draft_length or 1)
    equal = None
    if drafts and known and fits_drafted:
        equal = equal_memory(request, held, context=context, draft_length=draft_length)
    chosen = equal.slots.draft_length if equal else (draft_length or 1) if drafts else 0
    found = slots(held, context=context, draft_length=chosen)
    return MemoryAnswer(
        question=question,
        memory=held,
        slots=found,
        batches=(batch or found.plain, min(batch or found.speculative, found.speculative)),
        equal=equal,
    )
