"""Number formats: how many bytes an element takes and at which rate its arithmetic runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from roofline.base.errors import InputError, Option
from roofline.base.names import meaning, unknown
from roofline.base.notices import Code, Notice, notice

__all__ = [
    "LAYER_LINEARS",
    "Component",
    "DType",
    "Precision",
    "bits_per_weight",
    "bytes_per_element",
    "few_bits",
    "format_named",
    "is_gguf",
    "nearest_format",
    "parse_dtype",
    "rate_name",
    "resolve_precision",
]


def bits_per_weight(name: str) -> float | None:
    """Return the bits per weight of a format called ``4.7bpw``, None for any other name.

    >>> bits_per_weight("4.7bpw"), bits_per_weight("fp8")
    (4.7, None)
    """
    match = re.fullmatch(r"(\d{1,2}(?:\.\d{1,3})?)bpw", name)
    bits = float(match[1]) if match else 0.0
    return bits if 1 <= bits <= 32 else None


class DType(StrEnum):
    """A storage format, named as the option ``weights`` names it."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8-block"
    INT8 = "int8"
    INT4_G128 = "int4-g128"
    INT4_G64 = "int4-g64"
    INT4_G32 = "int4-g32"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    # GGUF types of one tensor
    Q8_0 = "q8_0"
    Q6_K = "q6_k"
    Q5_K = "q5_k"
    Q5_1 = "q5_1"
    Q5_0 = "q5_0"
    Q4_K = "q4_k"
    Q4_1 = "q4_1"
    Q4_0 = "q4_0"
    Q3_K = "q3_k"
    Q2_K = "q2_k"
    IQ4_NL = "iq4_nl"
    IQ4_XS = "iq4_xs"
    IQ3_S = "iq3_s"
    IQ3_XXS = "iq3_xxs"
    IQ2_S = "iq2_s"
    IQ2_XS = "iq2_xs"
    IQ2_XXS = "iq2_xxs"
    IQ1_M = "iq1_m"
    IQ1_S = "iq1_s"
    TQ2_0 = "tq2_0"
    TQ1_0 = "tq1_0"
    # GGUF mixtures, which files are named after
    Q6_K_L = "q6_k_l"
    Q5_K_L = "q5_k_l"
    Q5_K_M = "q5_k_m"
    Q5_K_S = "q5_k_s"
    Q4_K_XL = "q4_k_xl"
    Q4_K_L = "q4_k_l"
    Q4_K_M = "q4_k_m"
    Q4_K_S = "q4_k_s"
    Q3_K_L = "q3_k_l"
    Q3_K_M = "q3_k_m"
    Q3_K_S = "q3_k_s"
    IQ3_M = "iq3_m"
    IQ3_XS = "iq3_xs"
    IQ2_M = "iq2_m"
    Q2_K_L = "q2_k_l"
    # names of files whose own widths differ by model or layer: see `nearest_format`
    Q8_K_XL = "q8_k_xl"
    Q6_K_XL = "q6_k_xl"
    Q5_K_XL = "q5_k_xl"
    Q3_K_XL = "q3_k_xl"
    Q2_K_XL = "q2_k_xl"
    Q2_K_S = "q2_k_s"
    MXFP4_MOE = "mxfp4_moe"

    @classmethod
    def _missing_(cls, value: object) -> DType | None:
        """Make a format of any width: ``4.7bpw`` stores a weight in 4.7 bits, scales included."""
        if not isinstance(value, str) or bits_per_weight(value) is None:
            return None
        member = str.__new__(cls, value)
        member._name_, member._value_ = value, value
        registered = cls._value2member_map_.setdefault(value, member)
        return registered if isinstance(registered, cls) else None


class Component(StrEnum):
    """A part of a model that may have a dtype of its own."""

    ATTENTION = "attention"
    MIXER = "mixer"  # linear and state-space mixers
    MLP = "mlp"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"  # and what gates heads or scores tokens: small, and never narrow
    HEAD = "head"
    EMBEDDING = "embedding"
    NORM = "norm"
    VISION = "vision"


#: The option ``weights`` changes these and nothing else.
LAYER_LINEARS = frozenset(
    {
        Component.ATTENTION,
        Component.MIXER,
        Component.MLP,
        Component.EXPERTS,
        Component.SHARED_EXPERTS,
    }
)


