"""Advice on draft lengths: which one to run, and what it buys.

>>> import roofline as rf
>>> answer = rf.recommend("llama-3.1-8b", gpu="h100-sxm", batch=32, context="2k", acceptance=0.7)
>>> answer.draft_length
4
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from roofline.base import __version__

if TYPE_CHECKING:
    from roofline.acceptance import Acceptance
    from roofline.api.answers import (
        CompareResult,
        ExploreResult,
        LoadResult,
        MemoryResult,
        RecommendResult,
        RequestResult,
        RolloutResult,
        ScheduleResult,
        SweepResult,
        TuneResult,
    )
    from roofline.api.questions import (
        compare,
        explore,
        memory,
        recommend,
        schedule,
        sweep,
        tune,
    )
    from roofline.base.errors import DoesNotFitError, InputError, RooflineError

__all__ = [
    "Acceptance",
    "CompareResult",
    "DoesNotFitError",
    "ExploreResult",
    "InputError",
    "LoadResult",
    "MemoryResult",
    "RecommendResult",
    "RequestResult",
    "RolloutResult",
    "RooflineError",
    "ScheduleResult",
    "SweepResult",
    "TuneResult",
    "__version__",
    "compare",
    "explore",
    "memory",
    "recommend",
    "schedule",
    "sweep",
    "tune",
]

_HOMES = {
    "acceptance": ("Acceptance",),
    "api.questions": ("compare", "explore", "memory", "recommend", "schedule", "sweep", "tune"),
    "api.answers": (
        "CompareResult",
        "ExploreResult",
        "LoadResult",
        "MemoryResult",
        "RecommendResult",
        "RequestResult",
        "RolloutResult",
        "ScheduleResult",
        "SweepResult",
        "TuneResult",
    ),
    "base.errors": ("DoesNotFitError", "InputError", "RooflineError"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that `import roofline` itself stays free."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"roofline.{module}"), name)
    raise AttributeError(f"module 'roofline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
