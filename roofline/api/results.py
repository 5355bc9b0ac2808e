"""What every answer of the functions has: rows as a frame, data and text, all frozen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from roofline.base.errors import in_python, spelled
from roofline.render.blocks import Answer, Note
from roofline.render.writers import Layout, OutputFormat, spell_all, write

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OfPoints", "Result", "as_python", "frame_of", "only", "record", "spelled_record"]

Record = TypeVar("Record")


class _HasDraftLength(Protocol):
    @property
    def draft_length(self) -> int: ...


Kind = TypeVar("Kind", bound=_HasDraftLength)


def record(kind: type[Record], *data: Mapping[str, Any]) -> Record:
    """Return a record whose fields are taken from data, the first that has each."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: next(each[name] for each in data if name in each) for name in names})


def _keyword(field: str, value: str | None) -> str:
    """Return an option as Python has it; what the command line prints otherwise is a method."""
    if field == "notes":
        return "text(notes=True)"
    return "to_dict()" if (field, value) == ("format", "json") else in_python(field, value)


def as_python(text: str) -> str:
    """Return a text with its options as Python has them."""
    return spelled(text, _keyword)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Result(ABC):
    """An answer as rows, as data and as text."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What to know beside the answer, what could change it most first; assumptions included.

        Each has a ``code``, a ``text``, and whether it states an ``assumption``.
        """
        return tuple(note._replace(text=as_python(note.text)) for note in self._shown().notes)

    def to_frame(self) -> pd.DataFrame:
        """Return the rows of the CSV that the command line writes, with typed columns."""
        return frame_of(spell_all(self._rows(), as_python))

    def to_dict(self) -> dict[str, Any]:
        """Return the data of the JSON that the command line writes."""
        return dict(spell_all(self._shown().data(), as_python))

    def text(self, *, notes: bool = False, width: int = 80) -> str:
        """Return the answer as the command line prints it; with all ``notes`` if asked for."""
        layout = Layout(all_notes=notes, width=width, spell=as_python)
        return write(self._shown(), OutputFormat.TABLE, layout)

    def __str__(self) -> str:
        """Return the answer as the command line prints it."""
        return self.text()

    def __repr__(self) -> str:
        """Return the headline, or the first of several."""
        headlines = self._shown().headlines()
        more = f" (and {len(headlines) - 1} more)" if len(headlines) > 1 else ""
        return f"<{type(self).__name__}: {as_python(headlines[0])}{more}>"

    def _repr_markdown_(self) -> str:
        """Return the answer as notebooks show it."""
        return write(self._shown(), OutputFormat.MARKDOWN, Layout(spell=as_python))

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return list(self._shown().rows())

    @abstractmethod
    def _shown(self) -> Answer:
        """Return the answer as it is printed."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class OfPoints(Result, Generic[Kind]):
    """An answer that has a record with a draft length for each point."""

    @property
    @abstractmethod
    def points(self) -> tuple[Kind, ...]:
        """The record of every point that fits."""

    @property
    def best(self) -> Kind:
        """The record of the point, where one was asked about."""
        return only(self.points)

    @property
    def draft_length(self) -> int:
        """Its draft length, where one point was asked about."""
        return self.best.draft_length


def only(points: Sequence[Record]) -> Record:
    """Return the one point of an answer; with several, say where they are."""
    if len(points) != 1:
        raise AttributeError(f"the answer has {len(points)} points: take one of .points")
    return points[0]


def spelled_record(record: Record) -> Record:
    """Return a record with the options in its texts as Python has them."""
    texts = {
        field.name: as_python(value)
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
