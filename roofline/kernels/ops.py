"""One kernel and how to make the common ones: GEMM, element-wise, communication."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from roofline.base.numbers import Array
from roofline.kernels import formulas
from roofline.kernels.matrices import Linear
from roofline.specs.formats import DType, Precision, bytes_per_element
from roofline.specs.network import NetworkSpec
from roofline.specs.placement import Placement, StateRows

__all__ = [
    "AttentionShape",
    "CollectiveShape",
    "GemmShape",
    "Kind",
    "MoeShape",
    "Op",
    "Part",
    "Pass",
    "PromptShape",
    "Shape",
    "all_reduce",
    "communication",
    "elementwise",
    "gemm",
]


class GemmShape(NamedTuple):
    """An M x K by K x N product; bytes per element of weights and activations [B]."""

    m: Array
    n: Array
    k: Array
    weight: float
    activation: float


class AttentionShape(NamedTuple):
    """Attention of ``rows`` = G q query rows over each of ``pairs`` = batch x KV heads caches."""

    pairs: Array
    rows: Array
    length: Array  # tokens read, after a window
    context: Array  # tokens cached
    kv_width: int  # cached elements per token and KV head
    mac_width: int  # multiply-adds per row and token
    kv: Array  # bytes per cached element [B]
    group: int = 0  # query heads per KV head; 0: one query each, so as many as rows
    work: Array = 0  # rows computed, where those are whole tiles; 0: no more than ``rows``
    blocks: Array = 0  # thread blocks of each cache, where none is cut; 0: as the law says
    own_warps: bool = False  # each warp converts a narrow cache for its own rows


class PromptShape(NamedTuple):
    """Causal attention, or a recurrence, of many rows of a prompt at once."""

    keys: Array  # keys that the last row sees: one block goes through them in turn
    blocks: Array = 0.0  # blocks of a recurrence, of which each SM takes one at a time


class MoeShape(NamedTuple):
    """One rank's routed experts; ``tokens`` are those of all ranks together.

    Plain numbers for one model, arrays where many shapes are priced at once.
    """

    tokens: Array
    top_k: Array
    experts: Array
    ranks: Array  # expert-parallel groups
    hidden: Array
    width: Array  # of this rank's shard of one expert
    matrices: Array  # 3 gated, 2 plain
    weight: Array  # bytes per weight, scales included [B]
    distinct: Array  # experts with work on this rank
    awake: Array  # experts with work on all ranks
    rows: Array  # token-expert pairs computed here
    hottest: Array  # rows of the busiest expert
    padded: Array  # rows when every expert's are padded to 16


class CollectiveShape(NamedTuple):
    """A collective of ``payload`` bytes, the whole tensor of one rank, among ``ranks``."""

    payload: Array
    ranks: int


Shape: TypeAlias = GemmShape | AttentionShape | PromptShape | MoeShape | CollectiveShape


class Kind(StrEnum):
    """A family of kernels that share one law."""

    GEMM = "gemm"
    BATCHED_GEMM = "batched-gemm"
    ATTENTION = "attention"
    MLA = "mla"
    STATE = "ssm"
    MOE = "moe"
    ELEMENTWISE = "elementwise"
    ALL_REDUCE = "allreduce"
    ALL_GATHER = "allgather"
    ALL_TO_ALL = "alltoall"
    REDUCE_SCATTER = "reducescatter"
    COPY = "copy"  # over a card's slot, through the host
    CPU_MOE = "cpu-moe"  # experts beside the host's processor


class Part(StrEnum):
    """A share of the step, as `breakdown_ms` reports it."""

    LINEAR = "linear"
    ATTENTION = "attention"
    MOE = "moe"
    LM_HEAD = "lm_head"
    COMMUNICATION = "communication"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One kernel of a pass, launched ``count`` times.

    ``flops`` and ``bytes`` are those of one launch on one accelerator (bytes over the link for
    communication); ``padding`` is how many FLOP are computed for each of ``flops``, the useful
    ones. ``rows`` is M of a GEMM, the mean rows of an awake expert, G q of attention.
    ``shape`` is what the kernel's own law needs, where it has one.
    """

    name: str
    kind: Kind
    part: Part
    compute: DType
    storage: DType
    flops: Array
    bytes: Array
    rows: Array
    count: int = 1
    shape: Shape | None = None
    head_dim: int = 0
    padding: Array = 1.0
    #: Whether it is only assumed how several rows read the cache.
    assumed_reads: bool = False
    #: Times that the kernel's loop runs one after another (rows of a recurrent state).
    turns: Array = 1.0
    #: What more than one turn costs, where the kernel's law does not say.
    state_rows: StateRows | None = None

    @property
    def computed_flops(self) -> Array:
        """Return the FLOP of one launch with those of the empty rows of its tiles."""
        return self.flops * self.padding


