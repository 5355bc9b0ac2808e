"""An unfinished sweep on disk: NAME.partial holds finished parts and a journal of them.

Each part is written whole and then entered in the journal, so what the journal names can be relied
on whenever the process ends. The finished file appears under its name in one step.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from roofline.errors import InputError

__all__ = ["Entry", "Store"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What the journal says of a finished part."""

    index: int
    rows: int
    points: int
    warnings: Sequence[str] = ()
    sources: Sequence[str] = ()


class Store:
    """The folder of one unfinished sweep."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(f"{output.name}.partial")
        self.entries: dict[int, Entry] = {}

    def open(self, plan: dict[str, Any], *, resume: bool) -> None:
        """Start the folder, or go on with one that was started for the same plan."""
        with self.explained():
            if not self.folder.exists():
                self.folder.mkdir()
                (self.folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
                return
            if not resume:
                raise InputError(
                    f"{self.folder} holds an unfinished sweep: add --resume to go on with it, or "
                    "remove it"
                )
            self._check(plan)
            self.entries = {entry.index: entry for entry in self.journal()}

    def _check(self, plan: dict[str, Any]) -> None:
        known = self._read_json("plan.json")
        if known is None:  # stopped before it was written
            (self.folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        elif known != json.loads(json.dumps(plan)):
            changed = [name for name in plan if known.get(name) != plan[name]]
            raise InputError(
                f"--resume: {self.folder} was started with another {', '.join(changed)}; repeat "
                "that command, or remove the folder"
            )

    def _read_json(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def journal(self) -> Iterator[Entry]:
        """Yield what the journal names and the disk has."""
        file = self.folder / "journal.jsonl"
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            try:
                entry = Entry(**json.loads(line))
            except ValueError:  # the line being written when the process ended
                continue
            if self.part(entry.index).is_file():
                yield entry

    def part(self, index: int) -> Path:
        """Return where a part lies."""
        return self.folder / f"{index:08d}.part"

    def add(self, entry: Entry, content: bytes) -> None:
        """Keep a finished part, and enter it in the journal."""
        with self.explained():
            part = self.part(entry.index)
            part.with_suffix(".new").write_bytes(content)
            part.with_suffix(".new").replace(part)
            with (self.folder / "journal.jsonl").open("a", encoding="utf-8") as journal:
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
        """Remove the folder once its content is in the output."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn a full disk or a read-only folder into one line that says what is kept."""
        try:
            yield
        except OSError as error:
            kept = (
                f"{len(self.entries)} finished parts are kept in {self.folder}: make room, then "
                "add --resume"
                if self.entries
                else "give a path in a folder that exists and can be written to"
            )
            raise InputError(
                f"-o {self.output}: cannot be written ({error.strerror}); {kept}"
            ) from None
