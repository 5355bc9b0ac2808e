"""``python -m workshop.served_priors``: fit a family's generic laws to served plain steps.

For parts without kernel tables. The rows are those of ``roofline/data/validation/plain.csv``: whole
steps without drafts, from public runs. A few constants of a family of generations are fitted to all
of them, each pulled toward what best-shape measurements say; then again without each group of rows
(one model on one stack), which is predicted by the rest. What is left between groups is the spread.
The constants are printed, to be copied to ``roofline/data/priors.yaml`` with their date.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.base.resources import data_file
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware
from roofline.specs.priors import GenerationPrior, priors

__all__ = ["CONSTANTS", "Constant", "Step", "fit", "main", "predict", "steps"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Constant(NamedTuple):
    """One fitted number: where it is pulled to, how softly (in log), and its bounds."""

    name: str
    prior: float
    softness: float
    low: float
    high: float


#: Of CDNA. Best products on MI300X, MI325X and MI355X reach 0.51 to 0.62 of the dense peak
#: (stas00/ml-engineering, MAMF tables), weights on the MI250X 0.63 (16 bits) and 0.43 (8 bits)
#: of the bandwidth (gpt-fast). Floors: times those of the generic laws; of products with block
#: scales, which run as Triton kernels there, once more.
CONSTANTS = (
    Constant("memory", 0.7, 0.15, 0.3, 1.0),
    Constant("memory in fp8", 0.6, 0.2, 0.3, 1.0),
    Constant("floors", 1.5, 0.5, 0.7, 6.0),
    Constant("arithmetic", 0.56, 0.15, 0.2, 0.8),
    Constant("arithmetic in fp8", 0.5, 0.2, 0.2, 0.8),
    Constant("floors with block scales", 2.0, 1.0, 1.0, 12.0),
    Constant("floors of links", 1.5, 0.5, 0.7, 10.0),
)
FAMILIES = {"cdna": ("cdna2", "cdna3", "cdna4")}
#: Standard deviation of the logarithm of a row's error that the fit reckons with.
NOISE = 0.15


class Step(NamedTuple):
    """A measured plain step, and what is priced for it."""

    id: str
    group: str
    deployment: Deployment
    batch: int
    context: int
    prompt_tokens: float  # that ride along in a step
    seconds: float

    def predicted(self) -> float:
        """Return what the laws say now [s]."""
        grid = self.deployment.grid(
            (self.batch,), (self.context,), (0,), prefill_tokens=self.prompt_tokens
        )
        return float(self.deployment.price(grid).times.total[0, 0, 0])


def steps(generations: Sequence[str] | None = None) -> list[Step]:
    """Return the shipped rows on parts of these generations, or all."""
    with data_file("validation").joinpath("plain.csv").open(encoding="utf-8") as lines:
        return list(_steps(csv.DictReader(lines), generations))


def _steps(
    rows: Iterator[dict[str, Any]] | csv.DictReader[str], generations: Sequence[str] | None
) -> Iterator[Step]:
    deployments: dict[tuple[str, ...], Deployment] = {}
    for row in rows:
        if generations is not None and load_hardware(row["gpu"]).generation not in generations:
            continue
        asked = tuple(row[name] for name in ("model", "gpu", "tp", "engine", "weights", "kv"))
        if asked not in deployments:
            deployments[asked], _ = deploy(
                Configuration(
                    model=row["model"],
                    gpu=row["gpu"],
                    tp=int(row["tp"]),
                    engine=row["engine"],
                    weights=DType(row["weights"]) if row["weights"] else None,
                    kv=DType(row["kv"]) if row["kv"] else None,
                    drafter="none",
                )
            )
        yield Step(
            id=row["id"],
            group=row["group"],
            deployment=deployments[asked],
            batch=int(row["batch"]),
            context=int(row["context"]),
            prompt_tokens=float(row["prompt_tokens"]),
            seconds=float(row["step_ms"]) / 1e3,
        )


def with_constants(prior: GenerationPrior, values: Array) -> GenerationPrior:
    """Return a generation with the constants of `CONSTANTS`, in their order."""
    memory, memory_fp8, floors, arithmetic, arithmetic_fp8, block, links = map(float, values)
    return prior.model_copy(
        update={
            "mem_eff": {"default": memory, "fp8": memory_fp8},
            "compute_eff": {"default": arithmetic, "fp8": arithmetic_fp8},
            "floors": floors,
            "format_floors": {"fp8-block": block},
            "link_floors": links,
        }
    )


def predict(rows: Sequence[Step], generations: Sequence[str], values: Array) -> Array:
    """Return every row's step with these constants [s]."""
    stated = priors().generations
    before = {name: stated[name] for name in generations}
    try:
        stated.update({name: with_constants(prior, values) for name, prior in before.items()})
        return np.array([row.predicted() for row in rows])
    finally:
        stated.update(before)


