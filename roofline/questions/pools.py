"""Prefill and decode on machines of their own: how many of one the other feeds. Experimental.

One instance reads prompts, one after the other, and hands each cache over a link to instances that
only decode. Both kinds are laid out as the deployment is. No served pair of pools was compared with
this: it divides two rates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import Point
from roofline.advice.deployment import Deployment
from roofline.advice.recommend import Recommendation
from roofline.advice.why import grid_position
from roofline.base.errors import InputError, Option
from roofline.base.numbers import Array
from roofline.kernels.forward import prefill
from roofline.specs.priors import priors
from roofline.timing.machine import time_ops

__all__ = ["Pools", "check_pools", "decode_instances", "pools_of", "prefill_seconds"]

#: Standard deviation of the logarithm of the time of a prompt: its kernels were fitted at few rows.
#: Assumed.
PROMPT_SPREAD = 0.3
#: Standard deviations of a normal number that hold four of five draws.
NORMAL_80 = 1.2816


class Pools(NamedTuple):
    """What one prefill instance feeds at one batch and context, by draft length."""

    prompt: int  # tokens of a request's prompt
    answer: int  # and of its answer
    gpus: int  # of each instance
    prefill: float  # one prompt [s]
    cache: float  # that is handed over, of all ranks [B]
    handover: float  # its way over the link [s]
    instances: NDArray[np.float64]  # decode instances that one prefill instance feeds
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def decode_instances(
    *, prefill: Array, step: Array, batch: Array, tokens_per_step: Array, answer: Array
) -> Array:
    """Return how many decode instances one prefill instance keeps busy: T n / (t B AL).

    A prefill instance ends a prompt every ``prefill`` t [s]; a decode instance ends B AL tokens
    every ``step`` T [s], of ``answer`` n for a request. 0.1 s a prompt are 10 requests/s; 8
    sequences at 20 ms a token end 400 tokens/s, of 100 a request 4 requests/s:

    >>> asked = {"prefill": 0.1, "step": 20e-3, "batch": 8, "answer": 100}
    >>> float(decode_instances(tokens_per_step=1.0, **asked))
    2.5
    """
    return np.asarray(step) * answer / (np.asarray(prefill) * batch * tokens_per_step)


def prefill_seconds(deployment: Deployment, prompt: int) -> float:
    """Return how long one prompt takes by itself: its kernels, and the engine's time of a step [s].

    What a prompt costs is asked for here alone.
    """
    target = deployment.target
    kernels = prefill(target.model, target.precision, target.placement, batch=1.0, prompt=prompt)
    busy = sum(float(np.asarray(time.total)) for time in time_ops(kernels, deployment.machine))
    return busy + deployment.engine.overhead.per_step


def check_pools(deployment: Deployment, prompt: int, answer: int) -> None:
    """Refuse what has no pools of this kind."""
    if not deployment.target.placement.pipeline.plain or deployment.host is not None:
        raise InputError(
            f"is for instances of one stage whose GPUs are linked; leave {Option('pp')}, "
            f"{Option('drafter_on')} and {Option('gpus')} out",
            field="pools",
        )
    longest = deployment.target.model.max_context
    if prompt + answer > longest:
        raise InputError(
            f"{prompt} + {answer} tokens are more than the {longest} of "
            f"{deployment.target.model.id}; give fewer",
            field="pools",
        )


def pools_of(answer: Recommendation, point: Point) -> Pools:
    """Return what one prefill instance feeds at a point of an answer."""
    deployment, shape = answer.deployment, answer.question.workload.pools
    if shape is None:
        raise TypeError("no pools were asked for")
    prompt, output = shape
    prompt_seconds = prefill_seconds(deployment, prompt)
    rate = _link(deployment)
    ranks = deployment.target.placement.tp
    cache = float(np.asarray(deployment.memory.target_cache(prompt, 0))) * ranks
    tokens = np.minimum(point.tokens_per_step, output)
    instances = np.asarray(
        decode_instances(
            prefill=prompt_seconds,
            step=point.step,
            batch=point.batch,
            tokens_per_step=tokens,
            answer=output,
        )
    )
    at = grid_position(answer, point, 0)[:2]
    drawn = answer.priced.drawn.steps()[:, at[0], at[1]]
    factor = np.exp(NORMAL_80 * np.hypot(PROMPT_SPREAD, np.std(np.log(drawn), axis=0)))
    return Pools(
        prompt=prompt,
        answer=output,
        gpus=deployment.cards,
        prefill=prompt_seconds,
        cache=cache,
        handover=cache / ranks / rate,
        instances=instances,
        low=instances / factor,
        high=instances * factor,
    )


def _link(deployment: Deployment) -> float:
    """Return what the link between two instances carries for each GPU [B/s]."""
    asked = deployment.configuration
    given = None if asked is None else asked.internode
    stated = priors()
    return (given or stated.pipeline.internode) * stated.links["network"].mem_eff
