"""Mixers with a fixed state per sequence instead of a cache that grows."""

from __future__ import annotations

from typing import Literal

from roofline.base.schema import PositiveInt, Schema
from roofline.quantization import DType

__all__ = ["GatedDeltaNet", "KimiDeltaAttention", "LightningAttention", "Mamba2", "StateMixer"]


class _StateMixer(Schema):
    """A mixer that keeps a fixed state per sequence instead of a cache that grows."""

    #: Format of the recurrent state between steps.
    state_dtype: DType = DType.FP32

    @property
    def window(self) -> None:
        """Nothing is windowed where nothing is cached."""
        return


class GatedDeltaNet(_StateMixer):
    """A linear mixer (GDN): a fixed state per sequence instead of a cache that grows.

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
        """FLOP per state element and token: decay, two products with keys, one with a query."""
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
        """FLOP per state element and token: decay, outer product with B, product with C."""
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
        """FLOP per state element and token: decay, outer product, product with a query."""
        return 5.0


class KimiDeltaAttention(_StateMixer):
    """A delta rule with a decay for each channel (KDA): ``head_dim`` squared numbers per head."""

    kind: Literal["kda"] = "kda"
    num_heads: PositiveInt
    head_dim: PositiveInt
    conv_width: PositiveInt
    #: The output gate is one full projection instead of two of rank ``head_dim``.
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
        """FLOP per state element and token: decay, two products with keys, one with a query."""
        return 8.0


StateMixer = GatedDeltaNet | Mamba2 | LightningAttention | KimiDeltaAttention
