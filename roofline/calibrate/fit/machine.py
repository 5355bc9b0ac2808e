"""A whole file of measurements fitted: figures of the machine, laws, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError, Option
from roofline.calibrate.fit.attention import (
    ReadMode,
    fit_attention,
    fit_split_attention,
    read_modes,
)
from roofline.calibrate.fit.core import least_log_error, rounded
from roofline.calibrate.fit.experts import fit_experts
from roofline.calibrate.fit.five_number import fit_five_numbers, fit_products
from roofline.calibrate.fit.judged import Judged, Source, better_law, fastest_kernel, judge
from roofline.calibrate.fit.tiles import fit_products_by_tiles
from roofline.calibrate.measure.noise import BelievableRows, believable_rows, cliffs
from roofline.calibrate.measure.rows import Row
from roofline.kernels.ops import CollectiveShape
from roofline.specs.formats import DType, rate_name
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import CollectiveConstants, CollectiveLaw
from roofline.timing.laws.simple import Device, collective_time
from roofline.timing.machine import device_of

__all__ = [
    "Cliff",
    "Figures",
    "MachineFit",
    "Steadiness",
    "fit_all_reduce",
    "fit_rows",
    "measured_figures",
]

Array = NDArray[np.float64]
NOISY = 0.1  # share of rows left out above which the machine was noisy (a quiet one: 0.02)
UNSTEADY = 0.1
BUSY = 0.25  # time spent waiting for a core, over the time measured


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What the machine reached: the fastest stream [B/s] and product [FLOP/s] by format."""

    bandwidth: float
    peaks: dict[str, float]
    launch: dict[str, float]  # seconds of an empty kernel, eager and captured [s]


@dataclass(frozen=True, kw_only=True, slots=True)
class Steadiness:
    """How steady the machine was while it was measured."""

    rows: int
    lost: int  # rows that were noisy or drifted
    repeated: int  # cases measured in several rounds
    disagreement: float  # of rounds, at the median
    waited: float  # share of the measured time spent waiting for a core
    noisy: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Cliff:
    """Where the time of a kernel grows clearly faster than its rows; ``jump`` is the median."""

    op: str
    kernel: str
    dtype: str
    before: float
    after: float
    jump: float
    shapes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFit:
    """Everything that a profile and its report say."""

    figures: Figures
    laws: tuple[Judged, ...]
    read_modes: Mapping[tuple[str, str], ReadMode]
    chosen: tuple[str, str] | None  # the attention kernel and cache format that a model would use
    believable: BelievableRows
    steadiness: Steadiness
    cliffs: tuple[Cliff, ...]


def rate_of(dtype: str) -> str:
    """Return the rate that a format's product runs at.

    >>> rate_of("int4-wo"), rate_of("fp8")
    ('bf16', 'fp8')
    """
    return "bf16" if dtype.endswith("-wo") else rate_name(DType(dtype))


def measured_figures(rows: Sequence[Row]) -> Figures:
    """Return the best stream and product that were seen in any round.

    A disturbance only slows: rows beside which the reference kernel drifted count here.
    """
    seen = [row for row in rows if row.status == "ok"]
    streams = [row.bytes / row.seconds for row in seen if row.kind == "stream"]
    if not streams:
        raise InputError(
            f"no copy or read bandwidth was measured; measure with a larger {Option('budget')}"
        )
    peaks: dict[str, float] = {}
    for row in seen:
        if row.kind == "gemm":
            rate = rate_of(row.dtype)
            peaks[rate] = max(peaks.get(rate, 0.0), row.flops / row.seconds)
    if not peaks:
        raise InputError(
            f"no matrix product was measured; measure with a larger {Option('budget')}"
        )
    launch = {row.op: row.seconds for row in seen if row.kind == "launch"}
    return Figures(bandwidth=max(streams), peaks=peaks, launch=launch)


