"""Where an answer's numbers come from, and how far its laws are off where that is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roofline.advice.question import Question
from roofline.base.notices import Code, Notice, notice
from roofline.kernels.ops import Kind
from roofline.specs.gpu import HardwareProfile
from roofline.specs.overrides import OVERRIDE_SOURCE
from roofline.timing.lawbook import Chosen, weight_key
from roofline.timing.machine import OpTime
from roofline.timing.step import StepTimes

__all__ = ["LawSource", "Source", "law_sources", "sources"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where one group of numbers comes from; a law also says how far it is off."""

    what: str
    kind: str  # datasheet | measured | config | calibrated | assumed | given | fitted
    detail: str | Notice  # as it stands: a file, a citation
    median_error: float | None = None
    p90_error: float | None = None
    measured: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LawSource:
    """One law that priced kernels of the answer, and its share of the verify passes."""

    what: str
    chosen: Chosen
    share: float

    @property
    def source(self) -> Source:
        """The law as a source among others."""
        evidence = self.chosen.evidence
        return Source(
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
    spent = {key: sum(float(np.mean(t.total)) for t in group) for key, group in groups.items()}
    total = sum(spent.values())
    found = [
        LawSource(what=key[0], chosen=group[0].chosen, share=spent[key] / total)
        for key, group in groups.items()
    ]
    return sorted(found, key=lambda source: -source.share)


def _kernel(time: OpTime) -> str:
    op = time.op
    if op.kind in (Kind.GEMM, Kind.MOE):
        return f"{op.kind} {weight_key(op.storage, op.compute)}"
    if op.kind in (Kind.ATTENTION, Kind.MLA):
        return f"{op.kind} {op.storage}"
    return op.kind.value


def sources(question: Question, times: StepTimes) -> list[Source]:
    """Return where each group of numbers comes from."""
    deployment, curve = question.deployment, question.acceptance
    gpu, network = deployment.gpu, deployment.drafter.network
    measured = gpu.sources[gpu.memory.bandwidth.source].confidence == "measured"
    figures = "measured" if measured else "datasheet"
    visible = gpu.memory.visible
    size_of = Code.MEMORY_SIZE_OF_DRIVER if visible else Code.MEMORY_SIZE_OF_DATASHEET
    found = [
        Source(
            what="bandwidth and peaks",
            kind=figures,
            detail=notice(Code.BANDWIDTH_OF_PROFILE, gpu=gpu.id, confidence=_confidence(gpu)),
        ),
        Source(what="memory size", kind=figures, detail=notice(size_of)),
        Source(what="model shape", kind="config", detail=deployment.target.model.source),
    ]
    if network is not None:
        found.append(Source(what="drafter shape", kind="config", detail=network.source))
    found += [law.source for law in law_sources(times)]
    engine = deployment.engine
    given = "given" if curve.source == "given" else "measured elsewhere"
    return [
        *found,
        Source(what="engine overhead", kind=engine.overhead.source, detail=f"{engine.id}.yaml"),
        Source(what="acceptance", kind=given, detail=curve.source),
        *(
            Source(what="default", kind="assumed", detail=told)
            for told in question.notices
            if told.assumption
        ),
        *(
            Source(
                what=change.path,
                kind="given",
                detail=notice(Code.SETTING_CHANGED, value=change.value, was=change.was),
            )
            for change in deployment.changes
        ),
    ]


def _confidence(gpu: HardwareProfile) -> str | None:
    """Return how sure the bandwidth is; None where it is given."""
    source = gpu.memory.bandwidth.source
    return None if source == OVERRIDE_SOURCE else gpu.sources[source].confidence
