"""Requests that start together and that nothing refills: how long until the last has its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.decide import TIE, smallest_within_tie
from roofline.advice.question import Question, Workload, ask
from roofline.advice.recommend import drawn_tokens, law_limit_notices, slow_format_notices
from roofline.advice.remedies import does_not_fit
from roofline.base.errors import DoesNotFitError, InputError, Option
from roofline.base.notices import Notice
from roofline.base.values import one_size
from roofline.questions.goals import GOAL_BATCHES
from roofline.questions.load.answer import LoadAnswer, answer_load
from roofline.questions.load.decay import (
    alive,
    alive_in_steps,
    geometric_lengths,
    running_odds,
    steps_worth_a_look,
)
from roofline.questions.load.latency import yield_variance
from roofline.questions.load.load import MAX_BATCH, Load, histogram_of
from roofline.questions.load.pricing import price_load
from roofline.questions.load.queueing import Chunks, interpolation, prompt_chunks
from roofline.timing.step import RARE, StepTimes, advisable

__all__ = ["Decay", "Rollout", "RolloutAnswer", "answer_rollout", "check_rollout", "rollout_of"]

Array = NDArray[np.float64]
#: Contexts that are priced from the prompt to the longest answer.
CONTEXTS = 6
RANGE = (0.1, 0.9)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """``requests`` that start together, with answers of these ``lengths`` (shares by tokens)."""

    requests: int
    input_tokens: int
    lengths: Mapping[int, float]
    prefill_chunk: int | None = None

    def __post_init__(self) -> None:
        """Refuse what nobody runs."""
        if not 1 <= self.requests <= MAX_BATCH:
            raise InputError(
                f"expected 1 to {MAX_BATCH} requests that start together",
                field="rollouts",
                value=self.requests,
            )
        if self.input_tokens < 1:
            raise InputError("expected at least 1", field="input_tokens", value=self.input_tokens)
        if min(self.lengths) < 1:
            raise InputError("expected at least 1", field="output_tokens", value=min(self.lengths))

    @property
    def mean_length(self) -> float:
        """Mean tokens of an answer."""
        return sum(n * share for n, share in self.lengths.items()) / sum(self.lengths.values())


def rollout_of(
    *,
    rollouts: int,
    input_tokens: str | None = None,
    output_tokens: str | None = None,
    output_lengths: str | None = None,
    prefill_chunk: str | None = None,
) -> Rollout:
    """Return the rollout that options describe."""
    expected = "expected one number"
    if input_tokens is None or (output_tokens is None and output_lengths in (None, "geometric")):
        needed = f"{Option('input_tokens')} and {Option('output_tokens')}"
        raise InputError(
            f"give {needed} (or {Option('output_lengths')}) of a request as well", field="rollouts"
        )
    mean = None if output_tokens is None else one_size("output_tokens", output_tokens, expected)
    if output_lengths is None:
        lengths = {mean or 0: 1.0}
    elif output_lengths == "geometric":
        lengths = geometric_lengths(mean or 1)
    elif mean is not None:
        raise InputError(f"follows from {Option('output_lengths')}", field="output_tokens")
    else:
        lengths = histogram_of("output_lengths", output_lengths)
    return Rollout(
        requests=rollouts,
        input_tokens=one_size("input_tokens", input_tokens, expected),
        lengths=lengths,
        prefill_chunk=None
        if prefill_chunk is None
        else one_size("prefill_chunk", prefill_chunk, expected),
    )


def check_rollout(rollouts: int | None, options: Mapping[str, object]) -> None:
    """Refuse options that say nothing about requests that start together."""
    if rollouts is None:
        raise InputError(f"belongs to {Option('rollouts')}", field="output_lengths")
    for field, value in options.items():
        if value is not None:
            raise InputError(
                f"says nothing about requests that start together; leave it out beside "
                f"{Option('rollouts')}",
                field=field,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Decay:
    """What one draft length takes; NaN where it does not fit."""

    draft_length: int
    seconds: float  # until the last answer is there
    tokens_per_s: float  # over all of it
    running: float  # mean sequences that decode
    alone: float  # share of the time with one sequence or none
    gain: float  # over plain decoding
    past_graphs: float  # share of the time in steps that no captured graph covers

    @property
    def advisable(self) -> bool:
        """Whether it may be advised."""
        return bool(np.isfinite(self.seconds)) and self.past_graphs < RARE


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutAnswer:
    """What every draft length takes, and what a draft length by running batch adds."""

    question: Question
    rollout: Rollout
    times: StepTimes
    chunks: Chunks
    decays: tuple[Decay, ...]
    best: int
    off: tuple[float, float]  # by how much a gain of drafts may be off, given the model's error
    by_batch: tuple[tuple[int, int], ...]  # from so many running sequences on, this draft length
    by_batch_gain: float  # of these over the best fixed draft length
    scheduled: LoadAnswer | None  # the schedule in the engine's words, over the same batches
    schedule_gain: float  # of that schedule over the best fixed draft length; 0 without one
    notices: tuple[Notice, ...]

    @property
    def advised(self) -> Decay:
        """The advised fixed draft length."""
        return self.decays[self.best]

    @property
    def gain_range(self) -> tuple[float, float]:
        """The range of the advised gain; nothing is gained without drafts."""
        if self.advised.draft_length == 0:
            return 1.0, 1.0
        return self.advised.gain * self.off[0], self.advised.gain * self.off[1]

    @property
    def plain(self) -> Decay:
        """Plain decoding."""
        return self.decays[0]

    @property
    def schedule_pays(self) -> bool:
        """Whether the engine's schedule gains more than a tie."""
        return self.schedule_gain >= TIE

    @property
    def schedule_text(self) -> str | None:
        """The schedule in the engine's words, where it pays."""
        written = None if self.scheduled is None else self.scheduled.schedule
        return written.text if written is not None and self.schedule_pays else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weights:
    """Steps by (batches, contexts) in which a draft length runs, and with prompts (batches)."""

    steps: Array
    prompts: Array


