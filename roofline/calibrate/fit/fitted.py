"""A whole file of measurements fitted: figures of the machine, laws, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roofline.base.errors import InputError
from roofline.calibrate.fit.experts import fit_experts
from roofline.calibrate.fit.groups import (
    Judged,
    attention_verdicts,
    better,
    fastest,
    fit_attention,
    fit_group,
)
from roofline.calibrate.fit.modes import Verdict
from roofline.calibrate.fit.products import fit_products
from roofline.calibrate.fit.tiled import fit_all_reduce, fit_split_attention, fit_tiles
from roofline.calibrate.measure.noise import Sifted, cliffs, sift
from roofline.calibrate.measure.rows import Row
from roofline.specs.formats import DType, rate_name
from roofline.specs.gpu import HardwareProfile
from roofline.timing.laws.base import Device

__all__ = ["Figures", "Fitted", "fit_rows", "measured_figures"]

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
class Fitted:
    """Everything that a profile and its report say."""

    figures: Figures
    laws: tuple[Judged, ...]
    verdicts: Mapping[tuple[str, str], Verdict]
    chosen: tuple[str, str] | None  # the attention kernel and cache format that a model would use
    sifted: Sifted
    notes: tuple[str, ...] = field(default=())


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
        raise InputError("no copy or read bandwidth was measured; measure with a larger --budget")
    peaks: dict[str, float] = {}
    for row in seen:
        if row.kind == "gemm":
            rate = rate_of(row.dtype)
            peaks[rate] = max(peaks.get(rate, 0.0), row.flops / row.seconds)
    if not peaks:
        raise InputError("no matrix product was measured; measure with a larger --budget")
    launch = {row.op: row.seconds for row in seen if row.kind == "launch"}
    return Figures(bandwidth=max(streams), peaks=peaks, launch=launch)


def fit_rows(
    rows: Sequence[Row], facts: Mapping[str, Any], datasheet: HardwareProfile | None, *, cite: str
) -> Fitted:
    """Return the laws of every kernel in a file, on a datasheet's figures or on measured ones."""
    sifted = sift(rows)
    figures = measured_figures(rows)
    source = {
        "cite": cite,
        "date": str(facts.get("date", "")),
        "library": str(facts.get("library", "")).split(" ")[0].lower(),
        "version": str(facts.get("library", "")),
    }
    fitter = _Fitter(sifted.rows, figures, datasheet, source)
    laws = fitter.laws()
    return Fitted(
        figures=figures,
        laws=tuple(laws),
        verdicts=fitter.verdicts,
        chosen=fitter.chosen,
        sifted=sifted,
        notes=(*_trust(rows, sifted), *_cliff_notes(sifted.rows), *_mode_notes(fitter.verdicts)),
    )


class _Fitter:
    """The rows of one machine, group by group."""

    def __init__(
        self, rows: Sequence[Row], figures: Figures, datasheet: HardwareProfile | None,
        source: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._rows, self._figures = rows, figures
        self._datasheet, self._source = datasheet, source
        base = next(row.dtype for row in rows if row.kind == "stream")
        self.verdicts = attention_verdicts(rows, self._device(base))
        self.chosen = self._fastest()

    def _device(self, dtype: str) -> Device:
        rate, gpu = rate_of(dtype), self._datasheet
        if gpu is None or rate not in gpu.rates:
            peak = self._figures.peaks.get(rate) or max(self._figures.peaks.values())
            bandwidth, units, l2, link = self._figures.bandwidth, 0, 0.0, self._figures.bandwidth
            return Device(bandwidth=bandwidth, peak=peak, units=units, l2=l2, link=link)
        units = gpu.compute.units.value if gpu.compute.units else 0
        l2 = gpu.compute.l2.value if gpu.compute.l2 else 0.0
        link = gpu.interconnect.per_direction.value
        return Device(bandwidth=gpu.bandwidth, peak=gpu.peak(rate), units=units, l2=l2, link=link)

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
        return fastest(
            {
                (kernel, dtype): rows
                for (kernel, dtype), rows in groups.items()
                if dtype == base and (kernel, dtype) in self.verdicts
            }
        )

    def laws(self) -> list[Judged]:
        """Return every law that the rows are enough for."""
        found = [*self._products(), *self._attentions()]
        for (dtype, op), rows in self._by("elementwise", "dtype", "op").items():
            found.append(fit_group(rows, self._device(dtype), self._source, op=op))
        for (dtype,), every in self._by("elementwise", "dtype").items():
            rows = [row for row in every if row.op not in ("sampling", "embedding")]
            found.append(fit_group(rows, self._device(dtype), self._source))
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
                fit_tiles(rows, self._datasheet, device, self._source)
                if (self._datasheet is not None and rows)
                else None
            )
            found += [tiled] if tiled and _clearer(tiled, simple) else simple
        return found

    def _attentions(self) -> list[Judged | None]:
        """Return the laws of the chosen kernel, for each cache format that it was timed with."""
        found = []
        for (kernel, dtype), rows in self._by("attention", "kernel", "dtype").items():
            verdict = self.verdicts.get((kernel, dtype))
            if self.chosen is None or kernel != self.chosen[0] or verdict is None:
                continue
            device = self._device("bf16" if dtype == "fp8" else dtype)
            simple = fit_attention(rows, verdict, device, self._source)
            split = fit_split_attention(rows, device, self._source)
            found.append(better(split, simple))
        return found

    def _experts(self) -> list[Judged | None]:
        """Return the law of the fastest expert kernel of each format."""
        groups = self._by("moe", "kernel", "dtype")
        found = []
        for wanted in dict.fromkeys(dtype for _, dtype in groups):
            same = {(k, d): rows for (k, d), rows in groups.items() if d == wanted}
            name = fastest(same)
            if name is not None:
                found.append(fit_experts(same[name], self._device(wanted), self._source))
        return found


