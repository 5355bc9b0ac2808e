"""How fast a sweep is: points per second, peak memory, cost per point, and where the time goes.

    python benchmarks/sweep.py            # a few minutes; --quick leaves the ten million points out

A point is one (batch, context, draft length) with every column of a sweep, the range of the
speedup included, on one core. Each figure is the best of several runs, in the processor time of one
process, so that a busy machine matters less; the limit is one NumPy copy of the same columns in the
same run. Memory is the peak of a process of its own.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one core; before NumPy is imported

from roofline.advice.configuration import Configuration
from roofline.advice.question import Workload
from roofline.cli.printing import typed
from roofline.questions.sweep.encoding import SweepFormat, check_format
from roofline.questions.sweep.frames import Frame
from roofline.questions.sweep.plan import SweepPlan
from roofline.questions.sweep.pricing import Remarks, price_rectangle
from roofline.questions.sweep.run import Renderers, local_workers, to_file
from roofline.render.data import source_data
from roofline.render.notices import warned

QUESTIONS: dict[str, dict[str, Any]] = {
    "dense GQA: Llama-3.1-8B, EAGLE-3": {"model": "llama-3.1-8b"},
    "dense GQA, TP 4: Llama-3.1-70B, EAGLE-3": {
        "model": "llama-3.1-70b", "tp": 4, "drafter": "eagle3"
    },
    "MoE: Qwen3-30B-A3B, EAGLE-3": {"model": "qwen3-30b-a3b", "drafter": "eagle3"},
    "MoE, MLA: DeepSeek-V3, MTP": {"model": "deepseek-v3", "tp": 8, "drafter": "mtp"},
    "hybrid MoE: Qwen3-Next, MTP": {
        "model": "qwen3-next-80b-a3b-instruct", "tp": 4, "drafter": "mtp"
    },
}  # fmt: skip
#: Batches and contexts: many contexts, and few of them.
GRIDS = {"128 x 96": (128, 96), "512 x 16": (512, 16)}
#: And grids of which most fits in memory, up to 5k tokens.
SIZES = {"1e4": (16, 70), "1e5": (64, 174), "1e6": (128, 868), "1e7": (256, 4341)}


RENDERERS = Renderers(spell=typed, say=warned, source=source_data)


def _asked(**given: Any) -> tuple[Configuration, Workload]:
    """Return what a sweep names and asks."""
    acceptance = given.pop("acceptance", None)
    return Configuration(**({"model": ""} | given)), Workload(acceptance=acceptance)


def plan(question: dict[str, Any], batches: int, contexts: int, span: int = 24 * 1024) -> SweepPlan:
    """Return the grid of one question: nine draft lengths for each batch and context."""
    asked = {"gpu": "h200-sxm", "acceptance": "0.7", **question}
    apart = max(span // contexts, 1)  # from 512 tokens on
    return SweepPlan(
        axes={name: (value,) for name, value in asked.items()},
        cases=({},),
        batches=tuple(range(1, batches + 1)),
        contexts=tuple(range(512, 512 + contexts * apart, apart)),
        ask=_asked,
        order=tuple(asked),
    )


def frames(grid: SweepPlan) -> Iterator[Frame]:
    """Price every part of a grid, and let go of it."""
    for task in grid.tasks():
        for rectangle in task.rectangles:
            yield from price_rectangle(rectangle, Remarks())


def cost(run: Callable[[], int], repeats: int) -> float:
    """Return the processor seconds per point of the quickest of several runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        points = run()
        best = min(best, (time.process_time() - start) / points)
    return best


def pricing(grid: SweepPlan) -> Callable[[], int]:
    """Return what prices a grid and counts its rows."""
    return lambda: sum(frame.rows for frame in frames(grid))


def copying(grid: SweepPlan) -> Callable[[], int]:
    """Return what copies the same columns once, part by part."""
    held = [frame for frame, _ in zip(frames(grid), range(4), strict=False)]

    def run() -> int:
        for frame in held:
            for column in frame.columns.values():
                column.copy()
        return sum(frame.rows for frame in held)

    return run


def speeds(repeats: int) -> None:
    """Print the cost per point, writing off, beside one copy of the columns."""
    print_line("question", "batches x contexts", "us/point", "points/s", "x one copy")
    for name, question in QUESTIONS.items():
        for size, shape in GRIDS.items():
            grid = plan(question, *shape)
            pricing(grid)()
            mine, copy = cost(pricing(grid), repeats), cost(copying(grid), 4 * repeats)
            print_line(name, size, f"{1e6 * mine:.2f}", f"{1 / mine:,.0f}", f"{mine / copy:.0f}")


