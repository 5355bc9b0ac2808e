"""From kernels to seconds: each kernel priced by its law on its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array
from roofline.kernels.mlp import distinct_values
from roofline.kernels.ops import (
    AttentionShape,
    CollectiveShape,
    GemmShape,
    Kind,
    MoeShape,
    Op,
    PromptShape,
)
from roofline.specs.formats import DType, rate_name
from roofline.specs.gpu import HardwareProfile, HostProfile
from roofline.specs.laws import (
    AttentionLaw,
    CollectiveLaw,
    GemmLaw,
    MoeLaw,
    SimpleLaw,
    StateLaw,
    VectorKernels,
)
from roofline.specs.priors import priors
from roofline.specs.served import ServedKernels
from roofline.timing.lawbook import OVER_LINK, Chosen, LawBook
from roofline.timing.laws.attention import attention_time, converted_bytes
from roofline.timing.laws.gemm import between_envelopes, gemm_time, row_edges
from roofline.timing.laws.moe import moe_time
from roofline.timing.laws.simple import (
    Device,
    KernelTime,
    by_pairs,
    by_tiles,
    collective_time,
    exchange_time,
    in_turn,
    product_flops,
    roofline_seconds,
    simple_time,
    state_time,
)

#: Rows that a law is asked for at a time: with every tile they stay in a core's cache.
TILE_ROWS = 256

__all__ = [
    "OVER_LINK",
    "Machine",
    "OpTime",
    "by_part",
    "converts_cache",
    "device_of",
    "time_op",
    "time_ops",
    "vector_time",
]


class OpTime(NamedTuple):
    """How long one launch of a kernel takes [s], and by which law."""

    op: Op
    time: KernelTime
    each: Array  # after the engine's floor scale
    chosen: Chosen

    @property
    def total(self) -> Array:
        """Return the time of all launches of the pass [s]."""
        return self.op.count * self.each


@dataclass(frozen=True)
class Machine:
    """An accelerator as one engine runs it.

    ``floor_scale`` is the part of a launch floor that the engine's graphs leave visible, and
    ``expert_floor_scale`` that of expert kernels; ``staircase`` off prices every kernel without
    tile steps, monotone in its rows. ``vector`` are the matrix-vector kernels of engines that run
    few rows through them.
    """

    gpu: HardwareProfile
    engine: str = "vllm"
    floor_scale: float = 1.0
    expert_floor_scale: float = 1.0
    staircase: bool = True
    vector: VectorKernels | None = None
    #: The machine around the card, where experts stay beside its processor.
    host: HostProfile | None = None
    #: Rows from which those experts' weights are copied to the card instead.
    copy_rows: int = 32
    #: Which kernels the engine runs where its tables hold several.
    served: ServedKernels = field(default_factory=ServedKernels)
    tp: int = 1  # accelerators that share each product
    #: The card as it is linked to those of another node, where stages lie on several.
    between_nodes: HardwareProfile | None = None
    #: Whether a kernel that was not measured here takes at least its time on a better part.
    dominance: bool = True
    book: LawBook = field(init=False)
    #: Off only where laws are scored as they were fitted, without what no kernel can do.
    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "book", LawBook(self.gpu, self.engine, self.served, self.tp))

    def device(self, rate: str) -> Device:
        """Return the datasheet figures that the laws need, at one compute rate.

        A part whose number of SMs is not known has that of its relative, whose laws it borrows.
        """
        device = self._devices.get(rate)
        if device is None:
            device = self._devices[rate] = self._device(rate)
        return device

    @cached_property
    def _devices(self) -> dict[str, Device]:
        """What was read of the datasheet, by rate: every kernel of a pass asks."""
        return {}

    def _device(self, rate: str) -> Device:
        device = device_of(self.gpu, rate)
        relative = self.book.relative if device.units == 0 else None
        if relative is None or relative.compute.units is None:
            return device
        return replace(device, units=relative.compute.units.value)

    @cached_property
    def no_worse(self) -> Machine | None:
        """The nearest measured part that is no worse in any figure, as the engine runs it."""
        part = self.book.no_worse
        return replace(self, gpu=part, dominance=False) if part is not None else None

    @cached_property
    def linked(self) -> Machine | None:
        """The relative whose cards reach each other's memory, over links that are as fast."""
        part, mine = self.book.relative, self.gpu.interconnect
        if part is None or not part.interconnect.peer_to_peer:
            return None
        if part.interconnect.per_direction.value < mine.per_direction.value:
            return None
        return replace(self, gpu=part, dominance=False)


