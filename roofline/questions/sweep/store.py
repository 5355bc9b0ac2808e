"""An unfinished sweep on disk: NAME.partial holds finished parts and a journal of them.

Each part is on disk before it is entered in the journal with its hash, so what the journal names
can be checked and relied on whenever the process ends. The finished file appears under its name in
one step. A lock, which ends with its process, keeps a second sweep out of the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from roofline.base.errors import InputError, Option
from roofline.base.files import check_output
from roofline.questions.sweep.files import changed_files

__all__ = ["Entry", "Store"]

PLAN, NEW_PLAN, JOURNAL, LOCK = "plan.json", "plan.new", "journal.jsonl", "lock"
#: What every line of the journal starts with.
START = b'{"index": '


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What the journal says of a finished part."""

    index: int
    rows: int
    points: int
    fitting: int = 0  # rows that can be run
    refusal: str = ""  # why the first combination that is refused whole is
    sha256: str = ""  # of the part, as the journal says it
    warnings: Sequence[str] = ()
    sources: Sequence[str] = ()


class Store:
    """The folder of one unfinished sweep."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(f"{output.name}.partial")
        self.entries: dict[int, Entry] = {}
        self._held: IO[bytes] | None = None

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
        while self._held is None:
            self.folder.mkdir(exist_ok=True)
            held = (self.folder / LOCK).open("ab")
            try:
                _hold(held)
            except BlockingIOError:
                held.close()
                raise InputError(
                    f"another sweep is writing it ({self.folder} is locked); wait for it, or give "
                    "another name",
                    field="output",
                    value=self.output,
                ) from None
            if os.fstat(held.fileno()).st_nlink:
                self._held = held
            else:  # that sweep ended just now, and took the folder with it
                held.close()

    def close(self) -> None:
        """Let other sweeps use the folder."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _check(self, plan: dict[str, Any]) -> None:
        """Refuse to go on with the parts of another plan."""
        file = self.folder / PLAN
        known: Any = None
        with suppress(FileNotFoundError, ValueError):
            known = json.loads(file.read_bytes())
        if not isinstance(known, dict) or not isinstance(known.get("files"), dict):
            raise InputError(
                f"{file} is missing or damaged, so nothing says which sweep the parts belong to; "
                f"remove {self.folder}",
                field="resume",
            )
        edited = changed_files(known["files"], plan["files"])
        if edited:
            raise InputError(
                f"{', '.join(edited)}: changed since {self.folder} was started; restore it, or "
                "remove the folder",
                field="resume",
            )
        changed = [name for name in plan if known.get(name) != plan[name]]
        if changed:
            raise InputError(
                f"{self.folder} was started with another {', '.join(changed)}; repeat that "
                "command, or remove the folder",
                field="resume",
            )

    def journal(self) -> Iterator[Entry]:
        """Yield what the journal names and the disk has, unharmed."""
        file = self.folder / JOURNAL
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        for number, line in enumerate(lines, start=1):
            entry = _entry(line, f"{file}:{number}")
            if entry is not None and self._holds(entry):
                yield entry

    def _holds(self, entry: Entry) -> bool:
        """Return whether a part is there and has the bytes that were written."""
        try:
            with self.part(entry.index).open("rb") as part:
                return hashlib.file_digest(part, "sha256").hexdigest() == entry.sha256
        except FileNotFoundError:
            return False

    def part(self, index: int) -> Path:
        """Return where a part lies."""
        return self.folder / f"{index:08d}.part"

    def add(self, entry: Entry, content: bytes) -> None:
        """Keep a finished part, and enter it in the journal."""
        with self.explained():
            part = self.part(entry.index)
            _write(part.with_suffix(".new"), content)
            part.with_suffix(".new").replace(part)
            entry = replace(entry, sha256=hashlib.sha256(content).hexdigest())
            with (self.folder / JOURNAL).open("a", encoding="utf-8") as journal:
                # begin with an end of line: the last process may have left half of one
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


def _hold(file: IO[bytes]) -> None:
    """Lock an open file until it is closed; raise BlockingIOError where another process has."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _entry(line: bytes, where: str) -> Entry | None:
    """Return the entry on a line of the journal; None for a line that was not written whole."""
    try:
        return TypeAdapter(Entry).validate_json(line, strict=True)
    except ValidationError:
        if line[: len(START)] == START[: len(line)] and not _is_json(line):
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
