"""Watts and joules of an answer. Experimental."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.deployment import Deployment
from roofline.advice.question import Question
from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, Notice, notice
from roofline.specs.priors import priors
from roofline.timing.power import draw_of, joules_per_token
from roofline.timing.step import StepTimes

__all__ = ["Energy", "energy_notices", "energy_of"]

Values = NDArray[np.float64]


class Energy(NamedTuple):
    """What each draft length draws at one batch and context: of one GPU, and by output token."""

    watts: Values
    watts_low: Values
    watts_high: Values
    joules: Values  # of all GPUs for one token
    joules_low: Values
    joules_high: Values


def energy_of(
    question: Question, times: StepTimes, at: tuple[int, int], tokens_per_step: Values
) -> Energy:
    """Return the energy at the batch and context at position ``at`` of what was asked."""
    deployment, placement = question.deployment, question.deployment.target.placement
    drafts = np.array(question.draft_lengths)[None, None, :]
    step, batch = times.total[at], question.workload.batches[at[0]]
    of_each = -(-batch // placement.pipeline.in_flight)  # sequences of a micro-batch
    under_way = float(-(-batch // of_each))
    draw = draw_of(times, deployment.gpu, placement, drafts, under_way=under_way)

    def joules(watts: Values) -> Values:
        tokens = batch * tokens_per_step
        found = joules_per_token(watts=watts, boards=placement.cards, step=step, tokens=tokens)
        return np.asarray(found)

    watts, low, high = (values[at] for values in draw)
    return Energy(watts, low, high, joules(watts), joules(low), joules(high))


def energy_notices(deployment: Deployment) -> Iterable[Notice]:
    """Say on what watts rest; refuse a GPU whose rated power is not known."""
    gpu = deployment.gpu
    if gpu.tdp is None:
        raise InputError(
            f"{gpu.id} has no rated power; give it as {Option('set', 'gpu.tdp=400W')}",
            field="watts",
        )
    stated = priors().power
    yield notice(
        Code.EXPERIMENTAL_WATTS,
        gpu=gpu.id,
        rated=gpu.tdp.value,
        factor=float(np.exp(1.2816 * stated.spread)),
    )
