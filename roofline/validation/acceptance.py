"""The prior of acceptance against published values, each drafter left out of what it learned from.

A drafter and its variants of one maker on the same model are left out together, and where one's
recipe is not stated, all of its kind on this model: it may be one of them. Every mean and
covariance is the rest's, and so is the scale of each kind, which the other drafters' misses set.
The scatters and the degrees of freedom of the tails stay those of all values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.curve import fill_gaps
from roofline.acceptance.prior import (
    BETWEEN_REQUESTS,
    KNOWN,
    SHAPES,
    Effects,
    Labels,
    acceptance_prior,
    bare_name,
    continued,
    count_weights,
    drawn_pairs,
    family_of,
    mean_weights,
    tokens_of_rates,
)
from roofline.advice.decide import smallest_within_tie
from roofline.calibrate.engine.spec_rows import SpecRow
from roofline.calibrate.fit.acceptance import (
    Posterior,
    Value,
    fit,
    load_values,
    scales,
    shape_of,
)
from roofline.calibrate.fit.core import score
from roofline.validation.advice import grouped_sweeps
from roofline.validation.steps import published_runs

__all__ = [
    "HIDDEN",
    "Continuation",
    "LeftOutValue",
    "PriorChoice",
    "acceptance_rows",
    "all_scales",
    "continuations",
    "forget",
    "left_out_rates",
    "left_out_values",
    "posteriors",
    "prior_sweeps",
    "sweep_labels",
    "without_labels",
]

Array = NDArray[np.float64]
#: Labels that are hidden, by what an asker knows of a drafter that nobody counted; the target's
#: family is always known, the set of prompts only with all else.
HIDDEN: Mapping[str, tuple[str, ...]] = {
    KNOWN[True, True]: (),
    KNOWN[False, True]: ("recipe", "dataset"),
    KNOWN[True, False]: ("domain", "dataset"),
    KNOWN[False, False]: ("recipe", "domain", "dataset"),
}
DEEPER = (3, 5, 7)  # draft lengths whose AL is scored
ENDS = 3  # where a curve that ends early ends
SAME = 0.006  # two AL that agree to here are one number
ROUNDS, REQUESTS = 100, 10  # passes that somebody counted
TIMES = 8  # simulated counts of each sweep
KIND_ROWS = 20  # a kind's own coverage is stated from here on


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOutValue:
    """A published AL, and what the prior says without its drafter."""

    id: str
    kind: str
    drafter: str
    source: str  # owner and repository, or the first word of its name
    known: str
    draft_length: int
    measured: float
    predicted: float
    low: float
    high: float
    below: float  # share of draws below the measured one

    @property
    def inside(self) -> bool:
        """Whether the 80 % range holds it."""
        return self.low <= self.measured <= self.high

    @property
    def normal_score(self) -> float:
        """Phi^-1 of the share of draws below."""
        return NormalDist().inv_cdf(min(max(self.below, 1e-3), 1 - 1e-3))


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuation:
    """AL at a draft length beyond the end of a curve, by the prior and by its last rate."""

    drafter: str
    draft_length: int
    measured: float
    predicted: float
    last_rate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PriorChoice:
    """One sweep: what advice by each acceptance loses, 1 - speed at its choice / at the best."""

    group: str
    name: str
    left_out: tuple[str, ...]
    best: int
    chosen: Mapping[str, int]
    regret: Mapping[str, float]

    def as_data(self) -> dict[str, Any]:
        """Return the sweep as JSON writes it."""
        return asdict(self)


@cache
def posteriors() -> dict[str, Posterior]:
    """Return the effects of each shape with the shipped scatters (some seconds)."""
    values = load_values()
    found = {}
    for part in acceptance_prior().parts:
        found[part.shape] = fit(
            values, shape=part.shape, spread=part.spread, noise=part.noise, iterations=8
        )
    return found


@cache
def _effects(shape: str, left_out: frozenset[str], *, scaled: bool = True) -> Effects:
    """Return what the product would hold without the drafters of some makers."""
    if scaled:
        return replace(_effects(shape, left_out, scaled=False), scales=all_scales(left_out))
    posterior = posteriors()[shape]
    gone = np.array([value.made in left_out for value in posterior.design.first])
    left = posterior.without(gone) if gone.any() else posterior
    return left.effects(scales={})


@cache
def _scores() -> dict[str, tuple[tuple[str, str, float], ...]]:
    """Return (kind, maker, z) of every value by what is known, with draws that no scale widens."""
    found = {}
    for known in HIDDEN:
        values = _left_out(known, scaled=False)
        found[known] = tuple((v.kind, v.drafter, v.normal_score) for v in values)
    return found


@cache
def all_scales(left_out: frozenset[str] = frozenset()) -> dict[str, dict[str, float]]:
    """Return the scales by what is known and by kind, without what some makers' drafters tell."""
    return {
        known: scales([score for score in found if score[1] not in left_out])
        for known, found in _scores().items()
    }


