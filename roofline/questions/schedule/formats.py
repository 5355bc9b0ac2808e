"""A schedule in the format of one engine: the bands that it can be given, and its writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, Notice, notice
from roofline.engines import sglang, trtllm, vllm
from roofline.engines.writing import Band, EngineText, NoScheduleError
from roofline.questions.schedule.bands import coverage
from roofline.questions.schedule.engine_bands import (
    break_even,
    cell_bands,
    drafting_bands,
    falling_bands,
    lengths_within_tie,
)
from roofline.questions.schedule.plan import SchedulePlan
from roofline.questions.schedule.written import (
    WrittenSchedule,
    best_fixed,
    gain,
    in_both_readings,
    one_for_all,
    plain_where_best,
    written_schedule,
)
from roofline.specs.engine_versions import ScheduleRule

__all__ = [
    "SCHEDULE_ENGINES",
    "ScheduleFormat",
    "ScheduleOptions",
    "engine_for",
    "schedule_or_one",
    "write_schedule",
]


class ScheduleFormat(StrEnum):
    """How to write a schedule."""

    TABLE = "table"
    VLLM = "vllm"
    TRTLLM = "trtllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


SCHEDULE_ENGINES = ("vllm", "trtllm", "sglang", "llamacpp")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleOptions:
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
        owners = {
            "engine_version": ("trtllm", self.engine_version is not None),
            "gate": ("trtllm", self.gate),
            "proposed": ("vllm", self.proposed),
            "candidate_sets": ("sglang", self.candidate_sets),
            "graph_batches": ("sglang", self.graph_batches is not None),
        }
        for field, (owner, given) in owners.items():
            if given and owner != engine:
                raise InputError(f"belongs to {Option('engine', owner)}, not {engine}", field=field)
        sizes = self.graph_batches or ()
        if any(size < 1 for size in sizes) or len(set(sizes)) < len(sizes):
            raise InputError("expected batches of at least 1, each once", field="graph_batches")
        if self.data_parallel < 1:
            raise InputError("expected at least 1", field="data_parallel", value=self.data_parallel)


def engine_for(form: ScheduleFormat, engine: str) -> str:
    """Return the engine that a question is about; an engine's format brings its engine.

    >>> engine_for(ScheduleFormat.TRTLLM, ""), engine_for(ScheduleFormat.VLLM, "vllm@0.33")
    ('trtllm', 'vllm@0.33')
    """
    named = form.value if form.value in SCHEDULE_ENGINES else None
    if named and engine and engine.partition("@")[0] != named:
        raise InputError(
            f"contradicts {Option('engine', engine)}; give one of them", field="format", value=form
        )
    return engine or named or "vllm"


def write_schedule(plan: SchedulePlan, options: ScheduleOptions) -> WrittenSchedule:
    """Return the schedule in the format of the plan's engine."""
    writers = {"vllm": _vllm, "trtllm": _trtllm, "sglang": _sglang}
    engine = plan.question.deployment.engine.id
    if engine not in writers:
        name = plan.question.deployment.engine.name
        raise NoScheduleError(f"no release of {name} is known to take one")
    if options.static is not None:  # a drafter is configured already
        return in_both_readings(plan, lambda each: writers[engine](each, options))
    return in_both_readings(
        plan, lambda each: plain_where_best(each, writers[engine](each, options))
    )


def schedule_or_one(
    plan: SchedulePlan, options: ScheduleOptions, *, batch: int | None = None
) -> WrittenSchedule:
    """Return the schedule; where the engine takes none, the flags of one draft length.

    They are those for ``batch`` where one runs.
    """
    try:
        return write_schedule(plan, options)
    except NoScheduleError as error:
        reason = error.reason
        return in_both_readings(plan, lambda each: one_for_all(each, reason, batch=batch))


def _vllm(plan: SchedulePlan, options: ScheduleOptions) -> WrittenSchedule:
    """Write any bands; in the proposed form they have a draft length for each context."""
    deployment, ranges = plan.question.deployment, None
    rule = deployment.engine.schedule_rule(deployment.drafter.kind)
    if rule is not None and rule.off:
        raise NoScheduleError(rule.off)
    if options.proposed:
        ranges = coverage(plan.contexts)
        ranges[-1] = (ranges[-1][0], deployment.target.model.max_context)
    bands = plan.by_context() if options.proposed else plan.merged
    if rule is not None and not rule.zero and not options.proposed:
        bands = drafting_bands(plan)
    static = best_fixed(plan)[0] if options.static is None else options.static
    left_out = () if rule is None else _not_worth(plan, bands, static, rule)
    left_out = left_out or _gains_nothing(plan, bands, options)
    if left_out:
        bands, ranges = _one_band(plan, static), None
    text = vllm.schedule(
        bands,
        launch=deployment.launch,
        static=static,
        contexts=ranges,
        data_parallel=options.data_parallel,
    )
    return _written(plan, bands, text, left_out)


