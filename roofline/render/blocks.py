"""What an answer is made of: blocks written once, which `writers` puts into every format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from roofline.advice.columns import Column, cells

__all__ = ["Answer", "Block", "Code", "Note", "Paragraph", "Table", "Tone", "table"]


class Tone(StrEnum):
    """How much a text stands out."""

    PLAIN = "plain"
    HEADLINE = "headline"
    WARNING = "warning"
    QUIET = "quiet"


class Paragraph(NamedTuple):
    """Sentences. A ``close`` one stands right below the block before it."""

    text: str
    tone: Tone = Tone.PLAIN
    close: bool = False


class Table(NamedTuple):
    """Rows of text cells under headings that a newline may break."""

    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    align: str = ""  # l or r for each column; r for those it does not reach
    title: str = ""
    apart: bool = False  # in text, a row's first cell stands on a line of its own above the rest


class Code(NamedTuple):
    """Flags or commands to paste, and the engine or tool that they are for."""

    text: str
    of: str = ""


class Note(NamedTuple):
    """One thing to know beside an answer: a notice in words."""

    code: str
    text: str
    assumption: bool = False


Block = Paragraph | Table | Code


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer in every form; each form is made when a format asks for it."""

    blocks: Callable[[], Sequence[Block]]  # the first one is the answer in a sentence
    data: Callable[[], Any]
    rows: Callable[[], Sequence[Mapping[str, Any]]]
    headlines: Callable[[], Sequence[str]] = tuple  # one a point, without what follows them
    notes: tuple[Note, ...] = ()  # what could change the advice most first
    said: frozenset[str] = frozenset()  # codes of notes that the blocks say already
    more: Callable[[], Sequence[Block]] = tuple  # below all notes where all are asked for
    height: int | None = None  # lines that it keeps to by leaving notes out


def table(
    columns: Iterable[Column],
    rows: Iterable[Mapping[str, Any]],
    *,
    align: str = "",
    title: str = "",
    apart: bool = False,
) -> Table:
    """Return the table of rows under columns."""
    chosen = tuple(columns)
    return Table(
        headings=tuple(column.heading for column in chosen),
        cells=tuple(tuple(cells(chosen, row)) for row in rows),
        align=align,
        title=title,
        apart=apart,
    )