def forget() -> None:
    """Forget what was read, after the prior was written anew."""
    for cached in (posteriors, _effects, _scores, all_scales):
        cached.cache_clear()


def left_out_rates(
    labels: Labels, left_out: frozenset[str], depth: int, *, scaled: bool = True
) -> Array:
    """Return conditional acceptance by draw (draws, depth), for labels without a drafter."""
    effects = _effects(shape_of(labels.kind), left_out, scaled=scaled)
    mean, covariance = effects.bivariate(replace(labels, drafter=None))
    level, slope = drawn_pairs(mean=mean, covariance=covariance, tail=effects.tail)
    return SHAPES[effects.shape](level=level, slope=slope, depth=depth)


def _may_be(value: Value) -> frozenset[str]:
    """Return the makers whose drafters may be a value's own: of its kind, on its model."""
    return frozenset(
        other.made
        for other in posteriors()[shape_of(value.labels.kind)].design.first
        if other.labels.kind == value.labels.kind
        and other.model == value.model
        and (other.made == value.made or not (other.labels.recipe and value.labels.recipe))
    )


def without_labels(labels: Labels, unknown: Sequence[str]) -> Labels:
    """Return labels of which some are unknown."""
    hidden: dict[str, Any] = dict.fromkeys(unknown)
    return replace(labels, **hidden)


def left_out_values(known: str) -> Iterator[LeftOutValue]:
    """Yield every value with what the prior says of it without its drafter."""
    return _left_out(known, scaled=True)


def _left_out(known: str, *, scaled: bool) -> Iterator[LeftOutValue]:
    for posterior in posteriors().values():
        by_run: dict[tuple[str, ...], list[Value]] = {}
        for value in posterior.design.values:
            by_run.setdefault(value.run, []).append(value)
        for values in by_run.values():
            first = values[0]
            labels = without_labels(first.labels, HIDDEN[known])
            depth = max(value.draft_length for value in values)
            rates = left_out_rates(labels, _may_be(first), depth, scaled=scaled)
            tokens = tokens_of_rates(rates=rates)
            for value in values:
                drawn = tokens[:, value.draft_length]
                low, high = np.quantile(drawn, (0.1, 0.9))
                yield LeftOutValue(
                    id=value.id,
                    kind=value.labels.kind,
                    drafter=value.made,
                    source=value.source.split()[0],
                    known=known,
                    draft_length=value.draft_length,
                    measured=value.tokens_per_step,
                    predicted=float(drawn.mean()),
                    low=float(low),
                    high=float(high),
                    below=float((drawn < value.tokens_per_step).mean()),
                )


def continuations() -> list[Continuation]:
    """Return AL(5) and AL(7) of curves known at D = 1, 2 and 3, without their drafter."""
    found = []
    posterior = posteriors()["chain"]
    by_run: dict[tuple[str, ...], dict[int, Value]] = {}
    for value in posterior.design.values:
        by_run.setdefault(value.run, {})[value.draft_length] = value
    for curve in by_run.values():
        deeper = [d for d in DEEPER if d > ENDS and d in curve]
        if not deeper or not all(d in curve for d in range(1, ENDS + 1)):
            continue
        known = [1.0, *(curve[d].tokens_per_step for d in range(1, ENDS + 1))]
        rates = left_out_rates(curve[1].labels, _may_be(curve[1]), max(deeper))
        weights = mean_weights(
            tokens=tokens_of_rates(rates=rates),
            draft_length=list(range(1, ENDS + 1)),
            measured=known[1:],
            noise=posterior.noise,
        )
        whole = continued(rates=rates, weights=weights, known=known)
        survival = np.diff(known)
        last = min(survival[-1] / max(survival[-2], 1e-9), 1.0)
        for d in deeper:
            more = survival[-1] * sum(last**k for k in range(1, d - ENDS + 1))
            found.append(
                Continuation(
                    drafter=curve[1].drafter,
                    draft_length=d,
                    measured=curve[d].tokens_per_step,
                    predicted=float(whole[d]),
                    last_rate=float(known[-1] + more),
                )
            )
    return found


#: Kinds of published runs that the values call otherwise.
_KINDS = {"model": "draft_model"}


