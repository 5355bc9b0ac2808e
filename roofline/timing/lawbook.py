"""Which law prices a kernel: calibrated on this part, on a relative, or a stated prior."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import hypot, log
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from roofline.base.notices import Code, Notice, notice
from roofline.kernels.ops import (
    AttentionShape,
    CollectiveShape,
    Kind,
    MoeShape,
    Op,
    PromptShape,
)
from roofline.specs.formats import DType, bytes_per_element, is_gguf, nearest_format, rate_name
from roofline.specs.gpu import HardwareProfile, load_hardware, load_overlay
from roofline.specs.laws import (
    AttentionBlock,
    CollectiveBlock,
    Evidence,
    GemmBlock,
    GemmLaw,
    LatentBlock,
    LawBlock,
    MoeBlock,
    SimpleBlock,
    SimpleLaw,
    StateBlock,
    WeightOnly,
)
from roofline.specs.priors import LinkName, Reads, priors
from roofline.specs.served import ExpertKernels, ServedKernels

if TYPE_CHECKING:
    from roofline.specs.prompt_kernels import PromptBlock

__all__ = [
    "ENGINES",
    "OVER_LINK",
    "TRUSTED",
    "Chosen",
    "LawBook",
    "is_no_worse",
    "unlikeness",
    "weight_key",
]

#: Kinds of kernels whose bytes cross the links instead of the memory bus.
COLLECTIVES = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.ALL_TO_ALL, Kind.REDUCE_SCATTER)
OVER_LINK = (*COLLECTIVES, Kind.COPY)
#: What kernels stream whose generation may have constants of their own.
READS: Mapping[Kind, Reads] = {
    Kind.MOE: "experts",
    Kind.ATTENTION: "cache",
    Kind.MLA: "cache",
    Kind.STATE: "state",
}
#: The order in which another engine's tables stand in.
ENGINES = ("vllm", "trtllm", "sglang")
#: Formats whose kernels are alike, nearest first, for a format without a table.
NEAREST = {
    "fp16": ("bf16",),
    "fp8-block": ("fp8",),
    "fp8": ("fp8-block",),
    "fp8-wo": ("int8-wo", "int4-wo"),
    "fp8-block-wo": ("int8-wo", "int4-wo"),
    "nvfp4-wo": ("mxfp4-wo", "int4-wo"),
    "mxfp4-wo": ("mxfp4", "int4-wo"),
    **dict.fromkeys(("int4-g128-wo", "int4-g64-wo", "int4-g32-wo"), ("int4-wo", "mxfp4-wo")),
    "mxfp4": ("nvfp4",),
}
#: Laws that are further off on held-out shapes are shown in the files but not used.
TRUSTED = 0.25
#: So are products whose floor is longer [s]. Inside a captured graph a product of the other tables
#: takes 2 to 14 us at the least; one that takes longer was timed as the host launched it.
CAPTURED = 15e-6
#: The median of |z|: a median error over it is a standard deviation.
MEDIAN_OF_NORMAL = 0.6745
Law = TypeVar("Law", bound=LawBlock)


@cache
def _overlay(gpu: str, engine: str) -> tuple[LawBlock, ...]:
    overlay = load_overlay(gpu, engine)
    blocks = overlay.calibration if overlay else ()
    return tuple(block for block in blocks if _usable(block))


def _usable(block: LawBlock) -> bool:
    launched = isinstance(block, GemmBlock) and block.law.floor > CAPTURED
    return block.evidence.median_error <= TRUSTED and not launched


@cache
def _relative(name: str) -> HardwareProfile:
    """Return a bundled part that others lean on, loaded once in a process."""
    return load_hardware(name)


class Chosen(NamedTuple):
    """A law and how far to trust it."""

    law: object
    provenance: str  # calibrated | assumed
    detail: str
    evidence: Evidence | None = None
    relative_error: float = 0.0  # what borrowing the constants adds to the error
    limit: Notice | None = None  # why the kernel may be far slower than its law says
    part: HardwareProfile | None = None  # on which the law was fitted; None of a stated prior
    short_tiles: bool = False  # few rows are not padded to the tiles that the law was fitted with
    kernel: tuple[str, ...] = ()  # engine, format and name of the kernel that the law was fitted on
    spread: float | None = None  # of a stated prior, where its generation states one


def weight_key(storage: DType, compute: DType) -> str:
    """Return the name of a product's format: the weights', ``-wo`` where they are only stored.

    >>> weight_key(DType.INT4_G128, DType.BF16), weight_key(DType.FP8, DType.FP8)
    ('int4-g128-wo', 'fp8')
    """
    storage = nearest_format(storage) or storage
    narrow = bytes_per_element(storage) < bytes_per_element(compute) - 0.1
    narrow = narrow and bytes_per_element(compute) >= 2  # 4-bit weights with fp8 are W4A8
    return f"{storage}-wo" if narrow else str(storage)


@dataclass(frozen=True)
class LawBook:
    """The laws of one accelerator as one engine runs it."""

    gpu: HardwareProfile
    engine: str
    served: ServedKernels = field(default_factory=ServedKernels)
    tp: int = 1  # accelerators that share each product

    @cached_property
    def relatives(self) -> tuple[HardwareProfile, ...]:
        """The calibrated parts of the same architecture (else vendor), nearest first."""
        generation = priors().generations.get(self.gpu.generation)
        names = generation.relatives if generation else ()
        others = [_relative(name) for name in names if name != self.gpu.id]
        return tuple(sorted(others, key=lambda part: unlikeness(self.gpu, part)))

    @property
    def relative(self) -> HardwareProfile | None:
        """The calibrated part whose laws stand in."""
        return next(iter(self.relatives), None)

    @cached_property
    def no_worse(self) -> HardwareProfile | None:
        """The nearest calibrated part of the same vendor and generation that is no worse."""
        for part in self.relatives:
            alike = (part.vendor, part.generation) == (self.gpu.vendor, self.gpu.generation)
            if alike and is_no_worse(part, self.gpu):
                return part
        return None

    def choose(self, op: Op) -> Chosen:
        """Return the law for a kernel: this part's, then a relative's, then the prior."""
        if isinstance(op.shape, PromptShape):
            return self._of_prompts(op)
        measured = _simple(op, self.gpu.calibration)
        if measured is not None:
            return self._chosen(op, measured, self.gpu)
        finder = self._expert_kernel if op.kind is Kind.MOE else _FINDERS.get(op.kind)
        among = self._among_as_many(op)
        if among is not None:
            return self._chosen(op, *among)
        if finder is not None:
            for part in self._parts(op):
                for blocks in self._by_engine(part):
                    block, wide = finder(op, blocks), _wide_product(op, blocks)
                    if block is not None:
                        return self._as_served(op, self._chosen(op, block, part), wide)
                    if wide is not None and _unpacks(op):
                        return self._unpacked(op, wide, part)
        return self._stated(op, "stated prior")

    def _of_prompts(self, op: Op) -> Chosen:
        """Return the law of a kernel that reads prompts: its table, a relative's, then a prior.

        Of head sizes and cache formats the nearest; of engines this one's table, then others'.
        """
        from roofline.specs.prompt_kernels import prompt_kernels

        shipped, kind = prompt_kernels(), "recurrence" if op.kind is Kind.STATE else "attention"
        share = shipped.assumed.indexer if op.name.endswith("indexer") else None
        if op.kind is Kind.MLA:
            share = shipped.assumed.sparse
        if share is not None:
            law = replace(self.prior(op), compute_eff=share)
            return Chosen(
                law=law,
                provenance="assumed",
                detail="a stated share of the peak",
                spread=shipped.assumed.error,
            )
        engines = tuple(dict.fromkeys((self.engine, *ENGINES)))
        for part in (self.gpu, *self.relatives):
            blocks = [b for b in shipped.of(part.id, op=kind) if b.engine in engines]
            if not blocks:
                continue

            def unlike(block: PromptBlock) -> tuple[int, float, bool, tuple[int, ...]]:
                """Return how far a block is from the kernel asked about, newest version first."""
                return (
                    engines.index(block.engine),
                    abs(log(block.head_dim / (op.head_dim or block.head_dim))),
                    block.dtype != _cache_format(op),
                    tuple(-int(n) for n in re.findall(r"\d+", block.version)),
                )

            block, here = min(blocks, key=unlike), part is self.gpu
            transfer = priors().spread.calibrated if here else self._borrowed
            return Chosen(
                law=block.law.law(),
                provenance="calibrated" if here else "assumed",
                detail=f"{part.id} {block.engine} {block.version}",
                part=part,
                spread=hypot(block.median_error / MEDIAN_OF_NORMAL, transfer),
            )
        return self._stated(op, "stated prior")

    @property
    def _borrowed(self) -> float:
        """Return the error of constants borrowed from a relative."""
        generation = priors().generations.get(self.gpu.generation)
        return generation.relative_error if generation else priors().spread.prior

    def _among_as_many(self, op: Op) -> tuple[LawBlock, HardwareProfile] | None:
        """Return the law of a collective that was measured among as many accelerators, and where.

        Here, or on the nearest relative whose links reach as many: eight GPUs of one host are not
        eight of two. Of tables of several engines, the engine's own come first.
        """
        if not isinstance(op.shape, CollectiveShape) or not self.gpu.interconnect.peer_to_peer:
            return None
        size = self.gpu.interconnect.domain_size
        alike = [part for part in self.relatives if part.interconnect.domain_size == size]
        for engine in dict.fromkeys((self.engine, *ENGINES)):
            for part in (self.gpu, *alike):
                for block in _of_kind(CollectiveBlock, _overlay(part.id, engine)):
                    if op.shape.ranks in block.law.ranks:
                        return block, part
        return None

    def own(self, op: Op) -> Chosen | None:
        """Return the law of this engine's own products, measured here in the weights' format."""
        for block in _of_kind(SimpleBlock, self.gpu.calibration):
            measured = block.engine, block.covers, block.dtype
            if measured == (self.engine, op.kind.value, str(op.storage)):
                return self._chosen(op, block, self.gpu)
        return None

    def plain(self, op: Op) -> Chosen:
        """Return the stated simple law, whatever has been calibrated: not this kernel."""
        if op.kind is Kind.CPU_MOE:
            return Chosen(law=self.prior(op), provenance="assumed", detail="the host's processor")
        return self._stated(op, "matrix-vector kernel")

    def _stated(self, op: Op, detail: str) -> Chosen:
        """Return the simple law that is stated for a kernel, as uncertain as its generation's."""
        return Chosen(
            law=self.prior(op),
            provenance="assumed",
            detail=detail,
            spread=self._spread(op),
        )

    def _spread(self, op: Op) -> float | None:
        """Return how far a stated prior may be off, where it is not as far as all others."""
        if op.kind in OVER_LINK and _kind_of_link(self.gpu.interconnect.kind) == "network":
            return priors().pipeline.spread
        generation = priors().generations.get(self.gpu.generation)
        return generation.spread if generation else None

    def _parts(self, op: Op) -> Iterator[HardwareProfile]:
        """Yield the accelerator, then the one that stands in for it, which is read when needed."""
        if op.kind in OVER_LINK and not self.gpu.interconnect.peer_to_peer:
            return  # tables are of cards that reach each other's memory
        yield self.gpu
        if self.relative is not None:
            yield self.relative

    def _by_engine(self, part: HardwareProfile) -> Iterator[Sequence[LawBlock]]:
        """Yield a part's blocks: its own measurements, this engine's, then other engines'."""
        yield part.calibration
        for engine in dict.fromkeys((self.engine, *ENGINES)):
            yield _overlay(part.id, engine)

    def _chosen(self, op: Op, block: LawBlock, part: HardwareProfile) -> Chosen:
        same_part, borrowed = part.id == self.gpu.id, self._borrowed
        law = block.law
        if not same_part and isinstance(law, GemmLaw):
            law = replace(law, pad=law.pad * self._arithmetic(part, rate_name(op.compute)))
        return Chosen(
            law=law,
            provenance="calibrated" if same_part else "assumed",
            detail=f"{part.id} {block.engine} {block.version}",
            evidence=block.evidence,
            relative_error=0.0 if same_part else borrowed,
            limit=_fast_path_limit(op, block),
            part=part,
            kernel=(
                block.engine,
                str(getattr(block, "dtype", "")),
                str(getattr(block, "kernel", "")),
            ),
        )

    def _arithmetic(self, part: HardwareProfile, rate: str) -> float:
        """Return how fast one processor multiplies, over one of the measured part's; 1 at most.

        What empty rows of a tile cost beyond the tile's own products is no arithmetic: on a part
        with less of it they cost the same time, which is a smaller share of a tile's.
        """
        mine, theirs = self.gpu.compute.units, part.compute.units
        if mine is None or theirs is None or not {rate} <= set(self.gpu.rates) & set(part.rates):
            return 1.0
        here, there = self.gpu.peak(rate) / mine.value, part.peak(rate) / theirs.value
        return min(1.0, here / there)

    def _as_served(self, op: Op, chosen: Chosen, wide: GemmBlock | None) -> Chosen:
        """Return a product's law without the quantisation that a served model does not launch.

        The kernel before writes the activations quantised: what is left is one launch and its tail,
        as long as that of the ``wide`` product of the same engine, and no pass over them.
        """
        law, rules = chosen.law, self.served.fused_quantisation
        if not isinstance(law, GemmLaw) or wide is None or _unpacks(op):
            return chosen
        form = weight_key(op.storage, op.compute)
        fused = (r for r in rules if r.holds(form, self.gpu.generation))
        if not any(rule.covers(op.name, tp=self.tp) for rule in fused):
            return chosen
        return chosen._replace(law=replace(law, floor=min(law.floor, wide.law.floor), act=0.0))

    def _unpacked(self, op: Op, wide: GemmBlock, part: HardwareProfile) -> Chosen:
        """Return the law of a product whose weights are only stored narrow, from the wide one's.

        Such a kernel (Marlin, Machete) is the wide product with fewer bytes to stream: the same
        launch and tail, the same tiles, arithmetic in 16 bits. What it loses is ``unpacking``, the
        share of the wide kernel's arithmetic that it reaches between the instructions that unpack.
        No pass over the activations: they stay as they are. Its tiles are as low as 16 rows (Marlin
        takes up to four blocks of 16).
        """
        chosen, stated = self._chosen(op, wide, part), self._weight_only()
        law = replace(
            wide.law,
            floor=wide.law.floor + stated.extra,
            compute_eff=wide.law.compute_eff * stated.unpacking,
            act=0.0,
        )
        return chosen._replace(
            law=law,
            provenance="assumed",
            detail=f"{chosen.detail} {wide.dtype} with narrow weights",
            relative_error=hypot(chosen.relative_error, stated.error),
            short_tiles=True,
        )

    def _weight_only(self) -> WeightOnly:
        """Return what is stated of products with narrow weights: of the engine, else the part."""
        generation = priors().generations.get(self.gpu.generation)
        stated = self.served.weight_only or priors().weight_only
        own = generation.unpacking if generation else None
        if self.served.weight_only is not None or own is None:
            return stated
        return stated.model_copy(update={"unpacking": own})

    def _expert_kernel(self, op: Op, blocks: Sequence[LawBlock]) -> MoeBlock | None:
        """Return the law of the expert kernel that the engine's dispatch takes.

        Among kernels that no rule of the engine names, the one with the most rows in its tables.
        """
        wanted = weight_key(op.storage, op.compute)
        every = sorted(_of_kind(MoeBlock, blocks), key=lambda block: -block.evidence.rows_fitted)
        for rule in self.served.experts:
            if not rule.holds(wanted, self.gpu.generation) or not _about(rule, op):
                continue
            for word in rule.kernels:
                named = [block for block in every if word in block.kernel]
                for form in (wanted, *rule.like):
                    block = next((b for b in named if b.dtype == form), None)
                    if block is not None:
                        return block
        return _of_format(every, wanted)

    def prior(self, op: Op) -> SimpleLaw:
        """Return the stated simple law for a kind of kernel on this generation."""
        stated = priors()
        generation = stated.generations.get(self.gpu.generation)
        if op.kind is Kind.CPU_MOE:
            return stated.cpu_experts.law()
        if op.kind in OVER_LINK:
            law = stated.links[_kind_of_link(self.gpu.interconnect.kind)].law()
            return replace(law, floor=law.floor * generation.link_floors) if generation else law
        law = stated.generic[op.kind.value].law()  # type: ignore[index]
        if generation is None:
            return law
        reads = READS.get(op.kind)
        if op.kind not in (Kind.GEMM, Kind.BATCHED_GEMM, Kind.MOE):
            return generation.applied_to(law, reads=reads)
        law = generation.applied_to(law, rate_name(op.compute), str(op.storage), reads)
        if _unpacks(op):
            law = replace(law, compute_eff=law.compute_eff * self._weight_only().unpacking)
        return law


