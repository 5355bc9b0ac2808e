"""Acceptance that nobody measured: what the prior expects of a drafter, as joint draws.

A belief is the prior's draws of conditional rates with a weight for each. Everything that is known
weighs them: labels, published runs, counts, tokens per step. An acceptance holds their mean, and as
many evenly spread draws of them as the step times have, so that a range joins both errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofline.acceptance.curve import Acceptance, Definition, by_context, lookup_hit_rate
from roofline.acceptance.labels import DrafterLabels
from roofline.acceptance.prior import (
    OTHER_RUN,
    SHAPES,
    Labels,
    acceptance_prior,
    count_weights,
    drawn_pairs,
    lookup_shares,
    mean_weights,
    tokens_of_rates,
    weighted_quantiles,
)
from roofline.base.numbers import DRAWS, LONGEST_DRAFT, normal_draws

__all__ = ["Belief", "belief", "expected_acceptance", "found_share", "joined"]

Array = NDArray[np.float64]
#: The stream of draws that orders the joint draws of acceptance; those below belong to step times.
STREAM = 1200
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


@cache
def belief(candidates: tuple[Labels, ...]) -> Belief:
    """Return what the prior says of a drafter that is one of these.

    Of several, (L, B) is normal with the mean of theirs and the mean of their covariances, the
    covariance between them added.
    """
    part = acceptance_prior().part(candidates[0].kind)
    if part is None:
        raise KeyError(candidates[0].kind)
    each = [part.bivariate(labels) for labels in candidates]
    means = np.array([mean for mean, _ in each])
    mean = means.mean(axis=0)
    covariance = np.mean([cov for _, cov in each], axis=0)
    covariance = covariance + (means - mean).T @ (means - mean) / len(means)
    level, slope = drawn_pairs(mean=mean, covariance=covariance, tail=part.tail)
    rates = SHAPES[part.shape](level=level, slope=slope, depth=LONGEST_DRAFT)
    count = len(rates)
    return Belief(
        rates=rates,
        weights=np.full(count, 1 / count),
        shape=part.shape,
        noise=part.noise,
    )


def joined(belief: Belief, positions: NDArray[np.intp], mean: Array) -> Array:
    """Return AL in the joint draws, moved so that their mean is ``mean``; 1 <= AL <= 1 + D."""
    drawn = belief.tokens[positions]
    moved = drawn + (mean - drawn.mean(axis=0))
    return np.asarray(np.clip(moved, 1.0, 1.0 + np.arange(len(mean))))


def expected_acceptance(
    labels: DrafterLabels, *, contexts: Sequence[int], label: str, source: str
) -> Acceptance:
    """Return what the prior expects of a drafter at these contexts."""
    base = belief(labels.candidates)
    trained = labels.trained_context
    if trained is None or max(contexts) <= trained:
        return _acceptance(base, base.joint, label=label, source=source)
    parts = [
        (context, _acceptance(at, base.joint, label=label, source=source))
        for context in _nodes(trained, contexts)
        for at in [belief(labels.at_context(context))]
    ]
    return by_context(parts, label=label, source=source)


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
