"""A fixed draft length or a schedule, judged over a load.

A policy is one column: what n = 1 ... N running sequences cost and yield under it. Arrays have
shape (sequences, policies[, prompt chunks in the step]).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.questions.load.closed import Inside, rounds_without_thought, shares_of_clients
from roofline.questions.load.queueing import Chunks, Occupancy, burst, occupancy, quantile
from roofline.timing.step import RARE

__all__ = [
    "Policy",
    "PolicyTable",
    "capacity",
    "clients_inside",
    "occupied",
    "over_histogram",
    "under_arrivals",
    "under_clients",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyTable:
    """What every policy costs and yields at every number of running sequences."""

    draft_lengths: tuple[int | None, ...]  # None is the schedule
    step: Array  # by prompt chunks [s]
    seen: Array  # odds of so many chunks in a step that a request decodes in
    mean: Array  # of all steps [s]
    clustering: Array  # of the requests that start while one decodes: variance over mean
    tokens_per_step: Array
    slots: NDArray[np.intp]  # the most sequences that run; 0 where nothing fits
    past: NDArray[np.bool_]  # (sequences, policies): leaves the captured graphs that D = 0 is in
    sent: Array | None = None  # requests that clients who think send [1/s]
    rides: Array | None = None  # mean chunks of all steps

    def picked(self, positions: Sequence[int]) -> PolicyTable:
        """Return some of the columns."""
        at = list(positions)
        return PolicyTable(
            draft_lengths=tuple(self.draft_lengths[i] for i in at),
            step=self.step[:, at],
            seen=self.seen[:, at],
            mean=self.mean[:, at],
            clustering=self.clustering[:, at],
            tokens_per_step=self.tokens_per_step[:, at],
            slots=self.slots[at],
            past=self.past[:, at],
            sent=None if self.sent is None else self.sent[:, at],
            rides=None if self.rides is None else self.rides[:, at],
        )

    def scaled(self, steps: Array, tokens_per_step: Array) -> list[PolicyTable]:
        """Return the columns in every draw.

        ``steps`` is by how much each step is longer, ``tokens_per_step`` what it yields, both
        (sequences or 1, policies, draws).
        """
        yields = np.broadcast_to(tokens_per_step, (*self.mean.shape, tokens_per_step.shape[-1]))
        return [
            replace(
                self,
                step=self.step * steps[..., None, i],
                mean=self.mean * steps[..., i],
                tokens_per_step=yields[..., min(i, yields.shape[-1] - 1)],
            )
            for i in range(steps.shape[-1])
        ]

    def joined(self, other: PolicyTable) -> PolicyTable:
        """Return the columns of both."""
        return PolicyTable(
            draft_lengths=self.draft_lengths + other.draft_lengths,
            **{
                name: np.concatenate([getattr(self, name), getattr(other, name)], axis=axis)
                for name, axis in (
                    ("step", 1),
                    ("seen", 1),
                    ("mean", 1),
                    ("clustering", 1),
                    ("tokens_per_step", 1),
                    ("slots", 0),
                    ("past", 1),
                    ("sent", 1),
                    ("rides", 1),
                )
                if getattr(self, name) is not None
            },
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What one policy yields; NaN where it cannot carry the load. Times in s.

    A gap is the time between two bursts of tokens that a user sees: one step. It brings
    ``tokens_per_step`` tokens on average; TPOT is the mean time per token.
    """

    draft_length: int | None
    running: float  # mean number of sequences
    waiting: float  # share of time in which requests wait for a slot
    slots: int
    tokens_per_step: float
    tpot: float
    gap_p50: float
    gap_p99: float
    with_prompt: float  # share of a user's gaps in which prompt tokens rode along
    tokens_per_s: float
    gain: float  # pace over that of plain decoding; NaN where that cannot carry the load
    past_graphs: float  # share of a user's gaps in steps that no captured graph covers
    most_rps: float | None = None

    @property
    def usable(self) -> bool:
        """Whether the load is carried."""
        return bool(np.isfinite(self.tpot))

    @property
    def past(self) -> bool:
        """Whether it carries the load, but with more than a rare step past the captured graphs."""
        return self.usable and self.past_graphs >= RARE

    @property
    def advisable(self) -> bool:
        """Whether it may be advised."""
        return self.usable and not self.past


