"""How commands print: the answer on stdout, the talk on stderr, options as they are typed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from roofline.base.errors import FaultsError, InputError, spelled
from roofline.base.files import printable

if TYPE_CHECKING:
    from roofline.base.notices import Notice
    from roofline.render.blocks import Answer, Block, Note, Tone
    from roofline.render.writers import Layout, OutputFormat

__all__ = [
    "all_faults",
    "check_format",
    "check_notes_are_heard",
    "cut",
    "emit",
    "emit_answer",
    "emit_notes",
    "emit_rows",
    "emit_text",
    "flag",
    "help_if_bare",
    "refusal_line",
    "refuse",
    "show",
    "talk",
    "typed",
]

#: Columns: where nothing tells how many there are, and the bounds of what a terminal tells.
NARROW, LEAST, MOST = 80, 40, 100
LONG = 40  # characters of a text in a record that gets a line of its own
#: Settings that are not typed as ``--`` and their name.
_SPELLINGS = {"model": "MODEL", "output": "-o"}
#: Settings that some commands call otherwise.
_SPELLINGS_OF = {
    ("live",): {"model": "--model"},
    ("calibrate", "measure"): {"model": "--model"},
    ("schedule",): {"batch": "--batches", "context": "--contexts"},
}


def flag(field: str, value: str | None = None) -> str:
    """Return an option as it is typed.

    >>> flag("dp_attention", "2"), flag("model")
    ('--dp-attention 2', 'MODEL')
    """
    spellings = _SPELLINGS
    for command, own in _SPELLINGS_OF.items():
        if tuple(sys.argv[1 : 1 + len(command)]) == command:
            spellings = spellings | own
    name = spellings.get(field, "--" + field.replace("_", "-"))
    return name if value is None else f"{name} {value}"


def typed(text: str) -> str:
    """Return a text with its options as they are typed."""
    return spelled(text, flag)


@dataclass
class _Shown:
    """How much the command that runs shows, as its options say."""

    short: bool = False
    notes: bool = False
    quiet: bool = False


_shown = _Shown()


def show(*, short: bool, notes: bool, quiet: bool) -> None:
    """Print from now on as much as the options of the command say."""
    _shown.short, _shown.notes, _shown.quiet = short, notes, quiet
    if quiet:
        from roofline.base.progress import watch_with

        watch_with(None)


def help_if_bare(context: typer.Context) -> None:
    """Print the help if a group is called without a command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def talk(lines: Iterable[str]) -> None:
    """Print lines on stderr, wrapped as an answer is, their options as they are typed."""
    if _shown.quiet:
        return
    from roofline.render.writers import wrap

    sys.stdout.flush()
    for line in lines:
        text, width = printable(typed(line)), _width(sys.stderr)
        whole = text.startswith("wrote ") and len(text) > width  # a path is copied
        typer.echo(text if whole else wrap(text, width), err=True)


def emit_notes(notes: Sequence[Note], *, about: Iterable[str] = (), rest: str = "") -> None:
    """Print on stderr what is ``about`` an answer without a place for notes, and its first notes.

    All of them are printed if they are asked for; ``rest`` names a file that has all as well.
    """
    from roofline.render.writers import Layout, first_notes

    lines = first_notes(notes, Layout(all_notes=_shown.notes, spell=typed, rest=rest))
    talk([*about, *lines])


def check_notes_are_heard() -> None:
    """Refuse to ask for all notes and silence them, where they go to stderr alone."""
    if _shown.notes and _shown.quiet:
        raise InputError("--notes: go to stderr here, which --quiet silences; give one of them")


def emit_text(
    text: str, output: Path | None, notes: Sequence[Note] = (), *, about: Iterable[str] = ()
) -> None:
    """Write a text to a file or stdout as it stands; the rest of the answer goes to stderr."""
    check_notes_are_heard()
    _emit(printable(typed(text)), output)
    emit_notes(notes, about=about)
    _tell_written(output)


def emit_answer(
    answer: Answer,
    form: OutputFormat,
    output: Path | None = None,
    *,
    about: Iterable[str] = (),
) -> None:
    """Write an answer to a file or stdout; what is ``about`` it goes to stderr.

    So do the notes of a CSV, which has no place for them, and the first lines of what is in a file.
    """
    from roofline.render.writers import OutputFormat, note_lines, write

    if _shown.short and form in (OutputFormat.JSON, OutputFormat.CSV):
        raise InputError(f"--short: is a line of text; leave --format {form} out")
    if form is OutputFormat.CSV:
        check_notes_are_heard()
    text = write(answer, form, _layout(output))
    _emit(text if form is OutputFormat.TABLE else printable(text), output)
    first = () if output is None else _first_lines(answer)
    talk([*about, *first, *(note_lines(answer) if form is OutputFormat.CSV else ())])
    _tell_written(output)


def _first_lines(answer: Answer) -> Iterator[str]:
    """Yield the answer and what does not fit, in a sentence each."""
    from roofline.render.blocks import Paragraph, Tone

    for block in answer.blocks():
        if isinstance(block, Paragraph) and block.tone in (Tone.HEADLINE, Tone.WARNING):
            yield block.text


