"""An engine's numbers around speculation, fitted for each era on published runs.

What served decode runs state (floor scale, per layer, per sequence) is kept; these numbers are
added to it, each pulled towards the generic engine. An era is a stretch of an engine's builds that
share their numbers: ``vllm`` today's, ``vllm@2025`` older ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.engine.spec_pricing import FEATURES, KINDS, PricedRuns, engine_of
from roofline.calibrate.engine.spec_rows import SpecRow
from roofline.calibrate.fit.core import Pull, fit_near, rounded
from roofline.specs.engine import load_engine

__all__ = [
    "PULL",
    "EraNumbers",
    "FittedEras",
    "PredictedSteps",
    "fit_eras",
    "generic",
    "predict",
    "predict_in_sample",
    "predict_unseen",
]

Array = NDArray[np.float64]
CHEAPER = -0.15e-3  # a kind's pass may cost so much less than the usual one, which it adds to
#: The generic engine that a fit is pulled towards. ``per_spec_sequence``: outside its passes a step
#: with drafts took 1.02 to 2.81 ms as the batch grew to 128, one without 0.89 to 1.12 ms, and
#: (1.79 - 0.23) ms / 127 = 12 us (adfusco/spec-dec-roofline, README: Llama-3.1-8B, EAGLE-3, D = 3,
#: vLLM on A100). No shipped run of today's builds has both a batch and tokens per step of its own.
#: ``per_expert_layer`` and ``per_state_layer``: what the engines with served decode runs show, so
#: that one hybrid model does not pass all that is left of it on to every model with experts. vLLM
#: and TensorRT-LLM spend nothing on a layer with experts (three mixtures without a state in
#: decode.csv), and SGLang 32 us on one with a state too (one model); how far engines stray from
#: that is not known: half of it is assumed.
PULL: dict[str, Pull] = {
    "per_step": Pull(centre=0.5e-3, stray=0.3e-3, high=8e-3),
    "per_spec_round": Pull(centre=0.7e-3, stray=0.5e-3, high=20e-3),
    "per_draft_pass": Pull(centre=0.15e-3, stray=0.1e-3, high=5e-3),
    **dict.fromkeys(KINDS, Pull(centre=0.0, stray=0.3e-3, low=CHEAPER, high=10e-3)),
    "model": Pull(centre=0.0, stray=3e-3, low=CHEAPER, high=20e-3),
    "stateful_model": Pull(centre=0.0, stray=3e-3, low=CHEAPER, high=20e-3),
    "per_tree_round": Pull(centre=0.5e-3, stray=0.5e-3, high=5e-3),
    "per_model_round": Pull(centre=0.0, stray=10e-3, high=100e-3),
    "per_spec_sequence": Pull(centre=12e-6, stray=20e-6, high=200e-6),
    "per_expert_layer": Pull(centre=0.0, stray=1e-6, high=200e-6),
    "per_state_layer": Pull(centre=32e-6, stray=16e-6, high=200e-6),
    "narrow": Pull(centre=5.0, stray=1.5, high=20.0),
    "byte": Pull(centre=2.0, stray=1.0, high=20.0),
    "wide": Pull(centre=1.0, stray=0.5, high=20.0),
}
TIME_ERROR = 0.10  # deviation of the logarithm of a step time
RATIO_ERROR = 0.04  # and of a cost ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class EraNumbers:
    """One value for each of FEATURES, and how many rows they were fitted on."""

    values: tuple[float, ...]
    rows: int = 0

    def named(self) -> dict[str, float]:
        """Return the numbers by name."""
        return dict(zip(FEATURES, self.values, strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedSteps:
    """Plain step, speculative step and their ratio for each row. Times in s."""

    plain: Array
    step: Array

    @property
    def ratio(self) -> Array:
        """R(D)."""
        return self.step / self.plain


def generic(era: str) -> EraNumbers:
    """Return the generic engine's numbers, which the fit of an era is pulled towards."""
    pull = _pull(era)
    return EraNumbers(values=tuple(pull[name].centre for name in FEATURES))


