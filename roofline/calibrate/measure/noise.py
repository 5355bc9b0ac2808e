"""Which measurements to believe: stated rules, as pure functions of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.measure.rows import Row

__all__ = ["BelievableRows", "SampleSummary", "believable_rows", "cliffs", "drifted", "summarise"]

FAR = 5.0  # robust standard deviations beyond which a sample is an outlier
LEAST = 0.02  # but never within this share of the median
WIDE = 0.25  # interquartile range over the median beyond which a row is noisy
DRIFT = 0.15  # the reference kernel this far off the run's median: the machine changed
CLIFF = 1.3  # time that grows this many times faster than the rows do
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSummary:
    """What the samples of one case say [s]."""

    median: float
    spread: float
    kept: int
    outliers: int

    @property
    def noisy(self) -> bool:
        """Whether the samples disagree too much to be fitted."""
        return self.spread > WIDE


def summarise(samples: Sequence[float]) -> SampleSummary:
    """Return the median and spread of the samples [s] after outliers are taken out.

    An outlier lies over 5 robust standard deviations (1.4826 MAD), and over 2 %, off the median.

    >>> summary = summarise([1.0, 1.01, 0.99, 1.0, 7.0])
    >>> summary.median, summary.outliers
    (1.0, 1)
    """
    values = np.asarray(samples, dtype=np.float64)
    middle = float(np.median(values))
    width = 1.4826 * float(np.median(np.abs(values - middle)))
    kept = values[np.abs(values - middle) <= max(FAR * width, LEAST * middle)]
    low, middle, high = np.quantile(kept, [0.25, 0.5, 0.75])
    return SampleSummary(
        median=float(middle),
        spread=float((high - low) / middle),
        kept=len(kept),
        outliers=len(values) - len(kept),
    )


def drifted(probes: Array) -> NDArray[np.bool_]:
    """Return where the reference kernel was over 15 % off its median of the run.

    Rows without a probe (0) are not judged.

    >>> drifted(np.array([1.0, 1.01, 1.4, 0.0])).tolist()
    [False, False, True, False]
    """
    seen = probes > 0
    if not seen.any():
        return np.zeros(len(probes), dtype=bool)
    middle = np.median(probes[seen])
    return np.asarray(seen & (np.abs(probes / middle - 1) > DRIFT))


def cliffs(rows: Array, seconds: Array) -> list[tuple[float, float, float]]:
    """Return (rows before, rows after, jump) where time grows 1.3 times faster than the rows.

    >>> cliffs(np.array([32.0, 64.0, 65.0]), np.array([1.0, 1.1, 2.2]))
    [(64.0, 65.0, 2.0)]
    """
    order = np.argsort(rows, kind="stable")
    m, t = rows[order], seconds[order]
    jump = t[1:] / t[:-1]
    sudden = jump > CLIFF * m[1:] / m[:-1]
    return [(float(m[i]), float(m[i + 1]), float(jump[i])) for i in np.flatnonzero(sudden)]


@dataclass(frozen=True, kw_only=True, slots=True)
class BelievableRows:
    """One median for each case that can be believed, and what was left out by reason."""

    rows: tuple[Row, ...]
    left_out: Mapping[str, int]
    #: Cases measured in several rounds, and the median difference of a round from their median.
    repeated: int
    disagreement: float


def believable_rows(rows: Sequence[Row]) -> BelievableRows:
    """Return the believable rows: the median over rounds of each case.

    Left out: every status but ``ok`` by its name (``noisy``: an interquartile range over 25 %),
    and ``drift`` (the reference kernel just before was over 15 % off the run's median).
    """
    left: dict[str, int] = {}
    moved = drifted(np.array([row.probe for row in rows]))
    cases: dict[str, list[Row]] = {}
    for row, gone in zip(rows, moved, strict=True):
        reason = row.status if row.status != "ok" else "drift" if gone else None
        if reason:
            left[reason] = left.get(reason, 0) + 1
        else:
            cases.setdefault(row.key, []).append(row)
    middle, differences = [], []
    for same in cases.values():
        same.sort(key=lambda row: row.seconds)
        chosen = same[(len(same) - 1) // 2]
        middle.append(chosen)
        if len(same) > 1:
            differences += [abs(row.seconds / chosen.seconds - 1) for row in same]
    return BelievableRows(
        rows=tuple(middle),
        left_out=left,
        repeated=sum(len(same) > 1 for same in cases.values()),
        disagreement=float(np.median(differences)) if differences else 0.0,
    )