def device_of(gpu: HardwareProfile, rate: str) -> Device:
    """Return the datasheet figures that the laws need, at one compute rate."""
    return Device(
        bandwidth=gpu.bandwidth,
        peak=gpu.peak(rate),
        units=gpu.compute.units.value if gpu.compute.units else 0,
        l2=gpu.compute.l2.value if gpu.compute.l2 else 0.0,
        link=gpu.interconnect.per_direction.value,
    )


def time_op(op: Op, machine: Machine) -> OpTime:
    """Return how long ``op`` takes on ``machine``."""
    vector = machine.vector if isinstance(op.shape, GemmShape | MoeShape) else None
    if vector is None:
        chosen = machine.book.choose(op)
    else:
        chosen = machine.book.own(op) or machine.book.plain(op)
    time = _by_law(op, chosen, machine)
    expert = op.kind is Kind.MOE
    scale = machine.expert_floor_scale if expert else machine.floor_scale
    each: Array = np.asarray(time.total + (scale - 1) * time.floor)
    through_host = op.kind in OVER_LINK and not machine.gpu.interconnect.peer_to_peer
    if through_host:
        each = _through_the_host(op, each, machine)
    if machine.guarded:
        each = np.maximum(each, _least(op, machine))
        measured = chosen.part is machine.gpu or through_host or vector is not None
        if machine.dominance and not measured and op.kind is not Kind.ELEMENTWISE:
            each = _no_faster_than_better(op, each, chosen, machine)
    return OpTime(op=op, time=time, each=np.asarray(each), chosen=chosen)


def _no_faster_than_better(op: Op, each: Array, chosen: Chosen, machine: Machine) -> Array:
    """Return the time of a kernel that was not measured here, by a borrowed law or a prior [s].

    A part without a measurement is no faster than the nearest one of its vendor and generation that
    is no worse in any figure and has one, of the same kernel where the law is borrowed.
    """
    better = machine.no_worse
    if better is None:
        return each
    law = better.book.choose(op)
    comparable = chosen.part is None or chosen.kernel == law.kernel
    if law.part is not better.gpu or not comparable:
        return each
    return np.maximum(each, time_op(op, better).each)


def _through_the_host(op: Op, each: Array, machine: Machine) -> Array:
    """Return the time of a collective between cards that do not reach each other's memory [s].

    By the stated prior, and no less than over the same slots between cards that do, where those
    were measured: the host's memory is a detour.
    """
    linked = machine.linked
    return each if linked is None else np.maximum(each, time_op(op, linked).each)


def _least(op: Op, machine: Machine) -> Array:
    """Return the time that no kernel beats [s]; 0 for experts beside the processor."""
    if op.kind is Kind.CPU_MOE:
        return 0.0
    device = machine.device(rate_name(op.compute))
    return roofline_seconds(
        flops=op.computed_flops,
        bytes=op.bytes,
        peak=device.peak,
        bandwidth=device.link if op.kind in OVER_LINK else device.bandwidth,
    )


def converts_cache(kv: DType, gpu: HardwareProfile) -> bool:
    """Return whether kernels turn a KV cache into 16 bits first: FP8 that nothing multiplies.

    >>> from roofline.specs.gpu import load_hardware
    >>> [converts_cache(DType.FP8, load_hardware(gpu)) for gpu in ("a100-sxm-80gb", "h100-sxm")]
    [True, False]
    """
    return kv is DType.FP8 and "fp8" not in gpu.rates


def integer_peak(gpu: HardwareProfile) -> float:
    """Return the rate of code that is three parts integer to one part floating point [FLOP/s].

    The fp32 rate where every lane does integers too (Blackwell, a processor); where half of them
    do, they are what such code waits for: 0.5 / 0.75 of it.

    >>> from roofline.specs.gpu import load_hardware
    >>> round(integer_peak(load_hardware("rtx-4090")) / 1e12, 1)  # of 82.6 TFLOP/s
    55.1
    """
    generation = priors().generations.get(gpu.generation)
    lanes = generation.integer_lanes if generation else 1.0 if gpu.generation == "cpu" else 0.5
    return gpu.peak("fp32") * min(1.0, lanes / 0.75)


