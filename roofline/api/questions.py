"""One function for each question, as the command line has one command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from roofline.advice.question import ask
from roofline.advice.recommend import recommend as answer_for
from roofline.api import values
from roofline.api.answers import (
    CompareResult,
    ExploreResult,
    LoadResult,
    MemoryResult,
    RecommendResult,
    RequestResult,
    RolloutResult,
    ScheduleResult,
    SweepResult,
    TuneResult,
)
from roofline.api.options import DeploymentOptions, QuestionOptions, asked, axis, question_options
from roofline.api.values import AcceptanceLike, Name, Number, Reference, Whole, WholeNumbers
from roofline.base.errors import InputError
from roofline.base.values import (
    DOLLARS,
    PERCENT,
    amount,
    batches_in_order,
    prompt_and_answer,
    sizes,
    sizes_or_range,
)
from roofline.base.values import shares as shares_of
from roofline.questions.compare import Candidate, bundled_candidates, parse_candidate
from roofline.questions.compare import compare as side_by_side
from roofline.questions.explore import EXPLORED_BATCHES, parse_axis
from roofline.questions.explore import explore as vary_over
from roofline.questions.goals import GOAL_BATCHES, answer_goal, goal_of
from roofline.questions.load.answer import answer_load
from roofline.questions.load.load import check_beside, load_of
from roofline.questions.load.rollout import answer_rollout, check_rollout, rollout_of
from roofline.questions.memory import memory_accounts
from roofline.questions.request.answer import answer_requests
from roofline.questions.request.described import check_alone, check_in_load, lengths_of
from roofline.questions.request.lengths import Requests
from roofline.questions.schedule.formats import (
    ScheduleFormat,
    ScheduleOptions,
    engine_for,
    schedule_or_one,
)
from roofline.questions.schedule.plan import plan_schedule
from roofline.questions.sweep.grid import plan_for
from roofline.questions.tune.results import typed_result
from roofline.questions.tune.tune import tune as tuned_after

__all__ = ["compare", "explore", "memory", "recommend", "schedule", "sweep", "tune"]


@question_options()
def recommend(
    model: Reference | None = None,
    *,
    tuned: Name | None = None,
    batch: WholeNumbers | None = None,
    context: WholeNumbers | None = None,
    rps: Number | None = None,
    input_tokens: Whole | None = None,
    output_tokens: Whole | None = None,
    prefix_tokens: Whole | None = None,
    trace: Reference | None = None,
    batches_histogram: Mapping[int, float] | str | None = None,
    concurrency: Whole | None = None,
    think_time: Number | None = None,
    rollouts: Whole | None = None,
    output_lengths: Mapping[int, float] | str | None = None,
    slo_ttft: Number | None = None,
    slo_e2e: Number | None = None,
    slo_percentile: Number | None = None,
    context_mix: Mapping[int, float] | str | None = None,
    max_batch: Whole | None = None,
    prefill_chunk: Whole | None = None,
    gpu_hour: Number | None = None,
    watts: bool = False,
    pools: str | None = None,
    slo_tpot: Number | None = None,
    target_tokens_per_s: Number | None = None,
    objective: str | None = None,
    explain: bool = False,
    **options: Unpack[QuestionOptions],
) -> RecommendResult | LoadResult | RequestResult | RolloutResult:
    """Say which draft length to run, what it buys, and why.

    Parameters
    ----------
    model : name, path or dict
        The model that serves: a bundled name, the path of a config.json, its folder, a GGUF file or
        a spec (YAML), or a config as a dict. A tuning file says it too.
    tuned : path or None, default None
        A tuning file (`roofline tune`): it says the question, so that only loads are given beside
        it, and the answer has the step times and the acceptance that its timings lead to.
    batch : whole number or several, default 1 (with a goal: those that fit up to 1024)
        Sequences decoded together: 8, [1, 8], range(1, 65) or '1..64'.
    context : whole number or several, default 4096
        Tokens in the KV cache of each sequence: '8k' is 8192.
    rps : number or None, default None
        A load instead of a batch: requests per second, with `input_tokens` and `output_tokens`.
    input_tokens : whole number or None, default None
        Prompt tokens of a request: with `output_tokens` and without a load the answer is for whole
        requests at each batch.
    output_tokens : whole number or None, default None
        Tokens that a request is answered with.
    prefix_tokens : whole number or None, default None
        Prompt tokens of a request that are found in the prefix cache; None means 0.
    trace : path or None, default None
        Requests by their lengths: CSV of input,output[,time[,prefix]], a result of vllm bench,
        Mooncake's JSONL or Azure's CSV.
    batches_histogram : dict, str or None, default None
        A load as the share of time by batch: {8: 0.5, 32: 0.5}, or the path of a CSV file.
    concurrency : whole number or None, default None
        A load of so many clients instead, each with one request at a time.
    think_time : number or None, default None
        Time from an answer to the next request of its client [s]; None means 0.
    rollouts : whole number or None, default None
        A load of so many requests that start together, none of which is followed by another.
    output_lengths : dict, str or None, default None
        Their answer tokens as shares by length, {400: 0.5, 2000: 0.5}, the path of a CSV file, or
        'geometric' with the mean in `output_tokens`; None has all of `output_tokens`.
    slo_ttft : number or None, default None
        Goal under a load: at most this time to the first token of a request [ms].
    slo_e2e : number or None, default None
        Goal under a load: at most this time to the last token of a request [ms].
    slo_percentile : number or None, default None
        Percent of the requests that shall meet the limits; None means 95.
    context_mix : dict, str or None, default None
        With `batches_histogram`: shares of the sequences by context, {1000: 0.9, 32000: 0.1}.
    max_batch : whole number or None, default None
        Sequences that the engine runs at most under the load; None means 1024.
    prefill_chunk : whole number or None, default None
        Prompt tokens of one step at most; None is the engine's.
    gpu_hour : number or None, default None
        Price of one GPU for an hour [$]; it adds the price of a million output tokens.
    watts : bool, default False
        Whether to add watts and joules by draft length (experimental); a `power_cap` adds them too.
    pools : str or None, default None
        Prompt and answer tokens ('2k:256'): adds how many decode instances a prefill instance of
        the same GPUs feeds (experimental).
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
    RequestResult
        The same for whole requests; `to_frame()` has a row for each batch and draft length.
    RolloutResult
        How long `rollouts` take; `to_frame()` has a row for each draft length.

    Raises
    ------
    DoesNotFitError
        If nothing that was asked about fits in memory: the message says what helps.

    Examples
    --------
    >>> answer = recommend("llama-3.1-8b", gpu="h100-sxm", batch=32, context="2k", acceptance=0.7)
    >>> answer.draft_length
    4
    """
    configuration, workload = asked(model, options, tuned=tuned)
    if rollouts is not None or output_lengths is not None:
        beside = {
            "batch": batch,
            "context": context,
            "rps": rps,
            "concurrency": concurrency,
            "think_time": think_time,
            "batches_histogram": batches_histogram,
            "prefix_tokens": prefix_tokens,
            "trace": trace,
            "max_batch": max_batch,
            "context_mix": context_mix,
            "slo_ttft": slo_ttft,
            "slo_tpot": slo_tpot,
            "slo_e2e": slo_e2e,
            "slo_percentile": slo_percentile,
            "target_tokens_per_s": target_tokens_per_s,
            "objective": objective,
            "explain": explain or None,
        }
        together = None if rollouts is None else values.whole("rollouts", rollouts)
        check_rollout(together, beside)
        rollout = rollout_of(
            rollouts=together or 0,
            input_tokens=_whole_text("input_tokens", input_tokens),
            output_tokens=_whole_text("output_tokens", output_tokens),
            output_lengths=None
            if output_lengths is None
            else values.shares("output_lengths", output_lengths),
            prefill_chunk=_whole_text("prefill_chunk", prefill_chunk),
        )
        workload = replace(workload, gpu_hour=_price(gpu_hour))
        return RolloutResult(answer=answer_rollout(configuration, workload, rollout))
    goal = goal_of(
        slo_tpot=_text("slo_tpot", slo_tpot),
        target_tokens_per_s=_text("target_tokens_per_s", target_tokens_per_s),
        objective=objective,
    )
    of_load = (rps, batches_histogram, context_mix, max_batch, concurrency, think_time)
    limits = (slo_ttft, slo_tpot, slo_e2e, slo_percentile)
    in_load = any(value is not None for value in (*of_load, *limits))
    requests = _requests(
        in_load=in_load,
        input_tokens=_whole_text("input_tokens", input_tokens),
        output_tokens=_whole_text("output_tokens", output_tokens),
        prefix_tokens=_whole_text("prefix_tokens", prefix_tokens),
        prefill_chunk=_whole_text("prefill_chunk", prefill_chunk),
        trace=None if trace is None else str(trace),
    )
    if requests is not None:
        beside = {
            "context": context,
            "slo_tpot": slo_tpot,
            "target_tokens_per_s": target_tokens_per_s,
            "objective": objective,
            "explain": explain or None,
            "gpu_hour": gpu_hour,
        }
        check_alone(beside)
        if batch is not None:
            asked_for = batches_in_order("batch", values.wholes("batch", batch))
            workload = replace(workload, batches=asked_for)
        return RequestResult(answer=answer_requests(configuration, workload, requests))
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
        concurrency=None if concurrency is None else values.whole("concurrency", concurrency),
        think_time=_text("think_time", think_time),
        slo_ttft=_text("slo_ttft", slo_ttft),
        slo_tpot=_text("slo_tpot", slo_tpot),
        slo_e2e=_text("slo_e2e", slo_e2e),
        slo_percentile=_text("slo_percentile", slo_percentile),
        context_mix=None if context_mix is None else values.shares("context_mix", context_mix),
    )
    drawn = values.flag("watts", watts) or configuration.power_cap is not None
    shape = None if pools is None else prompt_and_answer("pools", values.text("pools", pools))
    workload = replace(workload, gpu_hour=_price(gpu_hour), watts=drawn, pools=shape)
    if load is not None:
        for_one_batch = {
            "batch": batch,
            "slo_tpot": slo_tpot if load.slo is None else None,
            "target_tokens_per_s": target_tokens_per_s,
            "objective": objective,
            "explain": explain or None,
            "watts": watts or None,
            "pools": pools,
        }
        check_beside(load, for_one_batch)
        return LoadResult(answer=answer_load(configuration, workload, load))
    batches = workload.batches if goal is None else GOAL_BATCHES
    if batch is not None:
        batches = batches_in_order("batch", values.wholes("batch", batch))
    if context is not None:
        workload = replace(workload, contexts=sizes("context", values.wholes("context", context)))
    question = ask(configuration, replace(workload, batches=batches))
    if shape is not None:
        from roofline.questions.pools import check_pools

        check_pools(question.deployment, *shape)
    if goal is None:
        return RecommendResult(answer=answer_for(question), explain=values.flag("explain", explain))
    answer, choices = answer_goal(question, goal, named=batch is not None)
    return RecommendResult(
        answer=answer,
        goal=goal,
        choices=tuple(choices),
        explain=values.flag("explain", explain),
    )


@question_options("acceptance_rounds")
def schedule(
    model: Reference | None = None,
    *,
    tuned: Name | None = None,
    batches: WholeNumbers = "1..256",
    contexts: WholeNumbers | None = None,
    tie: Number = 1,
    odds: Number = 80,
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
    tuned : path or None, default None
        A tuning file, as for `recommend`.
    batches : whole number or several, default '1..256'
        Batches to cover: '1..256', a range, or points such as [1, 8, 64].
    contexts : whole number or several, default '4k' (with a tuning file: its context)
        Tokens in the KV cache of each sequence: '8k' is 8192.
    tie : number, default 1
        Percent of speed that a band may lose; 0 is the exact best.
    odds : number, default 80
        Odds in percent that two draft lengths must have of beating one; 0 merges no bands.
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
    DoesNotFitError
        If the first batch does not fit in memory: the message says what helps.

    Examples
    --------
    >>> bands = schedule("llama-3.1-8b", gpu="h100", contexts="1k", acceptance=0.7).points
    >>> bands[0].draft_length > bands[-1].draft_length
    True
    """
    configuration, workload = asked(model, options, tuned=tuned)
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
            contexts=workload.contexts
            if contexts is None
            else tuple(sorted(sizes("contexts", values.wholes("contexts", contexts)))),
        ),
        tie=amount("tie", values.text("tie", tie), PERCENT, "percent, such as 1") / 100,
        odds=amount("odds", values.text("odds", odds), PERCENT, "percent, such as 80") / 100,
        mix=None if mix is None else shares_of("mix", values.shares("mix", mix)),
    )
    return ScheduleResult(answer=planned, written=schedule_or_one(planned, written_for))


