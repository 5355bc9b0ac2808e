"""What the functions return: frozen values, each with its frame, its data and its text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from roofline.advice.recommend import Recommendation
from roofline.advice.remedies import Refused
from roofline.api import values
from roofline.base.errors import InputError, in_python, spelled
from roofline.questions.goals import Goal, OperatingPoint
from roofline.questions.load.answer import LoadAnswer
from roofline.questions.schedule.plan import SchedulePlan
from roofline.questions.schedule.written import WrittenSchedule
from roofline.questions.sweep.frames import Frame
from roofline.questions.sweep.plan import SweepPlan
from roofline.questions.sweep.store import JournalEntry
from roofline.render.blocks import Answer, Note
from roofline.render.writers import Layout, OutputFormat, spell_all, write

if TYPE_CHECKING:
    import pandas as pd

    from roofline.questions.sweep.run import Renderers

__all__ = [
    "Advice",
    "Band",
    "LoadAdvice",
    "LoadResult",
    "RecommendResult",
    "Result",
    "ScheduleResult",
    "SweepResult",
]

Record = TypeVar("Record")


def _record(kind: type[Record], *data: Mapping[str, Any]) -> Record:
    """Return a record whose fields are taken from data, the first that has each."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: next(each[name] for each in data if name in each) for name in names})


def _keyword(field: str, value: str | None) -> str:
    """Return an option as Python has it; what the command line prints otherwise is a method."""
    if field == "notes":
        return "text(notes=True)"
    return "to_dict()" if (field, value) == ("format", "json") else in_python(field, value)


def in_words(text: str) -> str:
    """Return a text with its options as Python has them."""
    return spelled(text, _keyword)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Result:
    """An answer as rows, as data and as text."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What to know beside the answer, what could change it most first; assumptions included.

        Each has a ``code``, a ``text``, and whether it states an ``assumption``.
        """
        return tuple(replace(note, text=in_words(note.text)) for note in self._shown().notes)

    def to_frame(self) -> pd.DataFrame:
        """Return the rows of the CSV that the command line writes, with typed columns."""
        return frame_of(spell_all(list(self._shown().rows()), in_words))

    def to_dict(self) -> dict[str, Any]:
        """Return the data of the JSON that the command line writes."""
        return dict(spell_all(self._shown().data(), in_words))

    def text(self, *, notes: bool = False, width: int = 80) -> str:
        """Return the answer as the command line prints it; with all ``notes`` if asked for."""
        layout = Layout(all_notes=notes, width=width, spell=in_words)
        return write(self._shown(), OutputFormat.TABLE, layout)

    def __str__(self) -> str:
        """Return the answer as the command line prints it."""
        return self.text()

    def __repr__(self) -> str:
        """Return the headline, or the first of several."""
        headlines = self._shown().headlines
        more = f" (and {len(headlines) - 1} more)" if len(headlines) > 1 else ""
        return f"<{type(self).__name__}: {in_words(headlines[0])}{more}>"

    def _repr_markdown_(self) -> str:
        """Return the answer as notebooks show it."""
        return write(self._shown(), OutputFormat.MARKDOWN, Layout(spell=in_words))

    def _shown(self) -> Answer:
        raise NotImplementedError


def _only(points: Sequence[Record], what: str) -> Record:
    """Return the one point of an answer; with several, say where they are."""
    if len(points) != 1:
        raise AttributeError(f"the answer has {len(points)} {what}: take one of .points")
    return points[0]


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
class RecommendResult(Result):
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
                said["headline"] = goal_headline(self.goal, self.choices[n])
                said["flag"] = launch.flags(length, running=answer.largest_batch)
            row = next(r for r in said["by_draft_length"] if r["draft_length"] == length)
            points.append(spelled_record(_record(Advice, row, said)))
        return tuple(points)

    @property
    def best(self) -> Advice:
        """The advice, where one batch and context was asked about."""
        return _only(self.points, "points")

    @property
    def draft_length(self) -> int:
        """The draft length to run, where one batch and context was asked about."""
        return self.best.draft_length

    @property
    def speedup(self) -> float:
        """What it buys over plain decoding, where one batch and context was asked about."""
        return self.best.speedup

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The batches and contexts that do not fit in memory, with what helps."""
        return self.answer.refused

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

        return tuple(
            _record(LoadAdvice, row, {"speedup": row["gain"]}) for row in rows(self.answer)
        )

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
class Band:
    """Batches that are given the same draft length."""

    batch_start: int
    batch_end: int
    context: tuple[int, ...]
    draft_length: int
    speedup_low: float | None  # over the batches and contexts of the band
    speedup_high: float | None
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
        return tuple(_record(Band, row | {"context": tuple(row["context"])}) for row in bands)

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

        They are those of the files that `write` makes; times are in seconds.
        """
        from roofline.render.sweep import to_frame

        return to_frame(self.answer, self._priced[0])

    def write(self, output: str | os.PathLike[str], *, jobs: int = 1) -> Path:
        """Write the rows to a file, and where they come from to a file beside it.

        The ending of ``output`` sets the format: .csv, .jsonl or .parquet. Nothing is held in
        memory, so a grid may have any size. ``jobs`` is the number of processes to price with.
        Return the path.
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

        return as_answer(self.answer, *self._priced)


def _renderers() -> Renderers:
    from roofline.questions.sweep.run import Renderers
    from roofline.render.data import source_data
    from roofline.render.notices import warnings

    return Renderers(spell=in_words, say=warnings, source=source_data)


def spelled_record(record: Record) -> Record:
    """Return a record with the options in its texts as Python has them."""
    texts = {
        field.name: in_words(value)
        for field in fields(record)  # type: ignore[arg-type]
        if isinstance(value := getattr(record, field.name), str)
    }
    return replace(record, **texts)  # type: ignore[type-var]


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame.

    Numbers that are missing are NaN; whole numbers and truth values of which some are missing have
    the nullable types of pandas.
    """
    import pandas as pd

    columns = {}
    for name in rows[0] if rows else ():
        column = [row[name] for row in rows]
        if name == "recommended":
            column = [bool(value) for value in column]
        kinds = {type(value) for value in column if value is not None}
        missing = any(value is None for value in column)
        dtype: Any = None
        if missing and kinds == {bool}:
            dtype = "boolean"
        elif missing and kinds == {int}:
            dtype = "Int64"
        elif kinds and kinds <= {int, float}:
            dtype = float if float in kinds else int
        columns[name] = pd.Series(column, dtype=dtype)
    return pd.DataFrame(columns)
