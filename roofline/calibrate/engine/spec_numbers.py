"""An engine's numbers around speculation, fitted for each era on published runs.

What served decode runs say (floor scale, per layer, per sequence) is kept; these numbers come on
top, each pulled towards the generic engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.engine.spec_pricing import FEATURES, KINDS, Priced, engine_of
from roofline.calibrate.engine.spec_rows import SpecRow
from roofline.calibrate.fit.core import fit_near, rounded
from roofline.specs.engine import load_engine

__all__ = [
    "PULL",
    "EraNumbers",
    "Predicted",
    "fit_eras",
    "generic",
    "in_sample_steps",
    "predict",
    "two_folds",
]

Array = NDArray[np.float64]
#: The generic engine, how far one deviation strays from it, and the largest value allowed.
PULL: dict[str, tuple[float, float, float]] = {
    "per_step": (0.5e-3, 0.3e-3, 8e-3),
    "per_spec_round": (0.7e-3, 0.5e-3, 20e-3),
    "per_draft_pass": (0.15e-3, 0.1e-3, 5e-3),
    **dict.fromkeys(KINDS, (0.0, 0.3e-3, 10e-3)),
    "model": (0.0, 3e-3, 20e-3),
    "stateful_model": (0.0, 3e-3, 20e-3),
    "per_tree_round": (0.5e-3, 0.5e-3, 5e-3),
    "per_model_round": (0.0, 10e-3, 100e-3),
    "per_spec_sequence": (0.0, 20e-6, 200e-6),
    "per_expert_layer": (0.0, 10e-6, 200e-6),
    "narrow": (5.0, 1.5, 20.0),
    "byte": (2.0, 1.0, 20.0),
    "wide": (1.0, 0.5, 20.0),
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
class Predicted:
    """Plain step, speculative step and their ratio for each row. Times in s."""

    plain: Array
    step: Array

    @property
    def ratio(self) -> Array:
        """R(D)."""
        return self.step / self.plain


def generic(era: str) -> EraNumbers:
    """Return the numbers that the fit of an era is pulled towards."""
    pull = _pull(era)
    return EraNumbers(values=tuple(pull[name][0] for name in FEATURES))


def predict(numbers: EraNumbers, priced: Priced) -> Predicted:
    """Return the steps: kernels + numbers x features."""
    values = np.array(numbers.values)
    return Predicted(
        plain=priced.plain + priced.plain_features @ values,
        step=priced.step + priced.features @ values,
    )


def fit_eras(rows: Sequence[SpecRow], priced: Priced) -> dict[str, EraNumbers]:
    """Return each era's numbers, fitted on its rows marked A.

    Building a tree is the same work in every build of an engine: the era with most trees tells the
    others, and an era that no row is of (``engine@*``).
    """
    usable = [i for i, row in enumerate(rows) if row.fits or (row.scored and row.trust == "A")]
    fitted, trees = {}, dict[str, tuple[int, float]]()
    for era in sorted({rows[i].engine for i in usable}):
        members = [i for i in usable if rows[i].engine == era]
        fitted[era] = _fit([rows[i] for i in members], priced.pick(members), _pull(era))
        count = sum(rows[i].topk > 1 for i in members)
        best = (count, fitted[era].named()["per_tree_round"])
        trees[engine_of(era)] = max(trees.get(engine_of(era), (0, 0.0)), best)
    tree_costs = {engine: value for engine, (count, value) in trees.items() if count}
    fitted |= {f"{engine}@*": generic(f"{engine}@*") for engine in tree_costs}
    return {
        era: _with_tree(numbers, tree_costs.get(engine_of(era))) for era, numbers in fitted.items()
    }


def _with_tree(numbers: EraNumbers, tree: float | None) -> EraNumbers:
    if tree is None:
        return numbers
    named = numbers.named() | {"per_tree_round": tree}
    return EraNumbers(values=tuple(named[name] for name in FEATURES), rows=numbers.rows)


def _pull(era: str) -> dict[str, tuple[float, float, float]]:
    """Return the pull; what served decode runs say of today's plain step stands."""
    overhead = load_engine(engine_of(era)).overhead
    if "@" in era or not overhead.fitted_rows:
        return PULL
    pinned = {
        "per_step": (overhead.per_step, 1e-6, 8e-3),
        "per_expert_layer": (overhead.per_expert_layer, 1e-8, 200e-6),
    }
    return PULL | pinned


