"""A small event simulation of a serving engine: the other side of the load tests.

It shares no code with the package: requests arrive at random times, wait for a slot, have their
prompt read in chunks that ride in the engine's steps, and then take part in every step until they
have their tokens. A step takes what a table says for its sequences and chunks.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

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
    ttft: float = math.nan  # mean over requests: from its arrival to the end of its prompt
    ttft_p95: float = math.nan
    tpot_p95: float = math.nan  # over requests, each with its own mean
    e2e_p95: float = math.nan
    met: float = math.nan  # share of requests that meet the limits


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


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Clients who send a request, read the answer, think (exponential) and send the next."""

    count: int
    think: float = 0.0


class _Sources:
    """When requests come: at random, or after their client has the last answer and has thought."""

    def __init__(
        self, rng: np.random.Generator, *, rps: float, clients: Clients | None, requests: int
    ) -> None:
        self.rng, self.clients = rng, clients
        if clients is None:
            self.times = np.cumsum(rng.exponential(1 / rps, requests)).tolist()
        else:
            self.times = sorted(rng.exponential(clients.think, clients.count).tolist())
        self.coming = 0

    def next_time(self) -> float:
        """Return when the next request comes."""
        return self.times[self.coming] if self.coming < len(self.times) else math.inf

    def answered(self, clock: float) -> None:
        """Have the client of a finished request come again."""
        if self.clients is not None:
            wait = self.rng.exponential(self.clients.think) if self.clients.think else 0.0
            insort(self.times, clock + wait, lo=self.coming)


def simulate(
    engine: Engine,
    *,
    rps: float = 0.0,
    output: int,
    requests: int,
    seed: int,
    clients: Clients | None = None,
    limits: Limits | None = None,
) -> Seen:
    """Serve ``requests`` requests of ``output`` tokens; the first tenth does not count.

    Clients begin in the middle of an answer, each at another place of it.
    """
    rng = np.random.default_rng(seed)
    source = _Sources(rng, rps=rps, clients=clients, requests=requests)
    odds = -np.diff([1.0, *engine.survival, 0.0])  # of 0 ... D accepted drafts
    yields = _Yields(rng, odds.cumsum()[:-1])
    vary = np.random.default_rng(seed + 1_000_000) if engine.lengths_vary else None
    first_counted = requests // 10
    clock = 0.0
    queue: deque[int] = deque()  # chunks that each waiting prompt still has
    left = np.zeros(0, dtype=int)  # tokens that each running sequence still wants
    who = np.zeros(0, dtype=int)
    started, first, done = (np.full(requests, np.nan) for _ in range(3))
    wants = np.full(requests, output)
    log: list[tuple[float, int, int, bool]] = []
    while source.coming < requests:
        if not queue and not len(left):
            idle = max(source.next_time() - clock, 0.0)
            if source.coming > first_counted:
                log.append((idle, 0, 0, False))
            clock += idle
        while source.coming < requests and source.next_time() <= clock:
            queue.append(engine.chunks_per_prompt)
            started[source.coming] = source.next_time()
            source.coming += 1
        if source.coming == requests:
            break  # the tail, in which nobody arrives, would not be the load
        ids = source.coming - len(queue)  # of the first in the queue
        joining, ridden = _read_prompts(queue, engine, engine.slots - len(left))
        held_up = bool(queue) and len(left) + joining >= engine.slots
        took = engine.step(len(left), ridden)
        running, got = len(left), yields.take(len(left))
        left = left - got
        beyond = int(left[left < 0].sum())  # tokens after the last that was wanted
        finished = who[left <= 0]
        who, left = who[left > 0], left[left > 0]
        if source.coming > first_counted:
            log.append((took, running, int(got.sum()) + beyond, held_up))
        clock += took
        if joining:
            names = np.arange(ids, ids + joining)
            wanted = vary.geometric(1 / output, joining) if vary else np.full(joining, output)
            if clients is not None and vary is None:
                wanted[names < clients.count] = rng.integers(
                    1, output, (names < clients.count).sum()
                )
            left, who = np.concatenate([left, wanted]), np.concatenate([who, names])
            first[names], wants[names] = clock, wanted
        done[finished] = clock
        for _ in finished:
            source.answered(clock)
    # the last ones are left out: of those only the quick ones are done
    counted = slice(first_counted, int(requests * 0.97) - (clients.count if clients else 0))
    of_requests = _of_requests(
        started[counted], first[counted], done[counted], wants[counted], limits
    )
    return replace(_summary(*map(np.array, zip(*log, strict=True))), **of_requests)


def _read_prompts(queue: deque[int], engine: Engine, free: int) -> tuple[int, int]:
    """Read what a step has room for; return the prompts that are done, and the chunks."""
    joining, room = 0, engine.chunks_per_step
    while queue and joining < free and room:
        read = min(queue[0], room)
        room -= read
        queue[0] -= read
        if queue[0] == 0:
            queue.popleft()
            joining += 1
    return joining, engine.chunks_per_step - room


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that a request must meet, all of them [s]."""

    ttft: float = math.inf
    tpot: float = math.inf
    e2e: float = math.inf


def _of_requests(
    started: Array, first: Array, done: Array, wants: Array, limits: Limits | None
) -> dict[str, float]:
    ttft, tpot, e2e = first - started, (done - first) / wants, done - started
    found = {"ttft": float(np.mean(ttft))}
    for name, values in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)):
        found[f"{name}_p95"] = float(np.nanquantile(values, 0.95))
    if limits is not None:
        met = (ttft <= limits.ttft) & (tpot <= limits.tpot) & (e2e <= limits.e2e)
        found["met"] = float(met[np.isfinite(done)].mean())
    return found


def roll_out(engine: Engine, *, lengths: NDArray[np.intp], seed: int) -> float:
    """Return how long requests of these ``lengths`` take that all come at once [s]."""
    rng = np.random.default_rng(seed)
    odds = -np.diff([1.0, *engine.survival, 0.0])
    yields = _Yields(rng, odds.cumsum()[:-1])
    queue = deque([engine.chunks_per_prompt] * len(lengths))
    lengths = rng.permutation(lengths)
    left, clock, next_one = np.zeros(0, dtype=int), 0.0, 0
    while queue or len(left):
        joining, ridden = _read_prompts(queue, engine, len(lengths))
        clock += engine.step(len(left), ridden)
        left = left - yields.take(len(left))
        left = np.concatenate([left[left > 0], lengths[next_one : next_one + joining]])
        next_one += joining
    return clock


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
    engine: Engine,
    *,
    rps: float = 0.0,
    output: int,
    requests: int,
    runs: int,
    clients: Clients | None = None,
    limits: Limits | None = None,
) -> dict[str, tuple[float, float]]:
    """Return (mean, standard error) of everything seen, over independent runs."""
    seen = [
        simulate(
            engine,
            rps=rps,
            output=output,
            requests=requests,
            seed=1000 + seed,
            clients=clients,
            limits=limits,
        )
        for seed in range(runs)
    ]
    found = {}
    for name in (field.name for field in fields(Seen)):
        values = np.array([getattr(one, name) for one in seen])
        found[name] = float(values.mean()), float(values.std(ddof=1) / np.sqrt(runs))
    return found
