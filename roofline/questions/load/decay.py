"""How a batch decays that nothing refills: pure arithmetic.

Symbols: N requests that start together; p the chance that one still decodes; D drafts; AL tokens of
a step on average, V their variance; t steps, x tokens of progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np
from numpy.typing import NDArray

from roofline.questions.load.queueing import Chunks

__all__ = ["alive", "alive_in_steps", "geometric_lengths", "running_odds", "steps_worth_a_look"]

Array = NDArray[np.float64]
#: Steps that are worked out; longer decays are worked out at every second, third ... step.
MOST_STEPS = 800
#: Times at which prompts end that are told apart.
JOINS = 16
#: Quantiles of a distribution of lengths.
QUANTILES = 200


def geometric_lengths(mean: int) -> dict[int, float]:
    """Return answer lengths that end at random, with this mean, as shares by length.

    >>> round(sum(n * s for n, s in geometric_lengths(400).items()))
    400
    """
    places = (np.arange(QUANTILES) + 0.5) / QUANTILES
    raw = -np.log1p(-places)
    lengths = np.maximum(np.round(raw * mean / raw.mean()), 1).astype(int)
    values, counts = np.unique(lengths, return_counts=True)
    return dict(zip(values.tolist(), (counts / QUANTILES).tolist(), strict=True))


def alive(progress: Array, variance: Array, lengths: Mapping[int, float]) -> Array:
    """Return the chance p that a request wants more after ``progress`` tokens on average.

    A request of L tokens decodes on while it has fewer: P(X <= L - 1), X normal with that mean and
    ``variance`` (many steps), taken at L - 1/2. [-]

    >>> alive(np.array([0.0, 99.0, 100.0]), np.zeros(3), {100: 1.0}).tolist()
    [1.0, 1.0, 0.0]
    """
    from scipy.special import ndtr

    sizes, weight = np.array(list(lengths), dtype=float), np.array(list(lengths.values()))
    deviation = np.sqrt(np.maximum(variance, 1e-12))
    chance = ndtr((sizes - 0.5 - progress[..., None]) / deviation[..., None])
    return np.asarray(chance @ (weight / weight.sum()))


def steps_worth_a_look(last: int) -> tuple[Array, Array]:
    """Return steps in the middle of groups, and how many each stands for.

    >>> steps_worth_a_look(3)
    (array([0., 1., 2.]), array([1., 1., 1.]))
    """
    width = ceil(last / MOST_STEPS)
    starts = np.arange(0, last, width, dtype=float)
    sizes = np.minimum(width, last - starts)
    return starts + (sizes - 1) / 2, sizes


def alive_in_steps(
    steps: Array,
    *,
    requests: int,
    tokens_per_step: float,
    variance: float,
    lengths: Mapping[int, float],
    cut: Chunks,
) -> Array:
    """Return the chance that a request decodes in each step, the prompts read first.

    m of N c chunks are read in each of the first steps; a request decodes from the step after its
    own prompt on.
    """
    reading = ceil(requests * cut.per_prompt / cut.most) if cut.most else 0
    joins = np.ceil((np.arange(JOINS) + 0.5) / JOINS * reading) if reading else np.zeros(1)
    age = steps[:, None] - joins
    since = np.maximum(age, 0.0)
    decoding = alive(tokens_per_step * since, variance * since, lengths)
    return np.asarray(np.where(age >= 0, decoding, 0.0).mean(axis=1))


def running_odds(requests: int, chance: Array) -> Array:
    """Return P(n decode), n = 0 ... N, where each of N does with ``chance``: binomial.

    >>> running_odds(2, np.array([0.5]))[0].round(2).tolist()
    [0.25, 0.5, 0.25]
    """
    from scipy.stats import binom

    return np.asarray(binom.pmf(np.arange(requests + 1), requests, chance[..., None]))
