"""The MLPs of a config: dense or experts, in every field spelling and every placement."""

from __future__ import annotations

from roofline.base.errors import InputError
from roofline.importers.families import Family
from roofline.importers.fields import Fields
from roofline.specs.network import DenseMlp, Mlp, MoeMlp

__all__ = ["expert_layers", "make_experts", "mlp_layers"]

COUNTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
CHOSEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_k",
    "top_k_experts",
    "experts_per_token",
)
WIDTHS = ("moe_intermediate_size", "expert_intermediate_size")
#: Shared widths that are absolute, by key.
SHARED_WIDTHS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "shared_intermediate_size",
)
SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
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
    sparse = expert_layers(fields, layers)
    if all(sparse):
        return [experts] * layers
    names = ("intermediate_size_mlp", "dense_intermediate_size")
    wide = fields.optional(*names)
    plain = _dense(fields, family, hidden) if wide is None else _plain(fields, family, wide)
    return [experts if used else plain for used in sparse]


def _plain(fields: Fields, family: Family, width: int) -> DenseMlp:
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
    return _plain(fields, family, width)


def make_experts(fields: Fields, family: Family) -> MoeMlp | None:
    """Return the mixture of experts, None where the config has none (absent, null or zero)."""
    count = fields.agreed(*COUNTS, minimum=0)
    if not count or fields.data.get("enable_moe_block") is False:
        fields.flag("enable_moe_block")
        fields.agreed(*CHOSEN, minimum=0)
        return None
    chosen = fields.agreed(*CHOSEN)
    if chosen is None:
        raise InputError(f"{fields.file}: {fields.path}{CHOSEN[0]}: is missing; add it")
    if chosen > count:
        raise InputError(
            f"{fields.file}: {fields.path}{CHOSEN[0]}: {chosen} exceeds the {count} experts; "
            "correct the config"
        )
    width = fields.optional(*WIDTHS)
    if width is None and family.experts_use_intermediate:
        width = fields.integer("intermediate_size")
        fields.log.default("moe_intermediate_size", width, "intermediate_size is an expert's width")
    if width is None:
        width = fields.integer(*WIDTHS)
    shared = _shared(fields, family, width)
    return MoeMlp(
        num_experts=count,
        top_k=chosen,
        expert_intermediate_size=width,
        shared_intermediate_size=shared,
        latent_size=fields.optional("moe_latent_size", "routed_expert_hidden_size"),
        gated=family.gated,
        shared_gate=family.shared_gate and shared > 0,
        biases=family.expert_biases,
    )


def _shared(fields: Fields, family: Family, width: int) -> int:
    """Return the width of all shared experts: stated, a number of experts' widths, or implied."""
    for name in SHARED_WIDTHS:
        stated = fields.optional(name, minimum=0)
        if stated is not None:
            fields.agreed(*SHARED_COUNTS, minimum=0)
            return stated
    count = fields.agreed(*SHARED_COUNTS, minimum=0)
    if count is not None:
        return count * width
    if family.implied_shared:
        why = "the class has one shared expert"
        return fields.log.default("shared_intermediate_size", width, why)
    return 0


def expert_layers(fields: Fields, layers: int) -> list[bool]:
    """Return which layers have experts, from whichever of the placements the config states."""
    listed = fields.texts("mlp_layer_types", length=layers)
    first = fields.optional("first_k_dense_replace", minimum=0) or 0
    sparse = [layer >= first for layer in range(layers)]
    if listed is not None:
        if set(listed) - {"dense", "sparse"}:
            raise fields.wrong("mlp_layer_types", "words among dense, sparse")
        return [kind == "sparse" for kind in listed[:layers]]
    frequency = fields.data.get("moe_layer_freq")
    if isinstance(frequency, list):
        flags = fields.integers("moe_layer_freq", length=layers) or []
        return [bool(flag) for flag in flags[:layers]]
    every = fields.optional("moe_layer_freq") or 1
    sparse = [used and layer % every == 0 for layer, used in enumerate(sparse)]
    step = fields.optional("decoder_sparse_step") or 1
    dense = set(fields.integers("mlp_only_layers") or [])
    sparse = [
        used and (layer + 1) % step == 0 and layer not in dense for layer, used in enumerate(sparse)
    ]
    return _interleaved(fields, layers, sparse)


def _interleaved(fields: Fields, layers: int, sparse: list[bool]) -> list[bool]:
    """Apply Llama-4's interleaving and ERNIE's range of layers."""
    step = fields.optional("interleave_moe_layer_step") or 1
    sparse = [used and (layer + 1) % step == 0 for layer, used in enumerate(sparse)]
    start = fields.optional("moe_layer_start_index", minimum=0)
    if start is None:
        return sparse
    last = fields.optional("moe_layer_end_index", minimum=-1)
    last = layers - 1 if last in (None, -1) else last
    every = fields.optional("moe_layer_interval") or 1
    return [
        used and start <= layer <= (last or 0) and (layer + 1) % every == 0
        for layer, used in enumerate(sparse)
    ]
