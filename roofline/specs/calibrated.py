"""Calibrated laws as a hardware profile stores them: constants with the evidence behind them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roofline.base.schema import Schema
from roofline.specs.laws import AttentionLaw, CollectiveLaw, GemmLaw, MoeLaw, SimpleLaw, StateLaw

__all__ = [
    "AttentionBlock",
    "Block",
    "CollectiveBlock",
    "Evidence",
    "GemmBlock",
    "LatentBlock",
    "MoeBlock",
    "SimpleBlock",
    "StateBlock",
]


class Evidence(Schema):
    """What a law was fitted on and how far off it is on shapes that it was not fitted on."""

    source: str
    date: str
    rows_fitted: int
    rows_held_out: int
    median_error: float  # of |predicted / measured - 1| on held-out shapes
    p90_error: float
    bias: float  # median of predicted / measured - 1
    textbook_median_error: float  # of max(bytes / bandwidth, FLOP / peak) on the same rows
    rejected: dict[str, int] = Field(default_factory=dict)  # rows left out, by reason
    ratio_error: float | None = None  # median error of t(4 M) / t(M) at a fixed shape


class _Block(Schema):
    engine: str
    version: str
    evidence: Evidence


class GemmBlock(_Block):
    """A GEMM library at one dtype (``int8-wo``: weight-only)."""

    kind: Literal["gemm"]
    dtype: str
    law: GemmLaw


class AttentionBlock(_Block):
    """A decode-attention kernel at one cache format and head size."""

    kind: Literal["attention"]
    dtype: Literal["bf16", "fp8"]
    kernel: str
    head_dim: int
    #: Largest query heads per KV head that the fast path takes; None where none was found.
    max_group: int | None = None
    law: AttentionLaw


class LatentBlock(_Block):
    """An absorbed-MLA decode kernel at one cache format."""

    kind: Literal["mla"]
    dtype: Literal["bf16", "fp8"]
    kernel: str
    law: AttentionLaw


class MoeBlock(_Block):
    """A family of expert kernels at one dtype."""

    kind: Literal["moe"]
    dtype: str
    kernel: str
    law: MoeLaw


class CollectiveBlock(_Block):
    """An all-reduce library."""

    kind: Literal["allreduce"]
    kernel: str
    law: CollectiveLaw


class StateBlock(_Block):
    """A linear-attention or SSM decode kernel."""

    kind: Literal["ssm"]
    dtype: str
    kernel: str
    law: StateLaw


class SimpleBlock(_Block):
    """The five-number law of one kind of kernel at one dtype, measured on the profile's machine.

    ``op`` names the one kernel it prices; without it, every kernel of the kind.
    """

    kind: Literal["simple"]
    covers: Literal["gemm", "batched-gemm", "attention", "mla", "ssm", "moe", "elementwise"]
    dtype: str
    kernel: str
    op: str | None = None
    law: SimpleLaw


Block = Annotated[
    GemmBlock
    | AttentionBlock
    | LatentBlock
    | MoeBlock
    | CollectiveBlock
    | StateBlock
    | SimpleBlock,
    Field(discriminator="kind"),
]
