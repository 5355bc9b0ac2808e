"""Files: read up to a bound, written whole or not at all, printed safely, and rows as CSV."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from roofline.base.errors import InputError

__all__ = [
    "CONTROL",
    "Readable",
    "cell",
    "check_output",
    "csv_text",
    "printable",
    "read_at_most",
    "without_queries",
    "write_atomically",
    "write_bytes_atomically",
]

#: Characters that move a terminal's cursor or reverse the order in which text is shown; written as
#: those, not as all others, because a class of a million characters takes 7 ms to compile.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Readable(Protocol):
    """A file on disk or inside the package."""

    @property
    def name(self) -> str:
        """Name printed in messages."""

    def read_bytes(self) -> bytes:
        """Return the whole content."""


def read_at_most(file: Readable, most: int, what: str) -> bytes:
    """Return the bytes of ``file``; raise InputError if it has more than ``most``."""
    try:
        if isinstance(file, Path):
            with file.open("rb") as opened:
                content = opened.read(most + 1)
        else:
            content = file.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{file.name}: cannot be read ({reason})") from None
    if len(content) > most:
        raise InputError(f"{file.name}: over {most} bytes; {what} has at most that many")
    return content


def printable(text: str) -> str:
    r"""Return text fit for a terminal, whatever a file or a server put into it.

    >>> printable("qwen\x1b[2J")
    'qwen?[2J'
    """
    return CONTROL.sub("?", text)


def check_output(path: Path) -> None:
    """Refuse to write to a link, which may lead anywhere, or to a device."""
    if path.is_symlink() or (path.exists() and not (path.is_file() or path.is_dir())):
        raise InputError(
            "is a link or a device; give the path of the file itself", field="output", value=path
        )


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` beside ``path`` and move it into place in one step."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` beside ``path`` and move it into place in one step."""
    import tempfile  # only where a file is written

    try:
        check_output(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        remedy = "give a path in a folder that exists and can be written to"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "make room, or give a path on another disk"
        raise InputError(
            f"cannot be written ({error.strerror}); {remedy}", field="output", value=path
        ) from None


#: What spreadsheets read as the start of a formula (OWASP, "CSV injection").
_FORMULA = re.compile(r"[=+\-@\t\r]")
#: Numbers and flags: without brackets, pipes and exclamation marks a formula can call no function
#: and reach nothing outside its sheet.
_HARMLESS = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|--?[a-z][^(|!\t\r\n]*", re.ASCII)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as CSV; the keys are the header.

    >>> print(csv_text([{"gpu": "b200", "speedup": 2 / 3}, {"gpu": "=1+1", "speedup": None}]))
    gpu,speedup
    b200,0.666667
    '=1+1,
    <BLANKLINE>
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if rows:
        writer.writerow([cell(name) for name in rows[0]])
    writer.writerows([cell(value) for value in row.values()] for row in rows)
    return out.getvalue()


def cell(value: Any) -> Any:
    """Return a value as a cell: six digits, true or false, nothing for None.

    Text that begins with = + - @, a tab or a carriage return gets an apostrophe in front, which
    spreadsheets read as "this is text"; numbers and plain flags stay as they are.

    >>> [cell(value) for value in (True, 0.1234567, "-1.5", "@SUM(A1)", "--tp-size 2", "-a|b!A0")]
    ['true', '0.123457', '-1.5', "'@SUM(A1)", '--tp-size 2', "'-a|b!A0"]
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and _FORMULA.match(value) and not _HARMLESS.fullmatch(value):
        value = f"'{value}"
    # a bare carriage return is not quoted, and readers begin a row after it
    return value.replace("\r", " ") if isinstance(value, str) else value


def without_queries(text: str) -> str:
    """Return what was typed as others may see it: the query of an address may hold a secret.

    >>> without_queries("http://host:8000/metrics?key=abc")
    'http://host:8000/metrics'
    """
    return re.sub(r"(https?://[^\s?,]*)\?[^\s,]*", r"\1", text, flags=re.IGNORECASE)
