"""What a drafter is likely to yield before anyone has counted it: a prior of acceptance.

Two numbers of a drafter, level and slope, are jointly normal over kinds, domains, recipes,
families, drafters, data sets and runs (`acceptance_prior.yaml`, fitted by ``python -m
workshop.acceptance_prior``). A fixed set of draws turns them into tokens per step at every draft
length, and whatever somebody counted weighs the draws.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofline.base import resources
from roofline.base.schema import load_yaml

__all__ = [
    "BETWEEN_REQUESTS",
    "DRAWN",
    "KNOWN",
    "MISFIT",
    "OTHER_RUN",
    "SHAPES",
    "WARMEST",
    "Effects",
    "Labels",
    "Prior",
    "acceptance_prior",
    "bare_name",
    "beyond_trained_context",
    "chain_rates",
    "clustered_share",
    "continued",
    "count_weights",
    "drawn_pairs",
    "family_of",
    "logit",
    "lookup_rates",
    "lookup_shares",
    "mean_weights",
    "same_model",
    "tokens_of_rates",
    "weighted_quantiles",
]

Array = NDArray[np.float64]
#: What may be known beside a drafter's family, by whether its recipe (of a lookup, its data set)
#: and its domain are. The draws of each have a scale of their own.
KNOWN: Mapping[tuple[bool, bool], str] = {
    (True, True): "kind, domain, recipe",
    (False, True): "kind, domain",
    (True, False): "kind, recipe",
    (False, False): "kind",
}
#: Endings of a model's name that say how its weights are stored.
_STORAGE_SUFFIX = re.compile(r"(nvfp4|mxfp4|fp8|fp4|int8|int4|bf16|awq|gptq|gguf|dspark)$")
#: Pairs that stand for the prior.
DRAWN = 2048
#: No rate of a draw is nearer to 0 or 1, in logits.
STEEPEST = 30.0
#: Standard deviation of an acceptance rate between requests, in logits (public per-request counts).
BETWEEN_REQUESTS = 0.45
#: How far two numbers miss a counted curve, per position, in logits: more passes tell no more.
MISFIT = 0.08
#: The highest temperature of published runs; what is expected of a higher one is that of this.
WARMEST = 1.0
#: The same of tokens per step of another run, as ``logit((AL - 1) / D)``.
OTHER_RUN = 0.12


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """What is known of a drafter and its use; None is unknown, and its scatter is added.

    ``temperature`` is that of sampling; ``context`` and ``trained_context`` are in tokens.
    """

    kind: str
    domain: str | None = None
    recipe: str | None = None
    family: str | None = None
    drafter: str | None = None
    dataset: str | None = None
    temperature: float | None = None
    context: float | None = None
    trained_context: float | None = None


def logit(share: ArrayLike) -> Array:
    """Return log(p / (1 - p)).

    >>> float(logit(0.5))
    0.0
    """
    p = np.clip(np.asarray(share, dtype=float), 1e-6, 1 - 1e-6)
    return np.asarray(np.log(p / (1 - p)))


def _inverse_logit(x: Array) -> Array:
    share = np.asarray(np.clip(x, -STEEPEST, STEEPEST))  # and then in place: draws are many
    np.exp(np.negative(share, out=share), out=share)
    share += 1
    return np.asarray(np.reciprocal(share, out=share))


def chain_rates(*, level: ArrayLike, slope: ArrayLike, depth: int) -> Array:
    """Return conditional acceptance a_1 ... a_depth of a drafter that always drafts.

    logit a_i = L + B (ln i - ln 2), both in logits: L is the rate of the second draft. The result
    has one more axis than L and B, which broadcast.

    L = 0 and B = 0 is one draft in two:

    >>> chain_rates(level=0.0, slope=0.0, depth=3).tolist()
    [0.5, 0.5, 0.5]
    """
    position = np.log(np.arange(1, depth + 1) / 2)
    level, slope = np.asarray(level, dtype=float), np.asarray(slope, dtype=float)
    return _inverse_logit(level[..., None] + slope[..., None] * position)


def lookup_rates(*, level: ArrayLike, slope: ArrayLike, depth: int) -> Array:
    """Return conditional acceptance of a lookup: hit rate h, then the rate a of what it finds.

    a_1 = h a and a_i = a, with logit h = L and logit a = B: AL(D) = 1 + h (a + ... + a^D).

    >>> lookup_rates(level=0.0, slope=0.0, depth=3).tolist()
    [0.25, 0.5, 0.5]
    """
    level, slope = np.broadcast_arrays(np.asarray(level, float), np.asarray(slope, float))
    rates = np.repeat(_inverse_logit(slope)[..., None], depth, axis=-1)
    rates[..., 0] *= _inverse_logit(level)
    return rates


def lookup_shares(rates: Array) -> tuple[Array, Array]:
    """Return hit rate h and rate a of each draw of a lookup: a = a_2, h = a_1 / a.

    >>> drawn = lookup_rates(level=np.zeros(1), slope=np.zeros(1), depth=3)
    >>> [share.tolist() for share in lookup_shares(drawn)]
    [[0.5], [0.5]]
    """
    return np.asarray(rates[..., 0] / rates[..., 1]), rates[..., 1]


#: How a pair becomes rates, by the name that the file gives it.
SHAPES: Mapping[str, Callable[..., Array]] = {"chain": chain_rates, "lookup": lookup_rates}


def tokens_of_rates(*, rates: Array) -> Array:
    """Return AL(0 ... depth) = 1 + sum of prod a_j along the last axis.

    >>> tokens_of_rates(rates=np.array([0.8, 0.5])).round(2).tolist()
    [1.0, 1.8, 2.2]
    """
    tokens = np.empty((*rates.shape[:-1], rates.shape[-1] + 1))
    tokens[..., 0] = 0
    np.cumsum(np.cumprod(rates, axis=-1), axis=-1, out=tokens[..., 1:])
    tokens += 1
    return tokens


def beyond_trained_context(*, context: float | None, trained: float | None) -> float:
    """Return (ln(context / trained context))^2 beyond it, 0 inside it or where unknown.

    The fall is slow at first: a head whose logit((AL - 1) / 3) falls by 0.36, 0.94 and 3.2 at 2, 4
    and 8 times its shortest context (vllm-project/speculators pull 684, full attention) loses 0.5
    to 0.75 for each unit of the square at all of them, and 0.5 to 1.5 for each of the logarithm.

    >>> round(beyond_trained_context(context=8192, trained=2048), 4)  # (ln 4)^2
    1.9218
    """
    if not context or not trained or context <= trained:
        return 0.0
    return float(np.log(context / trained) ** 2)


def same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model, in whatever format its weights are stored.

    >>> same_model("Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B-FP8")
    True
    >>> same_model("Qwen3.8-27B UD-Q4_K_XL", "qwen3.8-27b-fp8")
    True
    >>> same_model("Qwen3-8B", "qwen3-14b")
    False
    """
    first, second = bare_name(one), bare_name(other)
    return first in second or second in first


