"""``python -m workshop.served_priors FAMILY``: fit a family's generic laws to measured plain steps.

For parts without kernel tables. The rows are those of ``roofline/data/validation/plain.csv``: whole
steps without drafts, from public runs. A few constants of a family of generations are fitted to all
of them, each pulled toward what best-shape measurements say; then again without each card (of a
family with one card, without each group: one model on one stack), which is predicted by the rest.
The spread is what makes the stated ranges hold four in five of the rows that were left out.
Constants are printed, to be copied to ``roofline/data/priors.yaml`` with their date. Without a
family, every row's step as predicted without its card is written to
``roofline/data/validation/plain_left_out.csv`` (some minutes), and the table that
docs/validation.md makes of it is printed.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.base.resources import bundled_names, data_file
from roofline.specs.formats import DType
from roofline.specs.gpu import GPU_SHELF, load_hardware
from roofline.specs.priors import GenerationPrior, priors

__all__ = [
    "FAMILIES",
    "HEADERS",
    "Constant",
    "Family",
    "LeftOut",
    "Step",
    "fit",
    "leave_out",
    "main",
    "predict",
    "scores",
    "steps",
    "units",
    "written",
]

Array = NDArray[np.float64]


class Constant(NamedTuple):
    """One fitted number: where it stands, what it is pulled to, how softly (in log), its bounds."""

    name: str
    where: tuple[str, ...]  # the field of a generation, and its key
    prior: float
    softness: float
    low: float
    high: float


class Family(NamedTuple):
    """Generations that share their constants."""

    generations: tuple[str, ...]
    constants: tuple[Constant, ...]


#: Of CDNA. Best products on MI300X, MI325X and MI355X reach 0.51 to 0.62 of the dense peak
#: (stas00/ml-engineering, MAMF tables), weights on the MI250X 0.63 (16 bits) and 0.43 (8 bits)
#: of the bandwidth (gpt-fast). Floors: times those of the generic laws; of products with block
#: scales, which run as Triton kernels there, once more.
SERVED = (
    Constant("memory", ("mem_eff", "default"), 0.7, 0.15, 0.3, 1.0),
    Constant("memory in fp8", ("mem_eff", "fp8"), 0.6, 0.2, 0.3, 1.0),
    Constant("floors", ("floors",), 1.5, 0.5, 0.7, 6.0),
    Constant("arithmetic", ("compute_eff", "default"), 0.56, 0.15, 0.2, 0.8),
    Constant("arithmetic in fp8", ("compute_eff", "fp8"), 0.5, 0.2, 0.2, 0.8),
    Constant("floors with block scales", ("format_floors", "fp8-block"), 2.0, 1.0, 1.0, 12.0),
    Constant("floors of links", ("link_floors",), 1.5, 0.5, 0.7, 10.0),
)
#: Of parts that llama.cpp runs on, one sequence at a time. Streams that are only read reach 0.83
#: (Ryzen AI Max+ 395, 212 of 256 GB/s) to 0.91 (RTX 4090) of the bandwidth. The rest begins as
#: generic laws.
LOCAL = (
    Constant("memory", ("mem_eff", "default"), 0.85, 0.15, 0.3, 1.05),
    Constant("memory of experts", ("mem_eff", "experts"), 0.75, 0.2, 0.3, 1.05),
    Constant("memory of caches", ("mem_eff", "cache"), 0.7, 0.3, 0.15, 1.05),
    Constant("floors", ("floors",), 1.0, 0.5, 0.5, 10.0),
    Constant("floors of experts", ("read_floors", "experts"), 1.0, 0.7, 0.3, 20.0),
    Constant("floors of states", ("read_floors", "state"), 3.0, 1.5, 0.3, 100.0),
)
#: Of Apple, whose integer rates are not published: as half of NVIDIA's lanes to begin with.
LANES = Constant("integer lanes", ("integer_lanes",), 0.5, 0.5, 0.05, 1.0)
FAMILIES = {
    "cdna": Family(("cdna2", "cdna3", "cdna4"), SERVED),
    "geforce": Family(("ampere-consumer", "ada", "blackwell-consumer"), LOCAL),
    "rdna": Family(("rdna",), LOCAL),
    "apple": Family(("apple",), (*LOCAL, LANES)),
}
#: Standard deviation of the logarithm of a row's error that the fit reckons with.
NOISE = 0.15
#: Share of rows that a stated range is to hold.
HELD = 0.8


class Step(NamedTuple):
    """A measured plain step, and what is priced for it."""

    id: str
    group: str
    deployment: Deployment
    batch: int
    context: int
    prompt_tokens: float  # that ride along in a step
    seconds: float

    @property
    def gpu(self) -> str:
        """Return the card's id."""
        return self.deployment.gpu.id

    def predicted(self) -> float:
        """Return what the laws say now [s]."""
        return float(self._priced().times.total[0, 0, 0])

    def log_range(self) -> tuple[float, float]:
        """Return the 10th and 90th percentile of the draws over the predicted step, as logs."""
        priced = self._priced()
        relative = priced.drawn.steps()[:, 0, 0, 0] / priced.times.total[0, 0, 0]
        low, high = np.log(np.quantile(relative, [0.1, 0.9]))
        return float(low), float(high)

    def _priced(self) -> Any:
        grid = self.deployment.grid(
            (self.batch,), (self.context,), (0,), prefill_tokens=self.prompt_tokens
        )
        return self.deployment.price(grid)


