"""What the user may set, named by its field; whoever prints a text spells it.

A text that tells the user what to change holds an `Option` where it names a setting. The command
line spells it ``--kv fp8``, Python ``kv='fp8'``. Nothing decides on the text, so nothing reads it
back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Option", "in_python", "spelled"]

#: An option inside a text: ``{{kv}}``, or ``{{kv|fp8}}`` with a value.
_OPTION = re.compile(r"\{\{(\w+)(?:\|(.*?))?\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Option:
    """A setting, with a value where one is meant."""

    field: str
    value: object = None

    def __str__(self) -> str:
        """Return the option as texts hold it, for `spelled`."""
        value = "" if self.value is None else f"|{self.value}"
        return f"{{{{{self.field}{value}}}}}"


def in_python(field: str, value: str | None) -> str:
    """Return an option as a keyword argument.

    >>> in_python("kv", "fp8"), in_python("batch", "8"), in_python("tp", None)
    ("kv='fp8'", 'batch=8', 'tp')
    """
    if value is None:
        return field
    number = re.fullmatch(r"-?\d+(\.\d+)?", value)
    return f"{field}={value if number else repr(value)}"


def spelled(text: str, spell: Callable[[str, str | None], str] = in_python) -> str:
    """Return a text with its options spelled.

    >>> spelled(f"use {Option('tp', 8)} or less")
    'use tp=8 or less'
    """
    return _OPTION.sub(lambda found: spell(found[1], found[2]), text)
