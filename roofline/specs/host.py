"""The machine around the cards: its memory, its cores, and the link it gives each card."""

from __future__ import annotations

from pydantic import Field, model_validator

from roofline.base import resources
from roofline.base.errors import InputError
from roofline.base.schema import (
    Bandwidth,
    Bytes,
    Document,
    Figure,
    Id,
    PositiveInt,
    Rate,
    Schema,
    Source,
)
from roofline.specs.gpu import HardwareProfile, Interconnect

__all__ = ["DEFAULT", "SHELF", "HostProfile", "linked", "load_host"]

SHELF = "hosts"
#: The machine that is assumed where none is named.
DEFAULT = "desktop-ddr5"


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
    """What each of ``cards`` equal cards gets; between two of them traffic crosses the host."""

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
    return HostProfile.load(resources.find(reference, SHELF, "host"))


def _with_slots(cards: int) -> str:
    """Say which bundled machine takes so many cards: the one with the fewest slots that do."""
    hosts = [load_host(name) for name in resources.bundled_names(SHELF)]
    enough = [host for host in hosts if host.link.cards >= cards]
    if not enough:
        most = max(host.link.cards for host in hosts)
        return f"bundled hosts have up to {most}; give your own as --host FILE.yaml"
    return f"give --host {min(enough, key=lambda host: host.link.cards).id}"


def linked(gpu: HardwareProfile, host: HostProfile, cards: int) -> HardwareProfile:
    """Return the card as ``cards`` of it sit in the host, joined by nothing but its slots."""
    if gpu.unified:
        raise InputError(
            f"--gpus {cards}: {gpu.id} is one processor with one memory; there is nothing to split"
        )
    if cards > host.link.cards:
        raise InputError(
            f"--gpus {cards}: host {host.id} has slots for {host.link.cards} cards; "
            f"{_with_slots(cards)}"
        )
    link = Interconnect(
        kind=f"{host.link.kind} through {host.id}",
        per_direction=host.link.per_direction,
        domain_size=host.link.cards,
        peer_to_peer=False,
    )
    sources = {**host.sources, **gpu.sources}
    return gpu.model_copy(update={"interconnect": link, "sources": sources})
