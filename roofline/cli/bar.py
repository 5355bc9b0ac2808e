"""The bar of a long run on a terminal: how far, how fast, and the time that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from roofline.base.progress import Advance

__all__ = ["bar"]

#: A shorter run shows no bar [s].
PATIENCE = 1.0


@contextmanager
def bar(total: float, unit: str, counted: str | None = None) -> Iterator[Advance]:
    """Show a bar on stderr once a run has taken a second; it disappears at the end."""
    shown = _Bar(total, unit, counted)
    timer = threading.Timer(PATIENCE, shown.begin)
    timer.daemon = True
    timer.start()
    try:
        yield shown.advance
    finally:
        timer.cancel()
        shown.end()


class _Bar:
    """A bar that may not have begun."""

    def __init__(self, total: float, unit: str, counted: str | None) -> None:
        self._total, self._unit, self._counted = total, unit, counted
        self._done, self._calls, self._begun = 0.0, 0, time.monotonic()
        self._progress: Any = None
        self._over = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Draw the bar; rich is imported only now."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = [BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}")]
        with self._lock:
            if self._over:
                return
            self._progress = Progress(
                *columns,
                TimeRemainingColumn(),
                TextColumn("left"),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
            )
            self._progress.add_task("", total=self._total, completed=self._done, rate="")
            self._progress.start()

    def advance(self, more: float) -> None:
        """Move the bar by so many units."""
        with self._lock:
            self._done += more
            self._calls += 1
            if self._progress is None:
                return
            (task,) = self._progress.tasks
            self._progress.update(task.id, completed=self._done, rate=self._rate(task.speed))

    def _rate(self, speed: float | None) -> str:
        """Return units per second; of time itself that of what is counted in it, if anything."""
        unit = self._unit if self._counted is None else self._counted
        if self._counted is not None:
            speed = self._calls / max(time.monotonic() - self._begun, 1e-3)
        if not speed or unit == "s":
            return ""
        return f"{speed:,.{0 if speed >= 10 else 1}f} {unit}/s"

    def end(self) -> None:
        """Take the bar away."""
        with self._lock:
            self._over = True
            if self._progress is not None:
                self._progress.stop()
