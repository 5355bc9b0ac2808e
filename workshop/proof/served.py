"""What real servers gave, kept beside what their client counted: servers.json, llamacpp.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["LLAMACPP", "RESULTS", "Check", "Results"]

RESULTS = Path(__file__).with_name("servers.json")
LLAMACPP = Path(__file__).with_name("llamacpp.json")


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