def fit(rows: Sequence[Step], generations: Sequence[str]) -> Array:
    """Return the constants: least squares on log error, each group with the weight of one row."""
    from scipy.optimize import least_squares

    groups = np.array([row.group for row in rows])
    weight = np.array([1 / np.sqrt(np.sum(groups == group)) for group in groups]) / NOISE
    measured = np.array([row.seconds for row in rows])
    _, pulled, soft, low, high = (np.array(column) for column in zip(*CONSTANTS, strict=True))
    centre = np.log(pulled.astype(float))

    def residual(x: Array) -> Array:
        error = np.log(predict(rows, generations, np.exp(x)) / measured)
        return np.concatenate([weight * error, (x - centre) / soft.astype(float)])

    bounds = np.log(low.astype(float)), np.log(high.astype(float))
    logs = least_squares(residual, centre, bounds=bounds, diff_step=1e-2).x
    return np.asarray(np.exp(logs))


def inside(row: Step, ratio: float) -> bool:
    """Return whether the range of a step, around predicted / measured = ``ratio``, holds it.

    The range is that of the shipped laws: from the 10th to the 90th percentile of the draws.
    """
    grid = row.deployment.grid((row.batch,), (row.context,), (0,), prefill_tokens=row.prompt_tokens)
    priced = row.deployment.price(grid)
    relative = priced.drawn.steps()[:, 0, 0, 0] / priced.times.total[0, 0, 0]
    low, high = np.quantile(relative, [0.1, 0.9])
    return bool(low <= 1 / ratio <= high)


def report(family: str) -> Iterator[str]:
    """Yield the constants of a family, and each group's ratio as fitted and as left out."""
    generations = FAMILIES[family]
    rows = steps(generations)
    values = fit(rows, generations)
    for constant, value in zip(CONSTANTS, values, strict=True):
        yield f"{constant.name}: {value:.3g}"
    measured = np.array([row.seconds for row in rows])
    groups = np.array([row.group for row in rows])
    fitted = predict(rows, generations, values) / measured
    unseen = np.empty(len(rows))
    for group in dict.fromkeys(groups.tolist()):
        here = groups == group
        rest = [row for row in rows if row.group != group]
        unseen[here] = predict(rows, generations, fit(rest, generations))[here] / measured[here]
        yield (
            f"{group}: {here.sum()} rows, predicted / measured {np.median(fitted[here]):.2f}"
            f" as fitted, {np.median(unseen[here]):.2f} left out"
        )
    medians = [np.log(np.median(unseen[groups == g])) for g in dict.fromkeys(groups.tolist())]
    yield f"between groups left out: bias {np.mean(medians):+.2f}, spread {np.std(medians):.2f}"
    held = [inside(row, ratio) for row, ratio in zip(rows, unseen, strict=True)]
    spread = np.std(np.log(unseen))
    yield f"of rows left out: spread {spread:.2f}, {100 * np.mean(held):.0f} % in range"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and print."""
    parser = argparse.ArgumentParser("python -m workshop.served_priors", description=__doc__)
    parser.add_argument("family", choices=sorted(FAMILIES), nargs="?", default="cdna")
    options = parser.parse_args(arguments)
    sys.stdout.writelines(f"{line}\n" for line in report(options.family))


if __name__ == "__main__":
    main()
