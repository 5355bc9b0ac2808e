"""The formats of an answer, and tables as plain columns for the terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from roofline.render.writers import OutputFormat, markdown_table, wrap

__all__ = [
    "OutputFormat",
    "TableOrJson",
    "captioned_table",
    "fitted_table",
    "markdown_table",
    "text_table",
    "wrap",
]


class TableOrJson(StrEnum):
    """The formats of an answer that has no rows to put in a spreadsheet."""

    TABLE = "table"
    JSON = "json"


def text_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, names_first: bool = False
) -> str:
    r"""Return right-aligned columns; a header may have two lines, split at a newline.

    ``names_first`` aligns the first column to the left.

    >>> print(text_table(["D", "step\nms"], [["0", "6.80"], ["10", "7.1"]]))
     D  step
          ms
     0  6.80
    10   7.1
    >>> print(text_table(["id", "GB"], [["a", "80"], ["long", "8"]], names_first=True))
    id    GB
    a     80
    long   8
    """
    split = [header.split("\n") for header in headers]
    height = max(len(lines) for lines in split)
    filled = [[*lines, *[""] * (height - len(lines))] for lines in split]
    lines = [[header[i] for header in filled] for i in range(height)] + [list(r) for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]

    def cell(text: str, column: int) -> str:
        left = names_first and column == 0
        return text.ljust(widths[column]) if left else text.rjust(widths[column])

    return "\n".join(
        "  ".join(cell(text, column) for column, text in enumerate(line)).rstrip() for line in lines
    )


def fitted_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = 80) -> str:
    r"""Return columns after names; a name too long for ``width`` stands on a line of its own.

    >>> print(fitted_table(["id", "GB"], [["a", "80"], ["longer", "8"]], width=8))
    id    GB
    a     80
    longer
           8
    """
    others = [
        max(len(line) for cell in column for line in cell.split("\n"))
        for column in list(zip(headers, *rows, strict=True))[1:]
    ]
    room = max(width - sum(2 + other for other in others), len(headers[0]))
    short = [[row[0] if len(row[0]) <= room else "", *row[1:]] for row in rows]
    widest = max((len(row[0]) for row in short), default=0)
    if any(len(row[0]) > room for row in rows):
        widest = room
    table = text_table([headers[0].ljust(widest), *headers[1:]], short, names_first=True)
    lines = table.split("\n")
    height = len(lines) - len(rows)
    body, previous = [], ""  # a name stands once above all of its rows
    for row, line in zip(rows, lines[height:], strict=True):
        body += [row[0], line] if len(row[0]) > room and row[0] != previous else [line]
        previous = row[0]
    return "\n".join(lines[:height] + body)


def captioned_table(
    headers: Sequence[str], captions: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    r"""Return right-aligned columns with each row's long name on a line of its own above it.

    >>> print(captioned_table(["D", "ms"], ["one", "another"], [["0", "6.80"], ["10", "7.1"]]))
     D    ms
    one
     0  6.80
    another
    10   7.1
    """
    lines = text_table(headers, rows).split("\n")
    height = len(lines) - len(rows)
    body = zip(captions, lines[height:], strict=True)
    return "\n".join([*lines[:height], *(line for name, row in body for line in (wrap(name), row))])