def bare_name(name: str) -> str:
    """Return a name without owner, remarks, storage formats and hyphens.

    >>> bare_name("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8")
    'qwen3next80ba3binstruct'
    """
    word = re.split(r"[ ,(]", name.rsplit("/", 1)[-1].lower(), maxsplit=1)[0]
    parts = re.split(r"[-_]", word)
    while len(parts) > 1 and _STORAGE_SUFFIX.fullmatch(parts[-1]):
        parts.pop()
    return "".join(part for part in parts if part != "meta")


def family_of(model: str) -> str:
    """Return the family in a model's name: its first word, without its number.

    >>> family_of("Qwen/Qwen3.5-9B"), family_of("deepseek-v3"), family_of("gpt-oss-20b")
    ('qwen', 'deepseek', 'gpt')
    """
    word = model.rsplit("/", 1)[-1].lower().split("-")[0]
    found = re.match(r"[a-z]+", word)
    return found[0] if found else word


@cache
def _numbers() -> tuple[Array, Array, Array]:
    """Return two normal numbers and a uniform one of each draw, evenly spread (Richtmyer)."""
    steps = np.sqrt(np.array([[2.0], [3.0], [5.0]])) * np.arange(1, DRAWN + 1)
    uniform = np.clip((0.5 + steps) % 1, 1e-6, 1 - 1e-6)
    inverse = NormalDist().inv_cdf
    first, second = (np.array([inverse(u) for u in row]) for row in uniform[:2].tolist())
    return first, second, uniform[2]


@cache
def _radius(tail: int) -> Array:
    """Return sqrt(tail / chi-squared of ``tail`` degrees) of each draw; ``tail`` is even.

    With n = tail / 2 the distribution of x = chi-squared / 2 is 1 - exp(-x) T, T the sum of
    x^k / k! for k < n. Newton's method solves x - ln T = -ln(1 - u), which is convex, from above:
    x is below the right side plus the root of its first term, x^n / n!.
    """
    n = tail // 2
    wanted = -np.log1p(-_numbers()[2])
    x = wanted + (math.factorial(n) * wanted) ** (1 / n)
    step = x
    while np.abs(step / x).max() > 1e-13:
        term, total = np.ones(DRAWN), np.ones(DRAWN)
        for k in range(1, n):
            term = term * x / k
            total = total + term
        step = (x - np.log(total) - wanted) * total / term
        x = x - step
    return np.asarray(np.sqrt(n / x))


