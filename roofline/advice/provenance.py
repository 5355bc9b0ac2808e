"""Where an answer's numbers come from, and how far its laws are off where that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from roofline.advice.question import Question
from roofline.base.notices import Code, Notice, notice
from roofline.kernels.ops import Kind
from roofline.specs.overrides import OVERRIDE_SOURCE
from roofline.timing.lawbook import Chosen, weight_key
from roofline.timing.machine import OpTime
from roofline.timing.step import StepTimes

__all__ = ["LawSource", "NumberSource", "law_sources", "number_sources"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberSource:
    """Where one group of numbers comes from; a law also says how far it is off."""

    what: str
    kind: str  # datasheet | measured | config | calibrated | assumed | given | fitted
    detail: str | Notice  # a file or a citation as it stands, or a notice that render words
    median_error: float | None = None
    p90_error: float | None = None
    measured: str | None = None


class LawSource(NamedTuple):
    """One law that priced kernels of the answer, and its share of the verify passes."""

    what: str
    chosen: Chosen
    share: float

    @property
    def source(self) -> NumberSource:
        """The law as a source among others."""
        evidence = self.chosen.evidence
        return NumberSource(
            what=self.what,
            kind=self.chosen.provenance,
            detail=self.chosen.detail,
            median_error=evidence.median_error if evidence else None,
            p90_error=evidence.p90_error if evidence else None,
            measured=evidence.source if evidence else None,
        )


def law_sources(times: StepTimes) -> list[LawSource]:
    """Return every law of the verify pass, the largest share of its time first."""
    groups: dict[tuple[str, str], list[OpTime]] = {}
    for time in times.verify_ops:
        groups.setdefault((_kernel(time), time.chosen.detail), []).append(time)
    seconds = {key: sum(float(np.mean(t.total)) for t in group) for key, group in groups.items()}
    total = sum(seconds.values())
    laws = [
        LawSource(what=key[0], chosen=group[0].chosen, share=seconds[key] / total)
        for key, group in groups.items()
    ]
    return sorted(laws, key=lambda law: -law.share)


def _kernel(time: OpTime) -> str:
    """Return the name of a group of kernels that one law prices."""
    op = time.op
    if op.kind in (Kind.GEMM, Kind.MOE):
        return f"{op.kind} {weight_key(op.storage, op.compute)}"
    if op.kind in (Kind.ATTENTION, Kind.MLA):
        return f"{op.kind} {op.storage}"
    return op.kind.value


def number_sources(question: Question, times: StepTimes) -> list[NumberSource]:
    """Return where each group of numbers comes from."""
    deployment, curve = question.deployment, question.acceptance
    gpu, network = deployment.gpu, deployment.drafter.network
    bandwidth = gpu.memory.bandwidth.source
    confidence = gpu.sources[bandwidth].confidence
    memory_size = Code.MEMORY_SIZE_SEEN if gpu.memory.visible else Code.MEMORY_SIZE_OF_DATASHEET
    figures = "measured" if confidence == "measured" else "datasheet"
    numbers = [
        NumberSource(
            what="bandwidth and peaks",
            kind=figures,
            detail=notice(
                Code.BANDWIDTH_OF_PROFILE,
                gpu=gpu.id,
                confidence=None if bandwidth == OVERRIDE_SOURCE else confidence,
            ),
        ),
        NumberSource(what="memory size", kind=figures, detail=notice(memory_size)),
        NumberSource(what="model shape", kind="config", detail=deployment.target.model.source),
    ]
    if network is not None:
        numbers.append(NumberSource(what="drafter shape", kind="config", detail=network.source))
    numbers += [law.source for law in law_sources(times)]
    engine = deployment.engine
    acceptance = "given" if curve.source == "given" else "measured elsewhere"
    return [
        *numbers,
        NumberSource(
            what="engine overhead", kind=engine.overhead.source, detail=f"{engine.id}.yaml"
        ),
        NumberSource(what="acceptance", kind=acceptance, detail=curve.source),
        *(
            NumberSource(what="default", kind="assumed", detail=assumption)
            for assumption in question.notices
            if assumption.assumption
        ),
        *(
            NumberSource(
                what=change.path,
                kind="given",
                detail=notice(Code.SETTING_CHANGED, value=change.value, was=change.was),
            )
            for change in deployment.changes
        ),
    ]
