"""Timing on a GPU: device events around captured graphs or single launches.

Settings of the device (clocks, power, persistence) are never touched.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from roofline.calibrate.measure.backend import Timed

__all__ = ["nvidia_smi", "time_on_device"]

CALLS = 32  # calls in one captured graph, over rotating operands
BELOW = 2e-3  # seconds of a call above which launches no longer show
FEWEST = 3  # samples
WARM_UP = 4  # calls, over as many sets of operands


def time_on_device(
    torch: Any, call: Callable[[int], Any], *, repeats: int, seconds: float, graph: bool
) -> Timed:
    """Time calls with rising index; ``graph`` off launches them one by one.

    A call below 2 ms is captured 32 times on rotating operands, and a sample is a replay over 32:
    no launch shows, and no operand is found in L2. Longer ones, and those that cannot be captured,
    are single launches between two events.
    """
    for i in range(WARM_UP):
        call(i)
    once = _seconds_per_call(torch, lambda: call(1), 1)
    if not graph:
        run = _one_by_one(call)
        return _samples(torch, run, CALLS, repeats, seconds), "events", 0.0
    replay = _captured(torch, call) if once < BELOW else None
    if replay is not None:
        return _samples(torch, replay, CALLS, repeats, seconds), "graph", 0.0
    index = iter(range(2, 10**9))
    return _samples(torch, lambda: call(next(index)), 1, repeats, seconds), "events", 0.0


def _samples(
    torch: Any, run: Callable[[], Any], calls: int, repeats: int, seconds: float
) -> tuple[float, ...]:
    run()
    torch.cuda.synchronize()
    samples: list[float] = []
    for _ in range(repeats):
        samples.append(_seconds_per_call(torch, run, calls))
        if len(samples) >= FEWEST and sum(samples) * calls > seconds:
            break
    return tuple(samples)


def _seconds_per_call(torch: Any, run: Callable[[], Any], calls: int) -> float:
    """Return the time between two device events around ``calls`` calls, over their number [s]."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / calls


def _one_by_one(call: Callable[[int], Any]) -> Callable[[], None]:
    """Return as many launches in a row as a graph would hold."""

    def run() -> None:
        for i in range(CALLS):
            call(i)

    return run


def _captured(torch: Any, call: Callable[[int], Any]) -> Callable[[], Any] | None:
    """Capture calls on rotating operands into one graph; None where that is not allowed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(CALLS):  # whatever a kernel prepares for an operand is done by now
            call(i)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for i in range(CALLS):
                call(i)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    replay: Callable[[], Any] = graph.replay
    return replay


def nvidia_smi(query: str) -> str:
    """Return what the driver's tool says of the first GPU, empty without it; settings stay."""
    command = f"nvidia-smi --query-gpu={query} --format=csv,noheader --id=0"
    try:
        done = subprocess.run(
            command.split(),
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