def _one_band(plan: SchedulePlan, draft_length: int) -> list[Band]:
    return [Band(first=1, last=plan.batches, draft_lengths=(draft_length,))]


def _written(
    plan: SchedulePlan, bands: list[Band], text: EngineText, left_out: tuple[Notice, ...]
) -> WrittenSchedule:
    """Return the schedule; ``left_out`` says why one draft length stands in for bands."""
    written = written_schedule(plan, bands, text._replace(notes=(*left_out, *text.notes)))
    return replace(written, form_loss=0.0) if left_out else written


def _gains_nothing(
    plan: SchedulePlan, bands: list[Band], options: ScheduleOptions
) -> tuple[Notice, ...]:
    """Return the notice of bands that yield no more than the best draft length for all batches.

    A draft length that the tie lets stand for that one is not mended. Where a schedule is compared
    with another draft length, its own question decides.
    """
    gained, fixed = gain(plan, bands), best_fixed(plan)[0]
    lengths = {length for band in bands for length in band.draft_lengths}
    one = len(lengths) == 1 and (fixed > 0 or lengths == {0})
    if options.static is not None or gained > 0 or one:
        return ()
    return (notice(Code.SCHEDULE_GAINS_NOTHING, gain=gained, static=fixed),)


def _not_worth(
    plan: SchedulePlan, bands: list[Band], static: int, rule: ScheduleRule
) -> tuple[Notice, ...]:
    """Return the notice of bands that gain less than their graph mode is known to cost."""
    gained = gain(plan, bands)
    several = len({length for band in bands for length in band.draft_lengths}) > 1
    if not several or not rule.cost or gained > rule.cost:
        return ()
    engine = plan.question.deployment.engine
    return (
        notice(
            Code.SCHEDULE_NOT_WORTH,
            engine=f"{engine.name} {engine.facts_of}",
            gain=gained,
            static=static,
            graphs=rule.graphs,
            cost=rule.cost,
        ),
    )


def _trtllm(plan: SchedulePlan, options: ScheduleOptions) -> WrittenSchedule:
    """Write bands of which the first drafts the most."""
    deployment = plan.question.deployment
    releases = trtllm.releases_of(
        "1.3" if options.engine_version is None else options.engine_version
    )
    trtllm.check_scheduled(deployment.drafter.kind, releases)
    rule = deployment.engine.schedule_rule(deployment.drafter.kind)
    least = 0 if rule is None or rule.zero else 1
    best = drafting_bands(plan) if least else plan.merged
    nearest = not trtllm.drafts_most_first(best)
    bands = falling_bands(plan, least=least) if nearest else best
    left_out = _gains_nothing(plan, bands, options)
    if left_out:
        bands, nearest = _one_band(plan, best_fixed(plan)[0]), False
    text = trtllm.schedule(
        bands,
        launch=deployment.launch,
        releases=releases,
        nearest=nearest,
        break_even=break_even(plan, bands) if options.gate else None,
    )
    return _written(plan, bands, text, left_out)


def _sglang(plan: SchedulePlan, options: ScheduleOptions) -> WrittenSchedule:
    """Write bands that begin where padding begins a new captured size."""
    deployment, captured = plan.question.deployment, options.graph_batches
    sglang.check_scheduled(deployment.drafter.kind)
    bands = cell_bands(
        plan, sglang.cell_starts(plan.batches, sglang.CAPTURED if captured is None else captured)
    )
    left_out = _gains_nothing(plan, bands, options)
    if left_out:
        bands = _one_band(plan, best_fixed(plan)[0])
    text = sglang.schedule(
        bands,
        launch=deployment.launch,
        candidates=[lengths_within_tie(plan, band) for band in bands]
        if options.candidate_sets and not left_out
        else None,
        default_sizes=captured is None,
        data_parallel=options.data_parallel,
    )
    return _written(plan, bands, text, left_out)
