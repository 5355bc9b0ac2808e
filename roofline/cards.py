"""What each card of a split holds: layers, caches, the head, and what stays with the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from roofline.specs.formats import Component
from roofline.specs.network import NetworkSpec
from roofline.specs.placement import Split, SplitMode
from roofline.split import cpu_expert_layers

__all__ = ["Card", "cards_of", "cpu_expert_bytes", "layer_counts"]


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
