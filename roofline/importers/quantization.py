"""The quantisation of a published checkpoint, as the format of each component."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from roofline.base.errors import InputError, Option
from roofline.importers.config_files import ConfigFiles
from roofline.importers.fields import Fields
from roofline.importers.layers import Layer
from roofline.importers.module_names import Spelling, layer_modules
from roofline.importers.quantization_schemes import QuantizationScheme, read_scheme
from roofline.specs.formats import Component, DType

__all__ = ["ComponentFormats", "ModuleList", "canonical_name", "shipped_formats"]

_PREFIX = re.compile(
    r"^(?:model\.language_model\.|language_model\.model\.|language_model\.|model\.|backbone\.|"
    r"transformer\.)"
)
_LAYER = re.compile(r"^layers\.(\d+)\b")
MOST_NAMES = 100_000
MOST_GLOBS = 2_000  # in all
MOST_LAYERLESS = 200  # globs and patterns that name no layer, and are tried on every module
LONGEST_ENTRY = 300


def canonical_name(name: str) -> str:
    """Return a module's name without what precedes ``layers``.

    >>> canonical_name("language_model.model.layers.3.self_attn")
    'layers.3.self_attn'
    >>> canonical_name("backbone.layers.4.mixer")
    'layers.4.mixer'
    """
    return _PREFIX.sub("", name)


def _segment_runs(name: str) -> Iterator[str]:
    """Yield every run of a name's dotted segments, the whole name included."""
    segments = name.split(".")
    for start in range(len(segments)):
        for end in range(start + 1, len(segments) + 1):
            yield ".".join(segments[start:end])


def _prefixes(name: str) -> Iterator[str]:
    segments = name.split(".")
    return (".".join(segments[:end]) for end in range(1, len(segments) + 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleList:
    """A compiled list of modules."""

    names: frozenset[str] = frozenset()
    globs: dict[str, re.Pattern[str]] = field(default_factory=dict)  # by layer, "" for any
    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, listed: Iterable[str], file: str) -> ModuleList:
        """Compile a list; refuse a pattern whose matching could take without bound."""
        names: set[str] = set()
        globs: dict[str, list[str]] = defaultdict(list)
        patterns: list[re.Pattern[str]] = []
        for count, entry in enumerate(listed):
            if count >= MOST_NAMES or len(entry) > LONGEST_ENTRY:
                raise _too_long(file)
            if entry.startswith("re:"):
                patterns.append(_compile(entry.removeprefix("re:"), file))
            elif any(letter in entry for letter in "*?["):
                name = canonical_name(entry)
                layer = _LAYER.match(name)
                if layer is None or name[layer.end() :].startswith(("*", "?", "[")):
                    globs[""].append(name)
                else:
                    globs[layer[1]].append(name)
            else:
                names.add(canonical_name(entry).rstrip("."))
        layerless = len(globs.get("", [])) + len(set(patterns))
        if sum(map(len, globs.values())) > MOST_GLOBS or layerless > MOST_LAYERLESS:
            raise _too_long(file)
        return cls(
            names=frozenset(names - {""}),
            globs={key: _joined(entries) for key, entries in globs.items()},
            patterns=tuple(dict.fromkeys(patterns)),
        )

    def match(self, name: str) -> bool:
        """Return whether the list names a module: its canonical name, a run of it, or a pattern."""
        if any(run in self.names for run in _segment_runs(name)):
            return True
        layer = _LAYER.match(name)
        for key in ("", layer[1] if layer else ""):
            glob = self.globs.get(key)
            if glob is not None and any(glob.match(prefix) for prefix in _prefixes(name)):
                return True
        full = (name, f"model.{name}", f"language_model.model.{name}")
        return any(pattern.match(text) for pattern in self.patterns for text in full)

    def __bool__(self) -> bool:
        """Return whether the list names anything."""
        return bool(self.names or self.globs or self.patterns)


def _too_long(file: str) -> InputError:
    return InputError(f"{file}: a list of modules is too long to be one; give {Option('weights')}")


def _joined(globs: list[str]) -> re.Pattern[str]:
    unique = dict.fromkeys(globs)
    return re.compile("|".join(fnmatch.translate(glob) for glob in unique))


def _compile(pattern: str, file: str) -> re.Pattern[str]:
    """Compile a pattern as such lists use them: without repeated groups, with few repeats."""
    if re.search(r"\)[*+{?]", pattern) or len(re.findall(r"[*+{]", pattern)) > 4:
        raise InputError(f"{file}: pattern 're:{pattern[:40]}' is too involved for a module list")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"{file}: pattern 're:{pattern[:40]}': {error}") from None


_BASES = {
    "bfloat16": DType.BF16,
    "torch.bfloat16": DType.BF16,
    "bf16": DType.BF16,
    "float16": DType.FP16,
    "torch.float16": DType.FP16,
    "half": DType.FP16,
    "fp16": DType.FP16,
    "float32": DType.FP32,
    "torch.float32": DType.FP32,
    "fp32": DType.FP32,
    "auto": DType.BF16,
}
_EXPERT_FORMATS = {"fp4": DType.MXFP4, "fp8": DType.FP8_BLOCK, "bf16": DType.BF16}


@dataclass(frozen=True, kw_only=True, slots=True)
class ComponentFormats:
    """The format between the products, the formats of components that differ, and the cache's."""

    base: DType
    components: dict[Component, DType] = field(default_factory=dict)
    #: Activation formats of components, where they differ from their weight format's usual ones.
    activations: dict[Component, DType] = field(default_factory=dict)
    kv: DType | None = None


