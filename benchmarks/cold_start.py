"""Time cold starts of the command line, as medians and as ratios to a bare Python.

Run with ``make bench``. Timings vary with the machine: compare the ratios.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMAGE = Path(tempfile.gettempdir()) / "roofline-frontier.png"
PAGE = Path(tempfile.gettempdir()) / "roofline-report.html"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "roofline --help": ["-m", "roofline", "--help"],
    "roofline recommend llama-3.1-8b": ["-m", "roofline", "recommend", "llama-3.1-8b"],
    "roofline explore, 50 variants": [
        "-m",
        "roofline",
        "explore",
        "llama-3.1-70b",
        "--gpu",
        "h200-sxm",
        "--tp",
        "8",
        "--vary",
        "group_size=1,2,4,8,16",
        "--vary",
        "layers=40,44,48,52,56,60,64,68,72,76",
    ],
    "roofline plot frontier llama-3.1-8b": [
        "-m",
        "roofline",
        "plot",
        "frontier",
        "llama-3.1-8b",
        "-o",
        str(IMAGE),
    ],
    "roofline report llama-3.1-8b": ["-m", "roofline", "report", "llama-3.1-8b", "-o", str(PAGE)],
}
REPEATS = 15


def seconds(arguments: list[str]) -> float:
    """Return the wall time of one fresh interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the median of each command, all interleaved in one run."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    bare = statistics.median(times["python -c pass"])
    for name, values in times.items():
        median = statistics.median(values)
        sys.stdout.write(f"{name:38s} {median:6.3f} s  {median / bare:5.1f} x bare Python\n")


if __name__ == "__main__":
    main()
