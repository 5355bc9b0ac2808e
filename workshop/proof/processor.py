"""Steps of real engines on a CPU at D = 0 to 7, beside what is predicted of them.

    python -m workshop.proof.processor                   # print each R(D) and its predictions
    python -m workshop.proof.processor --write llamacpp  # time it anew first
    python -m workshop.proof.processor --write vllm
    python -m workshop.proof.processor --write page      # docs/how-to/own.md from what is kept

Targets of 0.4 G random weights and small drafters run on one thread, a request at a time. R(D) is
predicted from the engine's own kernels, from two timings, from both, and from NumPy's kernels.
Timing anew wants a quiet machine for a quarter of an hour.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roofline
from roofline.base.schema import dump_yaml, load_yaml
from roofline.calibrate.fit.deviations import SweptSteps, fit_deviations
from roofline.calibrate.llama_bench import Passes, fit_passes
from roofline.calibrate.profile import profile_data
from roofline.calibrate.session import fit
from roofline.engines.writing import DraftWeights, Launch
from roofline.importers.references import open_model
from roofline.specs.engine import load_engine
from roofline.specs.placement import Placement
from roofline.timing.timed import Deviations, after_timings, growth_covariance
from workshop.proof import llamacpp, random_gguf, served_models, vllm_cpu

__all__ = [
    "KERNELS",
    "SWEEPS",
    "Predictions",
    "Sweep",
    "deviations_without",
    "errors",
    "predictions",
    "table",
]

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "own.md"
DATA = HERE / "processor.csv"
#: Passes of llama-bench, and `roofline calibrate measure` with vLLM's own products.
PASSES, KERNELS = HERE / "processor_passes.csv", HERE / "processor_kernels.csv"
NUMPY = Path(roofline.__file__).parent / "data" / "measured" / "cpu-epyc-2-cores-numpy.yaml"
FORMATS = ("F32", "Q8_0", "Q4_0")
LENGTHS = range(8)
ROWS = range(1, 9)
#: What two timings are of: plain decoding, and four rows, midway in log2 between two and eight,
#: since the prior's growth is in log2 of rows.
TIMED = (0, 3)
#: Scatter of one timing, a share.
NOISE = 0.015
PARTS = ("verify", "draft", "overhead")
#: Of a request: the prompt and what follows of llama.cpp's, what follows of vLLM's.
PROMPT, TOKENS, STREAMED = 128, 40, 60
ROUNDS = 2  # through all draft lengths of llama.cpp
REQUESTS = 3  # of vLLM at each
TIMES = {
    "seconds": "vllm:inter_token_latency_seconds_sum",
    "passes": "vllm:inter_token_latency_seconds_count",
}
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A Llama of the sizes that were served."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    def spec(self, name: str, stored: str) -> str:
        """Return it as a model's file, its matrices in one format."""
        parts = "attention", "mlp", "head", "embedding"
        formats = ", ".join(f"{part}: {stored.lower().replace('f32', 'fp32')}" for part in parts)
        return f"""\
schema: 1
kind: model
id: {name}
name: {name}
source: random weights
hidden_size: {self.hidden}
vocab_size: {served_models.VOCABULARY}
max_context: 2048
tie_embeddings: false
dtype: fp32
dtypes: {{{formats}}}
layers:
- repeat: {self.layers}
  attention:
    kind: gqa
    num_heads: {self.heads}
    num_kv_heads: {self.kv_heads}
    head_dim: {self.head_dim}
  mlp: {{kind: dense, intermediate_size: {self.inner}, gated: true}}
"""


def _gguf(layers: int) -> Shape:
    return Shape(
        hidden=random_gguf.HIDDEN,
        inner=random_gguf.INNER,
        layers=layers,
        heads=random_gguf.HEADS,
        kv_heads=random_gguf.KV_HEADS,
        head_dim=random_gguf.HEAD_DIM,
    )


