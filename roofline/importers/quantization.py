"""Quantisation as shipped, resolved to the format of each component."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from roofline.base.errors import InputError, Option
from roofline.importers.fields import Fields
from roofline.importers.layers import Layer
from roofline.importers.module_names import Spelling, layer_modules
from roofline.importers.schemes import Scheme, read_scheme
from roofline.importers.source import Source
from roofline.specs.formats import Component, DType

__all__ = ["Formats", "Modules", "canonical", "shipped_formats"]

_PREFIX = re.compile(
    r"^(?:model\.language_model\.|language_model\.model\.|language_model\.|model\.|backbone\.|"
    r"transformer\.)"
)
_LAYER = re.compile(r"^layers\.(\d+)\b")
MOST_NAMES = 100_000
MOST_GLOBS = 2_000  # in all
MOST_LOOSE = 200  # that name no layer, and are tried on every module
LONGEST = 300


def canonical(name: str) -> str:
    """Return a module's name without what precedes ``layers``.

    >>> canonical("language_model.model.layers.3.self_attn"), canonical("backbone.layers.4.mixer")
    ('layers.3.self_attn', 'layers.4.mixer')
    """
    return _PREFIX.sub("", name)


def _parts(name: str) -> Iterator[str]:
    """Yield every run of a name's dotted segments: itself, its prefixes, its parts."""
    segments = name.split(".")
    for start in range(len(segments)):
        for end in range(start + 1, len(segments) + 1):
            yield ".".join(segments[start:end])


def _prefixes(name: str) -> Iterator[str]:
    segments = name.split(".")
    return (".".join(segments[:end]) for end in range(1, len(segments) + 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Modules:
    """A compiled list of modules."""

    names: frozenset[str] = frozenset()
    globs: dict[str, re.Pattern[str]] = field(default_factory=dict)  # by layer, "" for any
    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, listed: Iterable[str], file: str) -> Modules:
        """Compile a list; a pattern that could take for ever is refused."""
        names: set[str] = set()
        globs: dict[str, list[str]] = defaultdict(list)
        patterns: list[re.Pattern[str]] = []
        for count, entry in enumerate(listed):
            if count >= MOST_NAMES or len(entry) > LONGEST:
                raise _too_long(file)
            if entry.startswith("re:"):
                patterns.append(_compile(entry.removeprefix("re:"), file))
            elif any(letter in entry for letter in "*?["):
                name = canonical(entry)
                layer = _LAYER.match(name)
                whole = layer is not None and not name[layer.end() :].startswith(("*", "?", "["))
                globs[layer[1] if layer and whole else ""].append(name)
            else:
                names.add(canonical(entry).rstrip("."))
        loose = len(globs.get("", [])) + len(set(patterns))
        if sum(map(len, globs.values())) > MOST_GLOBS or loose > MOST_LOOSE:
            raise _too_long(file)
        return cls(
            names=frozenset(names - {""}),
            globs={key: _joined(entries) for key, entries in globs.items()},
            patterns=tuple(dict.fromkeys(patterns)),
        )

    def match(self, name: str) -> bool:
        """Return whether the list names this module (canonical), one around it, or a part."""
        if any(part in self.names for part in _parts(name)):
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
    """Compile a pattern of the kind that such lists use: no repeated groups, few repeats."""
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
