"""Step times for every number of running sequences, draft length and number of prompt chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.advice.deployment import PricedGrid
from roofline.advice.question import Question
from roofline.advice.remedies import does_not_fit
from roofline.questions.goals import GOAL_BATCHES
from roofline.questions.load.backlog import chunk_odds, moves, odds_of
from roofline.questions.load.closed import thinking_sent
from roofline.questions.load.load import Load
from roofline.questions.load.policies import PolicyTable
from roofline.questions.load.queueing import Chunks, chunk_levels, interpolation
from roofline.questions.schedule.plan import idle_seconds, passes_in_graphs
from roofline.specs.placement import Chunks as PromptChunks
from roofline.timing.step import advisable

__all__ = [
    "PricedLoad",
    "drawn_means",
    "mixed_contexts",
    "policy_table",
    "price_load",
    "with_prompts",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedLoad:
    """Step times by sequences, draft lengths and chunks; ``idle`` is what D = 0 pays in a schedule.

    They are those at the priced batches; ``spread`` interpolates to every number of sequences.
    """

    grid: PricedGrid  # the numbers of chunks worth pricing take the place of contexts
    batches: NDArray[np.intp]
    step: Array
    idle: Array
    spread: Array
    chunks: Array  # interpolates from those numbers of chunks to every one
    tokens_per_step: Array
    slots: NDArray[np.intp]
    rows: Array  # the most of a pass, by every number of sequences and draft length
    past: NDArray[np.bool_]  # which of them leave the captured graphs that D = 0 is in


def price_load(question: Question, load: Load, cut: Chunks) -> PricedLoad:
    """Price batches up to the most that fit, with every number of chunks worth pricing."""
    most = load.most_running
    deployment, lengths = question.deployment, question.draft_lengths
    memory = deployment.memory
    slots = np.array(
        [min(memory.largest_batch(context=load.length, draft_length=d), most) for d in lengths]
    )
    if slots[0] < (1 if load.histogram is None else most):
        size = max(int(slots[0]), most if load.histogram else 1)
        raise does_not_fit(deployment, batch=size, context=load.length)
    last = int(slots.max())
    batches = sorted({*(b for b in GOAL_BATCHES if b <= last), last, *(load.histogram or ())})
    levels = chunk_levels(cut.most)
    dp = deployment.target.placement.dp
    number = np.reshape(levels, (1, -1, 1)).astype(float)
    # without prompts in the load every step has the prefill tokens that the workload names
    constant = question.workload.prefill_tokens_per_step
    grid = deployment.grid(
        batches,
        (load.length,),
        lengths,
        prefill_tokens=cut.each * number,
        prefill_fullest=cut.each * np.ceil(number / dp) if cut.most else None,
        prefill_per_step=0.0 if cut.most else constant,
        chunks=_chunks(cut, number) if cut.most else None,
    )
    priced = question.priced_on(grid)
    rows, captured = passes_in_graphs(question, last)
    every = interpolation(levels, range(levels[-1] + 1)) if cut.most else np.ones((1, 1))
    return PricedLoad(
        grid=priced,
        batches=np.array(batches),
        step=np.einsum("bld,kl->bdk", priced.times.total, every),
        idle=idle_seconds(question, priced.times)[:, :1],
        spread=interpolation(batches, range(1, last + 1)),
        chunks=every,
        tokens_per_step=_tokens_per_step(question, load),
        slots=slots,
        rows=rows[:, 0],
        past=~advisable(captured)[:, 0],
    )


def _chunks(cut: Chunks, number: Array) -> PromptChunks:
    """Return the chunks of a step as kernels see them; one is midway in its prompt on the mean."""
    before = cut.each * (cut.per_prompt - 1) / 2 * np.ones_like(number)
    return PromptChunks(number=number, tokens=cut.each * np.ones_like(number), before=before)


def mixed_contexts(question: Question, load: Load, priced: PricedLoad) -> PricedLoad:
    """Return the prices of a batch whose sequences have different contexts.

    A step is the mean of the steps at each context, by its share of the sequences: exact for all
    that adds up over sequences, as the bytes of KV read do (with a window: min(context, window) of
    each, which the step at the mean context misses). Left out: that one sequence far longer than
    the others may end last in a kernel, tiles and chunks that are not full in each, and where the
    mean of overlapped times is not the overlap of the means. Errors are those at the mean context.
    """
    if load.context_mix is None:
        return priced
    deployment, contexts = question.deployment, sorted(load.context_mix)
    weight = np.array([load.context_mix[context] for context in contexts])
    grid = deployment.grid(
        priced.batches.tolist(),
        contexts,
        question.draft_lengths,
        prefill_per_step=question.workload.prefill_tokens_per_step,
    )
    steps = deployment.price(grid).times.total
    mixed = np.einsum("bcd,c->bd", steps, weight / weight.sum())[..., None]
    return replace(priced, step=np.broadcast_to(mixed, priced.step.shape))


def _tokens_per_step(question: Question, load: Load) -> Array:
    """Return tokens per step; a request takes no more of a step than its whole answer."""
    output = load.output_tokens
    lengths = np.array(question.draft_lengths)
    tokens: Array = question.tokens_per_step((load.length,))[0]
    if output is None:
        return tokens
    useful = np.minimum(lengths, output - 1).tolist()  # drafts past the answer's end yield nothing
    within = question.tokens_per_step((load.length,), useful)[0]
    # fmin: ``within`` is NaN where that length was not measured
    return np.asarray(np.fmin(np.minimum(tokens, output), within))


def policy_table(
    priced: PricedLoad, load: Load, cut: Chunks, step: Array, lengths: tuple[int, ...]
) -> PolicyTable:
    """Return one column for each draft length."""
    full = np.einsum("nb,bdk->ndk", priced.spread, step)
    tokens = np.broadcast_to(priced.tokens_per_step, full.shape[:2])
    if not cut.most:
        return PolicyTable(
            draft_lengths=lengths,
            step=full,
            seen=np.ones_like(full),
            mean=full[..., 0],
            clustering=np.ones_like(tokens),
            tokens_per_step=tokens,
            slots=priced.slots,
            past=priced.past,
        )
    columns = PolicyTable(
        draft_lengths=lengths,
        step=full,
        seen=np.ones_like(full),
        mean=full[..., 0],
        clustering=np.ones_like(tokens),
        tokens_per_step=tokens,
        slots=priced.slots,
        past=priced.past,
    )
    return with_prompts(columns, priced.batches, load, cut, rates=load.rps)


def with_prompts(
    columns: PolicyTable,
    batches: NDArray[np.intp],
    load: Load,
    cut: Chunks,
    *,
    rates: Array | float | None,
) -> PolicyTable:
    """Return the columns with the prompts that ride in their steps, worked out at ``batches``.

    ``rates`` are requests per second, of each policy or of all. Without them the requests come from
    clients who think, or as many come as go.
    """
    at, output = np.asarray(batches) - 1, load.output_tokens or 1
    step = columns.step[at]
    steps = np.broadcast_to(output / columns.tokens_per_step[at], step.shape[:2])
    sent = None
    if rates is not None:
        chunks = chunk_odds(np.asarray(rates)[..., None] * step, cut, steps=steps)
    elif load.concurrency and load.think_time:
        coming = thinking_sent(
            clients=load.concurrency,
            think=load.think_time,
            running=np.broadcast_to(np.asarray(batches)[:, None], step.shape[:2]),
            step=step,
            cut=cut,
        )
        chunks = odds_of(moves(coming, cut), cut, steps=steps)
        sent = (chunks.waiting * coming).sum(axis=-1) / (chunks.odds * step).sum(axis=-1)
    else:  # as many come as go
        going = np.broadcast_to((np.asarray(batches)[:, None] / steps)[..., None], step.shape)
        chunks = chunk_odds(going, cut, steps=steps)
    spread = interpolation(list(batches), range(1, len(columns.mean) + 1))
    odds, seen = (np.einsum("nb,bdk->ndk", spread, part) for part in (chunks.odds, chunks.seen))
    return replace(
        columns,
        seen=odds if rates is None and sent is None else seen,
        mean=(odds * columns.step).sum(axis=-1),
        clustering=spread @ chunks.clustering,
        sent=None if sent is None else spread @ sent,
        rides=odds @ np.arange(odds.shape[-1]),
    )


def drawn_means(priced: PricedLoad, columns: PolicyTable) -> Array:
    """Return the mean steps of the columns in every draw, (sequences, draft lengths, draws) [s].

    A mean is off by as much as the steps that requests decode in, with as many chunks in them as
    expected.
    """
    steps, expected = priced.grid.drawn.steps(), priced.grid.times.total
    drawn = np.empty((*columns.mean.shape, len(steps)))
    for position in range(columns.mean.shape[1]):
        share = columns.seen[:, position] @ priced.chunks  # of numbers of chunks
        off = np.einsum("nl,nb,sbl->ns", share, priced.spread, steps[..., position], optimize=True)
        mean = np.einsum("nl,nb,bl->n", share, priced.spread, expected[..., position])
        drawn[:, position] = columns.mean[:, position, None] * off / mean[:, None]
    return drawn
