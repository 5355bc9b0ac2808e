"""A schedule in the format of one engine: the bands that it can be given, and its writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from roofline.base.errors import InputError, Option
from roofline.engines import llamacpp, sglang, trtllm, vllm
from roofline.engines.writing import NoScheduleError
from roofline.questions.schedule.bands import coverage
from roofline.questions.schedule.limits import break_even, cell_bands, falling_bands, near_best
from roofline.questions.schedule.plan import Plan
from roofline.questions.schedule.written import Written, best_fixed, written
from roofline.specs.placement import Grid
from roofline.timing.drafters import Drafter

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
    """Options of a schedule; each engine takes some of them."""

    engine_version: str | None = None
    proposed: bool = False
    gate: bool = False
    candidate_sets: bool = False
    graph_batches: Sequence[int] | None = None
    data_parallel: int = 1
    #: The one draft length that a schedule must beat; None is the best over the plan's mix.
    static: int | None = None

    def check(self, engine: str) -> None:
        """Refuse options that only another engine takes."""
        foreign = {
            "engine_version": ("trtllm", self.engine_version is not None),
            "gate": ("trtllm", self.gate),
            "proposed": ("vllm", self.proposed),
            "candidate_sets": ("sglang", self.candidate_sets),
            "graph_batches": ("sglang", self.graph_batches is not None),
        }
        for field, (owner, given) in foreign.items():
            if given and owner != engine:
                raise InputError(f"belongs to {Option('engine', owner)}, not {engine}", field=field)
        graphs = self.graph_batches or ()
        if any(size < 1 for size in graphs) or len(set(graphs)) < len(graphs):
            raise InputError("expected batches of at least 1, each once", field="graph_batches")
        if self.data_parallel < 1:
            raise InputError("expected at least 1", field="data_parallel", value=self.data_parallel)


def engine_for(form: ScheduleFormat, engine: str) -> str:
    """Return the engine that a question is about; an engine's format brings its engine.

    >>> engine_for(ScheduleFormat.TRTLLM, "")
    'trtllm'
    """
    named = form.value if form.value in ENGINES else None
    if named and engine and engine != named:
        raise InputError(
            f"contradicts {Option('engine', engine)}; give one of them", field="format", value=form
        )
    return named or engine or "vllm"


def write(plan: Plan, wording: Wording) -> Written:
    """Return the schedule in the format of the plan's engine."""
    writers = {"vllm": _vllm, "trtllm": _trtllm, "sglang": _sglang, "llamacpp": _llamacpp}
    engine = plan.question.deployment.engine.id
    if engine not in writers:
        raise NoScheduleError(f"none is known for {engine}, only for {', '.join(ENGINES)}")
    return writers[engine](plan, wording)


def _vllm(plan: Plan, wording: Wording) -> Written:
    """Write any bands, and where rows by context are wanted, a draft length for each context."""
    deployment, ranges = plan.question.deployment, None
    if wording.proposed:
        ranges = coverage(plan.contexts)
        ranges[-1] = (ranges[-1][0], deployment.target.model.max_context)
    bands = plan.by_context() if wording.proposed else plan.merged
    made = vllm.schedule(
        bands,
        launch=deployment.launch,
        static=best_fixed(plan)[0] if wording.static is None else wording.static,
        contexts=ranges,
        data_parallel=wording.data_parallel,
    )
    return written(plan, bands, made)


def _trtllm(plan: Plan, wording: Wording) -> Written:
    """Write bands of which the first drafts the most."""
    deployment = plan.question.deployment
    releases = trtllm.releases_of(wording.engine_version or "1.3")
    trtllm.check_scheduled(deployment.drafter.kind, releases)
    nearest = not trtllm.drafts_most_first(plan.merged)
    bands = falling_bands(plan) if nearest else plan.merged
    made = trtllm.schedule(
        bands,
        launch=deployment.launch,
        releases=releases,
        nearest=nearest,
        break_even=break_even(plan, bands) if wording.gate else None,
    )
    return written(plan, bands, made)


def _sglang(plan: Plan, wording: Wording) -> Written:
    """Write bands that begin where padding begins a new captured size."""
    deployment, captured = plan.question.deployment, wording.graph_batches
    sglang.check_scheduled(deployment.drafter.kind)
    bands = cell_bands(
        plan, sglang.cells(plan.batches, sglang.CAPTURED if captured is None else captured)
    )
    made = sglang.schedule(
        bands,
        launch=deployment.launch,
        candidates=[near_best(plan, band) for band in bands] if wording.candidate_sets else None,
        default_sizes=captured is None,
        data_parallel=wording.data_parallel,
    )
    return written(plan, bands, made)


def _llamacpp(plan: Plan, wording: Wording) -> Written:
    """Write the cost of passes of one sequence at the first context, in place of bands."""
    del wording  # none of it is about llama.cpp
    deployment = plan.question.deployment
    bare = replace(
        deployment,
        drafter=Drafter(kind="none", name="none"),
        engine=deployment.engine.model_copy(update={"graphs": None}),
    )
    passes = bare.price(Grid.of((1,), plan.contexts[:1], range(llamacpp.COSTS))).times
    made = llamacpp.batch_costs(passes.verify[0, 0], launch=deployment.launch)
    return written(plan, plan.merged, made)
