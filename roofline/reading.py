"""Reading a user's file, however large it turns out to be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from roofline.errors import InputError

__all__ = ["CONTROL", "Readable", "printable", "read_at_most"]

#: What would move a terminal's cursor, or turn around the order in which text is shown.
CONTROL = re.compile(r"[^\t\n\x20-\x7e\xa0-\u2029\u202f-\u2065\u206a-\U0010ffff]")


class Readable(Protocol):
    """A file on disk or inside the package."""

    @property
    def name(self) -> str:
        """Name printed in messages."""

    def read_bytes(self) -> bytes:
        """Return the whole content."""


def read_at_most(file: Readable, most: int, what: str) -> bytes:
    """Return the bytes of ``file``; raise InputError where it has more than ``most``."""
    try:
        raw = _head(file, most + 1) if isinstance(file, Path) else file.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{file.name}: cannot be read ({reason})") from None
    if len(raw) > most:
        raise InputError(f"{file.name}: over {most} bytes; {what} has at most that many")
    return raw


def _head(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def printable(text: str) -> str:
    r"""Return text fit for a terminal, whatever a file or a server put into it.

    >>> printable("qwen\x1b[2J")
    'qwen?[2J'
    """
    return CONTROL.sub("?", text)
