"""The deployment that an answer is about: what stands in its sentences, and its fields."""

from __future__ import annotations

from typing import Any

from roofline.advice.prepare import Setup

__all__ = ["deployment_data", "gpus_named"]


def gpus_named(setup: Setup) -> str:
    """Say how many accelerators of which kind, and how attention is shared out where it is."""
    dp = setup.target.placement.dp
    groups = f" (attention in {dp} data-parallel groups)" if dp > 1 else ""
    return f"{setup.cards} x {setup.gpu.name}{groups}"


def deployment_data(setup: Setup) -> dict[str, Any]:
    """Return the target, its formats, the accelerators and the engine, as JSON-ready data."""
    placement, precision = setup.target.placement, setup.target.precision
    return {
        "model": setup.target.model.id,
        "gpu": setup.gpu.id,
        "gpus": setup.cards,
        "tp": placement.tp,
        "ep": placement.ep,
        **({"dp_attention": placement.dp} if placement.dp > 1 else {}),
        **_in_one_machine(setup),
        "weights": {part.value: dtype.value for part, dtype in precision.weights.items()},
        "activations": precision.base.value,
        "kv": precision.kv.value,
        "engine": setup.engine.id,
    }


def _in_one_machine(setup: Setup) -> dict[str, Any]:
    """Return how cards and processor of one machine share the model, where they do."""
    if setup.host is None:
        return {}
    split = setup.target.placement.split
    return {
        "split": split.mode.value if split.cards > 1 else None,
        "tensor_split": list(split.shares) or None,
        "cpu_expert_layers": split.cpu_layers,
        "host": setup.host.id,
    }