def _kind_of_link(kind: str) -> LinkName:
    """Return by which stated constants a link is priced.

    >>> [_kind_of_link(kind) for kind in ("NVLink 4 (18 links)", "PCIe 4.0 x16", "network")]
    ['direct', 'pcie', 'network']
    """
    if kind.startswith("PCIe"):
        return "pcie"
    return "network" if kind.startswith("network") else "direct"


def unlikeness(gpu: HardwareProfile, other: HardwareProfile) -> float:
    """Return how far two parts are apart: the root of the sum of log^2 of the ratios of figures.

    Figures are the bandwidth and the dense peaks that both have. Where bandwidth is 4.8 against
    3.35 TB/s and peaks are equal:

    >>> round(unlikeness(load_hardware("h200-sxm"), load_hardware("h100-sxm")), 2)  # ln(4.8 / 3.35)
    0.36
    """
    rates = [rate for rate in ("bf16", "fp16", "fp8", "fp4") if rate in gpu.rates]
    pairs = [(gpu.bandwidth, other.bandwidth)]
    pairs += [(gpu.peak(rate), other.peak(rate)) for rate in rates if rate in other.rates]
    return math.sqrt(sum(math.log(mine / theirs) ** 2 for mine, theirs in pairs))


#: Rates that no kernel of a pass computes in.
_OTHER_RATES = ("fp64", "tf32")


