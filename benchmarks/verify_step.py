"""Real steps of a random-weight decoder against what a fitted profile predicts for them.

    roofline calibrate measure --device cpu --budget 60s -o run.csv
    roofline calibrate fit run.csv -o my-cpu.yaml
    python benchmarks/verify_step.py my-cpu.yaml

Steps for D = 0 to 7 at a few batches and contexts, on the library that calibrated; every draft
length of a point is timed in turn, several times over, so a disturbance meets all of them.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DRAFTS = tuple(range(8))
STEP_GOAL, RATIO_GOAL = 0.15, 0.10


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One step [s]."""

    batch: int
    context: int
    draft: int
    measured: float
    predicted: float
    spread: float
    ratio: float  # measured R(D)
    predicted_ratio: float


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("profile", help="what 'roofline calibrate fit' wrote")
    parser.add_argument("--model", default="qwen3-0.6b")
    parser.add_argument("--layers", type=int, default=4, help="decoder layers to run (0: all)")
    parser.add_argument("--batch", default="1,4,8")
    parser.add_argument("--context", default="1024,2048")
    parser.add_argument("--repeats", type=int, default=3, help="rounds over the draft lengths")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--library", choices=["numpy", "torch"])
    return parser.parse_args()


def fixed_threads(source: str) -> int:
    """Return the threads that the profile was measured with."""
    found = re.search(r", (\d+) threads", source)
    return int(found[1]) if found else 1


def shallow(model: Any, layers: int) -> Any:
    """Return the model with ``layers`` of its first run of layers."""
    if layers <= 0:
        return model
    run = model.layers[0].model_copy(update={"repeat": layers})
    return model.model_copy(update={"layers": (run,)})


def predictions(profile: Any, model: Any, batch: int, context: int) -> list[float]:
    """Return the seconds of the kernels of one pass for each draft length [s]."""
    import numpy as np

    from roofline.kernels.forward import decode
    from roofline.specs.formats import resolve_precision
    from roofline.specs.placement import Placement, VerifyAttention
    from roofline.timing.machine import Machine, by_part, time_ops

    found = profile.verify_attention
    placement = Placement(
        verify_attention=found.mode if found else VerifyAttention.KV_ONCE,
        tile_rows=found.tile_rows if found else 128,
    )
    precision, _ = resolve_precision(
        stored=model.stored(), base=model.dtype, kv_stored=None, available=[model.dtype],
        gpu=profile.id,
    )  # fmt: skip
    rows = 1.0 + np.array(DRAFTS)
    kernels = decode(model, precision, placement, batch=batch, context=context, rows=rows)
    total = sum(by_part(time_ops(kernels, Machine(profile, "measured"))).values())
    return [float(value) for value in np.broadcast_to(np.asarray(total), rows.shape)]


def measurements(decoder: Any, batch: int, context: int, repeats: int) -> list[list[float]]:
    """Return the seconds of several steps for each draft length, taken in turn [s]."""
    from workshop.decoder import StepShape

    shapes = [StepShape(batch=batch, rows=1 + draft, context=context) for draft in DRAFTS]
    caches = decoder.caches(shapes[0])
    samples: list[list[float]] = [[] for _ in DRAFTS]
    for turn in range(repeats):
        order = DRAFTS if turn % 2 == 0 else DRAFTS[::-1]
        for draft in order:
            shape = shapes[draft]
            ids = decoder.backend.ids(batch * shape.rows, decoder.model.vocab_size)
            angles = decoder.angles(shape)
            found, _, _ = decoder.backend.time(
                lambda _, s=shape, i=ids, a=angles: decoder.step(s, caches, i, a),
                repeats=3, seconds=30.0,
            )  # fmt: skip
            samples[draft] += found
    return samples


