"""The five-number law fitted to a machine's own rows: plain, with a staircase, and for products.

One law serves all products; a product that it is far off gets a law of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import least_log_error, rounded
from roofline.calibrate.fit.fitted_law import FittedLaw, RowSource, fitted_law, held_out_rows
from roofline.calibrate.measure.rows import Row
from roofline.specs.laws import SimpleLaw
from roofline.timing.laws.simple import Device, simple_time

__all__ = [
    "FEWEST",
    "IDENTIFIED",
    "KernelRows",
    "fit_five_numbers",
    "fit_products",
    "fit_simple",
    "predict",
]

Array = NDArray[np.float64]
#: Lowest, start and highest of each constant; floor is in units of the quickest row.
BOUNDS = {
    "floor": (0.0, 0.5, 1.0),
    "mem_eff": (0.01, 0.8, 1.05),
    "compute_eff": (0.002, 0.7, 1.05),
    "serial": (0.0, 0.0, 1e-6),
    "overlap": (1.0, 2.0, 8.0),
    "share": (0.001, 0.8, 20.0),
}
FEWEST = 4  # rows that a law needs; 2 tell the two constants of an elementwise one
_WARM = SimpleLaw(floor=0.0, mem_eff=0.8)
LEAST_SMALL = 3  # small products before they are priced apart
CLEARLY = 0.8  # at most so much of the error must a wider law leave
SIZES = 12  # of small products, tried as the end of their path
IDENTIFIED = 1.02  # a constant whose removal costs less than this is left at its start
FEWEST_TOGETHER = 2  # products that a general law must serve
LEAST_OWN, OWN_BEYOND = 8, 0.05  # rows of a product, and the error beyond which it gets its own law


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRows:
    """Measured rows of one group. FLOP, B, s; ``depth`` is K, 0 where nothing is reduced.

    ``work`` is the FLOP of one sequence and KV head, 0 where a kernel has no such parts.
    """

    flops: Array
    bytes: Array
    rows: Array
    depth: Array
    work: Array
    seconds: Array
    peak: float
    bandwidth: float

    def pick(self, chosen: NDArray[np.bool_]) -> KernelRows:
        """Return some of the rows."""
        return replace(
            self,
            flops=self.flops[chosen],
            bytes=self.bytes[chosen],
            rows=self.rows[chosen],
            depth=self.depth[chosen],
            work=self.work[chosen],
            seconds=self.seconds[chosen],
        )


def predict(bench: KernelRows, law: SimpleLaw) -> Array:
    """Return the time that a law predicts for each row [s]."""
    time = simple_time(
        flops=bench.flops,
        bytes=bench.bytes,
        reduction=bench.depth,
        peak=bench.peak,
        bandwidth=bench.bandwidth,
        law=law,
        rows=bench.rows if law.steps or law.small else None,
        work=bench.work,
    )
    return np.asarray(time.total)


def fit_constants(
    bench: KernelRows, names: tuple[str, ...], fixed: SimpleLaw, *, cached: bool = False
) -> SimpleLaw:
    """Return ``fixed`` with the named constants fitted on log error; bounded, deterministic.

    ``cached``: operands may lie in a cache, so the share of the bandwidth may exceed 1.
    """
    quickest = float(bench.seconds.min())
    unit = {"floor": quickest, "serial": 1e-6}

    def law_of(scaled: Array) -> SimpleLaw:
        values = {n: float(v) * unit.get(n, 1.0) for n, v in zip(names, scaled, strict=True)}
        return replace(fixed, **values)  # type: ignore[arg-type]

    def residual(scaled: Array) -> Array:
        return np.log(predict(bench, law_of(scaled)) / bench.seconds)

    limits = BOUNDS | ({"mem_eff": BOUNDS["share"]} if cached else {})
    low, start, high = (np.array([limits[n][i] for n in names]) for i in range(3))
    serial = [i for i, n in enumerate(names) if n == "serial"]
    high[serial] = 5.0  # up to 5 us for 64 of K
    scaled, _ = least_log_error(residual, start, low, high)
    return law_of(scaled)


def fit_simple(bench: KernelRows, *, memory_only: bool = False, stepped: bool = True) -> SimpleLaw:
    """Return the plain law, or a clearly better one with a staircase or a path for small products.

    Constants are rounded, and those that the rows do not tell apart stay where they start: K's
    latency needs several K, and the exponent p must earn its place. The staircase is 1 at its ends,
    so that the first row fixes the memory's share and the last one the arithmetic's.
    """
    if memory_only:
        return rounded_law(fit_constants(bench, ("floor", "mem_eff"), _WARM, cached=True))
    best = _plain(bench)
    if not stepped or len(np.unique(bench.rows)) < 4:
        return rounded_law(best)
    for wider in (_stepped(bench), _small_apart(bench, _plain), _small_apart(bench, _stepped)):
        if wider is not None and _loss(bench, wider) < CLEARLY * _loss(bench, best):
            best = wider
    return rounded_law(best)


def _plain(bench: KernelRows) -> SimpleLaw:
    start = SimpleLaw(floor=0.0, mem_eff=0.8, compute_eff=0.7, overlap=2.0)
    names: tuple[str, ...] = ("floor", "mem_eff", "compute_eff")
    best = fit_constants(bench, names, start)
    for extra in ("overlap", "serial"):
        if extra == "serial" and len(np.unique(bench.depth)) < 2:
            continue
        wider = fit_constants(bench, (*names, extra), best)
        if _loss(bench, best) > IDENTIFIED * _loss(bench, wider):
            best, names = wider, (*names, extra)
    return best


def _loss(bench: KernelRows, law: SimpleLaw) -> float:
    return float(np.mean(np.abs(np.log(predict(bench, law) / bench.seconds))))


def _stepped(bench: KernelRows) -> SimpleLaw:
    """Fit constants at the ends of the staircase and steps between them, in turn."""
    known = np.unique(bench.rows)
    first, last = known[0], known[-1]
    ends = (bench.rows <= first) | (bench.rows >= last)
    law = SimpleLaw(floor=0.0, mem_eff=0.8, compute_eff=0.7, overlap=4.0)
    law = fit_constants(bench.pick(ends), ("floor", "mem_eff", "compute_eff"), law)
    steps = []
    for rows in known:
        at = bench.pick(bench.rows == rows)
        body = np.maximum(predict(at, law) - law.floor, 1e-12)
        factor = float(np.median((at.seconds - law.floor) / body))
        steps.append((float(rows), max(factor, 0.05)))
    return replace(law, steps=tuple(steps))


def _small_apart(bench: KernelRows, fit: Callable[[KernelRows], SimpleLaw]) -> SimpleLaw | None:
    """Return the law that prices small products apart, None where there are too few of them.

    Libraries multiply small matrices as they lie and repack larger ones. Where the path ends is
    tried at each measured size, and put in the middle to the next.
    """
    sizes = np.unique(bench.work)
    laws = []
    for last, after in pairwise(sizes[: SIZES + 1]):
        small = bench.work <= last
        if small.sum() < LEAST_SMALL or len(np.unique(bench.rows[~small])) < 4:
            continue
        law, small_rows = fit(bench.pick(~small)), bench.pick(small)
        body = predict(small_rows, replace(law, steps=(), floor=0.0))
        factor = float(np.median((small_rows.seconds - law.floor) / body))
        middle = float(np.sqrt(last * after))
        laws.append(replace(law, small=middle, small_factor=max(factor, 0.01)))
    return min(laws, key=lambda law: _loss(bench, law), default=None)


def rounded_law(law: SimpleLaw) -> SimpleLaw:
    """Round every constant to the digits that files keep."""
    return SimpleLaw(
        floor=rounded(law.floor),
        mem_eff=rounded(law.mem_eff),
        compute_eff=rounded(law.compute_eff),
        serial=rounded(law.serial),
        overlap=rounded(law.overlap),
        steps=tuple((m, rounded(c)) for m, c in law.steps),
        small=rounded(law.small),
        small_factor=rounded(law.small_factor),
    )


def kernel_rows(rows: Sequence[Row], device: Device) -> KernelRows:
    """Return rows in the form that the five-number law takes."""
    return KernelRows(
        flops=np.array([row.flops for row in rows]),
        bytes=np.array([row.bytes for row in rows]),
        rows=np.array([row.rows for row in rows]),
        depth=np.array([float(row.sizes.get("k", 0)) for row in rows]),
        work=np.zeros(len(rows)),
        seconds=np.array([row.seconds for row in rows]),
        peak=device.peak,
        bandwidth=device.bandwidth,
    )


def fit_five_numbers(
    rows: Sequence[Row],
    device: Device,
    source: RowSource,
    *,
    op: str | None = None,
    bench: KernelRows | None = None,
    stepped: bool = True,
) -> FittedLaw | None:
    """Return the five-number law of these rows, None where they are too few."""
    memory_only = bool(rows) and rows[0].kind == "elementwise"
    if len(rows) < (2 if memory_only else FEWEST):
        return None
    bench = bench or kernel_rows(rows, device)
    law = fit_simple(bench.pick(~held_out_rows(rows)), memory_only=memory_only, stepped=stepped)
    return _with_evidence(rows, bench, law, device, source, op=op)


def _with_evidence(
    rows: Sequence[Row],
    bench: KernelRows,
    law: SimpleLaw,
    device: Device,
    source: RowSource,
    *,
    op: str | None = None,
) -> FittedLaw:
    """Return a five-number law beside what it predicts for the rows, those held out included."""
    constants = asdict(law)
    constants["steps"] = [list(step) for step in law.steps]
    if not law.steps:
        del constants["steps"]
    if not law.small:
        del constants["small"], constants["small_factor"]
    block = {
        "covers": rows[0].kind,
        "dtype": rows[0].dtype,
        "kernel": rows[0].kernel,
        **({} if op is None else {"op": op}),
        "law": constants,
    }
    return fitted_law(
        "simple",
        block,
        rows,
        predicted=predict(bench, law),
        held=held_out_rows(rows),
        device=device,
        source=source,
    )


def fit_products(rows: Sequence[Row], device: Device, source: RowSource) -> list[FittedLaw]:
    """Return the general law of products, then the own law of each that it is over 5 % off.

    The worst product is taken out and the general law fitted again on the others, until it serves
    them. Where one product would be left, the general law stays fitted on all and each product gets
    its own. Empty where the rows are too few.
    """
    law_of_all = general = fit_five_numbers(rows, device, source)
    odd: list[str] = []
    while general is not None and (worst := _worst(general)) is not None:
        odd.append(worst)
        rest = [row for row in rows if row.op not in odd]
        if len({row.op for row in rest}) < FEWEST_TOGETHER:
            general, odd = law_of_all, list(dict.fromkeys(row.op for row in rows))
            break
        general = fit_five_numbers(rest, device, source)
    if law_of_all is None or general is None:
        return [law_of_all] if law_of_all else []
    shared = _shared_steps(law_of_all, device) if odd else SimpleLaw(floor=0.0, mem_eff=1.0)
    own = [_own_law([row for row in rows if row.op == op], shared, device, source) for op in odd]
    return [general, *(law for law in own if law is not None)]


def _worst(law: FittedLaw) -> str | None:
    """Return the product that a law is furthest off, None where it serves all that have rows."""
    errors = np.abs(law.predicted / law.measured - 1)
    ops = np.array([row.op for row in law.rows])
    median = {
        op: float(np.median(errors[ops == op]))
        for op in dict.fromkeys(ops.tolist())
        if (ops == op).sum() >= LEAST_OWN
    }
    worst = max(median, key=lambda op: median[op], default=None)
    return worst if worst is not None and median[worst] > OWN_BEYOND else None


def _shared_steps(general: FittedLaw, device: Device) -> SimpleLaw:
    """Return the law of all products with each one's own level taken out."""
    ratio, fitted = general.measured / general.predicted, ~general.held
    ops = np.array([row.op for row in general.rows])
    level = np.ones(len(ops))
    for op in set(ops.tolist()):
        inside = (ops == op) & fitted
        level[ops == op] = np.median(ratio[inside]) if inside.any() else 1.0
    bench = kernel_rows(general.rows, device)
    return fit_simple(replace(bench, seconds=general.measured / level).pick(fitted))


def _own_law(
    rows: Sequence[Row], shared: SimpleLaw, device: Device, source: RowSource
) -> FittedLaw | None:
    """Return one product's law: constants on the staircase of all, or a staircase of its own.

    A staircase of its own has as many steps as rows, so only held-out rows can prove it better.
    """
    alone = fit_five_numbers(rows, device, source, op=rows[0].op)
    if not shared.steps or len(rows) < LEAST_OWN:
        return alone
    held, bench = held_out_rows(rows), kernel_rows(rows, device)
    names = ("floor", "mem_eff", "compute_eff")
    law = rounded_law(fit_constants(bench.pick(~held), names, shared))
    on_shared = _with_evidence(rows, bench, law, device, source, op=rows[0].op)
    if alone is None or not held.any():
        return on_shared
    return min(on_shared, alone, key=lambda law: law.loss(everything=False))
