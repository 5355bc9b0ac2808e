"""``roofline memory``: where the bytes go, and how many sequences drafts cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.base.values import sizes
from roofline.cli.panels import QUESTION
from roofline.cli.printing import emit_answer
from roofline.cli.question import FORMATS, OUTPUT, asks, format_for, given_by_flag, option

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.deployment import Deployment
    from roofline.advice.question import Question, Workload
    from roofline.render.memory import MemoryAnswer

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
    from roofline.advice.deployment import deploy
    from roofline.advice.question import check_unused, context_notices
    from roofline.advice.remedies import does_not_fit, refuse
    from roofline.render.memory import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    if batch is not None and not 1 <= batch <= 2**40:
        raise InputError(f"--batch {batch}: expected a whole number of at least 1")
    if draft_length is not None and not 1 <= draft_length <= 64:
        raise InputError(f"--draft-length {draft_length}: expected 1 to 64")
    if draft_length is not None and configuration.drafter == "none":
        raise InputError(f"--draft-length {draft_length}: says nothing with --drafter none")
    longest = workload.max_draft_length
    if "max_draft_length" in given_by_flag(options) and longest < (draft_length or 0):
        raise InputError(
            f"--draft-length {draft_length}: is above --max-draft-length {longest}; leave one out"
        )
    contexts = sizes("context", context)
    workload = replace(
        workload, contexts=contexts, max_draft_length=max(draft_length or 0, longest)
    )
    deployment, own_notices = deploy(configuration)
    check_unused(deployment, workload)
    notices = [*own_notices, *context_notices(deployment, contexts)]
    if draft_length is not None:
        _check_length(deployment, draft_length, workload.max_draft_length)
    unfit = [size for size in contexts if not deployment.memory.has_room(batch or 1, size, 0)]
    if len(unfit) == len(contexts):
        raise does_not_fit(deployment, batch=batch or 1, context=contexts[0])
    refused = refuse(deployment, [(batch or 1, size) for size in unfit])
    question = _with_acceptance(deployment, workload, draft_length)
    notices += question.own_notices if question is not None else ()
    answers = [
        _answer(deployment, question, size, batch, draft_length)
        for size in contexts
        if size not in unfit
    ]
    emit_answer(as_answer(answers, refused, notices), how, output)


def _check_length(deployment: Deployment, draft_length: int, most: int) -> None:
    """Refuse a draft length that the drafter cannot make."""
    from roofline.advice.question import allowed_lengths, check_length, ending, ending_value
    from roofline.render.notices import why_drafts_end

    check_length(deployment, draft_length, field="draft_length")
    longest = allowed_lengths(deployment, most)[-1]
    if draft_length > longest:
        end = ending(deployment, most, longest=longest)
        why = why_drafts_end(
            end, drafter=deployment.drafter.name, given=ending_value(deployment, end)
        )
        raise InputError(
            f"expected at most {longest}: {why}", field="draft_length", value=draft_length
        )


def _with_acceptance(
    deployment: Deployment, workload: Workload, draft_length: int | None
) -> Question | None:
    """Return the question, whose acceptance adds throughput; None if no acceptance is known."""
    from roofline.advice.question import (
        Question,
        acceptance_for,
        acceptance_is_known,
        allowed_lengths,
    )

    if acceptance_is_known(deployment, workload.acceptance):
        acceptance, notices = acceptance_for(deployment, workload)
        return Question(
            deployment=deployment,
            workload=workload,
            acceptance=acceptance,
            draft_lengths=allowed_lengths(deployment, workload.max_draft_length),
            own_notices=tuple(notices),
        )
    if draft_length is None:
        raise InputError(
            f"--draft-length: no acceptance is known for {deployment.drafter.name}, so no best "
            "draft length either; give --draft-length or --acceptance"
        )
    return None


def _answer(
    deployment: Deployment,
    question: Question | None,
    context: int,
    batch: int | None,
    draft_length: int | None,
) -> MemoryAnswer:
    """Account for one context; with an acceptance also throughput, and the best draft length."""
    from roofline.questions.memory import equal_memory, slots
    from roofline.render.memory import MemoryAnswer

    equal = None
    if question is not None:
        equal = equal_memory(question, context=context, draft_length=draft_length)
    length = 0
    if equal is not None:
        length = equal.slots.draft_length
    elif deployment.drafter.kind != "none":
        length = draft_length or 1
    fitting = slots(deployment.memory, context=context, draft_length=length)
    return MemoryAnswer(
        deployment=deployment,
        slots=fitting,
        batches=(batch or fitting.plain, min(batch or fitting.speculative, fitting.speculative)),
        equal=equal,
    )
