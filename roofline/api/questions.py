"""One function for each question, as the command line has one command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from roofline.advice.question import ask
from roofline.advice.recommend import recommend as answer_for
from roofline.api import values
from roofline.api.options import QuestionOptions, asked, axis, question_options
from roofline.api.results import LoadResult, RecommendResult, ScheduleResult, SweepResult
from roofline.api.values import Number, Reference, Whole, WholeNumbers
from roofline.base.errors import InputError
from roofline.base.values import DOLLARS, PERCENT, amount, batches_in_order, sizes, sizes_or_range
from roofline.base.values import shares as shares_of
from roofline.questions.goals import GOAL_BATCHES, goal_of, meet_goal
from roofline.questions.load.answer import answer_load
from roofline.questions.load.load import check_beside, load_of
from roofline.questions.schedule.formats import (
    ScheduleFormat,
    ScheduleOptions,
    engine_for,
    write_schedule,
)
from roofline.questions.schedule.plan import plan_schedule
from roofline.questions.sweep.grid import plan_for

__all__ = ["recommend", "schedule", "sweep"]


@question_options()
def recommend(
    model: Reference,
    *,
    batch: WholeNumbers | None = None,
    context: WholeNumbers | None = None,
    rps: Number | None = None,
    input_tokens: Whole | None = None,
    output_tokens: Whole | None = None,
    batches_histogram: Mapping[int, float] | str | None = None,
    max_batch: Whole | None = None,
    prefill_chunk: Whole | None = None,
    gpu_hour: Number | None = None,
    slo_tpot: Number | None = None,
    target_tokens_per_s: Number | None = None,
    objective: str | None = None,
    explain: bool = False,
    **options: Unpack[QuestionOptions],
) -> RecommendResult | LoadResult:
    """Say which draft length to run, what it buys, and why.

    Parameters
    ----------
    model : name, path or dict
        The model that serves: a bundled name, the path of a config.json, its folder, a GGUF file or
        a spec (YAML), or a config as a dict.
    batch : whole number or several, default 1 (with a goal: those that fit up to 1024)
        Sequences decoded together: 8, [1, 8], range(1, 65) or '1..64'.
    context : whole number or several, default 4096
        Tokens in the KV cache of each sequence: '8k' is 8192.
    rps : number or None, default None
        A load instead of a batch: requests per second, with `input_tokens` and `output_tokens`.
    input_tokens : whole number or None, default None
        Prompt tokens of a request of the load.
    output_tokens : whole number or None, default None
        Tokens that a request of the load is answered with.
    batches_histogram : dict, str or None, default None
        A load as the share of time by batch: {8: 0.5, 32: 0.5}, or the path of a CSV file.
    max_batch : whole number or None, default None
        Sequences that the engine runs at most under the load; None means 1024.
    prefill_chunk : whole number or None, default None
        Prompt tokens of one step at most under the load; None is the engine's.
    gpu_hour : number or None, default None
        Price of one GPU for an hour [$]; it adds the price of a million output tokens.
    slo_tpot : number or None, default None
        Goal: at most this time per output token of a user [ms].
    target_tokens_per_s : number or None, default None
        Goal: at least this many tokens per second of all users.
    objective : str or None, default None
        Goal: choose the batch as well, for 'latency' or for 'throughput'.
    explain : bool, default False
        Whether text and data hold every kernel of the step.

    Returns
    -------
    RecommendResult
        With `points` (one for each batch and context), `refused`, `notes`; for a single point also
        `best`, `draft_length` and `speedup`. `to_frame()` has a row for each batch, context and
        draft length.
    LoadResult
        The same over a load; `to_frame()` has a row for each draft length and the schedule.

    Raises
    ------
    InputError
        If something that was given cannot be used: `error.field` names the argument.
    DoesNotFitError
        If nothing that was asked about fits in memory: the message says what helps.

    Examples
    --------
    >>> answer = recommend("llama-3.1-8b", gpu="h100-sxm", batch=32, context="2k", acceptance=0.7)
    >>> answer.draft_length
    3
    """
    configuration, workload = asked(model, options)
    goal = goal_of(
        slo_tpot=_text("slo_tpot", slo_tpot),
        target_tokens_per_s=_text("target_tokens_per_s", target_tokens_per_s),
        objective=objective,
    )
    load = load_of(
        rps=_text("rps", rps),
        input_tokens=_whole_text("input_tokens", input_tokens),
        output_tokens=_whole_text("output_tokens", output_tokens),
        batches_histogram=None
        if batches_histogram is None
        else values.shares("batches_histogram", batches_histogram),
        max_batch=None if max_batch is None else values.whole("max_batch", max_batch),
        prefill_chunk=_whole_text("prefill_chunk", prefill_chunk),
        context=_whole_text("context", context),
    )
    workload = replace(workload, gpu_hour=_price(gpu_hour))
    if load is not None:
        for_one_batch = {
            "batch": batch,
            "slo_tpot": slo_tpot,
            "target_tokens_per_s": target_tokens_per_s,
            "objective": objective,
            "explain": explain or None,
        }
        check_beside(load, for_one_batch)
        return LoadResult(answer=answer_load(configuration, workload, load))
    batches: tuple[int, ...] = (1,) if goal is None else GOAL_BATCHES
    if batch is not None:
        batches = batches_in_order("batch", values.wholes("batch", batch))
    if context is not None:
        workload = replace(workload, contexts=sizes("context", values.wholes("context", context)))
    answer = answer_for(ask(configuration, replace(workload, batches=batches)))
    if goal is None:
        return RecommendResult(answer=answer, explain=values.flag("explain", explain))
    answer, choices = meet_goal(answer, goal, named=batch is not None)
    return RecommendResult(
        answer=answer,
        goal=goal,
        choices=tuple(choices),
        explain=values.flag("explain", explain),
    )


@question_options("acceptance_rounds")
def schedule(
    model: Reference,
    *,
    batches: WholeNumbers = "1..256",
    contexts: WholeNumbers = "4k",
    tie: Number = 1,
    mix: Mapping[int, float] | str | None = None,
    engine_version: Number | None = None,
    gate: bool = False,
    proposed: bool = False,
    candidate_sets: bool = False,
    graph_batches: WholeNumbers | None = None,
    data_parallel: Whole = 1,
    **options: Unpack[QuestionOptions],
) -> ScheduleResult:
    """Say the best draft length by batch, also in the engine's words.

    Parameters
    ----------
    model : name, path or dict
        The model that serves, as for `recommend`.
    batches : whole number or several, default '1..256'
        Batches to cover: '1..256', a range, or points such as [1, 8, 64].
    contexts : whole number or several, default '4k'
        Tokens in the KV cache of each sequence: '8k' is 8192.
    tie : number, default 1
        Percent of speed that a band may lose; 0 is the exact best.
    mix : dict, str or None, default None
        Share of time by batch: {1: 0.2, 32: 0.8}; None takes every doubling as alike.
    engine_version : str, number or None, default None
        TensorRT-LLM release; None means '1.3'.
    gate : bool, default False
        TensorRT-LLM: whether to stop for good below the break-even.
    proposed : bool, default False
        vLLM: whether to have rows by context too, which no release takes.
    candidate_sets : bool, default False
        SGLang: whether each slot may choose within the tie.
    graph_batches : whole number, several or None, default None
        SGLang: captured CUDA-graph batch sizes; None is its default.
    data_parallel : whole number, default 1
        Data-parallel copies, which decide on some notes.

    Returns
    -------
    ScheduleResult
        With `points` (the bands), `engine_text` (to paste), `gain_over_fixed`,
        `best_fixed_draft_length`, `refused`, `notes`. `to_frame()` has a row for each band.

    Raises
    ------
    InputError
        If something that was given cannot be used: `error.field` names the argument.
    DoesNotFitError
        If the first batch does not fit in memory: the message says what helps.

    Examples
    --------
    >>> bands = schedule("llama-3.1-8b", gpu="h100-sxm", batches="1..512", acceptance=0.7).points
    >>> bands[0].draft_length > bands[-1].draft_length
    True
    """
    configuration, workload = asked(model, options)
    engine = engine_for(ScheduleFormat.TABLE, configuration.engine)
    graphs = None
    if graph_batches is not None:
        graphs = sizes("graph_batches", values.wholes("graph_batches", graph_batches))
    written_for = ScheduleOptions(
        engine_version=_text("engine_version", engine_version),
        proposed=values.flag("proposed", proposed),
        gate=values.flag("gate", gate),
        candidate_sets=values.flag("candidate_sets", candidate_sets),
        graph_batches=graphs,
        data_parallel=max(
            values.whole("data_parallel", data_parallel),
            configuration.dp_attention if configuration.dp_attention > 1 else 0,
        ),
    )
    written_for.check(engine)
    if configuration.drafter == "none":
        raise InputError("there is nothing to schedule", field="drafter", value="none")
    planned = plan_schedule(
        replace(configuration, engine=engine),
        replace(
            workload,
            batches=sizes_or_range("batches", values.wholes("batches", batches)),
            contexts=tuple(sorted(sizes("contexts", values.wholes("contexts", contexts)))),
        ),
        tie=amount("tie", values.text("tie", tie), PERCENT, "percent, such as 1") / 100,
        mix=None if mix is None else shares_of("mix", values.shares("mix", mix)),
    )
    return ScheduleResult(answer=planned, written=write_schedule(planned, written_for))


@question_options()
def sweep(
    model: Reference | Sequence[Reference],
    *,
    batch: WholeNumbers | None = None,
    context: WholeNumbers | None = None,
    gpu_hour: Number | Sequence[Number] | None = None,
    grid: str | os.PathLike[str] | None = None,
    **options: Any,
) -> SweepResult:
    """Price every point of a grid as a row.

    Every option takes one value or a list of values: the grid has each combination of them. A
    curve in a list of acceptances is a text, a dict or a list of its own; `set` is one dict.

    Parameters
    ----------
    model : name, path or dict, or a list of them
        The models, as for `recommend`.
    batch : whole number or several, default 1
        Sequences decoded together: 8, [1, 8], '1..512', '1..64+4' (steps of 4) or '1..1024*2'.
    context : whole number or several, default 4096
        Tokens in the KV cache of each sequence, as `batch`: '1k..128k*2'.
    gpu_hour : number, several or None, default None
        Price of one GPU for an hour [$].
    grid : path or None, default None
        YAML file with the same names as axes; what is given here comes first.

    Returns
    -------
    SweepResult
        With `to_frame()` (a row for each combination, batch, context and draft length) and
        `write(path)` (a CSV, JSON lines or Parquet file of any size).

    Raises
    ------
    InputError
        If something that was given cannot be used: `error.field` names the argument.
    DoesNotFitError
        If no point of the grid fits in memory. It comes with the first rows.

    Examples
    --------
    >>> rows = sweep(["llama-3.1-8b", "qwen3-8b"], batch=[1, 32], acceptance=0.7).to_frame()
    >>> rows[rows.best].groupby("model").speedup.max().round(1).tolist()
    [2.1, 2.1]
    """
    given = {**options, "model": model, "batch": batch, "context": context, "gpu_hour": gpu_hour}
    texts = {name: axis(name, value) for name, value in given.items() if value is not None}
    return SweepResult(answer=plan_for(texts, None if grid is None else values.path("grid", grid)))


def _text(field: str, value: Any) -> str | None:
    return None if value is None else values.text(field, value)


def _whole_text(field: str, value: Any) -> str | None:
    return None if value is None else values.wholes(field, value)


def _price(gpu_hour: Number | None) -> float | None:
    if gpu_hour is None:
        return None
    text = values.text("gpu_hour", gpu_hour)
    return amount("gpu_hour", text, DOLLARS, "dollars such as 2.5")
