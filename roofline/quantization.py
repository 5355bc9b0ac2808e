"""Number formats: how many bytes an element takes and at which rate its arithmetic runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from roofline.errors import InputError, did_you_mean

__all__ = ["Component", "DType", "Precision", "bytes_per_element", "parse_dtype", "resolve"]


class DType(StrEnum):
    """A storage format. Names as in ``--weights``."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8-block"
    INT8 = "int8"
    INT4_G128 = "int4-g128"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"


class Component(StrEnum):
    """A part of a model that may have a dtype of its own."""

    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    HEAD = "head"
    EMBEDDING = "embedding"
    NORM = "norm"


#: ``--weights`` changes these and nothing else.
LAYER_LINEARS = frozenset(
    {Component.ATTENTION, Component.MLP, Component.EXPERTS, Component.SHARED_EXPERTS}
)


@dataclass(frozen=True, slots=True)
class _Format:
    element_bytes: float  # [B] with its share of the scales
    rate: str  # the peak its arithmetic uses when it is the activation format
    activations: str | None  # activations it is multiplied with by default; None = the model's own


_FORMATS: Mapping[DType, _Format] = {
    DType.FP32: _Format(4.0, "fp32", None),
    DType.BF16: _Format(2.0, "bf16", None),
    DType.FP16: _Format(2.0, "fp16", None),
    DType.FP8: _Format(1.0, "fp8", "fp8"),  # one scale per tensor or channel: negligible
    DType.FP8_BLOCK: _Format(1.0 + 4 / (128 * 128), "fp8", "fp8"),  # fp32 scale per 128 x 128
    DType.INT8: _Format(1.0, "int8", None),  # weight-only unless --activations int8
    DType.INT4_G128: _Format(0.5 + (2 + 0.5) / 128, "int4", None),  # fp16 scale + 4-bit zero
    DType.NVFP4: _Format(0.5 + 1 / 16, "fp4", "nvfp4"),  # fp8 scale per 16
    DType.MXFP4: _Format(0.5 + 1 / 32, "fp4", None),  # 8-bit exponent per 32
}


def bytes_per_element(dtype: DType) -> float:
    """Return the bytes of one element including its share of the scales [B].

    >>> bytes_per_element(DType.NVFP4), bytes_per_element(DType.MXFP4)
    (0.5625, 0.53125)
    """
    return _FORMATS[dtype].element_bytes


def rate_name(activations: DType) -> str:
    """Return the peak that a product with these activations runs at.

    >>> rate_name(DType.FP8_BLOCK)
    'fp8'
    """
    return _FORMATS[activations].rate


def parse_dtype(text: str, flag: str) -> DType:
    """Return the dtype called ``text``; ``flag`` is named in the error."""
    try:
        return DType(text.lower())
    except ValueError:
        raise InputError(f"{flag}: unknown dtype '{text}': {did_you_mean(text, DType)}") from None


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


def resolve(
    *,
    stored: Mapping[Component, DType],
    base: DType,
    kv_stored: DType | None,
    available: Iterable[str],
    gpu: str,
    weights: DType | None = None,
    activations: DType | None = None,
    kv: DType | None = None,
) -> tuple[Precision, list[str]]:
    """Decide every format from the model's own, the user's wishes and the accelerator's rates.

    A product runs at the peak of its activations. Where the accelerator has no rate for a weight
    format's usual activations, the weights stay narrow in memory and are multiplied at the model's
    own activation format ("weight-only"), with a warning. Activations that the accelerator cannot
    multiply are refused, and the KV cache format is storage only.

    Returns the formats and the warnings.
    """
    rates = set(available)
    wide = activations if activations in (DType.FP32, DType.BF16, DType.FP16) else None
    base = wide or base
    _require(base, rates, gpu)
    if activations is not None:
        _require(activations, rates, gpu)
    chosen = {c: weights if weights and c in LAYER_LINEARS else d for c, d in stored.items()}
    narrow: dict[Component, DType] = {}
    warnings: list[str] = []
    for component, dtype in chosen.items():
        usual = _FORMATS[dtype].activations
        wanted = base if usual is None else DType(usual)
        if activations is not None and component in LAYER_LINEARS:
            wanted = activations
            if bytes_per_element(wanted) < bytes_per_element(dtype) - 0.1:
                raise InputError(
                    f"--activations {wanted}: narrower than the {dtype} weights; "
                    f"use --weights {wanted} as well, or drop --activations"
                )
        if rate_name(wanted) not in rates:
            text = (
                f"{gpu} has no {rate_name(wanted)} rate: {dtype} weights are only stored, "
                f"and multiplied at {base} speed"
            )
            if text not in warnings:
                warnings.append(text)
            wanted = base
        narrow[component] = wanted
    precision = Precision(weights=chosen, activations=narrow, base=base, kv=kv or kv_stored or base)
    return precision, warnings


def _require(dtype: DType, rates: set[str], gpu: str) -> None:
    if rate_name(dtype) not in rates:
        usable = [other for other in DType if rate_name(other) in rates]
        raise InputError(
            f"{gpu} has no {rate_name(dtype)} rate, so {dtype} activations are refused; "
            f"use --activations with one of: {', '.join(usable)}"
        )