def _clearer(tiled: Judged, simple: Sequence[Judged]) -> bool:
    """Return whether one law of tiles predicts held-out products better than all simple ones."""
    errors = [np.log(x.predicted / [row.seconds for row in x.rows])[x.held] for x in simple]
    together = np.concatenate(errors) if errors else np.zeros(0)
    return not together.size or tiled.loss(everything=False) < float(np.mean(np.abs(together)))


def _trust(rows: Sequence[Row], sifted: Sifted) -> list[str]:
    """Say whether the machine was steady enough."""
    judged = [row for row in rows if row.status in ("ok", "noisy")]
    lost = sum(sifted.left_out.get(reason, 0) for reason in ("noisy", "drift"))
    waited = float(np.mean([row.waited for row in judged])) if judged else 0.0
    rounds = "no case was measured twice"
    if sifted.repeated:
        rounds = (
            f"rounds differ by {sifted.disagreement:.1%} at the median ({sifted.repeated} cases)"
        )
    text = (
        f"{lost} of {len(judged)} rows were noisy or drifted, {rounds}, "
        f"kernels waited {waited:.0%} of their time"
    )
    noisy = lost > NOISY * len(judged) or sifted.disagreement > UNSTEADY or waited > BUSY
    return [f"the machine was noisy: {text}" if noisy else f"the machine was steady: {text}"]


def _cliff_notes(rows: Sequence[Row]) -> list[str]:
    curves: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        sizes = row.sizes
        name = next((n for n in ("m", "q", "tokens") if n in sizes), None)
        if name and row.op not in ("peak", "probe"):
            fixed = tuple(v for n, v in sorted(sizes.items()) if n != name)
            curves.setdefault((row.op, row.dtype, row.kernel, fixed), []).append(row)
    found: dict[tuple[str, str, float, float], list[float]] = {}
    for (op, dtype, kernel, _), same in curves.items():
        m = np.array([row.sizes.get("tokens", row.rows) for row in same])
        for before, after, jump in cliffs(m, np.array([row.seconds for row in same])):
            found.setdefault((f"{op} {kernel}", dtype, before, after), []).append(jump)
    return [
        f"cliff: {name} {dtype} from {before:.0f} to {after:.0f} rows: {np.median(jumps):.2f} times"
        f" as long ({len(jumps)} shape{'s' if len(jumps) > 1 else ''})"
        for (name, dtype, before, after), jumps in sorted(found.items())
    ]


def _mode_notes(verdicts: Mapping[tuple[str, str], Verdict]) -> list[str]:
    notes = []
    for (kernel, dtype), verdict in verdicts.items():
        errors = ", ".join(f"{mode} {error:.0%}" for mode, error in verdict.errors.items())
        tile = f" of {verdict.tile_rows} rows" if verdict.mode == "tile" else ""
        sure = "" if verdict.told_apart else " (not told apart: the default)"
        notes.append(f"attention {kernel} {dtype}: {verdict.mode}{tile}{sure}; errors {errors}")
    return notes
