"""Whether it fits: weights, drafter, KV blocks, logits and activations against one accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array
from roofline.kernels.footprint import kv_bytes_reserved, state_bytes_per_sequence, weight_bytes
from roofline.kernels.forward import Card, cards_of, cpu_expert_bytes
from roofline.specs.engine import MemoryRules
from roofline.specs.formats import Component, Precision, bytes_per_element
from roofline.specs.gpu import HardwareProfile, HostProfile
from roofline.specs.network import DenseMlp, Mlp, ModelSpec, MoeMlp, NetworkSpec, NoMlp
from roofline.specs.placement import DrafterSeat, Grid, Pipeline, SplitMode, StateHandling
from roofline.timing.drafters import Drafter
from roofline.timing.step import Target

__all__ = ["Memory", "ShortOfDraft", "activation_bytes", "logits_bytes", "memory_for"]


def logits_bytes(*, batch: Array, rows: Array, vocabulary: int, base: float) -> Array:
    """Return the bytes of the logits of a pass: B q V in the base format and again in fp32 [B].

    >>> logits_bytes(batch=64, rows=17, vocabulary=151936, base=2) / 1e6
    991.838208
    """
    return batch * rows * vocabulary * (base + 4.0)


def activation_bytes(network: NetworkSpec, *, tokens: Array, tp: int, base: float) -> Array:
    """Return the bytes alive at the widest place of a pass over ``tokens`` rows [B].

    Residual and normed input, 2 H, beside the widest MLP's gate, up and product, 3 I (of every
    chosen expert in a mixture): tokens (2 H + 3 I / tp) b, with ``base`` b bytes per element [B].

    >>> from roofline.specs.network import load_model
    >>> activation_bytes(load_model("llama-3.1-8b"), tokens=1, tp=1, base=2)  # 2 (8192 + 43008)
    102400.0
    """
    widths = [_widest(run.mlp) for run in network.layers]
    return tokens * (2 * network.hidden_size + 3 * max(widths) / tp) * base


def _widest(mlp: Mlp) -> int:
    """Return the MLP's width, that of every chosen expert together in a mixture."""
    match mlp:
        case DenseMlp():
            return mlp.intermediate_size
        case MoeMlp():
            every_token = mlp.shared_intermediate_size + mlp.dense_intermediate_size
            return mlp.top_k * mlp.expert_intermediate_size + every_token
        case NoMlp():
            return 0


