"""How far tokens per step may be off because only so many rounds were counted.

J is the number of drafts accepted in a round, P(J >= i) = S_i. A round at draft length D accepts
min(J, D), so one count of n rounds tells AL at every D at once, and its errors go together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roofline.base.draws import DRAWS, normal_draws

__all__ = ["drawn_tokens_per_step", "rounds_covariance", "survival"]

Array = NDArray[np.float64]
#: Streams of draws far from those of the kernels.
FIRST_STREAM = 200


def survival(draft_lengths: tuple[int, ...], tokens_per_step: Array) -> Array:
    """Return S_1 … S_n from AL at some draft lengths; a gap is filled evenly.

    A table that falls or rises faster than one token a draft is no chain of survivals; it is held
    to 0 … 1 and to falling.

    >>> survival((0, 2, 3), np.array([1.0, 2.4, 2.9])).round(2)
    array([0.7, 0.7, 0.5])
    """
    every = np.arange(draft_lengths[-1] + 1)
    steps = np.diff(np.interp(every, draft_lengths, tokens_per_step))
    return np.minimum.accumulate(np.clip(steps, 0, 1))


def rounds_covariance(surviving: Array) -> Array:
    """Return the covariance of min(J, d) and min(J, e) in one round, for d, e = 1 … n.

    E[min(J, d) min(J, e)] = sum over i <= d, j <= e of S_max(i, j).

    >>> rounds_covariance(np.array([0.8]))  # a coin: 0.8 x 0.2
    array([[0.16]])
    """
    index = np.arange(len(surviving))
    both = surviving[np.maximum.outer(index, index)].cumsum(axis=0).cumsum(axis=1)
    mean = surviving.cumsum()
    return np.asarray(both - np.outer(mean, mean))


def drawn_tokens_per_step(
    draft_lengths: tuple[int, ...], tokens_per_step: Array, rounds: int | None
) -> Array:
    """Return draws of AL, shape (DRAWS, 1, contexts, draft lengths); exact without ``rounds``.

    ``tokens_per_step`` has one row for each context, or one for all; one count stands behind all.

    One draft at S = 0.8, counted 100 times: sqrt(0.8 x 0.2 / 100).

    >>> draws = drawn_tokens_per_step((0, 1), np.array([[1.0, 1.8]]), rounds=100)
    >>> draws.shape, round(float(draws[..., 1].std()), 2)
    ((64, 1, 1, 2), 0.04)
    """
    if rounds is None or len(draft_lengths) == 1:
        return tokens_per_step[None, None]
    rows = [_drawn(draft_lengths, row, rounds) for row in tokens_per_step]
    return np.stack(rows, axis=1)[:, None]


def _drawn(draft_lengths: tuple[int, ...], tokens_per_step: Array, rounds: int) -> Array:
    covariance = rounds_covariance(survival(draft_lengths, tokens_per_step)) / rounds
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    streams = [normal_draws(FIRST_STREAM + i).reshape(DRAWS) for i in range(len(values))]
    errors = np.stack(streams, axis=-1) @ root.T  # (DRAWS, D = 1 ... n)
    lengths = np.array(draft_lengths)
    moved = tokens_per_step + np.where(lengths > 0, errors[:, np.maximum(lengths, 1) - 1], 0.0)
    return np.asarray(np.clip(moved, 1, 1 + lengths))
