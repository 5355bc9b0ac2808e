"""Prompt chunks that wait and ride: the queue in front of the engine's steps, with n held fixed.

Symbols: q chunks that wait at a step's start, k = min(q, most) of them ride in it, s(k) its time;
c chunks a prompt; K steps that a request decodes in. A long step collects more prompts than a short
one, so steps with prompts follow each other; requests start to decode in just those steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.questions.load.queueing import Chunks

__all__ = [
    "ChunkOdds",
    "chunk_odds",
    "longest_backlog",
    "moves",
    "odds_of",
    "transitions",
    "waiting_shares",
]

Array = NDArray[np.float64]
#: Prompts that may wait behind a full step; at half load fewer than one in 10^6 steps sees more.
PROMPTS_WAITING = 24
#: Longer backlogs count as this one: it bounds memory where a prompt has dozens of chunks.
MOST_WAITING = 256
#: Prompts that arrive in a step are at least this many, so that shares of them exist.
FEWEST = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkOdds:
    """How many chunks ride in a step; odds have k = 0 ... most along their last axis."""

    odds: Array  # of all steps
    seen: Array  # of the steps that a request decodes in
    clustering: Array  # variance over mean of the requests that start in K steps; 1 if independent
    waiting: Array  # of q chunks at a step's start, q = 0 ... along the last axis


def longest_backlog(cut: Chunks) -> int:
    """Return the longest backlog that has a state of its own [chunks].

    >>> longest_backlog(Chunks(each=1500.0, per_prompt=2, most=1))
    49
    """
    return min(cut.most + PROMPTS_WAITING * cut.per_prompt, MOST_WAITING)


def transitions(arriving: Array, cut: Chunks) -> Array:
    """Return P(q' chunks wait at the next step | q at this one), shape (..., q, q').

    q' = q - k + c a, with a Poisson of mean ``arriving`` [prompts in a step of k chunks, k = 0 ...
    most along the last axis]. What exceeds the longest backlog counts as it.

    >>> one = transitions(np.array([0.0, np.log(2)]), Chunks(each=1.0, per_prompt=1, most=1))
    >>> one[0, :3].tolist(), one[1, :3].round(3).tolist()  # e^-ln 2 = 1/2; 1/2 ln 2
    ([1.0, 0.0, 0.0], [0.5, 0.347, 0.12])
    """
    rides = np.minimum(np.arange(longest_backlog(cut) + 1), cut.most)
    return moves(arriving[..., rides], cut)


def moves(arriving: Array, cut: Chunks) -> Array:
    """Return P(q' | q) as `transitions`; ``arriving`` has the chunks that wait, q, along its last.

    >>> one = Chunks(each=1.0, per_prompt=1, most=1)
    >>> moves(np.array([np.log(2), np.log(2), 0.0]), one).round(3).tolist()  # 2 is the most
    [[0.5, 0.347, 0.153], [0.5, 0.347, 0.153], [0.0, 1.0, 0.0]]
    """
    waits = np.arange(arriving.shape[-1])
    rides = np.minimum(waits, cut.most)
    grown = waits - (waits - rides)[:, None]  # chunks that have come
    prompts = grown // cut.per_prompt
    possible = (grown >= 0) & (grown % cut.per_prompt == 0)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, prompts.max() + 1)))])
    mean = np.maximum(arriving, FEWEST)[..., None]
    counted = np.where(possible, prompts, 0)
    chance = np.where(possible, np.exp(counted * np.log(mean) - mean - log_factorial[counted]), 0)
    chance[..., -1] = np.maximum(1 - chance[..., :-1].sum(axis=-1), 0)
    return np.asarray(chance)


def waiting_shares(chance: Array) -> Array:
    """Return the share of steps at whose start q chunks wait, from the ``transitions``.

    >>> waiting_shares(np.array([[0.5, 0.5], [0.25, 0.75]])).round(4).tolist()  # 1 : 2
    [0.3333, 0.6667]
    """
    size = chance.shape[-1]
    balance = np.swapaxes(np.eye(size) - chance, -1, -2).copy()
    balance[..., -1, :] = 1  # the shares sum to 1
    return np.asarray(np.linalg.solve(balance, np.eye(size)[:, -1:])[..., 0])


def chunk_odds(arriving: Array, cut: Chunks, *, steps: Array) -> ChunkOdds:
    """Return the odds of k chunks in a step; ``arriving`` prompts come in one of k on average.

    A request starts to decode after the step that reads its prompt's last chunk, and stays for
    ``steps`` K on average (taken as geometric: a share 1 - 1/K of them goes on after each), so the
    states that it sees are start (I - (1 - 1/K) P)^-1 / K. The number of requests that start in K
    steps has variance over mean E[j^2]/E[j] - E[j] + 2 K (seen j - E[j]) for j starts a step: more
    than 1, for each prompt lengthens steps in which others arrive. 1 / (1 - lambda c (s(1) -
    s(0)))^2 where s is linear in k and K long (Consul & Jain 1973, the generalized Poisson law).

    >>> cut, step = Chunks(each=1.0, per_prompt=1, most=1), np.array([0.010, 0.030])
    >>> chunks = chunk_odds(25 * step, cut, steps=np.array(1e4))
    >>> chunks.odds.round(3).tolist()  # mean step 10 ms / (1 - 25/s x 20 ms) = 20 ms; x 25/s = 0.5
    [0.5, 0.5]
    >>> float(chunks.clustering.round(1))  # 1 / (1 - 1/2)^2
    4.0
    """
    return odds_of(transitions(arriving, cut), cut, steps=steps)


def odds_of(chance: Array, cut: Chunks, *, steps: Array) -> ChunkOdds:
    """Return the odds of `chunk_odds` of a chain whose moves P(q' | q) are ``chance``."""
    waits = np.arange(chance.shape[-1])
    rides = np.minimum(waits, cut.most)
    # prompts whose last chunk is read
    ends = -(-waits // cut.per_prompt) + (rides - waits) // cut.per_prompt
    share = waiting_shares(chance)
    starts = ((share * ends)[..., None, :] @ chance)[..., 0, :]
    stays = (1 - 1 / steps)[..., None, None]
    goes_on = np.swapaxes(np.eye(len(waits)) - stays * chance, -1, -2)
    start = starts / starts.sum(axis=-1, keepdims=True)
    seen = np.linalg.solve(goes_on, start[..., None])[..., 0] / steps[..., None]
    mean = share @ ends
    spread = share @ ends**2 / mean - mean + 2 * steps * (seen @ ends - mean)
    by_number = (rides[:, None] == np.arange(cut.most + 1)).astype(float)
    return ChunkOdds(
        odds=share @ by_number,
        seen=seen @ by_number,
        clustering=np.maximum(spread, 1.0),
        waiting=share,
    )