def capacity(
    columns: PolicyTable, *, output: int, per_prompt: int, most: int
) -> tuple[Array, NDArray[np.intp]]:
    """Return the most requests per second, and the number of sequences at which they are served.

    n sequences finish min(n AL / N_out, chunks of a step / chunks of a prompt) requests a step, and
    as many prompts ride along, in a step as long as its mean number of chunks says; the largest
    over n up to ``slots`` counts. [1/s]
    """
    sequences = np.arange(1, len(columns.mean) + 1)[:, None]
    finished = sequences * columns.tokens_per_step / output
    if per_prompt:
        finished = np.minimum(finished, most / per_prompt)
    step = _between(columns.step, per_prompt * finished)
    served = np.where(sequences <= columns.slots, finished / step, 0.0)
    return served.max(axis=0), served.argmax(axis=0) + 1


def _between(step: Array, chunks: Array) -> Array:
    """Return the step time at a mean number of chunks, linear between whole ones [s]."""
    below = np.minimum(chunks.astype(int), max(step.shape[-1] - 2, 0))
    above = np.minimum(below + 1, step.shape[-1] - 1)
    low, high = (np.take_along_axis(step, at[..., None], axis=-1)[..., 0] for at in (below, above))
    return np.asarray(low + (chunks - below) * (high - low))


def under_arrivals(
    columns: PolicyTable, *, rps: float, output: int, per_prompt: int, most: int
) -> list[Policy]:
    """Judge every policy where ``rps`` requests arrive per second."""
    most_rps, slots = capacity(columns, output=output, per_prompt=per_prompt, most=most)
    running, _ = occupied(columns, rates=rps, slots=slots, output=output)
    carried = rps < most_rps
    share = np.where(carried, running.share, np.nan)
    policies = _judged(columns, share, slots=slots)
    waiting = np.where(carried, running.waiting, np.nan)
    return [
        replace(policy, waiting=float(waits), most_rps=float(rate))
        for policy, waits, rate in zip(policies, waiting, most_rps, strict=True)
    ]


def occupied(
    columns: PolicyTable, *, rates: Array | float, slots: NDArray[np.intp], output: int
) -> tuple[Occupancy, Array]:
    """Return how many sequences run, requests in bursts, and the completions by n [1/s].

    ``rates`` [1/s] is one number, or one for each policy.
    """
    sequences = np.arange(1, len(columns.mean) + 1)[:, None]
    completions = sequences * columns.tokens_per_step / (output * columns.mean)
    alone = occupancy(arrivals=rates, completions=completions, slots=slots).share[1:]
    usual = (alone * columns.clustering).sum(axis=0) / alone.sum(axis=0)
    found = occupancy(arrivals=rates, completions=completions, slots=slots, burst=burst(usual))
    return found, completions


def under_clients(
    columns: PolicyTable, *, clients: int, think: float, output: int, cut: Chunks
) -> list[Policy]:
    """Judge every policy where ``clients`` wait for each answer and think before they go on."""
    inside = [
        clients_inside(columns, i, clients=clients, think=think, output=output)
        for i in range(len(columns.draft_lengths))
    ]
    if think > 0:
        share = np.stack([each.share for each in inside], axis=1)
        policies = _judged(columns, share, slots=columns.slots)
    else:
        policies = [
            _of_rounds(columns, i, clients=clients, output=output, cut=cut)
            for i in range(len(columns.draft_lengths))
        ]
    gains = [policies[0].tpot / policy.tpot for policy in policies]
    return [
        replace(policy, waiting=each.waiting, gain=gain)
        for policy, each, gain in zip(policies, inside, gains, strict=True)
    ]


def clients_inside(
    columns: PolicyTable, position: int, *, clients: int, think: float, output: int
) -> Inside:
    """Return how many sequences of ``clients`` run with one policy, requests in bursts."""
    count, most = len(columns.mean), max(int(columns.slots[position]), 0)
    inside = min(clients, most)
    if most == 0:
        return Inside(share=np.full(count + 1, np.nan), waiting=0.0, held=0.0, wait=0.0)
    if think == 0 or columns.sent is None:
        share = np.zeros(count + 1)
        share[inside] = 1.0
        queued = clients > most
        return Inside(share=share, waiting=float(queued), held=float(queued), wait=0.0)
    tokens, mean = columns.tokens_per_step[:, position], columns.mean[:, position]
    completions = np.arange(1, count + 1) * tokens / (output * mean)
    sent = columns.sent[:, position]
    alone = shares_of_clients(
        sent=sent, completions=completions, slots=most, clients=clients, think=think
    ).share[1:]
    usual = (alone @ columns.clustering[:, position]) / alone.sum()
    bursts = float(burst(np.asarray(usual)))
    return shares_of_clients(
        sent=sent,
        completions=completions,
        slots=most,
        clients=clients,
        think=think,
        burst=bursts,
    )


