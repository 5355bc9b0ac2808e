"""Where an answer's numbers come from, and how far its laws are off where that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from roofline.advice.prepare import Setup
from roofline.base.document_paths import GIVEN
from roofline.kernels.ops import Kind
from roofline.specs.gpu import HardwareProfile
from roofline.timing.lawbook import Chosen, weight_key
from roofline.timing.machine import OpTime
from roofline.timing.step import StepTimes

__all__ = ["law_sources", "provenance", "summary"]


class Priced(Protocol):
    """An answer as far as its sources go."""

    @property
    def setup(self) -> Setup:
        """What was asked."""

    @property
    def times(self) -> StepTimes:
        """What its steps take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LawSource:
    """One law that priced kernels of the answer, and its share of the recommended step."""

    what: str
    chosen: Chosen
    share: float

    def as_data(self) -> dict[str, Any]:
        """Return the entry as JSON writes it."""
        evidence = self.chosen.evidence
        data: dict[str, Any] = {
            "what": self.what,
            "kind": self.chosen.provenance,
            "source": self.chosen.detail,
        }
        if evidence is not None:
            data |= {
                "median_error": evidence.median_error,
                "p90_error": evidence.p90_error,
                "measured": evidence.source,
            }
        return data


def law_sources(answer: Priced) -> list[LawSource]:
    """Return every law of the verify pass, the largest share of its time first."""
    times: dict[tuple[str, str], list[OpTime]] = {}
    for time in answer.times.verify_ops:
        times.setdefault((_what(time), time.chosen.detail), []).append(time)
    spent = {key: sum(float(np.mean(t.total)) for t in group) for key, group in times.items()}
    total = sum(spent.values())
    sources = [
        LawSource(what=key[0], chosen=group[0].chosen, share=spent[key] / total)
        for key, group in times.items()
    ]
    return sorted(sources, key=lambda source: -source.share)


def _what(time: OpTime) -> str:
    op = time.op
    if op.kind in (Kind.GEMM, Kind.MOE):
        return f"{op.kind} {weight_key(op.storage, op.compute)}"
    if op.kind in (Kind.ATTENTION, Kind.MLA):
        return f"{op.kind} {op.storage}"
    return op.kind.value


def summary(answer: Priced) -> str:
    """Return one sentence about the constants of an answer."""
    shown = []
    for source in law_sources(answer):
        if source.share < 0.01:
            continue
        evidence = source.chosen.evidence
        error = f", {100 * evidence.median_error:.0f} % off" if evidence else ""
        shown.append(f"{source.what} ({source.chosen.provenance}: {source.chosen.detail}{error})")
    engine = answer.setup.engine
    stated = engine.overhead.source
    around = "fitted on published runs" if stated == "fitted" else stated
    return f"Constants: {'; '.join(shown)}; overhead of {engine.name}: {around}."


def provenance(answer: Priced) -> list[dict[str, Any]]:
    """Return where each group of numbers comes from."""
    setup = answer.setup
    gpu = setup.gpu
    measured = gpu.sources[gpu.memory.bandwidth.source].confidence == "measured"
    figures = "measured" if measured else "datasheet"
    changes = setup.notes.changes
    entries: list[dict[str, Any]] = [
        _entry("bandwidth and peaks", figures, f"{gpu.id}.yaml: {_confidence(gpu)}"),
        _entry("memory size", figures, f"what the {_memory_basis(setup)} says"),
        _entry("model shape", "config", setup.target.model.source),
    ]
    if setup.drafter.network:
        entries.append(_entry("drafter shape", "config", setup.drafter.network.source))
    entries += [source.as_data() for source in law_sources(answer)]
    overhead, curve = setup.engine.overhead, setup.acceptance
    given = "given" if curve.source == "given" else "measured elsewhere"
    entries += [
        _entry("engine overhead", overhead.source, f"{setup.engine.id}.yaml"),
        _entry("acceptance", given, curve.source),
        *(_entry("default", "assumed", text) for text in setup.notes.assumed),
        *(_entry(c.path, "given", f"{c.value} instead of {c.was}") for c in changes),
    ]
    return entries


def _entry(what: str, kind: str, source: str) -> dict[str, Any]:
    return {"what": what, "kind": kind, "source": source}


def _confidence(gpu: HardwareProfile) -> str:
    source = gpu.memory.bandwidth.source
    return "the bandwidth is given" if source == GIVEN else gpu.sources[source].confidence


def _memory_basis(setup: Setup) -> str:
    return "driver shows" if setup.gpu.memory.visible else "datasheet"
