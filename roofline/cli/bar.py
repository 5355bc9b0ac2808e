"""The bar of a long run on a terminal: how far, how fast, and the time that is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from roofline.base.progress import Advance

__all__ = ["bar"]

#: A shorter run shows no bar [s].
PATIENCE = 1.0


@contextmanager
def bar(total: float, unit: str) -> Iterator[Advance]:
    """Show a bar on stderr once a run has taken a second; it disappears at the end."""
    shown = _Bar(total, unit)
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

    def __init__(self, total: float, unit: str) -> None:
        self._total, self._unit = total, unit
        self._done = 0.0
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
            if self._progress is None:
                return
            (task,) = self._progress.tasks
            self._progress.update(task.id, completed=self._done, rate=self._rate(task.speed))

    def _rate(self, speed: float | None) -> str:
        """Return units per second; of time itself there is none."""
        if not speed or self._unit == "s":
            return ""
        return f"{speed:,.{0 if speed >= 10 else 1}f} {self._unit}/s"

    def end(self) -> None:
        """Take the bar away."""
        with self._lock:
            self._over = True
            if self._progress is not None:
                self._progress.stop()
