"""The fit of the prior of acceptance: a mixed model of published tokens per step.

    logit a_i = L + B (ln i - ln 2),  (L, B) = sum of the effects of the value's labels + run
    observed: r = logit((AL - 1) / D) with normal noise; a residual beyond three of it counts less

Kinds, trained context and temperature have stated priors; every other label is random, with a
(co)variance by expectation-maximisation around Gauss-Newton. Drafters and runs have a Student t
with 5 degrees of freedom, since some heads simply fail. Runs are integrated out. A prior of this
form, without the tails, was fitted before: it scored 1.5 % regret where kind, domain and recipe are
known.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.prior import (
    SHAPES,
    Effects,
    Labels,
    bare_name,
    beyond_trained_context,
    family_of,
    logit,
    tokens_of_rates,
)
from roofline.acceptance.values import value_rows

__all__ = [
    "GROUPS",
    "LOOKUPS",
    "Posterior",
    "Value",
    "as_data",
    "fit",
    "load_values",
    "scales",
    "shape_of",
]

Array = NDArray[np.float64]
Covariances = Mapping[str, Array]
#: Kinds that look drafts up in text that stands already.
LOOKUPS = ("ngram", "suffix")
#: Recipes that say nothing, and the one of kinds that nobody trains for a target.
UNSTATED = ("", "not stated", "no training")
OWN_RECIPE = {"mtp": "production", "draft_model": "draft model"}
#: Beyond this context [tokens] a value counts only where the drafter's trained context is known.
LONG_CONTEXT = 4096
#: Kinds that are trained on contexts as long as their target's, or not at all.
AS_LONG_AS_TARGET = ("mtp", "draft_model", *LOOKUPS)
#: Degrees of freedom of the groups with heavy tails and of runs, and of what is drawn.
TAIL, DRAWN_TAIL = 5.0, 6
HEAVY = ("drafter", "data set")
#: Residuals beyond this many standard deviations count less (Huber).
ROBUST = 3.0
ITERATIONS = 60
#: Groups whose levels are random: numbers of a level, and where the iteration starts [logits].
GROUPS: Mapping[str, Mapping[str, tuple[int, float, float]]] = {
    "chain": {
        "domain": (2, 0.22, 0.10),
        "recipe": (2, 0.22, 0.14),
        "recipe x kind": (2, 0.14, 0.10),
        "kind x family": (2, 0.24, 0.32),
        "drafter": (2, 0.22, 0.14),
        "recipe x domain": (1, 0.22, 0.0),
        "data set": (1, 0.22, 0.0),
    },
    "lookup": {
        "domain": (2, 0.4, 0.2),
        "kind x family": (2, 0.2, 0.2),
        "drafter": (2, 0.2, 0.2),
        "data set": (2, 0.5, 0.3),
    },
}
RUN_START = (0.22, 0.17)
#: Mean and standard deviation of what has a stated prior, by parameter. Temperature 1 against 0
#: loses 9 % (EAGLE-2) and 13 % (EAGLE-3) of AL in paired public runs: about -0.25 logits.
STATED: Mapping[str, Mapping[str, tuple[tuple[float, float], ...]]] = {
    "chain": {
        "kind": ((0.7, 0.6), (-0.1, 0.3)),
        "context": ((-1.0, 2.0),),
        "temperature": ((-0.25, 0.10),),
    },
    "lookup": {"kind": ((-0.5, 1.0), (1.5, 1.0)), "temperature": ((-0.25, 0.10),)},
}
NOISE = 0.041  # of r inside one run [logits], where the iteration starts
TINY = 1e-6
#: Share of values that a range should hold, and makers that pull a kind's scale to all kinds'.
HELD, PULL = 0.8, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """One published value: its labels, and AL [tokens] at a draft length."""

    id: str
    labels: Labels
    target: str
    drafter: str  # kind, model and name
    made: str  # kind, model and recipe: variants of one maker are left out together
    model: str
    run: tuple[str, ...]
    draft_length: int
    tokens_per_step: float
    source: str


def load_values() -> list[Value]:
    """Return the shipped values that the prior is fitted on.

    Left out: trust C, random tokens, and contexts beyond 4,096 tokens of a head whose trained
    context nobody stated. A run holds each draft length once: the n-th value of one length is of
    the n-th run.
    """
    values: list[Value] = []
    seen: Counter[tuple[object, ...]] = Counter()
    for row in value_rows():
        value = _value(row)
        if value is None:
            continue
        key = (*value.run, value.draft_length)
        values.append(replace(value, run=(*value.run, str(seen[key]))))
        seen[key] += 1
    return values


def _value(row: Mapping[str, str]) -> Value | None:
    kind, context = row["kind"], float(row["context"] or 0)
    no_text = row["dataset"].startswith("random") or row["note"].startswith("random")
    trained = bool(row["trained_context"]) or kind in AS_LONG_AS_TARGET
    unknown = context > LONG_CONTEXT and not trained
    if row["trust"] == "C" or no_text or unknown:
        return None
    stated = row["recipe"].split(",")[0]
    recipe = OWN_RECIPE.get(kind, None if stated in UNSTATED else stated)
    model = bare_name(row["target"]).replace("instruct", "")
    name = row["drafter"] if kind not in (*LOOKUPS, "mtp") else ""
    drafter = "|".join(filter(None, (kind, model, name, recipe if "/" not in name else "")))
    labels = Labels(
        kind=kind,
        domain=row["domain"],
        recipe=recipe,
        family=family_of(row["target"]),
        drafter=drafter,
        dataset=re.sub(r"[^a-z0-9]", "", row["dataset"].lower()),
        temperature=float(row["temperature"]) if row["temperature"] else None,
        context=context or None,
        trained_context=float(row["trained_context"]) if row["trained_context"] else None,
    )
    where = row["curve"] or row["source"]
    conditions = (row["dataset"], row["temperature"], row["context"], row["engine"])
    return Value(
        id=row["id"],
        labels=labels,
        target=row["target"],
        drafter=drafter,
        made="|".join((kind, model, recipe or name)),
        model=model,
        run=(drafter, row["drafter"], *conditions, where),
        draft_length=int(row["draft_length"]),
        tokens_per_step=float(row["tokens_per_step"]),
        source=row["source"],
    )


def shape_of(kind: str) -> str:
    """Return the shape of a kind's curve."""
    return "lookup" if kind in LOOKUPS else "chain"


