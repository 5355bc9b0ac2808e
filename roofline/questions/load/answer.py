"""A load instead of a batch: what every draft length and the schedule yield over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.decide import SURE, TIE, smallest_within_tie
from roofline.advice.question import Question, Workload, ask
from roofline.advice.readings import Advice, Place, in_other_reading, with_reading
from roofline.advice.recommend import drawn_tokens, law_limit_notices, slow_format_notices
from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, Notice, notice
from roofline.base.units import format_count
from roofline.engines.writing import NoScheduleError
from roofline.questions.load.goodput import Goodput, best_held, gpus_for, held_range, waits_of
from roofline.questions.load.latency import Latency, Limits
from roofline.questions.load.load import Load
from roofline.questions.load.policies import (
    Policy,
    PolicyTable,
    over_histogram,
    under_arrivals,
    under_clients,
)
from roofline.questions.load.pricing import (
    PricedLoad,
    drawn_means,
    mixed_contexts,
    policy_table,
    price_load,
    with_prompts,
)
from roofline.questions.load.queueing import Chunks, prompt_chunks
from roofline.questions.schedule.bands import moved_rows
from roofline.questions.schedule.formats import ScheduleOptions, write_schedule
from roofline.questions.schedule.plan import SchedulePlan, no_schedule_reason
from roofline.questions.schedule.written import WrittenSchedule
from roofline.specs.priors import priors
from roofline.timing.step import StepTimes
from roofline.timing.uncertainty import drawn_row_shift

__all__ = ["LoadAnswer", "answer_load"]

Array = NDArray[np.float64]
#: Quantiles of the range of a gain.
RANGE = (0.1, 0.9)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadAnswer:
    """What every policy yields, which fixed draft length is best, and the schedule."""

    question: Question
    load: Load
    times: StepTimes
    chunks: Chunks
    policies: tuple[Policy, ...]  # the draft lengths, then the schedule if there is one
    best: int  # position of the advised draft length
    schedule: WrittenSchedule | None
    no_schedule: Notice | None  # why there is none
    notices: tuple[Notice, ...]
    #: The 10th and 90th percentile of the advised gain; None where somebody gave the acceptance.
    gain_range: tuple[float, float] | None = None
    latencies: tuple[Latency | None, ...] = ()  # by policy, where clients or limits were given
    goodput: Goodput | None = None
    #: The answer if a list of rates that was typed without a word is conditional, not survival; the
    #: refusal where it carries the load under survival alone.
    other_reading: LoadAnswer | InputError | None = None

    @property
    def plain(self) -> Policy:
        """Plain decoding."""
        return self.policies[0]

    @property
    def advised(self) -> Policy:
        """The advised fixed draft length."""
        return self.policies[self.best]

    @property
    def schedule_gain(self) -> float | None:
        """What the schedule adds to the pace of the advised draft length; None without one."""
        last = self.policies[-1]
        if last.draft_length is not None or not last.usable:
            return None
        return self.advised.tpot / last.tpot - 1

    @property
    def schedule_carries(self) -> float:
        """How many more requests/s the schedule can serve than the advised length, as a share."""
        schedule, fixed = self.policies[-1].most_rps, self.advised.most_rps
        return schedule / fixed - 1 if schedule and fixed else 0.0

    @property
    def schedule_pays(self) -> bool:
        """Whether it adds more than a tie: to the load that holds limits, else to the pace."""
        if self.goodput is not None:
            return self.goodput.schedule_adds(len(self.policies)) >= TIE
        return (self.schedule_gain or 0.0) >= TIE


def answer_load(configuration: Configuration, workload: Workload, load: Load) -> LoadAnswer:
    """Judge every draft length and the schedule over ``load``; refuse a load that none carries."""
    workload = replace(workload, batches=(1,), contexts=(load.length,))
    question = _question(configuration, workload, load)
    cut = prompt_chunks(
        prompt=load.input_tokens or 0,
        budget=load.prefill_chunk or question.deployment.engine.memory.prefill_chunk,
        groups=question.deployment.target.placement.dp,
    )
    answer, other = _answered(question, load, cut), in_other_reading(question)
    if other is None:
        return answer
    try:
        answer = replace(answer, other_reading=_answered(other, load, cut))
    except InputError as error:
        answer = replace(answer, other_reading=error)
    said = with_reading(answer.notices, question.acceptance, _readings(answer))
    return replace(answer, notices=said)


def _readings(answer: LoadAnswer) -> list[tuple[Place, Advice, Advice]] | None:
    """Return what both readings advise: a schedule where it pays, else one draft length."""
    other = answer.other_reading
    if other is None:
        return None
    conditional = Advice(refused=other.problem) if isinstance(other, InputError) else _advice(other)
    return [((), _advice(answer), conditional)]


def _advice(answer: LoadAnswer) -> Advice:
    if answer.schedule is None or not answer.schedule_pays:
        return Advice(draft_length=answer.advised.draft_length)
    bands = ((band.first, band.last, band.draft_lengths) for band in answer.schedule.bands)
    return Advice(bands=tuple(bands))


def _answered(question: Question, load: Load, cut: Chunks) -> LoadAnswer:
    """Return the answer with one reading of the acceptance."""
    priced = mixed_contexts(question, load, price_load(question, load, cut))
    fixed = policy_table(priced, load, cut, priced.step, question.draft_lengths)
    goodput = None
    if load.slo is not None:
        goodput, load, fixed = _held_within_graphs(question, priced, fixed, load, cut)
    policies = _judge(fixed, load, cut)
    best = _best(policies) if goodput is None else goodput.best
    schedule, planned, refusal = _schedule(
        question, load, cut, priced, static=policies[best].draft_length
    )
    if planned is not None:
        policies = _judge(fixed.joined(planned), load, cut)
    latencies: tuple[Latency | None, ...] = ()
    if goodput is not None or load.concurrency is not None:
        all_columns = fixed if planned is None else fixed.joined(planned)
        waits = waits_of(all_columns, priced, load, cut)
        latencies = waits.latencies(load.slo or Limits())
        if goodput is not None and planned is not None:
            last = replace(
                waits,
                columns=all_columns.picked((len(policies) - 1,)),
                variance=waits.variance[-1:],
            )
            held = float(last.largest(goodput.limits)[0])
            goodput = goodput.with_schedule(held)
    if not any(policy.usable for policy in policies):
        raise _overloaded(policies, load, question)
    running = policies[best].running
    busy = round(max(running, 1)) if np.isfinite(running) else 1
    reach = None
    if question.acceptance.unknown and best and np.isfinite(policies[best].gain):
        off = drawn_means(priced, fixed) / fixed.mean[..., None]
        drawn = fixed.scaled(off, _drawn_yields(question, load, fixed))
        reach = _gain_range(drawn, load, cut, policies[best])
    return LoadAnswer(
        question=question,
        load=load,
        times=priced.grid.times,
        chunks=cut,
        policies=tuple(policies),
        best=best,
        schedule=schedule,
        no_schedule=refusal,
        notices=(
            *question.notices,
            *law_limit_notices(priced.grid.times),
            *slow_format_notices(question.deployment, batch=busy, context=load.length),
            *_uncaptured_notices(question, policies, float(priced.rows.max())),
        ),
        gain_range=reach,
        latencies=latencies,
        goodput=goodput,
    )


def _held_within_graphs(
    question: Question, priced: PricedLoad, fixed: PolicyTable, load: Load, cut: Chunks
) -> tuple[Goodput, Load, PolicyTable]:
    """Return the largest load that every draft length holds, that of one replica, and its columns.

    A draft length that leaves the captured graphs there is advised only where every other does.
    """
    limits = load.slo or Limits()
    waits = waits_of(fixed, priced, load, cut)
    held = waits.largest(limits)
    if held.max() == 0:
        alone = replace(waits, load=replace(load, rps=None, concurrency=1, think_time=0.0))
        raise _out_of_reach(alone.latencies(limits), limits)
    allowed, first = held.copy(), None
    while allowed.max() > 0:
        best = best_held(allowed)
        goodput = Goodput(
            limits=limits,
            held=tuple(held.tolist()),
            best=best,
            ranges=((0.0, 0.0), (0.0, 0.0)),
            wanted=load.rps,
            replicas=None if load.rps is None else gpus_for(load.rps, float(held[best])),
            plain_replicas=None if load.rps is None else gpus_for(load.rps, float(held[0])),
        )
        at = _at_held(load, goodput)
        columns = with_prompts(fixed, priced.batches, at, cut, rates=at.rps)
        first = first or (goodput, at, columns)
        if not _judge(columns, at, cut)[best].past:
            first = (goodput, at, columns)
            break
        allowed[best] = 0.0
    if first is None:
        raise AssertionError("some draft length holds the limits")
    goodput, at, columns = first
    yields = _drawn_yields(question, load, fixed)
    ranges = [
        held_range(priced, waits, position=i, held=float(held[i]), yields=yields)
        for i in (goodput.best, 0)
    ]
    sure = None if load.rps is None else gpus_for(load.rps, ranges[0][0])
    return replace(goodput, ranges=(ranges[0], ranges[1]), sure_replicas=sure), at, columns


def _at_held(load: Load, goodput: Goodput) -> Load:
    """Return the load of one replica: what it holds, or its share of what was asked about."""
    if load.concurrency is not None:
        return load
    if goodput.wanted is None:
        return replace(load, rps=goodput.held[goodput.best])
    return replace(load, rps=goodput.wanted / (goodput.replicas or 1))


def _out_of_reach(alone: tuple[Latency | None, ...], limits: Limits) -> InputError:
    """Return the refusal that says what a request takes that is alone."""
    found = [each for each in alone if each is not None]
    reached = {
        "slo_ttft": (limits.ttft, min(each.ttft_most for each in found)),
        "slo_tpot": (limits.tpot, min(each.tpot_most for each in found)),
        "slo_e2e": (limits.e2e, min(each.e2e_most for each in found)),
    }
    field, (limit, best) = max(reached.items(), key=lambda item: item[1][1] / item[1][0])
    return InputError(
        f"out of reach: alone on the engine, {limits.share:.0%} of the requests take at most "
        f"{1e3 * best:.3g} ms with the best draft length; give a longer limit, a shorter request "
        "or more GPUs",
        field=field,
        value=f"{1e3 * limit:g}",
    )


def _drawn_yields(question: Question, load: Load, columns: PolicyTable) -> Array:
    """Return tokens per step of the columns in every draw, (1, draft lengths, draws)."""
    tokens = columns.tokens_per_step[:1]
    drawn = drawn_tokens(question, tokens, contexts=(load.length,))
    return np.asarray(np.moveaxis(drawn, 0, -1)[0])


def _gain_range(
    drawn: Sequence[PolicyTable], load: Load, cut: Chunks, advised: Policy
) -> tuple[float, float]:
    """Return the 10th and 90th percentile of what a draft length gains over plain decoding.

    A draw in which it cannot carry the load gains nothing; one in which plain decoding cannot,
    without bound. The range holds the expected gain.
    """
    gains = []
    for columns in drawn:
        at = columns.draft_lengths.index(advised.draft_length)
        plain, drafted = _judge(columns.picked((0, at)), load, cut)
        gain = drafted.gain if plain.usable else math.inf
        gains.append(gain if drafted.usable else 0.0)
    low, high = np.quantile(gains, RANGE, method="nearest")
    return min(float(low), advised.gain), max(float(high), advised.gain)


def _question(configuration: Configuration, workload: Workload, load: Load) -> Question:
    """Return the question; a refused context is blamed on the lengths that it follows from."""
    lengths = f"{Option('input_tokens')}, {Option('output_tokens')}"
    try:
        question = ask(configuration, workload)
    except InputError as error:
        if load.input_tokens is None or error.field != "context":
            raise
        mean = f"mean context {load.length}"
        raise InputError(f"{lengths} ({mean}): {error.problem}") from None
    model = question.deployment.target.model
    whole = (load.input_tokens or 0) + (load.output_tokens or 0)
    if load.context_mix is not None and max(load.context_mix) > model.max_context:
        raise InputError(
            f"{model.id} handles at most {model.max_context} tokens",
            field="context_mix",
            value=max(load.context_mix),
        )
    if whole > model.max_context:
        raise InputError(
            f"{lengths}: {model.id} handles at most {model.max_context} tokens, not {whole}"
        )
    if load.input_tokens is not None and workload.prefill_tokens_per_step:
        raise InputError("follows from the load; leave it out", field="prefill_tokens_per_step")
    return question


def _judge(columns: PolicyTable, load: Load, cut: Chunks) -> list[Policy]:
    if load.histogram is not None:
        return over_histogram(columns, load.share)
    if load.rps is None:
        return under_clients(
            columns,
            clients=load.clients or 1,
            think=load.think_time,
            output=load.output_tokens or 1,
            cut=cut,
        )
    return under_arrivals(
        columns,
        rps=load.rps,
        output=load.output_tokens or 1,
        per_prompt=cut.per_prompt,
        most=cut.most,
    )


def _best(policies: list[Policy]) -> int:
    """Return the position of the draft length to advise.

    One that leaves the captured graphs is advised only where no other carries the load.
    """
    advisable = any(policy.advisable for policy in policies)
    pace = [
        1 / policy.tpot if (policy.advisable if advisable else policy.usable) else np.nan
        for policy in policies
    ]
    return int(smallest_within_tie(np.array(pace))[0])


def _schedule(
    question: Question, load: Load, cut: Chunks, priced: PricedLoad, *, static: int | None
) -> tuple[WrittenSchedule | None, PolicyTable | None, Notice | None]:
    """Return the schedule in the engine's words and its column; without one, the reason.

    ``static`` is the draft length that is advised without a schedule.
    """
    reason = no_schedule_reason(question)
    if reason is not None:
        return None, None, reason
    idle = priced.step.copy()
    idle[:, 0] += priced.idle
    columns = policy_table(priced, load, cut, idle, question.draft_lengths)
    slots = columns.slots.copy()
    slots[0] = slots[1]  # the drafter stays resident
    sequences = np.arange(1, len(columns.mean) + 1)[:, None]
    fits = sequences <= slots
    count = int(slots.max())
    needed = 1 if load.histogram is None else max(load.histogram)
    if count < needed:
        return None, None, notice(Code.DRAFTER_DOES_NOT_FIT, sequences=needed)
    plan = _plan(
        question,
        load,
        columns,
        np.where(fits, columns.mean, np.nan)[:count],
        drawn=drawn_means(priced, columns)[:count],
        shift=drawn_row_shift(priced.grid.times, priors().spread),
    )
    try:
        written = write_schedule(
            plan,
            ScheduleOptions(data_parallel=question.deployment.target.placement.dp, static=static),
        )
    except NoScheduleError as error:
        return None, None, notice(Code.NO_SCHEDULE, reason=error.reason)
    except InputError as error:
        return None, None, notice(Code.NO_SCHEDULE, reason=error.problem)
    chosen = plan.positions(written.bands)
    chosen = np.concatenate([chosen, np.repeat(chosen[-1:], len(sequences) - count, axis=0)])
    scheduled = PolicyTable(
        draft_lengths=(None,),
        step=np.take_along_axis(columns.step, chosen[..., None], axis=1),
        seen=np.take_along_axis(columns.seen, chosen[..., None], axis=1),
        mean=np.take_along_axis(columns.mean, chosen, axis=1),
        clustering=np.take_along_axis(columns.clustering, chosen, axis=1),
        tokens_per_step=np.take_along_axis(columns.tokens_per_step, chosen, axis=1),
        slots=np.array([count]),
        past=np.take_along_axis(columns.past, chosen, axis=1),
        sent=None if columns.sent is None else np.take_along_axis(columns.sent, chosen, axis=1),
        rides=None if columns.rides is None else np.take_along_axis(columns.rides, chosen, axis=1),
    )
    return written, scheduled, None


def _uncaptured_notices(question: Question, policies: list[Policy], rows: float) -> list[Notice]:
    """Return the notice of draft lengths left out because the load leaves captured graphs."""
    graphs = question.deployment.engine.graphs
    uncaptured = [p for p in policies if p.draft_length is not None and p.past]
    if graphs is None or not uncaptured:
        return []
    return [
        notice(
            Code.PAST_GRAPHS_UNDER_LOAD,
            engine=question.deployment.engine.name,
            largest=graphs.largest,
            lengths=tuple(p.draft_length for p in uncaptured),
            least_share=min(p.past_graphs for p in uncaptured),
            largest_share=max(p.past_graphs for p in uncaptured),
            flag=graphs.capture_flag(rows),
        )
    ]


def _plan(
    question: Question, load: Load, columns: PolicyTable, mean: Array, *, drawn: Array, shift: Array
) -> SchedulePlan:
    """Return the plan of draft lengths by running sequences under this load.

    ``mean`` is the mean step where it fits, and ``drawn`` the same in every draw [s], whose rows
    ``shift`` moves.
    """
    priced = (columns.tokens_per_step[: len(mean)] / mean)[:, None]
    speed = np.where(columns.past[: len(mean), None], np.nan, priced)
    tokens = _drawn_yields(question, load, columns)
    weights = np.ones(len(mean)) / len(mean)
    if load.histogram is not None:
        weights = load.share[1 : len(mean) + 1]
    return SchedulePlan(
        question=question,
        speed=speed,
        drawn=moved_rows((tokens / drawn)[:, None], shift, np.isfinite(speed)),
        priced=priced,
        captured=priced,
        plain=speed[..., 0],
        cost_ratio=(mean / mean[:, :1])[:, None],
        weights=weights,
        mix=None,
        tie=TIE,
        odds=SURE,
        idle=0.0,
        notices=(),
    )


def _overloaded(policies: list[Policy], load: Load, question: Question) -> InputError:
    """Return the refusal that says how much could be served, and what would carry more."""
    best = max(policies, key=lambda policy: policy.most_rps or 0.0)
    how = "a schedule" if best.draft_length is None else f"draft length {best.draft_length}"
    limit = "that fit" if best.slots < load.max_batch else f"that {Option('max_batch')} lets run"
    deployment = question.deployment
    cards, domain = 2 * deployment.cards, deployment.gpu.interconnect.domain_size
    field = "gpus" if deployment.target.placement.split.cards > 1 else "tp"
    more = f", or give more GPUs ({Option(field, cards)})" if cards <= domain else ""
    return InputError(
        f"overloaded: at most {best.most_rps:.3g} requests/s, with {how} and "
        f"{format_count(best.slots, 'sequence')} running (the most {limit}); spread the load over "
        f"more copies{more}",
        field="rps",
        value=f"{load.rps:g}",
    )
