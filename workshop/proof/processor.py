"""``python -m workshop.proof.processor``: steps of a real llama-server on a CPU, and predictions.

A target of 0.4 G random weights and a drafter of one layer run on one thread at D = 0 to 7.
Measured R(D) is compared with passes of its own kernels (``llama-bench``), with the laws of the
same machine, which were calibrated with NumPy's kernels, and with what two timings make of these.
``--measure`` wants a quiet machine for a quarter of an hour.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import roofline
from roofline.timing.timed import GROWTH, after_timings, growth_covariance
from workshop.proof.llamacpp import BUILD, Case, Programs, launch, programs, server, stream

DATA = Path(__file__).with_name("processor.csv")
PASSES = Path(__file__).with_name("processor_passes.csv")
MACHINE = Path(roofline.__file__).parent / "data" / "measured" / "cpu-epyc-2-cores-numpy.yaml"
FORMATS = ("F32", "Q8_0", "Q4_0")
LENGTHS = range(8)
CONTEXT = 128
TOKENS = 40
ROUNDS = 2
#: What two timings are of: plain decoding, and one draft length.
TIMED = (0, 3)
#: Scatter of one timing, a share.
NOISE = 0.015
PARTS = ("verify", "draft", "overhead")
Array = NDArray[np.float64]


def measure(tools: Programs, stored: str, folder: Path) -> Iterator[dict[str, object]]:
    """Yield the step of each draft length [ms], the median of rounds through all of them."""
    writer = Path(__file__).with_name("random_gguf.py")
    subprocess.run([str(tools.python), str(writer), str(folder), stored], check=True)
    case = Case(about=stored, target="target", kind="model", drafter="drafter")
    found: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for _ in range(ROUNDS):
        for length in LENGTHS:
            flags = launch(case, folder).flags(length, running=1).split() if length else []
            command = ["--model", str(folder / "target.gguf"), "--parallel", "1", "--no-webui"]
            command += ["--ctx-size", "1024", "--threads", "1", *flags]
            with server(tools, command, folder / "server.log") as port:
                stream(port, 0, 8)
                _, last = stream(port, 1, TOKENS, prompt=CONTEXT)
            timings = last["timings"]
            passes = timings["predicted_n"] - 1 - timings.get("draft_n_accepted", 0)
            found[length].append(timings["predicted_ms"] / passes)
    for length, steps in found.items():
        middle = statistics.median(steps)
        yield {
            "build": f"b{BUILD}",
            "weights": stored,
            "context": CONTEXT,
            "draft_length": length,
            "step_ms": f"{middle:.3f}",
            "scatter": f"{(max(steps) - min(steps)) / middle:.3f}",
        }


def passes(tools: Programs, stored: str, folder: Path) -> Iterator[dict[str, object]]:
    """Yield what passes over so many rows take by ``llama-bench`` [ms]."""
    for model, rows in (("target", "1,2,3,4,5,6,7,8"), ("drafter", "1")):
        asked = ["-m", str(folder / f"{model}.gguf"), "-p", rows, "-n", "0", "-d", str(CONTEXT)]
        said = tools.run("llama-bench", *asked, "-t", "1", "-r", "4", "-o", "json")
        for found in json.loads(said):
            yield {
                "build": f"b{BUILD}",
                "weights": stored,
                "model": model,
                "rows": found["n_prompt"],
                "pass_ms": f"{found['avg_ns'] / 1e6:.3f}",
            }


def own_kernels(rows: Sequence[Mapping[str, str]]) -> Array:
    """Return the steps by passes of the engine itself: pass(1 + D) + D draft passes [ms]."""
    target = np.array([float(row["pass_ms"]) for row in rows if row["model"] == "target"])
    (draft,) = (float(row["pass_ms"]) for row in rows if row["model"] == "drafter")
    return np.asarray(target + draft * np.array(LENGTHS))


def predicted(folder: Path) -> Mapping[str, Array]:
    """Return the parts of each step [ms] by the kernels of the calibrated machine."""
    answer = roofline.recommend(
        str(folder / "target.gguf"),
        gpu=str(MACHINE),
        engine="llamacpp",
        drafter=str(folder / "drafter.gguf"),
        acceptance=0.5,
        batch=1,
        context=CONTEXT,
        max_draft_length=max(LENGTHS),
    ).to_frame()
    return {part: answer[f"{part}_ms"].to_numpy(float) for part in PARTS}


def ratios(step: Array) -> Array:
    """Return R(D) for D > 0."""
    return np.asarray(step[1:] / step[0])


def timed(parts: Mapping[str, Array], measured: Array) -> Array:
    """Return the steps after two of them were timed."""
    total = whole(parts)
    covariance = growth_covariance(
        draft_lengths=np.array(LENGTHS),
        verify=parts["verify"] / total,
        draft=parts["draft"] / total,
        overhead=parts["overhead"] / total,
        deviations=GROWTH.priors_only(),
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


def main() -> None:
    """Measure where it is asked for, and print each R(D) beside its predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="time a server anew")
    asked = parser.parse_args()
    tools = programs()
    if asked.measure:
        steps: list[dict[str, object]] = []
        timed_passes: list[dict[str, object]] = []
        for stored in FORMATS:
            with tempfile.TemporaryDirectory() as folder:
                steps += measure(tools, stored, Path(folder))
                timed_passes += passes(tools, stored, Path(folder))
        _keep(DATA, steps)
        _keep(PASSES, timed_passes)
    print_table(tools)


def _keep(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _kept(file: Path, stored: str) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as text:
        return [row for row in csv.DictReader(text) if row["weights"] == stored]


def print_table(tools: Programs) -> None:
    """Print measured and predicted R(D) of each format, and how far off each prediction is."""
    writer = Path(__file__).with_name("random_gguf.py")
    far: dict[str, list[float]] = {}
    say("| weights | D | measured | its own kernels | calibrated laws | and two timings |")
    say("|---|---|---|---|---|---|")
    for stored in FORMATS:
        measured = np.array([float(row["step_ms"]) for row in _kept(DATA, stored)])
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([str(tools.python), str(writer), folder, stored], check=True)
            parts = predicted(Path(folder))
        found = {
            "its own kernels": ratios(own_kernels(_kept(PASSES, stored))),
            "calibrated laws": ratios(whole(parts)),
            "and two timings": ratios(timed(parts, measured)),
        }
        own = ratios(measured)
        for length, line in enumerate(zip(own, *found.values(), strict=True), start=1):
            say(f"| {stored} | {length} | " + " | ".join(f"{value:.2f}" for value in line) + " |")
        for name, values in found.items():
            left = [at for at in LENGTHS if at and (name != "and two timings" or at not in TIMED)]
            far.setdefault(name, []).extend(abs(values[at - 1] / own[at - 1] - 1) for at in left)
    for name, shares in far.items():
        say(f"{name}: median {np.median(shares):.1%}, worst {max(shares):.1%} of {len(shares)}")


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
