"""Expected failures, and how a text names an option. Any other failure is a bug."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

__all__ = [
    "OPTION_MARKS",
    "DoesNotFitError",
    "FaultsError",
    "InputError",
    "Option",
    "RooflineError",
    "StoppedError",
    "UnknownAcceptanceError",
    "close_names",
    "did_you_mean",
    "in_python",
    "spelled",
]

#: What stands around an option inside a text, and before its value. Unicode keeps these three for
#: the inside of programs, so no text that a user writes holds them; JSON writes them escaped.
OPTION_MARKS = "\ufdd0\ufdd1\ufdd2"
_OPEN, _VALUE, _CLOSE = (rf"(?:{mark}|(?<!\\)\\u{ord(mark):04x})" for mark in OPTION_MARKS)
_OPTION = re.compile(rf"{_OPEN}(\w+?)(?:{_VALUE}(.*?))?{_CLOSE}", re.DOTALL)


class Option(NamedTuple):
    """A setting, with a value where one is meant."""

    field: str
    value: object = None

    def __str__(self) -> str:
        """Return the option as texts hold it, for `spelled`."""
        begin, middle, end = tuple(OPTION_MARKS)
        value = "" if self.value is None else f"{middle}{self.value}"
        return f"{begin}{self.field}{value}{end}"


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

    >>> spelled(f"use {Option('tp', 8)} or less, not {{{{tp}}}}")
    'use tp=8 or less, not {{tp}}'
    """
    return _OPTION.sub(lambda option: spell(option[1], option[2]), text)


class RooflineError(Exception):
    """An expected failure: one line that says what, where, expected and remedy.

    ``field`` names the setting at fault, and ``value`` what was given for it; ``where`` is the
    file, page or server at fault; ``problem`` is the rest of the line. Whoever prints the line
    spells its options.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        field: str | None = None,
        value: object = None,
        where: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.field = field
        self.value = value
        self.where = where

    @property
    def text(self) -> str:
        """The whole line, its options not yet spelled."""
        option = None if self.field is None else str(Option(self.field, self.value))
        return ": ".join(filter(None, [option, self.where, self.problem]))

    def __str__(self) -> str:
        """Return the line with its options spelled as keyword arguments."""
        return spelled(self.text)


class InputError(RooflineError):
    """What the user gave cannot be used."""


class FaultsError(InputError):
    """A file has faults: the line tells the first and how many more there are."""

    def __init__(self, faults: Sequence[str]) -> None:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(faults[0] + more)
        self.faults = tuple(faults)


class UnknownAcceptanceError(InputError):
    """No acceptance was given, and none is known for the drafter."""


class DoesNotFitError(RooflineError):
    """The request is understood but the accelerator's memory is too small for it."""

    exit_code = 3


class StoppedError(RooflineError):
    """The user stopped a run; what was finished is kept."""

    exit_code = 130


def close_names(word: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that a misspelt one may stand for.

    >>> close_names("llama3", ["llama-3.1", "qwen3-8b"])
    ['llama-3.1']
    """
    names = sorted(set(known))
    close = [name for name in names if len(word) > 1 and name.startswith(word.lower())][:3]
    return close or difflib.get_close_matches(word.lower(), names, n=3, cutoff=0.6)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a remedy for a misspelt name: the closest known ones, else all of them if few.

    >>> did_you_mean("llama3", ["llama-3.1", "qwen3-8b"])
    "did you mean 'llama-3.1'?"
    """
    names = sorted(set(known))
    close = close_names(word, names)
    if close:
        return "did you mean " + " or ".join(f"'{name}'" for name in close) + "?"
    if len(names) <= 12:
        return "known: " + ", ".join(names)
    return f"{len(names)} names are known"