def is_no_worse(part: HardwareProfile, gpu: HardwareProfile) -> bool:
    """Return whether no figure that a law takes is lower on ``part`` than on ``gpu``.

    Bandwidth, the peak of every rate that ``gpu`` has, the links between cards and, where both
    are known, the number of SMs or CUs.

    >>> is_no_worse(load_hardware("h200-sxm"), load_hardware("h20"))
    True
    >>> is_no_worse(load_hardware("h100-sxm"), load_hardware("h20"))  # 3.35 against 4.0 TB/s
    False
    """
    mine, theirs = gpu.compute.units, part.compute.units
    rates = [rate for rate in gpu.rates if rate not in _OTHER_RATES]
    return (
        part.bandwidth >= gpu.bandwidth
        and all(rate in part.rates and part.peak(rate) >= gpu.peak(rate) for rate in rates)
        and part.interconnect.per_direction.value >= gpu.interconnect.per_direction.value
        and part.interconnect.peer_to_peer >= gpu.interconnect.peer_to_peer
        and (mine is None or theirs is None or theirs.value >= mine.value)
    )


def _fast_path_limit(op: Op, block: LawBlock) -> Notice | None:
    """Say when attention has more query heads per KV head than the tables' fast path takes."""
    shape = op.shape
    if not isinstance(block, AttentionBlock) or not isinstance(shape, AttentionShape):
        return None
    if block.max_group is None or shape.group <= block.max_group:
        return None
    return notice(
        Code.OFF_FAST_PATH,
        kernel=block.kernel,
        most=block.max_group,
        engine=block.engine,
        version=block.version,
        group=shape.group,
    )


