"""How well simple models of acceptance follow a measured curve, up to its deepest draft."""

from __future__ import annotations

from typing import Any

from roofline.acceptance.files import load_acceptance
from roofline.acceptance.models import MODELS, Fit

__all__ = ["compare"]


def compare(reference: str) -> list[dict[str, Any]]:
    """Return one row per model: AL at the deepest D, its error, and the fit's residual.

    ``fitted`` uses the whole curve; ``from half`` only its first half, and goes on from there.
    """
    curve = {d: al for d, al in load_acceptance(reference).table.items() if d > 0}
    deepest = max(curve)
    half = {d: al for d, al in curve.items() if d <= max(deepest // 2, min(curve))}
    rows = []
    for model in MODELS:
        if min(curve) > 1 and model is MODELS[0]:
            continue  # AL(1) is not known
        whole, part = model(curve, depth=deepest), model(half, depth=deepest)
        rows.append(_row(reference, curve, whole, part))
    return rows


def _row(name: str, curve: dict[int, float], whole: Fit, part: Fit) -> dict[str, Any]:
    deepest = max(curve)
    return {
        "curve": name,
        "D": deepest,
        "AL": curve[deepest],
        "model": whole.model,
        "predicted": f"{whole.predicted[deepest]:.2f}",
        "error %": f"{100 * whole.error(curve, deepest):+.1f}",
        "residual": f"{whole.residual:.3f}",
        "from half %": f"{100 * part.error(curve, deepest):+.1f}",
    }
