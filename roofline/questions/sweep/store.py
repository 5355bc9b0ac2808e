"""An unfinished sweep on disk: NAME.partial holds finished parts and a journal of them.

Each part is on disk before it is entered in the journal with its hash, so what the journal names
can be checked and relied on whenever the process ends. The finished file appears under its name in
one step. A lock, which ends with its process, keeps a second sweep out of the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from roofline.base.errors import InputError, Option
from roofline.base.files import check_output
from roofline.importers.config_files import companion_paths

__all__ = ["JournalEntry", "Store", "changed_files", "file_hashes"]

PLAN, NEW_PLAN, JOURNAL, LOCK = "plan.json", "plan.new", "journal.jsonl", "lock"
#: What every line of the journal starts with.
LINE_START = b'{"index": '


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalEntry:
    """What the journal says of a finished part."""

    index: int
    rows: int
    points: int
    fitting: int = 0  # rows that can be run
    refusal: str = ""  # of the first combination that is refused at every point
    sha256: str = ""  # of the part, as the journal says it
    warnings: Mapping[str, str] = field(default_factory=dict)  # codes by sentence
    sources: Sequence[str] = ()
    readings: Sequence[Mapping[str, Any]] = ()  # `TwoReadings` of each list with two of them


class Store:
    """The folder of one unfinished sweep."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(f"{output.name}.partial")
        self.entries: dict[int, JournalEntry] = {}
        self._locked: IO[bytes] | None = None

    def open(self, plan: dict[str, Any], *, resume: bool) -> None:
        """Start the folder, or go on with one that was started for the same plan."""
        check_output(self.output)
        with self.explained():
            self._lock()
            if not any(file.name not in (LOCK, NEW_PLAN) for file in self.folder.iterdir()):
                _write(self.folder / NEW_PLAN, json.dumps(plan).encode())
                (self.folder / NEW_PLAN).replace(self.folder / PLAN)
                return
            if not resume:
                raise InputError(
                    f"{self.folder} holds an unfinished sweep: add {Option('resume')} to go on "
                    "with it, or remove it"
                )
            self._check(json.loads(json.dumps(plan)))
            self.entries = {entry.index: entry for entry in self.journal()}

    def _lock(self) -> None:
        """Keep other sweeps out of the folder, which is made where it is missing."""
        while self._locked is None:
            self.folder.mkdir(exist_ok=True)
            file = (self.folder / LOCK).open("ab")
            try:
                _lock_file(file)
            except BlockingIOError:
                file.close()
                raise InputError(
                    f"another sweep is writing it ({self.folder} is locked); wait for it, or give "
                    "another name",
                    field="output",
                    value=self.output,
                ) from None
            if os.fstat(file.fileno()).st_nlink:
                self._locked = file
            else:  # the other sweep ended just now and removed the folder
                file.close()

    def close(self) -> None:
        """Let other sweeps use the folder."""
        if self._locked is not None:
            self._locked.close()
            self._locked = None

    def _check(self, plan: dict[str, Any]) -> None:
        """Refuse to go on with the parts of another plan."""
        file = self.folder / PLAN
        started: Any = None
        with suppress(FileNotFoundError, ValueError):
            started = json.loads(file.read_bytes())
        if not isinstance(started, dict) or not isinstance(started.get("files"), dict):
            raise InputError(
                f"{file} is missing or damaged, so nothing says which sweep the parts belong to; "
                f"remove {self.folder}",
                field="resume",
            )
        edited = changed_files(started["files"], plan["files"])
        if edited:
            raise InputError(
                f"{', '.join(edited)}: changed since {self.folder} was started; restore it, or "
                "remove the folder",
                field="resume",
            )
        changed = [name for name in plan if started.get(name) != plan[name]]
        if "columns" in changed and {"columns", "version"} >= set(changed):
            raise InputError(
                f"the rows in {self.folder} have the columns of an older release, and one file has "
                "one set of names; remove the folder and start again",
                field="resume",
            )
        if changed:
            others = ", ".join(name for name in changed if name != "columns")
            raise InputError(
                f"{self.folder} was started with another {others}; repeat that "
                "command, or remove the folder",
                field="resume",
            )

    def journal(self) -> Iterator[JournalEntry]:
        """Yield the entries of the journal whose parts are on disk as they were written."""
        file = self.folder / JOURNAL
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        for number, line in enumerate(lines, start=1):
            entry = _entry(line, f"{file}:{number}")
            if entry is not None and self._has_part(entry):
                yield entry

    def _has_part(self, entry: JournalEntry) -> bool:
        """Return whether a part is there and has the bytes that were written."""
        try:
            with self.part(entry.index).open("rb") as part:
                return hashlib.file_digest(part, "sha256").hexdigest() == entry.sha256
        except FileNotFoundError:
            return False

    def part(self, index: int) -> Path:
        """Return where a part lies."""
        return self.folder / f"{index:08d}.part"

    def add(self, entry: JournalEntry, content: bytes) -> None:
        """Keep a finished part, and enter it in the journal."""
        with self.explained():
            part = self.part(entry.index)
            _write(part.with_suffix(".new"), content)
            part.with_suffix(".new").replace(part)
            entry = replace(entry, sha256=hashlib.sha256(content).hexdigest())
            with (self.folder / JOURNAL).open("a", encoding="utf-8") as journal:
                # begin with a line break: the last process may have left half a line
                journal.write("\n" * (journal.tell() > 0) + json.dumps(asdict(entry)))
            self.entries[entry.index] = entry

    @property
    def parts(self) -> list[Path]:
        """The finished parts in order."""
        return [self.part(index) for index in sorted(self.entries)]

    @contextmanager
    def finished(self) -> Iterator[IO[bytes]]:
        """Give a file to write; it takes the output's name when all of it is on disk."""
        whole = self.folder / "whole"
        with self.explained():
            with whole.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            whole.replace(self.output)

    def remove(self) -> None:
        """Remove the folder: its content is in the output, or nothing is worth keeping."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn a full disk or a read-only folder into one line that says what is kept."""
        try:
            yield
        except OSError as error:
            kept = (
                f"{len(self.entries)} finished parts are kept in {self.folder}: make room, then "
                f"add {Option('resume')}"
                if self.entries
                else "give a path in a folder that exists and can be written to"
            )
            raise InputError(
                f"cannot be written ({error.strerror}); {kept}", field="output", value=self.output
            ) from None


