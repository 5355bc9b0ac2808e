"""What sharing a network among cards without a link, or with the processor, does to its kernels.

- layer: the same kernels, one card after the other; the rows' hidden states cross a slot between
  two cards.
- row: every card multiplies with its rows of each matrix; the input goes to the other cards and
  their outputs come back. Attention, caches and all else stay on the main card.
- experts of the first layers beside the processor: it computes them from its own memory, and the
  hidden states go there and back. From some rows on the weights are copied to the card instead.

Which layers are which, a spec does not say: layers without experts count as the first ones.
"""

from __future__ import annotations

from dataclasses import replace

from roofline.kernels import Kind, Op, Part, Pass
from roofline.shapes import GemmShape
from roofline.specs.network import NetworkSpec
from roofline.specs.placement import SplitMode

__all__ = ["cpu_expert_layers", "spread"]

FP32 = 4.0  # hidden states between backends [B]


def cpu_expert_layers(*, layers: int, expert_layers: int, cpu_layers: int) -> int:
    """Return how many layers with experts are among the first ``cpu_layers``, dense ones first.

    >>> cpu_expert_layers(layers=61, expert_layers=58, cpu_layers=10)
    7
    """
    return min(max(cpu_layers - (layers - expert_layers), 0), expert_layers)


def spread(state: Pass, kernels: list[Op]) -> list[Op]:
    """Return a pass's kernels as its placement's split runs them."""
    split, network = state.placement.split, state.network
    kernels = _beside_processor(state, kernels)
    if split.cards == 1 or split.mode is SplitMode.TENSOR:
        return kernels
    if split.mode is SplitMode.LAYER:
        hop = _copy(state, "card_to_card", network.hidden_size * FP32)
        return [*kernels, replace(hop, count=split.cards - 1)]
    return [part for op in kernels for part in _by_rows(op, split.cards)]


def _copy(state: Pass, name: str, bytes_per_row: float) -> Op:
    return Op(
        name=name,
        kind=Kind.COPY,
        part=Part.COMMUNICATION,
        compute=state.precision.base,
        storage=state.precision.base,
        flops=0.0,
        bytes=state.tokens * bytes_per_row,
        rows=state.tokens,
    )


def _by_rows(op: Op, cards: int) -> list[Op]:
    """Return one card's part of a product, and the way of its rows to the other cards and back."""
    shape = op.shape
    if op.kind is not Kind.GEMM or not isinstance(shape, GemmShape):
        return [op]
    ways = shape.m * (shape.k + shape.n * (cards - 1) / cards) * FP32
    weights = shape.n * shape.k * shape.weight
    own = replace(
        op,
        flops=op.flops / cards,
        bytes=op.bytes - weights * (1 - 1 / cards),
        shape=replace(shape, n=shape.n / cards),
    )
    there = Op(
        name=f"{op.name}_gather",
        kind=Kind.COPY,
        part=Part.COMMUNICATION,
        compute=op.compute,
        storage=op.storage,
        flops=0.0,
        bytes=ways,
        rows=op.rows,
        count=op.count,
    )
    return [own, there]


def _beside_processor(state: Pass, kernels: list[Op]) -> list[Op]:
    """Give the experts of the first layers to the processor."""
    left = _expert_layers_there(state.network, state.placement.split.cpu_layers)
    if not left:
        return kernels
    found = []
    for op in kernels:
        there = min(left, op.count) if op.kind is Kind.MOE else 0
        left -= there
        if op.count > there:
            found.append(replace(op, count=op.count - there))
        if there:
            hidden = 2 * state.network.hidden_size * FP32
            copies = replace(_copy(state, "experts_there_and_back", hidden), count=there)
            found += [replace(op, name="cpu_experts", kind=Kind.CPU_MOE, count=there), copies]
    return found


def _expert_layers_there(network: NetworkSpec, cpu_layers: int) -> int:
    return cpu_expert_layers(
        layers=network.num_layers, expert_layers=network.num_expert_layers, cpu_layers=cpu_layers
    )