@question_options("drafter", "acceptance", "acceptance_rounds")
def compare(
    model: Reference,
    *,
    drafter: str | Sequence[str] | Mapping[str, AcceptanceLike | None] | None = None,
    batch: WholeNumbers = 1,
    context: WholeNumbers = "4k",
    **options: Unpack[DeploymentOptions],
) -> CompareResult:
    """Compare drafters, each at its own best draft length.

    Parameters
    ----------
    model : name, path or dict
        The model that serves, as for `recommend`.
    drafter : dict, list of str, str or None, default None
        The drafters: {'eagle3': None, 'ngram': 0.5} (each with its acceptance, None for a bundled
        one), or ['eagle3', 'ngram=0.5']. None takes the bundled heads whose acceptance is known.
    batch : whole number or several, default 1
        Sequences decoded together: 8, [1, 8] or '1,8'.
    context : whole number or several, default '4k'
        Tokens in the KV cache of each sequence: '8k' is 8192.

    Returns
    -------
    CompareResult
        With `points` (the drafters at each batch and context, the fastest first), `refused`,
        `notes`; for a single point also `best`, `draft_length` and `speedup`. `to_frame()` has a
        row for each batch, context and drafter.

    Raises
    ------
    DoesNotFitError
        If nothing that was asked about fits in memory: the message says what helps.

    Examples
    --------
    >>> compare("llama-3.1-8b", drafter={"eagle3": 0.7, "ngram": 0.3}, batch=8).best.drafter_kind
    'eagle3'
    """
    configuration, workload = asked(model, options)
    left_out: list[str] = []
    if drafter is None:
        candidates, left_out = bundled_candidates(configuration)
    elif isinstance(drafter, Mapping):
        candidates = [
            Candidate(
                drafter=values.reference("drafter", name),
                acceptance=None if given is None else values.acceptance("acceptance", given),
            )
            for name, given in drafter.items()
        ]
    else:
        candidates = [parse_candidate(text) for text in values.several("drafter", drafter)]
    if not candidates:
        raise InputError("expected at least one", field="drafter")
    workload = replace(
        workload,
        batches=sizes("batch", values.wholes("batch", batch)),
        contexts=sizes("context", values.wholes("context", context)),
    )
    points = side_by_side(configuration, workload, candidates)
    return CompareResult(answer=tuple(map(tuple, points)), left_out=tuple(left_out))


