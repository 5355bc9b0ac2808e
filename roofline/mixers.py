"""What mixes tokens in a layer: softmax attention in its forms; `state_mixers` has the rest."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from roofline.base.schema import PositiveInt, Schema
from roofline.state_mixers import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba2,
    StateMixer,
)

__all__ = [
    "Attention",
    "CompressedAttention",
    "CrossAttention",
    "GatedDeltaNet",
    "GroupedQueryAttention",
    "Indexer",
    "KimiDeltaAttention",
    "LatentAttention",
    "LightningAttention",
    "Mamba2",
    "NoAttention",
    "StateMixer",
    "WindowKind",
]

WindowKind = Literal["sliding", "chunked"]
Count = Annotated[int, Field(ge=0, le=2**50)]


class Indexer(Schema):
    """A small scorer that picks the tokens a sparse attention reads.

    It caches one key of ``head_dim`` for each token and compares ``num_heads`` small queries with
    every one of them.
    """

    num_heads: PositiveInt
    head_dim: PositiveInt


class GroupedQueryAttention(Schema):
    """Softmax attention whose query heads share KV heads (MHA: equal; MQA: one KV head)."""

    kind: Literal["gqa"] = "gqa"
    num_heads: PositiveInt
    num_kv_heads: PositiveInt
    head_dim: PositiveInt
    #: Width of a value, where it differs from that of a key.
    v_head_dim: PositiveInt | None = None
    #: Keys serve as values too: no V projection (the cache still holds both).
    shared_kv: bool = False
    #: Width of what the Q, K and V projections read; None is the model's hidden size.
    input_size: PositiveInt | None = None
    #: Tokens a row attends to; None is the whole context.
    window: PositiveInt | None = None
    window_kind: WindowKind = "sliding"
    #: Tokens a row picks from the whole context (sparse attention); None is all of them.
    top_k: PositiveInt | None = None
    indexer: Indexer | None = None
    qk_norm: bool = False
    #: Whether one norm vector serves each head, or one the whole projection of a layer.
    qk_norm_width: Literal["head", "layer"] = "head"
    #: The output is gated by a second projection of the query's width.
    output_gate: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    #: One learned logit per query head.
    sinks: bool = False

    @model_validator(mode="after")
    def _heads_share_kv(self) -> GroupedQueryAttention:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads {self.num_heads} must be a multiple of num_kv_heads {self.num_kv_heads}"
            )
        return self

    @property
    def group_size(self) -> int:
        """Query heads per KV head, G."""
        return self.num_heads // self.num_kv_heads

    @property
    def value_dim(self) -> int:
        """Width of a value."""
        return self.v_head_dim or self.head_dim


class LatentAttention(Schema):
    """Multi-head latent attention (MLA): one compressed KV vector per token for all heads."""

    kind: Literal["mla"] = "mla"
    num_heads: PositiveInt
    #: Rank of the query compression; None is none.
    q_lora_rank: PositiveInt | None = None
    kv_lora_rank: PositiveInt
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: PositiveInt
    v_head_dim: PositiveInt
    #: Width of what the projections into attention read; None is the model's hidden size.
    input_size: PositiveInt | None = None
    #: The output is gated by a projection of the hidden state.
    output_gate: bool = False
    #: Tokens a row reads (sparse attention, DSA); None is the whole context.
    top_k: PositiveInt | None = None
    #: The scorer this layer owns; a layer with ``top_k`` and none reuses an earlier layer's picks.
    indexer: Indexer | None = None

    @property
    def key_width(self) -> int:
        """Elements of the cached vector that a query is compared with (512 + 64 in DeepSeek)."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def value_width(self) -> int:
        """Elements of the cached vector that are summed up (512 in DeepSeek)."""
        return self.kv_lora_rank

    @property
    def window(self) -> None:
        """Latent attention always reads the whole context."""
        return


class CompressedAttention(Schema):
    """DeepSeek-V4's attention: a short window, and the context compressed ``ratio`` to one.

    One vector of ``head_dim`` serves as key and value of all heads. ``ratio`` 0 has the window
    only. With an ``indexer`` the ``top_k`` best compressed entries are read, without all of them.
    """

    kind: Literal["compressed"] = "compressed"
    num_heads: PositiveInt
    head_dim: PositiveInt
    q_lora_rank: PositiveInt
    o_lora_rank: PositiveInt
    o_groups: PositiveInt
    window: PositiveInt
    ratio: Count = 0
    #: Overlapping compression: each entry is made of two runs of ``ratio`` tokens.
    overlap: bool = False
    indexer: Indexer | None = None
    top_k: PositiveInt | None = None

    @property
    def compressor_width(self) -> int:
        """Outputs of each of the compressor's two projections."""
        return self.head_dim * (2 if self.overlap else 1) if self.ratio else 0


class CrossAttention(Schema):
    """Attention to the tokens of an image; its cache does not grow with the generated text."""

    kind: Literal["cross"] = "cross"
    num_heads: PositiveInt
    num_kv_heads: PositiveInt
    head_dim: PositiveInt
    qk_norm: bool = False
    #: Image tokens in the cache; 0 is a conversation without an image.
    media_tokens: Count = 0

    @property
    def window(self) -> None:
        """An image is read whole."""
        return


class NoAttention(Schema):
    """A layer that does not mix tokens."""

    kind: Literal["none"] = "none"

    @property
    def window(self) -> None:
        """Nothing is cached."""
        return


Attention = (
    GroupedQueryAttention
    | LatentAttention
    | CompressedAttention
    | CrossAttention
    | NoAttention
    | StateMixer
)
