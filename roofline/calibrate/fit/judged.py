"""A law fitted to rows of this machine, beside what it says of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import (
    evidence_of,
    held_out,
    judged_rows,
    ratio_error_of,
    score,
)
from roofline.calibrate.measure.rows import Row
from roofline.timing.laws.simple import Device

__all__ = ["Judged", "Source", "better_law", "fastest_kernel", "hold_out", "judge"]

Array = NDArray[np.float64]
CLEARLY_FASTER = 0.02
FEWEST_HELD = 5  # held-out rows that can choose between two laws


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where rows come from, as the blocks of their laws say it."""

    cite: str
    date: str
    library: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A law's block beside what it says of every row. Times in s."""

    block: dict[str, Any]
    rows: tuple[Row, ...]
    predicted: Array
    held: NDArray[np.bool_]

    @property
    def measured(self) -> Array:
        """Return the time of every row [s]."""
        return np.array([row.seconds for row in self.rows])

    @property
    def median(self) -> float:
        """Return the median error on rows that were not fitted (on all, where none were)."""
        judged = judged_rows(self.held)
        return score(self.predicted[judged], self.measured[judged]).median

    def loss(self, *, everything: bool) -> float:
        """Return the mean log error on all rows, or on those that were not fitted."""
        judged = np.ones(len(self.rows), dtype=bool) if everything else self.held
        return float(np.mean(np.abs(np.log(self.predicted / self.measured)[judged])))


def hold_out(rows: Sequence[Row]) -> NDArray[np.bool_]:
    """Return which rows are never fitted: a fifth by a stable hash, none of fewer than ten."""
    if len(rows) < 10:
        return np.zeros(len(rows), dtype=bool)
    return np.array([held_out(row.key) for row in rows])


def judge(
    kind: str,
    block: Mapping[str, Any],
    rows: Sequence[Row],
    *,
    predicted: Array,
    held: NDArray[np.bool_],
    device: Device,
    source: Source,
) -> Judged:
    """Return a law beside what it says of the rows; its block gets origin and evidence."""
    measured = np.array([row.seconds for row in rows])
    textbook = np.maximum(
        np.array([row.bytes for row in rows]) / device.bandwidth,
        np.array([row.flops for row in rows]) / device.peak,
    )
    judged = judged_rows(held)
    evidence = evidence_of(
        source=source.cite,
        date=source.date,
        rows_fitted=int((~held).sum()),
        rows_held_out=int(held.sum()),
        predicted=predicted[judged],
        textbook=textbook[judged],
        measured=measured[judged],
        ratio_error=_ratio_error(rows, predicted, measured),
    )
    whole = {
        "kind": kind,
        "engine": source.library,
        "version": source.version,
        **block,
        "evidence": evidence.model_dump(exclude_defaults=True),
    }
    return Judged(block=whole, rows=tuple(rows), predicted=predicted, held=held)


def _ratio_error(rows: Sequence[Row], predicted: Array, measured: Array) -> float | None:
    shapes, counts = [], []
    for row in rows:
        name = next((n for n in ("m", "q", "rows", "tokens") if n in row.sizes), "")
        others = tuple(value for size, value in sorted(row.sizes.items()) if size != name)
        shapes.append((row.op, others))
        counts.append(row.sizes.get(name, 0))
    return ratio_error_of(shapes, counts, predicted, measured)


def better_law(first: Judged | None, second: Judged | None) -> Judged | None:
    """Return the law of the same rows that predicts those that neither was fitted on better.

    Fewer than five of them decide nothing: then all rows do.
    """
    laws = [law for law in (first, second) if law is not None]
    few = bool(laws) and laws[0].held.sum() < FEWEST_HELD
    return min(laws, key=lambda law: law.loss(everything=few), default=None)


def fastest_kernel(groups: Mapping[tuple[str, str], Sequence[Row]]) -> tuple[str, str] | None:
    """Return the name of the kernel with the least time on the shapes that all have.

    The first, which a model would use, stays unless another is over 2 % faster.
    """
    if not groups:
        return None
    shared = set.intersection(*({row.shape for row in rows} for rows in groups.values()))
    speed = {
        name: np.mean([np.log(row.seconds) for row in rows if row.shape in shared] or [0.0])
        for name, rows in groups.items()
    }
    first = next(iter(groups))
    best = min(groups, key=lambda name: float(speed[name]))
    return best if speed[best] < speed[first] - CLEARLY_FASTER else first