def _base_format(fields: Fields) -> DType:
    stated = fields.text("dtype", "torch_dtype")
    if stated is None:
        return DType(fields.log.default("dtype", "bf16", "neither dtype nor torch_dtype is given"))
    if stated not in _BASES:
        raise fields.wrong("dtype" if fields.has("dtype") else "torch_dtype", "a known dtype")
    if _BASES[stated] == DType.FP32:
        return DType(fields.log.default("dtype", "bf16", "float32 checkpoints are served as bf16"))
    return _BASES[stated]


def shipped_formats(
    fields: Fields, source: ConfigFiles, layers: list[Layer], hidden: int
) -> ComponentFormats:
    """Return every component's format: the companion file first, then the config's own."""
    base = _base_format(fields)
    scheme = _scheme(fields, source)
    components: dict[Component, DType] = {}
    activations: dict[Component, DType] = {}
    if scheme is not None:
        components = _component_formats(fields, scheme, layers, hidden, base)
        activations = {
            component: scheme.activations[dtype]
            for component, dtype in components.items()
            if dtype in scheme.activations
        }
    experts = fields.text("expert_dtype")
    if experts is not None:
        if experts not in _EXPERT_FORMATS:
            raise fields.wrong("expert_dtype", f"one of {', '.join(_EXPERT_FORMATS)}")
        if scheme is None or not any("experts" in name for name in scheme.named):
            components[Component.EXPERTS] = _EXPERT_FORMATS[experts]
            if experts == "fp4" and scheme is not None:  # beside fp8 layers: fp8 times fp4 kernels
                activations[Component.EXPERTS] = DType.FP8
    return ComponentFormats(
        base=base,
        components={name: dtype for name, dtype in components.items() if dtype != base},
        activations=activations,
        kv=None if scheme is None else scheme.kv,
    )


def _scheme(fields: Fields, source: ConfigFiles) -> QuantizationScheme | None:
    """Return the scheme of a config and its companion file, None where neither has one."""
    inside = fields.inner("quantization_config", "compression_config")
    data = source.quantization.get("quantization")
    if data is None:
        return read_scheme(inside) if inside is not None else None
    if not isinstance(data, dict):
        raise InputError(f"{source.name}: hf_quant_config.json: quantization: expected an object")
    companion = Fields(
        file=source.name, data=data, log=fields.log, path="hf_quant_config.quantization."
    )
    if inside is None:
        fields.log.note("the quantisation stands in hf_quant_config.json only")
        return read_scheme(companion)
    kv = read_scheme(companion).kv if companion.has("quant_algo") else None
    scheme = read_scheme(inside)
    named = scheme.named or read_scheme(companion).named
    return replace(scheme, named=named, kv=scheme.kv or kv)


def _component_formats(
    fields: Fields, scheme: QuantizationScheme, layers: list[Layer], hidden: int, base: DType
) -> dict[Component, DType]:
    """Return the most frequent format of each component, with a note where a part of it differs."""
    ignored = ModuleList.of(scheme.ignore, fields.file)
    named = {
        dtype: ModuleList.of((n for n, d in scheme.named.items() if d == dtype), fields.file)
        for dtype in dict.fromkeys(scheme.named.values())
    }
    weights: dict[Component, Counter[DType]] = {}
    for index, layer in enumerate(layers):
        for component, spellings in layer_modules(layer, hidden).items():
            default = scheme.default
            if scheme.experts_only and component != Component.EXPERTS:
                default = None
            tally = _format_shares(
                index, spellings, ignored=ignored, named=named, default=default or base, base=base
            )
            weights.setdefault(component, Counter()).update(tally)
    formats: dict[Component, DType] = {}
    for component, shares in weights.items():
        dtype, most = shares.most_common(1)[0]
        formats[component] = dtype
        share = 1 - most / shares.total()
        if share > 1e-3:
            others = ", ".join(str(other) for other in shares if other != dtype)
            fields.log.note(
                f"{component}: counted as {dtype} throughout; {100 * share:.1f} % is {others}"
            )
    head = next((dtype for dtype, names in named.items() if names.match("lm_head")), None)
    if head is not None and not ignored.match("lm_head"):
        formats[Component.HEAD] = head
    unquantized = "embedding, norms and router" if head else "embedding, head, norms and router"
    fields.log.note(f"{unquantized} stay at {base}")
    return formats


def _format_shares(
    index: int,
    spellings: list[Spelling],
    *,
    ignored: ModuleList,
    named: Mapping[DType, ModuleList],
    default: DType,
    base: DType,
) -> Counter[DType]:
    """Return the shares of formats in one component of the layer with this index.

    Of the spellings of its modules, the one with the largest share in the lists is taken as the
    published one.
    """
    published: Counter[DType] = Counter()
    most_listed = -1.0
    for spelling in spellings:
        shares: Counter[DType] = Counter()
        listed = 0.0
        total = sum(spelling.values())
        for name, size in spelling.items():
            module = canonical_name(f"layers.{index}.{name}")
            stated = next((dtype for dtype, names in named.items() if names.match(module)), None)
            is_ignored = ignored.match(module)
            listed += (is_ignored or stated is not None) * size / total
            dtype = base if is_ignored else stated or default
            shares[dtype] += size / total  # type: ignore[assignment]
        if listed > most_listed:
            published, most_listed = shares, listed
    return published
