"""``roofline memory``: where the bytes go, and how many sequences drafts cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.cli.listing import emit_text
from roofline.cli.question import OUTPUT, asks, format_for
from roofline.cli.reading import given_by_flag
from roofline.cli.values import sizes

if TYPE_CHECKING:
    from roofline.advice.prepare import Request, Setup
    from roofline.render.memory import MemoryAnswer
    from roofline.timing.memory import Memory

__all__ = ["memory"]


@asks("acceptance_rounds")
def memory(
    request: Request,
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
    from roofline.advice.prepare import prepare
    from roofline.advice.remedies import does_not_fit, refuse
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
    setup = prepare(request, needs_acceptance=False)
    _check_depth(setup, draft_length)
    held = setup.memory()
    unfit = [size for size in contexts if not held.has_room(batch or 1, size, 0)]
    if len(unfit) == len(contexts):
        raise does_not_fit(setup, batch=batch or 1, context=contexts[0])
    refused = refuse(setup, [(batch or 1, size) for size in unfit])
    answers = [
        _answer(setup, held, size, batch, draft_length) for size in contexts if size not in unfit
    ]
    emit_text(render_memory(answers, how, refused), output, setup.notes.warnings)


def _check_depth(setup: Setup, draft_length: int | None) -> None:
    """Refuse a draft length that the drafter cannot make."""
    from roofline.advice.lengths import allowed_lengths, check_length, what_ends

    if draft_length is None:
        return
    check_length("--draft-length", draft_length, setup.drafter, setup.engine)
    longest = allowed_lengths(setup.request, setup.drafter, setup.engine)[-1]
    if draft_length > longest:
        why = what_ends(setup.request, setup.drafter, setup.engine, longest)
        raise InputError(f"--draft-length {draft_length}: expected at most {longest}: {why}")


def _answer(
    setup: Setup, held: Memory, context: int, batch: int | None, draft_length: int | None
) -> MemoryAnswer:
    """Account for one context; the acceptance adds throughput, and the draft length if need be."""
    from roofline.questions.memory import equal_memory, slots
    from roofline.render.memory import MemoryAnswer

    drafts, unknown = setup.drafter.kind != "none", setup.acceptance.source == "not given"
    if drafts and unknown and draft_length is None:
        raise InputError(
            f"--draft-length: no acceptance is known for {setup.drafter.name}, so no best draft "
            "length either; give --draft-length or --acceptance"
        )
    equal = None
    if not unknown:
        equal = equal_memory(setup, held, context=context, draft_length=draft_length)
    chosen = equal.slots.draft_length if equal else (draft_length or 1) if drafts else 0
    found = slots(held, context=context, draft_length=chosen)
    return MemoryAnswer(
        setup=setup,
        memory=held,
        slots=found,
        batches=(batch or found.plain, min(batch or found.speculative, found.speculative)),
        equal=equal,
    )
