"""The deployment that an answer is about: what stands in its sentences, and its fields."""

from __future__ import annotations

from typing import Any

from roofline.advice.deployment import Deployment

__all__ = ["deployment_data", "gpus_named"]


def gpus_named(deployment: Deployment) -> str:
    """Say how many accelerators of which kind, and how attention is shared out where it is."""
    dp = deployment.target.placement.dp
    groups = f" (attention in {dp} data-parallel groups)" if dp > 1 else ""
    return f"{deployment.cards} x {deployment.gpu.name}{groups}"


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
        "engine": deployment.engine.id,
    }


def _in_one_machine(deployment: Deployment) -> dict[str, Any]:
    """Return how cards and processor of one machine share the model, where they do."""
    if deployment.host is None:
        return {}
    split = deployment.target.placement.split
    return {
        "split": split.mode.value if split.cards > 1 else None,
        "tensor_split": list(split.shares) or None,
        "cpu_expert_layers": split.cpu_layers,
        "host": deployment.host.id,
    }
