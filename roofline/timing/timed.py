"""Steps at all draft lengths after some of them were timed: the prior's shape, moved by timings.

The unknowns of a step are few: a factor for all, one for every step with drafts, one that grows
with the rows of a verify pass, and one each for drafting and for the engine's own time. A timing of
two draft lengths therefore says much about the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GROWTH",
    "PROCESSORS",
    "Deviations",
    "after_timings",
    "growth_covariance",
    "growth_directions",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviations:
    """Prior standard deviations of the logarithm of a step, each a share."""

    level: float  # of all steps
    drafting: float  # of every step with drafts
    growth: float  # of the verify pass at D = 7
    draft: float
    overhead: float
    own: float  # of each draft length by itself

    def priors_only(self) -> Deviations:
        """Return those of a part without a measured kernel: twice as wide, but level and own."""
        return replace(
            self,
            drafting=2 * self.drafting,
            growth=2 * self.growth,
            draft=2 * self.draft,
            overhead=2 * self.overhead,
        )


#: Fitted on published sweeps of draft lengths, each deviation pulled to what a study of such sweeps
#: found (`calibrate/fit/deviations.py`; `python -m workshop.timed_deviations` prints them). The
#: level is free: it stands for any unit of speed, and with a deviation of 10 a unit of e^7 would
#: still move ratios by 0.3 %.
GROWTH = Deviations(level=100.0, drafting=0.042, growth=0.075, draft=1.1, overhead=0.54, own=0.02)
#: The same of processors, whose products are made a few rows at a time: fitted on sweeps of
#: llama.cpp and vLLM on one (`python -m workshop.timed_deviations`).
PROCESSORS = replace(GROWTH, drafting=0.092, growth=0.20, draft=0.59, overhead=0.59, own=0.039)


def growth_directions(
    *, draft_lengths: Array, verify: Array, draft: Array, overhead: Array
) -> tuple[Array, Array]:
    """Return how each unknown moves log step times: (..., lengths, 3) and (..., lengths, 2).

    Of one load ``(1, [D > 0], v log2(1 + D) / 3)``: level, drafting and growth; of all loads
    ``(w, o)``: drafting's own time and the engine's. v, w and o are shares of the predicted step.

    At D = 7 of a step whose verify pass is 80 %, growth moves the step by 0.8 of itself:

    >>> own, _ = growth_directions(draft_lengths=np.array([7]), verify=np.array([0.8]),
    ...                            draft=np.array([0.1]), overhead=np.array([0.1]))
    >>> own.tolist()
    [[1.0, 1.0, 0.8]]
    """
    lengths, shape = np.asarray(draft_lengths, dtype=float), np.shape(verify)
    own = (
        np.ones(shape),
        np.broadcast_to(lengths > 0, shape),
        verify * np.log2(1 + lengths) / 3,
    )
    return np.stack(own, axis=-1), np.stack([draft, overhead], axis=-1)


def growth_covariance(
    *, draft_lengths: Array, verify: Array, draft: Array, overhead: Array, deviations: Deviations
) -> Array:
    """Return the prior covariance of log step times, (loads x lengths) squared.

    ``K = (F diag(s)^2 F') m + f diag(s)^2 f' + own^2 I``. For each load and draft length D the row
    of ``F`` is ``(1, [D > 0], v log2(1 + D) / 3)``, which each load has by itself (m is 1 inside a
    load, 0 between two), and that of ``f`` is ``(w, o)``, which all share; v, w and o are the
    shares of the verify pass, of drafting and of the engine in the predicted step: (lengths,) for
    one load, (loads, lengths) for several.

    At D = 0 only level, engine and own scatter act: with 10 % of the step the engine's, a level of
    0 and deviations of 0.6 and 0.02 that is 0.06^2 + 0.02^2 = 0.004. Two such loads share 0.0036.

    >>> known = replace(GROWTH, level=0.0, overhead=0.6, own=0.02)
    >>> k = growth_covariance(draft_lengths=np.array([0]), verify=np.array([[0.9], [0.9]]),
    ...                       draft=np.zeros((2, 1)), overhead=np.array([[0.1], [0.1]]),
    ...                       deviations=known)
    >>> k.round(6).tolist()
    [[0.004, 0.0036], [0.0036, 0.004]]
    """
    lengths = np.asarray(draft_lengths, dtype=float)
    own, shared = growth_directions(
        draft_lengths=lengths, verify=verify, draft=draft, overhead=overhead
    )
    own = own * np.array([deviations.level, deviations.drafting, deviations.growth])
    shared = shared * np.array([deviations.draft, deviations.overhead])
    by_load, by_all = own.reshape(-1, 3), shared.reshape(-1, 2)
    load = np.repeat(np.arange(len(by_load) // len(lengths)), len(lengths))
    within = (load[:, None] == load) * (by_load @ by_load.T)
    return np.asarray(within + by_all @ by_all.T + deviations.own**2 * np.eye(len(load)))


def after_timings(
    *, mean: Array, covariance: Array, jacobian: Array, observed: Array, noise: Array
) -> tuple[Array, Array]:
    """Return mean and covariance of normal unknowns after ``observed = jacobian @ unknowns``.

    ``G = K H' (H K H' + N)^-1``, mean + G (y - H mean), K - G H K; N is diagonal with ``noise``
    squared.

    Two unknowns of deviation 1 that correlate by 0.5; one is seen as 1 without noise: the other is
    expected at 0.5 with variance 0.75.

    >>> mean, k = after_timings(mean=np.zeros(2), covariance=np.array([[1, 0.5], [0.5, 1]]),
    ...                         jacobian=np.array([[1.0, 0.0]]), observed=np.array([1.0]),
    ...                         noise=np.zeros(1))
    >>> mean.tolist(), k[1, 1].item()
    ([1.0, 0.5], 0.75)
    """
    seen = jacobian @ covariance
    gain = np.linalg.solve(seen @ jacobian.T + np.diag(np.square(noise)), seen).T
    left = covariance - gain @ seen
    return mean + gain @ (observed - jacobian @ mean), (left + left.T) / 2
