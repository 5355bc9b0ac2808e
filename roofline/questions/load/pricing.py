"""Step times for every number of running sequences, draft length and number of prompt chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.advice.question import Question
from roofline.advice.remedies import does_not_fit
from roofline.questions.goals import BATCHES
from roofline.questions.load.backlog import riding
from roofline.questions.load.load import Load
from roofline.questions.load.policies import Columns
from roofline.questions.load.queueing import Chunks, chunk_levels, interpolation
from roofline.questions.schedule.plan import idle_seconds, pass_rows
from roofline.timing.step import StepTimes, advisable, covered

__all__ = ["Priced", "columns", "price"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """Step times by sequences, draft lengths and chunks; ``idle`` is what D = 0 pays in a schedule.

    At the priced batches (``points``) only; ``spread`` takes them to every number of sequences.
    """

    times: StepTimes
    points: NDArray[np.intp]
    step: Array
    idle: Array
    spread: Array
    tokens_per_step: Array
    slots: NDArray[np.intp]
    rows: Array  # of a pass, by every number of sequences and draft length
    past: NDArray[np.bool_]  # which of them leave the captured graphs that D = 0 is in


def price(question: Question, load: Load, cut: Chunks) -> Priced:
    """Price batches up to the most that fit, with every number of chunks worth pricing."""
    most = load.max_batch if load.histogram is None else max(load.histogram)
    deployment, lengths = question.deployment, question.draft_lengths
    memory = deployment.memory
    slots = np.array(
        [min(memory.largest_batch(context=load.length, draft_length=d), most) for d in lengths]
    )
    if slots[0] < (1 if load.histogram is None else most):
        size = max(int(slots[0]), most if load.histogram else 1)
        raise does_not_fit(deployment, batch=size, context=load.length)
    last = int(slots.max())
    points = sorted({*(b for b in BATCHES if b <= last), last, *(load.histogram or ())})
    levels = chunk_levels(cut.most)
    dp = deployment.target.placement.dp
    number = np.reshape(levels, (1, -1, 1)).astype(float)
    # the same in every step, where the load says nothing
    alike = question.workload.prefill_tokens_per_step
    grid = deployment.grid(
        points,
        (load.length,),
        lengths,
        prefill_tokens=cut.each * number if cut.most else alike,
        prefill_fullest=cut.each * np.ceil(number / dp) if cut.most else None,
    )
    times, graphs = deployment.price(grid).times, deployment.engine.graphs
    rows = pass_rows(question, last)
    every = interpolation(levels, range(levels[-1] + 1)) if cut.most else np.ones((1, 1))
    return Priced(
        times=times,
        points=np.array(points),
        step=np.einsum("bld,kl->bdk", times.total, every),
        idle=idle_seconds(question, times)[:, :1],
        spread=interpolation(points, range(1, last + 1)),
        tokens_per_step=_tokens_per_step(question, load),
        slots=slots,
        rows=rows[:, 0],
        past=~advisable(covered(graphs, rows))[:, 0],
    )


def _tokens_per_step(question: Question, load: Load) -> Array:
    """Return tokens per step; a request takes no more of a step than its whole answer."""
    output = load.output_tokens
    lengths = np.array(question.draft_lengths)
    own: Array = question.tokens_per_step((load.length,))[0]
    if output is None:
        return own
    useful = np.minimum(lengths, output - 1).tolist()  # drafts past the answer's end yield nothing
    within = question.tokens_per_step((load.length,), useful)[0]
    # NaN where that length was not measured
    return np.asarray(np.fmin(np.minimum(own, output), within))


def columns(
    priced: Priced, load: Load, cut: Chunks, step: Array, lengths: tuple[int, ...]
) -> Columns:
    """Return one column for each draft length."""
    full = np.einsum("nb,bdk->ndk", priced.spread, step)
    tokens = np.broadcast_to(priced.tokens_per_step, full.shape[:2])
    if not cut.most:
        return Columns(
            draft_lengths=lengths,
            step=full,
            seen=np.ones_like(full),
            mean=full[..., 0],
            clustering=np.ones_like(tokens),
            tokens_per_step=tokens,
            slots=priced.slots,
            past=priced.past,
        )
    steps = np.broadcast_to((load.output_tokens or 1) / priced.tokens_per_step, step.shape[:2])
    if load.rps is not None:
        arriving = load.rps * step
    else:  # as many come as go
        arriving = np.broadcast_to((priced.points[:, None] / steps)[..., None], step.shape)
    ride = riding(arriving, cut, steps=steps)
    odds, seen = (np.einsum("nb,bdk->ndk", priced.spread, of) for of in (ride.odds, ride.seen))
    return Columns(
        draft_lengths=lengths,
        step=full,
        seen=seen if load.rps is not None else odds,
        mean=(odds * full).sum(axis=-1),
        clustering=priced.spread @ ride.clustering,
        tokens_per_step=tokens,
        slots=priced.slots,
        past=priced.past,
    )
