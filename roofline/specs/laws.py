"""Kernel laws as data files hold them: their constants, with the evidence behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from roofline.base.schema import Duration, Schema

__all__ = [
    "ROW_EDGES",
    "STRICT",
    "AttentionBlock",
    "AttentionLaw",
    "CollectiveAlgorithm",
    "CollectiveBlock",
    "CollectiveConstants",
    "CollectiveLaw",
    "Evidence",
    "GemmBlock",
    "GemmLaw",
    "LatentBlock",
    "LawBlock",
    "MoeBlock",
    "MoeLaw",
    "SimpleBlock",
    "SimpleLaw",
    "StateBlock",
    "StateLaw",
    "TileSet",
    "VectorKernels",
    "WeightOnly",
]

#: Constants come from data files: unknown names are errors.
STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class SimpleLaw:
    """Five numbers with a physical meaning, for kernels that nobody has tabulated.

    A law measured on one machine may add ``steps``, the staircase c(M) as (rows, factor) pairs, and
    ``small``, the size up to which a library computes a product another way, at ``small_factor``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    floor: float  # launch and tail [s]
    mem_eff: float  # share of the datasheet bandwidth reached
    compute_eff: float = 1.0  # share of the datasheet peak reached
    serial: float = 0.0  # latency per 64 of the reduction dimension [s]
    overlap: float = 4.0  # exponent p: 1 no overlap, infinity the textbook roofline
    steps: tuple[tuple[float, float], ...] = ()  # c at measured rows, straight in log M between
    small: float = 0.0  # products up to this size have no staircase [FLOP]
    small_factor: float = 1.0  # c of these small products


#: Upper ends of the bands of M that the staircase has a factor for; it is 1 above the last.
ROW_EDGES = (16, 32, 64, 128, 256, 512)


TileSet = Literal["split", "wide", "any", "fine", "pair", "static"]


@dataclass(frozen=True, kw_only=True)
class GemmLaw:
    """Constants of one GEMM library on one GPU at one dtype."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    tiles: TileSet = "split"
    floor: float = 3e-6  # launch and tail [s]
    act: float = 0.3  # a pass over the activations (quantisation), in units of 2 M K / BW
    latency: float = 8e-8  # one K step of a tile that waits for its loads [s]
    compute_eff: float = 0.8  # share of the peak that the tensor cores reach inside a tile
    edge: float = 4e-7  # prologue and epilogue of a 128 x 128 tile [s]
    split: float = 3e-6  # fixed cost of a split reduction [s]
    traffic: float = 1.0  # its traffic, in units of 4 M N per slice
    mem_eff: float = 0.85  # share of the bandwidth that the weight stream reaches
    r: float = 2.0  # overlap of loop and stream: 1 none, large the longer of the two
    q: float = 0.5  # how hard waves round up: 1 leaves SMs idle in the last one
    pad: float = 0.1  # extra cost of a tile's empty rows
    l2_fit: float = 0.0  # weights below this stay in L2 between repeats of a benchmark; 0 none [B]
    l2_gain: float = 1.0  # how much faster weights in L2 are read
    c: tuple[float, ...] = (1.0,) * len(ROW_EDGES)  # staircase of the loop, by band of M


@dataclass(frozen=True, kw_only=True)
class AttentionLaw:
    """Constants of one kernel on one GPU, at one cache format and head size."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    floor: float  # launch, scheduling and tail [s]
    mem_eff: float = 0.9  # share of the bandwidth reached
    compute_eff: float = 0.6  # share of the peak; q = 1 tables do not identify it
    p: float = 2.0  # overlap of loads with the serial work
    cta_s: float = 2e-6  # fixed work of one thread block [s]
    token_s: float = 5e-9  # work of one thread block for each token of its split [s]
    max_splits: float = 16.0  # most splits of one sequence
    split_s: float = 0.0  # combining the splits of a long sequence [s]
    row_s: float = 0.0  # work for each query row of each KV head [s]
    l2_gain: float = 1.0  # L2 over memory bandwidth
    window_s: float = 0.0  # extra latency where a window cuts the cache [s]
    window_pad: float = 0.0  # extra tokens visited there
    convert_s: float = 0.0  # a separate pass over the cache, for each token and KV head [s]
    row_tile: int = 64  # query rows of one thread block
    fp8_math: bool = False  # an fp8 cache is multiplied in fp8
    row_costs: tuple[float, ...] = (1.0,)  # factor by band of rows


