"""Configs whose layers differ in kind: linear and state-space mixers beside attention."""

from __future__ import annotations

import math

from roofline.base.errors import InputError
from roofline.importers.attention import latent_layers, make_grouped, read_heads
from roofline.importers.families import Family
from roofline.importers.fields import Fields
from roofline.importers.layers import Layer, zip_layers
from roofline.importers.mlps import make_experts, mlp_layers
from roofline.specs.formats import DType
from roofline.specs.mixers import (
    Attention,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba2,
    NoAttention,
)
from roofline.specs.network import DenseMlp, Mlp, NoMlp

__all__ = [
    "granite_hybrid",
    "kimi_linear",
    "minimax_m1",
    "nemotron_h",
    "nemotron_nas",
    "qwen_next",
]

_BLOCKS = {
    "M": "mamba",
    "*": "attention",
    "E": "moe",
    "-": "mlp",
    "mamba": "mamba",
    "attention": "attention",
    "moe": "moe",
    "mlp": "mlp",
}
_STATE_DTYPES = {"float32": DType.FP32, "bfloat16": DType.BF16, "float16": DType.FP16}


def _state_dtype(fields: Fields) -> DType:
    name = fields.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    if name is None:
        return DType(fields.log.default("mamba_ssm_dtype", "fp32", "states are kept in fp32"))
    if name == "auto":
        return DType.FP32
    if name not in _STATE_DTYPES:
        raise fields.wrong("mamba_ssm_cache_dtype", f"one of {', '.join(_STATE_DTYPES)}")
    return _STATE_DTYPES[name]


