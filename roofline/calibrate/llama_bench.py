"""A processor's laws from passes of llama.cpp itself: ``llama-bench -p 1,2,3,... -n 0 -o json``.

A pass over so many rows is priced by one factor beside the roofline of its products, one at each
number of rows that was timed. Attention and what lies between the products keep their stated laws.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.base.files import printable, read_at_most
from roofline.calibrate.fit.core import rounded
from roofline.calibrate.fit.fitted_law import FittedLaw, RowSource, fitted_law
from roofline.calibrate.fit.machine import MachineFit, MeasuredFigures, Steadiness
from roofline.calibrate.measure.backend import Status
from roofline.calibrate.measure.cases import pass_kernels
from roofline.calibrate.measure.noise import WIDE, BelievableRows
from roofline.calibrate.measure.numpy_backend import cpu_facts
from roofline.calibrate.measure.rows import Row
from roofline.importers.references import open_model
from roofline.kernels.ops import Kind, Op
from roofline.specs.engine import load_engine
from roofline.specs.formats import DType, rate_name
from roofline.specs.laws import SimpleLaw
from roofline.specs.network import ModelSpec, MoeMlp
from roofline.specs.priors import priors
from roofline.timing.laws.simple import Device, simple_time

__all__ = ["Passes", "fit_passes", "is_llama_bench", "read_llama_bench"]

Array = NDArray[np.float64]
MAX_BYTES = 20_000_000
ENGINE = "llamacpp"
TEXTS = ("model_filename", "cpu_info", "backends", "test_time")
LONGEST = 1000  # characters of a text
#: Whole numbers that are read, each with the least and the most that it may be.
NUMBERS: Mapping[str, tuple[int, int]] = {
    "build_number": (0, 10**9),
    "n_threads": (1, 10**4),
    "n_prompt": (0, 10**6),
    "n_gen": (0, 10**6),
    "n_depth": (0, 10**8),
    "avg_ns": (1, 10**15),
    "stddev_ns": (0, 10**15),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """Passes of one file's model over rising rows, after so many tokens. Times in s."""

    model: ModelSpec
    depth: int
    rows: tuple[int, ...]
    seconds: tuple[float, ...]

    def kernels(self, rows: int) -> list[Op]:
        """Return the kernels of a pass."""
        return pass_kernels(self.model, batch=1, rows=rows, context=self.depth + rows)

    def products(self, rows: int) -> list[Op]:
        """Return its products."""
        return [op for op in self.kernels(rows) if op.kind is Kind.GEMM]

    def work(self, rows: int) -> tuple[float, float]:
        """Return the arithmetic [FLOP] and the bytes of its products."""
        ops = self.products(rows)
        flops = sum(op.count * float(op.flops) for op in ops)
        return flops, sum(op.count * float(op.bytes) for op in ops)


def is_llama_bench(path: Path) -> bool:
    """Return whether a file is named as llama-bench's JSON is."""
    return path.suffix.lower() == ".json"


