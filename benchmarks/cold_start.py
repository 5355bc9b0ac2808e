"""Time cold starts of the command line, as medians and as ratios to the libraries it stands on.

Run with ``make bench``. Timings vary with the machine: compare the ratios. Bytecode is compiled
beforehand, as an installation has it. A busy machine moves the processor time less than the clock.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMAGE = Path(tempfile.gettempdir()) / "roofline-frontier.png"
PAGE = Path(tempfile.gettempdir()) / "roofline-report.html"
FLOOR = "import numpy, pydantic, typer"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    FLOOR: ["-c", FLOOR],
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


def seconds(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the wall time and the processor time of one fresh interpreter."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print median and minimum of each command, all interleaved in one run."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as compiled:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for arguments in COMMANDS.values():
            seconds(arguments, environment)
        for _ in range(REPEATS):
            for name, arguments in COMMANDS.items():
                times[name].append(seconds(arguments, environment))
    floor = statistics.median(wall for wall, _ in times[FLOOR])
    for name, values in times.items():
        wall, spent = zip(*values, strict=True)
        median = statistics.median(wall)
        sys.stdout.write(
            f"{name:38s} median {median:.3f} s ({median / floor:.1f} x the libraries), "
            f"least {min(wall):.3f} s, {min(spent):.3f} s of processor time\n"
        )


if __name__ == "__main__":
    main()
