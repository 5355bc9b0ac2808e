"""How far tokens per step may be off: few rounds counted, or one rate for all positions.

J is the number of drafts accepted in a round, P(J >= i) = S_i. A round at draft length D accepts
min(J, D), so one count of n rounds tells AL at every D at once, and its errors go together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roofline.uncertainty import DRAWS, NORMAL_MEDIAN, normal_draws

__all__ = ["drawn_tokens_per_step", "fallen", "rounds_covariance", "survival"]

Array = NDArray[np.float64]
#: Streams of draws far from those of the kernels.
FIRST_STREAM = 200
FALL_STREAM = 195  # as many draws above 0 as below


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
    draft_lengths: tuple[int, ...],
    tokens_per_step: Array,
    rounds: int | None,
    *,
    fall: float | None = None,
) -> Array:
    """Return draws of AL, shape (DRAWS, 1, contexts, draft lengths); exact without either cause.

    ``rounds`` were counted; ``fall`` is how one rate at every position may fall (see ``fallen``).

    ``tokens_per_step`` has one row for each context, or one for all; one count stands behind all.

    One draft at S = 0.8, counted 100 times: sqrt(0.8 x 0.2 / 100).

    >>> draws = drawn_tokens_per_step((0, 1), np.array([[1.0, 1.8]]), rounds=100)
    >>> draws.shape, round(float(draws[..., 1].std()), 2)
    ((64, 1, 1, 2), 0.04)
    """
    if (rounds is None and fall is None) or len(draft_lengths) == 1:
        return tokens_per_step[None, None]
    rows = [
        np.broadcast_to(row, (DRAWS, len(row)))
        if rounds is None
        else _drawn(draft_lengths, row, rounds)
        for row in tokens_per_step
    ]
    drawn = np.stack(rows, axis=1)[:, None]
    return drawn if fall is None else _with_fall(draft_lengths, tokens_per_step, drawn, fall)


def fallen(*, rate: float, ratio: Array, depth: int) -> Array:
    """Return AL(0 ... depth) with a_i = rate ratio^(i-1), for each ratio [tokens].

    >>> fallen(rate=0.8, ratio=np.array([1.0, 0.5]), depth=2).round(2).tolist()
    [[1.0, 1.8, 2.44], [1.0, 1.8, 2.12]]
    """
    rates = rate * ratio[:, None] ** np.arange(depth)
    surviving = np.cumprod(rates, axis=1)
    return np.concatenate([np.ones((len(ratio), 1)), 1 + np.cumsum(surviving, axis=1)], axis=1)


def _with_fall(
    draft_lengths: tuple[int, ...], tokens_per_step: Array, drawn: Array, fall: float
) -> Array:
    """Let one rate fall in half of the draws, from position to position by ``fall`` in the median.

    In the other half it holds: a rate may have been averaged over all positions.
    """
    spread = -np.log(fall) / NORMAL_MEDIAN
    ratio = np.exp(-spread * np.maximum(normal_draws(FALL_STREAM), 0.0))
    shares = []
    for row in tokens_per_step:
        rate = float(row[draft_lengths.index(1)]) - 1
        lower = fallen(rate=rate, ratio=ratio, depth=draft_lengths[-1])
        level = fallen(rate=rate, ratio=np.ones(1), depth=draft_lengths[-1])
        shares.append((lower / level)[:, list(draft_lengths)])
    return np.asarray(np.maximum(drawn * np.stack(shares, axis=1)[:, None], 1.0))


def _drawn(draft_lengths: tuple[int, ...], tokens_per_step: Array, rounds: int) -> Array:
    covariance = rounds_covariance(survival(draft_lengths, tokens_per_step)) / rounds
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    streams = [normal_draws(FIRST_STREAM + i).reshape(DRAWS) for i in range(len(values))]
    errors = np.stack(streams, axis=-1) @ root.T  # (DRAWS, D = 1 ... n)
    lengths = np.array(draft_lengths)
    moved = tokens_per_step + np.where(lengths > 0, errors[:, np.maximum(lengths, 1) - 1], 0.0)
    return np.asarray(np.clip(moved, 1, 1 + lengths))