def drawn_pairs(*, mean: Array, covariance: Array, tail: int) -> tuple[Array, Array]:
    """Return DRAWN pairs (L, B) of a bivariate Student t, the same ones every time.

    x = m + sqrt(nu / chi2_nu) C^(1/2) z with z normal and nu = ``tail`` (even): some heads simply
    fail, so the tail is heavier than a normal one. The covariance is nu / (nu - 2) times C.

    >>> level, slope = drawn_pairs(mean=np.array([1.0, 0.0]), covariance=np.eye(2), tail=6)
    >>> level.shape, round(float(np.median(level)), 2), round(float(level.std()), 1)
    ((2048,), 1.0, 1.2)
    """
    first, second, _ = _numbers()
    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(2))
    z = _radius(tail) * np.stack([first, second])
    level, slope = mean[:, None] + root @ z
    return level, slope


def clustered_share(*, rounds: ArrayLike, per_request: ArrayLike, rate: ArrayLike) -> Array:
    """Return effective over counted passes, where passes of one request are alike.

    1 / (1 + (m - 1) rho + n a (1 - a) s^2): m passes a request, rho = sigma^2 a (1 - a) with sigma
    = 0.45 logits between requests, n passes in all; the last term is the misfit s = 0.08 of a curve
    of two numbers.

    Ten passes of one request at a = 0.5: rho = 0.0506, so 1 / (1 + 0.456 + 0.016).

    >>> round(float(clustered_share(rounds=10, per_request=10, rate=0.5)), 3)
    0.68
    """
    a, m = np.asarray(rate, dtype=float), np.asarray(per_request, dtype=float)
    variance = a * (1 - a)
    alike = np.maximum(m - 1, 0) * BETWEEN_REQUESTS**2 * variance
    return np.asarray(1 / (1 + alike + np.asarray(rounds) * variance * MISFIT**2))


def _normalised(logs: Array) -> Array:
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def count_weights(*, rates: Array, counts: ArrayLike, requests: float) -> Array:
    """Return the weight of each draw after counting accepted drafts by position.

    w = prod of Binomial(k_i | k_(i-1), a_i): k_0 = ``counts[0]`` passes drafted, k_i accepted draft
    i, of ``requests`` requests (`clustered_share`). ``rates`` is (draws, depth); weights sum to 1.
    Several counts, (counts, 1 + depth), give weights (counts, draws).

    Two draws, a = 0.5 and 0.9; 9 of 10 passes accept (ten requests): likelihoods 0.010 and 0.387.

    >>> drawn = np.array([[0.5], [0.9]])
    >>> count_weights(rates=drawn, counts=[10, 9], requests=10).round(3).tolist()
    [0.025, 0.975]
    """
    k = np.asarray(counts, dtype=float)
    tried, kept = k[..., :-1], k[..., 1:]
    a = np.clip(rates[:, : kept.shape[-1]], 1e-6, 1 - 1e-6)
    observed = (kept + 0.5) / (tried + 1)
    share = clustered_share(
        rounds=tried, per_request=np.maximum(tried / requests, 1), rate=observed
    )
    accepted, refused = share * kept, share * (tried - kept)
    return _normalised(accepted @ np.log(a).T + refused @ np.log(1 - a).T)


def mean_weights(
    *, tokens: Array, draft_length: ArrayLike, measured: ArrayLike, noise: float = OTHER_RUN
) -> Array:
    """Return the weight of each draw after tokens per step were measured at draft lengths.

    w = exp(-0.5 ((r - r_draw) / noise)^2), r = logit((AL - 1) / D), summed over the lengths; the
    noise is 0.12 logits for another run, 0.04 inside one run. ``tokens`` is AL(0 ...) by draw.

    >>> drawn = np.array([[1.0, 1.5], [1.0, 1.8]])
    >>> mean_weights(tokens=drawn, draft_length=1, measured=1.5).round(3).tolist()
    [1.0, 0.0]
    """
    lengths = np.atleast_1d(np.asarray(draft_length, dtype=int))
    target = logit((np.atleast_1d(np.asarray(measured, dtype=float)) - 1) / lengths)
    misses = logit((tokens[:, lengths] - 1) / lengths) - target
    return _normalised(-0.5 * ((misses / noise) ** 2).sum(axis=1))


