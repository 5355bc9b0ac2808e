"""The type of arrays, the longest draft, and the normal numbers that every range is drawn from."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["DRAWS", "LONGEST_DRAFT", "Array", "normal_draws"]

Array: TypeAlias = float | NDArray[np.float64]
#: No engine drafts more tokens in a pass, and no acceptance has been measured there.
LONGEST_DRAFT = 64
#: Draws of everything uncertain; few are enough because they are evenly spread.
DRAWS = 64


@cache
def normal_draws(stream: int) -> NDArray[np.float64]:
    """Return DRAWS standard normal numbers, the same ones every time.

    Stream j takes the fractional parts of the multiples of sqrt(p_j), p_j the j-th prime: an
    evenly spread (Kronecker) sequence, so few draws are enough and no random seed is involved.
    """
    uniform = (0.5 + np.sqrt(_prime(stream)) * np.arange(1, DRAWS + 1)) % 1
    inverse = NormalDist().inv_cdf
    drawn = [inverse(min(max(u, 1e-6), 1 - 1e-6)) for u in uniform]
    return np.array(drawn)


@cache
def _prime(index: int) -> int:
    candidate, found = 1, -1
    while found < index:
        candidate += 1
        if all(candidate % d for d in range(2, int(candidate**0.5) + 1)):
            found += 1
    return candidate
