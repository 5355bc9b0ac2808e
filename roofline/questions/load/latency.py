"""What a request waits for: its first token, its answer, and whether it meets every limit.

Symbols: k chunks of the step that runs when a request comes, a others that come in it, c chunks of
its own prompt, at most m in a step; K steps that it decodes in; T the time of these. Arrays have
shape (numbers of sequences, ...), for one policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.questions.load.queueing import Chunks, quantile

__all__ = [
    "Found",
    "Latency",
    "Limits",
    "Stay",
    "averaged_stay",
    "averaged_variance",
    "latency",
    "share_met",
    "steps_variance",
    "yield_variance",
]

Array = NDArray[np.float64]
#: Places in a step at which a request may come.
PLACES = (np.arange(8) + 0.5) / 8
#: Of the longest backlogs, this share of steps is left out.
RARE_BACKLOG = 1e-5
#: Quantiles at which a random wait for a slot is taken.
WAITS = -np.log1p(-(np.arange(12) + 0.5) / 12)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits that a request must meet, all of them [s]; ``share`` of the requests shall."""

    ttft: float = math.inf
    tpot: float = math.inf
    e2e: float = math.inf
    share: float = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a request finds when it comes."""

    weight: Array  # (n, q): of requests
    step: Array  # (n, q): how long the step takes that runs [s]
    come: Array  # (n, q): others that come in it
    rate: Array  # (n): others that come afterwards [1/s]
    ladder: Array  # (n, chunks): how long a step takes [s]
    at_its_end: bool = False  # it comes when the step ends, and so do the others
    held: float = 0.0  # share of requests that wait for a slot first
    wait: float = 0.0  # mean of those [s], exponential
    sure_waits: tuple[float, ...] = ()  # where all wait: quantiles of how long [s]
    front_end: float = 0.0  # what the server adds to the first token around its passes [s]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stay:
    """Time that requests decode for: a mixture of normal distributions."""

    weight: Array  # (n)
    mean: Array  # (n) [s]
    deviation: Array  # (n) [s]


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Times over requests [s]; ``share`` of these have at most the ones called ``most``."""

    share: float
    ttft: float
    ttft_most: float
    tpot_most: float
    e2e_most: float
    met: float  # share of requests that meet every limit; NaN without any


def yield_variance(tokens_per_step: Array, lengths: tuple[int, ...]) -> Array:
    """Return the variance of the tokens of a step at each draft length, from AL by length.

    P(more than j tokens) = S_j = AL(j) - AL(j - 1), so E[X^2] = 1 + sum of (2 j + 1) S_j. Lengths
    that were not asked about lie on the line between those that were. [tokens^2]

    >>> yield_variance(np.array([1.0, 1.5]), (0, 1)).tolist()  # 1 or 2 tokens, alike often
    [0.0, 0.25]
    """
    upto = np.arange(lengths[-1] + 1)
    known = np.interp(upto, lengths, np.where(np.isfinite(tokens_per_step), tokens_per_step, 1.0))
    survival = np.clip(np.diff(known), 0.0, 1.0)
    squares = 1 + np.concatenate([[0.0], np.cumsum((2 * upto[1:] + 1) * survival)])
    return np.asarray(np.maximum(squares - known**2, 0.0)[list(lengths)])


def steps_variance(*, output: int, tokens_per_step: float, variance: float) -> float:
    """Return the variance of the steps to ``output`` tokens: N var / AL^3 (renewals, Feller 1949).

    >>> steps_variance(output=400, tokens_per_step=2.0, variance=0.5)
    25.0
    """
    return output * variance / tokens_per_step**3


def averaged_variance(pull: float) -> float:
    """Return the share of the variance of n that its mean over a stay keeps.

    Correlations of n fall on a line, 1 - p t / T, as those of M/D/infinity do with p = 1: a share
    1 - p / 3 up to p = 1, else 1 / p - 1 / (3 p^2). ``pull`` p is how fast n comes back to its
    mean, per stay: 1 - d ln s / d ln n, and T / Z more where clients think Z.

    >>> averaged_variance(1.0), averaged_variance(0.0)
    (0.6666666666666667, 1.0)
    """
    return 1 - pull / 3 if pull <= 1 else 1 / pull - 1 / (3 * pull**2)


