"""``roofline recommend``: the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.base.errors import InputError
from roofline.base.values import batches_in_order, prompt_and_answer, sizes
from roofline.cli.panels import LOAD, QUESTION, SERVER
from roofline.cli.printing import emit_answer
from roofline.cli.question import (
    FORMATS,
    GPU_HOUR,
    INTERVAL,
    OUTPUT,
    TIMEOUT,
    asks,
    format_for,
    given_by_flag,
    option,
    price,
)

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Question, Workload
    from roofline.advice.recommend import Recommendation
    from roofline.base.notices import Notice
    from roofline.questions.goals import Goal
    from roofline.questions.load.load import Load
    from roofline.questions.request.lengths import Requests
    from roofline.render.blocks import Answer
    from roofline.render.recommendation import Met

__all__ = ["recommend"]


@asks(model=None, tuned=True)
def recommend(
    configuration: Configuration,
    workload: Workload,
    *,
    batch: Annotated[
        str | None,
        option(
            QUESTION,
            "Sequences decoded together: 1,8 or 1..64.  [1; with a goal many]",
            metavar="N,...",
        ),
    ] = None,
    context: Annotated[
        str | None, option(QUESTION, "Tokens in the KV cache: 4k or 1k,8k.  [4k]", metavar="N,...")
    ] = None,
    rps: Annotated[str | None, option(LOAD, "Load: requests per second.", metavar="RATE")] = None,
    input_tokens: Annotated[
        str | None,
        option(LOAD, "Prompt tokens of a request: answers for whole requests.", metavar="N"),
    ] = None,
    output_tokens: Annotated[
        str | None, option(LOAD, "Answer tokens of a request.", metavar="N")
    ] = None,
    prefix_tokens: Annotated[
        str | None,
        option(LOAD, "Prompt tokens found in the prefix cache.  [0]", metavar="N"),
    ] = None,
    trace: Annotated[
        str | None,
        option(
            LOAD,
            "Requests by their lengths: CSV of input,output[,time[,prefix]], a result of vllm "
            "bench, Mooncake's JSONL or Azure's CSV.",
            metavar="FILE",
        ),
    ] = None,
    batches_histogram: Annotated[
        str | None,
        option(LOAD, "Load: share of time by batch, or a CSV file.", metavar="N:SHARE,..."),
    ] = None,
    concurrency: Annotated[
        int | None,
        option(LOAD, "Load: clients, each with one request at a time.", metavar="N"),
    ] = None,
    think_time: Annotated[
        str | None,
        option(LOAD, "Time from an answer to its client's next request.  [0]", metavar="S"),
    ] = None,
    rollouts: Annotated[
        int | None,
        option(LOAD, "Load: requests that start together; none follows.", metavar="N"),
    ] = None,
    output_lengths: Annotated[
        str | None,
        option(
            LOAD,
            "Rollouts: share by answer tokens, a CSV file, or geometric.",
            metavar="N:SHARE,...",
        ),
    ] = None,
    slo_ttft: Annotated[
        str | None,
        option(LOAD, "Goal: at most this many ms to a request's first token.", metavar="MS"),
    ] = None,
    slo_e2e: Annotated[
        str | None,
        option(LOAD, "Goal: at most this many ms to a request's last token.", metavar="MS"),
    ] = None,
    slo_percentile: Annotated[
        str | None,
        option(LOAD, "Share of requests of the load that meet the limits.  [95]", metavar="%"),
    ] = None,
    context_mix: Annotated[
        str | None,
        option(LOAD, "With a histogram: share of sequences by context.", metavar="N:SHARE,..."),
    ] = None,
    max_batch: Annotated[
        int | None, option(LOAD, "Sequences that the engine runs at most.  [1024]", metavar="N")
    ] = None,
    prefill_chunk: Annotated[
        str | None, option(LOAD, "Prompt tokens of one step at most.  [the engine's]", metavar="N")
    ] = None,
    gpu_hour: Annotated[str | None, GPU_HOUR] = None,
    watts: Annotated[
        bool,
        option(LOAD, "Add watts and joules by draft length (experimental).", "--watts"),
    ] = False,
    pools: Annotated[
        str | None,
        option(
            LOAD,
            "Prompt and answer tokens: decode GPUs that a prefill GPU feeds (experimental).",
            metavar="IN:OUT",
        ),
    ] = None,
    slo_tpot: Annotated[
        str | None,
        option(QUESTION, "Goal: at most this many ms per token of a user (TPOT).", metavar="MS"),
    ] = None,
    target_tokens_per_s: Annotated[
        str | None, option(LOAD, "Goal: at least this many tokens/s of all users.", metavar="RATE")
    ] = None,
    live: Annotated[
        str | None, option(SERVER, "Ask a running server; options given here win.", metavar="URL")
    ] = None,
    interval: INTERVAL = "30s",
    timeout: TIMEOUT = "10s",
    objective: Annotated[
        str | None,
        option(LOAD, "Goal: choose the batch, for latency or throughput.", metavar="WORD"),
    ] = None,
    explain: Annotated[
        bool, option(QUESTION, "Show every kernel of the step.", "--explain")
    ] = False,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    options: typer.Context,
) -> None:
    """Say which draft length to run, what it buys, and why.

    Example: roofline recommend qwen3-8b --gpu h100-sxm --batch 8
    """
    from roofline.advice.question import ask
    from roofline.render.recommendation import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    workload = replace(workload, gpu_hour=price(gpu_hour))
    goal = _goal(slo_tpot=slo_tpot, target_tokens_per_s=target_tokens_per_s, objective=objective)
    given = {
        "batch": batch,
        "context": context,
        "rps": rps,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "prefix_tokens": prefix_tokens,
        "trace": trace,
        "batches_histogram": batches_histogram,
        "concurrency": concurrency,
        "context_mix": context_mix,
        "think_time": think_time,
        "rollouts": rollouts,
        "output_lengths": output_lengths,
        "slo_ttft": slo_ttft,
        "slo_tpot": slo_tpot,
        "slo_e2e": slo_e2e,
        "slo_percentile": slo_percentile,
        "max_batch": max_batch,
        "prefill_chunk": prefill_chunk,
        "gpu_hour": gpu_hour,
        "target_tokens_per_s": target_tokens_per_s,
        "objective": objective,
        "live": live,
        "explain": explain,
        "watts": watts,
        "pools": pools,
    }
    alone = _alone(configuration, workload, given)
    if alone is not None:
        emit_answer(alone, how, output)
        return
    load = _load(
        rps=rps,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        batches_histogram=batches_histogram,
        max_batch=max_batch,
        prefill_chunk=prefill_chunk,
        context=context,
        concurrency=concurrency,
        think_time=think_time,
        slo_ttft=slo_ttft,
        slo_tpot=slo_tpot,
        slo_e2e=slo_e2e,
        slo_percentile=slo_percentile,
        context_mix=context_mix,
    )
    if load is not None:
        goal = None if load.slo is not None else goal
        _check_beside(load, given)
    contexts = None if context is None else sizes("context", context)
    batches = _batches(batch, goal) if load is None else (1,)
    drawn = watts or configuration.power_cap is not None
    shape = None if pools is None else prompt_and_answer("pools", pools)
    workload = replace(workload, watts=drawn, pools=shape)
    if workload.tuned is not None and load is not None and context is None:
        load = load.at_context(workload.contexts[0])
    about = _csv_notes(how, goal, explain=explain)
    of_server: tuple[Notice, ...] = ()
    if live is not None:
        _check_live(live, workload)
        if load is not None and load.input_tokens is not None:
            contexts = (load.length,)
        from roofline.cli.live import live_question
        from roofline.render.live import gap_lines

        server = live_question(
            live,
            configuration,
            workload,
            options,
            interval=interval,
            timeout=timeout,
            batches=batches,
            contexts=contexts,
        )
        configuration, workload = server.configuration, server.workload
        about += gap_lines(server)
        of_server = server.serving.notices
        if load is not None:
            load = load.at_context(workload.contexts[0])
    elif not configuration.model:
        raise InputError("MODEL is missing: give a model, --live URL or --tuned FILE")
    elif given_by_flag(options) & {"interval", "timeout"}:
        raise InputError("--interval and --timeout: belong to --live URL")
    else:
        workload = replace(
            workload,
            batches=batches or workload.batches,
            contexts=contexts or workload.contexts,
        )
    if load is not None:
        emit_answer(_of_load(configuration, workload, load, of_server), how, output, about=about)
        return
    question = ask(configuration, workload)
    _check_pools(question, shape)
    answer, met = _answered(question, goal, named=batch is not None)
    answer = replace(answer, notices=(*of_server, *answer.notices))
    emit_answer(as_answer(answer, explain=explain, met=met), how, output, about=about)


#: What belongs to a load, and what to one step: neither says anything of requests by themselves.
_LOADED = (
    "rps",
    "batches_histogram",
    "concurrency",
    "context_mix",
    "think_time",
    "max_batch",
    "slo_ttft",
    "slo_e2e",
    "slo_percentile",
)
_OF_ONE_STEP = (
    "context",
    "slo_tpot",
    "target_tokens_per_s",
    "objective",
    "live",
    "explain",
    "watts",
    "pools",
)


def _alone(
    configuration: Configuration, workload: Workload, given: Mapping[str, Any]
) -> Answer | None:
    """Return the answer for requests that start together, or one by one; None for all else."""

    def named(*names: str) -> dict[str, Any]:
        return {name: given[name] or None for name in names}

    lengths = ("input_tokens", "output_tokens", "prefill_chunk")
    if given["rollouts"] is not None or given["output_lengths"] is not None:
        beside = named("batch", "prefix_tokens", "trace", *_LOADED, *_OF_ONE_STEP)
        of_each = {name: given[name] for name in (*lengths, "output_lengths")}
        return _rollout(configuration, workload, given["rollouts"], of_each, beside)
    requests = _requests(
        in_load=any(given[name] is not None for name in (*_LOADED, "slo_tpot")),
        **{name: given[name] for name in (*lengths, "prefix_tokens", "trace")},
    )
    if requests is None:
        return None
    workload = replace(workload, batches=_batches(given["batch"], None) or (1,))
    return _of_requests(configuration, workload, requests, named("gpu_hour", *_OF_ONE_STEP))


def _rollout(
    configuration: Configuration,
    workload: Workload,
    rollouts: int | None,
    requests: Mapping[str, str | None],
    beside: Mapping[str, object],
) -> Answer:
    """Return the answer about requests that start together."""
    from roofline.questions.load.rollout import answer_rollout, check_rollout, rollout_of
    from roofline.render.rollout import as_answer

    check_rollout(rollouts, beside)
    if not configuration.model:
        raise InputError("MODEL is missing: give a model")
    rollout = rollout_of(rollouts=rollouts or 0, **requests)
    return as_answer(answer_rollout(configuration, workload, rollout))


def _check_beside(load: Load, given: Mapping[str, Any]) -> None:
    """Refuse beside a load what is about one batch; a limit of TPOT may be of requests."""
    from roofline.questions.load.load import check_beside

    names = ("batch", "slo_tpot", "target_tokens_per_s", "objective", "explain", "watts", "pools")
    of_batch = {name: given[name] or None for name in names}
    if load.slo is not None:
        of_batch["slo_tpot"] = None
    check_beside(load, of_batch)


def _check_live(live: str, workload: Workload) -> None:
    """Refuse an address that is empty, or a server beside what was timed before."""
    if workload.tuned is not None:
        raise InputError("--live and --tuned: give one of them")
    if not live.strip():
        raise InputError("--live: expected the address of a server: http://HOST:8000")


def _of_load(
    configuration: Configuration, workload: Workload, load: Load, of_server: tuple[Notice, ...]
) -> Answer:
    """Return the answer over a load."""
    from roofline.questions.load.answer import answer_load
    from roofline.render.load import as_answer as load_as_answer

    answer = answer_load(configuration, workload, load)
    return load_as_answer(replace(answer, notices=(*of_server, *answer.notices)))


def _check_pools(question: Question, shape: tuple[int, int] | None) -> None:
    """Refuse prompts and answers that pools of prefill and decode cannot have."""
    if shape is not None:
        from roofline.questions.pools import check_pools

        check_pools(question.deployment, *shape)


def _answered(
    question: Question, goal: Goal | None, *, named: bool
) -> tuple[Recommendation, Met | None]:
    """Return the answer; with a goal at the batches that meet it, and the choices."""
    if goal is None:
        from roofline.advice.recommend import recommend as answer_for

        return answer_for(question), None
    from roofline.questions.goals import answer_goal

    answer, choices = answer_goal(question, goal, named=named)
    return answer, (goal, choices)


def _load(*, context: str | None, **options: Any) -> Load | None:
    """Return the load that the options describe, if any of them is given."""
    if all(value is None for value in options.values()):
        return None
    from roofline.questions.load.load import load_of

    return load_of(context=context, **options)


def _requests(*, in_load: bool, **options: str | None) -> Requests | None:
    """Return the requests that the options describe, if any of them is given without a load."""
    if all(value is None for value in options.values()):
        return None
    from roofline.questions.request.described import check_in_load, lengths_of

    if in_load:
        check_in_load(options)
        return None
    return lengths_of(**options)


def _of_requests(
    configuration: Configuration,
    workload: Workload,
    requests: Requests,
    beside: Mapping[str, object],
) -> Answer:
    """Return the answer for whole requests; ``beside`` are options that say nothing of them."""
    from roofline.questions.request.answer import answer_requests
    from roofline.questions.request.described import check_alone
    from roofline.render.request import as_answer as requests_as_answer

    check_alone(beside)
    if not configuration.model:
        raise InputError("MODEL is missing: give a model")
    return requests_as_answer(answer_requests(configuration, workload, requests))


def _goal(**options: str | None) -> Goal | None:
    """Return the goal that the options describe, if any of them is given."""
    if all(value is None for value in options.values()):
        return None
    from roofline.questions.goals import goal_of

    return goal_of(**options)


def _csv_notes(how: str, goal: Goal | None, *, explain: bool) -> list[str]:
    """Return what CSV leaves out; a goal is refused there."""
    if how != "csv":
        return []
    if goal is not None:
        raise InputError("--format csv: has no place for a goal; use table, json or markdown")
    without = "--explain changes nothing here: CSV has no place for kernels, JSON has"
    return [without] if explain else []


def _batches(batch: str | None, goal: Goal | None) -> tuple[int, ...] | None:
    """Return the batches given, or those tried for a goal."""
    if batch is not None:
        return batches_in_order("batch", batch)
    if goal is None:
        return None
    from roofline.questions.goals import GOAL_BATCHES

    return GOAL_BATCHES