def _llama(hidden: int, layers: int) -> Shape:
    size = served_models.HEAD_DIM
    return Shape(
        hidden=hidden,
        inner=4 * hidden,
        layers=layers,
        heads=hidden // size,
        kv_heads=hidden // (2 * size),
        head_dim=size,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What was timed: an engine, the format of its weights, and the models' shapes."""

    engine: str
    name: str
    weights: str
    target: Shape
    drafter: Shape

    @property
    def rows(self) -> list[dict[str, str]]:
        """The steps that are kept."""
        mine = (self.engine, self.weights)
        return [row for row in _kept(DATA) if (row["engine"], row["weights"]) == mine]

    @property
    def steps(self) -> Array:
        """The steps that were measured [ms]."""
        return np.array([float(row["step_ms"]) for row in self.rows])

    @property
    def context(self) -> int:
        """The tokens that a step attends to, on the mean."""
        return int(self.rows[0]["context"])

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write both models' files."""
        shapes = {"target": self.target, "drafter": self.drafter}
        for name, shape in shapes.items():
            (folder / f"{name}.yaml").write_text(shape.spec(name, self.weights), "utf-8")
        return folder / "target.yaml", folder / "drafter.yaml"


_LLAMACPP = {"target": _gguf(random_gguf.DEEP), "drafter": _gguf(1)}
SWEEPS = (
    *(
        Sweep(engine="llamacpp", name="llama.cpp", weights=stored, **_LLAMACPP)
        for stored in FORMATS
    ),
    Sweep(
        engine="vllm",
        name="vLLM",
        weights="F32",
        target=_llama(served_models.DEEP_WIDE, served_models.DEEP),
        drafter=_llama(served_models.DEEP_NARROW, 2),
    ),
)


def _row(engine: str, version: str, context: int, **found: Any) -> dict[str, object]:
    steps = found["steps"]
    middle = statistics.median(steps)
    return {
        "engine": engine,
        "version": version,
        "weights": found["weights"],
        "context": context,
        "draft_length": found["length"],
        "step_ms": f"{middle:.3f}",
        "scatter": f"{(max(steps) - min(steps)) / middle:.3f}",
    }


def measure_llamacpp(
    tools: llamacpp.Programs, stored: str, folder: Path
) -> Iterator[dict[str, object]]:
    """Yield the step of each draft length [ms], the median of rounds through all of them."""
    writer = Path(random_gguf.__file__)
    subprocess.run([str(tools.python), str(writer), str(folder), stored], check=True)
    case = llamacpp.Case(about=stored, target="target", kind="model", drafter="drafter")
    found: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for _ in range(ROUNDS):
        for length in LENGTHS:
            flags = llamacpp.launch(case, folder).flags(length, running=1) if length else ""
            target, log = folder / "target.gguf", folder / "server.log"
            with llamacpp.serving(tools, target, flags, log) as server:
                llamacpp.stream(server, 0, 8)
                _, last = llamacpp.stream(server, 1, TOKENS, prompt=PROMPT)
            timings = last["timings"]
            passes = timings["predicted_n"] - 1 - timings.get("draft_n_accepted", 0)
            found[length].append(timings["predicted_ms"] / passes)
    version = f"b{llamacpp.BUILD}"
    for length, steps in found.items():
        yield _row("llamacpp", version, PROMPT, weights=stored, length=length, steps=steps)


def passes_of(tools: llamacpp.Programs, stored: str, folder: Path) -> Iterator[dict[str, object]]:
    """Yield what passes over so many rows take by ``llama-bench`` [ms]."""
    for model, rows in (("target", ",".join(map(str, ROWS))), ("drafter", "1")):
        asked = ["-m", str(folder / f"{model}.gguf"), "-p", rows, "-n", "0", "-d", str(PROMPT)]
        said = tools.run("llama-bench", *asked, "-t", "1", "-r", "4", "-o", "json")
        for found in json.loads(said):
            yield {
                "version": f"b{llamacpp.BUILD}",
                "weights": stored,
                "model": model,
                "rows": found["n_prompt"],
                "pass_ms": f"{found['avg_ns'] / 1e6:.3f}",
            }


def measure_vllm(python: Path, folder: Path) -> Iterator[dict[str, object]]:
    """Yield the step of each draft length [ms], by the server's own times between tokens."""
    script = Path(served_models.__file__)
    subprocess.run([str(python), str(script), str(folder), "deep"], check=True)
    drafter = str(folder / "drafter")
    launch = Launch(
        engine=load_engine(f"vllm@{vllm_cpu.VERSION}"),
        drafter_kind="model",
        weights=DraftWeights(name="drafter", repository=drafter),
        draft_tp=1,
        placement=Placement(),
        layers=served_models.DEEP,
    )
    for length in LENGTHS:
        flags = launch.flags(length, running=1) if length else ""
        one_thread = {"OMP_NUM_THREADS": "1"}
        wide = ("--dtype", "float32")
        log = folder / "server.log"
        serving = vllm_cpu.serving(
            python, folder / "target", flags, log, options=wide, variables=one_thread
        )
        steps = []
        with serving as server:
            vllm_cpu.load(server, clients=1, requests=1, tokens=STREAMED // 3)
            for _ in range(REQUESTS):
                before = server.sums(TIMES)
                vllm_cpu.load(server, clients=1, requests=1, tokens=STREAMED)
                after = server.sums(TIMES)
                grown = {key: after[key] - before[key] for key in TIMES}
                steps.append(1e3 * grown["seconds"] / grown["passes"])
        context = vllm_cpu.PROMPT + STREAMED // 2
        yield _row("vllm", vllm_cpu.VERSION, context, weights="F32", length=length, steps=steps)


def measure_kernels(python: Path, sweep: Sweep, folder: Path) -> None:
    """Time vLLM's kernels as a user would: `roofline calibrate measure` in its environment."""
    target, _ = sweep.write(folder)
    run = folder / "run.csv"
    options = f"--device cpu --library torch --budget 180s --model {target} --output {run}"
    command = [str(python), "-m", "roofline", "calibrate", "measure", *options.split()]
    subprocess.run(command, check=True, env={"PYTHONPATH": str(HERE.parents[1])})
    KERNELS.write_bytes(run.read_bytes())


def parts_of(sweep: Sweep, machine: Path) -> Mapping[str, Array]:
    """Return the parts of each step [ms] that the package predicts on a calibrated machine."""
    with tempfile.TemporaryDirectory() as folder:
        target, drafter = sweep.write(Path(folder))
        version = f"@{vllm_cpu.VERSION}" if sweep.engine == "vllm" else ""
        answer = roofline.recommend(
            str(target),
            gpu=str(machine),
            engine=f"{sweep.engine}{version}",
            drafter=str(drafter),
            acceptance=0.5,
            batch=1,
            context=sweep.context,
            max_draft_length=max(LENGTHS),
        ).to_frame()
    return {part: answer[f"{part}_ms"].to_numpy(float) for part in PARTS}


def machine_of(sweep: Sweep, to: Path) -> Path:
    """Write the machine that the engine's own kernels make, as `roofline calibrate fit` does."""
    if sweep.engine == "vllm":
        fit(KERNELS, to, gpu=None)
        return to
    rows = [row for row in _kept(PASSES) if row["weights"] == sweep.weights]
    passes = []
    for name, file in zip(("target", "drafter"), sweep.write(to.parent), strict=True):
        mine = [row for row in rows if row["model"] == name]
        passes.append(
            Passes(
                model=open_model(str(file))[0],
                depth=sweep.context,
                rows=tuple(int(row["rows"]) for row in mine),
                seconds=tuple(float(row["pass_ms"]) / 1e3 for row in mine),
            )
        )
    facts = {
        "device": "AMD EPYC",
        "cache": 32 * 2**20,
        "library": f"llamacpp {sweep.rows[0]['version']}",
        "date": "2026-12-01",
        "noisy": 0,
    }
    fitted = fit_passes(passes, facts, cite=PASSES.name)
    to.write_text(dump_yaml(profile_data(fitted, facts, None, cite=PASSES.name)), "utf-8")
    return to


def ratios(step: Array) -> Array:
    """Return R(D) for D > 0."""
    return np.asarray(step[1:] / step[0])


def timed(parts: Mapping[str, Array], measured: Array, deviations: Deviations) -> Array:
    """Return the steps after two of them were timed."""
    total = whole(parts)
    covariance = growth_covariance(
        draft_lengths=np.array(LENGTHS),
        verify=parts["verify"] / total,
        draft=parts["draft"] / total,
        overhead=parts["overhead"] / total,
        deviations=deviations,
    )
    mean, _ = after_timings(
        mean=np.log(total),
        covariance=covariance,
        jacobian=np.eye(len(total))[list(TIMED)],
        observed=np.log(measured[list(TIMED)]),
        noise=np.full(len(TIMED), NOISE),
    )
    return np.asarray(np.exp(mean))


def whole(parts: Mapping[str, Array]) -> Array:
    """Return the steps."""
    return np.asarray(np.sum([parts[part] for part in PARTS], axis=0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictions:
    """R(D), D from 1, as measured and as predicted, by what it is predicted from."""

    sweep: Sweep
    measured: Array
    predicted: Mapping[str, Array]

    def errors(self, name: str) -> Array:
        """Return how far off a prediction is, as shares, at draft lengths that were not timed."""
        left = [at - 1 for at in LENGTHS if at and (name in (OWN, OTHER) or at not in TIMED)]
        return np.asarray(np.abs(self.predicted[name] / self.measured - 1)[left])


#: What is predicted from: kernels of the engine; two timings beside these, or beside nothing but
#: the machine's bandwidth and peak; NumPy's kernels.
OWN, BOTH, TIMING, OTHER = (
    "own kernels",
    "own kernels and two timings",
    "two timings",
    "NumPy's kernels",
)


@cache
def own_parts(sweep: Sweep) -> Mapping[str, Array]:
    """Return the parts of each step [ms] that the engine's own kernels predict."""
    with tempfile.TemporaryDirectory() as folder:
        return parts_of(sweep, machine_of(sweep, Path(folder) / "machine.yaml"))


def deviations_without(sweep: Sweep | None) -> Deviations:
    """Return how far steps are off, fitted on the other sweeps; None leaves none out."""
    found = []
    for each in SWEEPS:
        if each is not sweep:
            own, total = own_parts(each), whole(own_parts(each))
            found.append(
                SweptSteps(
                    group=each.engine,
                    draft_lengths=tuple(LENGTHS),
                    misses=np.log(each.steps / total),
                    priors_only=False,
                    **{part: own[part] / total for part in PARTS},
                )
            )
    return fit_deviations(found)


def predictions(sweep: Sweep) -> Predictions:
    """Return R(D) of a sweep as measured and as predicted."""
    own, deviations = own_parts(sweep), deviations_without(sweep)
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.yaml"
        bare.write_text(dump_yaml(load_yaml(NUMPY) | {"calibration": []}), "utf-8")
        stated = parts_of(sweep, bare)
    measured = sweep.steps
    found = {
        OWN: whole(own),
        BOTH: timed(own, measured, deviations),
        TIMING: timed(stated, measured, deviations.priors_only()),
        OTHER: whole(parts_of(sweep, NUMPY)),
    }
    return Predictions(
        sweep=sweep,
        measured=ratios(measured),
        predicted={name: ratios(steps) for name, steps in found.items()},
    )


def table(found: Sequence[Predictions]) -> Iterator[str]:
    """Yield R(D) of every sweep beside what is predicted from the engine itself."""
    yield f"| engine, weights | R(D) | {' | '.join(f'D = {length}' for length in LENGTHS[1:])} |"
    yield "|" + "---|" * (1 + len(LENGTHS))
    for each in found:
        shown = {"measured": each.measured} | {
            name: values for name, values in each.predicted.items() if name != OTHER
        }
        for name, values in shown.items():
            cells = " | ".join(f"{value:.2f}" for value in values)
            yield f"| {each.sweep.name} {each.sweep.weights} | {name} | {cells} |"


def errors(found: Sequence[Predictions]) -> Iterator[str]:
    """Yield how far off each prediction is by engine."""
    names = list(found[0].predicted)
    yield f"| R(D) off by, median (worst) | {' | '.join(names)} |"
    yield "|" + "---|" * (1 + len(names))
    for engine in dict.fromkeys(each.sweep.name for each in found):
        mine = [each for each in found if each.sweep.name == engine]
        cells = []
        for name in names:
            off = 100 * np.concatenate([each.errors(name) for each in mine])
            cells.append(f"{np.median(off):.1f} % ({off.max():.0f} %)")
        weights = ", ".join(each.sweep.weights for each in mine)
        version = mine[0].sweep.rows[0]["version"]
        yield f"| {engine} {version}, {weights} | {' | '.join(cells)} |"


def write_page(found: Sequence[Predictions]) -> None:
    """Put both tables where the page has such ones."""
    text = PAGE.read_text("utf-8")
    for lines in map(list, (table(found), errors(found))):
        head = re.escape(lines[0].partition(" | ")[0])
        text = re.sub(rf"^{head} .*\n(?:\|.*\n)*", "\n".join(lines) + "\n", text, flags=re.M)
    PAGE.write_text(text, "utf-8")


def main() -> None:
    """Measure where it is asked for, and print each R(D) beside its predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", choices=("llamacpp", "vllm", "page"), help="time this engine anew, or the page"
    )
    asked = parser.parse_args()
    if asked.write == "llamacpp":
        _write_llamacpp()
    elif asked.write == "vllm":
        _write_vllm()
    found = [predictions(sweep) for sweep in SWEEPS]
    for line in (*table(found), "", *errors(found)):
        sys.stdout.write(f"{line}\n")
    if asked.write:
        write_page(found)


def _write_llamacpp() -> None:
    tools = llamacpp.programs()
    steps: list[dict[str, object]] = []
    passes: list[dict[str, object]] = []
    for stored in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            steps += measure_llamacpp(tools, stored, Path(folder))
            passes += passes_of(tools, stored, Path(folder))
    _keep(DATA, [*steps, *(row for row in _kept(DATA) if row["engine"] != "llamacpp")])
    _keep(PASSES, passes)


def _write_vllm() -> None:
    python = vllm_cpu.with_packages()
    with tempfile.TemporaryDirectory() as folder:
        steps = list(measure_vllm(python, Path(folder)))
        measure_kernels(python, SWEEPS[-1], Path(folder))
    _keep(DATA, [*(row for row in _kept(DATA) if row["engine"] != "vllm"), *steps])


def _keep(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _kept(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as text:
        return list(csv.DictReader(text))


if __name__ == "__main__":
    main()
