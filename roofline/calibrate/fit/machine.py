"""A whole file of measurements fitted: the machine's figures, its laws, and rows left out."""

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
from roofline.calibrate.fit.fitted_law import (
    FittedLaw,
    RowSource,
    better_law,
    fastest_kernel,
    fitted_law,
)
from roofline.calibrate.fit.five_number import fit_five_numbers, fit_products
from roofline.calibrate.fit.tiles import fit_products_by_tiles
from roofline.calibrate.measure.backend import Status
from roofline.calibrate.measure.noise import DRIFTED, BelievableRows, believable_rows, cliffs
from roofline.calibrate.measure.rows import Row
from roofline.kernels.ops import CollectiveShape
from roofline.specs.formats import DType, rate_name
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import CollectiveConstants, CollectiveLaw
from roofline.timing.laws.simple import Device, collective_time
from roofline.timing.machine import device_of

__all__ = [
    "Cliff",
    "MachineFit",
    "MeasuredFigures",
    "Steadiness",
    "fit_all_reduce",
    "fit_rows",
    "measured_figures",
]

Array = NDArray[np.float64]
NOISY = 0.1  # share of rows left out above which the machine was noisy (a quiet one: 0.02)
UNSTEADY = 0.1  # median disagreement of rounds above which it was noisy as well
BUSY = 0.25  # time spent waiting for a core, over the time measured, above which it was, too


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFigures:
    """What the machine reached."""

    bandwidth: float  # of the fastest stream [B/s]
    peaks: dict[str, float]  # of the fastest product, by rate [FLOP/s]
    launch: dict[str, float]  # time of an empty kernel, eager and captured [s]


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
    """What a profile and its report are written from."""

    figures: MeasuredFigures
    laws: tuple[FittedLaw, ...]
    read_modes: Mapping[tuple[str, str], ReadMode]
    chosen_attention: tuple[str, str] | None  # kernel and cache format that a model would use
    believable: BelievableRows
    steadiness: Steadiness
    cliffs: tuple[Cliff, ...]


def product_rate(dtype: str) -> str:
    """Return the rate of the datasheet that a format's product runs at.

    >>> product_rate("int4-wo"), product_rate("fp8")
    ('bf16', 'fp8')
    """
    return "bf16" if dtype.endswith("-wo") else rate_name(DType(dtype))


def measured_figures(rows: Sequence[Row]) -> MeasuredFigures:
    """Return the best stream and product of any round.

    A disturbance only slows, so rows beside which the reference kernel drifted count here too.
    """
    measured = [row for row in rows if row.status == Status.OK]
    streams = [row.bytes / row.seconds for row in measured if row.kind == "stream"]
    if not streams:
        raise InputError(
            f"no copy or read bandwidth was measured; measure with a larger {Option('budget')}"
        )
    peaks: dict[str, float] = {}
    for row in measured:
        if row.kind == "gemm":
            rate = product_rate(row.dtype)
            peaks[rate] = max(peaks.get(rate, 0.0), row.flops / row.seconds)
    if not peaks:
        raise InputError(
            f"no matrix product was measured; measure with a larger {Option('budget')}"
        )
    launch = {row.op: row.seconds for row in measured if row.kind == "launch"}
    return MeasuredFigures(bandwidth=max(streams), peaks=peaks, launch=launch)


def fit_rows(
    rows: Sequence[Row], facts: Mapping[str, Any], datasheet: HardwareProfile | None, *, cite: str
) -> MachineFit:
    """Return the laws of every kernel in a file, on a datasheet's figures or on measured ones."""
    believable = believable_rows(rows)
    figures = measured_figures(rows)
    library = str(facts.get("library", ""))
    source = RowSource(
        cite=cite,
        date=str(facts.get("date", "")),
        library=library.partition(" ")[0].lower(),
        version=library,
    )
    machine = _MachineRows(believable.rows, figures, datasheet, source)
    return MachineFit(
        figures=figures,
        laws=tuple(machine.laws()),
        read_modes=machine.read_modes,
        chosen_attention=machine.chosen_attention,
        believable=believable,
        steadiness=_steadiness(rows, believable),
        cliffs=tuple(_cliffs(believable.rows)),
    )