def sweep_labels(rows: Sequence[SpecRow]) -> tuple[Labels, frozenset[str]] | None:
    """Return the labels of a sweep, and the makers whose drafters are left out for it.

    The values that agree with its AL say which drafter it is; where none of these is of its very
    model, every drafter of this kind on it is left out as well, and without any, every one that was
    counted on a model of this family and size.
    """
    first = rows[0]
    kind = _KINDS.get(first.kind, first.kind)
    posterior = posteriors().get(shape_of(kind))
    if posterior is None or not any(v.labels.kind == kind for v in posterior.design.first):
        return None
    lengths = {
        row.draft_length: row.tokens_per_step or row.curve.get(row.draft_length, -1.0)
        for row in rows
    }
    alike = [
        v
        for v in posterior.design.values
        if v.labels.kind == kind and _size(v.target) == _size(first.model)
    ]
    same = [v for v in alike if abs(lengths.get(v.draft_length, -1.0) - v.tokens_per_step) < SAME]
    model = bare_name(first.model).replace("instruct", "")
    exact = [v for v in alike if v.model == model]
    if not any(v.model == model for v in same):
        same += exact
    recipes = {v.labels.recipe for v in same or alike}
    dataset = "".join(c for c in first.dataset.lower() if c.isalnum())
    labels = Labels(
        kind=kind,
        domain=_domain(first.dataset),
        recipe=recipes.pop() if len(recipes) == 1 else None,
        family=family_of(first.model),
        dataset=dataset,
    )
    return labels, frozenset(v.made for v in same or alike)


def _size(model: str) -> tuple[str, str]:
    """Return family and size in a model's name.

    >>> _size("qwen3.6-27b"), _size("Qwen3.8-27B")
    (('qwen', '27b'), ('qwen', '27b'))
    """
    found = re.search(r"-(\d+(?:\.\d+)?b)", model.lower())
    return family_of(model), found[1] if found else model.lower().rsplit("/", 1)[-1]


#: What the name of a sweep's prompts says of their domain, the first that fits.
_DOMAINS = {
    r"25 prompts|3 prompts|10 prompts|qualitative": "mixed",
    r"humaneval|livecodebench|coding|code|bash": "code",
    r"gsm8k|math": "math",
    r"mt-?bench|alpaca|sharegpt": "chat",
    r"gpqa|financeqa": "knowledge",
    r"prose|narrative": "creative",
}


def _domain(dataset: str) -> str | None:
    """Return the domain of a sweep's prompts, None where their name does not say.

    >>> _domain("P2 prose 400W"), _domain("")
    ('creative', None)
    """
    name = dataset.lower()
    return next((word for pattern, word in _DOMAINS.items() if re.search(pattern, name)), None)


def prior_sweeps() -> list[PriorChoice]:
    """Return every published sweep with what the prior chooses, its drafter left out."""
    published, found = published_runs(), []
    for pick, own in grouped_sweeps():
        rows = [published.rows[i] for i in pick]
        told = sweep_labels(rows)
        if told is None:
            continue
        labels, out = told
        ratio = np.array([1.0, *published.predicted.ratio[list(pick)]])
        found.append(_choice(rows, own, labels, out, ratio))
    return found


def _choice(
    rows: Sequence[SpecRow], own: bool, labels: Labels, out: frozenset[str], ratio: Array
) -> PriorChoice:
    first = rows[0]
    lengths = np.array([0, *(row.draft_length for row in rows)])
    speeds = np.array([first.base_speed or np.nan, *(row.speed or np.nan for row in rows)])
    measured = [row.tokens_per_step if own else row.curve[row.draft_length] for row in rows]
    curves: dict[str, Array] = {"own": np.array([1.0, *(al or np.nan for al in measured)])}
    depth = int(lengths.max())
    for known, unknown in HIDDEN.items():
        rates = left_out_rates(without_labels(labels, unknown), out, depth)
        curves[known] = tokens_of_rates(rates=rates).mean(axis=0)[lengths]
    start = 0 if first.base_speed else 1
    lengths, speeds, ratio = lengths[start:], speeds[start:], ratio[start:]
    best = int(np.nanargmax(speeds))
    chosen = {
        rule: int(smallest_within_tie(tokens[start:] / ratio)[0]) for rule, tokens in curves.items()
    }
    regret = {rule: float(1 - speeds[at] / speeds[best]) for rule, at in chosen.items()}
    true = _true_rates(lengths, curves["own"][start:])
    if true is not None:
        rates = left_out_rates(labels, out, len(true))
        regret["counted"] = _after_counting(
            true,
            rates,
            lengths,
            lambda tokens: float(1 - speeds[_pick(tokens, ratio)] / speeds[best]),
        )
    return PriorChoice(
        group=first.group,
        name=f"{first.model} {first.kind} {first.gpu} b{first.batch} {first.dataset}".strip(),
        left_out=tuple(sorted(out)),
        best=int(lengths[best]),
        chosen={rule: int(lengths[at]) for rule, at in chosen.items()},
        regret=regret,
    )


