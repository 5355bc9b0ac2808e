"""The largest load that holds limits of requests, and what it takes to serve a given one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import TIE
from roofline.questions.load.latency import Found, Latency, Limits, Stay, latency, share_met
from roofline.questions.load.load import LARGEST_BATCH, Load
from roofline.questions.load.policies import PolicyTable, capacity
from roofline.questions.load.pricing import PricedLoad, drawn_means, with_prompts
from roofline.questions.load.queueing import Chunks
from roofline.questions.load.requests import of_arrivals, of_clients, variance_of
from roofline.specs.priors import priors

__all__ = ["Goodput", "Waits", "best_held", "gpus_for", "held_range", "waits_of"]

Array = NDArray[np.float64]
#: The search halves the span of rates so often, and ends on the line through its last two.
HALVINGS = 9
#: A rate so far below the most that nobody meets anybody.
ALONE = 1e-3
#: Quantiles of the range of what is held.
RANGE = (0.1, 0.9)


@dataclass(frozen=True, kw_only=True, slots=True)
class Goodput:
    """The largest load that each policy holds the limits at: requests/s or clients; 0 for none."""

    limits: Limits
    held: tuple[float, ...]  # by policy, as `LoadAnswer.policies`
    best: int  # position of the fixed draft length that holds most, the smallest within a tie
    ranges: tuple[tuple[float, float], tuple[float, float]]  # of the best and of plain decoding
    wanted: float | None = None  # requests/s that were asked about
    replicas: int | None = None  # that hold it with the best draft length
    plain_replicas: int | None = None  # with plain decoding
    sure_replicas: int | None = None  # at the lower end of the range
    scheduled: bool = False  # whether the last of `held` is the schedule's

    def schedule_adds(self, policies: int) -> float:
        """Return how much more the schedule holds than the best fixed draft length, as a share."""
        if len(self.held) < policies or self.best == policies - 1:
            return 0.0
        return self.held[policies - 1] / self.held[self.best] - 1 if self.scheduled else 0.0

    @property
    def most(self) -> tuple[float, float, float]:
        """The load that what is advised holds, and the ends of its range."""
        more = max(1 + self.schedule_adds(len(self.held)), 1.0) if self.scheduled else 1.0
        more = more if more >= 1 + TIE else 1.0
        low, high = self.ranges[0]
        return self.held[self.best] * more, low * more, high * more

    def with_schedule(self, held: float) -> Goodput:
        """Return the same with what the schedule holds; where that is more, replicas follow it."""
        found = replace(self, held=(*self.held, held), scheduled=True)
        if self.wanted is None:
            return found
        most, low, _ = found.most
        return replace(
            found,
            replicas=gpus_for(self.wanted, most),
            sure_replicas=gpus_for(self.wanted, low),
        )


def gpus_for(wanted: float, held: float) -> int | None:
    """Return how many replicas serve ``wanted`` requests/s, each at most ``held``; None: none do.

    >>> gpus_for(100.0, 41.0), gpus_for(82.0, 41.0)
    (3, 2)
    """
    return math.ceil(wanted / held * (1 - 1e-9)) if held > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """All that is needed to say what requests wait for with every policy."""

    columns: PolicyTable
    batches: NDArray[np.intp]
    load: Load
    cut: Chunks
    variance: Array  # of the tokens of a step, by policy
    front_end: float = 0.0  # what the server adds to the first token around its passes [s]

    def at_rates(self, rates: Array, limits: Limits) -> Array:
        """Return the share of requests that meet the limits at these requests/s, one a policy."""
        prompts = with_prompts(self.columns, self.batches, self.load, self.cut, rates=rates)
        most, slots = self._capacity()
        met = np.array(
            [
                share_met(
                    *self._served(
                        *of_arrivals(
                            prompts,
                            i,
                            self.load,
                            self.cut,
                            rates=rates,
                            slots=slots,
                            variance=float(self.variance[i]),
                        )
                    ),
                    self.cut,
                    limits=limits,
                    output=self.output,
                )
                if rates[i] < most[i]
                else 0.0
                for i in range(len(rates))
            ]
        )
        # a queue that bursts make grow without end is not carried
        return np.asarray(np.nan_to_num(met, nan=0.0))

    def at_clients(self, clients: NDArray[np.intp], limits: Limits) -> Array:
        """Return the same with so many clients, one number for each policy."""
        met = []
        for i, count in enumerate(clients.tolist()):
            load = replace(self.load, concurrency=count)
            one = self.columns.picked((i,))
            if int(one.slots[0]) == 0:
                met.append(0.0)
                continue
            prompts = with_prompts(one, self.batches, load, self.cut, rates=None)
            variance = float(self.variance[i])
            found, stay = self._served(*of_clients(prompts, 0, load, self.cut, variance=variance))
            met.append(share_met(found, stay, self.cut, limits=limits, output=self.output))
        return np.array(met)

    def latencies(self, limits: Limits) -> tuple[Latency | None, ...]:
        """Return what requests of the load wait for, by policy; None where it is not carried."""
        load, rates = self.load, self.load.rps
        prompts = with_prompts(self.columns, self.batches, load, self.cut, rates=rates)
        most, slots = self._capacity()
        found: list[Latency | None] = []
        for i in range(len(self.columns.draft_lengths)):
            if self.columns.slots[i] == 0 or (rates is not None and rates >= most[i]):
                found.append(None)
                continue
            variance = float(self.variance[i])
            if rates is None:
                seen = of_clients(prompts, i, load, self.cut, variance=variance)
            else:
                seen = of_arrivals(
                    prompts,
                    i,
                    load,
                    self.cut,
                    rates=np.array(rates),
                    slots=slots,
                    variance=variance,
                )
            found.append(latency(*self._served(*seen), self.cut, limits=limits, output=self.output))
        return tuple(found)

    def _served(self, found: Found, stay: Stay) -> tuple[Found, Stay]:
        return replace(found, front_end=self.front_end), stay

    @property
    def output(self) -> int:
        """Tokens of an answer."""
        return self.load.output_tokens or 1

    def _capacity(self) -> tuple[Array, NDArray[np.intp]]:
        return capacity(
            self.columns, output=self.output, per_prompt=self.cut.per_prompt, most=self.cut.most
        )

    def largest(self, limits: Limits) -> Array:
        """Return the largest load that each policy holds the limits at."""
        if self.load.concurrency is not None:
            return _most_clients(lambda clients: self.at_clients(clients, limits), self, limits)
        return _most_rate(lambda rates: self.at_rates(rates, limits), self._capacity()[0], limits)


def waits_of(columns: PolicyTable, priced: PricedLoad, load: Load, cut: Chunks) -> Waits:
    """Return what says how long requests wait."""
    lengths = tuple(length for length in columns.draft_lengths if length is not None)
    return Waits(
        columns=columns,
        batches=priced.batches,
        load=load,
        cut=cut,
        variance=variance_of(columns, lengths),
        front_end=priors().front_end.first_token,
    )


def _most_rate(met: Callable[[Array], Array], most: Array, limits: Limits) -> Array:
    low, high = ALONE * np.maximum(most, 1e-9), most.copy()
    first = met(low)
    share_low, share_high = first, np.zeros_like(first)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        share = met(middle)
        holds = share >= limits.share
        low, share_low = np.where(holds, middle, low), np.where(holds, share, share_low)
        high, share_high = np.where(holds, high, middle), np.where(holds, share_high, share)
    drop = np.maximum(share_low - share_high, 1e-12)
    part = np.clip((share_low - limits.share) / drop, 0.0, 1.0)
    return np.where(first >= limits.share, low + part * (high - low), 0.0)


def _most_clients(met: Callable[[NDArray[np.intp]], Array], waits: Waits, limits: Limits) -> Array:
    count = len(waits.columns.draft_lengths)
    most = waits.columns.slots if waits.load.think_time == 0 else np.full(count, LARGEST_BATCH)
    low, high = np.ones(count, dtype=int), np.maximum(most, 1) + 1
    first = met(low)
    while (high - low > 1).any():
        middle = np.maximum((low + high) // 2, 1)
        holds = met(middle) >= limits.share
        low, high = np.where(holds, middle, low), np.where(holds, high, np.maximum(middle, low + 1))
    return np.where(first >= limits.share, low, 0).astype(float)


def best_held(held: Array) -> int:
    """Return the smallest draft length that holds within a tie of the most.

    >>> best_held(np.array([29.0, 40.8, 41.0]))
    1
    """
    return int((held >= (1 - TIE) * held.max()).argmax())


def held_range(
    priced: PricedLoad,
    waits: Waits,
    *,
    position: int,
    held: float,
    yields: Array,
) -> tuple[float, float]:
    """Return the 10th and 90th percentile of what a draft length holds, given the model's error.

    The draws are ordered by the pace that they give where the load runs; those at both percentiles
    are searched again. The range holds the expected load.
    """
    limits, load = waits.load.slo, waits.load
    if limits is None or held == 0:
        return 0.0, held
    rates = None if load.concurrency is not None else held
    columns = with_prompts(
        waits.columns,
        waits.batches,
        load if rates is not None else replace(load, concurrency=max(int(held), 1)),
        waits.cut,
        rates=rates,
    )
    off = drawn_means(priced, columns)[:, position] / columns.mean[:, position, None]
    drawn = yields[0, position]
    tokens = np.broadcast_to(drawn, off.shape[-1:])
    carried = columns.mean[:, position] * held * waits.output / columns.tokens_per_step[:, position]
    numbers = np.arange(1, len(off) + 1)
    row = int(np.argmin(np.abs(carried - numbers))) if rates is not None else int(held) - 1
    order = np.argsort(tokens / off[min(row, len(off) - 1)])
    one = waits.columns.picked((position,))
    ends = []
    for share in RANGE:
        at = order[round(share * (len(order) - 1))]
        # a draw changes how often drafts are accepted, so also how uneven the steps are; that is
        # small beside the level
        table = replace(
            one,
            step=one.step * off[:, at][:, None, None],
            mean=one.mean * off[:, at][:, None],
            tokens_per_step=one.tokens_per_step / one.tokens_per_step[:1] * tokens[at],
        )
        moved = replace(waits, columns=table, variance=waits.variance[position : position + 1])
        ends.append(float(moved.largest(limits)[0]))
    return min(ends[0], held), max(ends[1], held)
