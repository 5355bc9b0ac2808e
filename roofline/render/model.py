"""The answer of ``models check``: what a model is made of, and what was read of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofline.base.units import format_bytes
from roofline.kernels.footprint import (
    kv_bytes_per_token,
    kv_bytes_read,
    parameters_decode_read,
    parameters_total,
    state_bytes_per_sequence,
    weight_bytes,
)
from roofline.specs.formats import Precision
from roofline.specs.network import DrafterSpec, ModelSpec, NetworkSpec, mtp_head
from roofline.specs.placement import Placement

if TYPE_CHECKING:
    from roofline.importers.read import Imported

__all__ = ["check_data", "check_text", "component_bytes"]

SCHEMA = "roofline.model/1"


def _as_published(network: NetworkSpec) -> Precision:
    """Return the formats as published, on no accelerator in particular."""
    stored = network.stored()
    kv = network.kv_dtype or network.dtype
    return Precision(weights=stored, activations=stored, base=network.dtype, kv=kv)


def component_bytes(network: NetworkSpec) -> dict[str, float]:
    """Return the bytes of weights by component, MTP layers and vision tower included [B]."""
    precision, whole = _as_published(network), Placement()
    sizes = {part.value: size for part, size in weight_bytes(network, precision, whole).items()}
    if isinstance(network, ModelSpec) and network.mtp is not None:
        head = mtp_head(network)
        module = sum(weight_bytes(head, _as_published(head), whole).values())
        sizes["mtp"] = network.mtp_modules * module
    return sizes


def check_data(network: NetworkSpec, imported: Imported | None = None) -> dict[str, Any]:
    """Return the check as data; sizes in bytes, KV at the published cache format."""
    kv = network.kv_dtype or network.dtype
    longest = float(getattr(network, "max_context", None) or 131072)
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "ok": True,
        "id": network.id,
        "name": network.name,
        "kind": getattr(network, "kind", "model"),
        "layers": network.num_layers,
        "parameters_total": parameters_total(network),
        "parameters_decode_read": parameters_decode_read(network),
        "weight_bytes": {part: round(size) for part, size in component_bytes(network).items()},
        "dtypes": _dtypes(network),
        "kv_bytes_per_token": round(kv_bytes_per_token(network, kv)),
        "kv_bytes_read": {
            f"{tokens:.0f}": round(float(kv_bytes_read(network, kv, context=tokens)))
            for tokens in dict.fromkeys((min(4096.0, longest), longest))
        },
        "state_bytes_per_sequence": round(state_bytes_per_sequence(network)),
        "defaults": [],
        "ignored": [],
        "notes": list(network.notes),
    }
    if isinstance(network, ModelSpec):
        data["mtp_layers"] = network.mtp_modules if network.mtp is not None else 0
        data["vision_parameters"] = network.vision_parameters
    if isinstance(network, DrafterSpec):
        data["target"] = network.target
        data["draft_vocab_size"] = network.draft_vocab_size
    if imported is not None:
        data["defaults"] = [
            {"field": d.field, "value": d.value, "why": d.why} for d in imported.defaults
        ]
        data["ignored"] = list(imported.ignored)
        data["notes"] = list(imported.notes)
    return data


def _dtypes(network: NetworkSpec) -> dict[str, str]:
    """Return the format between products, the cache's, and those of components that differ."""
    formats = {"base": network.dtype.value, "kv": (network.kv_dtype or network.dtype).value}
    return formats | {part.value: dtype.value for part, dtype in network.dtypes.items()}


def check_text(data: dict[str, Any]) -> dict[str, Any]:
    """Return the check for people: sizes with units, and lists as lines."""
    shown = {key: value for key, value in data.items() if key != "schema"}
    for key in ("weight_bytes", "kv_bytes_read"):
        shown[key] = {part: format_bytes(size) for part, size in data[key].items()}
    shown["weights_in_all"] = format_bytes(sum(data["weight_bytes"].values()))
    shown["state_bytes_per_sequence"] = data["state_bytes_per_sequence"]
    shown["defaults"] = "; ".join(
        f"{d['field']} = {d['value']} ({d['why']})" for d in data["defaults"]
    )
    shown["ignored"] = ", ".join(data["ignored"])
    shown["notes"] = "; ".join(data["notes"])
    return {key: value for key, value in shown.items() if value not in ("", None)}