def answer_rollout(
    configuration: Configuration, workload: Workload, rollout: Rollout
) -> RolloutAnswer:
    """Say which draft length has all answers soonest."""
    longest = max(rollout.lengths)
    contexts = np.unique(
        np.round(np.linspace(rollout.input_tokens, rollout.input_tokens + longest, CONTEXTS))
    ).astype(int)
    whole = int(contexts[-1])
    batches = np.array(
        sorted({*(b for b in GOAL_BATCHES if b < rollout.requests), rollout.requests})
    )
    workload = replace(workload, batches=(1,), contexts=tuple(contexts.tolist()))
    try:
        question = ask(configuration, workload)
    except InputError as error:
        if error.field != "context":
            raise
        lengths = f"{Option('input_tokens')}, {Option('output_tokens')}"
        raise InputError(f"{lengths} ({whole} tokens): {error.problem}") from None
    deployment, lengths_of = question.deployment, question.draft_lengths
    cut = prompt_chunks(
        prompt=rollout.input_tokens,
        budget=rollout.prefill_chunk or deployment.engine.memory.prefill_chunk,
        groups=deployment.target.placement.dp,
    )
    priced = deployment.price(
        deployment.grid(tuple(batches.tolist()), workload.contexts, lengths_of)
    )
    tokens = question.tokens_per_step((rollout.input_tokens,))[0]
    variance = yield_variance(tokens, lengths_of)
    fits = np.array([_fits(question, rollout, length, contexts) for length in lengths_of])
    if not fits[0]:
        raise _does_not_fit(question, rollout)
    one = Load(
        concurrency=rollout.requests,
        input_tokens=rollout.input_tokens,
        output_tokens=1,
        prefill_chunk=rollout.prefill_chunk,
    )
    prompts = price_load(
        replace(question, workload=replace(workload, contexts=(one.length,))), one, cut
    )
    longer = prompts.step[..., -1] - prompts.step[..., 0]
    at = np.searchsorted(prompts.batches, np.minimum(batches, prompts.batches[-1]))
    longer = np.maximum(longer[at], 0.0)
    weights = [
        _weights(
            rollout,
            batches=batches,
            contexts=contexts,
            cut=cut,
            tokens=float(tokens[i]),
            variance=float(variance[i]),
        )
        for i in range(len(lengths_of))
    ]
    step = priced.times.total
    captured = advisable(priced.times.launches.captured)
    captured = np.broadcast_to(captured, step.shape)
    decays = []
    all_tokens = rollout.requests * rollout.mean_length
    for i, (length, weight) in enumerate(zip(lengths_of, weights, strict=True)):
        time = weight.steps * step[..., i]
        reading = float(weight.prompts @ longer[:, i])
        seconds = float(time.sum()) + reading if fits[i] else np.nan
        past = float((time * ~captured[..., i]).sum() / time.sum())
        decays.append(
            Decay(
                draft_length=length,
                seconds=seconds,
                tokens_per_s=all_tokens / seconds,
                running=float((time.sum(axis=1) @ batches) / time.sum()),
                alone=float(time[batches == 1].sum() / time.sum()),
                gain=np.nan,
                past_graphs=past,
            )
        )
    decays = [replace(each, gain=decays[0].seconds / each.seconds) for each in decays]
    allowed = any(each.advisable for each in decays)
    pace = [1 / each.seconds if each.advisable or not allowed else np.nan for each in decays]
    best = int(smallest_within_tie(np.array(pace))[0])
    chosen, time = _by_batch(
        rollout,
        batches=batches,
        contexts=contexts,
        step=step,
        allowed=captured & fits,
        tokens=tokens,
        variance=variance,
        best=best,
    )
    gained, share = _gained(time, chosen, best), time[:, best] / time[:, best].sum()
    scheduled, written = None, 0.0
    if gained >= TIE:
        scheduled = _scheduled(configuration, workload, rollout.input_tokens, batches, share)
        written = _written_gain(scheduled, batches, lengths_of, time, best)
    drafted = best or int(np.nanargmin([np.inf, *(each.seconds for each in decays[1:])]))
    return RolloutAnswer(
        question=question,
        rollout=rollout,
        times=priced.times,
        chunks=cut,
        decays=tuple(decays),
        best=best,
        off=_range(question, priced.drawn.steps(), weights, tokens, drafted),
        by_batch=_changes(batches, [lengths_of[i] for i in chosen]),
        by_batch_gain=gained,
        scheduled=scheduled,
        schedule_gain=written,
        notices=(
            *question.notices,
            *law_limit_notices(priced.times),
            *slow_format_notices(deployment, batch=rollout.requests, context=whole),
        ),
    )