def _of_kind(kind: type[Law], blocks: Sequence[LawBlock]) -> list[Law]:
    """Return the blocks of one kind of law."""
    return [block for block in blocks if isinstance(block, kind)]


def _of_format(blocks: Sequence[Law], wanted: str) -> Law | None:
    """Return the first block of the format, or of the nearest one that has any."""
    for name in (wanted, *NEAREST.get(wanted, ())):
        for block in blocks:
            if getattr(block, "dtype", None) == name:
                return block
    return None


def _gemm(op: Op, blocks: Sequence[LawBlock]) -> LawBlock | None:
    return _of_format(_of_kind(GemmBlock, blocks), weight_key(op.storage, op.compute))


def _unpacks(op: Op) -> bool:
    """Return whether a product unpacks narrow weights on the way to 16-bit arithmetic.

    llama.cpp's files do not count: their kernels have laws of their own.
    """
    narrow = op.kind is Kind.GEMM and not is_gguf(op.storage)
    return narrow and weight_key(op.storage, op.compute).endswith("-wo")


def _wide_product(op: Op, blocks: Sequence[LawBlock]) -> GemmBlock | None:
    """Return the law of a product with weights and activations in 16 bits."""
    return _of_format(_of_kind(GemmBlock, blocks), "bf16") if op.kind is Kind.GEMM else None


