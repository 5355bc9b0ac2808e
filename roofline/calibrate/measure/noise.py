"""Which measurements to believe: stated rules, as pure functions of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.measure.backend import Status
from roofline.calibrate.measure.rows import Row

__all__ = [
    "DRIFTED",
    "WIDE",
    "BelievableRows",
    "SampleSummary",
    "believable_rows",
    "cliffs",
    "drifted",
    "summarise",
]

FAR = 5.0  # robust standard deviations beyond which a sample is an outlier
LEAST = 0.02  # but never within this share of the median
WIDE = 0.25  # interquartile range over the median beyond which a row is noisy
DRIFT = 0.15  # the reference kernel this far off the run's median: the machine changed
DRIFTED = "drift"  # why a row is left out, beside its status
CLIFF = 1.3  # time that grows this many times faster than the rows do
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSummary:
    """The samples of one case in figures [s]; ``spread`` is a share of the median."""

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
    centre = float(np.median(values))
    width = 1.4826 * float(np.median(np.abs(values - centre)))
    kept = values[np.abs(values - centre) <= max(FAR * width, LEAST * centre)]
    low, median, high = np.quantile(kept, [0.25, 0.5, 0.75])
    return SampleSummary(
        median=float(median),
        spread=float((high - low) / median),
        kept=len(kept),
        outliers=len(values) - len(kept),
    )


def drifted(probes: Array) -> NDArray[np.bool_]:
    """Return where the reference kernel was over 15 % off the run's median.

    Rows without a probe (0) are not judged.

    >>> drifted(np.array([1.0, 1.01, 1.4, 0.0])).tolist()
    [False, False, True, False]
    """
    known = probes > 0
    if not known.any():
        return np.zeros(len(probes), dtype=bool)
    median = np.median(probes[known])
    return np.asarray(known & (np.abs(probes / median - 1) > DRIFT))


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
    """One median for each case that can be believed, and the rows left out by reason."""

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
    left_out: dict[str, int] = {}
    drift = drifted(np.array([row.probe for row in rows]))
    cases: dict[str, list[Row]] = {}
    for row, off in zip(rows, drift, strict=True):
        reason = row.status
        if reason == Status.OK and off:
            reason = DRIFTED
        if reason != Status.OK:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            cases.setdefault(row.key, []).append(row)
    medians, differences = [], []
    for rounds in cases.values():
        rounds.sort(key=lambda row: row.seconds)
        median = rounds[(len(rounds) - 1) // 2]
        medians.append(median)
        if len(rounds) > 1:
            differences += [abs(row.seconds / median.seconds - 1) for row in rounds]
    return BelievableRows(
        rows=tuple(medians),
        left_out=left_out,
        repeated=sum(len(rounds) > 1 for rounds in cases.values()),
        disagreement=float(np.median(differences)) if differences else 0.0,
    )