class _MachineRows:
    """The believable rows of one machine, and the laws of each group of them."""

    def __init__(
        self,
        rows: Sequence[Row],
        figures: MeasuredFigures,
        datasheet: HardwareProfile | None,
        source: RowSource,
    ) -> None:
        self._rows, self._figures = rows, figures
        self._datasheet, self._source = datasheet, source
        self._base = next(row.dtype for row in rows if row.kind == "stream")
        self.read_modes = read_modes(rows, self._device(self._base))
        self.chosen_attention = self._fastest_attention()

    def _device(self, dtype: str) -> Device:
        rate, gpu = product_rate(dtype), self._datasheet
        if gpu is None or rate not in gpu.rates:
            peak = self._figures.peaks.get(rate) or max(self._figures.peaks.values())
            bandwidth = self._figures.bandwidth
            return Device(bandwidth=bandwidth, peak=peak, units=0, l2=0.0, link=bandwidth)
        return device_of(gpu, rate)

    def _grouped(self, kind: str, *names: str) -> dict[tuple[str, ...], list[Row]]:
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in self._rows:
            if row.kind == kind:
                groups.setdefault(tuple(getattr(row, n) for n in names), []).append(row)
        return groups

    def _fastest_attention(self) -> tuple[str, str] | None:
        """Return the attention kernel with the least time on the shapes that all have."""
        groups = self._grouped("attention", "kernel", "dtype")
        return fastest_kernel(
            {
                (kernel, dtype): rows
                for (kernel, dtype), rows in groups.items()
                if dtype == self._base and (kernel, dtype) in self.read_modes
            }
        )

    def laws(self) -> list[FittedLaw]:
        """Return every law that there are enough rows for."""
        laws = [*self._products(), *self._attentions()]
        for (dtype, op), rows in self._grouped("elementwise", "dtype", "op").items():
            laws.append(fit_five_numbers(rows, self._device(dtype), self._source, op=op))
        for (dtype,), rows in self._grouped("elementwise", "dtype").items():
            usual = [row for row in rows if row.op not in ("sampling", "embedding")]
            laws.append(fit_five_numbers(usual, self._device(dtype), self._source))
        laws += self._experts()
        for (dtype,), rows in self._grouped("allreduce", "dtype").items():
            laws.append(fit_all_reduce(rows, self._device(dtype), self._source))
        return [law for law in laws if law is not None]

    def _products(self) -> list[FittedLaw]:
        laws: list[FittedLaw] = []
        for (dtype,), products in self._grouped("gemm", "dtype").items():
            device = self._device(dtype)
            rows = [row for row in products if row.op != "peak"]
            simple = fit_products(rows, device, self._source)
            tiled = (
                fit_products_by_tiles(rows, self._datasheet, device, self._source)
                if (self._datasheet is not None and rows)
                else None
            )
            laws += [tiled] if tiled and _tiles_predict_better(tiled, simple) else simple
        return laws

    def _attentions(self) -> list[FittedLaw | None]:
        """Return the laws of the chosen kernel, for each cache format that it was timed with."""
        laws: list[FittedLaw | None] = []
        if self.chosen_attention is None:
            return laws
        for (kernel, dtype), rows in self._grouped("attention", "kernel", "dtype").items():
            read_mode = self.read_modes.get((kernel, dtype))
            if kernel != self.chosen_attention[0] or read_mode is None:
                continue
            device = self._device("bf16" if dtype == "fp8" else dtype)
            simple = fit_attention(rows, read_mode, device, self._source)
            split = fit_split_attention(rows, device, self._source)
            laws.append(better_law(split, simple))
        return laws

    def _experts(self) -> list[FittedLaw | None]:
        """Return the law of the fastest expert kernel of each format."""
        groups = self._grouped("moe", "kernel", "dtype")
        laws = []
        for dtype in dict.fromkeys(dtype for _, dtype in groups):
            kernels = {(k, d): rows for (k, d), rows in groups.items() if d == dtype}
            name = fastest_kernel(kernels)
            if name is not None:
                laws.append(fit_experts(kernels[name], self._device(dtype), self._source))
        return laws


def fit_all_reduce(rows: Sequence[Row], device: Device, source: RowSource) -> FittedLaw | None:
    """Return the law of the bulk algorithm among the measured GPUs: its start, and link share."""
    if len(rows) < 4:
        return None
    ranks = rows[0].sizes["ranks"]
    payload = np.array([float(row.sizes["payload"]) for row in rows])
    seconds = np.array([row.seconds for row in rows])
    shape = CollectiveShape(payload=payload, ranks=ranks)

    def law_of(scaled: Array) -> CollectiveLaw:
        start, share = float(scaled[0]) * 1e-6, float(scaled[1])
        return CollectiveLaw(
            ranks={ranks: CollectiveConstants(start={"bulk": start}, share={"bulk": share})}
        )

    def residual(scaled: Array) -> Array:
        total = collective_time(shape, device, law_of(scaled)).total
        return np.asarray(np.log(np.asarray(total) / seconds))

    low, start, high = np.array([0.5, 0.02]), np.array([10.0, 0.7]), np.array([500.0, 3.0])
    scaled, _ = least_log_error(residual, start, low, high)
    law = law_of(np.array([rounded(float(value)) for value in scaled]))
    predicted = np.asarray(collective_time(shape, device, law).total)
    held = np.zeros(len(rows), dtype=bool)
    block = {"kernel": rows[0].kernel, "law": asdict(law)}
    return fitted_law(
        "allreduce", block, rows, predicted=predicted, held=held, device=device, source=source
    )


def _tiles_predict_better(tiled: FittedLaw, simple: Sequence[FittedLaw]) -> bool:
    """Return whether the tile law predicts held-out products better than the simple laws do."""
    errors = [np.log(law.predicted / law.measured)[law.held] for law in simple]
    pooled = np.concatenate(errors) if errors else np.zeros(0)
    return not pooled.size or tiled.loss(everything=False) < float(np.mean(np.abs(pooled)))


def _steadiness(rows: Sequence[Row], believable: BelievableRows) -> Steadiness:
    timed = [row for row in rows if row.status in (Status.OK, Status.NOISY)]
    lost = sum(believable.left_out.get(reason, 0) for reason in (Status.NOISY, DRIFTED))
    waited = float(np.mean([row.waited for row in timed])) if timed else 0.0
    return Steadiness(
        rows=len(timed),
        lost=lost,
        repeated=believable.repeated,
        disagreement=believable.disagreement,
        waited=waited,
        noisy=lost > NOISY * len(timed) or believable.disagreement > UNSTEADY or waited > BUSY,
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
            jump=float(np.median(ratios)),
            shapes=len(ratios),
        )
        for (op, kernel, dtype, before, after), ratios in ordered
    ]
