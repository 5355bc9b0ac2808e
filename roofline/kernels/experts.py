"""How tokens fall on experts: how many wake, how many rows each computes.

Symbols: E experts, k of them chosen by each of T tokens, pi_e the chance that a token picks expert
e; B batch; q = 1 + D rows per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from roofline.base.arrays import Array

__all__ = [
    "ROW_TILE",
    "ExpertRows",
    "distinct_experts",
    "distinct_values",
    "expert_rows",
    "inclusion_probabilities",
    "independent_tokens",
]

#: Rows that an expert's kernel tile is padded to.
ROW_TILE = 16
#: Passes whose experts are looked at together: they stay in a core's cache.
ROWS_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertRows:
    """How rows fall on experts: how many are awake, the busiest one's rows, and padded rows."""

    distinct: Array
    hottest: Array
    padded: Array


def independent_tokens(*, batch: Array, rows: Array, correlation: Array) -> Array:
    """Return how many independent choices of experts B q tokens make: B (1 + (q - 1) (1 - c)).

    ``correlation`` c is the chance that a draft token goes where the one before it went.

    >>> independent_tokens(batch=4, rows=4, correlation=0.0)
    16.0
    """
    return batch * (1 + (rows - 1) * (1 - correlation))


def expert_rows(
    *, experts: int, top_k: int, tokens: Array, independent: Array, skew: float = 0.0
) -> ExpertRows:
    """Return how the T k rows of T tokens fall on the experts, expected over tokens.

    With pi_e the chance that a token picks expert e and ``independent`` T' <= T choices among the
    tokens: distinct = sum 1 - (1 - pi_e)^T', hottest = max(T max pi_e, 1), and padded to tiles of
    16 = sum max(16 (1 - (1 - pi_e)^T'), T pi_e + 7.5 [T pi_e > 16]).

    >>> float(expert_rows(experts=8, top_k=2, tokens=1.0, independent=1.0).padded)
    32.0
    """
    chance = inclusion_probabilities(experts=experts, top_k=top_k, skew=skew)
    shape = np.broadcast_shapes(np.shape(tokens), np.shape(independent))
    each, choices = (np.broadcast_to(x, shape).ravel() for x in (tokens, independent))
    back: NDArray[np.intp] | slice = slice(None)
    if np.array_equal(each, choices):
        each, back = distinct_values(each)
        choices = each
    found = [
        _loads(chance, each[part], choices[part])
        for part in (slice(i, i + ROWS_AT_ONCE) for i in range(0, len(each), ROWS_AT_ONCE))
    ]
    distinct, hottest, padded = (
        np.concatenate(column)[back].reshape(shape) for column in zip(*found, strict=True)
    )
    return ExpertRows(distinct=distinct, hottest=hottest, padded=padded)


def _loads(
    chance: NDArray[np.float64], tokens: NDArray[np.float64], choices: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return distinct experts, the hottest one's rows and padded rows of a list of passes."""
    missed = np.log1p(-np.minimum(chance, 1 - 1e-16))  # a power by exp: ten times as quick
    awake = -np.expm1(choices[:, None] * missed)
    mean = tokens[:, None] * chance
    tiles = np.maximum(ROW_TILE * awake, mean + (ROW_TILE - 1) / 2 * (mean > ROW_TILE))
    hottest = np.maximum(tokens * chance.max(), 1.0)
    return awake.sum(axis=-1), hottest, tiles.sum(axis=-1)


def distinct_values(values: Array) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the different values, and where each of ``values`` lies among them (flat).

    A batch of 8 with 3 drafts has the rows of a batch of 4 with 7, so long laws are asked once.

    >>> distinct_values(np.array([[2.0, 1.0], [1.0, 2.0]]))
    (array([1., 2.]), array([1, 0, 0, 1]))
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    return _distinct(flat.tobytes())


@lru_cache(maxsize=16)
def _distinct(raw: bytes) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the same for the bytes of the values: the kernels of one pass share their rows."""
    found, back = np.unique(np.frombuffer(raw), return_inverse=True)
    return found, back.reshape(-1)


def distinct_experts(*, experts: int, top_k: int, tokens: Array, skew: float = 0.0) -> Array:
    """Return the expected number of distinct experts that T tokens choose.

    Uniform: E (1 - (1 - k / E)^T), the k of one token drawn without replacement (MoESD,
    arXiv 2505.19645). With ``skew`` s > 0 expert r is chosen with probability pi_r proportional to
    r^-s (capped at 1, summing to k), and the sum of 1 - (1 - pi_r)^T is taken.

    >>> round(float(distinct_experts(experts=512, top_k=10, tokens=4)), 2)
    38.84
    """
    if skew == 0.0:
        return experts * (1 - (1 - top_k / experts) ** np.asarray(tokens, dtype=float))
    chance = inclusion_probabilities(experts=experts, top_k=top_k, skew=skew)
    missed = (1 - chance) ** np.asarray(tokens, dtype=float)[..., None]
    return np.asarray((1 - missed).sum(axis=-1))


def inclusion_probabilities(*, experts: int, top_k: int, skew: float) -> NDArray[np.float64]:
    """Return each expert's chance to be among a token's k, popularity proportional to rank^-s.

    Experts that would exceed certainty are capped at 1 and the rest scaled up, so the sum stays k.

    >>> chance = inclusion_probabilities(experts=8, top_k=2, skew=1.0)
    >>> round(float(chance.sum()), 6), round(float(chance[0] / chance[1]), 6)
    (2.0, 2.0)
    """
    weight = np.arange(1, experts + 1, dtype=float) ** -skew
    capped = 0
    while True:
        rest = weight[capped:]
        scale = (top_k - capped) / rest.sum()
        if scale * rest[0] <= 1 or capped == top_k:
            break
        capped += 1
    return np.concatenate([np.ones(capped), np.minimum(scale * weight[capped:], 1.0)])
