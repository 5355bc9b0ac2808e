"""The words around a chart that answers a question: what it says, of what, and what drew it."""

from __future__ import annotations

from roofline.advice.prepare import Setup
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


def stored_as(setup: Setup) -> str:
    """Say how the weights of the layers' products are stored, each format with what it holds.

    A router is small and mostly kept wider than the rest, so it is left out.
    """
    stored, parts = setup.target.precision.weights, used_components(setup.target.model)
    holds: dict[str, list[str]] = {}
    for component, word in _WORDS.items():
        if component in parts:
            holds.setdefault(str(stored[component]), []).append(word)
    if len(holds) == 1:
        return f"{next(iter(holds))} weights"
    return ", ".join(f"{dtype} {listed(words)}" for dtype, words in holds.items())


def caption_for(
    setup: Setup, message: str, *, source: str, where: str = "", drafts: bool = True
) -> Caption:
    """Return the caption of a chart about ``setup``.

    ``message`` follows model and accelerators in the title; ``where`` names the batch or context
    that the whole chart shares. ``drafts`` off leaves out drafter and acceptance.
    """
    target = setup.target
    told = [f"{stored_as(setup)}, {target.precision.kv} KV", setup.engine.name]
    told += [where] if where else []
    if drafts:
        told += [f"drafter {setup.drafter.name}", f"acceptance: {setup.acceptance.label}"]
    fixed = [change for change in setup.notes.changes if change.flag != "--vary"]
    changed = set_line(fixed).strip().rstrip(".")
    told += [changed] if changed else []
    return Caption(
        title=f"{target.model.name} on {gpus_named(setup)}: {message}",
        setting="; ".join(told),
        source=source,
    )