def _write(file: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _lock_file(file: IO[bytes]) -> None:
    """Lock an open file until it is closed; raise BlockingIOError where another process has."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@cache
def _journal_line() -> TypeAdapter[JournalEntry]:
    return TypeAdapter(JournalEntry)


def _entry(line: bytes, where: str) -> JournalEntry | None:
    """Return the entry on a line of the journal; None for a line that was not written whole."""
    try:
        return _journal_line().validate_json(line, strict=True)
    except ValidationError:
        if line[: len(LINE_START)] == LINE_START[: len(line)] and not _is_json(line):
            return None
    raise InputError(
        f"{where}: expected what is known of a finished part; remove that line, and its part is "
        "priced again",
        field="resume",
    )


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


#: Of a larger file (weights in GGUF) the length and this much of the head are hashed: all that is
#: read lies there.
HEAD_BYTES = 64 * 2**20


def file_hashes(texts: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of every file that the options name, by its path.

    A folder stands for the files of a config in it; ``mix:0.7*FILE,0.3*FILE`` and ``FILE@ERA`` for
    the files in them.
    """
    return {str(file): _sha256(file) for text in texts for file in _files(text)}


def changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the files whose content changed, and those that came or went.

    >>> changed_files({"a": "0", "b": "1"}, {"a": "0", "b": "2"})
    ['b']
    """
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _files(text: str) -> list[Path]:
    if "\0" in text or not text:
        return []
    mixed = re.split(r"[,*]", text.removeprefix("mix:")) if text.startswith("mix:") else []
    candidates = [Path(name.strip()) for name in (text, text.partition("@")[0], *mixed)]
    files: list[Path] = []
    for path in candidates:
        config = path / "config.json" if path.is_dir() else path
        if config.is_file():
            beside = companion_paths(config) if config.suffix == ".json" else []
            files += [config, *(file for file in beside if file.is_file())]
    return files


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        digest = hashlib.sha256(stream.read(HEAD_BYTES))
    size = file.stat().st_size
    return digest.hexdigest() + (f" of the head of {size} bytes" if size > HEAD_BYTES else "")
