"""``roofline schedule``: draft lengths by batch, in an engine's words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.cli.printing import emit_text
from roofline.cli.question import OUTPUT, asks, format_for
from roofline.cli.values import PERCENT, amount, shares, sizes, sizes_or_range

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload

__all__ = ["schedule"]


@asks("acceptance_rounds", engine=None)
def schedule(
    configuration: Configuration,
    workload: Workload,
    *,
    batches: Annotated[
        str, typer.Option(help="Batches to cover: 1..256, or points such as 1,8,64.")
    ] = "1..256",
    contexts: Annotated[str, typer.Option(help="Tokens in the KV cache: 4k or 1k,8k.")] = "4k",
    tie: Annotated[
        str, typer.Option(help="Percent of speed that a band may lose; 0 is the exact best.")
    ] = "1",
    mix: Annotated[
        str | None,
        typer.Option(help="Share of time by batch: 1:0.2,32:0.8.  [every doubling alike]"),
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option(help="TensorRT-LLM release: the reading changed in 1.3.  [1.3]")
    ] = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="TensorRT-LLM: stop for good below the break-even.")
    ] = False,
    proposed: Annotated[
        bool, typer.Option("--proposed", help="vLLM: rows by context too, which no release takes.")
    ] = False,
    candidate_sets: Annotated[
        bool, typer.Option("--candidate-sets", help="SGLang: let each slot choose within the tie.")
    ] = False,
    graph_batches: Annotated[
        str | None, typer.Option(help="SGLang: captured CUDA-graph batch sizes.  [its default]")
    ] = None,
    data_parallel: Annotated[int, typer.Option(help="Data-parallel copies, for warnings.")] = 1,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="table, vllm, trtllm, sglang, llamacpp, json, csv.  [by FILE; table]"
        ),
    ] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Write the best draft length by batch, in an engine's words."""
    from roofline.questions.schedule.formats import (
        SCHEDULE_ENGINES,
        ScheduleFormat,
        ScheduleOptions,
        engine_for,
        write_schedule,
    )
    from roofline.questions.schedule.plan import plan_schedule
    from roofline.render.notices import warnings
    from roofline.render.schedule import render_schedule

    how = format_for(form, output, kinds=ScheduleFormat)
    engine = engine_for(how, configuration.engine)
    options = ScheduleOptions(
        engine_version=engine_version,
        proposed=proposed,
        gate=gate,
        candidate_sets=candidate_sets,
        graph_batches=None if graph_batches is None else sizes("--graph-batches", graph_batches),
        data_parallel=max(data_parallel, configuration.dp_attention)
        if configuration.dp_attention > 1
        else data_parallel,
    )
    options.check(engine)
    if configuration.drafter == "none":
        raise InputError("--drafter none: there is nothing to schedule")
    workload = replace(
        workload,
        batches=sizes_or_range("--batches", batches),
        contexts=tuple(sorted(sizes("--contexts", contexts))),
    )
    tie_share = amount("--tie", tie, PERCENT, "percent, such as 1") / 100
    planned = plan_schedule(
        replace(configuration, engine=engine),
        workload,
        tie=tie_share,
        mix=None if mix is None else shares("--mix", mix),
    )
    written = write_schedule(planned, options)
    notes = warnings([*planned.notices, *written.notes])
    if how.value in SCHEDULE_ENGINES:  # an engine's own text has no place for it
        notes += map(str, planned.question.deployment.changes)
    emit_text(render_schedule(planned, written, how), output, notes)
