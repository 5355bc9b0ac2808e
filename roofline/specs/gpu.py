"""Accelerator profiles, and the machines that cards are put into: one sourced YAML file each."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from roofline.base import resources
from roofline.base.errors import InputError, Option
from roofline.base.names import spec_file
from roofline.base.schema import (
    Bandwidth,
    Bytes,
    Document,
    Figure,
    Frequency,
    Id,
    PositiveInt,
    Power,
    Rate,
    Schema,
    Source,
)
from roofline.specs.laws import LawBlock
from roofline.specs.placement import VerifyAttention

__all__ = [
    "DEFAULT_HOST",
    "GPU_SHELF",
    "HOST_SHELF",
    "IDLE",
    "HardwareProfile",
    "HostProfile",
    "Interconnect",
    "Overlay",
    "VerifyMode",
    "clock_share",
    "figure_unit",
    "linked_through_host",
    "load_hardware",
    "load_host",
    "load_overlay",
    "memory_share",
    "with_power_limit",
]

GPU_SHELF = "hardware_profiles"
RateName = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp6", "fp4", "int4"]


class DeviceMemory(Schema):
    """Main memory of one accelerator."""

    kind: str
    capacity: Figure[Bytes]
    visible: Figure[Bytes] | None = None
    bandwidth: Figure[Bandwidth]


class Compute(Schema):
    """Dense peaks with FP32 accumulation, and what they are made of."""

    units: Figure[PositiveInt] | None = None
    clock: Figure[Frequency] | None = None
    l2: Figure[Bytes] | None = None
    last_level_cache: Figure[Bytes] | None = None
    #: Dense 16-bit FLOP per clock and unit, FP32 accumulation.
    flop_per_clock: Figure[PositiveInt] | None = None
    #: Why units x FLOP per clock x clock does not give the 16-bit peak, where it does not.
    clock_note: str | None = None
    peaks: dict[RateName, Figure[Rate]]
    peak_basis: str


class Interconnect(Schema):
    """The links between the accelerators of one domain."""

    kind: str
    per_direction: Figure[Bandwidth]
    domain_size: PositiveInt
    #: Whether cards reach each other's memory; where not, traffic crosses the host's.
    peer_to_peer: bool = True


class VerifyMode(Schema):
    """How this machine's attention reads the cache in a verify pass, as measured on it."""

    mode: VerifyAttention
    tile_rows: PositiveInt = 128
    #: Median error of each mode's law on the same rows; the mode with the least was taken.
    errors: dict[str, float]


class HardwareProfile(Document):
    """One accelerator."""

    id: Id
    name: str
    vendor: str
    architecture: str
    generation: str
    compute_capability: str | None = None
    release_year: int | None = None
    form_factor: str
    status: Literal["released", "pre-release"] = "released"
    memory: DeviceMemory
    compute: Compute
    interconnect: Interconnect
    tdp: Figure[Power] | None = None
    #: What the board may draw, where its owner set less than ``tdp``.
    power_limit: Figure[Power] | None = None
    sources: dict[str, Source] = Field(min_length=1)
    disagreements: str | None = None
    #: Laws measured on this machine; those of a bundled profile lie in one overlay per engine.
    calibration: tuple[LawBlock, ...] = ()
    verify_attention: VerifyMode | None = None

    @model_validator(mode="after")
    def _limit_of_a_known_power(self) -> HardwareProfile:
        if self.power_limit is not None and self.tdp is None:
            raise ValueError("power_limit: needs tdp, what the board draws without the limit")
        return self

    @model_validator(mode="after")
    def _sources_exist(self) -> HardwareProfile:
        for where, figure in self.figures().items():
            if figure.source not in self.sources:
                raise ValueError(f"{where}.source: '{figure.source}' is not listed under sources")
        return self

    def figures(self) -> dict[str, Figure[float] | Figure[int]]:
        """Return every sourced figure by its dotted path in the file."""
        memory, compute = self.memory, self.compute
        figures = {
            "memory.capacity": memory.capacity,
            "memory.visible": memory.visible,
            "memory.bandwidth": memory.bandwidth,
            "compute.units": compute.units,
            "compute.clock": compute.clock,
            "compute.flop_per_clock": compute.flop_per_clock,
            "compute.l2": compute.l2,
            "compute.last_level_cache": compute.last_level_cache,
            "interconnect.per_direction": self.interconnect.per_direction,
            "tdp": self.tdp,
            "power_limit": self.power_limit,
        }
        peaks = {f"compute.peaks.{name}": figure for name, figure in compute.peaks.items()}
        return {name: figure for name, figure in figures.items() if figure is not None} | peaks

    @property
    def memory_bytes(self) -> float:
        """Bytes that a process can use: what it sees as the total, else the capacity [B]."""
        return (self.memory.visible or self.memory.capacity).value

    @property
    def unified(self) -> bool:
        """Whether the processor uses the same memory."""
        return "unified" in self.memory.kind

    @property
    def power_share(self) -> float:
        """The share of its power that the board may draw, 1 without a limit below it."""
        if self.power_limit is None or self.tdp is None:
            return 1.0
        return min(1.0, self.power_limit.value / self.tdp.value)

    @property
    def bandwidth(self) -> float:
        """Datasheet memory bandwidth, under the power limit if there is one [B/s]."""
        return self.memory.bandwidth.value * memory_share(self.power_share)

    def peak(self, rate: str) -> float:
        """Return the dense datasheet peak called ``rate``, under the power limit [FLOP/s]."""
        peak: float = self.compute.peaks[rate].value  # type: ignore[index]
        return peak * clock_share(self.power_share)

    @property
    def rates(self) -> list[str]:
        """Names of the rates this accelerator has."""
        return list(self.compute.peaks)


