"""``roofline schedule``: draft lengths by batch, in an engine's words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.base.values import PERCENT, amount, distinct_sizes, shares, sizes, sizes_or_range
from roofline.cli.panels import ENGINE, LOAD, PLACEMENT, QUESTION
from roofline.cli.printing import emit_answer, emit_text
from roofline.cli.question import (
    OUTPUT,
    asks,
    form_option,
    format_for,
    given_by_flag,
    option,
)

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload

__all__ = ["schedule"]


@asks("acceptance_rounds", model=None, engine=None, tuned=True)
def schedule(
    configuration: Configuration,
    workload: Workload,
    *,
    batches: Annotated[
        str,
        option(
            QUESTION,
            "Batches to cover: 1..256, or points such as 1,8,64.",
            "--batches",
            "--batch",
            metavar="A..B",
        ),
    ] = "1..256",
    contexts: Annotated[
        str,
        option(
            QUESTION,
            "Tokens in the KV cache: 4k or 1k,8k.",
            "--contexts",
            "--context",
            metavar="N,...",
        ),
    ] = "4k",
    tie: Annotated[
        str,
        option(LOAD, "Percent of speed that a band may lose before bands are merged.", metavar="%"),
    ] = "1",
    odds: Annotated[
        str,
        option(
            LOAD,
            "Odds in percent that two draft lengths must have of beating one, else their bands "
            "are merged; 0 merges none.",
            metavar="%",
        ),
    ] = "80",
    mix: Annotated[
        str | None,
        option(
            LOAD,
            "Share of time by batch: 1:0.2,32:0.8.  [every doubling alike]",
            metavar="N:SHARE,...",
        ),
    ] = None,
    engine_version: Annotated[
        str | None,
        option(ENGINE, "TensorRT-LLM release: the reading changed in 1.3.  [1.3]", metavar="V"),
    ] = None,
    gate: Annotated[
        bool, option(ENGINE, "TensorRT-LLM: stop for good below the break-even.", "--gate")
    ] = False,
    proposed: Annotated[
        bool, option(ENGINE, "vLLM: rows by context too, which no release takes.", "--proposed")
    ] = False,
    candidate_sets: Annotated[
        bool, option(ENGINE, "SGLang: let each slot choose within the tie.", "--candidate-sets")
    ] = False,
    graph_batches: Annotated[
        str | None,
        option(ENGINE, "SGLang: captured CUDA-graph batch sizes.  [its default]", metavar="N,..."),
    ] = None,
    data_parallel: Annotated[
        int, option(PLACEMENT, "Data-parallel copies, for warnings.", metavar="N")
    ] = 1,
    form: Annotated[
        str | None,
        form_option("table, json, csv, markdown, vllm, sglang, trtllm, llamacpp", "by FILE; table"),
    ] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    options: typer.Context,
) -> None:
    """Write the best draft length by batch, in an engine's words.

    Example: roofline schedule llama-3.1-8b --gpu h100-sxm --format vllm
    """
    from roofline.advice.drafter import no_drafter_known
    from roofline.questions.schedule.formats import (
        SCHEDULE_ENGINES,
        ScheduleFormat,
        ScheduleOptions,
        engine_for,
        schedule_or_one,
    )
    from roofline.questions.schedule.plan import plan_schedule
    from roofline.questions.schedule.written import schedule_notices
    from roofline.render.deployment import set_line
    from roofline.render.notices import notes
    from roofline.render.schedule import as_answer, plain_line, rise_line, schedule_losses
    from roofline.render.writers import OutputFormat

    if not configuration.model:
        raise InputError("MODEL is missing: give a model, or --tuned FILE of a tuning file")
    how = format_for(form, output, kinds=ScheduleFormat)
    engine = engine_for(how, configuration.engine)
    written_for = ScheduleOptions(
        engine_version=engine_version,
        proposed=proposed,
        gate=gate,
        candidate_sets=candidate_sets,
        graph_batches=None if graph_batches is None else sizes("graph_batches", graph_batches),
        data_parallel=max(data_parallel, configuration.dp_attention)
        if configuration.dp_attention > 1
        else data_parallel,
    )
    written_for.check(engine)
    if configuration.drafter == "none":
        raise InputError("--drafter none: there is nothing to schedule")
    workload = replace(
        workload,
        batches=sizes_or_range("batches", batches),
        contexts=workload.contexts
        if workload.tuned is not None and "contexts" not in given_by_flag(options)
        else tuple(sorted(distinct_sizes("contexts", contexts))),
    )
    tie_share = amount("tie", tie, PERCENT, "percent, such as 1") / 100
    planned = plan_schedule(
        replace(configuration, engine=engine),
        workload,
        tie=tie_share,
        odds=amount("odds", odds, PERCENT, "percent, such as 80") / 100,
        mix=None if mix is None else shares("mix", mix),
    )
    deployment = planned.question.deployment
    if deployment.drafter.kind == "none":
        raise no_drafter_known(deployment.target.model, deployment.engine)
    written = schedule_or_one(planned, written_for)
    if how.value not in SCHEDULE_ENGINES:
        emit_answer(as_answer(planned, written), OutputFormat(how.value), output)
        return
    # an engine's own text has no place for what is to know beside it
    changes = filter(None, [set_line(planned.question.deployment.changes).strip()])
    reasons = [*map(rise_line, written.rises)]
    if written.largest_loss > planned.tie:
        reasons.append(schedule_losses(planned, written))
    reasons += plain_line(planned, written)
    found = notes(schedule_notices(planned, written))
    emit_text(f"{written.text}\n", output, found, about=[*reasons, *changes])
