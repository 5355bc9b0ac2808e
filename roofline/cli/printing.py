"""How commands print: options as they are typed, JSON for programs, plain text for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from roofline.base.errors import InputError, spelled
from roofline.base.files import printable

__all__ = [
    "FORMAT",
    "check_format",
    "cut",
    "emit",
    "emit_rows",
    "emit_text",
    "emit_warnings",
    "flag",
    "help_if_bare",
    "typed",
]

#: Settings that are not typed as ``--`` and their name.
_SPELLINGS = {"model": "MODEL", "output": "-o"}
#: Commands whose model is an option.
_MODEL_IS_AN_OPTION = (["live"], ["calibrate", "measure"])


def flag(field: str, value: str | None = None) -> str:
    """Return an option as it is typed.

    >>> flag("dp_attention", "2"), flag("model")
    ('--dp-attention 2', 'MODEL')
    """
    name = _SPELLINGS.get(field, "--" + field.replace("_", "-"))
    if field == "model" and any(sys.argv[1 : 1 + len(c)] == c for c in _MODEL_IS_AN_OPTION):
        name = "--model"
    return name if value is None else f"{name} {value}"


def typed(text: str) -> str:
    """Return a text with its options as they are typed."""
    return spelled(text, flag)


FORMAT = typer.Option("--format", help="table or json.")


def help_if_bare(context: typer.Context) -> None:
    """Print the help if a group is called without a command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def emit_warnings(warnings: Iterable[str]) -> None:
    """Print warnings on stderr, their options as they are typed."""
    for warning in warnings:
        typer.echo(printable(typed(f"warning: {warning}")), err=True)


def emit_text(text: str, output: Path | None, warnings: Sequence[str] = ()) -> None:
    """Write an answer to a file or stdout, and its warnings to stderr."""
    text = typed(text)
    if output is not None:
        from roofline.base.files import write_atomically

        write_atomically(output, printable(text))
    emit_warnings(warnings)
    if output is None:
        typer.echo(printable(text), nl=False)
    else:
        typer.echo(f"wrote {output}", err=True)


def emit_rows(rows: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print rows with the same keys as a table or JSON."""
    check_format(form, "table", "json")
    if form == "json":
        typer.echo(typed(json.dumps(list(rows), indent=2)))
        return
    from roofline.render.formats import fitted_table

    headers = [_two_lines(name) for name in rows[0]]
    cells = [[_cell(value) for value in row.values()] for row in rows]
    typer.echo(printable(typed(fitted_table(headers, cells))))


def emit(data: Mapping[str, Any], form: str) -> None:
    """Print one record as lines or JSON."""
    check_format(form, "table", "json")
    text = json.dumps(data, indent=2) if form == "json" else _indented(data).rstrip()
    typer.echo(printable(typed(text)))


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


def _indented(data: Mapping[str, Any], level: int = 0) -> str:
    lines = []
    for key, value in data.items():
        space = "  " * level
        if isinstance(value, Mapping) and not any(isinstance(v, dict) for v in value.values()):
            inner = ", ".join(f"{k} {_value(v)}" for k, v in value.items())
            lines.append(_wrapped(f"{space}{key}: {inner}", level))
        elif isinstance(value, Mapping):
            lines.append(f"{space}{key}:\n{_indented(value, level + 1).rstrip()}")
        elif value is not None:
            lines.append(_wrapped(f"{space}{key}: {_value(value)}", level))
    return "\n".join(lines) + "\n"


def _wrapped(line: str, level: int) -> str:
    """Break a line at 80 columns, its rest indented by one step more."""
    import textwrap

    return textwrap.fill(
        line,
        80,
        subsequent_indent="  " * (level + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