def vector_time(
    shape: GemmShape | MoeShape,
    moved: Array,
    gpu: HardwareProfile,
    law: SimpleLaw,
    vector: VectorKernels,
) -> KernelTime:
    """Return the time of a product by matrix-vector kernels, ``moved`` its bytes, or by tiles.

    The law's floor, serial and bandwidth; every row's arithmetic on ordinary cores instead of the
    tensor cores', and the overlap of these kernels. Beyond the limit a product takes no less than
    at it: time does not fall where the kernel changes.
    """

    def time(flops: Array, bytes: Array) -> KernelTime:
        return simple_time(
            flops=flops,
            bytes=bytes,
            reduction=shape.k if isinstance(shape, GemmShape) else 0,
            peak=integer_peak(gpu),
            bandwidth=gpu.bandwidth,
            law=replace(law, compute_eff=1.0, overlap=vector.overlap),
        )

    if isinstance(shape, GemmShape):
        return time(product_flops(shape, vector), moved)
    pairs, tiles = time(*by_pairs(shape, vector)), time(*by_tiles(shape, vector))
    few = (np.asarray(shape.tokens) <= vector.limit) | (pairs.total > tiles.total)
    return KernelTime(
        floor=law.floor,
        memory=np.where(few, pairs.memory, tiles.memory),
        compute=np.where(few, pairs.compute, tiles.compute),
        total=np.where(few, pairs.total, tiles.total),
    )


def cpu_experts_time(op: Op, shape: MoeShape, law: SimpleLaw, machine: Machine) -> KernelTime:
    """Return the time of one layer's routed experts that lie in the host's memory.

    The processor reads every awake expert once and computes each of its rows; from ``copy_rows``
    rows on the awake experts go over the card's slot and the card computes them.
    """
    host, vector = machine.host, machine.vector or VectorKernels(narrow=5.0, byte=2.0)
    if host is None:
        raise TypeError(f"{op.name}: the machine has no host")
    weights = shape.distinct * shape.matrices * shape.hidden * shape.width * shape.weight
    size = shape.rows * shape.matrices * shape.hidden * shape.width
    there = simple_time(
        flops=size * vector.cost(float(shape.weight)),
        bytes=weights,
        reduction=0,
        peak=host.cores.peak.value,
        bandwidth=host.memory.bandwidth.value,
        law=law,
    )
    moved = np.asarray(weights / machine.gpu.interconnect.per_direction.value)
    here = _by_law(
        replace(op, kind=Kind.MOE), machine.book.plain(replace(op, kind=Kind.MOE)), machine
    )
    few = np.asarray(shape.tokens) < machine.copy_rows
    return KernelTime(
        floor=law.floor,
        memory=np.where(few, there.memory, moved + here.memory),
        compute=np.where(few, there.compute, here.compute),
        total=np.where(few, there.total, law.floor + moved + here.total),
    )


def _by_law(op: Op, chosen: Chosen, machine: Machine) -> KernelTime:
    """Price a kernel by whichever law was chosen for it."""
    device, law = machine.device(rate_name(op.compute)), chosen.law
    match law, op.shape:
        case GemmLaw(), GemmShape() as shape:
            donor = chosen.part if chosen.part is not machine.gpu else None
            starved = donor is not None and _takes_short_tiles(machine, device, donor, op)
            short_tiles = starved or chosen.short_tiles
            return _gemm(shape, law, machine, device, short_tiles=short_tiles)
        case AttentionLaw(), AttentionShape() as shape:
            if converts_cache(op.storage, machine.gpu):
                rows = shape.rows if shape.own_warps else 1.0
                shape = shape._replace(kv=converted_bytes(rows))
            return _attention(shape, law, machine, device)
        case MoeLaw(), MoeShape() as shape:
            return moe_time(shape, device, law, staircase=machine.staircase, smooth=True)
        case CollectiveLaw(), CollectiveShape() as shape:
            if op.kind is Kind.ALL_REDUCE:
                return collective_time(shape, device, law)
            return exchange_time(sent=op.bytes, ranks=shape.ranks, device=device, law=law)
        case StateLaw(), _:
            each = state_time(moved=op.bytes / op.turns, device=device, law=law)
            return _several_rows(op, in_turn(each, op.turns))
        case SimpleLaw(), MoeShape() as shape if op.kind is Kind.CPU_MOE:
            return cpu_experts_time(op, shape, law, machine)
        case SimpleLaw(), (GemmShape() | MoeShape()) as shape if (
            machine.vector is not None and chosen.part is None
        ):
            return vector_time(shape, op.bytes, machine.gpu, law, machine.vector)
        case SimpleLaw(), PromptShape() as shape:
            return _prompt(op, shape, law, device)
        case SimpleLaw(), shape:
            each = simple_time(
                flops=op.computed_flops / op.turns,
                bytes=op.bytes / op.turns,
                reduction=shape.k if isinstance(shape, GemmShape) else 0,
                peak=device.peak,
                bandwidth=device.link if op.kind in OVER_LINK else device.bandwidth,
                law=law,
                rows=op.rows if machine.staircase else None,
                work=op.computed_flops / shape.pairs if isinstance(shape, AttentionShape) else None,
            )
            return _several_rows(op, in_turn(each, op.turns))
    raise TypeError(f"{op.name}: a {type(law).__name__} cannot price a {op.kind} kernel")


