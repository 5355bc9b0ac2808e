"""The tuning file: a question as it was typed, and what was timed. Readable, and safe to kill."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from roofline.base import __version__
from roofline.base.errors import InputError
from roofline.base.files import write_atomically
from roofline.base.numbers import LONGEST_DRAFT
from roofline.base.schema import Document, PositiveInt, Schema, as_json, dump_yaml

__all__ = ["Timed", "TuningFile", "load_tuning", "save_tuning"]

#: No engine makes more tokens in a second; whoever types more has another unit.
FASTEST = 1e8
#: Timings that a file holds at most.
MOST_TIMINGS = 1000

Value = str | int | float | bool | tuple[str, ...]


class Timed(Schema):
    """What one timing of a draft length gave."""

    draft_length: Annotated[int, Field(ge=0, le=LONGEST_DRAFT)]
    batch: PositiveInt
    tokens_per_s: Annotated[float, Field(gt=0, le=FASTEST)]  # of decoding, in any unit
    tokens_per_step: Annotated[float, Field(ge=1, le=1 + LONGEST_DRAFT)] | None = None
    #: Share of passes that accepted at least i drafts; empty where it was not printed.
    survival: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(max_length=64)] = ()
    repeats: Annotated[int, Field(ge=1, le=10_000)] = 1
    spread: Annotated[float, Field(ge=0, le=1)] | None = None  # standard error of the speed
    #: Tokens per step that the engine was made to accept, whatever the drafter: of step times only.
    held: Annotated[float, Field(ge=1, le=1 + LONGEST_DRAFT)] | None = None
    source: Annotated[str, Field(max_length=500)] = "typed"

    @property
    def tokens(self) -> dict[int, float]:
        """Tokens per step by draft length, as far as they were printed and not held."""
        if self.held is not None:
            return {}
        if self.survival:
            reached, sums = 1.0, dict[int, float]()
            for length, share in enumerate(self.survival, 1):
                reached += share
                sums[length] = reached
            return sums
        if self.tokens_per_step is None or not self.draft_length:
            return {}
        return {self.draft_length: self.tokens_per_step}


class TuningFile(Document):
    """A question and its timings; ``question`` holds options by name as they were typed."""

    roofline: str  # the version that wrote it
    engine: str
    question: dict[str, Value]
    running: Annotated[int, Field(ge=0, le=LONGEST_DRAFT)] | None = None  # timed first
    held: bool = False  # whether the engine is made to accept what is expected, in every timing
    timings: Annotated[tuple[Timed, ...], Field(max_length=MOST_TIMINGS)] = ()

    @classmethod
    def begin(
        cls,
        question: dict[str, Any],
        *,
        engine: str,
        running: int | None = None,
        held: bool = False,
    ) -> TuningFile:
        """Return a file without timings; ``running`` is the draft length that runs already."""
        data = {"schema": 1, "roofline": __version__, "engine": engine, "question": question}
        return cls.check(data | {"running": running, "held": held}, "start")

    def with_timings(self, more: tuple[Timed, ...]) -> TuningFile:
        """Return the file with further timings, validated as if it had been read."""
        kept = (*self.timings, *more)
        data = as_json(self) | {"timings": [each.model_dump(mode="json") for each in kept]}
        return TuningFile.check(data, "timing")


def load_tuning(path: Path) -> TuningFile:
    """Read a tuning file; the error names file, field and remedy."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; 'roofline tune start' writes one")
    return TuningFile.load(path)


def save_tuning(path: Path, tuning: TuningFile) -> None:
    """Write the file in one step; of a timing what was given."""
    timings = [timed.model_dump(mode="json", exclude_defaults=True) for timed in tuning.timings]
    data = as_json(tuning) | {"timings": timings}
    if tuning.running is None:
        del data["running"]
    if not tuning.held:
        del data["held"]
    write_atomically(path, dump_yaml(data))
