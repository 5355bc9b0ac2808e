"""The tuning file: a question as it was typed, and what was timed. Readable, and safe to kill."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from roofline.base import __version__
from roofline.base.errors import InputError
from roofline.base.files import write_atomically
from roofline.base.numbers import LONGEST_DRAFT
from roofline.base.schema import Document, PositiveInt, Schema, as_json, dump_yaml

__all__ = ["Timed", "TuningFile", "add_timings", "load_tuning", "save_tuning"]

#: No engine makes more tokens in a second; whoever types more has another unit.
FASTEST = 1e8
#: What a disk without locks says; there two who add at once are not kept apart.
UNLOCKED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
#: Timings that a file holds at most.
MOST_TIMINGS = 1000


def _plain(value: object) -> object:
    """Return a value as options have it; refuse nothing and mappings, in words."""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(value)
    if isinstance(value, str | int | float):
        return value
    raise PydanticCustomError(
        "value", "expected what was typed, as a text or a number, such as '1,8' for a list"
    )


Value = Annotated[str | int | float | bool | tuple[str, ...], BeforeValidator(_plain)]


class Timed(Schema):
    """What one timing of a draft length gave."""

    draft_length: Annotated[int, Field(ge=0, le=LONGEST_DRAFT)]
    batch: PositiveInt
    tokens_per_s: Annotated[float, Field(gt=0, le=FASTEST)]  # of decoding, in any unit
    tokens_per_step: Annotated[float, Field(ge=1, le=1 + LONGEST_DRAFT)] | None = None
    #: Share of passes that accepted at least i drafts; empty where it was not printed.
    survival: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(max_length=64)] = ()
    passes: Annotated[int, Field(ge=1, le=10**12)] | None = None  # that these were counted over
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
        what = "is no file" if path.exists() or path.is_symlink() else "no such file"
        raise InputError(f"{path}: {what}; 'roofline tune start' writes one")
    return TuningFile.load(path)


def add_timings(path: Path, more: tuple[Timed, ...]) -> TuningFile:
    """Add timings to what the file holds by now, which others may write too; return all of it."""
    with _alone(path):
        tuning = load_tuning(path).with_timings(more)
        try:
            save_tuning(path, tuning)
        except InputError as error:
            raise InputError(error.problem, where=str(path)) from None
    return tuning


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the file's lock, of the file that lies there now: each writer puts a new one there."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    while True:
        try:
            with path.open("rb") as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_EX)
                except OSError as error:
                    if error.errno not in UNLOCKED:
                        raise
                if path.stat().st_ino != os.fstat(held.fileno()).st_ino:
                    continue  # it was replaced while this waited
                yield
                return
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror})", where=str(path)) from None


def save_tuning(path: Path, tuning: TuningFile) -> None:
    """Write the file in one step; of a timing what was given."""
    timings = [timed.model_dump(mode="json", exclude_defaults=True) for timed in tuning.timings]
    data = as_json(tuning) | {"timings": timings}
    if tuning.running is None:
        del data["running"]
    if not tuning.held:
        del data["held"]
    write_atomically(path, dump_yaml(data))
