"""Typed access to the keys of a config, and a log of what was read, defaulted and noted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from roofline.base.errors import FaultsError, InputError

__all__ = ["ConfigDefault", "Fields", "ImportLog", "short_repr"]

LARGEST_NUMBER = 2**40
LONGEST_LIST = 4096
#: Read on with this where a number is missing, to find further faults: layers, heads, experts and
#: sizes can all be 64.
STAND_IN = 64
T = TypeVar("T")


def short_repr(value: object) -> str:
    """Return a short text for any value, as an error shows it.

    >>> short_repr([0] * 1000), short_repr("x" * 50)
    ('a list', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'")
    """
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return repr(value if len(value) <= 34 else value[:31] + "...")
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    return repr(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigDefault:
    """A value that the config does not state."""

    field: str
    value: object
    why: str


@dataclass(slots=True)
class ImportLog:
    """The keys that were read of a config, the defaults that were taken, notes, and faults."""

    read: set[str] = field(default_factory=set)
    defaults: list[ConfigDefault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: What is wrong, by key; reading went on as if the key were absent.
    faults: dict[str, str] = field(default_factory=dict)

    def default(self, name: str, value: T, why: str) -> T:
        """Record a default once and return it."""
        default = ConfigDefault(field=name, value=value, why=why)
        if default not in self.defaults:
            self.defaults.append(default)
        return value

    @contextmanager
    def all_faults(self) -> Iterator[None]:
        """Refuse every key that was at fault; what else fails after the first says nothing."""
        try:
            yield
        except Exception:
            if not self.faults:
                raise
        if self.faults:
            raise FaultsError(list(self.faults.values()))

    def note(self, text: str) -> None:
        """Record once a note for the reader of the answer."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """Typed access to a mapping. A key with null counts as absent; one with zero does not."""

    file: str
    data: Mapping[str, Any]
    log: ImportLog
    path: str = ""
    #: Values of the class that the config belongs to, for keys it may leave out.
    class_defaults: Mapping[str, Any] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether a key has a value."""
        return self.data.get(name) is not None

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any] | None:
        for name in names:
            if name in self.data:
                self.log.read.add(self.path + name)
                if self.data[name] is not None:
                    return name, self.data[name]
        for name in names:
            if name in self.class_defaults:
                value = self.class_defaults[name]
                return name, self.log.default(name, value, "not stated: the class's own default")
        return None

    def fault(self, name: str, error: InputError) -> None:
        """Record what is wrong with a key, once."""
        self.log.faults.setdefault(self.path + name, error.text)

    def wrong(self, name: str, expected: str) -> InputError:
        """Return the error for a value of the wrong kind."""
        got = short_repr(self.data.get(name))
        return InputError(
            f"{self.file}: {self.path}{name}: expected {expected}, got {got}; correct the config"
        )

    def optional(self, *names: str, minimum: int = 1) -> int | None:
        """Return a whole number under the first of ``names`` that is given, None without one."""
        entry = self._find(names)
        if entry is None:
            return None
        name, value = entry
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(name, self.wrong(name, "a whole number"))
            return None
        if not minimum <= value <= LARGEST_NUMBER:
            self.fault(name, self.wrong(name, f"a whole number from {minimum} to 2^40"))
            return None
        return value

    def integer(self, *names: str) -> int:
        """Return a whole number; refuse a config without it."""
        value = self.optional(*names)
        if value is not None:
            return value
        if not any(self.path + name in self.log.faults for name in names):
            others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            problem = f"{self.file}: {self.path}{names[0]}{others}: is missing; add it"
            self.fault(names[0], InputError(problem))
        return STAND_IN

    def integer_or(self, *names: str, default: int, why: str) -> int:
        """Return a whole number, else ``default``, which is then recorded."""
        value = self.optional(*names)
        return value if value is not None else self.log.default(names[0], default, why)

    def agreed(self, *names: str, minimum: int = 1) -> int | None:
        """Return a whole number that several names may give; refuse values that differ."""
        values = {name: self.optional(name, minimum=minimum) for name in names if self.has(name)}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name} {value}" for name, value in values.items())
            raise InputError(f"{self.file}: {listed}: these disagree; keep one")
        return next(iter(values.values()), None)

    def flag(self, *names: str, default: bool = False, why: str | None = None) -> bool:
        """Return true or false; a default with a reason is recorded."""
        entry = self._find(names)
        if entry is None:
            return default if why is None else self.log.default(names[0], default, why)
        name, value = entry
        if not isinstance(value, bool):
            self.fault(name, self.wrong(name, "true or false"))
            return default
        return value

    def text(self, *names: str) -> str | None:
        """Return a text, None where none is given."""
        entry = self._find(names)
        if entry is None:
            return None
        name, value = entry
        if not isinstance(value, str):
            self.fault(name, self.wrong(name, "a text"))
            return None
        return value

    def number(self, *names: str) -> float | None:
        """Return a finite number, None where none is given."""
        entry = self._find(names)
        if entry is None:
            return None
        name, value = entry
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(name, self.wrong(name, "a number"))
            return None
        return float(value)

    def integers(self, name: str, *, length: int | None = None) -> list[int] | None:
        """Return a list of whole numbers, at least ``length`` of them."""
        numbers = self._list(name, length)
        if numbers is None:
            return None
        if not all(type(item) is int and 0 <= item <= LARGEST_NUMBER for item in numbers):
            raise self.wrong(name, "a list of whole numbers")
        return numbers

    def texts(self, name: str, *, length: int | None = None) -> list[str] | None:
        """Return a list of texts, at least ``length`` of them."""
        texts = self._list(name, length)
        if texts is None:
            return None
        if not all(isinstance(item, str) for item in texts):
            raise self.wrong(name, "a list of texts")
        return texts

    def _list(self, name: str, length: int | None) -> list[Any] | None:
        entry = self._find((name,))
        if entry is None:
            return None
        value = entry[1]
        if not isinstance(value, list) or len(value) > LONGEST_LIST:
            raise self.wrong(name, f"a list of at most {LONGEST_LIST} entries")
        if length is not None and len(value) < length:
            raise InputError(
                f"{self.file}: {self.path}{name}: has {len(value)} entries for {length} layers; "
                "correct the config"
            )
        return value

    def inner(self, *names: str) -> Fields | None:
        """Return access to a nested object, None where there is none."""
        entry = self._find(names)
        if entry is None:
            return None
        name, value = entry
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(file=self.file, data=value, log=self.log, path=f"{self.path}{name}.")