class _Format(NamedTuple):
    element_bytes: float  # [B] with its share of the scales
    rate: str  # the peak its arithmetic uses when it is the activation format
    activations: str | None  # activations it is multiplied with by default; None = the model's own


#: Bits per weight. Types: block bytes x 8 / block weights, from ggml's block structures (Q4_K: 144
#: bytes for 256). Mixtures: as llama.cpp's quantize README measured them on Llama-3.1-8B; Unsloth's
#: q4_k_xl, which differs by model, from its file of Qwen3.5-27B: 17.6 GB for 26.9 B weights
#: (ggml-org/Llama-macOS pull request 63, whose other dense models have 5.4 to 5.9 bits).
_GGUF_BITS: Mapping[str, float] = {
    "q8_0": 8.5,
    "q6_k": 6.5625,
    "q5_k": 5.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_k": 4.5,
    "q4_1": 5.0,
    "q4_0": 4.5,
    "q3_k": 3.4375,
    "q2_k": 2.625,
    "iq4_nl": 4.5,
    "iq4_xs": 4.25,
    "iq3_s": 3.4375,
    "iq3_xxs": 3.0625,
    "iq2_s": 2.5625,
    "iq2_xs": 2.3125,
    "iq2_xxs": 2.0625,
    "iq1_m": 1.75,
    "iq1_s": 1.5625,
    "tq2_0": 2.0625,
    "tq1_0": 1.6875,
    "q5_k_m": 5.7036,
    "q5_k_s": 5.5704,
    "q4_k_xl": 5.2342,
    "q4_k_m": 4.8944,
    "q4_k_s": 4.6672,
    "q3_k_l": 4.2979,
    "q3_k_m": 3.9960,
    "q3_k_s": 3.6429,
    "iq3_m": 3.7628,
    "iq3_xs": 3.4977,
    "iq2_m": 2.9294,
}
#: Mixtures of the community that differ from llama.cpp's own in the embedding and the output matrix
#: alone, which are q8_0, and that own mixture (model card of bartowski/Qwen2.5-32B-Instruct-GGUF:
#: "the standard quantization method with the embeddings and output weights quantized to Q8_0").
#: llama.cpp's own q3_k_l is none of them.
_WITH_WIDE_ENDS: Mapping[str, str] = {
    "q6_k_l": "q6_k",
    "q5_k_l": "q5_k_m",
    "q4_k_l": "q4_k_m",
    "q2_k_l": "q2_k",
}
_BITS = {**_GGUF_BITS, **{name: _GGUF_BITS[own] for name, own in _WITH_WIDE_ENDS.items()}}
#: Formats without a width of their own, and the one of that name in whose place each is priced:
#: Unsloth's mixtures differ by model, and its q3_k_xl is not bartowski's; llama.cpp's q2_k_s has
#: fewer wide tensors than its q2_k (llama-quant.cpp, llama_tensor_get_type).
_NEAREST: Mapping[str, str] = {
    "q8_k_xl": "q8_0",
    "q6_k_xl": "q6_k_l",
    "q5_k_xl": "q5_k_m",
    "q3_k_xl": "q3_k_l",
    "q2_k_xl": "q2_k_l",
    "q2_k_s": "q2_k",
}

_FORMATS: Mapping[DType, _Format] = {
    DType.FP32: _Format(4.0, "fp32", None),
    DType.BF16: _Format(2.0, "bf16", None),
    DType.FP16: _Format(2.0, "fp16", None),
    DType.FP8: _Format(1.0, "fp8", "fp8"),  # one scale per tensor or channel: negligible
    DType.FP8_BLOCK: _Format(1.0 + 4 / (128 * 128), "fp8", "fp8"),  # fp32 scale per 128 x 128
    DType.INT8: _Format(1.0, "int8", None),  # weight-only unless activations are int8
    DType.INT4_G128: _Format(0.5 + (2 + 0.5) / 128, "int4", None),  # fp16 scale + 4-bit zero
    DType.INT4_G64: _Format(0.5 + (2 + 0.5) / 64, "int4", None),
    DType.INT4_G32: _Format(0.5 + 2 / 32, "int4", None),  # symmetric: a 16-bit scale, no zero
    DType.NVFP4: _Format(0.5 + 1 / 16, "fp4", "nvfp4"),  # fp8 scale per 16
    DType.MXFP4: _Format(0.5 + 1 / 32, "fp4", None),  # 8-bit exponent per 32
    DType.MXFP4_MOE: _Format(0.5 + 1 / 32, "fp4", None),  # its experts: see `_in_a_file`
    **{DType(name): _Format(bits / 8, "int8", None) for name, bits in _BITS.items()},
}


