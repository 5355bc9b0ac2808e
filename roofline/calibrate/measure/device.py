"""What a campaign asks of a device, and the ways in which it may fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from roofline.calibrate.measure.case import Case, Menu

__all__ = ["CaseError", "Device", "Samples"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """The timed calls of one kernel. Times in s."""

    seconds: tuple[float, ...]
    clock: str
    cold: str
    error: float  # largest deviation from fp64, over the largest value
    waited: float = 0.0  # time spent waiting for a core, over the time measured
    note: str = ""


class CaseError(Exception):
    """One case cannot be measured; the campaign goes on without it.

    ``status`` is ``oom``, ``unsupported``, ``wrong``, ``hung`` or ``crashed``.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return CaseError, (self.status, self.reason)


class Device(Protocol):
    """A machine that can time kernels."""

    def facts(self) -> dict[str, Any]:
        """Return what identifies the machine and its software, as plain JSON values."""

    def menu(self) -> Menu:
        """Return what it can be asked for."""

    def sample(self, case: Case, *, repeats: int, seconds: float) -> Samples:
        """Check a kernel against fp64 and time it; stop early after ``seconds`` [s]."""

    def probe(self) -> float:
        """Return the time of a fixed reference kernel [s]."""

    def state(self) -> str:
        """Return clocks and temperature now, empty where they cannot be read."""