def _pick(tokens: Array, ratio: Array) -> int:
    return int(smallest_within_tie(tokens / ratio)[0])


def _true_rates(lengths: Array, own: Array) -> Array | None:
    """Return conditional rates of a sweep's own curve, filled between its lengths."""
    if not np.isfinite(own).all():
        return None
    full = fill_gaps({0: 1.0} | {int(d): float(al) for d, al in zip(lengths, own, strict=True)})
    survival = np.clip(np.diff([full[d] for d in sorted(full)]), 1e-3, 1.0)
    rates = survival / np.concatenate([[1.0], survival[:-1]])
    return np.asarray(np.clip(rates, 1e-3, 1 - 1e-3))


def _after_counting(
    true: Array, rates: Array, lengths: Array, loss: Callable[[Array], float]
) -> float:
    """Return the mean regret after ROUNDS passes from REQUESTS requests, counted by position.

    Each request moves the logit of the true rates by a normal number of standard deviation 0.45,
    and drafts as deep as the sweep's longest; the seed is fixed.
    """
    tokens = tokens_of_rates(rates=rates)[:, lengths.astype(int)]
    generator = np.random.default_rng(20261130)
    lost = []
    for _ in range(TIMES):
        moved = np.log(true / (1 - true)) + BETWEEN_REQUESTS * generator.normal(size=(REQUESTS, 1))
        chance = 1 / (1 + np.exp(-moved))
        drafted = generator.random((REQUESTS, ROUNDS // REQUESTS, len(true)))
        kept = np.cumprod(drafted < chance[:, None, :], axis=2).sum(axis=(0, 1))
        weights = count_weights(rates=rates, counts=[ROUNDS, *kept], requests=REQUESTS)
        lost.append(loss(weights @ tokens))
    return float(np.mean(lost))


def acceptance_rows() -> list[dict[str, Any]]:
    """Return every score: errors and coverage of values, continuations, and regrets of sweeps."""
    rows: list[dict[str, Any]] = []
    for known in HIDDEN:
        values = list(left_out_values(known))
        chains = [v for v in values if shape_of(v.kind) == "chain"]
        deep = [v for v in chains if v.draft_length in DEEPER]
        rows.append(_error_row("AL at D = 3, 5, 7", known, deep))
        rows.append(_cover_row("all", known, values))
        for kind in sorted({v.kind for v in values}):
            own = [v for v in values if v.kind == kind]
            if len(own) >= KIND_ROWS:
                rows.append(_cover_row(kind, known, own))
    every = continuations()
    for d in DEEPER[1:]:
        at = [c for c in every if c.draft_length == d]
        for rule in ("predicted", "last_rate"):
            errors = score(
                np.array([getattr(c, rule) for c in at]), np.array([c.measured for c in at])
            )
            rows.append(
                {
                    "suite": "acceptance",
                    "kind": f"AL({d}) of a curve known to D = {ENDS}",
                    "known": "by the prior" if rule == "predicted" else "by its last rate",
                    "n": len(at),
                    "median_abs_error": errors.median,
                    "p90_abs_error": errors.p90,
                }
            )
    return rows + _regret_rows(prior_sweeps())


def _error_row(kind: str, known: str, values: Sequence[LeftOutValue]) -> dict[str, Any]:
    errors = score(np.array([v.predicted for v in values]), np.array([v.measured for v in values]))
    return {
        "suite": "acceptance",
        "kind": kind,
        "known": known,
        "n": len(values),
        "median_abs_error": errors.median,
        "p90_abs_error": errors.p90,
        "bias": errors.bias,
    }


def _cover_row(kind: str, known: str, values: Sequence[LeftOutValue]) -> dict[str, Any]:
    return {
        "suite": "acceptance",
        "kind": f"80 % range, {kind}",
        "known": known,
        "n": len(values),
        "inside_share": float(np.mean([v.inside for v in values])),
    }


def _regret_rows(choices: Sequence[PriorChoice]) -> list[dict[str, Any]]:
    """Return the mean over groups, the worst group and the worst sweep, by what was known."""
    rows = []
    for rule in ("own", *HIDDEN, "counted"):
        groups: dict[str, list[float]] = {}
        for choice in choices:
            if rule in choice.regret:
                groups.setdefault(choice.group, []).append(choice.regret[rule])
        means = [float(np.mean(losses)) for losses in groups.values()]
        rows.append(
            {
                "suite": "acceptance",
                "kind": "regret",
                "known": rule,
                "n": sum(map(len, groups.values())),
                "groups": len(groups),
                "mean_regret": float(np.mean(means)),
                "sweep_mean_regret": float(np.mean([x for v in groups.values() for x in v])),
                "worst_group_regret": max(means),
                "worst_regret": max(x for v in groups.values() for x in v),
            }
        )
    return rows
