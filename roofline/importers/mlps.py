"""The MLPs of a config: dense or experts, under every spelling of their keys."""

from __future__ import annotations

from roofline.base.errors import InputError
from roofline.importers.families import Family
from roofline.importers.fields import Fields
from roofline.specs.network import DenseMlp, Mlp, MoeMlp

__all__ = ["layers_with_experts", "make_experts", "mlp_layers"]

EXPERT_COUNTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_k",
    "top_k_experts",
    "experts_per_token",
)
EXPERT_WIDTHS = ("moe_intermediate_size", "expert_intermediate_size")
#: Keys of the width of all shared experts together.
SHARED_WIDTHS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "shared_intermediate_size",
)
SHARED_EXPERT_COUNTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
DENSE_WIDTHS = (
    "intermediate_size",
    "ffn_hidden_size",
    "n_inner",
    "ffn_dim",
    "ff_intermediate_size",
)


def mlp_layers(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Mlp]:
    """Return every layer's MLP."""
    experts = make_experts(fields, family)
    if experts is None:
        return [_dense(fields, family, hidden)] * layers
    has_experts = layers_with_experts(fields, layers)
    if all(has_experts):
        return [experts] * layers
    width = fields.optional("intermediate_size_mlp", "dense_intermediate_size")
    if width is None:
        dense = _dense(fields, family, hidden)
    else:
        dense = _dense_of_width(fields, family, width)
    return [experts if used else dense for used in has_experts]


def _dense_of_width(fields: Fields, family: Family, width: int) -> DenseMlp:
    biases = family.mlp_bias or fields.flag("mlp_bias")
    if family.bias_key in ("use_bias", "bias"):
        biases = biases or fields.flag(family.bias_key)
    return DenseMlp(intermediate_size=width, gated=family.gated, biases=biases)


def _dense(fields: Fields, family: Family, hidden: int) -> DenseMlp:
    width = fields.optional(*DENSE_WIDTHS)
    if width is None and family.mlp_multiple is not None:
        width = family.mlp_multiple * hidden
        fields.log.default("intermediate_size", width, "the class has a multiple of hidden_size")
    if width is None:
        width = fields.integer(*DENSE_WIDTHS)
    if family.halved_mlp:
        fields.log.note(f"intermediate_size {width} counts gate and up together")
        width //= 2
    return _dense_of_width(fields, family, width)


def make_experts(fields: Fields, family: Family) -> MoeMlp | None:
    """Return the mixture of experts, None where their number is absent, null or zero."""
    count = fields.agreed(*EXPERT_COUNTS, minimum=0)
    if not count or fields.data.get("enable_moe_block") is False:
        fields.flag("enable_moe_block")
        fields.agreed(*EXPERTS_PER_TOKEN, minimum=0)
        return None
    top_k = fields.agreed(*EXPERTS_PER_TOKEN)
    if top_k is None:
        raise InputError(f"{fields.file}: {fields.path}{EXPERTS_PER_TOKEN[0]}: is missing; add it")
    if top_k > count:
        raise InputError(
            f"{fields.file}: {fields.path}{EXPERTS_PER_TOKEN[0]}: {top_k} exceeds the {count} "
            "experts; correct the config"
        )
    width = fields.optional(*EXPERT_WIDTHS)
    if width is None and family.experts_use_intermediate:
        width = fields.integer("intermediate_size")
        fields.log.default("moe_intermediate_size", width, "intermediate_size is an expert's width")
    if width is None:
        width = fields.integer(*EXPERT_WIDTHS)
    shared = _shared_width(fields, family, width)
    return MoeMlp(
        num_experts=count,
        top_k=top_k,
        expert_intermediate_size=width,
        shared_intermediate_size=shared,
        latent_size=fields.optional("moe_latent_size", "routed_expert_hidden_size"),
        gated=family.gated,
        shared_gate=family.shared_gate and shared > 0,
        biases=family.expert_biases,
    )


def _shared_width(fields: Fields, family: Family, width: int) -> int:
    """Return the width of all shared experts: stated, a number of expert widths, or the class's."""
    for name in SHARED_WIDTHS:
        stated = fields.optional(name, minimum=0)
        if stated is not None:
            fields.agreed(*SHARED_EXPERT_COUNTS, minimum=0)
            return stated
    count = fields.agreed(*SHARED_EXPERT_COUNTS, minimum=0)
    if count is not None:
        return count * width
    if family.implied_shared:
        why = "the class has one shared expert"
        return fields.log.default("shared_intermediate_size", width, why)
    return 0


def layers_with_experts(fields: Fields, layers: int) -> list[bool]:
    """Return which layers have experts, from any of the keys by which configs state it."""
    listed = fields.texts("mlp_layer_types", length=layers)
    first = fields.optional("first_k_dense_replace", minimum=0) or 0
    has_experts = [layer >= first for layer in range(layers)]
    if listed is not None:
        if set(listed) - {"dense", "sparse"}:
            raise fields.wrong("mlp_layer_types", "words among dense, sparse")
        return [kind == "sparse" for kind in listed[:layers]]
    frequency = fields.data.get("moe_layer_freq")
    if isinstance(frequency, list):
        flags = fields.integers("moe_layer_freq", length=layers) or []
        return [bool(flag) for flag in flags[:layers]]
    interval = fields.optional("moe_layer_freq") or 1
    has_experts = [used and layer % interval == 0 for layer, used in enumerate(has_experts)]
    step = fields.optional("decoder_sparse_step") or 1
    dense = set(fields.integers("mlp_only_layers") or [])
    has_experts = [
        used and (layer + 1) % step == 0 and layer not in dense
        for layer, used in enumerate(has_experts)
    ]
    return _interleaved(fields, layers, has_experts)


def _interleaved(fields: Fields, layers: int, has_experts: list[bool]) -> list[bool]:
    """Apply Llama-4's interleaving and ERNIE's range of layers."""
    step = fields.optional("interleave_moe_layer_step") or 1
    has_experts = [used and (layer + 1) % step == 0 for layer, used in enumerate(has_experts)]
    first = fields.optional("moe_layer_start_index", minimum=0)
    if first is None:
        return has_experts
    last = fields.optional("moe_layer_end_index", minimum=-1)
    if last is None or last == -1:
        last = layers - 1
    interval = fields.optional("moe_layer_interval") or 1
    return [
        used and first <= layer <= last and (layer + 1) % interval == 0
        for layer, used in enumerate(has_experts)
    ]