def _prompt(op: Op, shape: PromptShape, law: SimpleLaw, device: Device) -> KernelTime:
    """Return the time of a kernel that reads prompts: its serial part is that of the last row.

    A recurrence has a block for each sequence and head, of which an SM takes one at a time.
    """
    turns = np.maximum(1.0, np.asarray(shape.blocks) / max(device.units, 1))
    return simple_time(
        flops=op.computed_flops,
        bytes=op.bytes,
        reduction=np.asarray(shape.keys) * turns,
        peak=device.peak,
        bandwidth=device.bandwidth,
        law=law,
    )


def _several_rows(op: Op, law: KernelTime) -> KernelTime:
    """Return the time of a kernel in turns, where several rows of a state have costs of their own.

    floor + q turn + bytes / rate, and never less than the law of one row says.
    """
    several = op.state_rows
    if several is None:
        return law
    turns, moved = np.asarray(op.turns), np.asarray(op.bytes) / several.rate
    total = law.floor + turns * several.turn + moved
    more = (turns > 1) & (total > law.total)
    return law._replace(
        memory=np.where(more, moved, law.memory), total=np.where(more, total, law.total)
    )


#: Share of a donor's arithmetic per byte below which a part is taken to run shorter tiles. Assumed.
STARVED = 0.5


def _takes_short_tiles(machine: Machine, device: Device, donor: HardwareProfile, op: Op) -> bool:
    """Return whether a part with a borrowed law takes tiles of few rows for few rows.

    Where a measured part is no worse in any figure, both run the same tiles, unless this one has
    far less arithmetic per byte: H20 has 37 FLOP per byte in 16 bits where H100 has 295, H200 NVL
    174 and H200 206.
    """
    rate = rate_name(op.compute)
    if machine.book.no_worse is None:
        return True
    if rate not in donor.rates:
        return False
    balance = device.peak / device.bandwidth
    return balance < STARVED * donor.peak(rate) / donor.bandwidth


def _gemm(
    shape: GemmShape, law: GemmLaw, machine: Machine, device: Device, *, short_tiles: bool
) -> KernelTime:
    """Return the time of a GEMM, which never falls as its rows grow.

    A grid asks the law, which tries every tile, once for each M.
    """
    rows, back = distinct_values(shape.m)
    law_of = partial(
        gemm_time, device=device, law=law, staircase=machine.staircase, short_tiles=short_tiles
    )
    most = int(np.ceil(rows[-1]))
    stepped = machine.guarded and machine.staircase
    edges = row_edges(most, short_tiles=short_tiles) if stepped else rows[:0]
    every = np.concatenate([rows, edges])
    each = [
        law_of(shape._replace(m=every[first : first + TILE_ROWS]))
        for first in range(0, len(every), TILE_ROWS)
    ]
    memory, compute, total = (
        np.concatenate(pieces)
        for pieces in zip(*((x.memory, x.compute, x.total) for x in each), strict=True)
    )
    count, size = len(rows), np.shape(shape.m)
    seconds: NDArray[np.float64] = total[:count]
    if len(edges):
        seconds = between_envelopes(rows, seconds, edges=edges, at_edges=total[count:])
    return KernelTime(
        floor=law.floor,
        memory=memory[:count][back].reshape(size),
        compute=compute[:count][back].reshape(size),
        total=seconds[back].reshape(size),
    )


def _attention(
    shape: AttentionShape, law: AttentionLaw, machine: Machine, device: Device
) -> KernelTime:
    if not machine.staircase:
        law = replace(law, row_costs=(1.0,))
    if law.fp8_math and "fp8" in machine.gpu.rates and shape.kv < 1.5:
        device = machine.device("fp8")
    return attention_time(shape, device, law)


def time_ops(kernels: list[Op], machine: Machine) -> list[OpTime]:
    """Return how long each kernel takes, in order."""
    return [time_op(op, machine) for op in kernels]


def by_part(times: list[OpTime]) -> Mapping[str, Array]:
    """Return the seconds of each part of the pass [s]."""
    parts: dict[str, Array] = {}
    for time in times:
        parts[time.op.part] = parts.get(time.op.part, 0.0) + time.total
    return parts
