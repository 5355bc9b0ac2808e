"""A device that is not there: it answers by a planted law, with noise and mishaps on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from roofline.calibrate.measure.backend import CaseError, Status
from roofline.calibrate.measure.campaign import run_campaign
from roofline.calibrate.measure.cases import Case, Menu, plan_cases
from roofline.calibrate.measure.device import Samples
from roofline.calibrate.measure.rows import Row, RowFile
from roofline.specs.network import ModelSpec

#: The planted machine: 100 GB/s, 10 TFLOP/s.
BANDWIDTH, PEAK = 100e9, 10e12
FLOOR, MEM_EFF, COMPUTE_EFF = 5e-6, 0.8, 0.6


def planted(flops: float, moved: float) -> float:
    """Return 5 us + max(bytes / 80 GB/s, FLOP / 6 TFLOP/s), written out here by hand [s]."""
    return FLOOR + max(moved / (BANDWIDTH * MEM_EFF), flops / (PEAK * COMPUTE_EFF))


def of_case(case: Case) -> float:
    """Return the planted time of a case; streams and the peak are what the figures say."""
    if case.kind == "stream":
        return case.bytes / BANDWIDTH
    if case.op == "peak":
        return case.flops / PEAK
    return planted(case.flops, case.bytes)


@dataclass
class FakeDevice:
    """A machine that obeys ``law``; each sample is off by up to ``noise``, evenly spread."""

    law: Callable[[Case], float] = of_case
    noise: float = 0.02
    outlier_every: int = 0
    failing: dict[str, str] = field(default_factory=dict)  # key: status
    drift_after: int = 0  # probes before the machine slows down by half
    menu_: Menu = field(
        default_factory=lambda: Menu(
            base="fp32", products=("fp32",), caches=("fp32",), attention=("packed",), large=False
        )
    )
    asked: list[str] = field(default_factory=list)
    probes: int = 0

    def __post_init__(self) -> None:
        self._draw = np.random.default_rng(7)

    def facts(self) -> dict[str, Any]:
        return {
            "device": "Planted, 1 core", "kind": "cpu", "library": "Planted 1.0", "threads": 1,
            "memory": 16e9, "date": "2026-01-01", "model": "tiny",
        }  # fmt: skip

    def menu(self) -> Menu:
        return self.menu_

    def slow(self) -> float:
        return 1.5 if self.drift_after and self.probes > self.drift_after else 1.0

    def sample(self, case: Case, *, repeats: int, seconds: float) -> Samples:  # noqa: ARG002
        self.asked.append(case.key)
        if case.key in self.failing:
            raise CaseError(Status(self.failing[case.key]), "planted")
        values = self.law(case) * self.slow()
        samples = values * (1 + self._draw.uniform(-self.noise, self.noise, repeats))
        if self.outlier_every and len(self.asked) % self.outlier_every == 0:
            samples[0] *= 20
        return Samples(seconds=tuple(samples), clock="wall", cold="planted", error=0.0)

    def probe(self) -> float:
        self.probes += 1
        return 1e-3 * self.slow()

    def state(self) -> str:
        return "planted"


class FakeGpu(FakeDevice):
    """The same laws under the name of a bundled GPU."""

    def facts(self) -> dict[str, Any]:
        return super().facts() | {
            "kind": "gpu", "device": "NVIDIA H200", "memory": 139.8 * 2**30,
            "library": "torch 2.13",
        }  # fmt: skip


def short_campaign(device: FakeDevice, model: ModelSpec, folder: Path) -> list[Row]:
    """Return the rows of one round and a bit, on a clock that each look moves by a second."""
    folder.mkdir(exist_ok=True)
    cases = plan_cases(model, device.menu())
    ticks = iter(range(10**7))
    file = RowFile(folder / "short.csv", device.facts(), resume=False)
    run_campaign(device, cases, file, budget=5.0 * len(cases), now=lambda: float(next(ticks)))
    return file.rows