class ShortOfDraft(NamedTuple):
    """Why no draft fits beside plain decoding, on the card with the least room [B]."""

    needed: float  # by one draft, beside plain decoding
    free: float  # after plain decoding
    card: int
    layers_split: bool  # over several cards, which another split may even out


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Where the bytes of one accelerator go. Scalars but where noted [B]."""

    target: Target
    drafter: Drafter
    rules: MemoryRules
    total: float  # what the accelerator has
    held: Mapping[Component, float]  # the target's weights, before cards share them out
    draft_weights: float
    cards: tuple[Card, ...] = (Card(),)
    draft_cards: tuple[Card, ...] = (Card(),)
    host: HostProfile | None = None  # whose memory the experts beside the processor take

    @property
    def on_host(self) -> float:
        """Return the bytes of the experts that stay beside the processor [B]."""
        return cpu_expert_bytes(self.target.model, self.held, self.target.placement.split)

    @property
    def host_is_short(self) -> bool:
        """Return whether the host has no room for them; then nothing fits."""
        return self.host is not None and self.on_host > self.host.usable

    @property
    def weights(self) -> float:
        """Return the target's weights on the card that holds most of them [B]."""
        return max(sum(card.weights(self.held).values()) for card in self.cards)

    @property
    def available(self) -> float:
        """What the engine takes of the accelerator, less its own reserve."""
        return self.total * self.rules.fraction - self.rules.reserve

    def kv_per_sequence(self, context: Array, draft_length: Array) -> Array:
        """Return the cache bytes reserved for a sequence of context + D + 1 slots, on all cards."""
        return self.target_cache(context, draft_length) + self.draft_cache(context, draft_length)

    def target_cache(self, context: Array, draft_length: Array) -> Array:
        """Return the target's part of it, states and their snapshots included [B]."""
        tokens = np.asarray(context + draft_length + 1)
        placement = self.target.placement
        rows = 1 + np.asarray(draft_length)
        model, precision = self.target.model, self.target.precision
        total = self._reserved(model, precision, tokens, rows, placement.attention_tp)
        state = state_bytes_per_sequence(model, tp=placement.attention_tp)
        copies = 1 + np.asarray(draft_length) * (
            placement.state_handling == StateHandling.SNAPSHOTS
        )
        return total + state * copies

    def draft_cache(self, context: Array, draft_length: Array) -> Array:
        """Return the drafter's part of it, 0 where D = 0 [B]."""
        network, precision = self.drafter.network, self.drafter.precision
        if network is None or precision is None:
            return 0.0
        tokens, rows = np.asarray(context + draft_length + 1), 1 + np.asarray(draft_length)
        drafted = self._reserved(
            network, precision, tokens, rows, self.drafter.placement.attention_tp
        )
        return np.where(np.asarray(draft_length) > 0, drafted, 0.0)

    def _reserved(
        self, network: NetworkSpec, precision: Precision, tokens: Array, rows: Array, tp: int
    ) -> Array:
        return kv_bytes_reserved(
            network,
            precision.kv,
            tokens=tokens,
            block=self.rules.kv_block,
            caps_windows=self.rules.caps_windows,
            rows=rows,
            tp=tp,
        )

    def working(self, batch: Array, draft_length: Array, *, logits: bool = True) -> Array:
        """Return the bytes of logits and activations while a step runs.

        ``batch`` is shared out between data-parallel groups, as in ``needed``.
        """
        model, base = self.target.model, bytes_per_element(self.target.precision.base)
        batch = self.target.placement.local_batch(batch)
        rows = 1 + np.asarray(draft_length)
        tokens = np.maximum(batch * rows, self.rules.prefill_chunk)
        activations = activation_bytes(
            model, tokens=tokens, tp=self.target.placement.attention_tp, base=base
        )
        if not logits:
            return activations
        return activations + logits_bytes(
            batch=batch, rows=rows, vocabulary=model.vocab_size, base=base
        )

    def needed(self, batch: Array, context: Array, draft_length: Array) -> Array:
        """Return everything on the fullest card.

        Weights, the drafter's where D > 0, cache, logits, activations.
        """
        return reduce(np.maximum, self.by_card(batch, context, draft_length))

    def by_card(self, batch: Array, context: Array, draft_length: Array) -> list[Array]:
        """Return everything that each card holds [B]."""
        drafting = np.asarray(draft_length) > 0
        target_cache = self.target_cache(context, draft_length)
        draft_cache = self.draft_cache(context, draft_length)
        sequences = self.target.placement.local_batch(batch)
        by_card: list[Array] = []
        for card, draft_card in zip(self.cards, self.draft_cards, strict=True):
            weights = sum(card.weights(self.held).values())
            drafter = np.where(drafting, self.draft_weights * draft_card.layers, 0.0)
            cache = sequences * (target_cache * card.caches + draft_cache * draft_card.caches)
            working = self.working(batch, draft_length, logits=card.last)
            by_card.append(weights + drafter + cache + working)
        return by_card

    def fullest(self, *, batch: int, context: int, draft_length: int) -> int:
        """Return the position of the card that holds most."""
        return int(np.argmax([np.max(x) for x in self.by_card(batch, context, draft_length)]))

    def fits(self, grid: Grid) -> NDArray[np.bool_]:
        """Return where on the grid the step fits."""
        fits = self.has_room(grid.batch, grid.context, grid.draft_length)
        return np.broadcast_to(fits, grid.shape)

    def has_room(self, batch: Array, context: Array, draft_length: Array) -> NDArray[np.bool_]:
        """Return whether the fullest card and the host hold everything."""
        needed = np.asarray(self.needed(batch, context, draft_length))
        return np.asarray((needed <= self.available) & (not self.host_is_short))

    def largest_batch(self, *, context: int, draft_length: int) -> int:
        """Return the largest batch that fits, drafter included where D > 0; 0 if none does."""
        low, high = 0, 1
        while self.has_room(high, context, draft_length) and high < 2**40:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.has_room(middle, context, draft_length)
            low, high = (middle, high) if fits else (low, middle)
        return low

    def short_of_draft(self, *, batch: int, context: int) -> ShortOfDraft:
        """Return what one draft needs beside plain decoding, and what is free."""
        plain, drafting = (
            [float(np.max(x)) for x in self.by_card(batch, context, length)] for length in (0, 1)
        )
        card = int(np.argmax(drafting))
        return ShortOfDraft(
            needed=drafting[card] - plain[card],
            free=self.available - plain[card],
            card=card,
            layers_split=len(self.cards) > 1
            and self.target.placement.pipeline.plain
            and self.target.placement.split.mode is SplitMode.LAYER,
        )


