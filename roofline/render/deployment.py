"""The deployment that an answer is about, in sentences and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roofline.advice.deployment import Deployment
from roofline.advice.question import Question
from roofline.base.units import listed
from roofline.kernels.matrices import used_components
from roofline.specs.formats import Component, Precision
from roofline.specs.network import NetworkSpec

if TYPE_CHECKING:
    from roofline.specs.overrides import AppliedOverride

__all__ = [
    "deployment_data",
    "drafting",
    "fixed_changes",
    "gpus_named",
    "set_column",
    "set_data",
    "set_line",
    "stored_as",
]


def gpus_named(deployment: Deployment) -> str:
    """Say how many accelerators of which kind, and how many groups attention is split over."""
    dp = deployment.target.placement.dp
    groups = f" (attention in {dp} data-parallel groups)" if dp > 1 else ""
    return f"{deployment.cards} x {deployment.gpu.name}{groups}"


def drafting(question: Question) -> list[str]:
    """Name the drafter and its acceptance, or that nothing is drafted."""
    if len(question.draft_lengths) == 1:
        return ["nothing is drafted"]
    drafter, target = question.deployment.drafter, question.deployment.target
    named = f"drafter {drafter.name}"
    if drafter.network is not None and drafter.precision is not None:
        own = _stored(drafter.network, drafter.precision)
        if own != _stored(target.model, target.precision):
            named += f" ({own})"
    return [named, f"acceptance: {question.acceptance.label}"]


def deployment_data(deployment: Deployment) -> dict[str, Any]:
    """Return the target, its formats, the accelerators and the engine, as JSON-ready data."""
    placement, precision = deployment.target.placement, deployment.target.precision
    return {
        "model": deployment.target.model.id,
        "gpu": deployment.gpu.id,
        "gpus": deployment.cards,
        "tp": placement.tp,
        "ep": placement.ep,
        **({"dp_attention": placement.dp} if placement.dp > 1 else {}),
        **_in_one_machine(deployment),
        "weights": {part.value: dtype.value for part, dtype in precision.weights.items()},
        "activations": precision.base.value,
        "kv": precision.kv.value,
        "engine": deployment.engine.reference,
    }


def _in_one_machine(deployment: Deployment) -> dict[str, Any]:
    """Return how the cards and the processor of one machine share the model, if they do."""
    if deployment.host is None:
        return {}
    split = deployment.target.placement.split
    return {
        "split": split.mode.value if split.cards > 1 else None,
        "tensor_split": list(split.shares) or None,
        "cpu_expert_layers": split.cpu_layers,
        "host": deployment.host.id,
    }


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
    return _stored(deployment.target.model, deployment.target.precision)


def _stored(network: NetworkSpec, precision: Precision) -> str:
    stored, parts = precision.weights, used_components(network)
    holds: dict[str, list[str]] = {}
    for component, word in _WORDS.items():
        if component in parts:
            holds.setdefault(str(stored[component]), []).append(word)
    if len(holds) == 1:
        return f"{next(iter(holds))} weights"
    return ", ".join(f"{dtype} {listed(words)}" for dtype, words in holds.items())


def set_line(changes: Sequence[AppliedOverride]) -> str:
    """Return one sentence with a blank before it; nothing if nothing was set.

    >>> from roofline.specs.overrides import AppliedOverride
    >>> set_line([AppliedOverride(option="set", path="group_size", value="4", was="8")])
    ' Set: group_size = 4 (was 8).'
    """
    return f" Set: {'; '.join(map(str, changes))}." if changes else ""


def set_data(changes: Sequence[AppliedOverride]) -> list[dict[str, Any]]:
    """Return the changes as JSON writes them."""
    return [{"path": c.path, "value": c.value, "was": c.was} for c in changes]


def set_column(changes: Sequence[AppliedOverride]) -> dict[str, str]:
    """Return the column of a CSV that says what was set; none if nothing was."""
    return {"set": "; ".join(map(str, changes))} if changes else {}


def fixed_changes(deployment: Deployment) -> list[AppliedOverride]:
    """Return what was set for all variants of an exploration, without what it varies."""
    return [change for change in deployment.changes if change.option != "vary"]
