"""What each request of a load waits for, from the steps of one policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from roofline.questions.load.backlog import moves, odds_of, transitions, waiting_shares
from roofline.questions.load.closed import rounds_without_thought, thinking_sent
from roofline.questions.load.latency import Found, Stay, averaged_stay, yield_variance
from roofline.questions.load.load import Load
from roofline.questions.load.policies import PolicyTable, clients_inside, occupied
from roofline.questions.load.queueing import Chunks, burst

__all__ = ["of_arrivals", "of_clients", "variance_of", "waits_in_turn"]

Array = NDArray[np.float64]
#: Numbers of sequences at which the wait is worked out: so many, between these quantiles.
NODES = 24
OUTSIDE = 1e-6


def variance_of(columns: PolicyTable, lengths: tuple[int, ...]) -> Array:
    """Return the variance of the tokens of a step for each column, of its D where n is 1.

    The schedule's is that of the draft length with its mean.
    """
    known = columns.tokens_per_step[0]
    fixed = [i for i, length in enumerate(columns.draft_lengths) if length is not None]
    variance = yield_variance(known[fixed], tuple(lengths))
    order = np.argsort(known[fixed])
    return np.asarray(np.interp(known, known[fixed][order], variance[order]))


def _nodes(share: Array) -> NDArray[np.intp]:
    """Return the numbers of sequences, of those that run, that are worked out."""
    mass = np.cumsum(share[1:]) / share[1:].sum()
    low, high = np.searchsorted(mass, (OUTSIDE, 1 - OUTSIDE)) + 1
    return np.unique(np.round(np.linspace(low, min(high, len(share) - 1), NODES)).astype(int))


def _onto(nodes: NDArray[np.intp], weight: Array) -> Array:
    """Return the weight of n = 1 ... at the nodes, shared out by distance."""
    numbers = np.arange(1, len(weight) + 1)
    return np.stack([np.interp(numbers, nodes, row) for row in np.eye(len(nodes))]) @ weight


def of_arrivals(
    columns: PolicyTable,
    position: int,
    load: Load,
    cut: Chunks,
    *,
    rates: Array,
    slots: NDArray[np.intp],
    variance: float,
) -> tuple[Found, Stay]:
    """Return what requests that come at random find, and how long they decode.

    Those who find all slots taken wait: a time with the mean of an exponential one, 1 / (mu (1 -
    r)), by (1 + cv^2) / 2, for answers are of one length (Allen & Cunneen, cv^2 of the steps to
    one).
    """
    one, output = columns.picked((position,)), load.output_tokens or 1
    rate = np.broadcast_to(rates, len(columns.draft_lengths))[position]
    running, completions = occupied(
        one, rates=rate, slots=slots[position : position + 1], output=output
    )
    share, most = running.share[:, 0], int(slots[position])
    nodes = _nodes(share)
    step = one.step[nodes - 1, 0]
    chance = transitions(rate * step, cut)
    stay, waiting = _stay(one, nodes, share[1:], chance, cut, output=output, variance=variance)
    usual = float(share[1:] @ one.clustering[:, 0] / share[1:].sum())
    theta = float(burst(np.asarray(usual)))
    served = float(completions[most - 1, 0])
    ratio = theta + (1 - theta) * rate / served
    tokens = one.tokens_per_step[most - 1, 0]
    uneven = variance / (tokens * output)  # squared, of the steps to an answer
    time = step[:, np.minimum(np.arange(chance.shape[-1]), cut.most)]
    weight = waiting * time
    weight *= (_onto(nodes, share[1:]) / weight.sum(axis=-1))[:, None]
    found = Found(
        weight=weight,
        step=time,
        come=rate * time,
        rate=np.full(len(nodes), rate),
        ladder=step,
        held=float(share[most]) if ratio < 1 else 1.0,
        wait=(1 + uneven) / 2 / (served * max(1 - ratio, 1e-9)),
    )
    return _with_nobody(found, float(share[0]), one.step[0, 0], float(rate), cut), stay


def _with_nobody(found: Found, share: float, step: Array, rate: float, cut: Chunks) -> Found:
    """Return what requests find, with those for ``share`` who find no sequence that decodes.

    Prompts may be read all the same, in steps as long as with one sequence. Without any the next
    step begins when a request comes, after 1 / ``rate`` on average.
    """
    states = found.weight.shape[1]
    time = step[np.minimum(np.arange(states), cut.most)]
    come = rate * time
    chance = moves(come, cut)
    chance[0] = 0.0
    chance[0, min(cut.per_prompt, states - 1)] = 1.0
    shares = waiting_shares(chance)
    lasts = np.concatenate([[1 / rate], time[1:]])
    first = shares * lasts / (shares @ lasts) * share
    time[0] = come[0] = 0.0
    return replace(
        found,
        weight=np.concatenate([first[None], found.weight]),
        step=np.concatenate([time[None], found.step]),
        come=np.concatenate([come[None], found.come]),
        rate=np.concatenate([[rate], found.rate]),
        ladder=np.concatenate([step[None], found.ladder]),
    )


def _stay(
    one: PolicyTable,
    nodes: NDArray[np.intp],
    share: Array,
    chance: Array,
    cut: Chunks,
    *,
    output: int,
    variance: float,
    think: float = np.inf,
) -> tuple[Stay, Array]:
    """Return how long requests decode, and the chunks that wait at every node."""
    tokens = one.tokens_per_step[nodes - 1, 0]
    steps = output / tokens
    chunks = odds_of(chance, cut, steps=steps)
    numbers = np.arange(1, len(share) + 1)
    weight = _onto(nodes, share * numbers / one.mean[:, 0])
    stay = averaged_stay(
        seen=chunks.seen,
        step=one.step[nodes - 1, 0],
        rides=chunks.seen @ np.arange(cut.most + 1),
        clustering=chunks.clustering,
        steps=steps,
        variance=output * variance / tokens**3,
        weight=weight,
        cut=cut,
        sequences=nodes.astype(float),
        think=think,
    )
    return stay, chunks.waiting


def of_clients(
    columns: PolicyTable, position: int, load: Load, cut: Chunks, *, variance: float
) -> tuple[Found, Stay]:
    """Return what requests of a closed loop find, and how long they decode."""
    one, output = columns.picked((position,)), load.output_tokens or 1
    most, think = int(one.slots[0]), load.think_time
    if think == 0:
        return _of_rounds(one, load, cut, variance=variance)
    inside = clients_inside(one, 0, clients=load.clients, think=think, output=output)
    nodes = _nodes(inside.share)
    step = one.step[nodes - 1, 0]
    coming = thinking_sent(
        clients=load.clients, think=think, running=nodes.astype(float), step=step, cut=cut
    )
    stay, waiting = _stay(
        one,
        nodes,
        inside.share[1:],
        moves(coming, cut),
        cut,
        output=output,
        variance=variance,
        think=think,
    )
    time = step[:, np.minimum(np.arange(coming.shape[-1]), cut.most)]
    weight = waiting * coming
    paces = _onto(nodes, inside.share[1:]) / (waiting * time).sum(axis=-1)
    weight = weight * paces[:, None]
    weight /= weight.sum()
    all_think = inside.share[0] * load.clients / think
    nobody = min(all_think / max(_answered(one, inside.share, output), 1e-12), 1.0)
    found = Found(
        weight=weight * (1 - nobody),
        step=time,
        come=coming,
        rate=np.maximum(load.clients - nodes, 0) / think,
        ladder=step,
        held=inside.held if load.clients > most else 0.0,
        wait=inside.wait,
    )
    rate = load.clients / think
    return _with_nobody(found, nobody, one.step[0, 0], rate, cut), stay


def _answered(one: PolicyTable, share: Array, output: int) -> float:
    """Return the requests per second that are answered."""
    numbers = np.arange(1, len(share))
    return float(share[1:] @ (numbers * one.tokens_per_step[:, 0] / one.mean[:, 0])) / output


def waits_in_turn(*, ahead: int, slots: int, stay: float) -> tuple[float, ...]:
    """Return quantiles of the wait for a slot where as many clients as ever are ahead [s].

    Answers of one length end in the order in which they began, at places of the stay T that do not
    change. A client comes at an end of its own, so ``ahead`` more ends take whole stays and then
    the r-th of the other slots - 1 places: T Beta(r, slots - r), with a mean of T r / slots.

    >>> waits_in_turn(ahead=2, slots=1, stay=3.0)
    (6.0,)
    >>> [round(wait, 2) for wait in waits_in_turn(ahead=1, slots=2, stay=1.0)][:2]  # anywhere
    [0.04, 0.12]
    """
    if ahead == 0:
        return ()
    from scipy.stats import beta

    whole, rest = divmod(ahead, slots)
    if rest == 0:
        return (stay * whole,)
    places = beta.ppf((np.arange(12) + 0.5) / 12, rest, slots - rest)
    return tuple((stay * (whole + places)).tolist())


def _of_rounds(one: PolicyTable, load: Load, cut: Chunks, *, variance: float) -> tuple[Found, Stay]:
    output, slots = load.output_tokens or 1, int(one.slots[0])
    inside = min(load.clients, slots)
    rounds = rounds_without_thought(
        step=one.step[:, 0],
        tokens_per_step=one.tokens_per_step[:, 0],
        inside=inside,
        output=output,
        cut=cut,
    )
    answered = rounds.paces * rounds.finished
    rate = float(answered.sum())
    seen = rounds.paces * rounds.running
    gap = float(seen @ rounds.step / seen.sum())
    row = np.maximum(rounds.running, 1) - 1
    tokens = float(seen @ one.tokens_per_step[row, 0] / seen.sum())
    decoding = round(float(rounds.paces @ (rounds.step * rounds.running)))
    found = Found(
        weight=(answered / rate)[None],
        step=rounds.step[None],
        come=rounds.finished[None],
        rate=np.array([rate]),
        ladder=one.step[max(decoding, 1) - 1, 0][None],
        at_its_end=True,
        sure_waits=waits_in_turn(ahead=load.clients - inside, slots=slots, stay=inside / rate),
    )
    steps = output / tokens
    deviation = np.sqrt(output * variance / tokens**3) * gap
    return found, Stay(
        weight=np.ones(1), mean=np.array([steps * gap]), deviation=np.array([deviation])
    )