def _of_rounds(
    columns: PolicyTable, position: int, *, clients: int, output: int, cut: Chunks
) -> Policy:
    """Return what a policy yields where clients do not think."""
    one = columns.picked((position,))
    most = int(one.slots[0])
    if most == 0:
        return replace(_judged(one, np.full((len(one.mean) + 1, 1), np.nan), slots=one.slots)[0])
    rounds = rounds_without_thought(
        step=one.step[:, 0],
        tokens_per_step=one.tokens_per_step[:, 0],
        inside=min(clients, most),
        output=output,
        cut=cut,
    )
    row = np.maximum(rounds.running, 1) - 1
    seen = rounds.paces * rounds.running
    gaps = float(seen.sum())
    tokens = float(seen @ one.tokens_per_step[row, 0])
    running = float(seen @ rounds.step)
    return Policy(
        draft_length=one.draft_lengths[0],
        running=running,
        waiting=0.0,
        slots=most,
        tokens_per_step=tokens / gaps,
        tpot=running / tokens,
        gap_p50=float(quantile(rounds.step, seen, 0.5)),
        gap_p99=float(quantile(rounds.step, seen, 0.99)),
        with_prompt=float(seen @ (rounds.rides > 0)) / gaps,
        tokens_per_s=tokens,
        gain=1.0,
        past_graphs=float(seen @ one.past[row, 0]) / gaps,
    )


def over_histogram(columns: PolicyTable, share: Array) -> list[Policy]:
    """Judge every policy at the given ``share`` of time by running sequences, from 0 on."""
    fits = columns.slots >= int(share.nonzero()[0].max())
    return _judged(columns, np.where(fits, share[:, None], np.nan), slots=columns.slots)


def _judged(columns: PolicyTable, share: Array, *, slots: NDArray[np.intp]) -> list[Policy]:
    """Return what every policy yields at its share of time by running sequences.

    Requests start in steps with prompts, so they see more chunks than the steps do on average; the
    running batch follows from the gaps that they see (Little's law).
    """
    sequences = np.arange(1, len(columns.mean) + 1)[:, None]
    paces = share[1:] / columns.mean  # steps a second at each n
    seen = sequences * paces  # gaps a second, of all users
    tokens = (seen * columns.tokens_per_step).sum(axis=0)
    gaps = seen.sum(axis=0)
    tpot = (seen[..., None] * columns.seen * columns.step).sum(axis=(0, 2)) / tokens
    running = tokens * tpot
    p50, p99 = _gaps(columns, seen)
    past = (seen * columns.past).sum(axis=0) / gaps
    with_prompt = (seen[..., None] * columns.seen)[..., 1:].sum(axis=(0, 2)) / gaps
    return [
        Policy(
            draft_length=length,
            running=float(running[i]),
            waiting=0.0,
            slots=int(slots[i]),
            tokens_per_step=float(tokens[i] / gaps[i]),
            tpot=float(tpot[i]),
            gap_p50=float(p50[i]),
            gap_p99=float(p99[i]),
            with_prompt=float(with_prompt[i]),
            tokens_per_s=float(tokens[i]),
            gain=float(tpot[0] / tpot[i]),
            past_graphs=float(past[i]),
        )
        for i, length in enumerate(columns.draft_lengths)
    ]


def _gaps(columns: PolicyTable, seen: Array) -> tuple[Array, Array]:
    """Return the median and the 99th percentile of the gaps that users see [s]."""
    weights = seen[..., None] * columns.seen
    policies_last = (0, 2, 1)
    count = len(columns.draft_lengths)
    values = columns.step.transpose(policies_last).reshape(-1, count)
    mass = weights.transpose(policies_last).reshape(-1, count)
    missing = np.isnan(mass).any(axis=0)
    p50, p99 = (np.where(missing, np.nan, quantile(values, mass, share)) for share in (0.5, 0.99))
    return p50, p99