def _progress(rollout: Rollout, contexts: NDArray[np.intp], progress: Array) -> Array:
    """Return the weights of the contexts that are priced at so many tokens of an answer."""
    at = np.minimum(rollout.input_tokens + progress, contexts[-1])
    if len(contexts) == 1:
        return np.ones((len(progress), 1))
    return np.stack([np.interp(at, contexts, row) for row in np.eye(len(contexts))], axis=1)


def _fits(question: Question, rollout: Rollout, length: int, contexts: NDArray[np.intp]) -> bool:
    """Return whether those who still decode fit in memory at every context."""
    memory = question.deployment.memory
    done = (contexts - rollout.input_tokens).astype(float)
    wanted = rollout.requests * alive(done, np.zeros_like(done), rollout.lengths)
    wanted[0] = rollout.requests
    return all(
        memory.largest_batch(context=int(context), draft_length=length) >= ceil(count - 1e-6)
        for context, count in zip(contexts, wanted, strict=True)
    )


def _does_not_fit(question: Question, rollout: Rollout) -> DoesNotFitError:
    """Return the refusal at the first context at which those who decode do not fit."""
    memory = question.deployment.memory
    longest = max(rollout.lengths)
    for done in np.linspace(0, longest - 1, CONTEXTS).astype(int).tolist():
        context = rollout.input_tokens + done
        share = float(alive(np.array([float(done)]), np.zeros(1), rollout.lengths)[0])
        count = max(ceil(rollout.requests * share - 1e-6), 1)
        if memory.largest_batch(context=context, draft_length=0) < count:
            return does_not_fit(question.deployment, batch=count, context=context)
    return does_not_fit(
        question.deployment, batch=rollout.requests, context=rollout.input_tokens + longest
    )


def _weights(
    rollout: Rollout,
    *,
    batches: NDArray[np.intp],
    contexts: NDArray[np.intp],
    cut: Chunks,
    tokens: float,
    variance: float,
) -> _Weights:
    """Return how many steps a draft length makes at each batch and context."""
    longest = max(rollout.lengths)
    mean = longest / tokens
    slow = 6 * np.sqrt(variance * mean) / tokens if variance > 0 else 0.0
    reading = ceil(rollout.requests * cut.per_prompt / cut.most)
    steps, sizes = steps_worth_a_look(ceil(mean + slow) + reading + 1)
    chance = alive_in_steps(
        steps,
        requests=rollout.requests,
        tokens_per_step=tokens,
        variance=variance,
        lengths=rollout.lengths,
        cut=cut,
    )
    odds = running_odds(rollout.requests, chance)
    reads = np.clip(reading - steps, 0.0, 1.0)
    odds[:, 1] += odds[:, 0] * reads  # a step that reads prompts alone is as long as with one
    onto = odds[:, 1:] @ interpolation(batches.tolist(), range(1, rollout.requests + 1))
    done = np.maximum(steps - reading / 2, 0.0) * tokens
    where = _progress(rollout, contexts, done)
    return _Weights(
        steps=np.einsum("tb,tc,t->bc", onto, where, sizes),
        prompts=np.einsum("tb,t->b", onto, sizes * reads),
    )


