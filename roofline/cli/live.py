"""``roofline live``: what a running server should change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.base.values import one_size, seconds
from roofline.cli import completion
from roofline.cli.panels import QUESTION
from roofline.cli.printing import emit_answer
from roofline.cli.question import (
    FORMATS,
    INTERVAL,
    OUTPUT,
    TIMEOUT,
    asks,
    format_for,
    given_by_flag,
    option,
)

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload
    from roofline.advice.remedies import Refused
    from roofline.questions.live import LiveQuestion

__all__ = ["live", "live_question"]

_ONE = "expected one number; a server runs one load at a time"


@asks("model", gpu=None, tp=None, engine=None, max_draft_length=None)
def live(
    configuration: Configuration,
    workload: Workload,
    *,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            rich_help_panel=QUESTION,
            help="The server: HOST:PORT or https://HOST, #MODEL where it serves several.",
        ),
    ],
    model: Annotated[
        str | None,
        option(
            QUESTION,
            "A bundled id, or a path, where the server's name is unknown.",
            metavar="MODEL",
            autocompletion=completion.models,
        ),
    ] = None,
    batch: Annotated[
        str | None,
        option(QUESTION, "Sequences that run together in one copy.  [as read]", metavar="N"),
    ] = None,
    context: Annotated[
        str | None,
        option(QUESTION, "Tokens in the KV cache of one of them.  [as read]", metavar="N"),
    ] = None,
    interval: INTERVAL = "30s",
    timeout: TIMEOUT = "10s",
    largest_batch: Annotated[
        int, option(QUESTION, "Largest batch that the schedule covers.", metavar="N")
    ] = 256,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    options: typer.Context,
) -> None:
    """Read a running server and say what to change.

    The server is vLLM, SGLang, TensorRT-LLM or llama.cpp.

    Example: roofline live localhost:8000 --gpu h100-sxm
    """
    from roofline.advice.decide import TIE
    from roofline.advice.drafter import no_drafter_known
    from roofline.advice.remedies import does_not_fit, refuse
    from roofline.questions.live import advised_change
    from roofline.questions.schedule.formats import ScheduleOptions, schedule_or_one
    from roofline.questions.schedule.plan import plan_schedule, resident_length
    from roofline.render.live import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    if not 1 <= largest_batch <= 4096:
        raise InputError(f"--largest-batch {largest_batch}: expected 1 to 4096")
    if configuration.drafter == "none":
        raise InputError("--drafter none: there is nothing to schedule")
    server = live_question(
        url,
        configuration if model is None else replace(configuration, model=model),
        workload,
        options,
        interval=interval,
        timeout=timeout,
        batches=None if batch is None else (one_size("batch", batch, _ONE),),
        contexts=None if context is None else (one_size("context", context, _ONE),),
    )
    most = max(largest_batch, *server.workload.batches)
    every_batch = replace(server.workload, batches=tuple(range(1, most + 1)))
    planned = plan_schedule(server.configuration, every_batch, tie=TIE, mix=None)
    deployment = planned.question.deployment
    if deployment.drafter.kind == "none" and server.configuration.drafter is None:
        raise no_drafter_known(deployment.target.model, deployment.engine)
    refused: tuple[Refused, ...] = ()  # of the running batch; nobody asked for those beyond it
    if server.batch is not None and server.batch > planned.batches:
        context_read, drafts = server.workload.contexts[0], resident_length(planned.question)
        deployment = planned.question.deployment
        if batch is not None:
            raise does_not_fit(
                deployment, batch=server.batch, context=context_read, draft_length=drafts
            )
        refused = refuse(deployment, [(server.batch, context_read)], draft_length=drafts)
    planned = replace(planned, refused=refused)
    written = schedule_or_one(
        planned, ScheduleOptions(data_parallel=server.serving.copies), batch=server.batch
    )
    change = advised_change(server, planned, written)
    emit_answer(as_answer(server, planned, written, change), how, output)


def _check_before_reading(
    workload: Workload, batches: tuple[int, ...] | None, contexts: tuple[int, ...] | None
) -> None:
    """Refuse a batch, a context or an acceptance that no server could make right.

    An acceptance at an address is read when the server is.
    """
    replace(
        workload,
        batches=batches or workload.batches,
        contexts=contexts or workload.contexts,
    )
    given = workload.acceptance
    if isinstance(given, str) and not given.lower().startswith(("http://", "https://")):
        from roofline.engines.acceptance_source import acceptance_from

        acceptance_from(given)


def live_question(
    url: str,
    configuration: Configuration,
    workload: Workload,
    context: typer.Context,
    *,
    interval: str,
    timeout: str,
    batches: tuple[int, ...] | None,
    contexts: tuple[int, ...] | None,
) -> LiveQuestion:
    """Read the server at ``url``; what it says fills the options that were not given."""
    from roofline.engines.server import read_server
    from roofline.questions.live import check_model_and_gpu, live_question

    _check_before_reading(workload, batches, contexts)
    wait = seconds("interval", interval, least=0)
    time_allowed = seconds("timeout", timeout, least=0.01)
    given = given_by_flag(context)
    if "engine" in given:
        from roofline.specs.engine import load_engine

        load_engine(str(configuration.engine))  # a misspelt name need not wait for the reading
    if "gpu" in given:
        from roofline.specs.gpu import load_hardware

        load_hardware(str(configuration.gpu))
    serving = read_server(
        url,
        interval=wait,
        timeout=time_allowed,
        check=lambda first: check_model_and_gpu(first, configuration, given=given),
    )
    return live_question(
        serving, configuration, workload, given=given, batches=batches, contexts=contexts
    )
