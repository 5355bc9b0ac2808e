"""How many sequences run under a load, and how long their steps take: pure arithmetic.

Symbols: lambda requests per second; n sequences that decode; k prompt chunks that ride in a step;
s(n, k) the step's time; AL tokens that a sequence emits in a step; N_in tokens of a prompt and
N_out of an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Chunks",
    "Occupancy",
    "chunk_levels",
    "chunk_odds",
    "chunks",
    "interpolation",
    "mean_step",
    "occupancy",
    "quantile",
]

Array = NDArray[np.float64]
#: More prompts than this never start in one step; counting stops there.
MOST_CHUNKS = 128
#: Halvings of an interval of step times: to 1e-9 of its width.
HALVINGS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunks:
    """How prompts are cut: ``each`` tokens, ``per_prompt`` of them, at most ``most`` in a step."""

    each: float
    per_prompt: int
    most: int


def chunks(*, prompt: int, budget: int, groups: int = 1) -> Chunks:
    """Return the equal chunks that a prompt is read in, and how many fit one step's ``budget``.

    ceil(N_in / C) chunks a prompt, floor(C / chunk) a step in each of the data-parallel ``groups``.
    [tokens]

    >>> chunks(prompt=3000, budget=2048), chunks(prompt=500, budget=2048)
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


def chunk_odds(mean: Array, most: int) -> Array:
    """Return P(k chunks ride in a step), k = 0 ... ``most`` along the last axis.

    Binomial of ``most`` with the given mean r <= most: whether a chunk rides is a coin (most = 1),
    independent arrivals in a step are nearly Poisson (most large), and no work is lost between.

    >>> chunk_odds(np.array(0.25), 1).tolist(), chunk_odds(np.array(1.0), 2).tolist()
    ([0.75, 0.25], [0.25, 0.5, 0.25])
    """
    k = np.arange(most + 1)
    p = (np.clip(mean, 0, most) / max(most, 1))[..., None]
    ways = np.array([float(comb(most, int(i))) for i in k])
    return np.asarray(ways * p**k * (1 - p) ** (most - k))


def mean_step(step: Array, *, rate: float, most: int) -> Array:
    """Return the mean step time where chunks arrive at ``rate``: s = E[s(k)], E[k] = rate s [s].

    ``step`` has k along its last axis. Bisection between s(0) and s(most); with k in {0, 1} the
    answer is s(0) / (1 - rate (s(1) - s(0))). A rate that fills every step gives s(most).

    >>> float(mean_step(np.array([0.010, 0.030]), rate=25.0, most=1).round(6))  # 0.01 / (1 - 0.5)
    0.02
    """
    low, high = step[..., 0], step[..., -1]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        longer = (chunk_odds(rate * middle, most) * step).sum(axis=-1) > middle
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return np.asarray((low + high) / 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """Shares of time by the number of sequences that run, from 0 on along the first axis."""

    share: Array
    waiting: Array  # share of time in which requests wait for a slot


def occupancy(*, arrivals: float, completions: Array, slots: NDArray[np.intp]) -> Occupancy:
    """Return how many sequences run when requests arrive at random.

    ``completions`` mu_n [1/s] for n = 1, 2 ... along the first axis; at most ``slots`` run (one
    number per column), the rest wait, first come first served. P(n) is proportional to the product
    of lambda / mu_i, i = 1 ... n, and those who wait add 1 / (1 - lambda / mu) at the last slot.
    Poisson arrivals; exact for any distribution of lengths while nobody waits (processor sharing:
    Kelly 1979, Reversibility and Stochastic Networks, section 3.3). With mu_n = n mu it is the
    Poisson distribution of M/G/infinity. NaN where lambda >= mu: the queue grows without end.

    >>> both = np.array([[2.0], [2.0]])  # M/M/1 at half load: P(0) = 1/2, P(1) = 1/4, the rest 1/4
    >>> occupancy(arrivals=1.0, completions=both, slots=np.array([2])).share[:, 0].tolist()
    [0.5, 0.25, 0.25]
    """
    ratio = arrivals / completions
    log = np.concatenate([np.zeros_like(ratio[:1]), np.cumsum(np.log(ratio), axis=0)])
    inside = np.arange(len(log))[:, None] <= slots
    log = np.where(inside, log, -np.inf)
    weight = np.exp(log - log.max(axis=0))
    last = np.take_along_axis(ratio, slots[None] - 1, axis=0)[0]
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
    found = np.take_along_axis(np.take_along_axis(values, order, axis=0), at[None], axis=0)
    return np.asarray(found[0])
