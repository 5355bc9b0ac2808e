"""From believable rows to laws: what each kind of kernel is fitted with, and how it is judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import rounded, score
from roofline.calibrate.fit.modes import Verdict, bench_as, tell_mode
from roofline.calibrate.fit.stepped import Bench, fit_simple, predict
from roofline.calibrate.measure.rows import Row
from roofline.specs.laws import SimpleLaw
from roofline.timing.laws.base import Device
from roofline.validation.tables.tables import held_out

__all__ = [
    "Judged",
    "attention_verdicts",
    "bench_of",
    "better",
    "evidence",
    "fastest",
    "fit_attention",
    "fit_group",
    "hold_out",
    "judge",
    "simple_block",
]

Array = NDArray[np.float64]
CLEARLY_FASTER = 0.02
FEWEST_HELD = 5  # held-out rows that can choose between two laws
FEWEST = 4  # rows that a law needs; 2 tell the two constants of an elementwise one


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A law's block beside what it says of every row. Times in s."""

    block: dict[str, Any]
    rows: tuple[Row, ...]
    predicted: Array
    held: NDArray[np.bool_]

    @property
    def median(self) -> float:
        """Return the median error on rows that were not fitted (on all, where none were)."""
        judged = self.held if self.held.any() else ~self.held
        measured = np.array([row.seconds for row in self.rows])
        return score(self.predicted[judged], measured[judged]).median

    def loss(self, *, everything: bool) -> float:
        """Return the mean log error on all rows, or on those that were not fitted."""
        judged = np.ones(len(self.rows), dtype=bool) if everything else self.held
        measured = np.array([row.seconds for row in self.rows])
        return float(np.mean(np.abs(np.log(self.predicted / measured)[judged])))


def bench_of(rows: Sequence[Row], device: Device) -> Bench:
    """Return rows as the five-number law sees them."""
    return Bench(
        flops=np.array([row.flops for row in rows]),
        bytes=np.array([row.bytes for row in rows]),
        rows=np.array([row.rows for row in rows]),
        depth=np.array([float(row.sizes.get("k", 0)) for row in rows]),
        work=np.zeros(len(rows)),
        seconds=np.array([row.seconds for row in rows]),
        peak=device.peak,
        bandwidth=device.bandwidth,
    )


def hold_out(rows: Sequence[Row]) -> NDArray[np.bool_]:
    """Return which rows are never fitted: a fifth by a stable hash, none of fewer than ten."""
    if len(rows) < 10:
        return np.zeros(len(rows), dtype=bool)
    return np.array([held_out(row.key) for row in rows])


def fit_group(
    rows: Sequence[Row], device: Device, source: Mapping[str, str], *, op: str | None = None,
    bench: Bench | None = None, stepped: bool = True,
) -> Judged | None:  # fmt: skip
    """Return the five-number law of rows that one law prices, None where they are too few."""
    memory_only = bool(rows) and rows[0].kind == "elementwise"
    if len(rows) < (2 if memory_only else FEWEST):
        return None
    whole = bench or bench_of(rows, device)
    held = hold_out(rows)
    law = fit_simple(whole.pick(~held), memory_only=memory_only, stepped=stepped)
    return judge(rows, whole, law, device, source, op=op)


def judge(
    rows: Sequence[Row], bench: Bench, law: SimpleLaw, device: Device, source: Mapping[str, str],
    *, op: str | None = None,
) -> Judged:  # fmt: skip
    """Return a five-number law beside what it says of the rows, those held out among them."""
    predicted, held = predict(bench, law), hold_out(rows)
    block = simple_block(rows[0], law, op=op, source=source) | {
        "evidence": evidence(rows, predicted, held, device, source)
    }
    return Judged(block=block, rows=tuple(rows), predicted=predicted, held=held)


def simple_block(
    row: Row, law: SimpleLaw, *, op: str | None, source: Mapping[str, str]
) -> dict[str, Any]:
    """Return a law as a profile writes it, without its evidence."""
    constants = asdict(law)
    constants["steps"] = [list(step) for step in law.steps]
    if not law.steps:
        del constants["steps"]
    if not law.small:
        del constants["small"], constants["small_factor"]
    named = {} if op is None else {"op": op}
    return {
        "kind": "simple", "engine": source["library"], "version": source["version"],
        "covers": row.kind, "dtype": row.dtype, "kernel": row.kernel, **named, "law": constants,
    }  # fmt: skip


def evidence(
    rows: Sequence[Row], predicted: Array, held: NDArray[np.bool_], device: Device,
    source: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """Return what a law was fitted on and how far off it is."""
    measured = np.array([row.seconds for row in rows])
    judged = held if held.any() else ~held
    own = score(predicted[judged], measured[judged])
    textbook = np.maximum(
        np.array([row.bytes for row in rows]) / device.bandwidth,
        np.array([row.flops for row in rows]) / device.peak,
    )
    found = {
        "source": source["cite"],
        "date": source["date"],
        "rows_fitted": int((~held).sum()),
        "rows_held_out": int(held.sum()),
        "median_error": rounded(own.median),
        "p90_error": rounded(own.p90),
        "bias": rounded(own.bias),
        "textbook_median_error": rounded(score(textbook[judged], measured[judged]).median),
    }
    ratio = _ratio_error(rows, predicted, measured)
    return found if ratio is None else found | {"ratio_error": rounded(ratio)}


def better(first: Judged | None, second: Judged | None) -> Judged | None:
    """Return the law of the same rows that predicts those that neither was fitted on better.

    Fewer than five of them decide nothing: then all rows do.
    """
    found = [judged for judged in (first, second) if judged is not None]
    few = bool(found) and found[0].held.sum() < FEWEST_HELD
    return min(found, key=lambda x: x.loss(everything=few), default=None)


def _ratio_error(rows: Sequence[Row], predicted: Array, measured: Array) -> float | None:
    """Return the median error of t(4 M) / t(M) at a fixed shape, where rows vary."""
    at: dict[tuple[Any, ...], int] = {}
    for i, row in enumerate(rows):
        name = next((n for n in ("m", "q", "rows", "tokens") if n in row.sizes), "")
        fixed = tuple(v for n, v in sorted(row.sizes.items()) if n != name)
        at[(row.op, fixed, row.sizes.get(name, 0))] = i
    pairs = [
        (i, at[op, fixed, 4 * m])
        for (op, fixed, m), i in at.items()
        if m and (op, fixed, 4 * m) in at
    ]
    if not pairs:
        return None
    low, high = np.array(pairs).T
    growth = (predicted[high] / predicted[low]) / (measured[high] / measured[low])
    return float(np.median(np.abs(growth - 1)))


def fastest(groups: Mapping[tuple[str, str], Sequence[Row]]) -> tuple[str, str] | None:
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


def attention_verdicts(rows: Iterable[Row], device: Device) -> dict[tuple[str, str], Verdict]:
    """Return how each attention kernel reads the cache, by (kernel, cache format)."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.kind == "attention":
            found.setdefault((row.kernel, row.dtype), []).append(row)
    return {
        name: tell_mode(same, peak=device.peak, bandwidth=device.bandwidth)
        for name, same in found.items()
        if len(same) >= FEWEST and len({row.sizes["q"] for row in same}) > 1
    }


def fit_attention(
    rows: Sequence[Row], verdict: Verdict, device: Device, source: Mapping[str, str]
) -> Judged | None:
    """Return the law of one attention kernel under the way it reads the cache."""
    bench = bench_as(
        rows, verdict.mode, tile=verdict.tile_rows, peak=device.peak, bandwidth=device.bandwidth
    )
    return fit_group(rows, device, source, bench=bench)
