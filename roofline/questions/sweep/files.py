"""The files that a grid names, and whether they are still what they were."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from roofline.importers.config_files import companion_paths

__all__ = ["changed_files", "hashes"]

#: Of a larger file (weights in GGUF) the head is hashed, which has what is read, and the length.
HEAD_BYTES = 64 * 2**20


def hashes(named: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of every file among what options were given, by its path.

    A folder stands for the files of a config in it; ``mix:0.7*FILE,0.3*FILE`` and ``FILE@ERA`` for
    the files in them.
    """
    return {str(file): _sha256(file) for text in named for file in _files(text)}


def changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the files whose content is not what it was, those that came and went too.

    >>> changed_files({"a": "0", "b": "1"}, {"a": "0", "b": "2"})
    ['b']
    """
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _files(text: str) -> list[Path]:
    if "\0" in text or not text:
        return []
    inside = re.split(r"[,*]", text.removeprefix("mix:")) if text.startswith("mix:") else []
    candidates = [Path(name.strip()) for name in (text, text.partition("@")[0], *inside)]
    found: list[Path] = []
    for path in candidates:
        config = path / "config.json" if path.is_dir() else path
        if config.is_file():
            beside = companion_paths(config) if config.suffix == ".json" else []
            found += [config, *(file for file in beside if file.is_file())]
    return found


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        digest = hashlib.sha256(stream.read(HEAD_BYTES))
    size = file.stat().st_size
    return digest.hexdigest() + (f" of the head of {size} bytes" if size > HEAD_BYTES else "")