@dataclass(frozen=True, kw_only=True)
class _Design:
    """Which effects (columns) make up (L, B) of each run, and the values of the runs."""

    shape: str
    values: tuple[Value, ...]
    first: tuple[Value, ...]  # one value of each run
    run: NDArray[np.intp]
    columns: tuple[tuple[str, str, int], ...]
    matrix: Array  # (runs, 2, columns)

    @property
    def at(self) -> dict[tuple[str, str, int], int]:
        return {name: i for i, name in enumerate(self.columns)}


def _levels(value: Value) -> dict[str, str]:
    """Return the level of each group; a recipe that nobody stated is one of its own."""
    labels = value.labels
    recipe = labels.recipe or f"?{value.drafter}"
    return {
        "kind": labels.kind,
        "domain": labels.domain or "",
        "recipe": recipe,
        "recipe x kind": f"{recipe}|{labels.kind}",
        "kind x family": f"{labels.kind}|{labels.family}",
        "drafter": value.drafter,
        "recipe x domain": f"{recipe}|{labels.domain}",
        "data set": labels.dataset or "",
    }


def _design(values: Sequence[Value], shape: str) -> _Design:
    runs: dict[tuple[str, ...], Value] = {}
    for value in values:
        runs.setdefault(value.run, value)
    position = {key: i for i, key in enumerate(runs)}
    entries: list[tuple[int, tuple[str, str, int], float]] = []
    for i, value in enumerate(runs.values()):
        labels, levels = value.labels, _levels(value)
        sizes = {"kind": 2} | {group: size for group, (size, *_) in GROUPS[shape].items()}
        entries += [
            (i, (group, levels[group], parameter), 1.0)
            for group, size in sizes.items()
            for parameter in range(size)
        ]
        beyond = beyond_trained_context(context=labels.context, trained=labels.trained_context)
        if "context" in STATED[shape]:
            entries.append((i, ("context", "", 0), beyond))
        warmth = 0.5 if labels.temperature is None else min(labels.temperature, 1.0)
        entries.append((i, ("temperature", "", 0), warmth - 0.5))
    columns = tuple(dict.fromkeys(name for _, name, _ in entries))
    at = {name: i for i, name in enumerate(columns)}
    matrix = np.zeros((len(runs), 2, len(columns)))
    for i, name, amount in entries:
        matrix[i, name[2], at[name]] = amount
    return _Design(
        shape=shape,
        values=tuple(values),
        first=tuple(runs.values()),
        run=np.array([position[value.run] for value in values]),
        columns=columns,
        matrix=matrix,
    )