def part_named(name: str) -> str:
    """Return what loads a part: its name, or the file of one that only validation rows use."""
    if name in bundled_names(GPU_SHELF):
        return name
    return str(data_file("validation").joinpath("gpus", f"{name}.yaml"))


def steps(generations: Sequence[str] | None = None) -> list[Step]:
    """Return the shipped rows on parts of these generations, or all."""
    with data_file("validation").joinpath("plain.csv").open(encoding="utf-8") as lines:
        return [
            _step(row)
            for row in csv.DictReader(lines)
            if generations is None or _generation(row["gpu"]) in generations
        ]


@cache
def _generation(gpu: str) -> str:
    return load_hardware(part_named(gpu)).generation


def _step(row: Mapping[str, str]) -> Step:
    return Step(
        id=row["id"],
        group=row["group"],
        deployment=_deployed(
            Configuration(
                model=row["model"],
                gpu=part_named(row["gpu"]),
                tp=int(row["tp"]),
                engine=row["engine"],
                weights=DType(row["weights"]) if row["weights"] else None,
                kv=DType(row["kv"]) if row["kv"] else None,
                drafter="none",
            )
        ),
        batch=int(row["batch"]),
        context=int(row["context"]),
        prompt_tokens=float(row["prompt_tokens"]),
        seconds=float(row["step_ms"]) / 1e3,
    )


@cache
def _deployed(asked: Configuration) -> Deployment:
    return deploy(asked)[0]


def with_constants(
    prior: GenerationPrior, constants: Sequence[Constant], values: Array
) -> GenerationPrior:
    """Return a generation with these constants."""
    changed: dict[str, Any] = {}
    for constant, value in zip(constants, values.tolist(), strict=True):
        field, *key = constant.where
        if key:
            before = changed.get(field, getattr(prior, field))
            changed[field] = {**before, key[0]: value}
        else:
            changed[field] = value
    return prior.model_copy(update=changed)


@contextmanager
def stated(family: Family, change: Any) -> Iterator[None]:
    """State other constants for the generations of a family."""
    known = priors().generations
    before = {name: known[name] for name in family.generations}
    try:
        known.update({name: change(prior) for name, prior in before.items()})
        yield
    finally:
        known.update(before)


def predict(rows: Sequence[Step], family: Family, values: Array) -> Array:
    """Return every row's step with these constants [s]."""
    with stated(family, lambda prior: with_constants(prior, family.constants, values)):
        return np.array([row.predicted() for row in rows])


def units(rows: Sequence[Step]) -> NDArray[np.str_]:
    """Return what each row is left out with: its card, or its group where all have one card."""
    cards = {row.gpu for row in rows}
    return np.array([row.gpu if len(cards) > 1 else row.group for row in rows])


class Fitted(NamedTuple):
    """Where a fit ended: the logs of the constants, and what a step from there needs."""

    logs: Array
    bounds: tuple[Array, Array]
    residuals: Array  # of every row, weighted, and then the pull of every constant
    jacobian: Array

    @property
    def values(self) -> Array:
        """Return the constants."""
        return np.asarray(np.exp(self.logs))

    def without(self, rows: NDArray[np.bool_]) -> Array:
        """Return the constants of a fit without these rows: one Gauss-Newton step from this one."""
        kept = np.concatenate([~rows, np.ones(len(self.logs), dtype=bool)])
        step = np.linalg.lstsq(self.jacobian[kept], -self.residuals[kept], rcond=None)[0]
        return np.asarray(np.exp(np.clip(self.logs + step, *self.bounds)))


def fit(rows: Sequence[Step], family: Family) -> Fitted:
    """Fit the constants: least squares on log error, each card (or group) as heavy as one row."""
    from scipy.optimize import least_squares

    unit = units(rows)
    weight = np.array([1 / np.sqrt(np.sum(unit == u)) for u in unit]) / NOISE
    measured = np.array([row.seconds for row in rows])
    pulled, soft, low, high = (
        np.array([getattr(constant, name) for constant in family.constants])
        for name in ("prior", "softness", "low", "high")
    )

    def residual(x: Array) -> Array:
        error = np.log(predict(rows, family, np.exp(x)) / measured)
        return np.concatenate([weight * error, (x - np.log(pulled)) / soft])

    bounds = np.log(low), np.log(high)
    found = least_squares(
        residual, np.log(pulled), bounds=bounds, diff_step=1e-2, xtol=1e-4, ftol=1e-4
    )
    return Fitted(found.x, bounds, found.fun, found.jac)


