"""A closed loop: clients who send the next request when they have the last answer.

Symbols: N clients; Z their think time [s]; n sequences that decode; w prompts and q chunks that
wait; K steps that a request decodes in. With think time the chain over n is that of the machine
repairman, whose machines are the clients. Without it an answer is followed by the next prompt at
once, so n + w = N and the chunks that wait say all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.questions.load.backlog import longest_backlog, moves, waiting_shares
from roofline.questions.load.queueing import Chunks

__all__ = [
    "Inside",
    "Rounds",
    "rounds_without_thought",
    "sent_in_a_step",
    "shares_of_clients",
    "thinking_sent",
]

Array = NDArray[np.float64]
#: Chunks that have a state of their own; longer backlogs count as this one.
MOST_WAITING = 1024
#: So that rates have logarithms [1/s].
FEWEST = 1e-12


def sent_in_a_step(thinking: Array, step: Array, think: float) -> Array:
    """Return how many of the clients that think send a request in a step: j (1 - e^(-s / Z)).

    >>> float(sent_in_a_step(np.array(10.0), np.array(np.log(2)), 1.0).round(3))  # half of them
    5.0
    """
    return np.asarray(thinking * -np.expm1(-step / think))


def thinking_sent(*, clients: int, think: float, running: Array, step: Array, cut: Chunks) -> Array:
    """Return the requests sent in a step by chunks that wait, (..., q): N - n - w clients think.

    ``running`` n has the shape of ``step`` [s] without its last axis, chunks in the step.
    """
    waits = np.arange(longest_backlog(cut) + 1)
    prompts = -(-waits // cut.per_prompt)
    thinking = np.maximum(clients - np.asarray(running)[..., None] - prompts, 0.0)
    return sent_in_a_step(thinking, step[..., np.minimum(waits, cut.most)], think)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inside:
    """How many sequences of clients run: ``share`` of time from 0 on, and who waits for a slot."""

    share: Array
    waiting: float  # share of time in which somebody waits for a slot
    held: float  # share of requests that do
    wait: float  # mean wait of these [s]


def shares_of_clients(
    *, sent: Array, completions: Array, slots: int, clients: int, think: float, burst: float = 0.0
) -> Inside:
    """Return how many sequences run where ``clients`` think between requests, for one policy.

    ``sent`` and ``completions`` [1/s] are by n = 1 ...; with n = 0 all think. Past ``slots`` those
    who wait for one send nothing: (N - n) / Z of the others do. P(n) mu_n is what flows past n, as
    in `occupancy`, with sent(n) for lambda. With one slot and no bursts it is the machine-repairman
    chain, with as many as clients the Engset (binomial) one.

    >>> rates = {"sent": np.array([1.0, 0.0]), "completions": np.array([1.0, 2.0])}
    >>> found = shares_of_clients(**rates, slots=2, clients=2, think=1.0)
    >>> found.share.tolist()
    [0.25, 0.5, 0.25]
    """
    numbers = np.arange(1, clients + 1)
    at = np.minimum(numbers, slots) - 1
    waits = (clients - numbers) / think
    up = np.where(numbers < slots, sent[at], waits)
    up = np.maximum(up, FEWEST)
    first = (1 - burst) * max(clients / think, FEWEST)
    ratio = np.log(burst + (1 - burst) * up / completions[at])
    flow = np.log(first) + np.concatenate([[0.0], np.cumsum(ratio[:-1])])
    log = np.concatenate([[0.0], flow - np.log(completions[at])])
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    share = np.zeros(len(completions) + 1)
    np.add.at(share, np.minimum(np.arange(clients + 1), slots), weight)
    full = slice(min(slots, clients), clients + 1)
    requests = weight * np.concatenate([[clients / think], np.where(numbers < slots, up, waits)])
    queue = weight[full] @ np.maximum(np.arange(clients + 1)[full] - slots, 0)
    held = float(requests[full].sum())
    return Inside(
        share=share,
        waiting=float(weight[slots + 1 :].sum()),
        held=held / float(requests.sum()),
        wait=float(queue) / held if held > 0 else 0.0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """Steps of one policy whose clients do not think, by chunks that wait, q = 0 ..."""

    paces: Array  # steps a second
    running: NDArray[np.intp]  # n
    rides: NDArray[np.intp]  # chunks in the step
    step: Array  # [s]
    finished: Array  # requests that are answered in a step, on average


def rounds_without_thought(
    *, step: Array, tokens_per_step: Array, inside: int, output: int, cut: Chunks
) -> Rounds:
    """Return the steps that ``inside`` requests make, each followed by the next at once.

    ``step`` [s] is by n = 1 ... and chunks, ``tokens_per_step`` by n. Of n sequences n / K finish
    in a step, and as many prompts come, a Poisson; q = 0 ... with n = inside - ceil(q / c).
    """
    top = min(inside * cut.per_prompt, MOST_WAITING)
    waits = np.arange(max(top, cut.most) + 1)
    rides = np.minimum(waits, cut.most)
    running = np.maximum(inside - -(-waits // cut.per_prompt), 0)
    row = np.maximum(running, 1) - 1
    finished = running * tokens_per_step[row] / output
    chance = moves(finished, cut)
    chance[:, top + 1 :] = 0.0  # no more wait than there are
    chance[:, top] = 1 - chance[:, :top].sum(axis=-1)
    share = waiting_shares(chance)
    times = step[row, rides]
    return Rounds(
        paces=share / (share @ times), running=running, rides=rides, step=times, finished=finished
    )
