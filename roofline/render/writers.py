"""The four writers: text, Markdown, JSON and CSV. There are no others in the project."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

from roofline.base.errors import OPTION_MARKS, Option, spelled
from roofline.base.files import csv_text
from roofline.render.blocks import Answer, Block, Code, Note, Paragraph, Table, Tone

__all__ = [
    "MOST_NOTES",
    "Layout",
    "OutputFormat",
    "broken_code",
    "csv",
    "first_notes",
    "json_text",
    "markdown",
    "markdown_table",
    "note_lines",
    "spell_all",
    "text",
    "wrap",
    "write",
]


class OutputFormat(StrEnum):
    """The formats of every answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


WIDTH = 80
#: Notes that stand below an answer; the others are asked for.
MOST_NOTES = 3


def _unstyled(line: str, tone: Tone) -> str:
    del tone
    return line


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How an answer is laid out as text."""

    width: int = WIDTH
    all_notes: bool = False
    short: bool = False  # the headlines alone, each in a line for whoever reads it by program
    wrap_short: bool = False  # or wrapped as other text is
    whole_code: bool = False  # flags in one line each, however long
    rest: str = ""  # a file that holds all notes
    spell: Callable[[str], str] = spelled  # how a text names its options
    style: Callable[[str, Tone], str] = _unstyled  # of a line that is laid out


def write(answer: Answer, form: OutputFormat, layout: Layout | None = None) -> str:
    """Return the answer in a format, ending in a newline."""
    layout = layout or Layout()
    match form:
        case OutputFormat.TABLE:
            return text(answer, layout)
        case OutputFormat.MARKDOWN:
            return markdown(answer, layout)
        case OutputFormat.JSON:
            return json_text(answer.data(), layout.spell)
        case OutputFormat.CSV:
            return csv(answer, layout)
        case _:
            assert_never(form)


def json_text(data: Any, spell: Callable[[str], str] = spelled) -> str:
    """Return plain data as JSON, the options in its texts spelled."""
    return json.dumps(spell_all(data, spell), indent=2, allow_nan=False) + "\n"


def csv(answer: Answer, layout: Layout) -> str:
    """Return the rows of an answer as CSV."""
    return csv_text(spell_all(list(answer.rows()), layout.spell))


def spell_all(value: Any, spell: Callable[[str], str]) -> Any:
    """Return plain data with the options in its texts spelled."""
    if isinstance(value, str):
        return spell(value) if OPTION_MARKS[0] in value else value
    if isinstance(value, dict):
        return {key: spell_all(each, spell) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [spell_all(each, spell) for each in value]
    return value


def text(answer: Answer, layout: Layout) -> str:
    """Return an answer as text, wrapped to a width."""
    if layout.short:
        shown = [
            (part, tone)
            for line, tone in _short(answer, layout)
            for part in (wrap(line, layout.width).split("\n") if layout.wrap_short else [line])
        ]
        return "".join(f"{layout.style(line, tone)}\n" for line, tone in shown)
    lines = _text_of(answer.blocks(), layout)
    height = math.inf if layout.all_notes else answer.height or math.inf
    lines += _text_of_notes(answer, layout, room=height - len(lines), blank=lines.count(""))
    for at in reversed(range(len(lines))):  # blank lines go first where there are too many
        if len(lines) > height and not lines[at]:
            del lines[at]
    if layout.all_notes:
        lines += ["", *_text_of(more, layout)] if (more := answer.more()) else []
    return "\n".join(lines) + "\n"


def _short(answer: Answer, layout: Layout) -> list[tuple[str, Tone]]:
    """Return the headlines, and of each warning below them the first sentence."""
    lines = [(line, Tone.HEADLINE) for line in answer.headlines()]
    for block in answer.blocks():
        if isinstance(block, Paragraph) and block.tone is Tone.WARNING:
            first, stop, _ = block.text.partition(". ")
            lines.append((first + "." * bool(stop), Tone.WARNING))
    return [(layout.spell(line), tone) for line, tone in lines]


def _text_of(blocks: Sequence[Block], layout: Layout) -> list[str]:
    """Return the lines of blocks, a blank one between two that are not close."""
    lines = list[str]()
    for block in blocks:
        close = isinstance(block, Paragraph) and block.close
        lines += [""] if lines and not close else []
        match block:
            case Paragraph():
                wrapped = wrap(layout.spell(block.text), layout.width).split("\n")
                lines += [layout.style(line, block.tone) for line in wrapped]
            case Code():
                lines += _text_code(block, layout)
            case Table():
                title = wrap(f"{layout.spell(block.title)}:", layout.width) if block.title else ""
                lines += [*filter(None, [title]), *_text_table(block, layout)]
            case _:
                assert_never(block)
    return lines


def _text_of_notes(answer: Answer, layout: Layout, *, room: float, blank: int) -> list[str]:
    """Return the first notes below an answer that there is room for, or all if they are asked for.

    ``room`` is in lines, ``blank`` the lines of the answer that make way for the very first note
    where it warns: it could change the advice most. What the blocks say already is left out.
    """
    notes = [note for note in answer.notes if note.code not in answer.said]
    lines = list[str]()
    shown = 0
    for at, note in enumerate(notes if layout.all_notes else notes[:MOST_NOTES]):
        of_note = wrap(layout.spell(_sentence(note)), layout.width).split("\n")
        last = shown + 1 == len(notes)
        needed = 1 + len(lines) + len(of_note) + (0 if last else 1)
        if needed > room + (blank + 1 if at == 0 and not note.assumption else 0):
            continue
        lines += [layout.style(line, Tone.QUIET) for line in of_note]
        shown += 1
    lines += [layout.style(line, Tone.QUIET) for line in _more(len(notes) - shown, layout)]
    return ["", *lines] if lines else []


def _sentence(note: Note) -> str:
    """Return a note as a sentence by itself."""
    return f"{'Assumed' if note.assumption else 'Note'}: {note.text.rstrip('.')}."


def _more(count: int, layout: Layout) -> list[str]:
    """Say how many notes are left."""
    if count < 1:
        return []
    where = f" or {layout.rest}" if layout.rest else ""
    return [layout.spell(f"{count} more note{'s' if count > 1 else ''}: {Option('notes')}{where}")]


def first_notes(notes: Sequence[Note], layout: Layout) -> list[str]:
    """Return the first notes, a sentence each, and how many are left; all if they are asked for."""
    shown = notes if layout.all_notes else notes[:MOST_NOTES]
    lines = [layout.spell(_sentence(note)) for note in shown]
    return lines + _more(len(notes) - len(shown), layout)


def note_lines(answer: Answer) -> list[str]:
    """Return a line for each note, where an answer's format has no place for them."""
    return [f"{'assumed' if note.assumption else 'note'}: {note.text}" for note in answer.notes]


