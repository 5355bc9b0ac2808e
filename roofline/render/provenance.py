"""Where an answer's numbers come from, as JSON and in one sentence."""

from __future__ import annotations

from typing import Any

from roofline.advice.provenance import Source, law_sources, sources
from roofline.advice.question import Question
from roofline.base.notices import Notice
from roofline.render.notices import sentence
from roofline.timing.step import StepTimes

__all__ = ["provenance", "source_data", "summary"]


def source_data(source: Source) -> dict[str, Any]:
    """Return a source as JSON writes it."""
    detail = sentence(source.detail) if isinstance(source.detail, Notice) else source.detail
    data: dict[str, Any] = {"what": source.what, "kind": source.kind, "source": detail}
    if source.measured is not None:
        data |= {
            "median_error": source.median_error,
            "p90_error": source.p90_error,
            "measured": source.measured,
        }
    return data


def provenance(question: Question, times: StepTimes) -> list[dict[str, Any]]:
    """Return where each group of numbers comes from, as JSON writes it."""
    return [source_data(source) for source in sources(question, times)]


def summary(question: Question, times: StepTimes) -> str:
    """Return one sentence about the constants of an answer."""
    shown = []
    for law in law_sources(times):
        if law.share < 0.01:
            continue
        evidence = law.chosen.evidence
        error = f", {100 * evidence.median_error:.0f} % off" if evidence else ""
        shown.append(f"{law.what} ({law.chosen.provenance}: {law.chosen.detail}{error})")
    engine = question.deployment.engine
    stated = engine.overhead.source
    around = "fitted on published runs" if stated == "fitted" else stated
    return f"Constants: {'; '.join(shown)}; overhead of {engine.name}: {around}."
