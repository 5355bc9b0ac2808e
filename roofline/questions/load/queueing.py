"""How many sequences run under a load, and how long their steps take: pure arithmetic.

Symbols: lambda requests per second; n sequences that decode; mu_n requests that they finish per
second; N_in tokens of a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Chunks",
    "Occupancy",
    "burst",
    "chunk_levels",
    "interpolation",
    "occupancy",
    "prompt_chunks",
    "quantile",
]

Array = NDArray[np.float64]
#: More prompts than this never start in one step; counting stops there.
MOST_CHUNKS = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunks:
    """How prompts are cut: ``each`` tokens, ``per_prompt`` of them, at most ``most`` in a step."""

    each: float
    per_prompt: int
    most: int


def prompt_chunks(*, prompt: int, budget: int, groups: int = 1) -> Chunks:
    """Return the equal chunks that a prompt is read in, and how many fit one step's ``budget``.

    ceil(N_in / C) chunks a prompt, floor(C / chunk) a step in each of the data-parallel ``groups``.
    [tokens]

    >>> prompt_chunks(prompt=3000, budget=2048), prompt_chunks(prompt=500, budget=2048)
    (Chunks(each=1500.0, per_prompt=2, most=1), Chunks(each=500.0, per_prompt=1, most=4))
    """
    if prompt == 0:
        return Chunks(each=0.0, per_prompt=0, most=0)
    count = ceil(prompt / budget)
    return Chunks(
        each=prompt / count,
        per_prompt=count,
        most=min(max(int(budget * count / prompt), 1) * groups, MOST_CHUNKS),
    )


def chunk_levels(most: int) -> list[int]:
    """Return the numbers of chunks that are priced: 0, every doubling, the most.

    >>> chunk_levels(5)
    [0, 1, 2, 4, 5]
    """
    return sorted({0, most, *(2**i for i in range(most.bit_length()))})


def interpolation(known: Sequence[int], wanted: Sequence[int]) -> Array:
    """Return the weights (wanted, known) that interpolate linearly between known points.

    >>> interpolation([0, 1, 3], range(4))[2].tolist()
    [0.0, 0.5, 0.5]
    """
    return np.stack([np.interp(wanted, known, row) for row in np.eye(len(known))], axis=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """Shares of time by the number of sequences that run, from 0 on along the first axis."""

    share: Array
    waiting: Array  # share of time in which requests wait for a slot


def burst(clustering: Array) -> Array:
    """Return theta, the chance that one more request starts with the last: (v - 1) / v.

    ``clustering`` v is the variance over the mean of the requests that start while one decodes.
    With answers of one length, v is also that of the number that decode. Bursts of a geometric
    size, mean 1 / (1 - theta), give the same where each leaves at random: 1 / (1 - theta) = v. [-]

    >>> float(burst(np.array(4.0)))
    0.75
    """
    return np.asarray(1 - 1 / clustering)


def occupancy(
    *,
    arrivals: Array | float,
    completions: Array,
    slots: NDArray[np.intp],
    burst: Array | float = 0.0,
) -> Occupancy:
    """Return how many sequences run when requests arrive at random.

    ``completions`` mu_n [1/s] for n = 1, 2 ... along the first axis; at most ``slots`` run (one
    number per column), the rest wait, first come first served. Requests start in bursts of a
    geometric size, one more with chance ``burst`` theta. What flows up past n flows back down:
    P(n) mu_n = lambda (1 - theta) product of r_i, i = 1 ... n - 1, with P(0) = 1 and
    r = theta + (1 - theta) lambda / mu; those who wait add 1 / (1 - r) at the last slot.
    With theta = 0 that is Poisson arrivals: exact for any distribution of lengths while nobody
    waits (processor sharing: Kelly 1979, Reversibility and Stochastic Networks, section 3.3); with
    mu_n = n mu it is the Poisson distribution of M/G/infinity, with bursts the negative binomial of
    M^X/M/infinity. NaN where lambda >= mu: the queue grows without end.

    >>> both = np.array([[2.0], [2.0]])  # M/M/1 at half load: P(0) = 1/2, P(1) = 1/4, the rest 1/4
    >>> occupancy(arrivals=1.0, completions=both, slots=np.array([2])).share[:, 0].tolist()
    [0.5, 0.25, 0.25]
    """
    up = burst + (1 - burst) * arrivals / completions
    flow = np.log((1 - burst) * arrivals) + np.cumsum(np.log(up), axis=0)
    first = np.broadcast_to(np.log((1 - burst) * arrivals), flow[:1].shape)
    log = np.concatenate([first, flow[:-1]]) - np.log(completions)
    log = np.concatenate([np.zeros_like(log[:1]), log])
    inside = np.arange(len(log))[:, None] <= slots
    log = np.where(inside, log, -np.inf)
    weight = np.exp(log - log.max(axis=0))
    last = np.take_along_axis(up, slots[None] - 1, axis=0)[0]
    with np.errstate(divide="ignore"):
        queue = np.where(last < 1, last / (1 - last), np.nan)
    waiting = np.take_along_axis(weight, slots[None], axis=0)[0] * queue
    total = weight.sum(axis=0) + waiting
    at_last = np.arange(len(log))[:, None] == slots
    return Occupancy(share=(weight + at_last * waiting) / total, waiting=waiting / total)


def quantile(values: Array, weights: Array, share: float) -> Array:
    """Return the value below which ``share`` of the weight lies, along the first axis.

    >>> float(quantile(np.array([3.0, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]), 0.5))
    2.0
    """
    order = np.argsort(values, axis=0)
    mass = np.take_along_axis(weights, order, axis=0).cumsum(axis=0)
    at = (mass >= share * mass[-1] * (1 - 1e-12)).argmax(axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    return np.asarray(np.take_along_axis(ordered, at[None], axis=0)[0])
