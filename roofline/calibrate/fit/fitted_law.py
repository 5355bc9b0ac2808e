"""A law fitted to rows of this machine, beside what it predicts for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import (
    evidence_of,
    held_out,
    ratio_error_of,
    score,
    scored_rows,
)
from roofline.calibrate.measure.rows import Row
from roofline.timing.laws.simple import Device

__all__ = ["FittedLaw", "RowSource", "better_law", "fastest_kernel", "fitted_law", "held_out_rows"]

Array = NDArray[np.float64]
CLEARLY_FASTER = 0.02  # in log time
FEWEST_HELD = 5  # held-out rows that can choose between two laws


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSource:
    """Where measured rows come from, as the blocks of their laws state it."""

    cite: str
    date: str
    library: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedLaw:
    """A law's block beside what the law predicts for every row. Times in s."""

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
        scored = scored_rows(self.held)
        return score(self.predicted[scored], self.measured[scored]).median

    def loss(self, *, everything: bool) -> float:
        """Return the mean log error on all rows, or on those that were not fitted."""
        log_error = np.log(self.predicted / self.measured)
        return float(np.mean(np.abs(log_error if everything else log_error[self.held])))


def held_out_rows(rows: Sequence[Row]) -> NDArray[np.bool_]:
    """Return which rows are held out of fits: a fifth by a stable hash, none of fewer than ten."""
    if len(rows) < 10:
        return np.zeros(len(rows), dtype=bool)
    return np.array([held_out(row.key) for row in rows])


def fitted_law(
    kind: str,
    block: Mapping[str, Any],
    rows: Sequence[Row],
    *,
    predicted: Array,
    held: NDArray[np.bool_],
    device: Device,
    source: RowSource,
) -> FittedLaw:
    """Return a law beside its predictions; its block gets the rows' source and the evidence."""
    measured = np.array([row.seconds for row in rows])
    textbook = np.maximum(
        np.array([row.bytes for row in rows]) / device.bandwidth,
        np.array([row.flops for row in rows]) / device.peak,
    )
    scored = scored_rows(held)
    evidence = evidence_of(
        source=source.cite,
        date=source.date,
        rows_fitted=int((~held).sum()),
        rows_held_out=int(held.sum()),
        predicted=predicted[scored],
        textbook=textbook[scored],
        measured=measured[scored],
        ratio_error=_ratio_error(rows, predicted, measured),
    )
    complete = {
        "kind": kind,
        "engine": source.library,
        "version": source.version,
        **block,
        "evidence": evidence.model_dump(exclude_defaults=True),
    }
    return FittedLaw(block=complete, rows=tuple(rows), predicted=predicted, held=held)


def _ratio_error(rows: Sequence[Row], predicted: Array, measured: Array) -> float | None:
    shapes, counts = [], []
    for row in rows:
        name = next((n for n in ("m", "q", "rows", "tokens") if n in row.sizes), "")
        others = tuple(value for size, value in sorted(row.sizes.items()) if size != name)
        shapes.append((row.op, others))
        counts.append(row.sizes.get(name, 0))
    return ratio_error_of(shapes, counts, predicted, measured)


def better_law(first: FittedLaw | None, second: FittedLaw | None) -> FittedLaw | None:
    """Return which of two laws of the same rows predicts the held-out ones better.

    Fewer than five held-out rows decide nothing: then all rows do.
    """
    laws = [law for law in (first, second) if law is not None]
    few = bool(laws) and laws[0].held.sum() < FEWEST_HELD
    return min(laws, key=lambda law: law.loss(everything=few), default=None)


def fastest_kernel(groups: Mapping[tuple[str, str], Sequence[Row]]) -> tuple[str, str] | None:
    """Return the kernel with the least mean log time on the shapes that all kernels have.

    The first, which a model would use, stays unless another is over 2 % faster.
    """
    if not groups:
        return None
    shared = set.intersection(*({row.shape for row in rows} for rows in groups.values()))
    log_time = {
        name: np.mean([np.log(row.seconds) for row in rows if row.shape in shared] or [0.0])
        for name, rows in groups.items()
    }
    first = next(iter(groups))
    best = min(groups, key=lambda name: float(log_time[name]))
    return best if log_time[best] < log_time[first] - CLEARLY_FASTER else first
