"""Expected failures; everything else is a bug and keeps its traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from roofline.base.options import Option, spelled

__all__ = [
    "DoesNotFitError",
    "InputError",
    "RooflineError",
    "UnknownAcceptanceError",
    "did_you_mean",
]


class RooflineError(Exception):
    """An expected failure: one line that says what, where, expected and remedy.

    ``field`` names the setting at fault, and ``value`` what was given for it; ``problem`` is the
    rest of the line. Options inside it are spelled by whoever prints it.
    """

    exit_code = 2

    def __init__(self, problem: str, *, field: str | None = None, value: object = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.field = field
        self.value = value

    @property
    def text(self) -> str:
        """The whole line, its options not yet spelled."""
        return (
            self.problem
            if self.field is None
            else f"{Option(self.field, self.value)}: {self.problem}"
        )

    def __str__(self) -> str:
        """Return the line with its options spelled as keyword arguments."""
        return spelled(self.text)


class InputError(RooflineError):
    """What the user gave cannot be used."""


class UnknownAcceptanceError(InputError):
    """No acceptance was given, and none is known for the drafter."""


class DoesNotFitError(RooflineError):
    """The request is understood but the accelerator's memory is too small for it."""

    exit_code = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a remedy for a misspelt name: the closest known ones, else all of them if few.

    >>> did_you_mean("llama3", ["llama-3.1", "qwen3-8b"])
    "did you mean 'llama-3.1'?"
    """
    names = sorted(set(known))
    close = [name for name in names if len(word) > 1 and name.startswith(word.lower())][:3]
    close = close or difflib.get_close_matches(word.lower(), names, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f"'{name}'" for name in close) + "?"
    if len(names) <= 12:
        return "known: " + ", ".join(names)
    return f"{len(names)} names are known"