def qwen_next(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return Qwen3-Next's and Qwen3.5's layers: three GDN mixers, then gated attention."""
    heads = read_heads(fields, hidden)
    if not fields.has("attn_output_gate"):
        fields.log.default("attn_output_gate", True, "implicit in the class: q_proj is doubled")
    gate = fields.flag("attn_output_gate", default=True)
    attention = make_grouped(fields, family, heads, output_gate=gate)
    mixer = GatedDeltaNet(
        num_key_heads=fields.integer("linear_num_key_heads"),
        num_value_heads=fields.integer("linear_num_value_heads"),
        key_head_dim=fields.integer("linear_key_head_dim"),
        value_head_dim=fields.integer("linear_value_head_dim"),
        conv_width=fields.integer("linear_conv_kernel_dim"),
        state_dtype=_state_dtype(fields),
    )
    kinds = fields.texts("layer_types", length=layers)
    interval = fields.optional("full_attention_interval")
    if kinds is None and interval is None:
        raise InputError(
            f"{fields.file}: {fields.path}layer_types (or full_attention_interval): is missing, so "
            "which layers attend is unknown; add it"
        )
    if kinds is None:
        fields.log.note(f"one layer in {interval} attends, the others are linear mixers")
        has_attention = [(layer + 1) % (interval or 1) == 0 for layer in range(layers)]
    else:
        if set(kinds) - {"linear_attention", "full_attention"}:
            raise fields.wrong("layer_types", "words among linear_attention, full_attention")
        has_attention = [kind == "full_attention" for kind in kinds[:layers]]
    mixing: list[Attention] = [attention if used else mixer for used in has_attention]
    return zip_layers(
        mixing, mlp_layers(fields, family, hidden=hidden, layers=layers), norms=family.norms
    )


#: Keys of a Mamba-2 mixer's sizes and bias, by their prefix: Granite's, and Nemotron-H's without.
_MAMBA_KEYS = {
    "mamba_": ("n_heads", "d_head", "n_groups", "d_state", "d_conv", "conv_bias"),
    "": (
        "mamba_num_heads",
        "mamba_head_dim",
        "n_groups",
        "ssm_state_size",
        "conv_kernel",
        "use_conv_bias",
    ),
}


def mamba_mixer(fields: Fields, *, prefix: str) -> Mamba2:
    """Return a Mamba-2 mixer, from the keys with a prefix of ``_MAMBA_KEYS``."""
    *sizes, bias = (prefix + key for key in _MAMBA_KEYS[prefix])
    heads, width, groups, state, conv = map(fields.integer, sizes)
    return Mamba2(
        num_heads=heads,
        head_dim=width,
        num_groups=groups,
        state_size=state,
        conv_width=conv,
        conv_bias=fields.flag(bias, default=True),
        state_dtype=_state_dtype(fields),
    )


def nemotron_blocks(fields: Fields) -> list[str]:
    """Return the kinds of Nemotron-H's blocks; each block, mixer or MLP, counts as one layer."""
    listed = fields.texts("layers_block_type")
    pattern = fields.text("hybrid_override_pattern")
    words = listed if listed is not None else list(pattern or "")
    if not words or any(word not in _BLOCKS for word in words):
        raise InputError(
            f"{fields.file}: {fields.path}layers_block_type (or hybrid_override_pattern): expected "
            "blocks among mamba, moe, attention, mlp; correct the config"
        )
    stated = fields.optional("num_hidden_layers")
    if stated is not None and stated != len(words):
        raise InputError(
            f"{fields.file}: {fields.path}num_hidden_layers: {stated}, but the pattern has "
            f"{len(words)} blocks; correct the config"
        )
    if stated is None:
        fields.log.default("num_hidden_layers", len(words), "absent: the listed blocks")
    return [_BLOCKS[word] for word in words]


def nemotron_h(fields: Fields, family: Family, *, hidden: int) -> list[Layer]:
    """Return Nemotron-H's and Nemotron-3's blocks, each with one norm."""
    kinds = nemotron_blocks(fields)
    no_attention, no_mlp = NoAttention(), NoMlp()
    parts: dict[str, tuple[Attention, Mlp]] = {}
    for kind in dict.fromkeys(kinds):
        match kind:
            case "mamba":
                parts[kind] = (mamba_mixer(fields, prefix=""), no_mlp)
            case "attention":
                attention = make_grouped(fields, family, read_heads(fields, hidden))
                parts[kind] = (attention, no_mlp)
            case "moe":
                experts = make_experts(fields, family)
                if experts is None:
                    raise InputError(f"{fields.file}: n_routed_experts: is missing; add it")
                parts[kind] = (no_attention, experts)
            case _:
                width = fields.integer("intermediate_size")
                mlp = DenseMlp(intermediate_size=width, gated=family.gated)
                parts[kind] = (no_attention, mlp)
    return [Layer(attention=parts[kind][0], mlp=parts[kind][1], norms=1) for kind in kinds]


def nemotron_nas(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return the layers of a searched network: each block states its KV groups and MLP width."""
    blocks = fields.data.get("block_configs")
    fields.log.read.add(f"{fields.path}block_configs")
    if not isinstance(blocks, list) or len(blocks) < layers:
        raise fields.wrong("block_configs", f"a list of {layers} blocks")
    return [
        _searched_layer(fields, family, block, index, hidden)
        for index, block in enumerate(blocks[:layers])
    ]


def _searched_layer(fields: Fields, family: Family, data: object, index: int, hidden: int) -> Layer:
    if not isinstance(data, dict):
        raise fields.wrong("block_configs", "a list of objects")
    path = f"{fields.path}block_configs[{index}]."
    block = Fields(file=fields.file, data=data, log=fields.log, path=path)
    mixing, feed = block.inner("attention"), block.inner("ffn")
    if mixing is None or feed is None:
        raise InputError(f"{block.file}: {block.path}attention and ffn: are missing; add them")
    for part in (mixing, feed):
        if part.flag("replace_with_linear") or part.has("sparsify"):
            raise InputError(f"{block.file}: {part.path}replace_with_linear: is not supported")
    attention: Attention = NoAttention()
    if not mixing.flag("no_op"):
        query = fields.integer("num_attention_heads")
        group = mixing.integer("n_heads_in_group")
        if query % group or hidden % query:
            raise mixing.wrong("n_heads_in_group", f"a divisor of {query} heads")
        heads = read_heads(_with_kv_heads(fields, query // group), hidden)
        attention = make_grouped(fields, family, heads, window=mixing.optional("window_length"))
    mlp: Mlp = NoMlp()
    if not feed.flag("no_op"):
        mlp = DenseMlp(intermediate_size=searched_width(feed, hidden))
    norms = (attention.kind != "none") + (mlp.kind != "none")
    return Layer(attention=attention, mlp=mlp, norms=norms)


def _with_kv_heads(fields: Fields, kv_heads: int) -> Fields:
    """Return the config with a block's number of KV heads, for which the config has null."""
    return Fields(
        file=fields.file,
        data={**fields.data, "num_key_value_heads": kv_heads},
        log=fields.log,
        path=fields.path,
    )


def searched_width(feed: Fields, hidden: int) -> int:
    """Return an MLP's width: 2/3 of ``ffn_mult`` times the hidden size, up to a multiple of 256.

    DeciLM's published class. 5.25 at a hidden size of 8192 is 28,672, the width of Llama-3-70B.
    """
    stated = feed.optional("intermediate_size")
    if stated is not None:
        return stated
    multiple = feed.number("ffn_mult")
    if multiple is None or not 0 < multiple <= 1000:
        raise feed.wrong("ffn_mult", "a positive number")
    return 256 * math.ceil(int(2 * multiple * hidden / 3) / 256)


def minimax_m1(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return MiniMax-M1's layers: lightning attention where ``attn_type_list`` has 0."""
    kinds = fields.integers("attn_type_list", length=layers)
    if kinds is None or set(kinds) - {0, 1}:
        raise fields.wrong("attn_type_list", "a list of 0 (lightning) and 1 (attention)")
    heads = read_heads(fields, hidden)
    attention = make_grouped(fields, family, heads)
    linear = LightningAttention(num_heads=heads.query, head_dim=heads.width)
    mixing: list[Attention] = [attention if kind else linear for kind in kinds[:layers]]
    return zip_layers(
        mixing, mlp_layers(fields, family, hidden=hidden, layers=layers), norms=family.norms
    )


def kimi_linear(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return Kimi-Linear's layers: KDA mixers and latent attention, listed by number from 1."""
    linear = fields.inner("linear_attn_config")
    if linear is None:
        raise InputError(f"{fields.file}: {fields.path}linear_attn_config: is missing; add it")
    mixer = KimiDeltaAttention(
        num_heads=linear.integer("num_heads"),
        head_dim=linear.integer("head_dim"),
        conv_width=linear.integer("short_conv_kernel_size"),
        full_rank_gate=linear.flag("use_full_rank_gate"),
    )
    mixers = linear.integers("kda_layers") or []
    attending = linear.integers("full_attn_layers") or []
    if sorted(mixers + attending) != list(range(1, layers + 1)):
        raise InputError(
            f"{fields.file}: {linear.path}kda_layers and full_attn_layers: expected every layer "
            f"from 1 to {layers} once; correct the config"
        )
    gate = fields.flag("mla_use_output_gate")
    latent = latent_layers(fields, family, hidden=hidden, layers=layers, output_gate=gate)
    fields.log.note("the shapes of KDA's gates are assumed: no public class states them")
    mixing: list[Attention] = [
        attention if number in attending else mixer for number, attention in enumerate(latent, 1)
    ]
    return zip_layers(
        mixing, mlp_layers(fields, family, hidden=hidden, layers=layers), norms=family.norms
    )


def granite_hybrid(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return Granite-4's layers: attention or state-space mixers, as ``layer_types`` has them."""
    kinds = fields.texts("layer_types", length=layers)
    if kinds is None or set(kinds) - {"attention", "mamba"}:
        raise fields.wrong("layer_types", "a list of attention and mamba")
    attention: Attention = NoAttention()
    mixer: Attention = NoAttention()
    if "attention" in kinds:
        attention = make_grouped(fields, family, read_heads(fields, hidden))
    if "mamba" in kinds:
        mixer = mamba_mixer(fields, prefix="mamba_")
    mixing = [attention if kind == "attention" else mixer for kind in kinds[:layers]]
    experts = make_experts(fields, family)
    shared = fields.optional("shared_intermediate_size", minimum=0)
    mlp: Mlp = (
        experts
        if experts is not None
        else DenseMlp(intermediate_size=shared or fields.integer("intermediate_size"))
    )
    return zip_layers(mixing, [mlp] * layers, norms=family.norms)
