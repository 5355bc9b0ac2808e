"""Lists of modules by exact name, prefix, part of a name, glob or ``re:`` pattern."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from roofline.base.errors import InputError

__all__ = ["Modules", "canonical"]

_PREFIX = re.compile(
    r"^(?:model\.language_model\.|language_model\.model\.|language_model\.|model\.|backbone\.|"
    r"transformer\.)"
)
_LAYER = re.compile(r"^layers\.(\d+)\b")
MOST_NAMES = 100_000
MOST_GLOBS = 2_000  # in all
MOST_LOOSE = 200  # that name no layer, and are tried on every module
LONGEST = 300


def canonical(name: str) -> str:
    """Return a module's name without what precedes ``layers``.

    >>> canonical("language_model.model.layers.3.self_attn"), canonical("backbone.layers.4.mixer")
    ('layers.3.self_attn', 'layers.4.mixer')
    """
    return _PREFIX.sub("", name)


def _parts(name: str) -> Iterator[str]:
    """Yield every run of a name's dotted segments: itself, its prefixes, its parts."""
    segments = name.split(".")
    for start in range(len(segments)):
        for end in range(start + 1, len(segments) + 1):
            yield ".".join(segments[start:end])


def _prefixes(name: str) -> Iterator[str]:
    segments = name.split(".")
    return (".".join(segments[:end]) for end in range(1, len(segments) + 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Modules:
    """A compiled list of modules."""

    names: frozenset[str] = frozenset()
    globs: dict[str, re.Pattern[str]] = field(default_factory=dict)  # by layer, "" for any
    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, listed: Iterable[str], file: str) -> Modules:
        """Compile a list; a pattern that could take for ever is refused."""
        names: set[str] = set()
        globs: dict[str, list[str]] = defaultdict(list)
        patterns: list[re.Pattern[str]] = []
        for count, entry in enumerate(listed):
            if count >= MOST_NAMES or len(entry) > LONGEST:
                raise _too_long(file)
            if entry.startswith("re:"):
                patterns.append(_compile(entry.removeprefix("re:"), file))
            elif any(letter in entry for letter in "*?["):
                name = canonical(entry)
                layer = _LAYER.match(name)
                whole = layer is not None and not name[layer.end() :].startswith(("*", "?", "["))
                globs[layer[1] if layer and whole else ""].append(name)
            else:
                names.add(canonical(entry).rstrip("."))
        loose = len(globs.get("", [])) + len(set(patterns))
        if sum(map(len, globs.values())) > MOST_GLOBS or loose > MOST_LOOSE:
            raise _too_long(file)
        return cls(
            names=frozenset(names - {""}),
            globs={key: _joined(entries) for key, entries in globs.items()},
            patterns=tuple(dict.fromkeys(patterns)),
        )

    def match(self, name: str) -> bool:
        """Return whether the list names this module (canonical), one around it, or a part."""
        if any(part in self.names for part in _parts(name)):
            return True
        layer = _LAYER.match(name)
        for key in ("", layer[1] if layer else ""):
            glob = self.globs.get(key)
            if glob is not None and any(glob.match(prefix) for prefix in _prefixes(name)):
                return True
        full = (name, f"model.{name}", f"language_model.model.{name}")
        return any(pattern.match(text) for pattern in self.patterns for text in full)

    def __bool__(self) -> bool:
        """Return whether the list names anything."""
        return bool(self.names or self.globs or self.patterns)


def _too_long(file: str) -> InputError:
    return InputError(f"{file}: a list of modules is too long to be one; give --weights")


def _joined(globs: list[str]) -> re.Pattern[str]:
    unique = dict.fromkeys(globs)
    return re.compile("|".join(fnmatch.translate(glob) for glob in unique))


def _compile(pattern: str, file: str) -> re.Pattern[str]:
    """Compile a pattern of the kind that such lists use: no repeated groups, few repeats."""
    if re.search(r"\)[*+{?]", pattern) or len(re.findall(r"[*+{]", pattern)) > 4:
        raise InputError(f"{file}: pattern 're:{pattern[:40]}' is too involved for a module list")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"{file}: pattern 're:{pattern[:40]}': {error}") from None
