"""What kernels explain of a published speculative run, and what the engine's numbers multiply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.advice.deployment import Deployment
from roofline.base.progress import tracked
from roofline.calibrate.engine.decode_rows import textbook_seconds
from roofline.calibrate.engine.spec_rows import (
    SpecRow,
    drafter_of,
    gpu_of,
    grid_of,
    target_of,
)
from roofline.kernels.forward import Op, decode
from roofline.specs.engine import Overhead, load_engine
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import VectorKernels
from roofline.specs.network import ModelSpec
from roofline.specs.placement import Grid, Routing
from roofline.specs.priors import priors
from roofline.timing.drafters import ONE_PASS_KINDS, Drafter, draft_passes, launches
from roofline.timing.step import Target

__all__ = [
    "FEATURES",
    "KINDS",
    "WIDTHS",
    "PricedRuns",
    "deployment_of",
    "engine_of",
    "overhead_features",
    "price_runs",
]

Array = NDArray[np.float64]
#: Kinds of drafter whose pass may have a cost of its own.
KINDS = ("eagle1", "eagle3", "mtp", "model", "stateful_model", "block")
#: Matrix-vector kernels by how wide a weight is stored.
WIDTHS = ("narrow", "byte", "wide")
#: What an engine's numbers multiply, in order.
FEATURES = (
    "per_step",
    "per_spec_round",
    "per_draft_pass",
    *KINDS,
    "per_tree_round",
    "per_model_round",
    "per_spec_sequence",
    "per_expert_layer",
    "per_state_layer",
    *WIDTHS,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedRuns:
    """Plain and speculative step of each row [s]; features are (rows, FEATURES)."""

    plain: Array  # kernels and the engine's numbers from served decode runs
    step: Array
    plain_features: Array
    features: Array
    plain_textbook: Array
    textbook: Array

    def pick(self, rows: NDArray[np.bool_] | list[int]) -> PricedRuns:
        """Return some rows."""
        return PricedRuns(**{name: getattr(self, name)[rows] for name in self.__slots__})


def engine_of(era: str) -> str:
    """Return the engine that an era belongs to.

    >>> engine_of("vllm@2025")
    'vllm'
    """
    return era.split("@", maxsplit=1)[0]


def price_runs(rows: Sequence[SpecRow]) -> PricedRuns:
    """Return what the kernels of each row take, and what the engine's numbers multiply."""
    columns = zip(*(_price_one(row) for row in tracked(rows, "runs")), strict=True)
    return PricedRuns(**dict(zip(PricedRuns.__slots__, map(np.array, columns), strict=True)))


def kind_name(kind: str) -> str:
    """Return the name under which a drafter's pass is fitted: block drafters are one kind."""
    return "block" if kind in ONE_PASS_KINDS else kind


def overhead_features(
    row: SpecRow, model: ModelSpec, pass_kind: str, *, drafting: bool
) -> dict[str, float]:
    """Return what each number multiplies in this step; those of matrix-vector kernels get 0."""
    features = dict.fromkeys(FEATURES, 0.0)
    features["per_step"] = 1.0
    features["per_expert_layer"] = float(model.num_expert_layers)
    features["per_state_layer"] = float(model.num_hybrid_layers)
    if drafting:
        passes = float(launches(row.kind, float(row.draft_length)))
        features["per_spec_round"] = 1.0
        features["per_draft_pass"] = passes
        features["per_spec_sequence"] = float(row.batch)
        features["per_model_round"] = float(row.kind == "model" and model.has_state)
        features["per_tree_round"] = float(row.verify_width is not None and row.topk > 1)
        if kind_name(pass_kind) in KINDS:
            features[kind_name(pass_kind)] = passes
    return features


def deployment_of(row: SpecRow, target: Target, drafter: Drafter, overhead: Overhead) -> Deployment:
    """Return what a row ran, on an engine with this time around the kernels."""
    engine = load_engine(engine_of(row.engine))
    return Deployment(
        gpu=gpu_of(row.gpu),
        target=target,
        drafter=drafter,
        engine=engine.model_copy(update={"overhead": overhead, "graphs": None}),
    )


def _price_one(row: SpecRow) -> tuple[float | Array, ...]:
    stated = priors().routing
    target = target_of(row, Routing(skew=stated.skew, correlation=stated.correlation))
    drafter, grid, gpu = drafter_of(row, target), grid_of(row), gpu_of(row.gpu)
    engine = load_engine(engine_of(row.engine))
    served = engine.overhead.model_copy(
        update={
            "per_step": 0.0,
            "per_spec_round": 0.0,
            "per_draft_pass": 0.0,
            "draft_passes": {},
            "per_model_round": 0.0,
            "per_tree_round": 0.0,
            "per_spec_sequence": 0.0,
            "per_expert_layer": 0.0,
            "per_state_layer": 0.0,
        }
    )

    def total(vector: VectorKernels | None) -> Array:
        overhead = served.model_copy(update={"vector": vector})
        return np.asarray(
            deployment_of(row, target, drafter, overhead).price(grid).times.total[0, 0]
        )

    features = [
        overhead_features(row, target.model, drafter.pass_kind, drafting=d)
        for d in (False, row.draft_length > 0)
    ]
    kernels = _kernels_and_vector_slopes(total, served, features)
    plain_textbook, step_textbook = textbook(target, drafter, grid, gpu)
    plain, step = (np.array([row[name] for name in FEATURES]) for row in features)
    return float(kernels[0]), float(kernels[-1]), plain, step, plain_textbook, step_textbook


def _kernels_and_vector_slopes(
    total: Callable[[VectorKernels | None], Array],
    served: Overhead,
    features: list[dict[str, float]],
) -> Array:
    """Return the times without matrix-vector arithmetic; add its features to both dicts.

    Arithmetic hides under the weights' stream, so time is not linear in its costs. The features are
    slopes at the engine's own numbers, where features x numbers + the returned times is exact.
    """
    if served.vector is None:
        return np.asarray(total(None))
    bare = at_own_numbers = np.asarray(total(served.vector))
    for name in WIDTHS:
        cost = getattr(served.vector, name)
        step = 0.05 * max(cost, 0.2)
        moved = total(served.vector.model_copy(update={name: cost + step}))
        slope = (np.asarray(moved) - at_own_numbers) / step
        features[0][name], features[1][name] = float(slope[0]), float(slope[-1])
        bare = bare - slope * cost
    return bare


def textbook(
    target: Target, drafter: Drafter, grid: Grid, gpu: HardwareProfile
) -> tuple[float, float]:
    """Return the plain and the speculative step by max(bytes / BW, FLOP / peak) of each kernel."""

    def seconds(ops: list[Op], at: int) -> float:
        return sum(op.count * textbook_seconds(_at(op, at), gpu) for op in ops)

    verify = decode(
        target.model,
        target.precision,
        target.placement,
        batch=grid.batch,
        context=grid.context,
        rows=grid.rows,
    )
    if grid.draft_length.size == 1:
        plain = seconds(verify, 0)
        return plain, plain
    first, further = draft_passes(drafter, grid)
    more = max(float(grid.draft_length[0, 0, -1]) - 1, 0.0)
    drafts = seconds(first, -1) + more * seconds(further, -1)
    return seconds(verify, 0), seconds(verify, -1) + drafts


def _at(op: Op, position: int) -> Op:
    def value(x: Array | float) -> float:
        return float(np.asarray(x).ravel()[position if np.size(x) > 1 else 0])

    return replace(op, flops=value(op.flops), bytes=value(op.bytes), padding=value(op.padding))
