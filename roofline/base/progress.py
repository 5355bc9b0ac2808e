"""How far a long run is, told to whoever watches.

Nobody watches unless `watch_with` was called: the command line does so on a terminal. A run inside
a watched run is part of it, and is not told by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

__all__ = ["Advance", "Watch", "progress", "tracked", "wait", "watch_with"]

#: Tells how many more units are done.
Advance = Callable[[float], None]
#: Begins to show a run of so many units, and what else is counted: one for each call.
Watch = Callable[[float, str, str | None], AbstractContextManager[Advance]]
Item = TypeVar("Item")
#: What a wait is cut into [s].
SLICE = 0.25

_watch: Watch | None = None


def watch_with(watch: Watch | None) -> None:
    """Show the runs from now on with ``watch``; None shows none."""
    global _watch  # noqa: PLW0603  # a terminal is one for the whole process
    _watch = watch


def _unwatched(_: float) -> None:
    """Tell nobody."""


@contextmanager
def progress(total: float, unit: str, *, counted: str | None = None) -> Iterator[Advance]:
    """Show a run of ``total`` units; yield what is told how many more are done.

    Where the units are seconds, ``counted`` names what each call is one more of.

    >>> with progress(2, "rows") as advance:
    ...     advance(1)
    """
    watch = _watch
    if watch is None:
        yield _unwatched
        return
    watch_with(None)
    try:
        with watch(total, unit, counted) as advance:
            yield advance
    finally:
        watch_with(watch)


def tracked(items: Sequence[Item], unit: str) -> Iterator[Item]:
    """Yield the items, each told as one unit when its work is done.

    >>> list(tracked([1, 2], "rows"))
    [1, 2]
    """
    with progress(len(items), unit) as advance:
        for item in items:
            yield item
            advance(1)


def wait(seconds: float, advance: Advance) -> None:
    """Sleep, and tell how many seconds are over."""
    if advance is _unwatched:
        time.sleep(seconds)
        return
    begin, told = time.monotonic(), 0.0
    while told < seconds:
        time.sleep(min(SLICE, seconds - told))
        passed = min(time.monotonic() - begin, seconds)
        advance(passed - told)
        told = passed
