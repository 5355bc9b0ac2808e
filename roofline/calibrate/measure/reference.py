"""What kernels are checked against: the same results in fp64, written plainly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["deviation", "draw_experts", "reference_attention", "reference_experts"]

Array = NDArray[np.float64]


def deviation(found: Array, wanted: Array) -> float:
    """Return the largest difference over the largest value.

    >>> deviation(np.array([1.0, 2.1]), np.array([1.0, 2.0])).__round__(3)
    0.05
    """
    scale = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
    return float(np.abs(found - wanted).max(initial=0.0)) / scale


def reference_attention(queries: Array, keys: Array, values: Array, q: int) -> Array:
    """Return attention of one KV head in fp64: rows (G q, head), the q rows of a head together.

    >>> row = np.array([[1.0, 0.0]])
    >>> reference_attention(row, np.zeros((2, 2)), np.array([[1.0, 0.0], [3.0, 0.0]]), 1)
    array([[2., 0.]])
    """
    scores = queries @ keys.T / np.sqrt(queries.shape[1])
    length = keys.shape[0]
    position = np.arange(len(queries)) % q + length - q
    scores = np.where(np.arange(length) > position[:, None], -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((weights / weights.sum(axis=1, keepdims=True)) @ values)


def draw_experts(tokens: int, experts: int, top_k: int, *, seed: int) -> NDArray[np.intp]:
    """Return experts drawn for each token: uniform, independent, none of them twice.

    >>> draw_experts(2, 4, 4, seed=0).sum(axis=1).tolist()
    [6, 6]
    """
    keys = np.random.default_rng(seed).random((tokens, experts))
    return np.asarray(np.argsort(keys, axis=1)[:, :top_k])


def reference_experts(row: Array, chosen: Sequence[tuple[Array, Array]]) -> Array:
    """Return the mean of experts (gate and linear matrix, matrix back) for one row, in fp64.

    >>> up, down = np.array([[0.0], [5.0]]), np.array([[1.0]])  # silu(0) = 0
    >>> reference_experts(np.array([2.0]), [(up, down)])
    array([0.])
    """
    total = np.zeros(chosen[0][1].shape[0])
    for up, down in chosen:
        gate, linear = np.split(up @ row, 2)
        total += down @ (gate / (1 + np.exp(-gate)) * linear)
    return np.asarray(total / len(chosen))