class LeftOut(NamedTuple):
    """Rows of a family, each predicted by a fit without its card (or group)."""

    rows: Sequence[Step]
    unit: NDArray[np.str_]
    log_errors: Array  # of predicted / measured
    low: Array  # of the stated range, as a log over the predicted step
    high: Array

    @property
    def held(self) -> float:
        """Return the share of rows inside the stated range."""
        return float(np.mean((self.low <= -self.log_errors) & (-self.log_errors <= self.high)))

    @property
    def by_unit(self) -> dict[str, float]:
        """Return each card's median of predicted / measured."""
        return {
            name: float(np.exp(np.median(self.log_errors[self.unit == name])))
            for name in dict.fromkeys(self.unit.tolist())
        }


def leave_out(name: str) -> LeftOut:
    """Predict every card (or group) of a family by the others; ranges are the shipped ones."""
    family = FAMILIES[name]
    rows = steps(family.generations)
    unit, whole = units(rows), fit(rows, family)
    errors = np.empty(len(rows))
    for each in dict.fromkeys(unit.tolist()):
        here = unit == each
        gone = [row for row, out in zip(rows, here, strict=True) if out]
        measured = np.array([row.seconds for row in gone])
        errors[here] = np.log(predict(gone, family, whole.without(here)) / measured)
    return _left_out(rows, errors)


def _left_out(rows: Sequence[Step], errors: Array) -> LeftOut:
    ranges = np.array([row.log_range() for row in rows])
    return LeftOut(rows, units(rows), errors, ranges[:, 0], ranges[:, 1])


WRITTEN = data_file("validation").joinpath("plain_left_out.csv")


def written(name: str) -> LeftOut:
    """Return what was written of a family: every row predicted without its card."""
    with WRITTEN.open(encoding="utf-8") as lines:
        predicted = {row["id"]: float(row["predicted_ms"]) / 1e3 for row in csv.DictReader(lines)}
    rows = steps(FAMILIES[name].generations)
    return _left_out(rows, np.log([predicted[row.id] / row.seconds for row in rows]))


def write() -> None:
    """Write every row's step as the fit without its card predicts it."""
    lines = ["id,predicted_ms"]
    for name in FAMILIES:
        out = leave_out(name)
        lines += [
            f"{row.id},{1e3 * row.seconds * np.exp(error):.4g}"
            for row, error in zip(out.rows, out.log_errors, strict=True)
        ]
    Path(str(WRITTEN)).write_text("\n".join(lines) + "\n", encoding="utf-8")


def fitted_spread(name: str, out: LeftOut) -> float:
    """Return the spread with which ranges hold four in five rows, each predicted without it."""
    family = FAMILIES[name]
    low, high = 0.02, 1.5
    for _ in range(8):
        spread = float(np.sqrt(low * high))
        with stated(family, lambda prior, s=spread: prior.model_copy(update={"spread": s})):
            ranges = np.array([row.log_range() for row in out.rows])
        held = out._replace(low=ranges[:, 0], high=ranges[:, 1]).held
        low, high = (low, spread) if held >= HELD else (spread, high)
    return high


def report(name: str) -> Iterator[str]:
    """Yield the constants of a family, and each card's ratio as fitted and as left out."""
    family = FAMILIES[name]
    rows = steps(family.generations)
    values = fit(rows, family).values
    for constant, value in zip(family.constants, values, strict=True):
        yield f"{constant.name} ({'.'.join(constant.where)}): {value:.3g}"
    out = leave_out(name)
    measured = np.array([row.seconds for row in rows])
    fitted = predict(rows, family, values) / measured
    for each, median in out.by_unit.items():
        here = out.unit == each
        yield (
            f"{each}: {here.sum()} rows, predicted / measured {np.median(fitted[here]):.2f}"
            f" as fitted, {median:.2f} left out"
        )
    medians = np.log(list(out.by_unit.values()))
    yield f"between cards left out: bias {np.mean(medians):+.2f}, spread {np.std(medians):.2f}"
    yield f"of rows left out: spread {np.std(out.log_errors):.2f}, {100 * out.held:.0f} % in range"
    yield f"spread that holds four in five: {fitted_spread(name, out):.3g}"


HEADERS = ("family", "cards", "rows", "median %", "bias %", "bias of cards %", "inside %")


def scores() -> Iterator[Sequence[str]]:
    """Yield the scores of every family, rows predicted without their card, as they were written."""
    for name in FAMILIES:
        out = written(name)
        errors = np.expm1(out.log_errors)
        yield (
            name,
            str(len({row.gpu for row in out.rows})),
            str(len(out.rows)),
            f"{100 * np.median(np.abs(errors)):.1f}",
            f"{100 * np.median(errors):+.1f}",
            f"{100 * np.expm1(np.mean(np.log(list(out.by_unit.values())))):+.1f}",
            f"{100 * out.held:.0f}",
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and print."""
    parser = argparse.ArgumentParser("python -m workshop.served_priors", description=__doc__)
    parser.add_argument("family", choices=sorted(FAMILIES), nargs="?")
    options = parser.parse_args(arguments)
    if options.family:
        sys.stdout.writelines(f"{line}\n" for line in report(options.family))
    else:
        write()
        sys.stdout.writelines(f"{' | '.join(line)}\n" for line in (HEADERS, *scores()))


if __name__ == "__main__":
    main()