@question_options("acceptance_rounds")
def memory(
    model: Reference,
    *,
    context: WholeNumbers = "4k",
    batch: Whole | None = None,
    draft_length: Whole | None = None,
    **options: Unpack[QuestionOptions],
) -> MemoryResult:
    """Say where memory goes, what fits, and what drafting takes.

    Parameters
    ----------
    model : name, path or dict
        The model that serves, as for `recommend`.
    context : whole number or several, default '4k'
        Tokens of each sequence: '8k' is 8192.
    batch : whole number or None, default None
        Sequences to account for; None is the most that fit.
    draft_length : whole number or None, default None
        Draft length to account for [tokens]; None is the one that yields most at equal memory.

    Returns
    -------
    MemoryResult
        With `points` (how many sequences fit at each context), `refused`, `notes`; for a single
        context also `best`, `draft_length` and `largest_batch`. `to_frame()` has a row for each
        context without drafts and with them, sizes in bytes.

    Raises
    ------
    DoesNotFitError
        If not even one sequence fits in memory: the message says what helps.

    Examples
    --------
    >>> memory("llama-3.1-8b", gpu="h100-sxm", context="8k").largest_batch
    55
    """
    configuration, workload = asked(model, options)
    accounts = memory_accounts(
        configuration,
        replace(workload, contexts=sizes("context", values.wholes("context", context))),
        batch=None if batch is None else values.whole("batch", batch),
        draft_length=None if draft_length is None else values.whole("draft_length", draft_length),
        longest_is_given=options.get("max_draft_length") is not None,
    )
    return MemoryResult(answer=accounts)