def nearest_format(dtype: DType) -> DType | None:
    """Return the format in whose place one without a known width is priced; None for any other.

    >>> nearest_format(DType.Q5_K_XL), nearest_format(DType.Q5_K_M)
    (<DType.Q5_K_M: 'q5_k_m'>, None)
    """
    near = _NEAREST.get(dtype.value)
    return None if near is None else DType(near)


_WIDE = (DType.FP32, DType.BF16, DType.FP16)

#: Bits per weight below which an answer's quality is warned of: the narrowest formats that
#: accelerators multiply (NVFP4, MXFP4) and that checkpoints are served in (AWQ, GPTQ) have 4.
QUALITY_BITS = 4.0


def few_bits(dtype: DType) -> bool:
    """Return whether a weight of this format takes fewer than 4 bits, scales included.

    >>> few_bits(DType.Q3_K), few_bits(DType.MXFP4)
    (True, False)
    """
    return 8 * bytes_per_element(dtype) < QUALITY_BITS


@cache
def _format(dtype: DType) -> _Format:
    bits, dtype = bits_per_weight(dtype.value), nearest_format(dtype) or dtype
    return _FORMATS[dtype] if bits is None else _Format(bits / 8, "int8", None)


@cache
def bytes_per_element(dtype: DType) -> float:
    """Return the bytes of one element including its share of the scales [B].

    >>> bytes_per_element(DType.NVFP4), bytes_per_element(DType("4.8bpw"))
    (0.5625, 0.6)
    """
    return _format(dtype).element_bytes


def is_gguf(dtype: DType) -> bool:
    """Return whether a format is of a GGUF file or a bare width: there the head is quantised too.

    >>> is_gguf(DType.Q4_K_M), is_gguf(DType("4.8bpw")), is_gguf(DType.FP8)
    (True, True, False)
    """
    named = dtype.value in _BITS or dtype.value in _NEAREST or dtype is DType.MXFP4_MOE
    return named or bits_per_weight(dtype.value) is not None


def rate_name(activations: DType) -> str:
    """Return the peak that a product with these activations runs at.

    >>> rate_name(DType.FP8_BLOCK)
    'fp8'
    """
    return _format(activations).rate


#: What most people ask for; names that files of GGUF go by are too many for a line.
_EXAMPLES = (
    "bf16, fp8, fp8-block, int8, int4-g128, nvfp4, mxfp4, a GGUF type (q4_k_m) or a width (4.7bpw)"
)
FORMATS = "formats"  # whose names are data/formats.aliases.yaml


def format_named(text: str) -> DType | None:
    """Return the one format that a name means, however it is written; None for any other.

    >>> format_named("UD-Q4_K_XL"), format_named("GPTQ-Int4"), format_named("instruct")
    (<DType.Q4_K_XL: 'q4_k_xl'>, <DType.INT4_G128: 'int4-g128'>, None)
    """
    try:
        return DType(text.lower())
    except ValueError:
        found = meaning(text, FORMATS, tuple(DType))
        return None if found is None or found.id is None else DType(found.id)


def parse_dtype(text: str, field: str) -> DType:
    """Return the dtype called ``text``; ``field`` is the option at fault if there is none."""
    dtype = format_named(text)
    if dtype is None:
        more = f", such as {_EXAMPLES}"
        refusal = unknown(text, FORMATS, tuple(DType), what="format", more=more)
        raise InputError(refusal.problem, field=field)
    return dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """The storage and arithmetic formats of one model on one accelerator.

    ``weights`` is the storage of each component, ``activations`` the format each component's
    product runs in, ``base`` the format of everything between the products (norms, attention
    arithmetic, logits), ``kv`` the storage of the KV cache.
    """

    weights: Mapping[Component, DType]
    activations: Mapping[Component, DType]
    base: DType
    kv: DType


