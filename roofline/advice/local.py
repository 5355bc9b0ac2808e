"""What a question says about cards in one machine, checked: the link, the split, the processor."""

from __future__ import annotations

import math
from dataclasses import replace

from roofline.advice.request import Request
from roofline.base.errors import InputError
from roofline.kernels.split import cpu_expert_layers
from roofline.specs.engine import EngineProfile
from roofline.specs.gpu import HardwareProfile
from roofline.specs.host import DEFAULT, HostProfile, linked, load_host
from roofline.specs.network import ModelSpec, NetworkSpec
from roofline.specs.placement import Placement, Split, SplitMode
from roofline.timing.step import Target

__all__ = ["assumed_host", "draft_placement", "machine_of", "split_of"]


def machine_of(
    request: Request, gpu: HardwareProfile, engine: EngineProfile
) -> tuple[HardwareProfile, HostProfile | None]:
    """Return the card as it sits in its host, and the host where the question needs one."""
    asked = request.local
    if asked.host == "":
        raise InputError("--host: expected a bundled id or the path of a YAML file")
    used = asked.gpus > 1 or asked.cpu_experts is not None
    if not used:
        for flag, value in (
            ("--split", asked.split), ("--tensor-split", asked.shares), ("--host", asked.host)
        ):  # fmt: skip
            if value:
                raise InputError(f"{flag}: says nothing without --gpus 2 or more, or --cpu-experts")
        return gpu, None
    if engine.local is None:
        flag = "--gpus" if asked.gpus > 1 else "--cpu-experts"
        raise InputError(
            f"{flag}: {engine.name} is not known to do this; use --engine llamacpp, or --tp for "
            "linked GPUs"
        )
    if asked.gpus > 1 and request.tp > 1:
        raise InputError("--gpus: give either --tp (linked GPUs) or --gpus (through the host)")
    host = load_host(asked.host or DEFAULT)
    return (linked(gpu, host, asked.gpus) if asked.gpus > 1 else gpu), host


def assumed_host(request: Request, host: HostProfile | None) -> list[str]:
    """Say which machine stands in where none was named."""
    if host is None or request.local.host is not None:
        return []
    return [f"the machine is {host.id} ({host.name})"]


def split_of(
    request: Request, gpu: HardwareProfile, model: ModelSpec, host: HostProfile | None
) -> Split:
    """Return how the target lies on the cards and beside the processor."""
    asked = request.local
    if asked.gpus < 1:
        raise InputError(f"--gpus {asked.gpus}: expected at least 1")
    mode = asked.split or SplitMode.LAYER
    if asked.gpus > 1 and mode is SplitMode.ROW and model.num_expert_layers:
        raise InputError(
            "--split row: experts cannot be split by rows; use --split layer or --split tensor"
        )
    if asked.shares:
        _check_shares(asked.shares, asked.gpus, mode)
    cpu_layers = _cpu_layers(asked.cpu_experts, gpu, model) if host is not None else 0
    return Split(mode=mode, cards=asked.gpus, shares=asked.shares, cpu_layers=cpu_layers)


def _check_shares(shares: tuple[float, ...], cards: int, mode: SplitMode) -> None:
    given = ",".join(f"{share:g}" for share in shares)
    if mode is not SplitMode.LAYER:
        raise InputError(f"--tensor-split {given}: only --split layer takes uneven shares here")
    if len(shares) != cards or min(shares) < 0 or not 0 < sum(shares) < math.inf:
        raise InputError(f"--tensor-split {given}: expected a share for each of {cards} cards")


def _cpu_layers(text: str | None, gpu: HardwareProfile, model: ModelSpec) -> int:
    """Read --cpu-experts: a number of layers from the first on, or all."""
    if text is None:
        return 0
    if not model.num_expert_layers:
        raise InputError(f"--cpu-experts {text}: {model.id} has no experts")
    if gpu.unified:
        raise InputError(
            f"--cpu-experts {text}: {gpu.id} and its processor share one memory; leave it out"
        )
    if text == "all":
        return model.num_layers
    if not text.isdecimal() or len(text) > 9 or not 0 < int(text) <= model.num_layers:
        raise InputError(
            f"--cpu-experts {text}: expected all, or 1 to {model.num_layers} layers of {model.id}"
        )
    found = cpu_expert_layers(
        layers=model.num_layers, expert_layers=model.num_expert_layers, cpu_layers=int(text)
    )
    if not found:
        dense = model.num_layers - model.num_expert_layers
        raise InputError(
            f"--cpu-experts {text}: the first {dense} layers of {model.id} have no experts"
        )
    return int(text)


def draft_placement(request: Request, target: Target, network: NetworkSpec) -> Placement:
    """Return the target's ranks, or those of --draft-tp; a draft model's experts stay together."""
    placement = replace(target.placement, split=_draft_split(target, network))
    if request.draft_tp not in (None, placement.attention_tp):
        return replace(placement, tp=(request.draft_tp or 1) * placement.dp, ep=1)
    return replace(placement, ep=1) if isinstance(network, ModelSpec) else placement


def _draft_split(target: Target, network: NetworkSpec) -> Split:
    """Return how a drafter lies on the cards: a model as its target does, a head on the last one.

    Experts of a head that is one of the target's own layers stay with the processor only where all
    do.
    """
    split = target.placement.split
    if isinstance(network, ModelSpec):
        return replace(split, cpu_layers=0)
    everything = split.cpu_layers >= target.model.num_layers
    return Split(cpu_layers=network.num_layers if everything else 0)
