"""A small event simulation of a serving engine: the other side of the load tests.

It shares no code with the package: requests arrive at random times, wait for a slot, have their
prompt read in chunks that ride in the engine's steps, and then take part in every step until they
have their tokens. A step takes what a table says for its sequences and chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Random numbers that are drawn at a time; more than there are slots.
BLOCK = 2**16


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one run saw."""

    running: float  # mean over time
    tpot: float  # mean over tokens
    gap_p50: float
    gap_p99: float
    waiting: float  # share of time in which a request waits for a slot


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Steps by (sequences, chunks) in s, and what they yield."""

    step: Callable[[int, int], float]
    survival: tuple[float, ...]  # of drafts 1 ... D
    slots: int
    chunks_per_prompt: int
    chunks_per_step: int
    lengths_vary: bool = False  # geometric, with the same mean


class _Yields:
    """Tokens that sequences get in a step, drawn in advance."""

    def __init__(self, rng: np.random.Generator, ladder: Array) -> None:
        self.rng, self.ladder = rng, ladder
        self.ready, self.used = np.zeros(0, dtype=int), 0

    def take(self, count: int) -> NDArray[np.intp]:
        """Return the tokens of the next sequences."""
        if self.used + count > len(self.ready):
            drawn = 1 + np.searchsorted(self.ladder, self.rng.random(BLOCK))
            self.ready, self.used = np.concatenate([self.ready[self.used :], drawn]), 0
        self.used += count
        return self.ready[self.used - count : self.used]


def simulate(engine: Engine, *, rps: float, output: int, requests: int, seed: int) -> Seen:
    """Serve ``requests`` requests of ``output`` tokens; the first tenth does not count."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rps, requests))
    odds = -np.diff([1.0, *engine.survival, 0.0])  # of 0 ... D accepted drafts
    yields = _Yields(rng, odds.cumsum()[:-1])
    vary = np.random.default_rng(seed + 1_000_000) if engine.lengths_vary else None
    start_counting = arrivals[requests // 10]
    clock, coming = 0.0, 0
    queue: deque[int] = deque()  # chunks that each waiting prompt still has
    left = np.zeros(0, dtype=int)  # tokens that each running sequence still wants
    durations, counts, emitted, blocked = [], [], [], []
    while coming < requests or queue or len(left):
        if not queue and not len(left) and coming < requests:
            idle = max(arrivals[coming] - clock, 0.0)
            if clock >= start_counting:
                durations.append(idle)
                counts.append(0)
                emitted.append(0)
                blocked.append(0)
            clock += idle
        while coming < requests and arrivals[coming] <= clock:
            queue.append(engine.chunks_per_prompt)
            coming += 1
        if coming == requests:
            break  # the tail, in which nobody arrives, would not be the load
        joining, room = 0, engine.chunks_per_step
        ridden = 0
        while queue and len(left) + joining < engine.slots and room:
            read = min(queue[0], room)
            room, ridden = room - read, ridden + read
            queue[0] -= read
            if queue[0] == 0:
                queue.popleft()
                joining += 1
        held_up = bool(queue) and len(left) + joining >= engine.slots
        took = engine.step(len(left), ridden)
        running, got = len(left), yields.take(len(left))
        left = left - got
        beyond = int(left[left < 0].sum())  # tokens after the last that was wanted
        left = left[left > 0]
        if clock >= start_counting:
            durations.append(took)
            counts.append(running)
            emitted.append(int(got.sum()) + beyond)
            blocked.append(int(held_up))
        if joining:
            wanted = vary.geometric(1 / output, joining) if vary else np.full(joining, output)
            left = np.concatenate([left, wanted])
        clock += took
    return _summary(*map(np.array, (durations, counts, emitted, blocked)))


def _summary(took: Array, counts: Array, emitted: Array, blocked: Array) -> Seen:
    order = np.argsort(took)
    mass = counts[order].cumsum() / counts.sum()
    p50, p99 = (float(took[order][np.searchsorted(mass, share)]) for share in (0.5, 0.99))
    return Seen(
        running=float((took * counts).sum() / took.sum()),
        tpot=float((took * counts).sum() / emitted.sum()),
        gap_p50=p50,
        gap_p99=p99,
        waiting=float((took * blocked).sum() / took.sum()),
    )


def replicated(
    engine: Engine, *, rps: float, output: int, requests: int, runs: int
) -> dict[str, tuple[float, float]]:
    """Return (mean, standard error) of everything seen, over independent runs."""
    seen = [
        simulate(engine, rps=rps, output=output, requests=requests, seed=1000 + seed)
        for seed in range(runs)
    ]
    found = {}
    for name in ("running", "tpot", "gap_p50", "gap_p99", "waiting"):
        values = np.array([getattr(one, name) for one in seen])
        found[name] = float(values.mean()), float(values.std(ddof=1) / np.sqrt(runs))
    return found