def _emit(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from roofline.base.files import write_atomically

    write_atomically(output, text)


def _tell_written(output: Path | None) -> None:
    if output is not None:
        talk([f"wrote {output}"])


def _layout(output: Path | None) -> Layout:
    """Return how text is laid out on stdout, or in a file."""
    from roofline.render.writers import Layout

    shown = Layout(
        all_notes=_shown.notes, short=_shown.short, spell=lambda text: printable(typed(text))
    )
    if output is not None:
        return replace(shown, whole_code=True)
    if not sys.stdout.isatty():
        return shown
    shown = replace(shown, width=_width(sys.stdout), wrap_short=True)
    return replace(shown, style=_styled) if _has_colours() else shown


def _has_colours() -> bool:
    """Return whether the terminal shows colours and the user wants them (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _styled(line: str, tone: Tone) -> str:
    match tone.value:
        case "headline":
            return typer.style(line, bold=True)
        case "warning":
            return typer.style(line, fg="yellow")
        case "quiet":
            return typer.style(line, dim=True)
        case _:
            return line


def _width(stream: TextIO) -> int:
    """Return the columns to wrap at: a terminal's own, but lines that can still be read."""
    if not stream.isatty():
        return NARROW
    return min(max(shutil.get_terminal_size().columns, LEAST), MOST)


def emit_rows(rows: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print rows with the same keys, in any format."""
    from roofline.render.blocks import Answer, Table
    from roofline.render.writers import OutputFormat

    check_format(form, *OutputFormat)
    shown = Table(
        headings=tuple(_two_lines(name) for name in rows[0]),
        cells=tuple(tuple(_cell(value) for value in row.values()) for row in rows),
        align="l",
    )
    answer = Answer(blocks=lambda: [shown], data=lambda: rows, rows=lambda: rows)
    emit_answer(answer, OutputFormat(form))


def emit(data: Mapping[str, Any], form: str, notices: Sequence[Notice] = ()) -> None:
    """Print one record, in any format; in CSV a row for each of its fields."""
    from roofline.render.blocks import Answer
    from roofline.render.notices import notes, notes_data
    from roofline.render.writers import OutputFormat

    check_format(form, *OutputFormat)
    found = notes(notices) if notices else ()
    answer = Answer(
        blocks=lambda: _record_blocks(data),
        notes=found,
        data=lambda: {**data, "notes": notes_data(notices)} if found else data,
        rows=lambda: [{"field": key, "value": value} for key, value in _flat(data)],
    )
    emit_answer(answer, OutputFormat(form))


def _record_blocks(data: Mapping[str, Any]) -> list[Block]:
    """Return a record as lines of field and value, and a table for each group of records in it."""
    from roofline.render.blocks import Paragraph, Table

    plain = {key: value for key, value in data.items() if not _has_records(value)}
    lines = tuple((f"{key}:", _value(value)) for key, value in plain.items() if value is not None)
    blocks: list[Block] = []
    if len(lines) == 1:
        blocks.append(Paragraph(" ".join(lines[0])))
    elif lines:
        blocks.append(Table(headings=("", ""), cells=lines, align="ll"))
    for key, records in data.items():
        if not _has_records(records):
            continue
        if not isinstance(next(iter(records.values())), Mapping):
            cells = tuple((f"{name}:", _value(value)) for name, value in records.items())
            blocks.append(Table(headings=("", ""), cells=cells, align="ll", title=key))
            continue
        names = list(dict.fromkeys(name for record in records.values() for name in record))
        cells = tuple(
            (name, *(_value(record.get(field, "-")) for field in names))
            for name, record in records.items()
        )
        blocks.append(
            Table(headings=("", *names), cells=cells, align="l" * (1 + len(names)), title=key)
        )
    return blocks


def _has_records(value: Any) -> bool:
    """Return whether a value is a group of records, or of texts too long to stand in a line."""
    if not isinstance(value, Mapping) or not value:
        return False
    records = all(isinstance(each, Mapping) for each in value.values())
    return records or any(isinstance(v, str) and len(v) > LONG for v in value.values())


def _flat(data: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field of a record with its path."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", _value(value)


def refusal_line(message: str) -> str:
    r"""Return a refusal as the one line that it is on stderr.

    >>> refusal_line("a.yaml: expected\n one number")
    'roofline: a.yaml: expected one number'
    """
    line = "".join(letter if letter.isprintable() else " " for letter in message)
    return "roofline: " + " ".join(line.split())


def refuse(message: str) -> None:
    """Print a refusal on stderr: one line, which is wrapped on a terminal."""
    line = refusal_line(message)
    if sys.stderr.isatty():
        from roofline.render.writers import wrap

        line = wrap(line, _width(sys.stderr))
    typer.echo(line, err=True)


@contextmanager
def all_faults() -> Iterator[None]:
    """Print every fault of a file as a line of its own, where one line would name the first."""
    try:
        yield
    except FaultsError as error:
        for fault in error.faults:
            refuse(typed(fault))
        raise typer.Exit(error.exit_code) from None


def check_format(form: str, *known: str) -> None:
    """Refuse a format that a command does not have."""
    if form not in known:
        expected = f"{', '.join(known[:-1])} or {known[-1]}"
        raise InputError(f"--format: expected {expected}, got '{form}'")


def cut(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters, with an ellipsis if it was longer.

    >>> cut("wikitext", 8), cut("a long name", 8)
    ('wikitext', 'a long …')
    """
    return f"{text[: width - 1]}…" if len(text) > width else text


def _two_lines(name: str) -> str:
    r"""Break a name between two words so that its lines differ least in length.

    >>> _two_lines("kv_bytes_per_token"), _two_lines("id")
    ('kv_bytes\nper_token', 'id')
    """
    breaks = [i for i, letter in enumerate(name) if letter in "_ "]
    if not breaks:
        return name
    at = min(breaks, key=lambda i: abs(len(name) - 1 - 2 * i))
    return f"{name[:at]}\n{name[at + 1 :]}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value / 1e9:.3f} B" if value >= 10**7 else f"{value:,}"
    return str(value)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
