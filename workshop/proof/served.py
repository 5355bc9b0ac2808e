"""What real servers gave, kept beside what their client counted, and what tuning them gave."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["LLAMACPP", "RESULTS", "TUNED", "Check", "Results", "TunedRun"]

RESULTS = Path(__file__).with_name("servers.json")
LLAMACPP = Path(__file__).with_name("llamacpp.json")
TUNED = Path(__file__).with_name("tuned.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was read of a server, beside the truth."""

    server: str
    about: str
    read: str
    truth: str
    ok: bool

    @property
    def line(self) -> str:
        """The line of the log."""
        mark = "ok" if self.ok else "WRONG"
        return f"{mark} | {self.server} | {self.about} | {self.read} read | {self.truth} meant"


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """All checks of a run, and why a server did not run, by its name."""

    version: str
    checks: Sequence[Check]
    not_served: Mapping[str, str]

    @classmethod
    def load(cls, file: Path = RESULTS) -> Results:
        """Return the results that are kept."""
        data = json.loads(file.read_text("utf-8"))
        checks = [Check(**each) for each in data["checks"]]
        return cls(version=data["version"], checks=checks, not_served=data["not_served"])

    def keep(self, file: Path = RESULTS) -> None:
        """Write the results to where they are kept."""
        file.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    @property
    def names(self) -> set[tuple[str, str]]:
        """What was checked, without its numbers."""
        return {(check.server, check.about) for check in self.checks}

    def renewed(self, later: Results) -> Results:
        """Return these results with those of the servers that ran later in their place."""
        ran = {check.server for check in later.checks} | set(later.not_served)
        order = list(dict.fromkeys(check.server for check in (*self.checks, *later.checks)))
        kept = [check for check in self.checks if check.server not in ran]
        checks = sorted((*kept, *later.checks), key=lambda check: order.index(check.server))
        still = {name: why for name, why in self.not_served.items() if name not in ran}
        return Results(
            version=later.version, checks=checks, not_served={**still, **later.not_served}
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedRun:
    """What the commands printed, and tokens per second of every draft length afterwards."""

    engine: str
    printed: Sequence[str]  # by the commands
    seconds: float  # of ``tune run``
    timings: int
    choice: int
    sweep: Mapping[str, Sequence[float]]  # by draft length, a speed of each round

    @property
    def speeds(self) -> dict[int, float]:
        """Tokens per second by draft length, the mean of the rounds."""
        return {int(length): statistics.mean(rounds) for length, rounds in self.sweep.items()}

    @property
    def best(self) -> int:
        """The fastest draft length of the sweep."""
        return max(self.speeds, key=self.speeds.__getitem__)

    @property
    def loss(self) -> float:
        """The share of speed that the choice loses against the fastest."""
        return 1 - self.speeds[self.choice] / self.speeds[self.best]

    @classmethod
    def load(cls) -> dict[str, TunedRun]:
        """Return the runs that are kept, by engine."""
        data = json.loads(TUNED.read_text("utf-8")) if TUNED.is_file() else {}
        return {name: cls(**each) for name, each in data.items()}

    def keep(self, name: str) -> None:
        """Keep the run in place of the engine's earlier one."""
        kept = {**self.load(), name: self}
        data = {each: asdict(kept[each]) for each in sorted(kept)}
        TUNED.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
