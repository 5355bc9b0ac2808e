"""The formats that a network runs in on an accelerator, and whether the engine serves them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from roofline.advice.configuration import Configuration, Documents, Notices
from roofline.base.errors import InputError, Option
from roofline.base.names import on_shelf
from roofline.base.notices import Code, Notice, notice
from roofline.base.units import listed
from roofline.importers.references import importable
from roofline.kernels.matrices import Side, check_parallel, divided_sides, used_components
from roofline.specs.engine import EngineProfile, engine_id
from roofline.specs.formats import (
    LAYER_LINEARS,
    Component,
    DType,
    Precision,
    few_bits,
    nearest_format,
    rate_name,
    resolve_precision,
)
from roofline.specs.gpu import GPU_SHELF, HardwareProfile
from roofline.specs.network import ModelSpec, NetworkSpec, network_named
from roofline.specs.placement import Placement
from roofline.timing.step import Target

__all__ = ["WIDE", "as_named", "check_blocks", "formats_of", "ships_as", "with_supported_dtype"]


def with_supported_dtype(
    gpu: HardwareProfile, model: ModelSpec, activations: DType | None
) -> tuple[ModelSpec, Notices]:
    """Return the model in the other 16-bit format where the part has no rate for its own.

    Engines do the same: vLLM and llama.cpp run a bf16 model in fp16 on a V100 or T4.
    """
    other = {DType.FP16: DType.BF16, DType.BF16: DType.FP16}.get(model.dtype)
    if activations is not None or other is None or model.dtype.value in gpu.rates:
        return model, ()
    if other.value not in gpu.rates:
        return model, ()
    in_other = model.model_copy(update={"dtype": other})
    return in_other, (notice(Code.NO_OWN_RATE, gpu=gpu.id, dtype=model.dtype, other=other),)


def check_blocks(engine: EngineProfile, gpu: HardwareProfile, target: Target) -> None:
    """Refuse a layout that cuts blocks of weights which the engine keeps whole."""
    placement = target.placement
    cut = _cut_side(engine, gpu, target, placement)
    if cut is None:
        return
    side, block = cut
    tp, fewer = placement.tp, range(placement.tp // 2, 0, -1)
    layouts = [("tp", n) for n in fewer if not tp % (n * placement.ep) and not n % placement.dp]
    if side.component is Component.EXPERTS:
        layouts.append(("ep", tp))
    remedies = dict[str, Option]()
    for field, number in layouts:
        changed = replace(placement, **{field: number})  # type: ignore[arg-type]
        if field in remedies or _cut_side(engine, gpu, target, changed) is not None:
            continue
        with suppress(InputError):
            check_parallel(target.model, changed)
            remedies[field] = Option(field, number)
    helps = f"; use {listed([str(each) for each in remedies.values()], 'or')}" if remedies else ""
    dtype = target.precision.weights[side.component]
    raise InputError(
        f"the {side.name} of {target.model.id} is {side.width} / {side.ranks} = "
        f"{side.width / side.ranks:g} on a GPU, and {engine.name} takes {dtype} weights in whole "
        f"blocks of {block}{helps}",
        field="tp",
        value=tp,
    )


def _cut_side(
    engine: EngineProfile, gpu: HardwareProfile, target: Target, placement: Placement
) -> tuple[Side, int] | None:
    """Return a side of matrices whose blocks the ranks would cut, and the block; None without."""
    for side in divided_sides(target.model, placement):
        dtype = target.precision.weights[side.component]
        for rule in engine.whole_blocks:
            cut = side.ranks > 1 and side.width % (side.ranks * rule.block)
            if cut and rule.holds(dtype.value, gpu.generation):
                return side, rule.block
    return None


def formats_of(
    network: NetworkSpec,
    gpu: HardwareProfile,
    engine: EngineProfile,
    *,
    weights: DType | None,
    activations: DType | None,
    kv: DType | None,
    field: str,
) -> tuple[Precision, list[Notice]]:
    """Return the formats of a network on this accelerator, and what to know about them.

    ``field`` is the option for its weights.
    """
    notices: list[Notice] = []
    stored, base, kv_stored = network.stored(), network.dtype, network.kv_dtype
    if not {"bf16", "fp16"} & set(gpu.rates) and activations is None:
        notices.append(notice(Code.NO_16_BIT_RATE, gpu=gpu.id))
        base, kv_stored = DType.FP32, None
        stored = {
            part: DType.FP32 if dtype in (DType.BF16, DType.FP16) else dtype
            for part, dtype in stored.items()
        }
    kv_stored = engine.default_kv or kv_stored
    if kv_stored is not None and not engine.serves("kv", kv_stored, gpu.generation):
        kv_stored = None  # the engine keeps the cache in the model's own format
    used = used_components(network)
    if weights is None and Component.EXPERTS in used:
        weights = engine.files.get(stored[Component.EXPERTS])
    usual = dict(network.activations) if base == network.dtype else {}
    served = engine.experts_multiplied_in(stored[Component.EXPERTS], gpu.generation)
    if served is not None and rate_name(served) in gpu.rates:
        usual.setdefault(Component.EXPERTS, served)
    notices += _files_read(network, engine)
    precision, format_notices = resolve_precision(
        stored=stored,
        base=base,
        kv_stored=kv_stored,
        usual=usual,
        available=gpu.rates,
        gpu=gpu.id,
        weights=weights,
        activations=activations,
        kv=kv,
        used=used,
    )
    notices += format_notices
    for part in used & LAYER_LINEARS:
        _check_served(
            engine, gpu, field, precision.weights[part], base, ships=None if weights else network.id
        )
    _check_served(engine, gpu, "kv", precision.kv, base)
    narrow = {precision.weights[part] for part in used}
    for dtype in sorted(dtype for dtype in narrow if few_bits(dtype)):
        notices.append(notice(Code.FEW_BITS, network=network.id, dtype=dtype))
    for dtype in sorted(narrow | {precision.kv}):
        if (nearest := nearest_format(dtype)) is not None:
            notices.append(notice(Code.FORMAT_NEAREST, dtype=dtype, nearest=nearest))
    return precision, notices


def _files_read(network: NetworkSpec, engine: EngineProfile) -> list[Notice]:
    """Return what the engine needs for a network in a GGUF file; refuse one that it cannot read."""
    if not network.source.lower().endswith(".gguf") or engine.formats is None:
        return []
    if not engine.formats.reads_gguf:
        raise InputError(
            f"{network.source}: {engine.name} reads no GGUF files; give its config.json, or "
            f"{Option('engine', 'llamacpp')}"
        )
    reader = engine.gguf_reader()
    if reader is None:
        return []
    version = f"{engine.name} {engine.asked_version or engine.newest}"
    return [
        notice(Code.GGUF_BY_PLUG_IN, engine=version, needs=reader.needs, install=reader.install)
    ]


def _check_served(
    engine: EngineProfile,
    gpu: HardwareProfile,
    field: str,
    dtype: DType,
    base: DType,
    *,
    ships: str | None = None,
) -> None:
    """Refuse a format that the engine does not serve, and name the nearest that it does.

    ``ships`` is the model that is published in it, where none was asked for.
    """
    part = "kv" if field == "kv" else "weights"
    if engine.serves(part, dtype, gpu.generation):
        return
    where = "" if engine.formats is None else _served_elsewhere(engine, gpu, part, dtype)
    does_not = (
        f"{engine.name} keeps no KV cache in {dtype}"
        if part == "kv"
        else f"{engine.name} serves no {dtype} weights"
    )
    problem = f"{does_not}{where}; the nearest that it does: "
    problem += str(Option(field, engine.nearest_served(part, dtype, base)))
    if ships is not None:
        raise InputError(f"{ships} ships as {dtype}, and {problem}")
    raise InputError(problem, field=field, value=dtype)


def _served_elsewhere(engine: EngineProfile, gpu: HardwareProfile, part: str, dtype: DType) -> str:
    """Say on what a format is served that is not served here; nothing where it is on nothing."""
    rules = [] if engine.formats is None else engine.formats.rules(part, dtype)
    for rule in rules:
        if rule.generations and gpu.generation not in rule.generations:
            return f" on {gpu.id} (it does on {listed(rule.generations)})"
        if rule.since is not None:
            return f" before version {rule.since}"
    return ""


def as_named(
    configuration: Configuration, documents: Documents
) -> tuple[Configuration, list[Notice]]:
    """Return the configuration with what its names say beside what they name, and what was taken.

    A family's name means one of its parts; a model's name may end with the format of its weights.
    """
    notices: list[Notice] = []
    gpu, model = on_shelf(configuration.gpu, GPU_SHELF), None
    if not importable(configuration.model):
        model = network_named(configuration.model)
    for named, given in ((gpu, configuration.gpu), (model, configuration.model)):
        if named is not None and named.family:
            others = tuple(other for other in named.candidates if other != named.id)
            notices.append(notice(Code.NAME_TAKEN, name=given, taken=named.id, others=others))
    configuration = replace(configuration, engine=engine_id(configuration.engine, documents.engine))
    stored = None if model is None or model.storage is None else DType(model.storage)
    if stored is None or configuration.weights is not None:
        return configuration, notices
    if ships_as(documents.model, stored):
        return configuration, notices
    notices.append(notice(Code.WEIGHTS_NAMED, name=configuration.model, dtype=stored))
    return replace(configuration, weights=stored), notices


def ships_as(model: ModelSpec, dtype: DType) -> bool:
    """Return whether a model is published in a format that its name may end with.

    Narrow formats are mostly those of some layers only. One name stands for several groups of
    scales: FP8 may mean blocks, int4 any group.
    """
    stored = model.stored()
    families = {_family(stored[part]) for part in used_components(model) & LAYER_LINEARS}
    return _family(dtype) in families and (len(families) == 1 or _family(dtype) not in WIDE)


def _family(dtype: DType) -> str:
    return dtype.value.partition("-")[0]


WIDE = ("fp32", "bf16", "fp16")