#: A quantity that stays on one line, such as D = 5.
_EQUALS = re.compile(r"(?<=\bD) = (?=\d)")
_NO_BREAK = "\u00a0"


def wrap(paragraph: str, width: int = WIDTH) -> str:
    """Break a paragraph at ``width`` columns, leaving long words whole, and D = 5 together.

    >>> print(wrap("one two D = 3", width=8))
    one two
    D = 3
    """
    import textwrap  # only text output needs it

    together = _EQUALS.sub(f"{_NO_BREAK}={_NO_BREAK}", paragraph)
    lines = textwrap.fill(together, width=width, break_long_words=False, break_on_hyphens=False)
    return lines.replace(_NO_BREAK, " ")


def _text_code(code: Code, layout: Layout) -> list[str]:
    """Return code below the name of what it is for, indented; long flags on several lines."""
    indent = "  " if code.of else ""
    lines = [layout.style(f"{layout.spell(code.of)}:", Tone.PLAIN)] if code.of else []
    for line in layout.spell(code.text).split("\n"):
        width = len(line) if layout.whole_code else layout.width - len(indent)
        lines += [f"{indent}{part}" for part in broken_code(line, width=width).split("\n")]
    return lines


#: What a shell reads: flags, and commands; a line of YAML begins with a key.
_SHELL = re.compile(r"-|[\w./-]+ |\{ ")


