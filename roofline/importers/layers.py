"""Decoder layers as read from a config, runs of equal ones, and multi-token prediction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.importers.families import Family
from roofline.importers.fields import Fields
from roofline.specs.mixers import Attention
from roofline.specs.network import LayerRun, Mlp

__all__ = ["Layer", "mtp_modules", "read_mtp", "runs_of", "zip_layers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A decoder layer."""

    attention: Attention
    mlp: Mlp
    norms: int
    parallel: bool = False
    other_parameters: int = 0


def zip_layers(
    attentions: Iterable[Attention],
    mlps: Iterable[Mlp],
    *,
    norms: int,
    parallel: bool = False,
    other_parameters: int = 0,
) -> list[Layer]:
    """Return layers of equal norms, from the attention and the MLP of each."""
    return [
        Layer(
            attention=attention,
            mlp=mlp,
            norms=norms,
            parallel=parallel,
            other_parameters=other_parameters,
        )
        for attention, mlp in zip(attentions, mlps, strict=True)
    ]


def runs_of(layers: Iterable[Layer]) -> tuple[LayerRun, ...]:
    """Return equal layers as one run, in the order in which each kind first occurs."""
    kinds: list[Layer] = []
    counts: list[int] = []
    for layer in layers:
        if layer in kinds:
            counts[kinds.index(layer)] += 1
        else:
            kinds.append(layer)
            counts.append(1)
    return tuple(
        LayerRun(
            repeat=count,
            attention=kind.attention,
            mlp=kind.mlp,
            norms=kind.norms,
            parallel=kind.parallel,
            other_parameters=kind.other_parameters,
        )
        for kind, count in zip(kinds, counts, strict=True)
    )


def mtp_modules(fields: Fields, family: Family) -> int:
    """Return how many MTP layers are published.

    DeepSeek, GLM, MiMo and Nemotron state ``num_nextn_predict_layers``, Qwen3.5
    ``mtp_num_hidden_layers``, MiniMax modules times layers; Qwen3-Next has one and states nothing.
    """
    counts = [
        fields.optional(name, minimum=0)
        for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers")
    ]
    stated = next((count for count in counts if count is not None), None)
    modules = fields.optional("num_mtp_modules", minimum=0)
    layers_of_module = fields.optional("mtp_transformer_layers", minimum=0)
    if not fields.flag("use_mtp", default=True):
        return 0
    if modules is not None:
        return modules * (1 if layers_of_module is None else layers_of_module)
    if stated is not None:
        return stated
    if family.implied_mtp:
        why = "published with the weights though no key says so"
        return fields.log.default("num_nextn_predict_layers", family.implied_mtp, why)
    return 0


def read_mtp(fields: Fields, family: Family, layers: list[Layer]) -> tuple[LayerRun | None, int]:
    """Return the MTP layer and the number of them.

    It has the attention of the model's last layer with attention, and the model's last MLP: experts
    where the model ends in experts. MiMo-V2's has a window and the dense MLP instead. Nemotron's
    pattern states these two as blocks.
    """
    modules = mtp_modules(fields, family)
    fields.texts("mtp_layers_block_type")
    fields.text("mtp_hybrid_override_pattern")
    if not modules:
        return None, 1
    kinds = ("gqa", "mla", "compressed")
    with_attention = [layer for layer in layers if layer.attention.kind in kinds]
    with_mlp = [layer for layer in layers if layer.mlp.kind != "none"]
    if not with_attention or not with_mlp:
        fields.log.note("the MTP layers cannot be told from the model's own and are left out")
        return None, 1
    last, mlp = with_attention[-1], with_mlp[-1].mlp
    if family.mtp_windowed:
        last = next(layer for layer in layers if getattr(layer.attention, "window", None))
        mlp = next(layer.mlp for layer in layers if layer.mlp.kind == "dense")
    layer = Layer(
        attention=last.attention,
        mlp=mlp,
        norms=max(last.norms, 2),
        parallel=last.parallel,
        other_parameters=last.other_parameters,
    )
    return runs_of([layer])[0], modules
