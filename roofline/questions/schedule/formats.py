"""Which words a schedule is written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from roofline.base.errors import InputError
from roofline.questions.schedule import llamacpp, sglang, trtllm, vllm
from roofline.questions.schedule.plan import Plan
from roofline.questions.schedule.written import NoScheduleError, Written

__all__ = ["ENGINES", "ScheduleFormat", "Wording", "engine_for", "write"]


class ScheduleFormat(StrEnum):
    """How to write a schedule."""

    TABLE = "table"
    VLLM = "vllm"
    TRTLLM = "trtllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    JSON = "json"
    CSV = "csv"


ENGINES = ("vllm", "trtllm", "sglang", "llamacpp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wording:
    """What one engine or another needs to know about the deployment."""

    engine_version: str | None = None
    proposed: bool = False
    gate: bool = False
    candidate_sets: bool = False
    graph_batches: Sequence[int] | None = None
    data_parallel: int = 1
    #: The one draft length that a schedule must beat; None is the best over the plan's mix.
    static: int | None = None

    def check(self, engine: str) -> None:
        """Refuse what another engine would need."""
        foreign = {
            "--engine-version": ("trtllm", self.engine_version is not None),
            "--gate": ("trtllm", self.gate),
            "--proposed": ("vllm", self.proposed),
            "--candidate-sets": ("sglang", self.candidate_sets),
            "--graph-batches": ("sglang", self.graph_batches is not None),
        }
        for flag, (owner, given) in foreign.items():
            if given and owner != engine:
                raise InputError(f"{flag}: belongs to --engine {owner}, not {engine}")
        graphs = self.graph_batches or ()
        if any(size < 1 for size in graphs) or len(set(graphs)) < len(graphs):
            raise InputError("--graph-batches: expected batches of at least 1, each once")
        if self.data_parallel < 1:
            raise InputError(f"--data-parallel {self.data_parallel}: expected at least 1")


def engine_for(form: ScheduleFormat, engine: str) -> str:
    """Return the engine that a question is about; an engine's format brings its engine.

    >>> engine_for(ScheduleFormat.TRTLLM, "")
    'trtllm'
    """
    named = form.value if form.value in ENGINES else None
    if named and engine and engine != named:
        raise InputError(f"--format {form}: contradicts --engine {engine}; give one of them")
    return named or engine or "vllm"


def write(plan: Plan, wording: Wording) -> Written:
    """Return the schedule in the words of the plan's engine."""
    engine, copies = plan.question.deployment.engine.id, wording.data_parallel
    match engine:
        case "trtllm":
            how = trtllm.reading(wording.engine_version or "1.3")
            return trtllm.write(plan, how=how, gate=wording.gate, data_parallel=copies)
        case "sglang":
            return sglang.write(
                plan,
                captured=wording.graph_batches,
                candidate_sets=wording.candidate_sets,
                data_parallel=copies,
            )
        case "llamacpp":
            return llamacpp.write(plan)
        case "vllm":
            return vllm.write(
                plan, proposed=wording.proposed, data_parallel=copies, static=wording.static
            )
        case _:
            raise NoScheduleError(f"none is known for {engine}, only for {', '.join(ENGINES)}")