def broken_code(line: str, *, width: int) -> str:
    r"""Return flags on lines of at most ``width`` where they can be broken and pasted again.

    Outside quotes a shell goes on after a backslash; inside quoted JSON, and in YAML in braces, a
    line may end after a comma.

    >>> print(broken_code("--a 1 --bb '{\"c\": 1, \"d\": 2}'", width=14))
    --a 1 --bb \
      '{"c": 1,
      "d": 2}'
    """
    if len(line) <= width:
        return line
    lines, start, places = list[str](), 0, list(_places(line))
    while start < len(line):
        indent = "  " if lines else ""
        room = width - len(indent)
        if len(line) - start <= room:
            lines.append(f"{indent}{line[start:]}")
            break
        ahead = [place for place in places if place.at > start]
        fitting = [p for p in ahead if p.at - start + len(p.mark) <= room]
        full = [p for p in fitting if p.at - start > room // 2] or fitting or ahead[:1]
        if not full:
            lines.append(f"{indent}{line[start:]}")
            break
        best = max(full, key=lambda place: (-place.depth, place.at))
        lines.append(f"{indent}{line[start : best.at].rstrip()}{best.mark}")
        start = best.at + len(line[best.at :]) - len(line[best.at :].lstrip(" "))
    return "\n".join(lines)


class _Place(NamedTuple):
    """Where a line may be broken, what marks the break, and how deep in brackets it is."""

    at: int
    mark: str
    depth: int


def _places(line: str) -> Iterator[_Place]:
    shell = _SHELL.match(line) is not None
    quoted = in_string = False
    depth = 0
    for i, letter in enumerate(line):
        if letter == "'" and not in_string:
            quoted = not quoted
        elif letter == '"' and line[i - 1] != "\\":
            in_string = not in_string
        elif in_string:
            continue
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
        elif letter == "," and depth and (quoted or not shell) and line[i + 1 : i + 2] == " ":
            yield _Place(i + 1, "", depth)
        elif letter == " " and not quoted and not depth and (shell or line[i - 1] == "+"):
            yield _Place(i + 1, " \\" if shell else "", 0)


def _text_table(table: Table, layout: Layout) -> list[str]:
    """Return a table's lines: headings, then rows, each column as wide as its widest line.

    A first cell that leaves no room for the others stands on a line of its own.
    """
    headings = [layout.spell(heading).split("\n") for heading in table.headings]
    rows = [[layout.spell(cell) for cell in row] for row in table.cells]
    names = [row[0] for row in rows] if table.apart else []
    if table.apart:
        headings, rows = headings[1:], [row[1:] for row in rows]
    align = (table.align[1:] if table.apart else table.align).ljust(len(headings), "r")
    height = max((len(lines) for lines in headings), default=0)
    head = [[lines[i] if i < len(lines) else "" for lines in headings] for i in range(height)]
    head = head if any(any(line) for line in head) else []
    widths = [max((len(line[i]) for line in [*head, *rows]), default=0) for i in range(len(align))]
    if align[:1] == "l" and not table.apart:
        room = layout.width - sum(2 + width for width in widths[1:])
        if len(align) > 1 and align[-1] == "l" and widths[0] <= layout.width // 2:
            widths[-1] = min(widths[-1], max(layout.width - sum(w + 2 for w in widths[:-1]), 20))
        else:
            widths[0] = min(widths[0], max(room, *(len(line[0]) for line in head), 0))
    lines = [_line(line, widths, align) for line in head]
    previous = ""
    for n, row in enumerate(rows):
        if names:
            lines += wrap(names[n], layout.width).split("\n")
        elif len(row[0]) > widths[0]:
            lines += [row[0]] if row[0] != previous else []  # once above all of its rows
            previous = row[0]
        first = "" if len(row[0]) > widths[0] else row[0]
        last = wrap(row[-1], widths[-1]).split("\n") if len(row[-1]) > widths[-1] else [row[-1]]
        lines.append(_line([first, *row[1:-1], last[0]] if row[1:] else last, widths, align))
        lines += [" " * (sum(widths[:-1]) + 2 * len(widths[:-1])) + more for more in last[1:]]
    return lines


def _line(row: Sequence[str], widths: Sequence[int], align: str) -> str:
    padded = (
        cell.ljust(width) if side == "l" else cell.rjust(width)
        for cell, width, side in zip(row, widths, align, strict=True)
    )
    return "  ".join(padded).rstrip()


def markdown(answer: Answer, layout: Layout) -> str:
    """Return an answer as Markdown; flags stay in one line each."""
    if layout.short:
        return "\n\n".join(f"**{line}**" for line, _ in _short(answer, layout)) + "\n"
    parts = [_markdown_of(block, layout) for block in answer.blocks()]
    if lines := first_notes(answer.notes, layout):
        parts.append("\n".join(f"- {line}" for line in lines))
    if layout.all_notes:
        parts += [_markdown_of(block, layout) for block in answer.more()]
    return "\n\n".join(parts) + "\n"


def _markdown_of(block: Block, layout: Layout) -> str:
    match block:
        case Paragraph():
            words = layout.spell(block.text)
            return f"**{words}**" if block.tone is Tone.HEADLINE else words
        case Code():
            of = f"{layout.spell(block.of)}:\n\n" if block.of else ""
            return f"{of}```\n{layout.spell(block.text)}\n```"
        case Table():
            title = f"{layout.spell(block.title)}:\n\n" if block.title else ""
            cells = [[layout.spell(cell) for cell in row] for row in block.cells]
            return title + markdown_table(block.headings, cells, align=block.align)
        case _:
            assert_never(block)


def markdown_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, align: str = ""
) -> str:
    """Return a pipe table.

    >>> print(markdown_table(["D", "ms"], [["0", "6.8"]]))
    | D | ms |
    |---:|---:|
    | 0 | 6.8 |
    """
    rules = [":---" if side == "l" else "---:" for side in align.ljust(len(headings), "r")]
    head = [heading.replace("-\n", "").replace("\n", " ") for heading in headings]
    whole = [[cell.replace("|", "\\|") for cell in line] for line in (head, *rows)]
    lines = [f"| {' | '.join(line)} |" for line in whole]
    return "\n".join([lines[0], f"|{'|'.join(rules)}|", *lines[1:]])
