"""A quantisation scheme, in the form of any tool that writes it, read into formats by module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from roofline.base.errors import InputError, Option
from roofline.importers.fields import Fields, short_repr
from roofline.specs.formats import DType

__all__ = ["QuantizationScheme", "kv_format", "read_scheme"]

_IGNORE_KEYS = ("ignore", "modules_to_not_convert", "exclude_modules")
#: Algorithms as the ModelOpt tool calls them; None is no quantisation.
ALGORITHMS: Mapping[str, DType | None] = {
    "FP8": DType.FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": DType.FP8,
    "FP8_PB_WO": DType.FP8_BLOCK,
    "FP8_BLOCK_SCALES": DType.FP8_BLOCK,
    "NVFP4": DType.NVFP4,
    "NVFP4_AWQ": DType.NVFP4,
    "W4A16_NVFP4": DType.NVFP4,
    "W4A8_NVFP4_FP8": DType.NVFP4,
    "MXFP4": DType.MXFP4,
    "W4A8_MXFP4_FP8": DType.MXFP4,
    "W4A16_MXFP4": DType.MXFP4,
    "W4A16_AWQ": DType.INT4_G128,
    "W4A8_AWQ": DType.INT4_G128,
    "W8A16": DType.INT8,
    "W8A8_SQ_PER_CHANNEL": DType.INT8,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizationScheme:
    """A default format for matrices in layers, formats of named modules, and ignored modules."""

    default: DType | None = None
    named: Mapping[str, DType] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    experts_only: bool = False
    kv: DType | None = None
    #: Activation formats of integer weights, by weight format, where the scheme states them.
    activations: Mapping[DType, DType] = field(default_factory=dict)


#: Formats whose weights are integers.
_INTEGERS = frozenset({DType.INT8, DType.INT4_G128, DType.INT4_G64, DType.INT4_G32})


def _ignored_modules(fields: Fields) -> tuple[str, ...]:
    modules: list[str] = []
    for name in _IGNORE_KEYS:
        value = fields.data.get(name)
        fields.log.read.add(fields.path + name)
        if value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise fields.wrong(name, "a list of module names")
        modules += value
    return tuple(modules)


def _bits(fields: Fields) -> int:
    """Return ``bits``, which some files write as a text."""
    value = fields.data.get("bits", fields.data.get("w_bit"))
    if isinstance(value, str) and value.isdecimal() and len(value) < 3:
        return int(value)
    bits = fields.optional("bits", "w_bit")
    if bits is None:
        raise InputError(f"{fields.file}: {fields.path}bits: is missing; add it")
    return bits


def _group_size(fields: Fields, *names: str) -> int | None:
    """Return how many weights share a scale; -1 means a channel, and 0 is refused."""
    size = fields.optional(*names, minimum=-1)
    if size == 0:
        name = next(name for name in names if fields.has(name))
        raise fields.wrong(name, "-1 (a channel) or at least 1")
    return size


def integer_format(fields: Fields, bits: int, group: int | None, *, symmetric: bool) -> DType:
    """Return the format of ``bits``-bit integers that share a scale in groups."""
    if bits == 8:
        return DType.INT8
    if bits != 4:
        raise InputError(
            f"{fields.file}: {fields.path}bits: {bits}-bit integers are not known; 4 and 8 are"
        )
    if group == 32 and not symmetric:
        fields.log.note("groups of 32 with zero points are counted as symmetric (4.5 bits)")
    known = {32: DType.INT4_G32, 64: DType.INT4_G64, 128: DType.INT4_G128}
    if group in known:
        return known[group]
    if group is not None and 0 < group < 128:
        raise InputError(
            f"{fields.file}: {fields.path}group_size: {group} is not known; 32, 64 and 128 are"
        )
    fields.log.note(f"4-bit groups of {group or 'a channel'} are counted like groups of 128")
    return DType.INT4_G128


def _weights_format(fields: Fields, name: str) -> DType:
    """Return the format of a ``weights`` block: bits, float or int, group."""
    bits, kind = fields.integer("num_bits"), fields.text("type")
    group = _group_size(fields, "group_size")
    if kind == "float" and bits == 8:
        return DType.FP8_BLOCK if fields.text("strategy") == "block" else DType.FP8
    if kind == "float" and bits == 4:
        if "mxfp4" in name or group == 32:
            return DType.MXFP4
        return DType.NVFP4
    if kind != "int":
        raise fields.wrong("type", "float or int")
    symmetric = fields.flag("symmetric", default=True)
    return integer_format(fields, bits, group, symmetric=symmetric)


def kv_format(fields: Fields) -> DType | None:
    """Return the cache's format: a scheme by name or by bits, None for the model's own."""
    for name in ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_method"):
        value = fields.data.get(name)
        fields.log.read.add(fields.path + name)
        if value is None:
            continue
        scheme = fields.inner(name) if isinstance(value, dict) else None
        if scheme is not None:
            return _weights_format(scheme, "")
        known = {"FP8": DType.FP8, "INT8": DType.INT8, "NVFP4": DType.NVFP4, "NONE": None}
        if not isinstance(value, str) or value.upper() not in known:
            raise fields.wrong(name, f"one of {', '.join(known)}")
        if known[value.upper()] is not None:
            return known[value.upper()]
    return None


def _algorithm(fields: Fields, name: str) -> DType | None:
    if name.upper() in ("NONE", "NO_QUANT"):
        return None
    if name.upper() not in ALGORITHMS:
        raise InputError(
            f"{fields.file}: {fields.path}quant_algo: '{name[:40]}' is not known; give "
            f"{Option('weights')}"
        )
    return ALGORITHMS[name.upper()]


def _quantized_layers(fields: Fields) -> dict[str, DType]:
    """Return the format of each module that ``quantized_layers`` lists."""
    value = fields.data.get("quantized_layers")
    fields.log.read.add(f"{fields.path}quantized_layers")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise fields.wrong("quantized_layers", "an object")
    named: dict[str, DType] = {}
    for module, entry in value.items():
        algorithm = entry.get("quant_algo") if isinstance(entry, dict) else None
        if not isinstance(algorithm, str):
            raise InputError(f"{fields.file}: {fields.path}quantized_layers: has no quant_algo")
        dtype = _algorithm(fields, algorithm)
        if dtype is not None:
            named[module] = dtype
    return named


def _activations(group: Fields, weights: DType) -> DType | None:
    """Return the activation format of a group's integer weights, None for the usual one."""
    inputs = group.inner("input_activations")
    if inputs is None or weights not in _INTEGERS:
        return None
    bits, kind = inputs.optional("num_bits"), inputs.text("type")
    known = {("int", 8): DType.INT8, ("float", 8): DType.FP8}
    if bits is None or kind is None or (kind, bits) not in known:
        raise group.wrong("input_activations", "8-bit activations of type int or float")
    return known[kind, bits]