def averaged_stay(
    *,
    seen: Array,
    step: Array,
    rides: Array,
    clustering: Array,
    steps: Array,
    variance: Array,
    weight: Array,
    cut: Chunks,
    sequences: Array,
    think: float = math.inf,
) -> Stay:
    """Return how long requests decode where others come at random.

    ``weight`` is how often users see n sequences, ``seen`` the odds of chunks in such a step,
    ``rides`` their mean and ``clustering`` v. n is averaged over the stay
    (`averaged_variance`, a share f of var n = J / p). j requests start meanwhile, with a mean of J
    and a variance of v J; cov(n, j) = h J with h = 1/2 where nobody thinks (M/D/infinity), so
    h p / f of n's distance from its mean is also j's, and 1 - h^2 p / f of j's variance is left.
    T = K s(n) + c (s(1) - s(0)) (j - J), and K varies by ``variance``. [s]
    """
    whole = weight.sum()
    count = float(weight @ steps / whole)
    gap = (seen * step).sum(axis=-1)
    mean_gap, mean = float(weight @ gap / whole), float(weight @ sequences / whole)
    spread = float(weight @ (sequences - mean) ** 2)
    slope = float(weight @ ((sequences - mean) * (gap - mean_gap))) / spread if spread > 0 else 0.0
    pull = max(1 - slope * mean / mean_gap, 0.0) + count * mean_gap / think
    kept = math.sqrt(averaged_variance(pull))
    together = max(0.5 - max(pull - 1, 0.0) / 6, 0.2)
    common = together * pull / kept**2
    longer = cut.per_prompt * float(weight @ (step[:, 1] - step[:, 0]) / whole)
    starts = count * float(weight @ rides / whole) / cut.per_prompt
    cluster = float(weight @ clustering / whole)
    time = count * (mean_gap + kept * (gap - mean_gap))
    time = time + common * kept * (sequences - mean) * longer
    own = max(1 - together * common, 0.0) * cluster * starts
    many = time[:, None] + longer * (_spread_out(starts, own) - starts)
    left = float(weight @ variance / whole) * mean_gap**2
    return Stay(
        weight=np.repeat(weight / whole / many.shape[1], many.shape[1]),
        mean=many.ravel(),
        deviation=np.full(many.size, math.sqrt(left)),
    )


def _spread_out(mean: float, variance: float) -> Array:
    """Return quantiles of a number of requests: a gamma distribution, skewed as bursts are.

    >>> _spread_out(4.0, 4.0).round(1).tolist()[:3]
    [1.2, 1.7, 2.1]
    """
    from scipy.special import gammaincinv

    if mean <= 0 or variance <= 0:
        return np.full(1, mean)
    shape = mean**2 / variance
    quantiles = gammaincinv(shape, (np.arange(16) + 0.5) / 16) * variance / mean
    return np.asarray(quantiles * mean / quantiles.mean())