class Pass(NamedTuple):
    """What every kernel of one pass has in common. ``rows`` are per sequence."""

    network: NetworkSpec
    precision: Precision
    placement: Placement
    batch: Array
    rows: Array
    context: Array
    prefill: bool = False
    #: Rows beyond B q that the layers run as well: prompt tokens, padding to a captured graph.
    extra_rows: Array = 0.0
    #: Sequences and extra rows of all data-parallel groups together, where there are several.
    all_groups: tuple[Array, Array] | None = None

    @property
    def tokens(self) -> Array:
        """Rows of all sequences together, T = B q, and the extra rows."""
        return self.batch * self.rows + self.extra_rows

    @property
    def over_all_groups(self) -> Pass:
        """The pass as the routed experts see it: with the rows of every data-parallel group."""
        if self.all_groups is None:
            return self
        batch, extra_rows = self.all_groups
        return self._replace(batch=batch, extra_rows=extra_rows, all_groups=None)

    @property
    def base_bytes(self) -> float:
        """Bytes of one value between the products [B]."""
        return bytes_per_element(self.precision.base)


def gemm(state: Pass, linear: Linear, part: Part, rows: Array) -> Op:
    """Return the product of ``rows`` rows with a matrix."""
    weight = state.precision.weights[linear.component]
    compute = state.precision.activations[linear.component]
    return Op(
        name=linear.name,
        kind=Kind.GEMM,
        part=part,
        compute=compute,
        storage=weight,
        flops=formulas.gemm_flops(m=rows, n=linear.outputs, k=linear.inputs),
        bytes=formulas.gemm_bytes(
            m=rows,
            n=linear.outputs,
            k=linear.inputs,
            weight=bytes_per_element(weight),
            activation=bytes_per_element(compute),
            output=state.base_bytes,
        ),
        rows=rows,
        shape=GemmShape(
            m=rows,
            n=linear.outputs,
            k=linear.inputs,
            weight=bytes_per_element(weight),
            activation=bytes_per_element(compute),
        ),
    )


def elementwise(state: Pass, name: str, values_per_row: float, rows: Array) -> Op:
    """Return a kernel that streams ``values_per_row`` base-format values for each row."""
    return Op(
        name=name,
        kind=Kind.ELEMENTWISE,
        part=Part.OTHER,
        compute=state.precision.base,
        storage=state.precision.base,
        flops=0.0,
        bytes=rows * values_per_row * state.base_bytes,
        rows=rows,
    )


def communication(
    state: Pass,
    name: str,
    *,
    sent: Array,
    payload: Array,
    kind: Kind = Kind.ALL_REDUCE,
    ranks: int | None = None,
) -> Op:
    """Return a collective in which each rank moves ``sent`` of a ``payload`` in all [B].

    Among ``ranks``, by default those that attention is divided over.
    """
    return Op(
        name=name,
        kind=kind,
        part=Part.COMMUNICATION,
        compute=state.precision.base,
        storage=state.precision.base,
        flops=0.0,
        bytes=sent,
        rows=state.tokens,
        shape=CollectiveShape(payload=payload, ranks=ranks or state.placement.attention_tp),
    )


def all_reduce(state: Pass, name: str) -> list[Op]:
    """Return the all-reduce of one hidden state per row, if there is more than one rank."""
    ranks = state.placement.attention_tp
    if ranks == 1:
        return []
    payload = state.tokens * state.network.hidden_size * state.base_bytes
    sent = formulas.all_reduce_bytes(payload=payload, ranks=ranks)
    return [communication(state, name, sent=sent, payload=payload)]