def sizes(repeats: int, most: str) -> None:
    """Print the cost per point from ten thousand to ten million points."""
    print_line("points", "us/point", "points/s")
    for name, shape in SIZES.items():
        grid = plan(QUESTIONS["dense GQA: Llama-3.1-8B, EAGLE-3"], *shape, span=4096)
        again = {"1e4": 10 * repeats, "1e5": 3 * repeats, "1e6": repeats}.get(name, 1)
        mine = cost(pricing(grid), again)
        print_line(f"{grid.points:,}", f"{1e6 * mine:.2f}", f"{1 / mine:,.0f}")
        if name == most:
            return


#: Acceptance as it is typed, beside whose sweeps that of the prior is timed.
TYPED = {
    "one rate": "0.7",
    "a typed curve": "survival:0.78,0.60,0.46,0.35,0.27,0.21,0.16,0.12",
}
#: A sweep with the prior may cost so many times as much as one of a typed acceptance.
PRIOR_BAR = 1.3


def with_prior(repeats: int, size: str) -> bool:
    """Print what the prior costs beside typed acceptance, in turns; return whether it is cheap."""
    shape = SIZES[size]
    question = QUESTIONS["dense GQA: Llama-3.1-8B, EAGLE-3"]
    runs = {
        name: pricing(plan({**question, "acceptance": given}, *shape, span=4096))
        for name, given in {"the prior": None, **TYPED}.items()
    }
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(1 + repeats):
        for name, run in runs.items():
            best[name] = min(best[name], cost(run, 1))
    print_line("acceptance", "points", "us/point", "prior over it", "at most")
    ratios = {name: best["the prior"] / best[name] for name in TYPED}
    points = f"{runs['the prior']():,}"
    print_line("the prior", points, f"{1e6 * best['the prior']:.2f}", "", "")
    for name, ratio in ratios.items():
        print_line(name, points, f"{1e6 * best[name]:.2f}", f"{ratio:.2f}", f"{PRIOR_BAR}")
    return max(ratios.values()) <= PRIOR_BAR


def write(form: str, shape: tuple[int, int]) -> None:
    """Write a grid to a file in this process; print points, seconds, bytes and peak memory."""
    check_format(SweepFormat(form))
    grid = plan(QUESTIONS["dense GQA: Llama-3.1-8B, EAGLE-3"], *shape, span=4096)
    with tempfile.TemporaryDirectory() as folder, local_workers(1) as workers:
        output = Path(folder) / f"x.{form}"
        start = time.process_time()
        to_file(
            grid,
            SweepFormat(form),
            workers,
            output,
            renderers=RENDERERS,
            version="",
            command=[],
        )
        spent = time.process_time() - start
        size = output.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print_line(
        form, f"{grid.points:,}", f"{1e6 * spent / grid.points:.2f}",
        f"{grid.points / spent:,.0f}", f"{size / grid.points:.0f}", f"{peak / 1e6:.0f}",
    )  # fmt: skip


def writing(most: str) -> None:
    """Print what writing costs, each format in a process of its own."""
    print_line("format", "points", "us/point", "points/s", "bytes/point", "peak MB")
    for form in SweepFormat:
        largest = most if form is SweepFormat.PARQUET else "1e6"
        for size in dict.fromkeys(("1e5", largest)):
            arguments = [sys.executable, __file__, "--write", form.value, "--size", size]
            subprocess.run(arguments, check=True)


def profile() -> None:
    """Print where the time of pricing goes, by function."""
    grid = plan(QUESTIONS["dense GQA: Llama-3.1-8B, EAGLE-3"], *GRIDS["128 x 96"])
    run = pricing(grid)
    run()
    found = cProfile.Profile()
    found.runcall(lambda: [run() for _ in range(5)])
    pstats.Stats(found, stream=sys.stdout).sort_stats("tottime").print_stats(14)


def print_line(*cells: str) -> None:
    """Print one row of a Markdown table."""
    sys.stdout.write("| " + " | ".join(cells) + " |\n")
    sys.stdout.flush()


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to a million points")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--size", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write, SIZES[options.size])
        return
    most = "1e6" if options.quick else "1e7"
    speeds(options.repeats)
    sizes(options.repeats, most)
    cheap = with_prior(options.repeats, "1e6")
    writing(most)
    profile()
    if not cheap:
        raise SystemExit(f"a sweep with the prior costs more than {PRIOR_BAR} x a typed one")


if __name__ == "__main__":
    main()