def continued(*, rates: Array, weights: Array, known: Sequence[float]) -> Array:
    """Return AL(0 ... depth) of a curve that is known up to n = len(known) - 1, and ends there.

    ``known`` is AL(0), AL(1) ... AL(n). Beyond, AL(D) = AL(n) + S_n E[a_(n+1) + a_(n+1) a_(n+2) +
    ...] over the weighted draws, S_n = AL(n) - AL(n-1).

    Known 1, 1.8 and one draw of rates 0.5: S_1 = 0.8, so 1.8 + 0.4 and + 0.2.

    >>> continued(rates=np.full((1, 3), 0.5), weights=np.ones(1), known=[1, 1.8]).round(2).tolist()
    [1.0, 1.8, 2.2, 2.4]
    """
    n = len(known) - 1
    last = np.clip(known[n] - known[n - 1], 0.0, 1.0) if n else 1.0
    beyond = weights @ np.cumsum(np.cumprod(rates[:, n:], axis=1), axis=1)
    return np.concatenate([np.asarray(known, dtype=float), known[n] + last * beyond])


def weighted_quantiles(*, values: Array, weights: Array, shares: Sequence[float]) -> Array:
    """Return quantiles of each column of ``values`` (draws, columns): (shares, columns).

    >>> weighted_quantiles(values=np.array([[1.0], [2.0]]), weights=np.array([0.1, 0.9]),
    ...                    shares=[0.5]).tolist()
    [[2.0]]
    """
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    reached = np.cumsum(weights[order], axis=0)
    rows = [np.argmax(reached >= share - 1e-12, axis=0) for share in shares]
    return np.stack([np.take_along_axis(ordered, row[None], axis=0)[0] for row in rows])


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The fitted effects of all drafters of one shape.

    ``names`` are (group, level, parameter 0 or 1), jointly normal with ``mean`` and ``covariance``;
    ``spread`` is the 2 x 2 covariance of a group whose level is unknown; ``drafters`` is the sum of
    all that belongs to a drafter (mean, covariance); ``offsets`` are levels of L alone of data sets
    and of recipes in a domain: (mean, variance).
    """

    shape: str
    names: tuple[tuple[str, str, int], ...]
    mean: Array
    covariance: Array
    spread: Mapping[str, Array]
    drafters: Mapping[str, tuple[Array, Array]]
    offsets: Mapping[tuple[str, str], tuple[Array, Array]]
    tail: int
    noise: float  # of logit((AL - 1) / D) inside one run
    scales: Mapping[str, Mapping[str, float]]  # of the draws, by what is `KNOWN` and by kind
    recipes: Mapping[str, str]  # of kinds that have one recipe only

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of drafter that it was fitted on."""
        return tuple(level for group, level, p in self.names if group == "kind" and p == 0)

    def bivariate(self, labels: Labels) -> tuple[Array, Array]:
        """Return the mean (2,) and the covariance (2, 2) of (L, B) of a new run with these labels.

        The mean sums the known effects; the covariance is theirs plus that of every label that is
        unknown, and of the run.
        """
        at = {name: i for i, name in enumerate(self.names)}
        design, mean, covariance = np.zeros((2, len(at))), np.zeros(2), self.spread["run"].copy()
        known = self.drafters.get(labels.drafter or "")
        if known is not None:
            mean, covariance = mean + known[0], covariance + known[1]
        for group, level in self._levels(labels, known is not None):
            offset = self.offsets.get((group, level or ""))
            if (group, level, 0) in at:
                for parameter in (0, 1):
                    column = at.get((group, level or "", parameter))
                    if column is not None:
                        design[parameter, column] = 1.0
            elif offset is not None:
                mean, covariance = mean + offset[0], covariance + offset[1]
            else:
                covariance = covariance + self.spread.get(group, np.zeros((2, 2)))
        for group, amount in _covariates(labels):
            if (group, "", 0) in at:
                design[0, at[group, "", 0]] = amount
        mean = mean + design @ self.mean
        covariance = covariance + design @ self.covariance @ design.T
        return mean, covariance * self._scale(labels) ** 2

    def _scale(self, labels: Labels) -> float:
        recipe = labels.recipe or self.recipes.get(labels.kind)
        first = recipe if "recipe" in self.spread else labels.dataset
        known = KNOWN[bool(first), bool(labels.domain)]
        return self.scales.get(known, {}).get(labels.kind, 1.0)

    def _levels(self, labels: Labels, drafter_known: bool) -> list[tuple[str, str | None]]:
        """Return the level of each group, None where unknown."""
        kind, domain = labels.kind, labels.domain
        recipe = labels.recipe or self.recipes.get(kind)
        own = [
            ("kind", kind),
            ("recipe", recipe),
            ("recipe x kind", recipe and f"{recipe}|{kind}"),
            ("kind x family", labels.family and f"{kind}|{labels.family}"),
            ("drafter", None),
        ]
        use = [
            ("domain", domain),
            ("recipe x domain", recipe and domain and f"{recipe}|{domain}"),
            ("data set", labels.dataset),
        ]
        return use if drafter_known else own + use