@dataclass(frozen=True, kw_only=True)
class MoeLaw:
    """Constants of one kernel family on one GPU at one dtype."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    floor: float = 1.5e-5  # launches of the layer's kernels and their tails [s]
    serial: float = 1e-7  # one K step of 64 of both products [s]
    mem_eff: float = 0.9  # share of the bandwidth on weights
    compute_eff: float = 0.6  # share of the peak on padded rows
    p: float = 1.2  # overlap of weight stream and arithmetic: 1 none
    per_active: float = 3e-8  # each expert with rows anywhere [s]
    per_local: float = 3e-8  # each expert with rows on this GPU [s]
    row_passes: float = 1.0  # trips of the rows computed here through memory
    all_passes: float = 1.0  # trips of all T k rows (permute and combine)
    hottest_weight: float = 0.5  # how far the busiest expert is not hidden by the others
    min_width: float = 64.0  # narrowest expert tile
    misaligned: float = 1.0  # slow-down of shards whose width is not a multiple of 16
    l2_saving: float = 0.0  # time saved on weights that a benchmark loop leaves in L2
    steps: tuple[tuple[float, ...], ...] = ()  # staircase by (width band, round(log2 m))
    steps_axis: Literal["rows", "tokens"] = "rows"  # m is T k / E, or T per local expert


CollectiveAlgorithm = Literal["one_shot", "two_shot", "bulk"]


@dataclass(frozen=True, kw_only=True)
class CollectiveConstants:
    """Constants of one all-reduce library among a fixed number of GPUs.

    ``start``: seconds before the first byte counts (launch and barriers) of each algorithm [s].
    ``share``: part of one GPU's link bandwidth it reaches; above 1 where the switch reduces.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    start: dict[CollectiveAlgorithm, float]
    share: dict[CollectiveAlgorithm, float]


@dataclass(frozen=True, kw_only=True)
class CollectiveLaw:
    """Constants of one all-reduce library on one machine, by number of GPUs."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    ranks: dict[int, CollectiveConstants]

    def among(self, count: int) -> CollectiveConstants:
        """Return the constants for ``count`` GPUs, or those of the nearest count by ratio."""
        nearest = min(self.ranks, key=lambda known: (abs(np.log(known / count)), known))
        return self.ranks[nearest]


@dataclass(frozen=True, kw_only=True)
class StateLaw:
    """Constants of one linear-attention or SSM kernel on one GPU."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    floor: float = 4e-6  # launch and tail [s]
    mem_eff: float = 0.8  # share of the bandwidth reached
    r: float = 1.5  # how far the floor hides under the transfer; 1 not at all
    l2_saving: float = 0.0  # time saved on state that a benchmark loop leaves in L2


Cost = Annotated[float, Field(ge=0, le=100)]


class VectorKernels(BaseModel):
    """FLOP that a row costs for each weight, by how wide the weight is stored."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    narrow: Cost  # under 7 bits: unpacked from blocks with scales of scales (Q2_K to Q6_K)
    byte: Cost  # 7 to 10 bits: one scale for a block (Q8_0)
    wide: Cost = 1.0  # 16 bits: a multiply-add, half of it under the loads
    limit: Annotated[int, Field(ge=1, le=512)] = 8  # rows
    tile: Annotated[int, Field(ge=1, le=512)] = 16  # rows of one tile beyond the limit
    tile_rows: Annotated[float, Field(ge=0, le=64)] = 3.5  # what a tile costs, in rows
    #: Exponent with which the rows' arithmetic and the weights' stream combine; 1 adds them.
    overlap: Annotated[float, Field(ge=1, le=8)] = 2.0

    def cost(self, weight: float) -> float:
        """Return the FLOP per weight and row for weights of ``weight`` bytes.

        >>> VectorKernels(narrow=7.0, byte=3.0).cost(0.6)
        7.0
        """
        bits = 8 * weight
        return self.narrow if bits < 7 else self.byte if bits < 10 else self.wide


class WeightOnly(Schema):
    """Products whose weights are stored narrow and multiplied in 16 bits, without a table."""

    #: Share of the wide product's arithmetic that a kernel reaches which unpacks its weights.
    unpacking: float = Field(gt=0, le=1)
    extra: Duration = 0.0  # on top of the wide product's floor [s]
    error: float = Field(ge=0)  # of the time, beside that of the wide product's law
    source: str


class Evidence(Schema):
    """The rows that a law was fitted on, and its errors on shapes that it was not fitted on."""

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


LawBlock = Annotated[
    GemmBlock
    | AttentionBlock
    | LatentBlock
    | MoeBlock
    | CollectiveBlock
    | StateBlock
    | SimpleBlock,
    Field(discriminator="kind"),
]