@question_options("acceptance_rounds")
def explore(
    model: Reference,
    *,
    vary: Mapping[str, Any],
    batch: Whole = 1,
    context: Whole = "4k",
    batches: WholeNumbers | None = None,
    explain: bool = False,
    **options: Unpack[QuestionOptions],
) -> ExploreResult:
    """Show how the answer moves with the architecture.

    Parameters
    ----------
    model : name, path or dict
        The model to start from, as for `recommend`.
    vary : dict
        The values to try by path, as in `set`: {'group_size': [1, 2, 4, 8]}. Several paths give
        every combination.
    batch : whole number, default 1
        Sequences decoded together.
    context : whole number, default '4k'
        Tokens in the KV cache of each sequence.
    batches : whole number, several or None, default None
        Batches to look for the turning points at; None is 1 to 1024, two to a doubling.
    explain : bool, default False
        Whether the text holds every draft length's speedup and cost ratio.

    Returns
    -------
    ExploreResult
        With `points` (the advice for each variant), `refused`, `notes`. `to_frame()` has a row for
        each variant.

    Raises
    ------
    DoesNotFitError
        If no variant fits in memory: the message says what helps.

    Examples
    --------
    >>> frame = explore("llama-3.1-8b", vary={"group_size": [1, 4]}, acceptance=0.7).to_frame()
    >>> frame.group_size.tolist()
    [1, 4]
    """
    configuration, workload = asked(model, options)
    if not isinstance(vary, Mapping):
        raise InputError("expected a dict such as {'group_size': [1, 2, 4]}", field="vary")
    exploration = vary_over(
        configuration,
        replace(workload, contexts=(values.whole("context", context),)),
        [parse_axis(f"{path}={values.listed('vary', each)}") for path, each in vary.items()],
        batch=values.whole("batch", batch),
        batches=EXPLORED_BATCHES
        if batches is None
        else sizes_or_range("batches", values.wholes("batches", batches)),
    )
    return ExploreResult(answer=exploration, explain=values.flag("explain", explain))


