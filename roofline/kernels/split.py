"""What each card of a split holds: layers, caches, the head, and what stays with the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor

from roofline.kernels.ops import GemmShape, Kind, Op, Part, Pass
from roofline.specs.formats import Component
from roofline.specs.network import NetworkSpec
from roofline.specs.placement import Split, SplitMode

__all__ = ["Card", "cards_of", "cpu_expert_bytes", "cpu_expert_layers", "layer_counts", "spread"]

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """Shares of a network on one card; a card alone holds everything."""

    layers: float = 1.0  # of the layers' weights
    experts: float = 1.0  # of the routed experts' weights
    caches: float = 1.0
    embedding: float = 1.0
    head: float = 1.0
    #: Whether logits are made here, and heads that draft lie here.
    last: bool = True

    def weights(self, held: Mapping[Component, float]) -> dict[Component, float]:
        """Return the bytes of each component that lie on the card [B]."""
        shares = {
            Component.EXPERTS: self.experts,
            Component.EMBEDDING: self.embedding,
            Component.VISION: self.embedding,
            Component.HEAD: self.head,
        }
        return {part: size * shares.get(part, self.layers) for part, size in held.items()}


def layer_counts(layers: int, split: Split) -> list[int]:
    """Return how many of the layers each card gets, as llama.cpp deals them out.

    The output counts as one layer more, the last; item i of n + 1 goes to the first card whose
    cumulated share exceeds i / (n + 1).

    >>> layer_counts(64, Split(cards=2))
    [33, 31]
    >>> layer_counts(64, Split(cards=2, shares=(3.0, 1.0)))
    [49, 15]
    """
    shares = split.shares or (1.0,) * split.cards
    total, ends, reached = sum(shares), [], 0.0
    for share in shares:
        reached += share
        ends.append(min(-floor(-(layers + 1) * reached / total + 1e-9), layers))
    ends[-1] = layers
    return [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def cards_of(network: NetworkSpec, split: Split) -> tuple[Card, ...]:
    """Return the cards that a network lies on; kinds of layers count as evenly mixed."""
    layers, experts = network.num_layers, network.num_expert_layers
    alone = Card(experts=_kept(network, split, 0, layers))
    if split.cards == 1 or split.mode is SplitMode.TENSOR:
        return (alone,)
    if split.mode is SplitMode.ROW:
        share = 1 / split.cards
        main = Card(layers=share, experts=share, head=share)
        other = Card(layers=share, experts=share, head=share, caches=0, embedding=0, last=False)
        return (main, *(other for _ in range(split.cards - 1)))
    found, start = [], 0
    for i, count in enumerate(layer_counts(layers, split)):
        final = i == split.cards - 1
        found.append(
            Card(
                layers=count / layers,
                experts=_kept(network, split, start, start + count) if experts else 0.0,
                caches=count / layers,
                embedding=float(i == 0),
                head=float(final),
                last=final,
            )
        )
        start += count
    return tuple(found)


def _kept(network: NetworkSpec, split: Split, start: int, stop: int) -> float:
    """Return the share of all routed experts that the layers from start to stop keep on cards."""
    layers, experts = network.num_layers, network.num_expert_layers
    if not experts:
        return 1.0

    def first(count: int) -> int:
        return cpu_expert_layers(layers=layers, expert_layers=experts, cpu_layers=count)

    own = first(stop) - first(start)
    there = first(min(stop, split.cpu_layers)) - first(min(start, split.cpu_layers))
    return (own - there) / experts


def cpu_expert_bytes(network: NetworkSpec, held: Mapping[Component, float], split: Split) -> float:
    """Return the bytes of routed experts that stay beside the processor [B]."""
    kept = _kept(network, split, 0, network.num_layers)
    return held.get(Component.EXPERTS, 0.0) * (1 - kept)