def resolve_precision(
    *,
    stored: Mapping[Component, DType],
    base: DType,
    kv_stored: DType | None,
    available: Iterable[str],
    gpu: str,
    weights: DType | None = None,
    activations: DType | None = None,
    kv: DType | None = None,
    usual: Mapping[Component, DType] | None = None,
    used: Iterable[Component] = LAYER_LINEARS,
) -> tuple[Precision, list[Notice]]:
    """Decide every format from the model's own, the user's options and the accelerator's rates.

    A product runs at the peak of its activations. Where the accelerator has no rate for a weight
    format's usual activations, the weights stay narrow in memory and are multiplied at the model's
    own activation format ("weight-only"), with a warning. ``activations`` are those of all layers
    whose weights are no wider; such that the accelerator cannot multiply are refused. The KV cache
    format is storage only.

    ``usual`` holds the activations that a model's own kernels are made for, where they are not the
    weight format's; ``used`` the components that it has. Returns the formats and the notices.
    """
    rates = set(available)
    if activations in _WIDE:
        base = activations
    _require_rate(base, rates, gpu)
    if activations is not None:
        _require_rate(activations, rates, gpu)
    storage = {
        c: _in_a_file(weights, c) if weights and c in LAYER_LINEARS else d
        for c, d in stored.items()
    }
    if weights is not None and is_gguf(weights):  # a file's head is at least 6 bits wide
        wide = (nearest_format(weights) or weights).value in _WITH_WIDE_ENDS
        wide = wide or weights is DType.MXFP4_MOE
        least = DType.Q8_0 if wide else DType.Q6_K
        storage[Component.HEAD] = max(weights, least, key=bytes_per_element)
        storage[Component.EMBEDDING] = DType.Q8_0 if wide else weights
    taking = _taking(activations, storage, set(used)) if activations is not None else set()
    multiplied: dict[Component, DType] = {}
    notices: list[Notice] = []
    for component, dtype in storage.items():
        default = _format(dtype).activations
        product = base if default is None else DType(default)
        if usual is not None and component in usual and dtype == stored[component]:
            product = usual[component]
        if activations is not None and component in taking:
            product = activations
        if rate_name(product) not in rates:
            stored_only = notice(
                Code.WEIGHTS_STORED_ONLY,
                gpu=gpu,
                rate=rate_name(product),
                weights=dtype,
                multiplied=base,
            )
            if stored_only not in notices:
                notices.append(stored_only)
            product = base
        multiplied[component] = product
    kv_format = kv or kv_stored or base
    return Precision(weights=storage, activations=multiplied, base=base, kv=kv_format), notices


def _taking(
    activations: DType, storage: Mapping[Component, DType], used: set[Component]
) -> set[Component]:
    """Return the components that are multiplied with these activations.

    Layers whose weights are wider keep their own; where no layer of the model takes them, they are
    refused.
    """
    # 0.1 B is more than any format's scales take beside its elements
    widest = bytes_per_element(activations) + 0.1
    layers = [c for c in storage if c in LAYER_LINEARS]
    taking = {c for c in layers if bytes_per_element(storage[c]) <= widest}
    wider = [c for c in layers if c in used and c not in taking]
    if wider and not taking & used:
        raise InputError(
            f"narrower than the {storage[wider[0]]} weights of {wider[0]}; use "
            f"{Option('weights', activations)} as well, or drop {Option('activations')}",
            field="activations",
            value=activations,
        )
    return taking


def _in_a_file(weights: DType, component: Component) -> DType:
    """Return the format of one component's matrices where the layers' are called ``weights``.

    llama.cpp's mxfp4_moe has its experts as mxfp4 and every other matrix as q8_0 (llama-quant.cpp,
    llama_tensor_get_type): gpt-oss-120b's 116.8 B weights take 59.0 GiB.

    >>> _in_a_file(DType.MXFP4_MOE, Component.ATTENTION), _in_a_file(DType.Q4_K, Component.MLP)
    (<DType.Q8_0: 'q8_0'>, <DType.Q4_K: 'q4_k'>)
    """
    if weights is not DType.MXFP4_MOE:
        return weights
    return DType.MXFP4 if component is Component.EXPERTS else DType.Q8_0


def _require_rate(dtype: DType, rates: set[str], gpu: str) -> None:
    """Refuse activations whose products the accelerator has no rate for."""
    if rate_name(dtype) not in rates:
        wide = dtype in _WIDE  # what lies between the products cannot be narrow
        first = {rate_name(other): other for other in reversed(_WIDE if wide else list(DType))}
        usable = [other for rate, other in reversed(first.items()) if rate in rates]
        raise InputError(
            f"{gpu} has no {rate_name(dtype)} rate, so {dtype} activations are refused; "
            f"use {Option('activations')} with one of: {', '.join(usable)}"
        )