@question_options()
def sweep(
    model: Reference | Sequence[Reference] | None = None,
    *,
    tuned: Name | None = None,
    batch: WholeNumbers | None = None,
    context: WholeNumbers | None = None,
    gpu_hour: Number | Sequence[Number] | None = None,
    grid: Name | None = None,
    **options: Any,
) -> SweepResult:
    """Price every point of a grid as a row.

    Every option takes one value or a list of values: the grid has each combination of them. A
    curve in a list of acceptances is a text, a dict or a list of its own; `set` is one dict.

    Parameters
    ----------
    model : name, path or dict, or a list of them
        The models, as for `recommend`.
    tuned : path or None, default None
        A tuning file, as for `recommend`.
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
    DoesNotFitError
        If no point of the grid fits in memory. It comes with the first rows.

    Examples
    --------
    >>> rows = sweep(["llama-3.1-8b", "qwen3-8b"], batch=[1, 32], acceptance=0.7).to_frame()
    >>> rows[rows.recommended].groupby("model").speedup.max().round(1).tolist()
    [2.1, 2.1]
    """
    given = {**options, "model": model, "batch": batch, "context": context, "gpu_hour": gpu_hour}
    texts = {name: axis(name, value) for name, value in given.items() if value is not None}
    plan = plan_for(
        texts,
        None if grid is None else values.path("grid", grid),
        tuned=None if tuned is None else values.path("tuned", tuned),
    )
    return SweepResult(answer=plan)


