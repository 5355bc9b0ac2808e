"""The vision tower beside a language model: in memory, never in a decode step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline.importers.fields import Log

__all__ = ["tower_parameters", "vision_parameters"]


def tower_parameters(
    *, width: int, depth: int, mlp: int, patch: int, out: int, gated: bool = False
) -> int:
    """Return the weights of a vision transformer and a two-matrix projector into ``out``.

    Per layer 4 w^2 + 4 w attention, 2 (3 gated) w m + m + w MLP, 4 w norms; 3 p^2 w patches; a
    projector of w^2 + w out.

    >>> tower_parameters(width=1152, depth=27, mlp=4304, patch=14, out=5376)
    419664240
    """
    layer = 4 * width * width + 4 * width + (3 if gated else 2) * width * mlp + mlp + 5 * width
    return depth * layer + 3 * patch * patch * width + width * width + width * out


def _first(config: Mapping[str, Any], *names: str) -> int | None:
    values = (config.get(name) for name in names)
    return next((v for v in values if type(v) is int and 0 < v <= 2**24), None)


def vision_parameters(outer: Mapping[str, Any], hidden: int, log: Log) -> int:
    """Return the tower's parameters as far as ``vision_config`` tells, and say that it is so."""
    config = outer.get("vision_config")
    if not isinstance(config, dict):
        return 0
    width = _first(config, "hidden_size", "vt_hidden_size", "embed_dim", "width")
    depth = _first(config, "depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
    if width is None or depth is None or depth > 1000:
        log.note("the vision tower's size is not stated and is left out")
        return 0
    mlp = _first(config, "intermediate_size", "vt_intermediate_size", "mlp_dim") or 4 * width
    patch = _first(config, "patch_size") or 14
    count = tower_parameters(width=width, depth=depth, mlp=mlp, patch=min(patch, 256), out=hidden)
    log.note(f"vision tower: about {count / 1e9:.2f} B parameters, estimated from vision_config")
    return count
