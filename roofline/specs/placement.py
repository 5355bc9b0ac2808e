"""How a network lies on accelerators, and the batches, contexts and draft lengths it is run at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array

__all__ = [
    "Chunks",
    "DrafterSeat",
    "Grid",
    "Pipeline",
    "Placement",
    "Routing",
    "Split",
    "SplitMode",
    "StateHandling",
    "StateRows",
    "VerifyAttention",
    "share_of_passes",
    "whole_chunks",
]


class VerifyAttention(StrEnum):
    """How a verify pass reads the KV cache for its q rows per sequence."""

    KV_ONCE = "kv_once"  # once for all rows
    TILE = "tile"  # once, but arithmetic comes in whole tiles of query rows
    HEAD_TILE = "head_tile"  # once, but by uncut blocks: whole tiles of one query head's rows each
    KV_PER_TILE = "kv_per_tile"  # once for every tile of query rows
    KV_PER_QUERY = "kv_per_query"  # once for every row: the draft tokens share nothing


class StateHandling(StrEnum):
    """What a verify pass does so that rejected rows can be undone in a recurrent state."""

    SNAPSHOTS = "snapshots"  # read the state once, write one copy after each row
    REPLAY = "replay"  # read and write it once, and replay the accepted rows' inputs


@dataclass(frozen=True, kw_only=True, slots=True)
class StateRows:
    """What several rows of a sequence cost where one block goes through them one after the other.

    t = floor + q ``turn`` + bytes / ``rate``; ``copies`` of the state move besides the 1 + q.
    """

    turn: float  # one row of one layer [s]
    rate: float  # states read and written, whatever the memory's bandwidth [B/s]
    copies: float = 0.0  # states moved to put the accepted one in its place


class SplitMode(StrEnum):
    """How the cards of one machine share a network, by llama.cpp's names."""

    LAYER = "layer"  # each card has whole layers; a pass goes through them in turn
    ROW = "row"  # each has rows of every matrix; one card has everything else
    TENSOR = "tensor"  # tensor parallel: heads and caches too


class DrafterSeat(StrEnum):
    """Where a drafter lies beside a target that is divided into pipeline stages."""

    LAST = "last"  # on the GPUs of the last stage, which has the hidden states and the head
    ALL = "all"  # a copy on the GPUs of every stage, which all draft the same
    OWN = "own"  # on a GPU of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """The stages that an engine divides a network into, each on ``tp`` ranks. Experimental."""

    stages: int = 1
    #: Micro-batches under way at once; each is an equal part of the sequences.
    in_flight: int = 1
    #: Nodes that the ranks lie on.
    nodes: int = 1
    seat: DrafterSeat = DrafterSeat.LAST

    @property
    def plain(self) -> bool:
        """Whether there is one stage with the drafter beside it: nothing crosses a link."""
        return self.stages == 1 and self.seat is not DrafterSeat.OWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """A network over the cards of one machine, and the experts that stay with its processor.

    Of ``tensor`` only the name stands here: its work is that of ``Placement.tp``.
    """

    mode: SplitMode = SplitMode.LAYER
    cards: int = 1
    #: Shares of the layers, card by card; empty is even.
    shares: tuple[float, ...] = ()
    #: Layers of each card where they are pipeline stages; empty is dealt out by shares.
    layers: tuple[int, ...] = ()
    #: Number of layers, from the first, whose experts lie in the processor's memory.
    cpu_layers: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """How tokens choose experts. Both default to the textbook case: independent and uniform."""

    #: Exponent s of expert popularity, proportional to rank^-s; 0 is uniform.
    skew: float = 0.0
    #: Probability that a draft token chooses the experts of the token before it in its sequence.
    correlation: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """How one network is divided over accelerators."""

    tp: int = 1
    #: Groups of ranks that experts are placed on; a divisor of ``tp``.
    ep: int = 1
    #: Groups of ranks that each take a part of the sequences; a divisor of ``tp``. Each group holds
    #: a copy of everything but the routed experts, divided over its ranks.
    dp: int = 1
    routing: Routing = field(default_factory=Routing)
    verify_attention: VerifyAttention = VerifyAttention.KV_ONCE
    #: How a plain pass reads the cache: ``kv_once``, or ``head_tile`` where the engine's kernel
    #: puts the heads of a group into one tile only over a whole context.
    plain_attention: VerifyAttention = VerifyAttention.KV_ONCE
    #: Whether nobody has read or measured how a verify pass reads the cache.
    assumed_reads: bool = False
    #: Whether each warp of a verify kernel converts a narrow cache for its own rows of queries.
    own_warps: bool = False
    #: How a verify pass keeps the states of linear mixers for its q rows.
    state_handling: StateHandling = StateHandling.SNAPSHOTS
    #: What several rows of a recurrent state cost; None is the kernel's own law, row by row.
    state_rows: StateRows | None = None
    #: Query rows per attention tile, used by ``tile``, ``head_tile`` and ``kv_per_tile``.
    tile_rows: int = 128
    #: Cards of one machine without a link of their own, and experts beside its processor.
    split: Split = field(default_factory=Split)
    #: Stages of an engine's pipeline, and where the drafter lies.
    pipeline: Pipeline = field(default_factory=Pipeline)

    @property
    def cards(self) -> int:
        """Number of accelerators that the network lies on, linked or in one machine.

        A drafter with a GPU of its own counts with its target.

        >>> Placement(tp=8).cards, Placement(split=Split(cards=2)).cards
        (8, 2)
        >>> Placement(tp=2, pipeline=Pipeline(stages=4)).cards
        8
        """
        own = self.pipeline.seat is DrafterSeat.OWN
        return max(self.tp * self.pipeline.stages, self.split.cards) + own

    @property
    def attention_tp(self) -> int:
        """Ranks that everything but the routed experts is divided over: tp / dp."""
        return self.tp // self.dp

    def local_batch(self, batch: Array) -> Array:
        """Return the sequences of the fullest group, for which the others wait: ceil(B / dp).

        >>> float(Placement(tp=8, dp=8).local_batch(30.0))
        4.0
        """
        return batch if self.dp == 1 else np.ceil(np.asarray(batch) / self.dp)