def _about(rule: ExpertKernels, op: Op) -> bool:
    """Return whether a rule about expert kernels is about these experts."""
    shape = op.shape
    if not isinstance(shape, MoeShape):
        return False
    divided, gated = bool(np.all(np.asarray(shape.ranks) > 1)), bool(np.all(shape.matrices == 3))
    return rule.expert_parallel in (None, divided) and rule.gated in (None, gated)


def _cache_format(op: Op) -> str:
    return "fp8" if bytes_per_element(op.storage) < 1.5 else "bf16"


def _attention(op: Op, blocks: Sequence[LawBlock]) -> LawBlock | None:
    if not isinstance(op.shape, AttentionShape):
        return None  # an indexer or an image's cache: the simple law
    every = _of_kind(AttentionBlock, blocks)
    same_format = [block for block in every if block.dtype == _cache_format(op)]

    def distance(block: AttentionBlock) -> tuple[int, int]:
        return abs(block.head_dim - op.head_dim), -block.evidence.rows_fitted

    return min(same_format or every, key=distance, default=None)


def _latent(op: Op, blocks: Sequence[LawBlock]) -> LawBlock | None:
    every = _of_kind(LatentBlock, blocks)
    same_format = [block for block in every if block.dtype == _cache_format(op)]
    return next(iter(same_format or every), None)