def _groups(fields: Fields) -> QuantizationScheme:
    """Return the formats of ``config_groups``: the default, and those of named targets."""
    groups = fields.inner("config_groups")
    if groups is None:
        raise InputError(f"{fields.file}: {fields.path}config_groups: is missing; add it")
    default: DType | None = None
    named: dict[str, DType] = {}
    activations_of: dict[DType, set[DType | None]] = {}
    for key in groups.data:
        group = groups.inner(key)
        weights = group.inner("weights") if group is not None else None
        if group is None or weights is None:
            continue
        packing = group.text("format") or fields.text("format") or ""
        dtype = _weights_format(weights, packing)
        activations_of.setdefault(dtype, set()).add(_activations(group, dtype))
        targets = group.data.get("targets", ["Linear"])
        if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
            raise group.wrong("targets", "a list of names")
        if any(target in ("Linear", "FusedMoE") for target in targets) or not targets:
            default = dtype
        named |= {target: dtype for target in targets if target not in ("Linear", "FusedMoE")}
    if not activations_of and kv_format(fields) is None:
        raise InputError(
            f"{fields.file}: {fields.path}config_groups: no group says how weights are stored; "
            "correct it, or remove quantization_config"
        )
    if not activations_of:
        fields.log.note("no group of quantization_config stores weights: only the cache is narrow")
    activations = {
        dtype: stated
        for dtype, (stated, *others) in activations_of.items()
        if stated and not others
    }
    for dtype, stated in activations.items():
        fields.log.note(f"{dtype} weights are multiplied with {stated} activations")
    for dtype in activations_of.keys() - activations.keys():
        if activations_of[dtype] != {None}:
            fields.log.note(f"groups of {dtype} differ in activations: counted as weight-only")
    return QuantizationScheme(default=default, named=named, activations=activations)