def whole_chunks(*, per_step: Array, budget: Array, context: Array) -> tuple[Array, Array]:
    """Return the prompt tokens of a pass that has some, and the share of the passes that do.

    An engine reads a prompt in chunks as large as its budget C allows, and no prompt is longer than
    the context L: c = max(N, min(C, L)) tokens in N / c of the passes, N = ``per_step`` on the mean
    [tokens]. Arrays broadcast. 512 tokens a step are 2,048 in every fourth pass:

    >>> [float(x) for x in whole_chunks(per_step=512, budget=2048, context=8192)]
    [2048.0, 0.25]
    """
    chunk = np.maximum(per_step, np.minimum(budget, context))
    return chunk, per_step / chunk


def share_of_passes(*, sequences: Array, hit_rate: float, most: Array) -> NDArray[np.float64]:
    """Return the share of passes in which at most ``most`` sequences find a draft.

    sum over k = 0 ... floor(m) of C(n, k) h^k (1 - h)^(n - k): each of n sequences finds one with
    chance h, whatever the others do. Arrays broadcast. Two of three sequences at the most, h = 0.5:

    >>> float(share_of_passes(sequences=3.0, hit_rate=0.5, most=2.0))  # 1 - 1 / 8
    0.875
    """
    n, limit = np.broadcast_arrays(np.asarray(sequences, dtype=np.float64), np.floor(most))
    if hit_rate <= 0:
        return np.where(limit >= 0, 1.0, 0.0)
    share = np.where(limit >= n, 1.0, 0.0)
    open_ones = (limit >= 0) & (limit < n) & (hit_rate < 1)
    if not np.any(open_ones):
        return share
    trials, which = np.unique(n[open_ones], return_inverse=True)
    hits = np.arange(trials.max() + 1)
    factorial = np.concatenate([[0.0], np.cumsum(np.log(hits[1:]))])  # logarithms
    misses = np.maximum(trials[:, None] - hits, 0).astype(int)
    log_share = (
        factorial[trials.astype(int)][:, None]
        - factorial
        - factorial[misses]
        + hits * np.log(hit_rate)
        + misses * np.log1p(-hit_rate)
    )
    up_to = np.cumsum(np.where(hits <= trials[:, None], np.exp(log_share), 0.0), axis=1)
    share[open_ones] = np.minimum(up_to[which, limit[open_ones].astype(int)], 1.0)
    return share


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunks:
    """The prompt chunks of a pass: ``number`` of ``tokens`` each, after ``before`` in the cache.

    Arrays have the shape of a grid's prompt tokens.
    """

    number: Array
    tokens: Array
    before: Array

    def only_where(self, here: Array) -> Chunks:
        """Return them with none elsewhere."""
        return replace(self, number=np.where(here, self.number, 0.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Batches, contexts and draft lengths, each along an axis of its own.

    Shapes: batch (nB, 1, 1), context (1, nL, 1), draft_length (1, 1, nD). A quantity that depends
    on two of them keeps the shape of these two; broadcasting joins them at the end.
    """

    batch: NDArray[np.float64]
    context: NDArray[np.float64]
    draft_length: NDArray[np.float64]
    #: Rows per sequence that a tree's verify pass runs; None is a chain, 1 + D.
    verify_width: int | None = None
    #: Prompt tokens in the same pass as the decoding rows: one number, or with a single context
    #: several along its axis, shape (1, n, 1).
    prefill_tokens: Array = 0.0
    #: Prompt tokens of the fullest data-parallel group; None spreads them evenly.
    prefill_fullest: Array | None = None
    #: The share of sequences that have a draft to verify in a pass: one for all positions (a lookup
    #: finds a draft or none), or by position (drafts stop early), where the last one goes on.
    hit_rate: float | tuple[float, ...] = 1.0
    #: Whether the drafter makes no pass beyond the one that it stopped at.
    drafting_stops: bool = False
    #: The share of the passes that those prompt tokens ride in; the others decode only.
    prefill_share: Array = 1.0
    #: What those tokens are where prompts are known; None prices their rows and nothing else.
    chunks: Chunks | None = None

    @classmethod
    def of(
        cls,
        batches: Sequence[int],
        contexts: Sequence[int],
        draft_lengths: Sequence[int],
        *,
        verify_width: int | None = None,
        prefill_tokens: Array = 0.0,
        prefill_fullest: Array | None = None,
        prefill_share: Array = 1.0,
        chunks: Chunks | None = None,
        hit_rate: float | tuple[float, ...] = 1.0,
        drafting_stops: bool = False,
    ) -> Grid:
        """Lay three lists out along their axes."""
        return cls(
            batch=np.asarray(batches, dtype=np.float64)[:, None, None],
            context=np.asarray(contexts, dtype=np.float64)[None, :, None],
            draft_length=np.asarray(draft_lengths, dtype=np.float64)[None, None, :],
            verify_width=verify_width,
            prefill_tokens=prefill_tokens,
            prefill_fullest=prefill_fullest,
            prefill_share=prefill_share,
            chunks=chunks,
            hit_rate=hit_rate,
            drafting_stops=drafting_stops,
        )

    @property
    def passes(self) -> tuple[tuple[Array, Grid], ...]:
        """The kinds of pass and their shares: those that decode only, then those with prompts.

        Where prompts ride in every pass the first are priced with them as well, and are none.
        """
        if np.all(self.prefill_share == 1):
            return ((1.0, self),)
        always = self.prefill_share == 1
        fullest = self.prefill_fullest
        decoding = replace(
            self,
            prefill_tokens=np.where(always, self.prefill_tokens, 0.0),
            prefill_fullest=None if fullest is None else np.where(always, fullest, 0.0),
            prefill_share=1.0,
            chunks=None if self.chunks is None else self.chunks.only_where(always),
        )
        return (
            (1 - self.prefill_share, decoding),
            (self.prefill_share, replace(self, prefill_share=1.0)),
        )

    def local_extra_rows(self, placement: Placement) -> Array:
        """Return the prompt tokens in the pass of the fullest data-parallel group."""
        if self.prefill_fullest is None:
            return self.prefill_tokens / placement.dp
        return self.prefill_fullest

    @property
    def rows(self) -> NDArray[np.float64]:
        """Mean rows per sequence in the verify pass, shape (1, 1, nD).

        q = 1 + t_1 + ... + t_D of a chain, t_i the share of sequences with a draft i to verify; 1 +
        t_1 (W - 1) of a tree of W rows. Shares are 1 but for lookups, which may find nothing to
        draft, and for drafts that stop early. 4 drafts in a quarter of the sequences, and drafts of
        which every second one ends after its first token:

        >>> Grid.of((8,), (4096,), (0, 4), hit_rate=0.25).rows.ravel().tolist()
        [1.0, 2.0]
        >>> Grid.of((8,), (4096,), (0, 1, 4), hit_rate=(1.0, 0.5)).rows.ravel().tolist()
        [1.0, 2.0, 3.5]
        """
        if self.verify_width is None:
            return 1 + self._over_positions(self.position_shares, self.draft_length)
        first = self.position_shares[0]
        return np.where(self.draft_length > 0, 1 + first * (self.verify_width - 1.0), 1.0)

    @property
    def position_shares(self) -> tuple[float, ...]:
        """The share of sequences with a draft to verify, by position; the last one goes on."""
        return self.hit_rate if isinstance(self.hit_rate, tuple) else (self.hit_rate,)

    @property
    def further_passes(self) -> NDArray[np.float64]:
        """Mean passes of a chain's drafter after the first, shape (nB or 1, 1, nD).

        D - 1, and where drafting stops sum_{i < D} 1 - (1 - t_i)^B: a pass runs while any of B
        sequences drafts on, here independently. Half of them end after their first token:

        >>> asked = Grid.of((1, 2), (64,), (0, 1, 3), hit_rate=(0.5,), drafting_stops=True)
        >>> asked.further_passes[:, 0].tolist()
        [[0.0, 0.0, 1.0], [0.0, 0.0, 1.5]]
        """
        further = np.maximum(self.draft_length - 1, 0)
        if not self.drafting_stops:
            return further
        shares = [1 - (1 - share) ** self.batch for share in self.position_shares]
        return self._over_positions(shares, further)

    @staticmethod
    def _over_positions(shares: Sequence[Array], length: Array) -> NDArray[np.float64]:
        """Return t_1 + ... + t_n at each length n; the last share goes on."""
        each = (share * np.clip(length - i, 0, 1) for i, share in enumerate(shares[:-1]))
        return np.asarray(sum(each) + shares[-1] * np.maximum(length - (len(shares) - 1), 0))

    def share_within(self, rows: float, placement: Placement) -> NDArray[np.float64]:
        """Return the share of passes with no more than ``rows`` on one rank.

        Each hit of a lookup adds D rows, or W - 1 of a tree. With h = 1 it is 0 or 1. Drafts that
        stop early differ in length: the sum over sequences is taken to be normal.
        """
        sequences = placement.local_batch(self.batch)
        shares = self.position_shares
        if self.verify_width is None and len(set(shares)) > 1:
            spare = rows - sequences - self.local_extra_rows(placement)
            return self._sums_within(spare, sequences)
        each = self.draft_length
        if self.verify_width is not None:
            each = np.where(each > 0, self.verify_width - 1.0, 0.0)
        left = rows - sequences - self.local_extra_rows(placement)
        most = np.where(each > 0, left / np.maximum(each, 1.0), np.where(left >= 0, np.inf, -1.0))
        return share_of_passes(sequences=sequences, hit_rate=shares[0], most=most)

    def _sums_within(self, most: Array, sequences: Array) -> NDArray[np.float64]:
        """Return the share of passes in which all drafts together are at most so long.

        A draft of length K has E[K] = sum t_i and E[K^2] = sum (2 i - 1) t_i.
        """
        from scipy.special import ndtr

        shares = self.position_shares
        at = np.arange(1, int(self.draft_length.max()) + 1)
        ran = np.array([shares[min(i, len(shares) - 1)] for i in range(len(at))])
        verified = at <= self.draft_length[..., None]
        mean = np.where(verified, ran, 0.0).sum(axis=-1)
        square = np.where(verified, (2 * at - 1) * ran, 0.0).sum(axis=-1)
        deviation = np.sqrt(sequences * np.maximum(square - mean**2, 1e-12))
        return np.asarray(ndtr((most + 0.5 - sequences * mean) / deviation))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(batches, contexts or numbers of prompt tokens, draft lengths)."""
        middle = np.broadcast_shapes(self.context.shape, np.shape(self.prefill_tokens))[1]
        return self.batch.shape[0], middle, self.draft_length.shape[2]
