"""llama.cpp: the relative cost of a token by batch, as ``GGML_BATCH_COSTS``.

A proposal (ggml-org/llama.cpp PR 17034, open): no release reads it, and no release takes a schedule
by batch. Entry n is the time of a pass over n tokens, over n passes of one: 1 first, falling while
rows share the weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from roofline.advice.paste import sharing
from roofline.questions.schedule.plan import Plan
from roofline.questions.schedule.written import Written, written
from roofline.specs.placement import Grid
from roofline.timing.drafters import Drafter

__all__ = ["costs_per_token", "write"]

LONGEST = 64


def costs_per_token(pass_seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return t(n) / (n t(1)) for passes over n = 1, 2, … tokens.

    >>> costs_per_token(np.array([10.0, 12.0, 15.0]))
    array([1. , 0.6, 0.5])
    """
    return np.asarray(pass_seconds / (np.arange(1, len(pass_seconds) + 1) * pass_seconds[0]))


def write(plan: Plan) -> Written:
    """Return the variable to export, for one sequence at the first context."""
    deployment = plan.question.deployment
    bare = replace(
        deployment,
        drafter=Drafter(kind="none", name="none"),
        engine=deployment.engine.model_copy(update={"graphs": None}),
    )
    passes = bare.price(Grid.of((1,), plan.contexts[:1], range(LONGEST))).times
    array = costs_per_token(passes.verify[0, 0])
    text = "export GGML_BATCH_COSTS=" + ",".join(f"{cost:.3g}" for cost in array)
    notes = ["llama.cpp: a proposal (PR 17034); no release reads it or takes a schedule by batch"]
    flags = sharing(deployment)
    notes += [f"llama.cpp: the costs hold with{flags}"] if flags else []
    return written(plan, "llamacpp", text, plan.merged, notes)
