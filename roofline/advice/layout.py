"""How a model is laid over accelerators, and shared with the processor beside them."""

from __future__ import annotations

import math
from dataclasses import replace

from roofline.advice.configuration import Configuration
from roofline.base.errors import InputError, Option
from roofline.base.units import listed
from roofline.kernels.forward import cpu_expert_layers
from roofline.kernels.matrices import check_parallel
from roofline.specs.engine import EngineProfile
from roofline.specs.gpu import (
    DEFAULT_HOST,
    HardwareProfile,
    HostProfile,
    VerifyMode,
    linked_through_host,
    load_host,
)
from roofline.specs.network import ModelSpec, NetworkSpec
from roofline.specs.placement import Placement, Routing, Split, SplitMode, VerifyAttention
from roofline.specs.priors import priors
from roofline.timing.step import Target

__all__ = ["as_split", "check_layout", "check_vendor", "draft_placement", "in_host", "placement_of"]


def as_split(configuration: Configuration, engine: EngineProfile) -> Configuration:
    """Return TP as a tensor split where the engine shares a model among cards of one machine."""
    if engine.local is None or configuration.tp == 1 or configuration.gpus > 1:
        return configuration
    if configuration.split not in (None, SplitMode.TENSOR):
        cards, other = Option("gpus", configuration.tp), configuration.split.value
        raise InputError(
            f"is {cards} {Option('split', 'tensor')} with {engine.name}; for "
            f"{Option('split', other)} give {cards} alone",
            field="tp",
            value=configuration.tp,
        )
    return replace(configuration, tp=1, gpus=configuration.tp, split=SplitMode.TENSOR)


def in_host(
    configuration: Configuration, gpu: HardwareProfile, engine: EngineProfile
) -> tuple[HardwareProfile, HostProfile | None]:
    """Return the card as it sits in its host, and the host where the question needs one."""
    host_id, gpus, cpu_experts = configuration.host, configuration.gpus, configuration.cpu_experts
    if host_id == "":
        raise InputError("expected a bundled id or the path of a YAML file", field="host")
    if gpus < 1:
        raise InputError("expected at least 1", field="gpus", value=gpus)
    if gpus == 1 and cpu_experts is None:
        for field in ("split", "tensor_split", "host"):
            if getattr(configuration, field):
                raise InputError(
                    f"says nothing without {Option('gpus', 2)} or more, or {Option('cpu_experts')}",
                    field=field,
                )
        return gpu, None
    if engine.local is None:
        raise InputError(
            f"{engine.name} is not known to do this; use {Option('engine', 'llamacpp')}, or "
            f"{Option('tp')} for linked GPUs",
            field="gpus" if gpus > 1 else "cpu_experts",
        )
    if gpus > 1 and configuration.tp > 1:
        raise InputError(
            f"give either {Option('gpus')} or {Option('tp')}, which is a tensor split here",
            field="gpus",
        )
    host = load_host(host_id or DEFAULT_HOST)
    if gpus == 1 or (host_id is None and gpus <= _linked_on_board(gpu)):
        return gpu, host
    return linked_through_host(gpu, host, gpus), host


def _linked_on_board(gpu: HardwareProfile) -> int:
    """Return how many GPUs their board or cabinet links; 1 for cards, which may have no bridge."""
    return 1 if "PCIe" in gpu.form_factor else gpu.interconnect.domain_size


def placement_of(
    configuration: Configuration, gpu: HardwareProfile, model: ModelSpec, host: HostProfile | None
) -> Placement:
    """Return how the target is laid over the accelerators."""
    split = _split(configuration, gpu, model, host)
    prior = priors().routing
    measured = gpu.verify_attention or VerifyMode(mode=VerifyAttention.KV_ONCE, errors={})
    return Placement(
        tp=split.cards if split.mode is SplitMode.TENSOR and split.cards > 1 else configuration.tp,
        split=split,
        ep=configuration.ep,
        dp=configuration.dp_attention,
        routing=configuration.routing or Routing(skew=prior.skew, correlation=prior.correlation),
        verify_attention=configuration.verify_attention or measured.mode,
        tile_rows=measured.tile_rows,
        state_handling=configuration.state_handling,
    )


