"""The words around a chart that answers a question: what it says, of what, and what drew it."""

from __future__ import annotations

from roofline.acceptance import Acceptance
from roofline.advice.deployment import Deployment
from roofline.kernels.matrices import used_components
from roofline.render.changes import set_line
from roofline.render.charts.figure import Caption
from roofline.render.columns import listed
from roofline.render.deployment import gpus_named
from roofline.specs.formats import Component

__all__ = ["caption_for", "stored_as"]

_WORDS = {
    Component.EXPERTS: "experts",
    Component.SHARED_EXPERTS: "shared experts",
    Component.MLP: "MLP",
    Component.ATTENTION: "attention",
    Component.MIXER: "linear mixers",
}


def stored_as(deployment: Deployment) -> str:
    """Say how the weights of the layers' products are stored, each format with what it holds.

    A router is small and mostly kept wider than the rest, so it is left out.
    """
    stored, parts = (
        deployment.target.precision.weights,
        used_components(deployment.target.model),
    )
    holds: dict[str, list[str]] = {}
    for component, word in _WORDS.items():
        if component in parts:
            holds.setdefault(str(stored[component]), []).append(word)
    if len(holds) == 1:
        return f"{next(iter(holds))} weights"
    return ", ".join(f"{dtype} {listed(words)}" for dtype, words in holds.items())


def caption_for(
    deployment: Deployment,
    message: str,
    *,
    source: str,
    where: str = "",
    acceptance: Acceptance | None = None,
) -> Caption:
    """Return the caption of a chart about a deployment.

    ``message`` follows model and accelerators in the title; ``where`` names the batch or context
    that the whole chart shares. Without ``acceptance`` the drafter is not named either.
    """
    target = deployment.target
    told = [f"{stored_as(deployment)}, {target.precision.kv} KV", deployment.engine.name]
    told += [where] if where else []
    if acceptance is not None:
        told += [f"drafter {deployment.drafter.name}", f"acceptance: {acceptance.label}"]
    fixed = [change for change in deployment.changes if change.option != "vary"]
    changed = set_line(fixed).strip().rstrip(".")
    told += [changed] if changed else []
    return Caption(
        title=f"{target.model.name} on {gpus_named(deployment)}: {message}",
        setting="; ".join(told),
        source=source,
    )
