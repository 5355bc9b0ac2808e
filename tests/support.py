"""Shared helpers: runs of the command line, limits of time and memory, and invented YAML files."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: An accelerator with round figures: 1 TB/s, 100 TFLOP/s bf16, 200 TFLOP/s fp8, 64 GB, 64 linked.
GPU = """\
schema: 1
id: roundcard
name: Round Card
vendor: Nobody
architecture: Round
generation: invented
release_year: 2025
form_factor: card
memory:
  kind: HBM
  capacity: {value: 64 GB, source: here}
  bandwidth: {value: 1 TB/s, source: here}
compute:
  peaks:
    fp32: {value: 50 TFLOP/s, source: here}
    bf16: {value: 100 TFLOP/s, source: here}
    fp8: {value: 200 TFLOP/s, source: here}
  peak_basis: invented
interconnect:
  kind: link
  per_direction: {value: 100 GB/s, source: here}
  domain_size: 64
sources:
  here: {cite: invented for a test, confidence: from-memory}
"""

#: A small model: A = 8 query heads over 2 KV heads of 64, hidden 512, MLP 1024, vocabulary 1000.
MODEL = """\
schema: 1
kind: model
id: tiny
name: Tiny
source: invented for a test
hidden_size: 512
vocab_size: 1000
max_context: 4096
tie_embeddings: false
dtype: bf16
layers:
- repeat: 2
  attention: {kind: gqa, num_heads: 8, num_kv_heads: 2, head_dim: 64}
  mlp: {kind: dense, intermediate_size: 1024, gated: true}
"""

#: An EAGLE-3 head for it.
DRAFTER = """\
schema: 1
kind: eagle3
id: tiny-head
name: Head for Tiny
target: tiny
source: invented for a test
repository: someone/tiny-head
hidden_size: 512
vocab_size: 1000
draft_vocab_size: 500
dtype: bf16
fusion: {taps: 3, target_hidden_size: 512}
layers:
- repeat: 1
  attention: {kind: gqa, num_heads: 8, num_kv_heads: 2, head_dim: 64, input_size: 1024}
  mlp: {kind: dense, intermediate_size: 1024, gated: true}
  norms: 3
"""

#: A serving engine; its memory rules are those that vLLM is assumed to have.
ENGINE = """\
schema: 1
id: invented
name: Invented
overhead: {per_step: 0.5 ms, per_spec_round: 0.7 ms, per_draft_pass: 0.15 ms, source: here}
memory:
  fraction: 0.9
  reserve: 1.5 GB
  kv_block: 16
  caps_windows: true
  prefill_chunk: 8192
  source: here
draft_length_name: d
flags: {none: nothing, ngram: n$draft_length, eagle3: e$draft_length, model: m$draft_length}
flags_source: here
"""

#: An acceptance file.
ACCEPTANCE = """\
schema: 1
source: invented for a test
conditional: [0.8, 0.7, 0.6]
"""


@dataclass(frozen=True)
class Outcome:
    """Exit code and streams of one run."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """All that was printed on both streams, its lines joined."""
        return " ".join(f"{self.out} {self.err}".split())

    def data(self) -> Any:
        """Return stdout as JSON; NaN and Infinity are not JSON."""
        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=_not_json)

    def point(self) -> Any:
        """Return the only point of a recommendation."""
        (point,) = self.data()["points"]
        return point

    def by_draft_length(self) -> dict[int, Any]:
        """Return the rows of the only point by draft length."""
        return {row["draft_length"]: row for row in self.point()["by_draft_length"]}

    def ops(self, which: str) -> dict[str, Any]:
        """Return the kernels of one pass of the only point by name (needs ``--explain``)."""
        (explained,) = self.data()["explain"]
        return {row["op"]: row for row in explained["ops"] if row["pass"] == which}


Cli = Callable[..., Outcome]


def _not_json(word: str) -> None:
    pytest.fail(f"{word} is not JSON")


def assert_refused(outcome: Outcome, *words: str, code: int = 2) -> str:
    """Check that a run was refused with one line that holds every word; return the line."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("roofline: ")
    for word in words:
        assert word in lines[0]
    return lines[0]


def write(folder: Path, name: str, text: str | bytes) -> str:
    """Write a file and return its path as one would type it."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


SECONDS = 20.0  # of one core for one hostile input; the slowest takes 4
PATIENCE = 10  # how many times longer it may take on a busy machine
MEMORY = 2 << 30  # address space for one hostile input, beyond what the process holds [B]


@contextlib.contextmanager
def limits(*, seconds: float = SECONDS, memory: int = MEMORY) -> Iterator[None]:
    """Fail what computes longer than ``seconds``, or hangs, or needs more than ``memory`` bytes."""

    def stop(_signal: int, _frame: object) -> None:
        pytest.fail(f"took longer than {seconds} s")

    timers = {
        signal.ITIMER_PROF: (signal.SIGPROF, seconds),  # of this process's cores
        signal.ITIMER_REAL: (signal.SIGALRM, PATIENCE * seconds),
    }
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handlers = {number: signal.signal(number, stop) for number, _ in timers.values()}
    for timer, (_, length) in timers.items():
        signal.setitimer(timer, length)
    pages = Path("/proc/self/statm")  # Linux only; elsewhere time alone is limited
    if pages.exists():
        held = int(pages.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + memory, hard))
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def in_own_process(*arguments: str) -> Outcome:
    """Run the command line in a process with little memory and time; a crash shows as a signal."""

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))

    done = subprocess.run(
        [sys.executable, "-m", "roofline", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        preexec_fn=confine,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
