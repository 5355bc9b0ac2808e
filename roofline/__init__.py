"""Advice on draft lengths: which one to run, and what it buys.

>>> from roofline import question_of, recommend
>>> answer = recommend(question_of(model="llama-3.1-8b", gpu="h100-sxm", acceptance="0.7"))
>>> answer.points[0].draft_length
4
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.deployment import Deployment, deploy
    from roofline.advice.question import Question, Workload, ask, question_of
    from roofline.advice.recommend import Recommendation, recommend
    from roofline.base.errors import DoesNotFitError, InputError, RooflineError

__version__ = "0.1.0"

__all__ = [
    "Configuration",
    "Deployment",
    "DoesNotFitError",
    "InputError",
    "Question",
    "Recommendation",
    "RooflineError",
    "Workload",
    "__version__",
    "ask",
    "deploy",
    "question_of",
    "recommend",
]

_HOMES = {
    "advice.configuration": ("Configuration",),
    "advice.deployment": ("Deployment", "deploy"),
    "advice.question": ("Question", "Workload", "ask", "question_of"),
    "advice.recommend": ("Recommendation", "recommend"),
    "base.errors": ("DoesNotFitError", "InputError", "RooflineError"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that `import roofline` itself stays free."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"roofline.{module}"), name)
    raise AttributeError(f"module 'roofline' has no attribute {name!r}")