#: Share of a board's power that does not follow the clock: memory and leakage. Assumed.
STEADY = 0.2
#: A board does not run slower than at this share of its clock. Assumed.
SLOWEST = 0.1


def clock_share(power: float) -> float:
    """Return the share of its clock that a board keeps at a share ``power`` of its power.

    f = (power - STEADY) / (1 - STEADY): beside a steady part, power goes as C V^2 f
    (A. Chandrakasan, S. Sheng, R. Brodersen, "Low-power CMOS digital design", IEEE JSSC 27(4),
    1992). Assumed: the voltage V is at its floor and the pass draws all that the board may, else
    the clock falls less. Arithmetic falls with the clock.

    >>> round(clock_share(400 / 575), 2)
    0.62
    """
    return max(SLOWEST, min(1.0, (power - STEADY) / (1 - STEADY)))


#: Share of its power below which a board cannot keep its memory busy. Assumed.
MEMORY_KNEE = 0.5


def memory_share(power: float) -> float:
    """Return the share of its bandwidth that a board keeps: all of it down to `MEMORY_KNEE`.

    The memory has a clock of its own. Below the knee it falls with the power. Assumed.

    >>> memory_share(0.7), memory_share(0.4)
    (1.0, 0.8)
    """
    return min(1.0, power / MEMORY_KNEE)


#: Share of its power that a board draws with nothing to do: 80 W of the 700 W of an H200 (Serial
#: Alice, GPU energy benchmark, 2026-06, 80.3 W). Of other boards it is assumed.
IDLE = 0.115


def with_power_limit(gpu: HardwareProfile, watts: float) -> HardwareProfile:
    """Return a profile whose board may draw so much; its rated power changes nothing."""
    if gpu.tdp is None:
        raise InputError(
            f"{gpu.id} has no rated power; give it as {Option('set', 'gpu.tdp=400W')}",
            field="power_cap",
            value=f"{watts:g}",
        )
    rated = gpu.tdp.value
    if not IDLE * rated < watts <= rated:
        raise InputError(
            f"{gpu.id} is rated at {rated:g} W and idles at about {IDLE * rated:.0f} W; give a cap "
            "between them",
            field="power_cap",
            value=f"{watts:g}",
        )
    return gpu.model_copy(update={"power_limit": gpu.tdp.model_copy(update={"value": watts})})


#: The base unit of each figure that has one, beside that of the peaks.
_UNITS = {
    "memory.capacity": "B",
    "memory.visible": "B",
    "memory.bandwidth": "B/s",
    "compute.clock": "Hz",
    "compute.l2": "B",
    "compute.last_level_cache": "B",
    "interconnect.per_direction": "B/s",
    "tdp": "W",
    "power_limit": "W",
}


