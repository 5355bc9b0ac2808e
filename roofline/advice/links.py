"""Pipelines, links and nodes: how the accelerators of a question hang together. Experimental.

What is asked for here rests on stated constants, which no run of such a deployment confirmed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from roofline.advice.configuration import Configuration
from roofline.base.errors import InputError, Option
from roofline.specs.engine import EngineProfile
from roofline.specs.gpu import HardwareProfile, Interconnect
from roofline.specs.network import DrafterSpec, ModelSpec
from roofline.specs.placement import DrafterSeat, Pipeline, Placement, Split
from roofline.specs.priors import priors
from roofline.timing.drafters import Drafter
from roofline.timing.pipeline import layers_of_stages

__all__ = ["between_nodes", "check_seat", "linked", "parse_link", "piped", "seated"]

#: What one lane of a PCIe slot carries in one direction, by generation [B/s]: 2.5, 5, 8, 16 and
#: 32 GT/s with 8 bits in 10 up to the second and 128 in 130 from the third, 64 GT/s with 242 bytes
#: in 256 (PCI-SIG, PCI Express base specifications 1.0 to 6.0).
LANES = {
    generation: rate * coding / 8
    for generation, rate, coding in (
        (1, 2.5e9, 8 / 10),
        (2, 5e9, 8 / 10),
        (3, 8e9, 128 / 130),
        (4, 16e9, 128 / 130),
        (5, 32e9, 128 / 130),
        (6, 64e9, 242 / 256),
    )
}
WIDTHS = (1, 2, 4, 8, 16)
_SLOT = re.compile(r"pcie\s*(?P<generation>\d)(?:\.0)?\s*x\s*(?P<lanes>\d+)", re.IGNORECASE)


def parse_link(text: str) -> tuple[str, float]:
    """Return the name of a slot, and what it carries in one direction [B/s].

    >>> parse_link("pcie2x4")
    ('PCIe 2.0 x4', 2000000000.0)
    """
    match = _SLOT.fullmatch(text.strip())
    generation, lanes = (int(match["generation"]), int(match["lanes"])) if match else (0, 0)
    if generation not in LANES or lanes not in WIDTHS:
        raise InputError(
            "expected a PCIe generation and its lanes: pcie4x16", field="link", value=text
        )
    return f"PCIe {generation}.0 x{lanes}", LANES[generation] * lanes


def linked(
    configuration: Configuration, gpu: HardwareProfile, engine: EngineProfile
) -> HardwareProfile:
    """Return the card with the slots that were named, and with the nodes that its ranks span.

    Where tensor parallelism spans nodes, all its collectives go at the pace of the slower link.
    """
    if engine.local is not None:
        for field in ("pp", "nodes", "link", "drafter_on"):
            if getattr(configuration, field) != getattr(Configuration, field):
                raise InputError(
                    f"{engine.name} joins cards by {Option('gpus')}, {Option('split')} and "
                    f"{Option('host')}; leave it out",
                    field=field,
                )
    if configuration.link is not None:
        kind, rate = parse_link(configuration.link)
        gpu = _with_link(gpu, kind, rate, priors().pipeline.slots)
    if configuration.nodes > 1 and _within_nodes(configuration) is None:
        size = gpu.interconnect.domain_size * configuration.nodes
        gpu = _with_link(gpu, "network between nodes", _internode(configuration), size)
    return gpu


def between_nodes(configuration: Configuration, gpu: HardwareProfile) -> HardwareProfile | None:
    """Return the card as it is linked to one of another node, where stages lie on several."""
    if configuration.nodes == 1 or _within_nodes(configuration) is None:
        return None
    return _with_link(gpu, "network between nodes", _internode(configuration), configuration.nodes)


def _internode(configuration: Configuration) -> float:
    rate = configuration.internode
    return priors().pipeline.internode if rate is None else rate


def _within_nodes(configuration: Configuration) -> int | None:
    """Return the stages of each node; None where a stage spans nodes."""
    stages, rest = divmod(configuration.pp, configuration.nodes)
    return stages if stages and not rest else None


def _with_link(gpu: HardwareProfile, kind: str, rate: float, size: int) -> HardwareProfile:
    own = gpu.interconnect.per_direction
    figure = own.model_copy(update={"value": rate})
    link = Interconnect(kind=kind, per_direction=figure, domain_size=size, peer_to_peer=False)
    return gpu.model_copy(update={"interconnect": link})


def piped(
    configuration: Configuration, placement: Placement, gpu: HardwareProfile, model: ModelSpec
) -> Placement:
    """Return the placement with its pipeline; refuse one that model or accelerators have not."""
    stages, in_flight, nodes = configuration.pp, configuration.pp_in_flight, configuration.nodes
    if stages > model.num_layers:
        raise InputError(
            f"{model.id} has {model.num_layers} layers; give {Option('pp', model.num_layers)} or "
            "less",
            field="pp",
            value=stages,
        )
    if in_flight > 1 and stages == 1:
        raise InputError(
            f"says nothing on one stage; give {Option('pp', 2)} or more", field="pp_in_flight"
        )
    if in_flight > MOST_IN_FLIGHT * stages:
        raise InputError(
            f"expected at most {MOST_IN_FLIGHT} for each of {stages} stages",
            field="pp_in_flight",
            value=in_flight,
        )
    domain, within = gpu.interconnect.domain_size, _within_nodes(configuration)
    room = domain * nodes if within is not None else domain
    wanted = configuration.tp * stages
    if wanted > room:
        raise InputError(
            f"{Option('tp', configuration.tp)} x {Option('pp', stages)} are {wanted} GPUs, and "
            f"{gpu.id} links {room}; {_more_gpus(configuration, gpu, wanted)}",
            field="pp",
            value=stages,
        )
    seat = configuration.drafter_on or DrafterSeat.LAST
    pipeline = Pipeline(stages=stages, in_flight=in_flight, nodes=nodes, seat=seat)
    split = placement.split
    if stages > 1:
        split = Split(cards=stages, layers=layers_of_stages(model.num_layers, stages))
    return replace(placement, pipeline=pipeline, split=split)


#: Micro-batches for each stage that anyone would let run.
MOST_IN_FLIGHT = 4


def _more_gpus(configuration: Configuration, gpu: HardwareProfile, wanted: int) -> str:
    """Return what links so many GPUs."""
    size = gpu.interconnect.domain_size
    if size < priors().pipeline.slots >= wanted and configuration.link is None:
        return f"give the slots that join them: {Option('link', 'pcie4x16')}"
    nodes = -(-wanted // size)
    return f"give {Option('nodes', nodes)}, or fewer stages"


def seated(drafter: Drafter, placement: Placement) -> Drafter:
    """Return the drafter where it was asked to lie: whole on one stage, or on a GPU of its own."""
    pipeline = placement.pipeline
    if drafter.network is None or pipeline.plain:
        return drafter
    own = replace(drafter.placement, pipeline=Pipeline(), split=Split())
    if pipeline.seat is DrafterSeat.OWN:
        own = replace(own, tp=1, ep=1, dp=1)
    return replace(drafter, placement=own)


def check_seat(configuration: Configuration, drafter: Drafter) -> None:
    """Refuse a place for a drafter that it cannot work at."""
    seat = configuration.drafter_on
    if seat is None:
        return
    if drafter.network is None:
        raise InputError(
            f"the drafter '{drafter.kind}' has no weights to place; leave it out",
            field="drafter_on",
            value=seat.value,
        )
    if seat is DrafterSeat.ALL and isinstance(drafter.network, DrafterSpec):
        raise InputError(
            f"{drafter.name} needs the hidden states of the last stage; give "
            f"{Option('drafter_on', 'last')}, or a draft model",
            field="drafter_on",
            value=seat.value,
        )
    if seat is DrafterSeat.ALL and configuration.pp == 1:
        raise InputError(
            f"there is one stage; give {Option('pp', 2)} or more",
            field="drafter_on",
            value=seat.value,
        )
    if seat is DrafterSeat.OWN and configuration.dp_attention > 1:
        raise InputError(
            f"one GPU does not draft for {configuration.dp_attention} groups; leave one out",
            field="drafter_on",
            value=seat.value,
        )
    if seat is DrafterSeat.OWN and configuration.draft_tp not in (None, 1):
        raise InputError(
            f"a GPU of its own is one; leave {Option('draft_tp')} out",
            field="drafter_on",
            value=seat.value,
        )