def read_scheme(fields: Fields) -> QuantizationScheme:
    """Return the scheme of a ``quantization_config`` or a companion file; refuse unknown ones."""
    method = fields.text("quant_method")
    algorithm = fields.text("quant_algo")
    ignore, kv = _ignored_modules(fields), kv_format(fields)
    if algorithm is not None:
        return _modelopt(fields, method, algorithm, ignore, kv)
    match method:
        case "fp8" | "fbgemm_fp8":
            return QuantizationScheme(default=_fp8(fields), ignore=ignore, kv=kv)
        case "mxfp4":
            return QuantizationScheme(default=DType.MXFP4, ignore=ignore, experts_only=True, kv=kv)
        case "awq" | "gptq" | "auto-round" | "awq_marlin" | "gptq_marlin":
            group = _group_size(fields, "group_size", "q_group_size")
            bits = _bits(fields)
            symmetric = fields.flag("sym") and not fields.flag("zero_point")
            dtype = integer_format(fields, bits, group, symmetric=symmetric)
            return QuantizationScheme(default=dtype, ignore=ignore, kv=kv)
        case "compressed-tensors" | "modelopt":
            return replace(_groups(fields), ignore=ignore, kv=kv)
        case "bitsandbytes":
            wide = fields.flag("load_in_8bit", "_load_in_8bit")
            fields.log.note("bitsandbytes 4-bit weights are counted as 4.16 bits")
            return QuantizationScheme(
                default=DType.INT8 if wide else DType.INT4_G128, ignore=ignore, kv=kv
            )
        case None if fields.has("config_groups"):
            return replace(_groups(fields), ignore=ignore, kv=kv)
    raise InputError(
        f"{fields.file}: {fields.path}quant_method: {short_repr(method)} is not known, and no "
        f"format is guessed; remove quantization_config and give {Option('weights')}"
    )


def _fp8(fields: Fields) -> DType:
    block = fields.integers("weight_block_size")
    if block is not None and (len(block) != 2 or 0 in block):
        raise fields.wrong("weight_block_size", "two whole numbers of at least 1, such as 128")
    return DType.FP8_BLOCK if block else DType.FP8


def _modelopt(
    fields: Fields, method: str | None, algorithm: str, ignore: tuple[str, ...], kv: DType | None
) -> QuantizationScheme:
    """Return ModelOpt's scheme: one algorithm, or formats by module over a default format."""
    if algorithm.upper() != "MIXED_PRECISION":
        dtype = _algorithm(fields, algorithm)
        activations: dict[DType, DType] = {}
        if dtype is not None and algorithm.upper().startswith("W8A8_"):
            activations[dtype] = dtype
        return QuantizationScheme(default=dtype, ignore=ignore, kv=kv, activations=activations)
    default = None
    if method == "fp8":
        default = _fp8(fields)
        fields.log.note(
            f"quant_method fp8 and quant_algo {algorithm} both stand: listed modules have their "
            f"own format, the others are {default}"
        )
        ignore = tuple(name for name in ignore if not name.startswith("*."))
    named = _quantized_layers(fields)
    return QuantizationScheme(default=default, named=named, ignore=ignore, kv=kv)
