"""Routed experts on PyTorch: its grouped product, or a batched one over padded rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roofline.calibrate.measure.device import CaseError

__all__ = ["expert_kernels", "run_experts"]

LARGEST = 448.0  # of fp8 e4m3


def grouped_product(torch: Any) -> Any:
    """Return the build's product of row groups with one matrix each, None where it has none."""
    public = getattr(torch.nn.functional, "grouped_mm", None)
    return public or getattr(torch, "_grouped_mm", None)


def expert_kernels(torch: Any, *, base: str, fp8: bool) -> tuple[tuple[str, str], ...]:
    """Return (format, kernel) of what the build offers, the likeliest to serve first.

    ``fp8``: whether the device is one whose grouped fp8 product the library has (sm_90).
    """
    found = [(base, "padded")] if base != "fp32" else [(base, "sorted"), (base, "padded")]
    if grouped_product(torch) is not None:
        found.insert(0, (base, "grouped"))
    if fp8 and hasattr(torch, "_scaled_grouped_mm"):
        found.append(("fp8", "grouped"))
    return tuple(found)


def run_experts(  # noqa: PLR0917
    torch: Any, x: Any, choice: Any, up: Any, down: Any, activation: Callable[[Any], Any],
    kernel: str,
) -> Any:  # fmt: skip
    """Return the mean of each row's chosen experts, routing and permutation included.

    ``grouped``: two grouped products on sorted rows; how many each expert has stays on the device,
    so a graph can capture it. ``sorted``: one product for each awake expert. ``padded``: a batched
    product over the awake experts, padded to the busiest. The last two read the counts back.
    Shapes as in ``numpy_experts``; fp8 weights get rows quantised to fp8 one by one.
    """
    tokens, top_k = choice.shape
    flat = choice.flatten()
    order = flat.argsort()
    count = torch.zeros(up.shape[0], dtype=torch.int32, device=x.device)
    count.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    rows = x[order // top_k]
    match kernel:
        case "grouped":
            ends = count.cumsum(0).to(torch.int32)
            inner = activation(_grouped(torch, rows, up, ends))
            by_expert = _grouped(torch, inner, down, ends)
        case "sorted":
            by_expert = _sorted(torch, rows, count.tolist(), up, down, activation)
        case "padded":
            by_expert = _padded(torch, rows, count.long(), up, down, activation)
        case _:
            raise CaseError("unsupported", f"no expert kernel called {kernel}")
    out = torch.empty_like(by_expert)
    out[order] = by_expert
    return out.view(tokens, top_k, -1).mean(dim=1)


def _grouped(torch: Any, rows: Any, weights: Any, ends: Any) -> Any:
    if weights.dtype == rows.dtype:
        return grouped_product(torch)(rows, weights.transpose(1, 2), offs=ends)
    scale = rows.abs().amax(dim=-1).float().clamp(min=1e-6) / LARGEST
    narrow = (rows.float() / scale[:, None]).clamp(-LARGEST, LARGEST).to(weights.dtype)
    ones = torch.ones(weights.shape[:2], dtype=torch.float32, device=rows.device)
    return torch._scaled_grouped_mm(
        narrow, weights.transpose(1, 2), scale, ones, offs=ends, out_dtype=rows.dtype
    )


def _sorted(  # noqa: PLR0917
    torch: Any, rows: Any, count: list[int], up: Any, down: Any, activation: Callable[[Any], Any]
) -> Any:
    product, end, parts = torch.nn.functional.linear, 0, []
    for expert, size in enumerate(count):
        if size:
            start, end = end, end + size
            inner = activation(product(rows[start:end], up[expert]))
            parts.append(product(inner, down[expert]))
    return torch.cat(parts)


def _padded(  # noqa: PLR0917
    torch: Any, rows: Any, count: Any, up: Any, down: Any, activation: Callable[[Any], Any]
) -> Any:
    awake = count.nonzero().flatten()
    busy = count[awake]
    place = torch.repeat_interleave(torch.arange(len(awake), device=rows.device), busy)
    start = torch.repeat_interleave(busy.cumsum(0) - busy, busy)
    slot = torch.arange(len(rows), device=rows.device) - start
    boxes = rows.new_zeros(len(awake), int(busy.max()), rows.shape[1])
    boxes[place, slot] = rows
    if len(awake) < up.shape[0]:
        up, down = up[awake], down[awake]
    inner = activation(torch.bmm(boxes, up.transpose(1, 2)))
    return torch.bmm(inner, down.transpose(1, 2))[place, slot]
