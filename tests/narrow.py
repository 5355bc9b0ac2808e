"""The command line in a process with little memory and time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from tests.support import ROOT

SECONDS = 20.0  # of one core, start included; on an idle machine the slowest takes 4
MEMORY = 3 << 30  # address space of a run [B]


def in_narrow_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with little memory and time; a crash shows as a signal."""

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))

    return subprocess.run(
        [sys.executable, "-m", "roofline", *arguments],
        capture_output=True, text=True, cwd=ROOT, check=False, preexec_fn=confine,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