def _state(op: Op, blocks: Sequence[LawBlock]) -> LawBlock | None:
    wanted = "conv" if op.name == "conv_state" else "delta"
    return next((b for b in _of_kind(StateBlock, blocks) if wanted in b.kernel), None)


def _simple(op: Op, blocks: Sequence[LawBlock]) -> LawBlock | None:
    """Return the simple law measured for this very kernel, else for its kind."""
    products = op.kind in (Kind.GEMM, Kind.MOE)
    wanted = weight_key(op.storage, op.compute) if products else str(op.storage)
    measured = [
        block
        for block in _of_kind(SimpleBlock, blocks)
        if (block.covers, block.dtype) == (op.kind.value, wanted) and block.op in (None, op.name)
    ]
    return max(measured, key=lambda block: block.op is not None, default=None)


def _collective(_op: Op, blocks: Sequence[LawBlock]) -> LawBlock | None:
    return next(iter(_of_kind(CollectiveBlock, blocks)), None)


_FINDERS: dict[Kind, Callable[[Op, Sequence[LawBlock]], LawBlock | None]] = {
    Kind.GEMM: _gemm,
    Kind.ATTENTION: _attention,
    Kind.MLA: _latent,
    Kind.STATE: _state,
    **dict.fromkeys(COLLECTIVES, _collective),
}