def two_folds(rows: Sequence[SpecRow], priced: Priced) -> Predicted:
    """Return every row predicted by numbers that did not see its group."""
    plain, step = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for fold in (0, 1):
        seen = [i for i, row in enumerate(rows) if row.fold != fold]
        fitted = fit_eras([rows[i] for i in seen], priced.pick(seen))
        unseen = [i for i, row in enumerate(rows) if row.fold == fold]
        predicted = _by_era([rows[i] for i in unseen], priced.pick(unseen), fitted)
        plain[unseen], step[unseen] = predicted.plain, predicted.step
    return Predicted(plain=plain, step=step)


def in_sample_steps(rows: Sequence[SpecRow], priced: Priced) -> Predicted:
    """Return every row predicted by numbers fitted on all rows marked A, its own included."""
    return _by_era(rows, priced, fit_eras(rows, priced))


def _by_era(rows: Sequence[SpecRow], priced: Priced, fitted: Mapping[str, EraNumbers]) -> Predicted:
    """Predict each row by its era's numbers, or by the generic engine's where none are fitted."""
    plain, step = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for era in {row.engine for row in rows}:
        pick = [i for i, row in enumerate(rows) if row.engine == era]
        numbers, unseen_era = fitted.get(era), fitted.get(f"{engine_of(era)}@*")
        if numbers is None:
            tree = unseen_era.named()["per_tree_round"] if unseen_era else None
            numbers = _with_tree(generic(era), tree)
        predicted = predict(numbers, priced.pick(pick))
        plain[pick], step[pick] = predicted.plain, predicted.step
    return Predicted(plain=plain, step=step)


def _fit(
    rows: Sequence[SpecRow], priced: Priced, pull: Mapping[str, tuple[float, float, float]]
) -> EraNumbers:
    """Return the numbers nearest to the generic engine that explain steps and ratios."""
    centre, stray, high = (
        np.array(column) for column in zip(*(pull[n] for n in FEATURES), strict=True)
    )
    low = np.where(np.isin(FEATURES, KINDS), -0.15e-3, 0.0)
    weight = _weights(rows)
    base = np.array([row.base if row.fits_plain else np.nan for row in rows])
    step = np.array([row.step if row.fits_step and row.draft_length else np.nan for row in rows])
    ratio = np.array([row.ratio if row.fits_ratio else np.nan for row in rows])

    def log_errors(values: Array) -> Array:
        predicted = predict(EraNumbers(values=tuple(values)), priced)
        errors = [
            _log(predicted.plain, base) / TIME_ERROR,
            _log(predicted.step, step) / TIME_ERROR,
            _log(predicted.ratio, ratio) / RATIO_ERROR,
        ]
        return np.concatenate([weight * error for error in errors])

    fitted = fit_near(log_errors, centre=centre, stray=stray, low=low, high=high)
    values = tuple(rounded(float(value)) for value in fitted)
    return EraNumbers(values=values, rows=len(rows))


def _weights(rows: Sequence[SpecRow]) -> Array:
    """Return the weight of each row: a group of n counts as sqrt(n), not n."""
    sizes = {name: sum(row.group == name for row in rows) for name in {row.group for row in rows}}
    return np.array([sizes[row.group] ** -0.25 for row in rows])


def _log(predicted: Array, measured: Array) -> Array:
    return np.where(
        np.isfinite(measured), np.log(predicted / np.where(measured > 0, measured, 1.0)), 0.0
    )