def _split(
    configuration: Configuration, gpu: HardwareProfile, model: ModelSpec, host: HostProfile | None
) -> Split:
    """Return how the target lies on the cards and beside the processor."""
    cards, shares = configuration.gpus, configuration.tensor_split
    mode = configuration.split or SplitMode.LAYER
    if cards > 1 and mode is SplitMode.ROW and model.num_expert_layers:
        raise InputError(
            f"experts cannot be split by rows; use {Option('split', 'layer')} or "
            f"{Option('split', 'tensor')}",
            field="split",
            value="row",
        )
    if shares:
        written = ",".join(f"{share:g}" for share in shares)
        if mode is not SplitMode.LAYER:
            raise InputError(
                f"only {Option('split', 'layer')} takes uneven shares here",
                field="tensor_split",
                value=written,
            )
        if len(shares) != cards or min(shares) < 0 or not 0 < sum(shares) < math.inf:
            raise InputError(
                f"expected a share for each of {cards} cards", field="tensor_split", value=written
            )
    cpu_layers = _cpu_layers(configuration.cpu_experts, gpu, model) if host is not None else 0
    return Split(mode=mode, cards=cards, shares=shares, cpu_layers=cpu_layers)


def _cpu_layers(text: str | None, gpu: HardwareProfile, model: ModelSpec) -> int:
    """Return how many layers, from the first on, keep their experts beside the processor."""
    if text is None:
        return 0

    def refused(problem: str) -> InputError:
        return InputError(problem, field="cpu_experts", value=text)

    if not model.num_expert_layers:
        raise refused(f"{model.id} has no experts")
    if gpu.unified:
        raise refused(f"{gpu.id} and its processor share one memory; leave it out")
    if text == "all":
        return model.num_layers
    if not text.isdecimal() or len(text) > 9 or not 0 < int(text) <= model.num_layers:
        raise refused(f"expected all, or 1 to {model.num_layers} layers of {model.id}")
    on_processor = cpu_expert_layers(
        layers=model.num_layers, expert_layers=model.num_expert_layers, cpu_layers=int(text)
    )
    if not on_processor:
        dense = model.num_layers - model.num_expert_layers
        raise refused(f"the first {dense} layers of {model.id} have no experts")
    return int(text)


def check_layout(
    configuration: Configuration, placement: Placement, gpu: HardwareProfile, model: ModelSpec
) -> None:
    """Refuse a layout that the accelerators or the model do not have."""
    tp, domain = configuration.tp, gpu.interconnect.domain_size
    if tp > domain:
        alternative = ""
        if not gpu.unified and "PCIe" in gpu.form_factor:
            alternative = (
                f", or {Option('engine', 'llamacpp')} {Option('gpus', tp)} "
                f"{Option('split', 'tensor')} (through the host's slots)"
            )
        raise InputError(
            f"{gpu.id} links {domain} GPUs in one domain; use {Option('tp', domain)} or less"
            f"{alternative}",
            field="tp",
            value=tp,
        )
    check_parallel(model, placement)
    draft_tp = configuration.draft_tp
    if draft_tp is not None and draft_tp > placement.attention_tp:
        divisor = ""
        if placement.dp > 1:
            groups = Option("dp_attention", placement.dp)
            divisor = f" / {groups} = {placement.attention_tp}"
        raise InputError(
            f"expected at most {Option('tp', tp)}{divisor}", field="draft_tp", value=draft_tp
        )


def check_vendor(engine: EngineProfile, gpu: HardwareProfile) -> None:
    """Refuse an engine that cannot run on this vendor's accelerators."""
    if not engine.vendors or gpu.vendor in engine.vendors:
        return
    remedy = engine.elsewhere.get(gpu.vendor)
    helps = f"; {remedy}" if remedy else ""
    raise InputError(
        f"{engine.name} runs on accelerators of {listed(engine.vendors)} alone, and {gpu.id} is of "
        f"{gpu.vendor}{helps}",
        field="engine",
        value=engine.id,
    )


def draft_placement(draft_tp: int | None, target: Target, network: NetworkSpec) -> Placement:
    """Return the target's ranks, or ``draft_tp`` of them.

    A draft model's experts stay together. On cards of one machine a model lies as its target does
    and a head on the last card; experts of a head that is one of the target's own layers stay with
    the processor only where all do.
    """
    split = target.placement.split
    if isinstance(network, ModelSpec):
        split = replace(split, cpu_layers=0)
    else:
        all_beside = split.cpu_layers >= target.model.num_layers
        split = Split(cpu_layers=network.num_layers if all_beside else 0)
    placement = replace(target.placement, split=split)
    if draft_tp not in (None, placement.attention_tp):
        return replace(placement, tp=(draft_tp or 1) * placement.dp, ep=1)
    return replace(placement, ep=1) if isinstance(network, ModelSpec) else placement