@question_options()
def tune(
    model: Reference,
    *,
    batch: WholeNumbers = 1,
    context: Whole = "4k",
    timings: Sequence[Mapping[str, Any]] = (),
    running: Whole | None = None,
    hold_acceptance: bool = False,
    **options: Unpack[QuestionOptions],
) -> TuneResult:
    """Find the best draft length by two or three timings.

    Parameters
    ----------
    model : name, path or dict
        The model that serves, as for `recommend`.
    batch : whole number or several, default 1
        Sequences decoded together: 8, [8, 64] or '8,64'.
    context : whole number, default '4k'
        Tokens in the KV cache of the timings.
    timings : list of dict, default ()
        What was timed so far: {'draft_length': 3, 'tokens_per_s': 812}, with 'tokens_per_step',
        'batch', 'repeats' or 'held' (tokens per step that the engine was made to accept) if known.
    running : whole number or None, default None
        The draft length that runs already: it is timed first.
    hold_acceptance : bool, default False
        Whether the engine is made to accept what is expected: step times are timed alone.

    Returns
    -------
    TuneResult
        With `points` (what to run at each batch), `verdict`, `next_timing`; for a single batch also
        `best` and `draft_length`. `to_frame()` has a row for each batch and draft length.

    Raises
    ------
    DoesNotFitError
        If a batch does not fit in memory: the message says what helps.

    Examples
    --------
    >>> begun = tune("llama-3.1-8b", gpu="h100-sxm", batch=8, acceptance=0.7)
    >>> begun.verdict
    'start'
    >>> once = {"draft_length": begun.next_timing["draft_length"], "tokens_per_s": 1500}
    >>> tune("llama-3.1-8b", gpu="h100-sxm", batch=8, acceptance=0.7, timings=[once]).verdict
    'time'
    """
    configuration, workload = asked(model, options)
    batches = batches_in_order("batch", values.wholes("batch", batch))
    question = ask(
        configuration,
        replace(workload, batches=batches, contexts=(values.whole("context", context),)),
    )
    alone = {"batch": batches[0]} if len(batches) == 1 else {}
    found = tuned_after(
        question,
        [typed_result(**alone | dict(each)) for each in timings],
        running=None if running is None else values.whole("running", running),
        held=values.flag("hold_acceptance", hold_acceptance),
    )
    return TuneResult(answer=found)


def _requests(*, in_load: bool, **options: str | None) -> Requests | None:
    """Return the requests that the options describe, if any of them is given without a load."""
    if in_load:
        check_in_load(options)
        return None
    return lengths_of(**options)


def _text(field: str, value: Any) -> str | None:
    return None if value is None else values.text(field, value)


def _whole_text(field: str, value: Any) -> str | None:
    return None if value is None else values.wholes(field, value)


def _price(gpu_hour: Number | None) -> float | None:
    if gpu_hour is None:
        return None
    text = values.text("gpu_hour", gpu_hour)
    return amount("gpu_hour", text, DOLLARS, "dollars such as 2.5")