def first_tokens(found: Found, cut: Chunks) -> tuple[Array, Array]:
    """Return times to the first token and the share of requests that has each, (n, atoms) [s].

    The rest of the step that runs, then full steps while more than m chunks are ahead, then the
    step that reads the last chunk, with those in it that have come meanwhile.
    """
    share = found.weight.sum(axis=0)
    last = int(np.searchsorted(np.cumsum(share), (1 - RARE_BACKLOG) * share.sum())) + 1
    weight, step, come = (part[:, :last] for part in (found.weight, found.step, found.come))
    behind = np.maximum(np.arange(weight.shape[1]) - cut.most, 0)  # that the step does not read
    most = float(come.max(initial=0.0))
    count = np.arange(min(int(most + 5 * math.sqrt(most) + 4), 40))
    ahead_mean = np.maximum(come[..., None] * PLACES, 1e-12)[..., None]
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, max(len(count), 2))))])
    chance = np.exp(count * np.log(ahead_mean) - ahead_mean - log_factorial[: len(count)])
    chance[..., -1] += 1 - chance.sum(axis=-1)
    last_chunk = behind[:, None, None] + cut.per_prompt * (count + 1)  # of its own prompt
    full = -(-last_chunk // max(cut.most, 1)) - 1
    rest = last_chunk - full * cut.most
    steady = found.ladder[:, -1][:, None, None, None]
    later = come[..., None, None] * (1 - PLACES)[:, None]
    later = later + found.rate[:, None, None, None] * full * steady
    chunks = np.minimum(rest + cut.per_prompt * later, cut.most)
    below = np.minimum(chunks.astype(int), max(cut.most - 1, 0))
    rows = np.arange(len(weight))[:, None, None, None]
    low, high = found.ladder[rows, below], found.ladder[rows, np.minimum(below + 1, cut.most)]
    time = full * steady + low + (chunks - below) * (high - low)
    if not found.at_its_end:
        time = time + (step[..., None] * (1 - PLACES))[..., None]
    odds = weight[..., None, None] / len(PLACES) * chance
    return time.reshape(len(time), -1), odds.reshape(len(time), -1)


def _with_waits(time: Array, odds: Array, found: Found) -> tuple[Array, Array]:
    """Return the times with those of the requests that wait for a slot first."""
    time = time + found.front_end
    if found.sure_waits:
        longer = [time + wait for wait in found.sure_waits]
        share = [odds / len(longer)] * len(longer)
        return np.concatenate(longer, axis=1), np.concatenate(share, axis=1)
    if found.held < 1e-6:
        return time, odds
    longer = [time + found.wait * wait for wait in WAITS]
    share = [odds * found.held / len(WAITS)] * len(WAITS)
    return np.concatenate([time, *longer], 1), np.concatenate([odds * (1 - found.held), *share], 1)


def share_met(found: Found, stay: Stay, cut: Chunks, *, limits: Limits, output: int) -> float:
    """Return the share of requests that meet every limit."""
    from scipy.special import ndtr

    time, odds = _with_waits(*first_tokens(found, cut), found)
    odds = np.where(time <= limits.ttft, odds, 0.0) / found.weight.sum()
    left = np.full_like(time, limits.tpot * output)
    left = np.minimum(left, limits.e2e - time)
    # a request that finds n sequences sees about as many: those of the stay are matched by rank
    if not np.isfinite(left).any():
        return float(odds.sum())
    if math.isinf(limits.e2e):
        ok = stay.weight @ ndtr((limits.tpot * output - stay.mean) / _positive(stay.deviation))
        return float(odds.sum() * ok)
    ends, mass = _coarse(left, odds)
    ok = ndtr((ends[:, None] - stay.mean) / _positive(stay.deviation)) @ stay.weight
    return float(mass @ ok)


def _coarse(values: Array, weights: Array) -> tuple[Array, Array]:
    """Return at most 400 values with the same weight in all, each the mean of its neighbours."""
    kept = (weights > 0) & np.isfinite(values)
    value, weight = values[kept], weights[kept]
    order = np.argsort(value)
    value, weight = value[order], weight[order]
    total = float(weight.sum())
    if total == 0:
        return np.zeros(1), np.zeros(1)
    group = np.minimum((np.cumsum(weight) / total * 400).astype(int), 399)
    mass = np.bincount(group, weights=weight, minlength=400).astype(float)
    mean = np.bincount(group, weights=weight * value, minlength=400).astype(float)
    some = mass > 0
    return mean[some] / mass[some], mass[some]


def _positive(deviation: Array) -> Array:
    return np.maximum(deviation, 1e-12)


def latency(found: Found, stay: Stay, cut: Chunks, *, limits: Limits, output: int) -> Latency:
    """Return the times over requests, and the share of them that meets every limit."""
    from scipy.special import ndtr

    time, odds = _with_waits(*first_tokens(found, cut), found)
    first, mass = _coarse(time, odds)
    mass = mass / mass.sum()
    grid = np.linspace(-6, 6, 241)
    spread = stay.mean + _positive(stay.deviation) * grid[:, None]
    low, high = float(spread.min()), float(spread.max())
    ends = np.linspace(low, high, 2001)
    stays = ndtr((ends[:, None] - stay.mean) / _positive(stay.deviation)) @ stay.weight
    decode = float(np.interp(limits.share, stays, ends))
    points = np.diff(stays, prepend=0.0)
    both = first[:, None] + ends[None, ::10]
    pairs = mass[:, None] * points[: len(ends)].reshape(-1)[None, :].cumsum(axis=1)[:, ::10]
    pairs = np.diff(pairs, axis=1, prepend=0.0)
    answered = float(quantile(both.ravel(), pairs.ravel(), limits.share))
    none = math.isinf(min(limits.ttft, limits.tpot, limits.e2e))
    return Latency(
        share=limits.share,
        ttft=float(first @ mass),
        ttft_most=float(quantile(time.ravel(), odds.ravel(), limits.share)),
        tpot_most=decode / output,
        e2e_most=answered,
        met=math.nan if none else share_met(found, stay, cut, limits=limits, output=output),
    )
