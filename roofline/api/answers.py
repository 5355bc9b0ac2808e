"""The answer of each question: its points as records, and the domain's own answer behind it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from roofline.advice.recommend import Recommendation
from roofline.advice.remedies import Refused
from roofline.api import values
from roofline.api.results import OfPoints, Result, as_python, only, record, spelled_record
from roofline.base.errors import InputError
from roofline.questions.compare import ComparedDrafter
from roofline.questions.explore import Exploration
from roofline.questions.goals import Goal, OperatingPoint
from roofline.questions.load.answer import LoadAnswer
from roofline.questions.load.rollout import RolloutAnswer
from roofline.questions.memory import MemoryAccounts
from roofline.questions.request.answer import RequestAnswer
from roofline.questions.schedule.plan import SchedulePlan
from roofline.questions.schedule.written import WrittenSchedule
from roofline.questions.sweep.frames import Frame
from roofline.questions.sweep.plan import SweepPlan
from roofline.questions.sweep.store import JournalEntry
from roofline.questions.tune.tune import Tuned
from roofline.render.blocks import Answer

if TYPE_CHECKING:
    import pandas as pd

    from roofline.questions.sweep.run import Renderers

__all__ = [
    "Account",
    "Advice",
    "Band",
    "CompareResult",
    "Comparison",
    "DrafterAdvice",
    "ExploreResult",
    "LoadAdvice",
    "LoadResult",
    "MemoryResult",
    "RecommendResult",
    "RequestAdvice",
    "RequestResult",
    "RolloutAdvice",
    "RolloutResult",
    "ScheduleResult",
    "SweepResult",
    "TuneResult",
    "TunedLength",
    "VariantAdvice",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """The advice at one batch and context. Times in ms; rates in tokens per second."""

    batch: int
    context: int
    draft_length: int
    speedup: float  # over plain decoding
    speedup_low: float  # the range that the model's error leaves
    speedup_high: float
    confidence: str  # win, inside_error or loss
    tokens_per_step: float  # AL
    cost_ratio: float  # R(D); the tokens per step at which it breaks even
    step_ms: float
    tpot_ms: float  # time per output token of one sequence
    tokens_per_s: float  # of all sequences
    headline: str
    reason: str
    flag: str  # for the engine


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RecommendResult(OfPoints[Advice]):
    """Which draft length to run at each batch and context."""

    answer: Recommendation
    goal: Goal | None = None
    choices: tuple[OperatingPoint, ...] = ()  # what meets the goal, for each context
    explain: bool = False

    @property
    def points(self) -> tuple[Advice, ...]:
        """The advice at every batch and context that fits; with a goal, where it is met."""
        from roofline.render.data import point_data
        from roofline.render.goals import goal_headline

        answer, points = self.answer, list[Advice]()
        for n, point in enumerate(answer.points):
            said, length = dict(point_data(answer, point)), point.draft_length
            if self.goal is not None:  # it may choose another draft length of the same point
                length = self.choices[n].draft_length
                launch = answer.deployment.launch
                measured = not answer.question.acceptance.unknown
                said["headline"] = goal_headline(self.goal, self.choices[n], measured=measured)
                said["flag"] = launch.flags(
                    length, running=answer.running(point), most=answer.capped
                )
            row = next(r for r in said["by_draft_length"] if r["draft_length"] == length)
            points.append(spelled_record(record(Advice, row, said)))
        return tuple(points)

    @property
    def speedup(self) -> float:
        """What it buys over plain decoding, where one batch and context was asked about."""
        return self.best.speedup

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The batches and contexts that do not fit in memory, with what helps."""
        return self.answer.refused

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        from roofline.render.recommendation import rows

        return rows(self.answer)

    def _shown(self) -> Answer:
        from roofline.render.recommendation import as_answer

        met = None if self.goal is None else (self.goal, self.choices)
        return as_answer(self.answer, explain=self.explain, met=met)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadAdvice:
    """What one draft length, or a schedule, yields over a load."""

    draft_length: int | None  # None is the schedule
    usable: bool  # it carries the load
    speedup: float | None  # of the pace of a user, over plain decoding
    running: float | None  # mean sequences decoded together
    tokens_per_step: float | None
    tpot_ms: float | None
    gap_p50_ms: float | None  # time between two bursts of tokens
    gap_p99_ms: float | None
    tokens_per_s: float | None  # of all sequences
    most_rps: float | None  # requests per second that it can serve at most


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LoadResult(Result):
    """Which draft length to run over a load, and what a schedule adds."""

    answer: LoadAnswer

    @property
    def points(self) -> tuple[LoadAdvice, ...]:
        """What every draft length yields, and last the schedule where there is one."""
        from roofline.render.load import rows

        return tuple(record(LoadAdvice, row) for row in rows(self.answer))

    @property
    def best(self) -> LoadAdvice:
        """What the advised draft length yields."""
        return self.points[self.answer.best]

    @property
    def draft_length(self) -> int:
        """The draft length to run."""
        return self.best.draft_length or 0

    @property
    def speedup(self) -> float | None:
        """What it buys a user over plain decoding; None where plain decoding cannot carry it."""
        return self.best.speedup

    @property
    def schedule(self) -> str | None:
        """The schedule in the engine's words, if there is one."""
        return None if self.answer.schedule is None else self.answer.schedule.text

    @property
    def refused(self) -> tuple[Refused, ...]:
        """Nothing: a load that does not fit is an error."""
        return ()

    def _shown(self) -> Answer:
        from roofline.render.load import as_answer

        return as_answer(self.answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestAdvice:
    """What a request takes at one batch with the advised draft length, and what it gains.

    Times are means over all requests; ``_low`` and ``_high`` are the 80 % range.
    """

    batch: int
    draft_length: int
    speedup: float  # of the whole request, over plain decoding
    speedup_low: float
    speedup_high: float
    speedup_per_step: float  # of passes without prompts
    speedup_per_token: float | None  # with the prompts of others; None with answers of one token
    ttft_ms: float
    ttft_low_ms: float
    ttft_high_ms: float
    tpot_ms: float | None
    request_s: float
    request_low_s: float
    request_high_s: float
    prompt_share: float  # of the time of a request that prompts take, its own and others'


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RequestResult(OfPoints[RequestAdvice]):
    """Which draft length to run for whole requests, and what a request takes."""

    answer: RequestAnswer

    @property
    def points(self) -> tuple[RequestAdvice, ...]:
        """The advice at every batch that fits."""
        from roofline.render.request import rows

        return tuple(record(RequestAdvice, row) for row in rows(self.answer) if row["recommended"])

    @property
    def speedup(self) -> float:
        """What a whole request gains over plain decoding, where one batch was asked about."""
        return self.best.speedup

    @property
    def refused(self) -> tuple[Refused, ...]:
        """Nothing: batches that do not fit stand in ``to_dict()``."""
        return ()

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        from roofline.render.request import rows

        return rows(self.answer)

    def _shown(self) -> Answer:
        from roofline.render.request import as_answer

        return as_answer(self.answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutAdvice:
    """What one draft length takes for requests that start together."""

    draft_length: int
    seconds: float | None  # until the last answer is there; None where it does not fit
    speedup: float | None  # over plain decoding
    running: float | None  # mean sequences decoded together
    tokens_per_s: float | None  # of all sequences


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RolloutResult(Result):
    """Which draft length has requests that start together done soonest."""

    answer: RolloutAnswer

    @property
    def points(self) -> tuple[RolloutAdvice, ...]:
        """What every draft length takes."""
        from roofline.render.rollout import rows

        return tuple(record(RolloutAdvice, row) for row in rows(self.answer))

    @property
    def best(self) -> RolloutAdvice:
        """What the advised draft length takes."""
        return self.points[self.answer.best]

    @property
    def draft_length(self) -> int:
        """The draft length to run."""
        return self.best.draft_length

    @property
    def speedup(self) -> float | None:
        """What it buys over plain decoding."""
        return self.best.speedup

    @property
    def schedule(self) -> str | None:
        """The schedule in the engine's words, where one pays."""
        text = self.to_dict()["schedule"]
        return None if text is None else str(text)

    @property
    def refused(self) -> tuple[Refused, ...]:
        """Nothing: requests that do not fit are an error."""
        return ()

    def _shown(self) -> Answer:
        from roofline.render.rollout import as_answer

        return as_answer(self.answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """Batches that are given the same draft length."""

    batch_start: int
    batch_end: int
    context: tuple[int, ...]
    draft_length: int
    smallest_speedup: float | None  # over the batches and contexts of the band
    largest_speedup: float | None
    largest_loss: float | None  # share of speed lost to the best draft length, at its worst


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ScheduleResult(Result):
    """The draft length to run by batch, and in the engine's words."""

    answer: SchedulePlan
    written: WrittenSchedule

    @property
    def points(self) -> tuple[Band, ...]:
        """The bands of the schedule."""
        bands = self.to_dict()["bands"]
        return tuple(record(Band, row | {"context": tuple(row["context"])}) for row in bands)

    @property
    def engine_text(self) -> str:
        """The schedule in the words of the engine, to paste."""
        return self.written.text

    @property
    def gain_over_fixed(self) -> float:
        """Share of tokens won over the best single draft length."""
        return float(self.to_dict()["gain_over_fixed"])

    @property
    def best_fixed_draft_length(self) -> int:
        """The best single draft length."""
        return int(self.to_dict()["best_fixed_draft_length"])

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The first batch that does not fit at each context, with what helps."""
        return self.answer.refused

    def _shown(self) -> Answer:
        from roofline.render.schedule import as_answer

        return as_answer(self.answer, self.written)


@dataclass(frozen=True, kw_only=True, slots=True)
class DrafterAdvice:
    """What one drafter does at its own best draft length, at one batch and context."""

    drafter: str
    drafter_kind: str
    draft_length: int  # to run: 0 where plain decoding is as fast
    best_draft_length: int  # the best with drafts; the figures below are at it
    speedup: float
    speedup_low: float
    speedup_high: float
    confidence: str
    tokens_per_step: float
    break_even_tokens_per_step: float
    draft_weights_bytes: float  # of one GPU
    slots_lost: float  # share of the sequences that fit without drafts
    acceptance: str
    flag: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The drafters at one batch and context, the fastest first."""

    batch: int
    context: int
    drafters: tuple[DrafterAdvice, ...]

    @property
    def best(self) -> DrafterAdvice:
        """The fastest drafter."""
        return self.drafters[0]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CompareResult(Result):
    """Drafters side by side, each at its own best draft length."""

    answer: tuple[tuple[ComparedDrafter, ...], ...]  # for each batch and context that fits
    left_out: tuple[str, ...] = ()  # bundled heads whose acceptance is not known

    @property
    def points(self) -> tuple[Comparison, ...]:
        """The drafters at every batch and context that fits."""
        return tuple(
            Comparison(
                batch=point["batch"],
                context=point["context"],
                drafters=tuple(record(DrafterAdvice, row) for row in point["drafters"]),
            )
            for point in self.to_dict()["points"]
        )

    @property
    def best(self) -> DrafterAdvice:
        """The fastest drafter, where one batch and context was asked about."""
        return only(self.points).best

    @property
    def draft_length(self) -> int:
        """The draft length to run with it; 0 where plain decoding is as fast."""
        return self.best.draft_length

    @property
    def speedup(self) -> float:
        """What it buys over plain decoding at its best draft length."""
        return self.best.speedup

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The batches and contexts that do not fit in memory, with what helps."""
        return self.answer[0][0].answer.refused

    def _shown(self) -> Answer:
        from roofline.render.compare import as_answer

        return as_answer(self.answer, left_out=self.left_out)


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """How many sequences fit at one context, without drafts and with them."""

    context: int
    draft_length: int
    largest_batch: int  # without drafts
    largest_batch_speculative: int
    slots_lost: float  # share of the sequences that fit without drafts
    gain: float | None  # tokens per second with drafts over without, each at its largest batch


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MemoryResult(OfPoints[Account]):
    """Where memory goes, what fits, and what drafting takes."""

    answer: MemoryAccounts

    @property
    def points(self) -> tuple[Account, ...]:
        """The account of every context that fits."""
        return tuple(
            record(Account, entry, entry["equal_memory"] or {"gain": None})
            for entry in self.to_dict()["contexts"]
        )

    @property
    def largest_batch(self) -> int:
        """The most sequences that fit without drafts, where one context was asked about."""
        return self.best.largest_batch

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The contexts that do not fit in memory, with what helps."""
        return self.answer.refused

    def _shown(self) -> Answer:
        from roofline.render.memory import as_answer

        return as_answer(self.answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedLength:
    """What to run at one batch after the timings so far; losses and odds as shares."""

    batch: int
    draft_length: int
    expected_regret: float  # against the best draft length
    odds_within_1_percent: float
    regret_bound_90_percent: float
    flag: str  # for the engine


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TuneResult(OfPoints[TunedLength]):
    """What to run after some timings, and what to time next."""

    answer: Tuned

    @property
    def points(self) -> tuple[TunedLength, ...]:
        """What to run at every batch."""
        return tuple(record(TunedLength, entry) for entry in self.to_dict()["points"])

    @property
    def verdict(self) -> str:
        """What to do now: 'start', 'time' or 'deploy'."""
        return self.answer.verdict.value

    @property
    def next_timing(self) -> Mapping[str, Any] | None:
        """What to time next, with its `worth` and the `commands` to paste; None to deploy."""
        found: Mapping[str, Any] | None = self.to_dict()["next"]
        return found

    def _shown(self) -> Answer:
        from roofline.render.tune import as_answer

        return as_answer(self.answer, Path("tune.yaml"))


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantAdvice:
    """The advice for one architecture."""

    values: Mapping[str, Any]  # by path
    draft_length: int | None  # None where the batch does not fit
    speedup: float | None
    cost_ratio: float | None
    tpot_ms: float | None
    parameters: int
    kv_bytes_per_token: float
    largest_batch: int
    falls_from_batch: int | None  # from which on the best D is below that of the smallest batch
    stops_from_batch: int | None  # from which on not drafting is best

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values as a dict: a read-only view of one cannot be pickled."""
        stored = {field.name: getattr(self, field.name) for field in fields(self)}
        return _variant_advice, (stored | {"values": dict(self.values)},)


def _variant_advice(stored: Mapping[str, Any]) -> VariantAdvice:
    return VariantAdvice(**{**stored, "values": MappingProxyType(stored["values"])})


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ExploreResult(Result):
    """How the answer moves with the architecture."""

    answer: Exploration
    explain: bool = False

    @property
    def points(self) -> tuple[VariantAdvice, ...]:
        """The advice for every variant."""
        return tuple(
            record(VariantAdvice, {"values": MappingProxyType(row["values"])}, row)
            for row in self.to_dict()["variants"]
        )

    @property
    def refused(self) -> tuple[Refused, ...]:
        """What does not fit in memory, with what helps."""
        return tuple(each for variant in self.answer.variants for each in variant.refused)

    def _shown(self) -> Answer:
        from roofline.render.explore import as_answer

        return as_answer(self.answer, explain=self.explain)


#: Rows of a sweep that are held in memory at most.
MOST_IN_MEMORY = 5_000_000


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SweepResult(Result):
    """Every point of a grid as a row. The rows are priced when they are first asked for."""

    answer: SweepPlan

    @property
    def size(self) -> int:
        """How many rows there are at most."""
        return self.answer.points

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each combination, batch, context and draft length, with typed columns.

        They are those of the files that `write` makes; times are in milliseconds.
        """
        from roofline.render.sweep import to_frame

        return to_frame(self.answer, self._priced[0])

    def write(self, output: str | os.PathLike[str], *, jobs: int = 1) -> Path:
        """Write the rows to a file, and where they come from to a file beside it.

        The ending of ``output`` sets the format: .csv, .jsonl or .parquet. Nothing is held in
        memory, so a grid may have any size. ``jobs`` is the number of processes to price with;
        above 1, a script needs Python's ``if __name__ == "__main__":`` around the call. Return the
        path.
        """
        from roofline.base import __version__
        from roofline.questions.sweep.encoding import SweepFormat, check_format
        from roofline.questions.sweep.run import local_workers, to_file

        file = values.path("output", output)
        ending = file.suffix.lower().removeprefix(".")
        if ending not in list(SweepFormat):
            endings = ", ".join(f".{kind}" for kind in SweepFormat)
            raise InputError(f"expected a name ending in {endings}", field="output", value=file)
        form = SweepFormat(ending)
        check_format(form)
        jobs = values.whole("jobs", jobs)
        if not 1 <= jobs <= 1024:
            raise InputError("expected 1 to 1024", field="jobs", value=jobs)
        with local_workers(jobs) as workers:
            to_file(
                self.answer,
                form,
                workers,
                file,
                renderers=_renderers(),
                version=__version__,
                command=["roofline.sweep"],
            )
        return file

    @cached_property
    def _priced(self) -> tuple[tuple[Frame, ...], tuple[JournalEntry, ...]]:
        from roofline.questions.sweep.run import to_frames

        if self.size > MOST_IN_MEMORY:
            raise InputError(
                f"this grid has {self.size:,} points, more than the {MOST_IN_MEMORY:,} that are "
                "held in memory; write them to a file with write()"
            )
        return to_frames(self.answer, renderers=_renderers())

    def _shown(self) -> Answer:
        from roofline.render.sweep import as_answer

        return as_answer(self.answer, *self._priced, _renderers())


def _renderers() -> Renderers:
    from roofline.questions.sweep.run import Renderers
    from roofline.render.data import source_data
    from roofline.render.notices import warned

    return Renderers(spell=as_python, say=warned, source=source_data)