def _by_batch(
    rollout: Rollout,
    *,
    batches: NDArray[np.intp],
    contexts: NDArray[np.intp],
    step: Array,
    allowed: NDArray[np.bool_],
    tokens: Array,
    variance: Array,
    best: int,
) -> tuple[list[int], Array]:
    """Return the best draft length at each batch, and the time of each there [s].

    By tokens x of progress, for the steps differ: sum of s(n, D) / AL(D). Within a tie the draft
    length at ``best`` stays.
    """
    longest = max(rollout.lengths)
    uneven = float(variance[best] / tokens[best])
    slow = 6 * np.sqrt(uneven * longest)
    progress, sizes = steps_worth_a_look(ceil(longest + slow) + 1)
    odds = running_odds(rollout.requests, alive(progress, uneven * progress, rollout.lengths))
    onto = odds[:, 1:] @ interpolation(batches.tolist(), range(1, rollout.requests + 1))
    weight = np.einsum("tb,tc,t->bc", onto, _progress(rollout, contexts, progress), sizes)
    never = (weight[..., None] > 0) & ~allowed
    time = np.where(never, np.inf, weight[..., None] * step / tokens).sum(axis=1)
    within = time <= (1 + TIE) * time.min(axis=1, keepdims=True)
    near = [best if within[b, best] else int(within[b].argmax()) for b in range(len(batches))]
    return near, time


def _gained(time: Array, chosen: list[int], best: int) -> float:
    """Return what draft lengths by batch gain over the one at ``best``, as a share."""
    fixed = float(time[:, best].sum())
    total = float(sum(time[row, at] for row, at in enumerate(chosen)))
    return fixed / total - 1 if np.isfinite(fixed) and 0 < total < np.inf else 0.0


def _written_gain(
    scheduled: LoadAnswer | None,
    batches: NDArray[np.intp],
    lengths: tuple[int, ...],
    time: Array,
    best: int,
) -> float:
    """Return what the schedule gains as the engine reads it."""
    if scheduled is None or scheduled.schedule is None:
        return 0.0
    bands, chosen = scheduled.schedule.bands, []
    for batch in batches.tolist():
        band = next((each for each in bands if each.first <= batch <= each.last), bands[-1])
        chosen.append(lengths.index(band.draft_lengths[0]))
    return _gained(time, chosen, best)


def _changes(batches: NDArray[np.intp], lengths: list[int]) -> tuple[tuple[int, int], ...]:
    """Return from which number of sequences on each draft length is run."""
    found: list[tuple[int, int]] = []
    for batch, length in zip(batches.tolist(), lengths, strict=True):
        if not found or found[-1][1] != length:
            found.append((batch, length))
    return tuple(found)


def _scheduled(
    configuration: Configuration,
    workload: Workload,
    context: int,
    batches: NDArray[np.intp],
    share: Array,
) -> LoadAnswer | None:
    """Return the answer over the share of time at each batch, for its schedule."""
    histogram = {
        int(batch): float(part) for batch, part in zip(batches, share, strict=True) if part > 1e-6
    }
    load = Load(histogram=histogram, context=context)
    try:
        return answer_load(configuration, workload, load)
    except (InputError, DoesNotFitError):
        return None


def _range(
    question: Question, drawn: Array, weights: list[_Weights], tokens: Array, drafted: int
) -> tuple[float, float]:
    """Return by how much a gain may be off: the 10th and 90th percentile over the expected one.

    Steps that read prompts are as expected. ``drafted`` is the position of a draft length.
    """
    if drafted == 0:
        return 1.0, 1.0
    times = [np.einsum("bc,sbc->s", weights[i].steps, drawn[..., i]) for i in (0, drafted)]
    context = (question.workload.contexts[0],)
    yields = drawn_tokens(question, tokens[None], contexts=context)[:, 0, 0, drafted]
    gains = times[0] / times[1] * (yields / tokens[drafted])
    low, high = (float(np.quantile(gains / np.median(gains), share)) for share in RANGE)
    return min(low, 1.0), max(high, 1.0)