def read_llama_bench(path: Path) -> tuple[dict[str, Any], list[Passes]]:
    """Return the facts of the machine, and the passes of each file that was timed."""
    rows = _rows(path)
    by_file: dict[tuple[str, int], dict[int, float]] = {}
    for row in rows:
        curve = by_file.setdefault((row["model_filename"], row["n_depth"]), {})
        curve[row["n_prompt"]] = row["avg_ns"] / 1e9
    passes = [
        Passes(
            model=_model(path, file),
            depth=depth,
            rows=tuple(sorted(curve)),
            seconds=tuple(curve[count] for count in sorted(curve)),
        )
        for (file, depth), curve in by_file.items()
    ]
    first = rows[0]
    facts = cpu_facts() | {
        "kind": "cpu",
        "device": printable(first["cpu_info"]),
        "library": f"llamacpp b{first['build_number']}",
        "threads": first["n_threads"],
        "date": printable(first["test_time"][:10]),
        "noisy": sum(row["stddev_ns"] > WIDE * row["avg_ns"] for row in rows),
    }
    return facts, passes


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the checked rows of passes; those that generate are left out."""
    expected = "expected what 'llama-bench -n 0 -o json' prints"
    try:
        found = json.loads(read_at_most(path, MAX_BYTES, "llama-bench's JSON"))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is no JSON; {expected}") from None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise InputError(f"{path}: {expected}, a list of objects")
    for number, row in enumerate(found, start=1):
        for name in TEXTS:
            value = row.get(name)
            if not isinstance(value, str) or len(value) > LONGEST:
                raise InputError(f"{path}: row {number}: {name}: expected a text, as b11434 prints")
        for name, (least, most) in NUMBERS.items():
            value = row.get(name)
            if type(value) is not int or not least <= value <= most:
                raise InputError(
                    f"{path}: row {number}: {name}: expected a whole number from {least} to {most}"
                )
    rows = [row for row in found if row["n_gen"] == 0 and row["n_prompt"] > 0]
    for row in rows:
        if row["backends"] != "CPU":
            raise InputError(
                f"{path}: ran on {row['backends'][:40]!r}; only passes on a processor are fitted"
            )
    if len({(row["n_threads"], row["build_number"], row["cpu_info"]) for row in rows}) != 1:
        raise InputError(
            f"{path}: expected passes (-p 1,2,3,4 -n 0) of one build on one number of threads"
        )
    return rows


def _model(path: Path, file: str) -> ModelSpec:
    if "\0" in file or not Path(file).is_file():
        raise InputError(
            f"{path}: model_filename: {file[:200]!r} is not here; run this where llama-bench ran, "
            "from the same folder"
        )
    model, _ = open_model(file)
    if any(isinstance(run.mlp, MoeMlp) for run in model.layers):
        raise InputError(f"{path}: {file}: has routed experts; give a dense model's passes")
    cache = load_engine(ENGINE).default_kv
    return model.model_copy(update={"dtype": DType.FP32, "kv_dtype": cache})


def fit_passes(passes: Sequence[Passes], facts: Mapping[str, Any], *, cite: str) -> MachineFit:
    """Return a law for each format: of the passes over most rows, by which others are judged.

    The machine's bandwidth and peak are the best that products of any pass reached. A file that is
    not twice the cache is left out: timed alone it stays there, between a target's passes not.
    """
    passes = [each for each in passes if each.work(1)[1] > 2 * facts["cache"]]
    if not passes:
        raise InputError(
            f"llama-bench's files stay in the cache ({facts['cache'] / 2**20:.0f} MiB); "
            "time one that is more than twice as large"
        )
    whole = _reached(passes, [np.asarray(each.seconds) for each in passes])
    bodies = [_products_alone(each, whole) for each in passes]
    device = _reached(passes, bodies)
    library = str(facts["library"])
    source = RowSource(
        cite=cite, date=str(facts["date"]), library=ENGINE, version=library.partition(" ")[2]
    )
    laws = tuple(_laws(passes, bodies, device, source))
    rows = tuple(row for law in laws for row in law.rows)
    noisy = int(facts["noisy"])
    return MachineFit(
        figures=MeasuredFigures(
            bandwidth=device.bandwidth, peaks={rate_name(DType.FP32): device.peak}, launch={}
        ),
        laws=laws,
        read_modes={},
        chosen_attention=None,
        believable=BelievableRows(rows=rows, left_out={}, repeated=0, disagreement=0.0),
        steadiness=Steadiness(
            rows=len(rows), lost=noisy, repeated=0, disagreement=0.0, waited=0.0, noisy=noisy > 0
        ),
        cliffs=(),
    )


def _reached(passes: Sequence[Passes], seconds: Sequence[Array]) -> Device:
    """Return the best bandwidth and peak that the products of any pass reach."""
    work = [np.array([each.work(rows) for rows in each.rows]) for each in passes]
    peak, bandwidth = (
        max(float((own[:, at] / took).max()) for own, took in zip(work, seconds, strict=True))
        for at in (0, 1)
    )
    return Device(bandwidth=bandwidth, peak=peak, units=0, l2=0.0, link=bandwidth)


def _products_alone(passes: Passes, device: Device) -> Array:
    """Return the passes without what other kernels take by their stated laws [s]."""
    stated = priors().generic

    def others(rows: int) -> float:
        kernels = [op for op in passes.kernels(rows) if op.kind is not Kind.GEMM]
        laws = [stated[op.kind.value].law() for op in kernels]  # type: ignore[index]
        each = zip(kernels, laws, strict=True)
        return sum(op.count * _seconds(op, device, law) for op, law in each)

    return np.asarray(passes.seconds) - [others(rows) for rows in passes.rows]


def _seconds(op: Op, device: Device, law: SimpleLaw, rows: float | None = None) -> float:
    """Return the time of one launch by a law [s]."""
    time = simple_time(
        flops=op.flops,
        bytes=op.bytes,
        reduction=0,
        peak=device.peak,
        bandwidth=device.bandwidth,
        law=law,
        rows=rows,
    )
    return float(time.total)


def _laws(
    passes: Sequence[Passes], bodies: Sequence[Array], device: Device, source: RowSource
) -> Iterator[FittedLaw]:
    formats: dict[str, list[int]] = {}
    for at, each in enumerate(passes):
        for storage in dict.fromkeys(str(op.storage) for op in each.products(1)):
            formats.setdefault(storage, []).append(at)
    for storage, places in formats.items():
        # the longest curve, and of equal ones the largest model's
        best = max(places, key=lambda at: (len(passes[at].rows), passes[at].work(1)[1]))
        law = _law(passes[best], bodies[best], device)
        rows, predicted, held = list[Row](), list[float](), list[bool]()
        for at in places:
            each = passes[at]
            for count, seconds in zip(each.rows, bodies[at], strict=True):
                flops, moved = each.work(count)
                rows.append(
                    Row(
                        round=1,
                        kind="gemm",
                        op="products",
                        dtype=storage,
                        kernel="llama-bench",
                        shape=f"m={count}",
                        flops=flops,
                        bytes=moved,
                        rows=float(count),
                        seconds=float(seconds),
                        status=Status.OK,
                    )
                )
                between = each.rows[0] < count < each.rows[-1]
                alone = _without(law, count) if at == best and between else law
                predicted.append(_body(each, count, device, alone))
                held.append(at != best or between)
        yield fitted_law(
            "simple",
            {"covers": "gemm", "dtype": storage, "kernel": "llama-bench", "law": _numbers(law)},
            rows,
            predicted=np.array(predicted),
            held=np.array(held),
            device=device,
            source=source,
        )


def _law(passes: Passes, body: Array, device: Device) -> SimpleLaw:
    plain = SimpleLaw(floor=0.0, mem_eff=1.0)
    steps = tuple(
        (float(count), rounded(float(seconds) / _body(passes, count, device, plain)))
        for count, seconds in zip(passes.rows, body, strict=True)
    )
    return SimpleLaw(floor=0.0, mem_eff=1.0, steps=steps)


def _without(law: SimpleLaw, rows: int) -> SimpleLaw:
    """Return a law that has not seen a pass over so many rows, to be judged by it."""
    return replace(law, steps=tuple(step for step in law.steps if step[0] != rows))


def _numbers(law: SimpleLaw) -> dict[str, Any]:
    """Return a law's constants as files hold them, without those that do nothing."""
    numbers = asdict(law)
    del numbers["small"], numbers["small_factor"]
    return numbers | {"steps": [list(step) for step in law.steps]}


def _body(passes: Passes, rows: int, device: Device, law: SimpleLaw) -> float:
    """Return the time of a pass's products under a law [s]."""
    ops = passes.products(rows)
    return sum(op.count * _seconds(op, device, law, float(rows)) for op in ops)