def predict(numbers: EraNumbers, priced: PricedRuns) -> PredictedSteps:
    """Return the steps: kernels + numbers x features."""
    values = np.array(numbers.values)
    return PredictedSteps(
        plain=priced.plain + priced.plain_features @ values,
        step=priced.step + priced.features @ values,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedEras:
    """The numbers of each era that has rows, and what building a tree costs, by engine [s]."""

    by_era: Mapping[str, EraNumbers]
    tree_costs: Mapping[str, float]

    def numbers_of(self, era: str) -> EraNumbers:
        """Return an era's numbers; without rows, the generic engine's and the engine's tree."""
        numbers = self.by_era.get(era)
        if numbers is None:
            numbers = _with_tree(generic(era), self.tree_costs.get(engine_of(era)))
        return numbers


def fit_eras(rows: Sequence[SpecRow], priced: PricedRuns) -> FittedEras:
    """Return each era's numbers, fitted on its rows marked A.

    Building a tree is the same work in every build of an engine: the era with most trees tells the
    cost for all of them.
    """
    usable = [i for i, row in enumerate(rows) if row.counts_in_fit]
    fitted, trees = {}, dict[str, tuple[int, float]]()
    for era in sorted({rows[i].engine for i in usable}):
        members = [i for i in usable if rows[i].engine == era]
        fitted[era] = _fit([rows[i] for i in members], priced.pick(members), _pull(era))
        count = sum(rows[i].topk > 1 for i in members)
        tree = (count, fitted[era].named()["per_tree_round"])
        trees[engine_of(era)] = max(trees.get(engine_of(era), (0, 0.0)), tree)
    tree_costs = {engine: cost for engine, (count, cost) in trees.items() if count}
    return FittedEras(
        by_era={
            era: _with_tree(numbers, tree_costs.get(engine_of(era)))
            for era, numbers in fitted.items()
        },
        tree_costs=tree_costs,
    )


def _with_tree(numbers: EraNumbers, tree_cost: float | None) -> EraNumbers:
    if tree_cost is None:
        return numbers
    named = numbers.named() | {"per_tree_round": tree_cost}
    return EraNumbers(values=tuple(named[name] for name in FEATURES), rows=numbers.rows)


def _pull(era: str) -> dict[str, Pull]:
    """Return the pull.

    What served decode runs state of layers is kept; by today's builds, the plain step too. Without
    such runs it is kept as well: constants of parts were fitted to plain steps that hold it.
    """
    overhead = load_engine(engine_of(era)).overhead
    plain_step = Pull(centre=overhead.per_step, stray=1e-6, high=8e-3)
    if not overhead.fitted_rows:
        return PULL | {"per_step": plain_step}
    pinned = {
        name: Pull(centre=getattr(overhead, name), stray=1e-8, high=200e-6)
        for name in ("per_expert_layer", "per_state_layer")
    }
    if "@" not in era:
        pinned["per_step"] = plain_step
    return PULL | pinned


def predict_unseen(rows: Sequence[SpecRow], priced: PricedRuns) -> PredictedSteps:
    """Return every row predicted by numbers that were fitted without its group."""
    plain, step = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for fold in (0, 1):
        seen = [i for i, row in enumerate(rows) if row.fold != fold]
        fitted = fit_eras([rows[i] for i in seen], priced.pick(seen))
        unseen = [i for i, row in enumerate(rows) if row.fold == fold]
        predicted = _by_era([rows[i] for i in unseen], priced.pick(unseen), fitted)
        plain[unseen], step[unseen] = predicted.plain, predicted.step
    return PredictedSteps(plain=plain, step=step)


def predict_in_sample(rows: Sequence[SpecRow], priced: PricedRuns) -> PredictedSteps:
    """Return every row predicted by numbers fitted on all rows marked A, its own included."""
    return _by_era(rows, priced, fit_eras(rows, priced))


def _by_era(rows: Sequence[SpecRow], priced: PricedRuns, fitted: FittedEras) -> PredictedSteps:
    """Predict each row by its era's numbers."""
    plain, step = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for era in {row.engine for row in rows}:
        pick = [i for i, row in enumerate(rows) if row.engine == era]
        predicted = predict(fitted.numbers_of(era), priced.pick(pick))
        plain[pick], step[pick] = predicted.plain, predicted.step
    return PredictedSteps(plain=plain, step=step)


def _fit(rows: Sequence[SpecRow], priced: PricedRuns, pull: Mapping[str, Pull]) -> EraNumbers:
    """Return the numbers nearest to the generic engine that explain steps and ratios."""
    weight = _weights(rows)
    base = np.array([row.base if row.fits_plain else np.nan for row in rows])
    step = np.array([row.step if row.fits_step and row.draft_length else np.nan for row in rows])
    ratio = np.array([row.ratio if row.fits_ratio else np.nan for row in rows])

    def log_errors(values: Array) -> Array:
        predicted = predict(EraNumbers(values=tuple(values)), priced)
        errors = [
            _log_error(predicted.plain, base) / TIME_ERROR,
            _log_error(predicted.step, step) / TIME_ERROR,
            _log_error(predicted.ratio, ratio) / RATIO_ERROR,
        ]
        return np.concatenate([weight * error for error in errors])

    fitted, _ = fit_near(log_errors, [pull[name] for name in FEATURES])
    values = tuple(rounded(float(value)) for value in fitted)
    return EraNumbers(values=values, rows=len(rows))


def _weights(rows: Sequence[SpecRow]) -> Array:
    """Return the weight of each row: a group of n counts as sqrt(n), not n."""
    sizes = {name: sum(row.group == name for row in rows) for name in {row.group for row in rows}}
    return np.array([sizes[row.group] ** -0.25 for row in rows])


def _log_error(predicted: Array, measured: Array) -> Array:
    """Return log predicted / measured, 0 where nothing was measured."""
    return np.where(
        np.isfinite(measured), np.log(predicted / np.where(measured > 0, measured, 1.0)), 0.0
    )
