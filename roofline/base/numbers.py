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

    Draw n of stream j is Phi^-1(u) with u = 0.5 + n sqrt(p_j) modulo 1, p_j the j-th prime and Phi
    the standard normal distribution. The u are a Richtmyer (Kronecker) sequence: evenly spread, so
    few draws are enough, and without a random seed (H. Niederreiter, "Quasi-Monte Carlo methods
    and pseudo-random numbers", Bull. AMS 84, 1978).

    >>> float(normal_draws(0)[0].round(4))  # u = 0.5 + sqrt(2) - 1 = 0.9142
    1.3672
    """
    uniform = (
        0.5
        + np.sqrt(_primes(20_000 if stream < 2262 else 400_000)[stream]) * np.arange(1, DRAWS + 1)
    ) % 1
    inverse = NormalDist().inv_cdf
    return np.array([inverse(min(max(u, 1e-6), 1 - 1e-6)) for u in uniform])


@cache
def _primes(below: int) -> NDArray[np.intp]:
    """Return the primes below a number, by the sieve of Eratosthenes.

    There are 2,262 below 2 10^4 and 33,860 below 4 10^5.

    >>> len(_primes(20_000)), len(_primes(400_000))
    (2262, 33860)
    """
    prime = np.ones(below, dtype=bool)
    prime[:2] = False
    for number in range(2, int(below**0.5) + 1):
        prime[number * number :: number] &= not prime[number]
    return np.flatnonzero(prime)