def memory_for(
    target: Target,
    drafter: Drafter,
    gpu: HardwareProfile,
    rules: MemoryRules,
    host: HostProfile | None,
) -> Memory:
    """Return the account of one accelerator: every rank holds the same, cards of a split do not."""
    held = weight_bytes(target.model, target.precision, target.placement)
    on_host = rules.embedding_on_host and not gpu.unified
    held = _without_embedding(held) if on_host else held
    draft_weights = 0.0
    if drafter.network is not None and drafter.precision is not None:
        placement = drafter.placement
        drafted = weight_bytes(drafter.network, drafter.precision, placement)
        draft_weights = sum((_without_embedding(drafted) if on_host else drafted).values())
    cards = cards_of(target.model, target.placement.split)
    if not target.placement.pipeline.plain:
        cards, draft_cards = _seats(cards, target.placement.pipeline)
    else:
        draft_cards = _draft_cards(drafter, cards)
    return Memory(
        target=target,
        drafter=drafter,
        rules=rules,
        total=gpu.memory_bytes,
        held=held,
        draft_weights=draft_weights,
        cards=cards,
        draft_cards=draft_cards,
        host=host,
    )


def _without_embedding(held: Mapping[Component, float]) -> dict[Component, float]:
    """Return what reaches a card: a table that is also the head counts as the head."""
    return {part: size for part, size in held.items() if part is not Component.EMBEDDING}


def _draft_cards(drafter: Drafter, cards: tuple[Card, ...]) -> tuple[Card, ...]:
    """Return where a drafter lies: a model as its own split says, a head with the logits."""
    if isinstance(drafter.network, ModelSpec):
        draft_cards = cards_of(drafter.network, drafter.placement.split)
        return draft_cards if len(draft_cards) == len(cards) else cards
    return tuple(
        Card(layers=float(card.last), caches=float(card.last), last=card.last) for card in cards
    )


def _seats(cards: tuple[Card, ...], pipeline: Pipeline) -> tuple[tuple[Card, ...], ...]:
    """Return the cards of a target, and what of the drafter lies on each.

    A drafter with a GPU of its own adds a card without a target.

    >>> _, seats = _seats((Card(last=False), Card()), Pipeline(stages=2))
    >>> [seat.layers for seat in seats]
    [0.0, 1.0]
    """
    nothing = Card(layers=0, experts=0, caches=0, embedding=0, head=0, last=False)
    if pipeline.seat is DrafterSeat.OWN:
        return (*cards, nothing), (*(nothing for _ in cards), Card())
    everywhere = pipeline.seat is DrafterSeat.ALL
    seats = (float(card.last or everywhere) for card in cards)
    return cards, tuple(
        Card(layers=seat, caches=seat, last=card.last)
        for card, seat in zip(cards, seats, strict=True)
    )
