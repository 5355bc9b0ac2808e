"""Ctrl-C and the processes that a run starts: the run alone answers it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ignoring_interrupts"]


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Let processes that are started meanwhile ignore Ctrl-C from their first instruction on."""
    if threading.current_thread() is not threading.main_thread():  # it alone sets signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
