"""Acceptance that nobody measured: what the prior expects of a drafter, as joint draws.

A belief is the prior's draws of conditional rates with a weight for each. Everything that is known
weighs them: labels, published runs, counts, tokens per step. An acceptance holds their mean, and as
many evenly spread draws of them as the step times have, so that a range joins both errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofline.acceptance.curve import Acceptance, Definition, by_context, gap_rate, lookup_hit_rate
from roofline.acceptance.labels import DrafterLabels
from roofline.acceptance.models import rounds_covariance
from roofline.acceptance.prior import (
    MISFIT,
    OTHER_RUN,
    SHAPES,
    Labels,
    acceptance_prior,
    beyond_trained_context,
    clustered_share,
    count_weights,
    drawn_pairs,
    logit,
    lookup_shares,
    mean_weights,
    tokens_of_rates,
    weighted_quantiles,
)
from roofline.base.numbers import DRAWS, LONGEST_DRAFT, normal_draws

__all__ = [
    "Belief",
    "Moved",
    "Pull",
    "belief",
    "belief_at",
    "belief_of_draws",
    "expected_acceptance",
    "found_draws",
    "found_share",
    "joined",
    "largest_pull",
    "learned",
    "of_another_run",
    "weight_of_count",
]

Array = NDArray[np.float64]
#: The stream of draws that orders the joint draws of acceptance; those below belong to step times.
STREAM = 1290
#: The stream that orders the draws of hit rates.
FOUND = 1291
#: The first stream of sampling errors, one for each position.
SAMPLING = 1200
#: The first of two streams of the scatter between runs.
SCATTER = 1280
#: The draft length whose AL orders them: most public curves and answers lie around it.
ORDERED_AT = 4
#: Steps of contexts beyond the trained one between which AL is interpolated: four to a doubling.
NODES_TO_A_DOUBLING = 4
#: Fewer draws than this, by their weights, stand for nothing: the noise is raised until so many do.
FEWEST = 24.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """Draws of conditional rates, (draws, positions), with the weight of each."""

    rates: Array
    weights: Array
    shape: str  # of the kind: a chain or a lookup
    noise: float  # of logit((AL - 1) / D) inside one run

    @cached_property
    def tokens(self) -> Array:
        """AL by draw, (draws, D = 0 ...)."""
        return tokens_of_rates(rates=self.rates)

    @cached_property
    def mean(self) -> Array:
        """The expected AL(0 ...)."""
        return np.asarray(self.weights @ self.tokens)

    def quantiles(self, shares: Sequence[float]) -> Array:
        """Return quantiles of AL(0 ...), (shares, D = 0 ...)."""
        return weighted_quantiles(values=self.tokens, weights=self.weights, shares=shares)

    def after_counts(self, counts: Sequence[float], *, requests: float) -> Belief:
        """Return the belief after accepted drafts were counted by position (`count_weights`)."""
        return self._weighed(count_weights(rates=self.rates, counts=counts, requests=requests))

    def after_tokens(
        self, draft_lengths: ArrayLike, measured: ArrayLike, *, noise: float = OTHER_RUN
    ) -> Belief:
        """Return the belief after AL was measured at draft lengths (`mean_weights`).

        The noise is raised where next to no draw comes near.
        """
        while True:
            weights = mean_weights(
                tokens=self.tokens, draft_length=draft_lengths, measured=measured, noise=noise
            )
            after = self._weighed(weights)
            if noise > 4 or 1 / float((after.weights**2).sum()) >= FEWEST:
                return after
            noise *= 1.5

    def with_hit_rate(self, share: float) -> Belief:
        """Return the belief of a lookup that finds a draft in this share of the passes."""
        rates = self.rates.copy()
        rates[:, 0] = share * lookup_shares(rates)[1]
        return replace(self, rates=rates)

    def _weighed(self, weights: Array) -> Belief:
        product = self.weights * weights
        return replace(self, weights=product / product.sum())

    @cached_property
    def joint(self) -> NDArray[np.intp]:
        """The DRAWS draws that stand for all, evenly spread by their AL, in the order of a stream.

        Draw n of the step times meets the draw at the quantile of its rank in the stream.
        """
        order = np.argsort(self.tokens[:, ORDERED_AT], kind="stable")
        reached = np.cumsum(self.weights[order])
        rank = np.argsort(np.argsort(normal_draws(STREAM)))
        at = np.searchsorted(reached, (rank + 0.5) / DRAWS * reached[-1])
        return np.asarray(order[np.minimum(at, len(order) - 1)])


class Moved(NamedTuple):
    """What moves the level L of a drafter beside its labels, and by how much that may be off."""

    shift: float = 0.0  # [logits]
    width: float = 0.0  # standard deviation [logits]


UNMOVED = Moved()


@cache
def belief(candidates: tuple[Labels, ...], moved: Moved = UNMOVED) -> Belief:
    """Return what the prior says of a drafter that is one of these.

    Of several, (L, B) is normal with the mean of theirs and the mean of their covariances, the
    covariance between them added. ``moved`` adds to the mean of L, and its square to the variance.
    """
    part = acceptance_prior().part(candidates[0].kind)
    if part is None:
        raise KeyError(candidates[0].kind)
    each = [part.bivariate(labels) for labels in candidates]
    means = np.array([mean for mean, _ in each])
    mean = means.mean(axis=0)
    covariance = np.mean([cov for _, cov in each], axis=0)
    covariance = covariance + (means - mean).T @ (means - mean) / len(means)
    mean = mean + np.array([moved.shift, 0.0])
    covariance = covariance + np.diag([moved.width**2, 0.0])
    level, slope = drawn_pairs(mean=mean, covariance=covariance, tail=part.tail)
    rates = SHAPES[part.shape](level=level, slope=slope, depth=LONGEST_DRAFT)
    return belief_of_draws(rates, shape=part.shape, noise=part.noise)


def belief_of_draws(rates: Array, *, shape: str = "chain", noise: float = OTHER_RUN) -> Belief:
    """Return the belief of draws that weigh alike."""
    count = len(rates)
    return Belief(rates=rates, weights=np.full(count, 1 / count), shape=shape, noise=noise)


def joined(belief: Belief, positions: NDArray[np.intp], mean: Array) -> Array:
    """Return AL in the joint draws, moved so that their mean is ``mean``; 1 <= AL <= 1 + D."""
    return _moved(belief.tokens[positions], mean)


def expected_acceptance(
    labels: DrafterLabels,
    *,
    contexts: Sequence[int],
    label: str,
    source: str,
    moved: Moved = UNMOVED,
    beyond: float = 0.0,
    hit_rate: float | None = None,
    longest: int | None = None,
) -> Acceptance:
    """Return what the prior expects of a drafter at these contexts.

    ``beyond`` is how far the fall may be off at e times the trained context [logits]; ``hit_rate``
    the share of passes in which a lookup finds a draft, where it is known. Beyond ``longest``, the
    longest draft that was published of such lookups, AL stays: one rate at every position, of
    which runs of five drafts cannot tell 0.9 from 0.99, would promise more with each further draft.
    """
    base = belief(labels.candidates, moved)
    if hit_rate is not None and base.shape == "lookup":
        base = base.with_hit_rate(hit_rate)
    trained = labels.trained_context
    if trained is None or max(contexts) <= trained:
        expected = _acceptance(base, base.joint, label=label, source=source)
        return expected if longest is None else _held(expected, longest)
    parts = [
        (context, _acceptance(at, base.joint, label=label, source=source))
        for context in _nodes(trained, contexts)
        for at in [belief_at(labels, context, moved=moved, beyond=beyond)]
    ]
    return by_context(parts, label=label, source=source)


def belief_at(
    labels: DrafterLabels, context: float, *, moved: Moved = UNMOVED, beyond: float = 0.0
) -> Belief:
    """Return what the prior says of a drafter at a context [tokens] (`expected_acceptance`)."""
    past = beyond_trained_context(context=context, trained=labels.trained_context)
    if not past:
        return belief(labels.candidates, moved)
    apart = beyond * past
    width = float(np.hypot(moved.width, apart))
    return belief(labels.at_context(context), Moved(shift=moved.shift, width=width))


def _nodes(trained: float, contexts: Sequence[int]) -> list[int]:
    """Return the contexts around these: the trained one, and steps beyond it."""
    beyond = np.log2(np.maximum(np.asarray(contexts, dtype=float), trained) / trained)
    steps = beyond * NODES_TO_A_DOUBLING
    needed = {0, *np.floor(steps).astype(int).tolist(), *np.ceil(steps).astype(int).tolist()}
    return sorted({round(trained * 2 ** (step / NODES_TO_A_DOUBLING)) for step in needed})


def _acceptance(
    belief: Belief, positions: NDArray[np.intp], *, label: str, source: str
) -> Acceptance:
    mean = belief.mean
    return Acceptance(
        table={d: float(al) for d, al in enumerate(mean)},
        label=label,
        source=source,
        definition=Definition.EXPECTED,
        unknown=True,
        draws=joined(belief, positions, mean),
    )


def _held(curve: Acceptance, longest: int) -> Acceptance:
    """Return a curve whose AL stays from ``longest`` on."""
    at = np.minimum(np.arange(curve.deepest + 1), longest)
    table = {d: curve.table[int(held)] for d, held in enumerate(at)}
    return replace(curve, table=table, draws=None if curve.draws is None else curve.draws[:, at])


def learned(
    curve: Acceptance,
    belief: Belief,
    *,
    rounds: float | None,
    requests: float,
    longest: int | None = None,
) -> Acceptance:
    """Return a curve that was given, with what the prior adds: gaps, its end, and few counts.

    Without ``rounds`` the numbers stand as given; counted over ``rounds`` passes of ``requests``
    requests they are drawn to the prior by as much as they leave open. Gaps and longer drafts come
    from the draws that the numbers leave, and carry their spread. A rate that is said to hold at
    every position stays as it is, and so do drafts that ended early, which tell nothing of longer
    ones. AL stays from ``longest`` on, the longest draft that was published of such drafters, or
    from the last given length where that is longer (`expected_acceptance`).
    """
    if curve.unlimited or curve.early_stops or curve.unknown:
        return curve
    if curve.contexts:
        parts = [
            (context, learned(part, belief, rounds=rounds, requests=requests, longest=longest))
            for context, part in curve.contexts
        ]
        return replace(
            by_context(parts, label=curve.label, source=curve.source),
            targets=curve.targets,
            notices=curve.notices,
        )
    measured = {d: al for d, al in curve.measured.items() if 0 < d <= LONGEST_DRAFT}
    if not measured:
        return curve
    if rounds is not None and _by_position(measured):
        mean, drawn = _counted(measured, belief, rounds, requests)
    else:
        mean, drawn = _bridged(measured, belief, rounds, requests)
    other = curve.other_reading
    made = replace(
        curve,
        table={d: float(al) for d, al in enumerate(mean)},
        continued_from=max(measured),
        given=measured,
        draws=drawn,
        other_reading=other
        and learned(other, belief, rounds=rounds, requests=requests, longest=longest),
    )
    return made if longest is None else _held(made, max(longest, *measured))


def _by_position(measured: Mapping[int, float]) -> bool:
    """Return whether AL is known at every length from 1 on, with survival that never rises."""
    gains = np.diff([1.0, *measured.values()], prepend=0.0)
    return list(measured) == list(range(1, len(measured) + 1)) and bool(
        (np.diff(gains[1:], prepend=1.0) <= 0).all() and gains.min() >= 0
    )


def weight_of_count(
    curve: Acceptance, belief: Belief, *, rounds: float, requests: float
) -> tuple[float, float] | None:
    """Return the least and the largest weight of a count beside the prior (`learned`).

    By position it is n_i / (n_i + m_i) of its conditional rates (`_counted`), by draft length that
    of the inverse squares of both errors (`_bridged`). None where the two are not joined.
    """
    found = list[float]()
    for part in curve.parts:
        given = {d: al for d, al in part.given.items() if 0 < d <= LONGEST_DRAFT}
        if not given:
            continue
        if _by_position(given):
            passes, worth, _ = _worth(given, rounds, requests)
            found += (passes / (passes + worth)).tolist()
        else:
            own = 1 / _error_of_logit(given, rounds, requests) ** 2
            found += (own / (own + 1 / belief.noise**2)).tolist()
    return (min(found), max(found)) if found else None


class Pull(NamedTuple):
    """How far the prior has drawn AL at a draft length from what was counted."""

    draft_length: int
    counted: float
    taken: float


def largest_pull(curve: Acceptance, *, rounds: float, requests: float) -> Pull | None:
    """Return the pull that exceeds the sampling error of its count by most; None where none does.

    Pull and error are those of logit((AL - 1) / D).
    """
    found = list[tuple[float, Pull]]()
    for part in curve.parts:
        given = {d: al for d, al in part.given.items() if 0 < d <= LONGEST_DRAFT}
        errors = _error_of_logit(given, rounds, requests)
        for (length, counted), error in zip(given.items(), errors, strict=True):
            taken = part.table[length]
            shares = np.clip((np.array([counted, taken]) - 1) / length, 1e-3, 1 - 1e-3)
            apart = float(np.abs(np.diff(logit(shares)))[0]) / float(error)
            found.append((apart, Pull(draft_length=length, counted=counted, taken=taken)))
    apart, pull = max(found, default=(0.0, None))
    return pull if apart > 1 else None


def of_another_run(curve: Acceptance, kind: str, *, another_model: bool) -> Acceptance:
    """Return a published curve with the spread that one's own run has around it.

    In each draw logit a_i moves by e_L + e_B (ln i - ln 2); (e_L, e_B) is normal with the scatter
    of runs that the prior was fitted with, and of drafters where the curve is ``another_model``'s.
    """
    part = acceptance_prior().part(kind)
    if part is None or not curve.uncertain:
        return curve
    if curve.contexts:
        parts = [
            (context, of_another_run(each, kind, another_model=another_model))
            for context, each in curve.contexts
        ]
        return replace(curve, contexts=tuple(parts), draws=parts[0][1].draws)
    groups = ("run", "drafter") if another_model else ("run",)
    covariance = np.sum([part.spread[group] for group in groups], axis=0)
    moves = np.linalg.cholesky(covariance + 1e-9 * np.eye(2)) @ np.stack(
        [normal_draws(SCATTER), normal_draws(SCATTER + 1)]
    )
    mean = curve.tokens_per_step(range(max(curve.table) + 1))
    gains = np.clip(np.diff(curve.drawn(len(mean) - 1), axis=1), 1e-9, 1.0)
    survival = np.minimum.accumulate(gains, axis=1)
    before = np.concatenate([np.ones((DRAWS, 1)), survival[:, :-1]], axis=1)
    position = np.log(np.arange(1, len(mean)) / 2)
    moved = logit(survival / before) + moves[0][:, None] + moves[1][:, None] * position
    rates = 1 / (1 + np.exp(-moved))
    return replace(curve, draws=_moved(tokens_of_rates(rates=rates), mean))


def _counted(
    measured: Mapping[int, float], belief: Belief, rounds: float, requests: float
) -> tuple[Array, Array]:
    """Return the mean and the draws of AL after accepted drafts were counted by position.

    a_i = (n_i o_i + m_i p_i) / (n_i + m_i): o_i counted over n_i effective passes
    (`clustered_share`), p_i of the draws that the counts leave, and m_i = 1 / (a (1 - a) s^2) what
    those are worth, s = 0.08 logits being the misfit of a curve of two numbers.
    """
    survival = np.diff([1.0, *measured.values()])
    before = np.concatenate([[1.0], survival[:-1]])
    after = belief.after_counts([rounds, *(rounds * survival)], requests=requests)
    count = len(survival)
    observed = np.divide(survival, before, out=np.zeros(count), where=before > 0)
    passes, worth, variance = _worth(measured, rounds, requests)
    expected = _expected_rates(after)
    rates = expected.copy()
    rates[:count] = (passes * observed + worth * expected[:count]) / (passes + worth)
    mean = tokens_of_rates(rates=rates)
    drawn = after.rates[after.joint].copy()
    noise = np.sqrt(variance / (passes + worth)) * _sampling(count).T
    drawn[:, :count] = (passes * observed + worth * drawn[:, :count]) / (passes + worth) + noise
    return mean, _moved(tokens_of_rates(rates=np.clip(drawn, 0, 1)), mean)


def _worth(
    measured: Mapping[int, float], rounds: float, requests: float
) -> tuple[Array, Array, Array]:
    """Return n_i, m_i and a (1 - a) of a count by position (`_counted`)."""
    survival = np.diff([1.0, *measured.values()])
    tried = rounds * np.concatenate([[1.0], survival[:-1]])
    smooth = (rounds * survival + 0.5) / (tried + 1)
    passes = tried * clustered_share(
        rounds=0, per_request=np.maximum(tried / requests, 1), rate=smooth
    )
    variance = smooth * (1 - smooth)
    return passes, 1 / (variance * MISFIT**2), variance


def _bridged(
    measured: Mapping[int, float], belief: Belief, rounds: float | None, requests: float
) -> tuple[Array, Array]:
    """Return the mean and the draws of AL that meet what was measured at some draft lengths.

    Inside a gap AL grows as in the draws that the numbers leave, by the measured gain in all;
    beyond the last length AL(D) = AL(n) + S_n (a_(n+1) + a_(n+1) a_(n+2) + ...). Over a count of
    ``rounds`` a measured r = logit((AL - 1) / D) is drawn to that of the draws by the inverse
    squares of both errors.
    """
    lengths, values = list(measured), np.array(list(measured.values()))
    steps = np.array(lengths)
    error = np.zeros(len(lengths))
    if rounds is not None:
        error = _error_of_logit(measured, rounds, requests)
    noise = float(np.hypot(belief.noise, error.mean()))
    after = belief.after_tokens(lengths, values, noise=noise)
    means, draws = after.mean[None], after.tokens[after.joint]
    met, drawn_met = values[None], values[None]
    if rounds is not None:
        own, other = 1 / error**2, 1 / belief.noise**2
        observed = own * logit((values - 1) / steps)
        pulled, drawn_pulled = (
            (observed + other * logit((tokens[:, lengths] - 1) / steps)) / (own + other)
            for tokens in (means, draws)
        )
        drawn_pulled = drawn_pulled + _sampling(1).T / np.sqrt(own + other)
        met, drawn_met = (1 + steps / (1 + np.exp(-each)) for each in (pulled, drawn_pulled))
    expected, picked = _expected_rates(after)[None], after.rates[after.joint]
    last = lengths[-1]
    beyond = after.weights @ np.cumsum(np.cumprod(after.rates[:, last:], axis=1), axis=1)
    own = np.cumsum(np.cumprod(picked[:, last:], axis=1), axis=1)
    if belief.shape == "lookup" and lengths[:2] == [1, 2]:
        further = np.arange(1, LONGEST_DRAFT - last + 1)
        shown = logit(lookup_rate(survival=np.diff([1.0, *values]), steps=np.diff([0, *lengths])))
        moved = shown + belief.noise * _sampling(1)[0][:, None]
        beyond = np.cumsum((1 / (1 + np.exp(-shown))) ** further)
        own = np.cumsum((1 / (1 + np.exp(-moved))) ** further, axis=1)
    mean = np.concatenate(_through(lengths, met, expected, beyond[None]), axis=1)[0]
    drawn = np.concatenate(_through(lengths, drawn_met, picked, own), axis=1)
    return mean, _moved(drawn, mean)


def lookup_rate(*, survival: ArrayLike, steps: ArrayLike) -> float:
    """Return the one rate a of a lookup's drafts after the first, from gains of AL.

    A lookup accepts every draft but the first with the same rate (`lookup_rates`), so a_2 of the
    counts stands for all: a = (S_n / S_1)^(1 / (n - 1)). ``survival`` are gains of AL, S_1 first,
    each over ``steps`` positions.

    >>> round(lookup_rate(survival=[0.69, 0.39, 0.23], steps=[1, 1, 1]), 3)  # (0.23 / 0.69)^(1/2)
    0.577
    """
    gains, width = np.asarray(survival, dtype=float), np.asarray(steps, dtype=float)
    middle = np.cumsum(width) - (width - 1) / 2
    if gains[0] <= 0:
        return 0.0
    ratio = float(np.clip(gains[-1] / width[-1] / gains[0], 0.0, 1.0))
    return float(ratio ** (1 / (middle[-1] - middle[0])))


def _expected_rates(belief: Belief) -> Array:
    """Return a_i of the expected curve: E[S_i] / E[S_(i-1)]."""
    reached = belief.weights @ np.cumprod(belief.rates, axis=1)
    return np.asarray(reached / np.concatenate([[1.0], reached[:-1]]))


def _through(
    lengths: Sequence[int], values: Array, rates: Array, beyond: Array
) -> tuple[Array, Array]:
    """Return AL(0 ... n) by draw that meets ``values`` at ``lengths``, and AL beyond n.

    In a gap between known lengths the rates of the draw are moved by one number of logits so that
    the gain of AL is met. ``beyond`` is a_(n+1) + a_(n+1) a_(n+2) + ..., by draw and length. All
    have a row for each draw.

    Rates 0.5 throughout and AL(2) = 1.96: a + a^2 = 0.96, so 0.6; then S_2 = 0.36 goes on.

    >>> known, more = _through([2], np.array([[1.96]]), np.full((1, 2), 0.5), np.array([[0.5]]))
    >>> known.round(3).tolist(), more.round(3).tolist()
    ([[1.0, 1.6, 1.96]], [[2.14]])
    """
    rows = max(len(values), len(rates))
    made, survival, first = np.ones((rows, lengths[-1] + 1)), np.ones(rows), 0
    for position, length in enumerate(lengths):
        reached = np.broadcast_to(values[:, position], survival.shape)
        gain = reached - made[:, first]
        if length == first + 1:
            survival = np.minimum(survival, np.maximum(gain, 0.0))
        else:
            chained = _chained_to(gain, survival, logit(rates[:, first:length]))
            made[:, first + 1 : length] = made[:, [first]] + np.cumsum(chained, axis=1)[:, :-1]
            survival = chained[:, -1]
        made[:, length] = reached
        first = length
    return made, made[:, [-1]] + survival[:, None] * beyond


def _chained_to(gain: Array, survival: Array, logits: Array) -> Array:
    """Return survival at each position of a gap whose sum is ``gain``, by bisection over a shift.

    A gain below 0 leaves nothing, one above the number of positions leaves everything.
    """
    low, high = np.full(len(gain), -60.0), np.full(len(gain), 60.0)
    for _ in range(60):
        shift = (low + high) / 2
        chained = survival[:, None] * np.cumprod(
            1 / (1 + np.exp(-(logits + shift[:, None]))), axis=1
        )
        short = chained.sum(axis=1) < gain
        low, high = np.where(short, shift, low), np.where(short, high, shift)
    return np.asarray(chained)


def _error_of_logit(measured: Mapping[int, float], rounds: float, requests: float) -> Array:
    """Return the sampling error of logit((AL - 1) / D) over a count, by draft length."""
    found = []
    for length, tokens in measured.items():
        share = float(np.clip((tokens - 1) / length, 1e-3, 1 - 1e-3))
        rate = float(gap_rate(gain=tokens - 1, survival=1.0, steps=length))
        survival = np.cumprod(np.full(length, rate))
        alike = clustered_share(rounds=0, per_request=max(rounds / requests, 1), rate=share)
        variance = max(float(rounds_covariance(survival)[-1, -1]), 0.0)
        error = np.sqrt(variance / (rounds * float(alike))) / length
        found.append(error / (share * (1 - share)))
    return np.asarray(np.maximum(np.array(found), 1e-9))


def _sampling(count: int) -> Array:
    """Return standard normal numbers of sampling errors, (positions, DRAWS)."""
    return np.stack([normal_draws(SAMPLING + i) for i in range(count)])


def _moved(drawn: Array, mean: Array) -> Array:
    """Return draws of AL, moved so that their mean is ``mean``; 1 <= AL <= 1 + D."""
    moved = drawn + (mean - drawn.mean(axis=0))
    return np.asarray(np.clip(moved, 1.0, 1.0 + np.arange(len(mean))))


def found_draws(belief: Belief) -> Array:
    """Return the share of passes in which a lookup drafts, in the joint draws."""
    found, _ = lookup_shares(belief.rates)
    order = np.argsort(found, kind="stable")
    rank = np.argsort(np.argsort(normal_draws(FOUND)))
    at = np.searchsorted(np.cumsum(belief.weights[order]), (rank + 0.5) / DRAWS)
    return np.asarray(found[order[np.minimum(at, len(order) - 1)]])


def found_share(belief: Belief, acceptance: Acceptance) -> float:
    """Return the share of passes in which a lookup finds a draft: the expected hit rate.

    Where tokens per step are known they weigh the draws, and h = S_1 / a with a of the draws.
    """
    found, accepted = lookup_shares(belief.rates)
    if acceptance.unknown:
        return float(belief.weights @ found)
    measured = {d: al for d, al in acceptance.measured.items() if 0 < d <= LONGEST_DRAFT}
    after = belief.after_tokens(list(measured), list(measured.values())) if measured else belief
    first = float(acceptance.tokens_per_step([1])[0]) - 1
    return lookup_hit_rate(first=first, first_accepted=float(after.weights @ accepted))
