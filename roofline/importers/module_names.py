"""The names that published weights have for the matrices of each component, with their sizes."""

from __future__ import annotations

from collections.abc import Mapping

from roofline.importers.layers import Layer
from roofline.specs.formats import Component
from roofline.specs.mixers import (
    CompressedAttention,
    CrossAttention,
    GroupedQueryAttention,
    LatentAttention,
    NoAttention,
)
from roofline.specs.network import DenseMlp, MoeMlp

__all__ = ["Spelling", "layer_modules"]

#: One way to name a component's matrices: names below the layer, with sizes relative to each other.
Spelling = Mapping[str, float]

_GATED = {"gate_proj": 1.0, "up_proj": 1.0, "down_proj": 1.0}
_SHORT = {"w1": 1.0, "w3": 1.0, "w2": 1.0}


def _below(prefix: str, names: Spelling) -> dict[str, float]:
    return {f"{prefix}.{name}": size for name, size in names.items()}


def layer_modules(layer: Layer, hidden: int) -> dict[Component, list[Spelling]]:
    """Return every component of a layer with the spellings that occur for its matrices."""
    modules: dict[Component, list[Spelling]] = {}
    attention = layer.attention
    match attention:
        case NoAttention():
            pass
        case GroupedQueryAttention() | CrossAttention():
            queries = float(attention.num_heads)
            sizes = {"q_proj": queries, "o_proj": queries}
            sizes |= dict.fromkeys(("k_proj", "v_proj"), float(attention.num_kv_heads))
            modules[Component.ATTENTION] = [
                _below(prefix, sizes)
                for prefix in ("self_attn", "attention", "mixer", "cross_attn")
            ]
        case LatentAttention():
            sizes = _latent_sizes(attention, hidden)
            modules[Component.ATTENTION] = [_below("self_attn", sizes)]
        case CompressedAttention():
            # roughly: projections of all heads are some eight times as large as the others
            names = {"wq_a": 1.0, "wq_b": 8.0, "wkv": 1.0, "wo_a": 8.0, "wo_b": 8.0}
            modules[Component.ATTENTION] = [_below("attn", names), _below("self_attn", names)]
        case _:
            modules[Component.MIXER] = [
                {
                    "linear_attn.in_proj_qkv": 2.0,
                    "linear_attn.in_proj_z": 1.0,
                    "linear_attn.out_proj": 1.0,
                },
                {"linear_attn.in_proj_qkvz": 3.0, "linear_attn.out_proj": 1.0},
                {"mixer.in_proj": 2.0, "mixer.out_proj": 1.0},
                {
                    "self_attn.qkv_proj": 3.0,
                    "self_attn.output_gate": 1.0,
                    "self_attn.out_proj": 1.0,
                },
            ]
    return modules | _mlp_modules(layer)


def _latent_sizes(attention: LatentAttention, hidden: int) -> dict[str, float]:
    """Return MLA's matrices with their numbers of weights."""
    heads, rank = attention.num_heads, attention.q_lora_rank
    queries = heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
    sizes = {
        "kv_a_proj_with_mqa": hidden * attention.key_width,
        "kv_b_proj": attention.kv_lora_rank
        * heads
        * (attention.qk_nope_head_dim + attention.v_head_dim),
        "o_proj": heads * attention.v_head_dim * hidden,
    }
    if rank is None:
        sizes["q_proj"] = hidden * queries
    else:
        sizes |= {"q_a_proj": hidden * rank, "q_b_proj": rank * queries}
    return {name: float(size) for name, size in sizes.items()}


def _mlp_modules(layer: Layer) -> dict[Component, list[Spelling]]:
    mlp = layer.mlp
    dense: list[Spelling] = [
        _below(prefix, _GATED) for prefix in ("mlp", "mixer", "feed_forward", "ffn")
    ]
    if isinstance(mlp, DenseMlp):
        return {Component.MLP: dense}
    if not isinstance(mlp, MoeMlp):
        return {}
    prefixes: tuple[str, ...] = ("mlp", "block_sparse_moe", "mixer", "feed_forward", "ffn", "moe")
    if mlp.dense_intermediate_size:  # there ``mlp`` is the dense MLP beside the experts
        prefixes = ("moe",)
    experts: list[Spelling] = [
        _below(f"{prefix}.experts.0", names) for prefix in prefixes for names in (_GATED, _SHORT)
    ]
    experts.append({"experts.gate_up_proj": 2.0, "experts.down_proj": 1.0})
    modules: dict[Component, list[Spelling]] = {Component.EXPERTS: experts}
    if mlp.shared_intermediate_size:
        modules[Component.SHARED_EXPERTS] = [
            _below(f"{prefix}.{word}", names)
            for prefix in prefixes
            for word in ("shared_experts", "shared_expert")
            for names in (_GATED, _SHORT)
        ]
    if mlp.dense_intermediate_size:
        modules[Component.MLP] = dense
    return modules