def figure_unit(name: str) -> str | None:
    """Return the base unit of a figure by its dotted path; None of a plain count.

    >>> figure_unit("memory.capacity"), figure_unit("compute.peaks.fp8")
    ('B', 'FLOP/s')
    """
    return "FLOP/s" if name.startswith("compute.peaks.") else _UNITS.get(name)


class Overlay(Document):
    """The laws of one engine's kernels on one accelerator: ``<gpu>.<engine>.yaml``."""

    gpu: str
    engine: str
    calibration: tuple[LawBlock, ...]


def load_overlay(gpu: str, engine: str) -> Overlay | None:
    """Load the bundled calibration of an accelerator for an engine, if there is one."""
    file = resources.shelf(GPU_SHELF) / f"{gpu}.{engine}.yaml"
    return Overlay.load(file) if file.is_file() else None


def load_hardware(reference: str) -> HardwareProfile:
    """Load a bundled profile by id, or a YAML file by path."""
    return HardwareProfile.load(spec_file(reference, GPU_SHELF, "GPU"))


HOST_SHELF = "hosts"
#: The host that is assumed where none is named.
DEFAULT_HOST = "desktop-ddr5"


class HostMemory(Schema):
    """The memory beside the processor."""

    kind: str
    capacity: Figure[Bytes]
    bandwidth: Figure[Bandwidth]
    #: What the operating system and everything else keep.
    reserve: Bytes = 8e9


class Cores(Schema):
    """What the processor computes with, at the rate of its widest fp32 units."""

    kind: str
    peak: Figure[Rate]


class CardLink(Schema):
    """The link of each of ``cards`` equal cards to the host, which their traffic crosses."""

    kind: str
    per_direction: Figure[Bandwidth]
    cards: PositiveInt


class HostProfile(Document):
    """One kind of machine that cards are put into."""

    id: Id
    name: str
    memory: HostMemory
    cores: Cores
    link: CardLink
    sources: dict[str, Source] = Field(min_length=1)

    @model_validator(mode="after")
    def _sources_exist(self) -> HostProfile:
        figures = {
            "memory.capacity": self.memory.capacity,
            "memory.bandwidth": self.memory.bandwidth,
            "cores.peak": self.cores.peak,
            "link.per_direction": self.link.per_direction,
        }
        for where, figure in figures.items():
            if figure.source not in self.sources:
                raise ValueError(f"{where}.source: '{figure.source}' is not listed under sources")
        return self

    @property
    def usable(self) -> float:
        """Bytes that weights can take of the memory [B]."""
        return self.memory.capacity.value - self.memory.reserve


def load_host(reference: str) -> HostProfile:
    """Load a bundled machine by id, or a YAML file by path."""
    return HostProfile.load(spec_file(reference, HOST_SHELF, "host"))


def _host_with_slots(cards: int) -> str:
    """Return the remedy: the bundled host with the fewest slots that are enough for ``cards``."""
    hosts = [load_host(name) for name in resources.bundled_names(HOST_SHELF)]
    large_enough = [host for host in hosts if host.link.cards >= cards]
    if not large_enough:
        most = max(host.link.cards for host in hosts)
        return f"bundled hosts have up to {most}; give your own as {Option('host', 'FILE.yaml')}"
    smallest = min(large_enough, key=lambda host: host.link.cards)
    return f"give {Option('host', smallest.id)}"


def linked_through_host(gpu: HardwareProfile, host: HostProfile, cards: int) -> HardwareProfile:
    """Return the profile of a card, ``cards`` of which are linked through the host's slots only."""
    if gpu.unified:
        raise InputError(
            f"{gpu.id} is one processor with one memory; there is nothing to split",
            field="gpus",
            value=cards,
        )
    if cards > host.link.cards:
        raise InputError(
            f"host {host.id} has slots for {host.link.cards} cards; {_host_with_slots(cards)}",
            field="gpus",
            value=cards,
        )
    link = Interconnect(
        kind=f"{host.link.kind} through {host.id}",
        per_direction=host.link.per_direction,
        domain_size=host.link.cards,
        peer_to_peer=False,
    )
    sources = {**host.sources, **gpu.sources}
    return gpu.model_copy(update={"interconnect": link, "sources": sources})