def _expected(level: Array, slope: Array, lengths: NDArray[np.intp], shape: str) -> Array:
    """Return r = logit((AL(D) - 1) / D) of each value."""
    tokens = tokens_of_rates(
        rates=SHAPES[shape](level=level, slope=slope, depth=int(lengths.max()))
    )
    return logit((tokens[np.arange(len(lengths)), lengths] - 1) / lengths)


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Effects given the values: mean, covariance, and what each run says of its (L, B).

    ``spread`` is the covariance of a level of each group, the run included; ``noise`` the standard
    deviation of r inside a run. ``information`` (runs, 2, 2) and ``score`` (runs, 2) are what a run
    adds, its own effect integrated out.
    """

    design: _Design
    mean: Array
    covariance: Array
    spread: Covariances
    noise: float
    information: Array
    score: Array
    pull: Array  # prior precision times prior mean
    kept: NDArray[np.bool_]

    def without(self, runs: NDArray[np.bool_]) -> Posterior:
        """Return the posterior as if some runs had never been counted.

        Removing rows M with information P from a covariance C gives C + C M' (1 - P M C M')^-1 P M
        C (Woodbury). Spread, tails and the point of linearisation stay those of all runs.
        """
        gone = np.flatnonzero(runs & self.kept)
        columns = len(self.mean)
        rows = self.design.matrix[gone].reshape(-1, columns)
        weight = np.zeros((2 * len(gone), 2 * len(gone)))
        for i, run in enumerate(gone):
            weight[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = self.information[run]
        across = self.covariance @ rows.T
        inner = np.linalg.solve(np.eye(len(weight)) - weight @ rows @ across, weight)
        covariance = self.covariance + across @ inner @ across.T
        kept = self.kept & ~runs
        total = self.pull + np.einsum("rpc,rp->c", self.design.matrix[kept], self.score[kept])
        return replace(self, mean=covariance @ total, covariance=covariance, kept=kept)

    def effects(self, *, scales: Mapping[str, Mapping[str, float]]) -> Effects:
        """Return what the product keeps: joint effects, and the sums that belong to drafters.

        A recipe of one drafter tells nothing about another, nor does a data set of one: they are
        left to the scatter of unknown ones.
        """
        several = self._several()
        names = [n for n in self.design.columns if n[0] in _JOINT and self._joint(n, several)]
        at = self.design.at
        pick = [at[name] for name in names]
        return Effects(
            shape=self.design.shape,
            names=tuple(names),
            mean=self.mean[pick],
            covariance=self.covariance[np.ix_(pick, pick)],
            spread=dict(self.spread),
            drafters=self._drafters(),
            offsets=self._offsets(several),
            tail=DRAWN_TAIL,
            noise=self.noise,
            scales=scales,
            recipes=OWN_RECIPE if self.design.shape == "chain" else {},
        )

    def _several(self) -> dict[str, set[str]]:
        """Return the recipes and data sets that were counted with two drafters or more."""
        drafters: dict[tuple[str, str], set[str]] = {}
        for value, kept in zip(self.design.first, self.kept, strict=True):
            if kept:
                levels = _levels(value)
                for group in ("recipe", "data set"):
                    drafters.setdefault((group, levels[group]), set()).add(value.drafter)
        several: dict[str, set[str]] = {"recipe": set(), "data set": set()}
        for (group, level), members in drafters.items():
            if len(members) > 1:
                several[group].add(level)
        return several

    def _joint(self, name: tuple[str, str, int], several: Mapping[str, set[str]]) -> bool:
        group, level, _ = name
        if group in ("recipe", "recipe x kind"):
            return level.split("|")[0] in several["recipe"]
        return True

    def _drafters(self) -> dict[str, tuple[Array, Array]]:
        """Return mean and covariance of the sum of effects of each drafter that is left."""
        at, found = self.design.at, {}
        for value, kept in zip(self.design.first, self.kept, strict=True):
            if not kept or value.drafter in found:
                continue
            levels = _levels(value)
            own = [(group, levels[group], p) for group in _OWN for p in (0, 1)]
            pick = [at[name] for name in own if name in at]
            design = np.zeros((2, len(pick)))
            for i, name in enumerate(name for name in own if name in at):
                design[name[2], i] = 1.0
            covariance = self.covariance[np.ix_(pick, pick)]
            found[value.drafter] = (design @ self.mean[pick], design @ covariance @ design.T)
        return found

    def _offsets(
        self, several: Mapping[str, set[str]]
    ) -> dict[tuple[str, str], tuple[Array, Array]]:
        at, found = self.design.at, {}
        for group, level, parameter in self.design.columns:
            recipe = level.split("|")[0]
            data_set = group == "data set" and level in several["data set"]
            in_domain = group == "recipe x domain" and recipe in several["recipe"]
            if parameter or not (data_set or in_domain):
                continue
            columns = [at[name] for p in (0, 1) if (name := (group, level, p)) in at]
            mean, covariance = np.zeros(2), np.zeros((2, 2))
            size = len(columns)
            mean[:size] = self.mean[columns]
            covariance[:size, :size] = self.covariance[np.ix_(columns, columns)]
            found[group, level] = (mean, covariance)
        return found


#: Groups that are kept with their joint covariance, and those that make up a drafter.
_JOINT = ("kind", "domain", "recipe", "recipe x kind", "kind x family", "context", "temperature")
_OWN = ("kind", "recipe", "recipe x kind", "kind x family", "drafter")


def fit(
    values: Iterable[Value],
    *,
    shape: str,
    spread: Covariances | None = None,
    noise: float | None = None,
    iterations: int = ITERATIONS,
) -> Posterior:
    """Fit the effects of one shape; with ``spread`` and ``noise`` these stay, else they are fitted.

    Gauss-Newton around the present (L, B) of every run, with the run integrated out: information P
    = (1 + Q G)^-1 Q of Q = J' W J and the run's covariance G. Expectation-maximisation sets each
    group's covariance to the mean of u u' + C over its levels, weighted by their tails.
    """
    design = _design([v for v in values if shape_of(v.labels.kind) == shape], shape)
    state = _Iteration(design, spread, noise)
    for _ in range(iterations):
        state.solve()
        state.reweigh(learn=spread is None)
    state.solve()
    return Posterior(
        design=design,
        mean=state.mean,
        covariance=state.covariance,
        spread=state.spread,
        noise=math.sqrt(state.variance),
        information=state.information,
        score=state.score,
        pull=state.pull,
        kept=np.ones(len(design.first), dtype=bool),
    )


class _Iteration:
    """One fit as it goes on."""

    def __init__(self, design: _Design, spread: Covariances | None, noise: float | None) -> None:
        """Start from stated scatters, or from those given."""
        self.design = design
        start = {
            group: np.diag([level**2, slope**2])
            for group, (_, level, slope) in GROUPS[design.shape].items()
        }
        run = np.diag(np.square(RUN_START))
        self.spread: dict[str, Array] = dict(spread or {**start, "run": run})
        self.variance = (noise or NOISE) ** 2
        self.lengths = np.array([value.draft_length for value in design.values])
        tokens = np.array([value.tokens_per_step for value in design.values])
        self.observed = logit(np.clip((tokens - 1) / self.lengths, 1e-3, 1 - 1e-3))
        self.robust = np.ones(len(design.values))
        self.run_tail = np.ones(len(design.first))
        self.tails: dict[tuple[str, str], float] = {}  # weights of levels of heavy groups
        self.at = design.at
        _, centre = self._precision()
        self.mean = centre
        self.pairs = np.einsum("rpc,c->rp", design.matrix, centre)

    def solve(self) -> None:
        """Take one Gauss-Newton step for all effects and all runs."""
        design, runs = self.design, len(self.design.first)
        level, slope = self.pairs[design.run].T
        r, self.by_level, self.by_slope = self._linearised(level, slope)
        target = self.observed - r + self.by_level * level + self.by_slope * slope
        jacobian = np.stack([self.by_level, self.by_slope], axis=1)
        weight = self.robust / self.variance
        inner, inside = np.zeros((runs, 2, 2)), np.zeros((runs, 2))
        np.add.at(
            inner,
            design.run,
            weight[:, None, None] * jacobian[:, :, None] * jacobian[:, None, :],
        )
        np.add.at(inside, design.run, (weight * target)[:, None] * jacobian)
        self.own = self.spread["run"] / self.run_tail[:, None, None]
        shrink = np.linalg.inv(np.eye(2) + inner @ self.own)
        self.information = shrink @ inner
        self.score = (shrink @ inside[..., None])[..., 0]
        precision, centre = self._precision()
        self.pull = precision @ centre
        columns = len(self.mean)
        flat = design.matrix.reshape(2 * runs, columns)
        told = (self.information @ design.matrix).reshape(2 * runs, columns)
        self.covariance: Array = np.linalg.inv(precision + flat.T @ told).astype(np.float64)
        self.mean = self.covariance @ (self.pull + flat.T @ self.score.reshape(-1))
        known = (flat @ self.mean).reshape(runs, 2)
        left = self.score - (self.information @ known[..., None])[..., 0]
        self.effect = (self.own @ left[..., None])[..., 0]
        step = known + self.effect - self.pairs
        self.pairs = self.pairs + step * min(1.0, 1.0 / max(float(np.abs(step).max()), TINY))

    def _linearised(self, level: Array, slope: Array) -> tuple[Array, Array, Array]:
        shape, step = self.design.shape, 1e-4
        expected = _expected(level, slope, self.lengths, shape)
        derivatives = [
            (
                _expected(level + dl, slope + db, self.lengths, shape)
                - _expected(level - dl, slope - db, self.lengths, shape)
            )
            / (2 * step)
            for dl, db in ((step, 0.0), (0.0, step))
        ]
        return expected, derivatives[0], derivatives[1]

    def _precision(self) -> tuple[Array, Array]:
        """Return prior precision and mean of the effects."""
        columns = self.design.columns
        precision, centre = np.zeros((len(columns), len(columns))), np.zeros(len(columns))
        stated, groups = STATED[self.design.shape], GROUPS[self.design.shape]
        inverse = {group: np.linalg.inv(self.spread[group] + TINY * np.eye(2)) for group in groups}
        for i, (group, level, parameter) in enumerate(columns):
            if group in stated:
                centre[i], deviation = stated[group][parameter]
                precision[i, i] = deviation**-2
                continue
            tail = self.tails.get((group, level), 1.0)
            if groups[group][0] == 1:
                precision[i, i] = tail / (self.spread[group][0, 0] + TINY)
                continue
            other = self.at[group, level, 1 - parameter]
            precision[i, i] = tail * inverse[group][parameter, parameter]
            precision[i, other] = tail * inverse[group][parameter, 1 - parameter]
        return precision, centre

    def reweigh(self, *, learn: bool) -> None:
        """Set the weights of residuals and tails, and where asked the scatters."""
        design, runs = self.design, len(self.design.first)
        columns = len(self.mean)
        gain = self.own @ self.information @ design.matrix
        by_effects = (gain.reshape(2 * runs, columns) @ self.covariance).reshape(gain.shape)
        turned = gain.transpose(0, 2, 1)
        scatter = self.own - self.own @ self.information @ self.own + by_effects @ turned
        squares = self.effect[:, :, None] * self.effect[:, None, :] + scatter
        level, slope = self.pairs[design.run].T
        residual = self.observed - _expected(level, slope, self.lengths, design.shape)
        deviation = np.abs(residual) / math.sqrt(self.variance)
        self.robust = 1 / np.maximum(1, deviation / ROBUST)
        if learn:
            crossed = by_effects @ design.matrix.transpose(0, 2, 1)
            around = (design.matrix.reshape(2 * runs, columns) @ self.covariance).reshape(
                design.matrix.shape
            ) @ design.matrix.transpose(0, 2, 1)
            total = scatter + around - crossed - crossed.transpose(0, 2, 1)
            jacobian = np.stack([self.by_level, self.by_slope], axis=1)
            unsure = np.einsum("np,npq,nq->n", jacobian, total[design.run], jacobian)
            self.variance = float(np.mean(self.robust * (residual**2 + unsure)))
            self.spread["run"] = (self.run_tail[:, None, None] * squares).mean(axis=0)
        inverse = np.linalg.inv(self.spread["run"] + TINY * np.eye(2))
        size = np.einsum("pq,rqp->r", inverse, squares)
        self.run_tail = (TAIL + 2) / (TAIL + size)
        for group in GROUPS[design.shape]:
            self._reweigh_group(group, learn)

    def _reweigh_group(self, group: str, learn: bool) -> None:
        levels = [name[1] for name in self.design.columns if name[0] == group and name[2] == 0]
        squares = np.zeros((len(levels), 2, 2))
        for i, level in enumerate(levels):
            pick = [self.at[n] for p in (0, 1) if (n := (group, level, p)) in self.at]
            size = len(pick)
            own = np.outer(self.mean[pick], self.mean[pick]) + self.covariance[np.ix_(pick, pick)]
            squares[i, :size, :size] = own
        tail = np.array([self.tails.get((group, level), 1.0) for level in levels])
        if learn:
            self.spread[group] = (tail[:, None, None] * squares).mean(axis=0)
        if group in HEAVY:
            size = GROUPS[self.design.shape][group][0]
            inverse = np.linalg.inv(self.spread[group][:size, :size] + TINY * np.eye(size))
            sizes = np.einsum("pq,lqp->l", inverse, squares[:, :size, :size])
            weights = (TAIL + size) / (TAIL + sizes)
            self.tails |= {(group, v): float(w) for v, w in zip(levels, weights, strict=True)}


def scales(scores: Sequence[tuple[str, str, float]]) -> dict[str, float]:
    """Return the factor of each kind by which its draws are spread wider or less wide.

    ``scores`` are (kind, maker, z): z = Phi^-1 of the share of draws below a value whose drafter
    was left out. The factor is the size that four values in five stay within, over 1.2816 of a
    standard normal number, pulled to that of all kinds as by ``PULL`` further makers: one drafter
    tells little of the next.
    """

    def factor(sizes: Sequence[float]) -> float:
        return float(np.quantile(sizes, HELD) / NormalDist().inv_cdf(0.5 + HELD / 2))

    overall = factor([abs(z) for _, _, z in scores])
    found = {}
    for kind in dict.fromkeys(kind for kind, _, _ in scores):
        makers = {made for of, made, _ in scores if of == kind}
        own = factor([abs(z) for of, _, z in scores if of == kind])
        share = len(makers) / (len(makers) + PULL)
        found[kind] = _rounded(share * own + (1 - share) * overall)
    return found


def as_data(effects: Effects) -> dict[str, Any]:
    """Return effects as `acceptance_prior.yaml` writes them, rounded."""
    deviation = np.sqrt(np.diag(effects.covariance))
    correlation = effects.covariance / np.outer(deviation, deviation)
    groups: dict[str, dict[str, list[float]]] = {}
    order = [
        name
        for first in effects.names
        if first[2] == 0
        for name in (first, (first[0], first[1], 1))
        if name in effects.names
    ]
    at = {name: i for i, name in enumerate(effects.names)}
    for name in order:
        numbers = groups.setdefault(name[0], {}).setdefault(name[1], [])
        numbers += [_rounded(effects.mean[at[name]]), _rounded(deviation[at[name]])]
    written = [(g, level, p) for g, levels in groups.items() for level in levels for p in (0, 1)]
    pick = [at[name] for name in written if name in at]
    percent = np.rint(100 * correlation[np.ix_(pick, pick)]).astype(int)
    return {
        "tail": effects.tail,
        "noise": _rounded(effects.noise),
        "scales": {known: dict(by_kind) for known, by_kind in effects.scales.items()},
        "recipes": dict(effects.recipes),
        "spread": _table({name: _deviations(matrix) for name, matrix in effects.spread.items()}),
        "effects": {group: _table(levels) for group, levels in groups.items()},
        "correlations": "".join(
            " ".join(map(str, percent[i, :i])) + "\n" for i in range(1, len(pick))
        ),
        "offsets": {group: _table(levels) for group, levels in _nested(effects.offsets).items()},
        "drafters": _table(
            {
                name: [*map(_rounded, mean), *_deviations(covariance)]
                for name, (mean, covariance) in sorted(effects.drafters.items())
            }
        ),
    }


def _nested(
    offsets: Mapping[tuple[str, str], tuple[Array, Array]],
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for (group, level), (mean, covariance) in sorted(offsets.items()):
        numbers = [*map(_rounded, mean), *_deviations(covariance)]
        alone = not covariance[1, 1]
        found.setdefault(group, {})[level] = [numbers[0], numbers[2]] if alone else numbers
    return found


def _deviations(covariance: Array) -> list[float]:
    """Return two standard deviations and their correlation."""
    level, slope = np.sqrt(np.diag(covariance))
    between = covariance[0, 1] / (level * slope) if level * slope > 0 else 0.0
    return [_rounded(level), _rounded(slope), round(float(between), 2)]


def _table(rows: Mapping[str, Sequence[float]]) -> str:
    """Return a line for each name: many short texts of a YAML file are slow to read.

    >>> _table({"code": [0.5, 1.0], "math": [2.0]}).splitlines()
    ['code: 0.5 1', 'math: 2']
    """
    return "".join(
        f"{name}: {' '.join(f'{number:g}' for number in numbers)}\n"
        for name, numbers in rows.items()
    )


def _rounded(number: float) -> float:
    return round(float(number), 3)
