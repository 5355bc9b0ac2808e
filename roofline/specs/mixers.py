"""What mixes tokens in a layer: the forms of softmax attention, and mixers with a state."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from roofline.base.schema import PositiveInt, Schema
from roofline.specs.formats import DType

__all__ = [
    "Attention",
    "CompressedAttention",
    "Count",
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


class _StateMixer(Schema):
    """A mixer that keeps a fixed state per sequence instead of a cache that grows."""

    #: Format of the recurrent state between steps.
    state_dtype: DType = DType.FP32

    @property
    def window(self) -> None:
        """Nothing is windowed where nothing is cached."""
        return


class GatedDeltaNet(_StateMixer):
    """A gated delta rule with one decay per head (GDN).

    Its recurrent state is one ``key_head_dim`` x ``value_head_dim`` matrix for each value head, in
    fp32; a short convolution keeps the last ``conv_width`` - 1 inputs.
    """

    kind: Literal["gdn"] = "gdn"
    num_key_heads: PositiveInt
    num_value_heads: PositiveInt
    key_head_dim: PositiveInt
    value_head_dim: PositiveInt
    conv_width: PositiveInt

    @property
    def channels(self) -> int:
        """Channels that pass the convolution: queries, keys and values."""
        keys = self.num_key_heads * self.key_head_dim
        return 2 * keys + self.value_width

    @property
    def value_width(self) -> int:
        """Width of the mixer's output."""
        return self.num_value_heads * self.value_head_dim

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state."""
        return self.value_width * self.key_head_dim

    @property
    def state_flops(self) -> float:
        """FLOP per state element and token: decay, two products with keys, one with a query.

        Four multiply-adds of 2 FLOP; the decay, a bare multiplication, is counted as one.
        """
        return 8.0


class Mamba2(_StateMixer):
    """A state-space mixer (Mamba-2): each head keeps ``head_dim`` x ``state_size`` numbers."""

    kind: Literal["mamba2"] = "mamba2"
    num_heads: PositiveInt
    head_dim: PositiveInt
    num_groups: PositiveInt
    state_size: PositiveInt
    conv_width: PositiveInt
    conv_bias: bool = True

    @property
    def value_width(self) -> int:
        """Width of the mixer's output."""
        return self.num_heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels that pass the convolution: inputs and the groups' B and C."""
        return self.value_width + 2 * self.num_groups * self.state_size

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state."""
        return self.value_width * self.state_size

    @property
    def state_flops(self) -> float:
        """FLOP per state element and token: decay, outer product with B, product with C.

        Three multiply-adds of 2 FLOP; the decay, a bare multiplication, is counted as one.
        """
        return 6.0


class LightningAttention(_StateMixer):
    """Linear attention with a fixed decay (MiniMax): one ``head_dim`` squared matrix per head."""

    kind: Literal["lightning"] = "lightning"
    num_heads: PositiveInt
    head_dim: PositiveInt

    @property
    def value_width(self) -> int:
        """Width of the mixer's output."""
        return self.num_heads * self.head_dim

    @property
    def channels(self) -> int:
        """There is no convolution."""
        return 0

    @property
    def conv_width(self) -> int:
        """There is no convolution."""
        return 1

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state."""
        return self.value_width * self.head_dim

    @property
    def state_flops(self) -> float:
        """FLOP per state element and token: decay, outer product, product with a query.

        One multiplication, whose factor is fixed, and two multiply-adds of 2 FLOP.
        """
        return 5.0


class KimiDeltaAttention(_StateMixer):
    """A delta rule with a decay for each channel (KDA): ``head_dim`` squared numbers per head."""

    kind: Literal["kda"] = "kda"
    num_heads: PositiveInt
    head_dim: PositiveInt
    conv_width: PositiveInt
    #: Whether the output gate is one full projection instead of two of rank ``head_dim``.
    full_rank_gate: bool = True

    @property
    def value_width(self) -> int:
        """Width of the mixer's output."""
        return self.num_heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels that pass the convolutions: queries, keys and values."""
        return 3 * self.value_width

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state."""
        return self.value_width * self.head_dim

    @property
    def state_flops(self) -> float:
        """FLOP per state element and token: decay, two products with keys, one with a query.

        Four multiply-adds of 2 FLOP; the decay, a bare multiplication, is counted as one.
        """
        return 8.0


StateMixer = GatedDeltaNet | Mamba2 | LightningAttention | KimiDeltaAttention


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