def fit_rows(
    rows: Sequence[Row], facts: Mapping[str, Any], datasheet: HardwareProfile | None, *, cite: str
) -> MachineFit:
    """Return the laws of every kernel in a file, on a datasheet's figures or on measured ones."""
    believable = believable_rows(rows)
    figures = measured_figures(rows)
    library = str(facts.get("library", ""))
    source = Source(
        cite=cite,
        date=str(facts.get("date", "")),
        library=library.partition(" ")[0].lower(),
        version=library,
    )
    machine = _MachineFit(believable.rows, figures, datasheet, source)
    laws = machine.laws()
    return MachineFit(
        figures=figures,
        laws=tuple(laws),
        read_modes=machine.read_modes,
        chosen=machine.chosen,
        believable=believable,
        steadiness=_steadiness(rows, believable),
        cliffs=tuple(_cliffs(believable.rows)),
    )


class _MachineFit:
    """The rows of one machine, group by group."""

    def __init__(
        self,
        rows: Sequence[Row],
        figures: Figures,
        datasheet: HardwareProfile | None,
        source: Source,
    ) -> None:
        self._rows, self._figures = rows, figures
        self._datasheet, self._source = datasheet, source
        base = next(row.dtype for row in rows if row.kind == "stream")
        self.read_modes = read_modes(rows, self._device(base))
        self.chosen = self._fastest()

    def _device(self, dtype: str) -> Device:
        rate, gpu = rate_of(dtype), self._datasheet
        if gpu is None or rate not in gpu.rates:
            peak = self._figures.peaks.get(rate) or max(self._figures.peaks.values())
            bandwidth, units, l2, link = self._figures.bandwidth, 0, 0.0, self._figures.bandwidth
            return Device(bandwidth=bandwidth, peak=peak, units=units, l2=l2, link=link)
        return device_of(gpu, rate)

    def _by(self, kind: str, *names: str) -> dict[tuple[str, ...], list[Row]]:
        found: dict[tuple[str, ...], list[Row]] = {}
        for row in self._rows:
            if row.kind == kind:
                found.setdefault(tuple(getattr(row, n) for n in names), []).append(row)
        return found

    def _fastest(self) -> tuple[str, str] | None:
        """Return the attention kernel with the least time on the shapes that all have."""
        base = next(row.dtype for row in self._rows if row.kind == "stream")
        groups = self._by("attention", "kernel", "dtype")
        return fastest_kernel(
            {
                (kernel, dtype): rows
                for (kernel, dtype), rows in groups.items()
                if dtype == base and (kernel, dtype) in self.read_modes
            }
        )

    def laws(self) -> list[Judged]:
        """Return every law that the rows are enough for."""
        found = [*self._products(), *self._attentions()]
        for (dtype, op), rows in self._by("elementwise", "dtype", "op").items():
            found.append(fit_five_numbers(rows, self._device(dtype), self._source, op=op))
        for (dtype,), every in self._by("elementwise", "dtype").items():
            rows = [row for row in every if row.op not in ("sampling", "embedding")]
            found.append(fit_five_numbers(rows, self._device(dtype), self._source))
        found += self._experts()
        for (dtype,), rows in self._by("allreduce", "dtype").items():
            found.append(fit_all_reduce(rows, self._device(dtype), self._source))
        return [judged for judged in found if judged is not None]

    def _products(self) -> list[Judged]:
        found: list[Judged] = []
        for (dtype,), every in self._by("gemm", "dtype").items():
            device = self._device(dtype)
            rows = [row for row in every if row.op != "peak"]
            simple = fit_products(rows, device, self._source)
            tiled = (
                fit_products_by_tiles(rows, self._datasheet, device, self._source)
                if (self._datasheet is not None and rows)
                else None
            )
            found += [tiled] if tiled and _tiles_predict_better(tiled, simple) else simple
        return found

    def _attentions(self) -> list[Judged | None]:
        """Return the laws of the chosen kernel, for each cache format that it was timed with."""
        found = []
        for (kernel, dtype), rows in self._by("attention", "kernel", "dtype").items():
            read_mode = self.read_modes.get((kernel, dtype))
            if self.chosen is None or kernel != self.chosen[0] or read_mode is None:
                continue
            device = self._device("bf16" if dtype == "fp8" else dtype)
            simple = fit_attention(rows, read_mode, device, self._source)
            split = fit_split_attention(rows, device, self._source)
            found.append(better_law(split, simple))
        return found

    def _experts(self) -> list[Judged | None]:
        """Return the law of the fastest expert kernel of each format."""
        groups = self._by("moe", "kernel", "dtype")
        found = []
        for wanted in dict.fromkeys(dtype for _, dtype in groups):
            same = {(k, d): rows for (k, d), rows in groups.items() if d == wanted}
            name = fastest_kernel(same)
            if name is not None:
                found.append(fit_experts(same[name], self._device(wanted), self._source))
        return found


