"""Quantisation as shipped, resolved to the format of each component."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from roofline.base.errors import InputError
from roofline.hf_config.fields import Fields
from roofline.hf_config.ignore import Modules, canonical
from roofline.hf_config.layer import Layer
from roofline.hf_config.module_names import Spelling, layer_modules
from roofline.hf_config.schemes import Scheme, read_scheme
from roofline.hf_config.source import Source
from roofline.specs.formats import Component, DType

__all__ = ["Formats", "shipped_formats"]

_BASES = {
    "bfloat16": DType.BF16, "torch.bfloat16": DType.BF16, "bf16": DType.BF16,
    "float16": DType.FP16, "torch.float16": DType.FP16, "half": DType.FP16, "fp16": DType.FP16,
    "float32": DType.FP32, "torch.float32": DType.FP32, "fp32": DType.FP32, "auto": DType.BF16,
}  # fmt: skip
_EXPERT_FORMATS = {"fp4": DType.MXFP4, "fp8": DType.FP8_BLOCK, "bf16": DType.BF16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Formats:
    """The format between the products, those of components that differ, and the cache's."""

    base: DType
    components: dict[Component, DType] = field(default_factory=dict)
    #: What a component is multiplied with, where not what its weight format usually is.
    activations: dict[Component, DType] = field(default_factory=dict)
    kv: DType | None = None


def _base(fields: Fields) -> DType:
    stated = fields.text("dtype", "torch_dtype")
    if stated is None:
        return DType(fields.log.default("dtype", "bf16", "neither dtype nor torch_dtype is given"))
    if stated not in _BASES:
        raise fields.wrong("dtype" if fields.has("dtype") else "torch_dtype", "a known dtype")
    if _BASES[stated] == DType.FP32:
        return DType(fields.log.default("dtype", "bf16", "float32 checkpoints are served as bf16"))
    return _BASES[stated]


def shipped_formats(fields: Fields, source: Source, layers: list[Layer], hidden: int) -> Formats:
    """Return every component's format: the companion file first, then the config's own."""
    base = _base(fields)
    scheme = _scheme(fields, source)
    components: dict[Component, DType] = {}
    kv = scheme.kv if scheme is not None else None
    if scheme is not None:
        components = _resolve(fields, scheme, layers, hidden, base)
    multiplied = {} if scheme is None else scheme.activations
    activations = {part: multiplied[d] for part, d in components.items() if d in multiplied}
    experts = fields.text("expert_dtype")
    if experts is not None:
        if experts not in _EXPERT_FORMATS:
            raise fields.wrong("expert_dtype", f"one of {', '.join(_EXPERT_FORMATS)}")
        if scheme is None or not any("experts" in name for name in scheme.named):
            components[Component.EXPERTS] = _EXPERT_FORMATS[experts]
            if experts == "fp4" and scheme is not None:  # beside fp8 layers: fp8 times fp4 kernels
                activations[Component.EXPERTS] = DType.FP8
    return Formats(
        base=base,
        components={part: dtype for part, dtype in components.items() if dtype != base},
        activations=activations,
        kv=kv,
    )


def _scheme(fields: Fields, source: Source) -> Scheme | None:
    own = fields.inner("quantization_config", "compression_config")
    beside = source.quantization.get("quantization")
    if beside is None:
        return read_scheme(own) if own is not None else None
    if not isinstance(beside, dict):
        raise InputError(f"{source.name}: hf_quant_config.json: quantization: expected an object")
    companion = Fields(
        file=source.name, data=beside, log=fields.log, path="hf_quant_config.quantization."
    )
    if own is None:
        fields.log.note("the quantisation stands in hf_quant_config.json only")
        return read_scheme(companion)
    kv = read_scheme(companion).kv if companion.has("quant_algo") else None
    scheme = read_scheme(own)
    return Scheme(
        default=scheme.default,
        named=scheme.named or read_scheme(companion).named,
        ignore=scheme.ignore,
        experts_only=scheme.experts_only,
        kv=scheme.kv or kv,
        activations=scheme.activations,
    )


def _resolve(
    fields: Fields, scheme: Scheme, layers: list[Layer], hidden: int, base: DType
) -> dict[Component, DType]:
    """Return each component's prevailing format, and say where a part of it differs."""
    ignored = Modules.of(scheme.ignore, fields.file)
    named = {
        dtype: Modules.of((n for n, d in scheme.named.items() if d == dtype), fields.file)
        for dtype in dict.fromkeys(scheme.named.values())
    }
    weights: dict[Component, Counter[DType]] = {}
    for at, layer in enumerate(layers):
        for component, spellings in layer_modules(layer, hidden).items():
            default = scheme.default
            if scheme.experts_only and component != Component.EXPERTS:
                default = None
            tally = _tally(
                at, spellings, ignored=ignored, named=named, default=default or base, base=base
            )
            weights.setdefault(component, Counter()).update(tally)
    found: dict[Component, DType] = {}
    for component, counts in weights.items():
        dtype, most = counts.most_common(1)[0]
        found[component] = dtype
        share = 1 - most / counts.total()
        if share > 1e-3:
            others = ", ".join(str(d) for d in counts if d != dtype)
            fields.log.note(
                f"{component}: counted as {dtype} throughout; {100 * share:.1f} % is {others}"
            )
    head = next((dtype for dtype, names in named.items() if names.match("lm_head")), None)
    if head is not None and not ignored.match("lm_head"):
        found[Component.HEAD] = head
    kept = "embedding, norms and router" if head else "embedding, head, norms and router"
    fields.log.note(f"{kept} stay at {base}")
    return found


def _tally(
    at: int,
    spellings: list[Spelling],
    *,
    ignored: Modules,
    named: Mapping[DType, Modules],
    default: DType,
    base: DType,
) -> Counter[DType]:
    """Return the shares of formats in one component of one layer.

    Of the ways to spell its modules, the one that the lists know best is the published one.
    """
    best: Counter[DType] = Counter()
    most = -1.0
    for spelling in spellings:
        tally: Counter[DType] = Counter()
        known = 0.0
        total = sum(spelling.values())
        for name, share in spelling.items():
            full = canonical(f"layers.{at}.{name}")
            own = next((dtype for dtype, names in named.items() if names.match(full)), None)
            left = ignored.match(full)
            known += (left or own is not None) * share / total
            dtype = base if left else own or default
            tally[dtype] += share / total  # type: ignore[assignment]
        if known > most:
            best, most = tally, known
    return best