def _covariates(labels: Labels) -> list[tuple[str, float]]:
    beyond = beyond_trained_context(context=labels.context, trained=labels.trained_context)
    warmth = 0.5 if labels.temperature is None else min(labels.temperature, WARMEST)
    return [("context", beyond), ("temperature", warmth - 0.5)]


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The effects of drafters that always draft, and of lookups."""

    parts: tuple[Effects, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that it answers for; others have to be measured."""
        return tuple(kind for part in self.parts for kind in part.kinds)

    def part(self, kind: str) -> Effects | None:
        """Return the effects of a kind, None where nothing public is known."""
        return next((part for part in self.parts if kind in part.kinds), None)

    def rates(self, labels: Labels, *, depth: int) -> Array | None:
        """Return conditional acceptance (draws, depth), None for a kind that it does not know."""
        part = self.part(labels.kind)
        if part is None:
            return None
        mean, covariance = part.bivariate(labels)
        level, slope = drawn_pairs(mean=mean, covariance=covariance, tail=part.tail)
        return SHAPES[part.shape](level=level, slope=slope, depth=depth)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Prior:
        """Read the prior as `acceptance_prior.yaml` writes it."""
        return cls(parts=tuple(_effects(name, part) for name, part in data["parts"].items()))


def _effects(shape: str, data: Mapping[str, Any]) -> Effects:
    names, means, deviations = [], [], []
    for group, levels in data["effects"].items():
        for level, numbers in _table(levels):
            for parameter, (mean, deviation) in enumerate(_pairs(numbers)):
                names.append((group, level, parameter))
                means.append(mean)
                deviations.append(deviation)
    below = np.tri(len(names), k=-1, dtype=bool)
    correlation = np.zeros(below.shape)
    correlation[below] = np.fromstring(data["correlations"], dtype=int, sep=" ") / 100
    correlation += correlation.T + np.eye(len(names))
    spread = np.array(deviations)
    return Effects(
        shape=shape,
        names=tuple(names),
        mean=np.array(means),
        covariance=correlation * np.outer(spread, spread),
        spread={group: _matrix(*numbers) for group, numbers in _table(data["spread"])},
        drafters={
            name: (np.array(numbers[:2]), _matrix(*numbers[2:]))
            for name, numbers in _table(data["drafters"])
        },
        offsets={
            (group, level): _offset(numbers)
            for group, levels in data["offsets"].items()
            for level, numbers in _table(levels)
        },
        tail=int(data["tail"]),
        noise=float(data["noise"]),
        scales=data["scales"],
        recipes=data["recipes"],
    )


def _table(text: str) -> Iterator[tuple[str, list[float]]]:
    """Yield name and numbers of each line.

    >>> list(_table("code: 0.5 1"))
    [('code', [0.5, 1.0])]
    """
    for line in text.splitlines():
        name, _, numbers = line.rpartition(": ")
        yield name, [float(number) for number in numbers.split()]


def _pairs(numbers: Sequence[float]) -> list[tuple[float, float]]:
    return [(numbers[i], numbers[i + 1]) for i in range(0, len(numbers), 2)]


def _offset(numbers: Sequence[float]) -> tuple[Array, Array]:
    """Return the mean and covariance of a level of L alone, or of both."""
    if len(numbers) == 2:
        return np.array([numbers[0], 0.0]), _matrix(numbers[1], 0.0, 0.0)
    return np.array(numbers[:2]), _matrix(*numbers[2:])


def _matrix(level: float, slope: float, correlation: float) -> Array:
    """Return a covariance from two standard deviations and their correlation."""
    between = level * slope * correlation
    return np.array([[level**2, between], [between, slope**2]])


@cache
def acceptance_prior() -> Prior:
    """Return the shipped prior."""
    text = resources.data_file("acceptance_prior.yaml")
    return Prior.from_data(load_yaml(text))