def lines(options: argparse.Namespace, profile: Any, decoder: Any) -> Iterator[Line]:
    """Yield one line for each batch, context and draft length."""
    from roofline.calibrate.measure.noise import summarise

    for batch in map(int, options.batch.split(",")):
        for context in map(int, options.context.split(",")):
            predicted = predictions(profile, decoder.model, batch, context)
            samples = measurements(decoder, batch, context, options.repeats)
            summary = [summarise(values) for values in samples]
            for draft, (guess, found) in enumerate(zip(predicted, summary, strict=True)):
                yield Line(
                    batch=batch, context=context, draft=draft, measured=found.median,
                    predicted=guess, spread=found.spread,
                    ratio=found.median / summary[0].median,
                    predicted_ratio=guess / predicted[0],
                )  # fmt: skip


def report(found: list[Line]) -> str:
    """Return the table and the medians under it."""
    text = [
        " batch context  D  step ms  predicted  error  spread     R(D)  predicted  error",
    ]
    text += [
        (
            f"{x.batch:6d} {x.context:7d} {x.draft:2d} {1e3 * x.measured:8.2f} "
            f"{1e3 * x.predicted:10.2f} {x.predicted / x.measured - 1:+6.1%} {x.spread:7.1%} "
            f"{x.ratio:8.3f} {x.predicted_ratio:10.3f} {x.predicted_ratio / x.ratio - 1:+6.1%}"
        )
        for x in found
    ]
    step = statistics.median(abs(x.predicted / x.measured - 1) for x in found)
    ratio = statistics.median(abs(x.predicted_ratio / x.ratio - 1) for x in found if x.draft)
    noise = statistics.median(x.spread for x in found)
    text += [
        "",
        (
            f"step time: median error {step:.1%} (goal {STEP_GOAL:.0%}); "
            f"R(D), D > 0: median error {ratio:.1%} (goal {RATIO_GOAL:.0%}); "
            f"median spread of the repeats {noise:.1%}"
        ),
        "within both goals" if step <= STEP_GOAL and ratio <= RATIO_GOAL else "OUTSIDE the goals",
    ]
    return "\n".join(text) + "\n"


def kernel_of(profile: Any, kind: str) -> str:
    """Return the kernel that the profile's law of a kind was fitted on, nothing without one."""
    found = (b for b in profile.calibration if kind in (b.kind, getattr(b, "covers", "")))
    return next((str(block.kernel) for block in found), "")


def main() -> None:
    """Measure, predict, print; BLAS takes its threads from the environment, so start anew."""
    options = arguments()
    from roofline.specs.gpu import load_hardware

    profile = load_hardware(options.profile)
    if not profile.calibration:
        sys.exit(f"{options.profile}: holds no measured laws; run 'roofline calibrate fit' first")
    block = next(b for b in profile.calibration if b.kind in ("simple", "gemm"))
    threads = fixed_threads(block.evidence.source)
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    if os.environ.get(names[0]) != str(threads):
        sys.exit(
            subprocess.call(
                [sys.executable, *sys.argv], env=os.environ | dict.fromkeys(names, str(threads))
            )
        )
    from roofline.calibrate.measure.cases import in_format
    from roofline.calibrate.measure.device import open_backend
    from roofline.specs.network import load_model
    from workshop.decoder import build_decoder

    library = options.library or block.engine
    device = options.device or ("cpu" if profile.generation == "cpu" else "cuda")
    backend = open_backend(device, library, threads)
    base = backend.menu().base
    model = in_format(shallow(load_model(options.model), options.layers), base)
    kernel, experts = kernel_of(profile, "attention"), kernel_of(profile, "moe")
    if not kernel:
        sys.exit(f"{profile.id}: holds no attention law; measure with a larger --budget")
    if any(run.mlp.kind == "moe" for run in model.layers) and not experts:
        sys.exit(f"{profile.id}: holds no law of experts; measure with --model {options.model}")
    decoder = build_decoder(model, backend, dtype=base, kernel=kernel, expert_kernel=experts)
    sys.stdout.write(
        f"{model.id}, {model.num_layers} layers, {base}, {library}, {threads} threads, attention "
        f"{kernel}{f', experts {experts}' if experts else ''}; {backend.state()}\n"
    )
    sys.stdout.write(report(list(lines(options, profile, decoder))))
    sys.stdout.write(f"{backend.state()}\n")


if __name__ == "__main__":
    main()
