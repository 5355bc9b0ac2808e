"""Kill every command that writes a file, at random moments; ``make torture`` runs it.

    python -m tests.torture --times 200

A file is either what it was before, or the whole of what the command writes: never a part. A CSV
that grows row by row ends in a whole row, and the command goes on from it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLD = "what was there before\n"
TUNING = """\
schema: 1
roofline: 0.1.0
engine: vllm
question: {model: qwen3-8b}
timings: []
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command, the file it writes, and what makes it go on where it was killed.

    ``begun`` is what it leaves when it is killed, by default the file itself; ``equal`` says that
    a run which was killed and gone on with writes the very bytes of one that was left alone.
    ``before`` is what the file holds where the command needs it.
    """

    words: tuple[str, ...]
    file: str
    resume: tuple[str, ...] = ()
    begun: str = ""
    equal: bool = False
    before: str = OLD


COMMANDS = (
    Command(words=("recommend", "llama-3.1-8b", "--batch", "1..64", "-o", "a.json"), file="a.json"),
    Command(words=("recommend", "llama-3.1-8b", "-o", "a.csv"), file="a.csv"),
    Command(words=("schedule", "llama-3.1-8b", "-o", "s.json"), file="s.json"),
    Command(words=("compare", "qwen3-8b", "--drafter", "eagle3=0.7", "--drafter", "ngram=0.4",
               "-o", "c.json"), file="c.json"),
    Command(words=("plot", "breakdown", "llama-3.1-8b", "-o", "b.png"), file="b.png"),
    Command(words=("sweep", "llama-3.1-8b", "--batch", "1..64", "--context", "1k..32k*2",
               "-o", "w.csv"), file="w.csv"),
    Command(words=("sweep", "llama-3.1-8b", "--gpu", "h100-sxm,h200-sxm,b200-hgx,a100-sxm-80gb",
               "--batch", "1..200", "--context", "1k..32k*1.5", "-o", "r.csv"), file="r.csv",
            resume=("--resume",), begun="r.csv.partial", equal=True),
    Command(words=("recommend", "llama-3.1-8b", "--rps", "4", "--input-tokens", "1k",
               "--output-tokens", "256", "-o", "l.csv"), file="l.csv"),
    Command(words=("explore", "llama-3.1-8b", "--vary", "group_size=1,2,4,8", "-o", "x.csv"),
            file="x.csv"),
    Command(words=("memory", "llama-3.1-8b", "-o", "m.json"), file="m.json"),
    Command(words=("tune", "start", "qwen3-8b", "--force", "-o", "t.yaml"), file="t.yaml"),
    Command(words=("tune", "add", "t.yaml", "--draft-length", "3", "--tokens-per-s", "250"),
            file="t.yaml", before=TUNING),
    Command(words=("report", "llama-3.1-8b", "-o", "p.html"), file="p.html"),
    Command(words=("plot", "speedup", "llama-3.1-8b", "--data", "d.csv"), file="d.csv"),
    Command(words=("acceptance", "read", str(ROOT / "tests/data/pages/vllm-0.33.0.prom"), "-o",
               "acc.yaml"), file="acc.yaml"),
    Command(
        words=("models", "import", str(ROOT / "model_configs" / "Qwen--Qwen3-8B.json"),
               "-o", "m.yaml"),
        file="m.yaml",
    ),
    Command(
        words=("calibrate", "measure", "--device", "cpu", "--model", "qwen3-0.6b", "--budget",
               "6s", "-o", "run.csv"),
        file="run.csv",
        resume=("--resume",),
    ),
    Command(
        words=("calibrate", "fit", str(ROOT / "roofline/data/measured/cpu-epyc-2-cores-numpy.csv"),
               "-o", "cpu.yaml"),
        file="cpu.yaml",
    ),
)  # fmt: skip


def start(words: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    """Start ``roofline`` in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-m", "roofline", *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def whole(command: Command) -> tuple[bytes, float]:
    """Return what ``command`` writes when it is left alone, and how long it takes."""
    with tempfile.TemporaryDirectory(prefix="roofline-torture-") as name:
        if not command.resume:
            (Path(name) / command.file).write_text(command.before)
        began = time.monotonic()
        code = start(command.words, Path(name)).wait(timeout=300)
        if code:
            sys.exit(f"{' '.join(command.words)}: exit {code}")
        return (Path(name) / command.file).read_bytes(), time.monotonic() - began


def damage(command: Command, content: bytes, at: float, folder: Path) -> str | None:
    """Kill ``command`` after ``at`` seconds; return what is wrong with its file."""
    file = folder / command.file
    if not command.resume:
        file.write_text(command.before)
    running = start(command.words, folder)
    try:
        running.wait(timeout=at)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    if not command.resume:
        found = file.read_bytes()
        return (
            None if found in (command.before.encode(), content) else f"{len(found)} bytes of a file"
        )
    begun = (folder / (command.begun or command.file)).exists()
    code = start((*command.words, *(command.resume if begun else ())), folder).wait(300)
    if code:
        return f"--resume: exit {code}"
    whole = not command.equal or file.read_bytes() == content
    return None if whole else "--resume: another file than that of one run"


def main() -> None:
    """Kill each command its share of the times, at moments spread over its run."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--times", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    asked = arguments.parse_args()
    dice, failures = random.Random(asked.seed), 0
    rapid = [command for command in COMMANDS if not command.resume]
    slow = [command for command in COMMANDS if command.resume]
    shares = {id(c): max(1, asked.times // 20) for c in slow}
    rest = asked.times - sum(shares.values())
    shares |= {id(c): -(-rest // len(rapid)) for c in rapid}
    for command in COMMANDS:
        content, seconds = whole(command)
        found: list[str] = []
        for _ in range(shares[id(command)]):
            at = dice.uniform(0.0, 1.1 * seconds)
            with tempfile.TemporaryDirectory(prefix="roofline-torture-") as name:
                wrong = damage(command, content, at, Path(name))
            if wrong is not None:
                found.append(f"killed after {at:.2f} s: {wrong}")
        failures += len(found)
        label = " ".join(command.words[:2])
        sys.stdout.write(f"{label}: killed {shares[id(command)]} times, {len(found)} damaged\n")
        sys.stdout.write("".join(f"  {line}\n" for line in found))
        sys.stdout.flush()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
