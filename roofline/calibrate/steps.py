"""An engine's numbers from a user's own measured steps: ``batch,context,draft_length,step_ms``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.base.names import spec_file
from roofline.calibrate.engine.engine_file import with_overhead, without_eras
from roofline.calibrate.engine.spec_numbers import PULL
from roofline.calibrate.fit.core import fit_near, rounded
from roofline.questions.measured import MeasuredStep
from roofline.specs.engine import ENGINE_SHELF, engine_parts
from roofline.specs.placement import Grid
from roofline.timing.drafters import launches

__all__ = ["FittedSteps", "fit_steps"]

Array = NDArray[np.float64]
NAMES = ("per_step", "per_spec_round", "per_draft_pass", "per_spec_sequence")
STEP_ERROR = 0.03  # deviation of the logarithm of a user's own measurement


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedSteps:
    """The fitted numbers [s], the steps' errors before and after, and the engine's file."""

    numbers: dict[str, float]
    before: Array
    after: Array
    text: str


def fit_steps(configuration: Configuration, steps: list[MeasuredStep]) -> FittedSteps:
    """Fit the times around a step, a round, a draft pass and a drafting sequence.

    Kernels come from the laws. Each number is pulled towards the generic engine's, so that two or
    three rows are enough; a number that no row depends on becomes the generic one.
    """
    deployment, _ = deploy(configuration)
    kernels = np.array([_kernels(deployment, step) for step in steps])
    features = np.array([_features(deployment.drafter.kind, step) for step in steps])
    measured = np.array([step.seconds for step in steps])

    def log_errors(values: Array) -> Array:
        return np.asarray(np.log((kernels + features @ values) / measured) / STEP_ERROR)

    fitted, _ = fit_near(log_errors, [PULL[name] for name in NAMES], max_nfev=400)
    numbers = {name: rounded(float(value)) for name, value in zip(NAMES, fitted, strict=True)}
    overhead = deployment.engine.overhead
    shipped = np.array(
        [
            overhead.per_step,
            overhead.per_spec_round,
            overhead.draft_pass(deployment.drafter.pass_kind),
            overhead.per_spec_sequence,
        ]
    )
    return FittedSteps(
        numbers=numbers,
        before=(kernels + features @ shipped) / measured - 1,
        after=(kernels + features @ fitted) / measured - 1,
        text=_engine_file(configuration.engine, numbers, len(steps)),
    )


def _kernels(deployment: Deployment, step: MeasuredStep) -> float:
    """Return the step without the numbers that are fitted [s]."""
    engine = deployment.engine
    overhead = engine.overhead.model_copy(update={**dict.fromkeys(NAMES, 0.0), "draft_passes": {}})
    bare = replace(deployment, engine=engine.model_copy(update={"overhead": overhead}))
    grid = Grid.of((step.batch,), (step.context,), (step.draft_length,))
    return float(bare.price(grid).times.total[0, 0, 0])


def _features(kind: str, step: MeasuredStep) -> tuple[float, ...]:
    """Return what each number of NAMES multiplies."""
    drafting = float(step.draft_length > 0)
    passes = float(launches(kind, float(step.draft_length)))
    return 1.0, drafting, passes, drafting * step.batch


def _engine_file(engine: str, numbers: dict[str, float], count: int) -> str:
    """Return the engine's file with the numbers in place and its eras dropped."""
    source = spec_file(engine_parts(engine)[0], ENGINE_SHELF, "engine")
    text = without_eras(source.read_text("utf-8"))
    lines = {name: f"{rounded(1e6 * value)} us" for name, value in numbers.items()}
    lines |= {"draft_passes": "{}", "spec_rows": str(count)}
    if "model_pass_is_a_step:" in text:
        lines["model_pass_is_a_step"] = "false"
    return with_overhead(text, lines, file=source.name, add=True)
