"""How far the step times may be off, drawn jointly for all draft lengths.

Each draw moves a constant of the laws (or the engine's overhead) for the whole grid at once, so an
error that D = 0 and D = 3 share cancels in their ratio, as it does in reality.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from roofline.timing import KernelLaw, Machine, Spread

__all__ = ["DRAWS", "perturbed"]

DRAWS = 64
_CONSTANTS = ("floor", "serial", "mem_eff", "compute_eff")


@cache
def _normal_draws(stream: int) -> NDArray[np.float64]:
    """Return DRAWS standard normal numbers, the same ones every time.

    Stream j takes the fractional parts of the multiples of sqrt(p_j), p_j the j-th prime: an
    evenly spread (Kronecker) sequence, so few draws are enough and no random seed is involved.
    """
    root = np.sqrt(_prime(stream))
    uniform = (0.5 + root * np.arange(1, DRAWS + 1)) % 1
    inverse = NormalDist().inv_cdf
    return np.array([inverse(min(max(u, 1e-6), 1 - 1e-6)) for u in uniform])


@cache
def _prime(index: int) -> int:
    candidate, found = 1, -1
    while found < index:
        candidate += 1
        if all(candidate % d for d in range(2, int(candidate**0.5) + 1)):
            found += 1
    return candidate


def perturbed(machine: Machine, spread: Spread) -> tuple[Machine, NDArray[np.float64]]:
    """Return a machine whose constants are DRAWS deep, and as many overhead factors.

    The draws run along a new leading axis: every time computed with this machine has shape
    (DRAWS, batches, contexts, draft lengths).
    """
    streams: dict[str, int] = {}

    def factor(name: str, sigma: float) -> NDArray[np.float64]:
        stream = streams.setdefault(name, len(streams))
        return np.exp(sigma * _normal_draws(stream)).reshape(-1, 1, 1, 1)

    def vary(key: str, law: KernelLaw) -> KernelLaw:
        moved = {
            name: getattr(law, name) * factor(f"{key}/{name}", getattr(spread, name))
            for name in _CONSTANTS
        }
        return replace(law, **moved)

    overhead = factor("overhead", spread.overhead)
    return replace(machine, vary=vary), overhead
