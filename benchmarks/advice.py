"""Time the commands that price many points: five drafters, and schedules over 9 x 7 points.

Run with ``make bench``. Each figure is the median of fresh processes; the second column is the work
inside one process, imports and first calls already paid.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import subprocess
import sys
import time
from unittest.mock import patch

from roofline.cli import main as command_line

BATCHES = "1,2,4,8,16,32,64,128,256"
CONTEXTS = "512,1k,2k,4k,8k,16k,32k"
DRAFTERS = ("eagle3=0.75", "ngram=0.4", "qwen3-0.6b=0.65", "qwen3-1.7b=0.75", "none")
COMMANDS = {
    "compare, five drafters": [
        "compare", "qwen3-8b", "--gpu", "h200-sxm", "--batch", BATCHES, "--context", CONTEXTS,
        *(word for name in DRAFTERS for word in ("--drafter", name)),
    ],
    **{
        f"schedule, 9 x 7 points, {form}": [
            "schedule", "qwen3-8b", "--gpu", "h200-sxm", "--acceptance", "0.75", "--batches",
            BATCHES, "--contexts", CONTEXTS, "--format", form,
        ]
        for form in ("vllm", "trtllm", "sglang")
    },
    "schedule, 256 batches": [
        "schedule", "qwen3-8b", "--gpu", "h200-sxm", "--acceptance", "0.75", "--contexts", "1k",
    ],
}  # fmt: skip
REPEATS = 5


def fresh(arguments: list[str]) -> float:
    """Return the wall time of a new interpreter that runs the command."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "roofline", *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def warm(arguments: list[str]) -> float:
    """Return the wall time of the command inside this process."""
    silent = io.StringIO()
    start = time.perf_counter()
    with (
        patch.object(sys, "argv", ["roofline", *arguments]),
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
        contextlib.suppress(SystemExit),
    ):
        command_line()
    return time.perf_counter() - start


def main() -> None:
    """Print the median of each command, cold and warm."""
    for name, arguments in COMMANDS.items():
        warm(arguments)
        cold = statistics.median(fresh(arguments) for _ in range(REPEATS))
        again = statistics.median(warm(arguments) for _ in range(REPEATS))
        sys.stdout.write(f"{name:35s} {cold:6.2f} s cold  {again:6.2f} s warm\n")


if __name__ == "__main__":
    main()
