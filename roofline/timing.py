"""The kernel law: from FLOPs and bytes to seconds, with the constants and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from pydantic import Field

from roofline import resources
from roofline.hardware import HardwareProfile
from roofline.kernels import Kind, Op
from roofline.ops import Array
from roofline.quantization import rate_name
from roofline.schema import Document, Duration, Schema

__all__ = ["KernelLaw", "Machine", "OpTime", "Spread", "kernel_time", "time_op"]


OVER_LINK = (Kind.ALL_REDUCE, Kind.ALL_TO_ALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelLaw:
    """Five numbers with a physical meaning, for one kind of kernel at one rate.

    Each may be an array (draws along a leading axis) wherever a float may stand.
    """

    floor: Array  # launch and tail [s]
    serial: Array  # latency per 64 of the reduction dimension [s]
    mem_eff: Array  # share of the datasheet bandwidth reached
    compute_eff: Array  # share of the datasheet peak reached
    overlap: Array  # exponent p: 1 no overlap, infinity the textbook roofline
    source: str = "assumed"


@dataclass(frozen=True, kw_only=True, slots=True)
class OpTime:
    """How long one launch of a kernel takes and what it waits for [s]."""

    op: Op
    fixed: Array
    memory: Array
    compute: Array
    each: Array
    source: str

    @property
    def total(self) -> Array:
        """Return the time of all launches of the pass [s]."""
        return self.op.count * self.each


def kernel_time(
    *,
    flops: Array,
    bytes: Array,
    reduction: Array,
    peak: float,
    bandwidth: float,
    law: KernelLaw,
) -> tuple[Array, Array, Array, Array]:
    """Return (fixed, memory, compute, total) seconds of one launch.

    t = floor + serial K / 64 + (t_mem^p + t_comp^p)^(1/p), with t_mem = bytes / (bandwidth mem_eff)
    and t_comp = FLOP / (peak compute_eff). ``peak`` [FLOP/s] and ``bandwidth`` [B/s] are datasheet
    figures. Arguments broadcast. Time never falls when FLOPs or bytes grow.

    >>> law = KernelLaw(floor=2e-6, serial=0.0, mem_eff=0.5, compute_eff=0.5, overlap=1.0)
    >>> fixed, memory, compute, total = kernel_time(flops=1e9, bytes=1e6, reduction=0, peak=1e15,
    ...                                             bandwidth=1e12, law=law)
    >>> round(1e6 * float(total), 3)  # 2 + 2 + 2 microseconds
    6.0
    """
    memory = np.asarray(bytes) / (bandwidth * law.mem_eff)
    compute = np.asarray(flops) / (peak * law.compute_eff)
    fixed = law.floor + law.serial * np.asarray(reduction) / 64
    longer, shorter = np.maximum(memory, compute), np.minimum(memory, compute)
    share = np.divide(shorter, longer, out=np.zeros_like(longer + shorter), where=longer > 0)
    body = longer * (1 + share**law.overlap) ** (1 / np.asarray(law.overlap))
    return fixed, memory, compute, fixed + body


class LawPrior(Schema):
    """A law as the priors file writes it."""

    floor: Duration
    serial: Duration
    mem_eff: float = Field(ge=0.3, le=1.05)
    compute_eff: float = Field(gt=0, le=1.05)
    overlap: float = Field(ge=1, le=8)

    def law(self) -> KernelLaw:
        """Return the law with these constants, labelled assumed."""
        return KernelLaw(**self.model_dump())


class GenerationPrior(Schema):
    """What one generation of accelerators changes in the generic laws."""

    mem_eff: float = Field(ge=0.3, le=1.05)
    compute_eff: dict[str, float]


class Spread(Schema):
    """One standard deviation of the logarithm of each kind of constant."""

    floor: float
    serial: float
    mem_eff: float
    compute_eff: float
    overhead: float


class Priors(Document):
    """Constants for what nobody has measured."""

    spread: Spread
    generic: dict[Literal["gemm", "moe", "attention", "mla", "elementwise"], LawPrior]
    generations: dict[str, GenerationPrior]
    links: dict[Literal["direct", "pcie"], LawPrior]


@cache
def priors() -> Priors:
    """Return the shipped priors."""
    return Priors.load(resources.data_file("priors.yaml"))


@dataclass(frozen=True, slots=True)
class Machine:
    """An accelerator together with a law for every kind of kernel."""

    gpu: HardwareProfile
    vary: Callable[[str, KernelLaw], KernelLaw] | None = None

    def law(self, kind: Kind, rate: str) -> KernelLaw:
        """Return the law for ``kind`` at the datasheet rate called ``rate``."""
        prior = priors()
        if kind in OVER_LINK:
            link = "pcie" if self.gpu.interconnect.kind.startswith("PCIe") else "direct"
            law = prior.links[link].law()  # type: ignore[index]
        else:
            law = prior.generic[kind.value].law()  # type: ignore[index]
            generation = prior.generations.get(self.gpu.generation)
            if generation is not None and kind in (Kind.GEMM, Kind.MOE):
                default = generation.compute_eff["default"]
                compute_eff = generation.compute_eff.get(rate, default)
                law = replace(law, mem_eff=generation.mem_eff, compute_eff=compute_eff)
        return self.vary(f"{kind.value}/{rate}", law) if self.vary else law


def time_op(op: Op, machine: Machine) -> OpTime:
    """Return how long ``op`` takes on ``machine``."""
    rate = rate_name(op.compute)
    law = machine.law(op.kind, rate)
    gpu = machine.gpu
    over_link = op.kind in OVER_LINK
    fixed, memory, compute, each = kernel_time(
        flops=op.flops,
        bytes=op.bytes,
        reduction=op.reduction,
        peak=gpu.peak(rate),
        bandwidth=gpu.interconnect.per_direction.value if over_link else gpu.bandwidth,
        law=law,
    )
    return OpTime(op=op, fixed=fixed, memory=memory, compute=compute, each=each, source=law.source)


def time_ops(kernels: list[Op], machine: Machine) -> list[OpTime]:
    """Return how long each kernel takes, in order."""
    return [time_op(op, machine) for op in kernels]


def by_part(times: list[OpTime]) -> Mapping[str, Array]:
    """Return the seconds of each part of the pass [s]."""
    parts: dict[str, Array] = {}
    for time in times:
        parts[time.op.part] = parts.get(time.op.part, 0.0) + time.total
    return parts
