"""The words around a chart that answers a question: what it says, of what, and what drew it."""

from __future__ import annotations

from roofline.figure import Caption
from roofline.model import MoeMlp
from roofline.prepare import Setup
from roofline.quantization import Component
from roofline.report.changes import set_line

__all__ = ["caption_for", "stored_as"]


def stored_as(setup: Setup) -> str:
    """Say how the layers' weights are stored, experts by themselves where they differ."""
    stored = setup.target.precision.weights
    dense, experts = stored[Component.MLP], stored[Component.EXPERTS]
    sparse = any(isinstance(run.mlp, MoeMlp) for run in setup.target.model.layers)
    if not sparse or dense == experts:
        return f"{dense} weights"
    return f"{experts} experts, other weights {dense}"


def caption_for(
    setup: Setup, message: str, *, source: str, where: str = "", drafts: bool = True
) -> Caption:
    """Return the caption of a chart about ``setup``.

    ``message`` follows model and accelerators in the title; ``where`` names the batch or context
    that the whole chart shares. ``drafts`` off leaves out drafter and acceptance.
    """
    target, request = setup.target, setup.request
    told = [f"{stored_as(setup)}, {target.precision.kv} KV", setup.engine.name]
    told += [where] if where else []
    if drafts:
        told += [f"drafter {setup.drafter.name}", f"acceptance: {setup.acceptance.label}"]
    changed = set_line(setup.notes.changes).strip().rstrip(".")
    told += [changed] if changed else []
    return Caption(
        title=f"{target.model.name} on {request.cards} x {setup.gpu.name}: {message}",
        setting="; ".join(told),
        source=source,
    )