def fit_all_reduce(rows: Sequence[Row], device: Device, source: Source) -> Judged | None:
    """Return the bulk form's start and share of the link among the GPUs that were there."""
    if len(rows) < 4:
        return None
    ranks = rows[0].sizes["ranks"]
    payload = np.array([float(row.sizes["payload"]) for row in rows])
    seconds = np.array([row.seconds for row in rows])
    shape = CollectiveShape(payload=payload, ranks=ranks)

    def law_of(scaled: Array) -> CollectiveLaw:
        one = CollectiveConstants(
            start={"bulk": float(scaled[0]) * 1e-6}, share={"bulk": float(scaled[1])}
        )
        return CollectiveLaw(ranks={ranks: one})

    def residual(scaled: Array) -> Array:
        total = collective_time(shape, device, law_of(scaled)).total
        return np.asarray(np.log(np.asarray(total) / seconds))

    low, start, high = np.array([0.5, 0.02]), np.array([10.0, 0.7]), np.array([500.0, 3.0])
    found, _ = least_log_error(residual, start, low, high)
    law = law_of(np.array([rounded(float(v)) for v in found]))
    predicted = np.asarray(collective_time(shape, device, law).total)
    held = np.zeros(len(rows), dtype=bool)
    block = {"kernel": rows[0].kernel, "law": asdict(law)}
    return judge(
        "allreduce", block, rows, predicted=predicted, held=held, device=device, source=source
    )


def _tiles_predict_better(tiled: Judged, simple: Sequence[Judged]) -> bool:
    """Return whether one law of tiles predicts held-out products better than all simple ones."""
    errors = [np.log(x.predicted / [row.seconds for row in x.rows])[x.held] for x in simple]
    together = np.concatenate(errors) if errors else np.zeros(0)
    return not together.size or tiled.loss(everything=False) < float(np.mean(np.abs(together)))


def _steadiness(rows: Sequence[Row], believable: BelievableRows) -> Steadiness:
    judged = [row for row in rows if row.status in ("ok", "noisy")]
    lost = sum(believable.left_out.get(reason, 0) for reason in ("noisy", "drift"))
    waited = float(np.mean([row.waited for row in judged])) if judged else 0.0
    return Steadiness(
        rows=len(judged),
        lost=lost,
        repeated=believable.repeated,
        disagreement=believable.disagreement,
        waited=waited,
        noisy=lost > NOISY * len(judged) or believable.disagreement > UNSTEADY or waited > BUSY,
    )


def _cliffs(rows: Sequence[Row]) -> list[Cliff]:
    curves: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        sizes = row.sizes
        name = next((n for n in ("m", "q", "tokens") if n in sizes), None)
        if name and row.op not in ("peak", "probe"):
            fixed = tuple(v for n, v in sorted(sizes.items()) if n != name)
            curves.setdefault((row.op, row.dtype, row.kernel, fixed), []).append(row)
    jumps: dict[tuple[str, str, str, float, float], list[float]] = {}
    for (op, dtype, kernel, _), curve in curves.items():
        counts = np.array([row.sizes.get("tokens", row.rows) for row in curve])
        for before, after, jump in cliffs(counts, np.array([row.seconds for row in curve])):
            jumps.setdefault((op, kernel, dtype, before, after), []).append(jump)
    ordered = sorted(jumps.items(), key=lambda item: (f"{item[0][0]} {item[0][1]}", *item[0][2:]))
    return [
        Cliff(
            op=op,
            kernel=kernel,
            dtype=dtype,
            before=before,
            after=after,
            jump=float(np.median(same)),
            shapes=len(same),
        )
        for (op, kernel, dtype, before, after), same in ordered
    ]
