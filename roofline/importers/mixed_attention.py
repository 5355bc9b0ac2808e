"""Configs whose layers differ in attention: its widths, its window, or what it reads."""

from __future__ import annotations

from roofline.base.errors import InputError
from roofline.importers.attention import Heads, make_grouped, read_heads
from roofline.importers.families import Family
from roofline.importers.fields import Fields
from roofline.importers.layers import Layer, zip_layers
from roofline.importers.mlps import make_experts, mlp_layers
from roofline.specs.mixers import Attention, CompressedAttention, CrossAttention, Indexer
from roofline.specs.network import DenseMlp, Mlp

__all__ = ["deepseek_v4", "gemma4", "mimo_v2", "minimax_m3", "mllama"]


def gemma4(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return Gemma-4's layers: local ones, and global ones of another width without V projection.

    With ``enable_moe_block`` a dense MLP and experts run in parallel, each with its own norms.
    """
    for name in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if fields.optional(name, minimum=0):
            raise InputError(f"{fields.file}: {fields.path}{name}: is not supported yet")
    local_heads = read_heads(fields, hidden)
    global_heads = Heads(
        query=local_heads.query,
        kv=fields.optional("num_global_key_value_heads") or local_heads.kv,
        width=fields.optional("global_head_dim") or local_heads.width,
    )
    kinds = fields.texts("layer_types", length=layers)
    if kinds is None or set(kinds) - {"sliding_attention", "full_attention"}:
        raise fields.wrong("layer_types", "a list of sliding_attention and full_attention")
    window = fields.integer("sliding_window")
    local_attention = make_grouped(fields, family, local_heads, window=window)
    shared = fields.flag("attention_k_eq_v")
    global_attention = make_grouped(fields, family, global_heads, shared_kv=shared)
    experts = make_experts(fields, family)
    width = fields.integer("intermediate_size")
    mlp: Mlp = DenseMlp(intermediate_size=width)
    norms, other = family.norms, 0
    if experts is not None:
        mlp = experts.model_copy(update={"dense_intermediate_size": width})
        norms += 3
        other += hidden + experts.num_experts  # the router's scales
    mixing: list[Attention] = [
        global_attention if kind == "full_attention" else local_attention for kind in kinds[:layers]
    ]
    return zip_layers(mixing, [mlp] * layers, norms=norms, other_parameters=other)


def mimo_v2(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return MiMo-V2's layers: 1 in ``hybrid_layer_pattern`` is a window with its own KV heads."""
    pattern = fields.integers("hybrid_layer_pattern", length=layers)
    if pattern is None or set(pattern) - {0, 1}:
        raise fields.wrong("hybrid_layer_pattern", "a list of 0 (global) and 1 (window)")
    global_heads = read_heads(fields, hidden)
    value_width = fields.optional("v_head_dim") or global_heads.width
    global_attention = make_grouped(
        fields,
        family,
        global_heads,
        v_head_dim=value_width,
        sinks=fields.flag("add_full_attention_sink_bias"),
    )
    local_heads = Heads(
        query=fields.optional("swa_num_attention_heads") or global_heads.query,
        kv=fields.optional("swa_num_key_value_heads") or global_heads.kv,
        width=fields.optional("swa_head_dim") or global_heads.width,
    )
    local_attention = make_grouped(
        fields,
        family,
        local_heads,
        window=fields.agreed("sliding_window", "sliding_window_size") or 0,
        v_head_dim=fields.optional("swa_v_head_dim") or value_width,
        sinks=fields.flag("add_swa_attention_sink_bias"),
    )
    mixing: list[Attention] = [
        local_attention if windowed else global_attention for windowed in pattern[:layers]
    ]
    return zip_layers(
        mixing, mlp_layers(fields, family, hidden=hidden, layers=layers), norms=family.norms
    )


def minimax_m3(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return MiniMax-M3's layers: block-sparse attention where ``sparse_attention_freq`` has 1."""
    dense = make_grouped(fields, family, read_heads(fields, hidden))
    config = fields.inner("sparse_attention_config")
    sparse = [0] * layers
    block_sparse: Attention = dense
    if config is not None and config.flag("use_sparse_attention"):
        sparse = config.integers("sparse_attention_freq", length=layers) or [1] * layers
        block = config.integer("sparse_block_size")
        block_sparse = dense.model_copy(
            update={
                "top_k": block * config.integer("sparse_topk_blocks"),
                "indexer": Indexer(
                    num_heads=config.integer("sparse_num_index_heads"),
                    head_dim=config.integer("sparse_index_dim"),
                ),
            }
        )
    mixing: list[Attention] = [block_sparse if used else dense for used in sparse[:layers]]
    return zip_layers(
        mixing, mlp_layers(fields, family, hidden=hidden, layers=layers), norms=family.norms
    )


def mllama(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return Llama-3.2-Vision's layers: the listed ones attend to an image, with two gates."""
    heads = read_heads(fields, hidden)
    text = make_grouped(fields, family, heads)
    image = CrossAttention(
        num_heads=heads.query, num_kv_heads=heads.kv, head_dim=heads.width, qk_norm=True
    )
    listed = fields.integers("cross_attention_layers")
    if listed is None or any(layer >= layers for layer in listed):
        raise fields.wrong("cross_attention_layers", f"a list of layers below {layers}")
    fields.log.note("cross-attention layers keep no cache that grows with the text")
    mlps = mlp_layers(fields, family, hidden=hidden, layers=layers)
    crossing = set(listed)
    return [
        Layer(
            attention=image if layer in crossing else text,
            mlp=mlp,
            norms=family.norms,
            other_parameters=2 if layer in crossing else 0,
        )
        for layer, mlp in enumerate(mlps)
    ]


def deepseek_v4(fields: Fields, family: Family, *, hidden: int, layers: int) -> list[Layer]:
    """Return DeepSeek-V4's layers: ``compress_ratios`` has the compression of each one's context.

    Each layer mixes m = ``hc_mult`` residual streams before either half (hyper-connections, as the
    published class has them), with (2 + m) m outputs of m hidden states, as many biases, and three
    scales: 24 outputs for m = 4.
    """
    ratios = fields.integers("compress_ratios", length=layers)
    if ratios is None:
        raise fields.wrong("compress_ratios", f"a list of {layers} ratios")
    if len(ratios) > layers:
        fields.log.note(f"compress_ratios has {len(ratios)} entries: those past {layers} are MTP's")
    mixing = [compressed_of(fields, ratio) for ratio in ratios[:layers]]
    streams = fields.optional("hc_mult") or 0
    mixes = (2 + streams) * streams
    other = 2 * (mixes * streams * hidden + mixes + 3) if streams else 0
    mlps = mlp_layers(fields, family, hidden=hidden, layers=layers)
    return zip_layers(mixing, mlps, norms=family.norms, other_parameters=other)


def compressed_of(fields: Fields, ratio: int) -> CompressedAttention:
    """Return one layer's compressed attention; at ratio 4 an indexer chooses among the entries."""
    indexed = ratio == 4
    indexer = None
    if indexed:
        indexer = Indexer(
            num_heads=fields.integer("index_n_heads"), head_dim=fields.integer("index_head_dim")
        )
    return CompressedAttention(
        num_heads=fields.integer("num_attention_heads"),
        head_dim=fields.integer("head_dim"),
        q_lora_rank=fields.integer("q_lora_rank"),
        o_lora_rank=fields.integer("o_lora_rank"),
        o_groups=fields.integer("o_groups"),
        window=fields.integer("sliding_window"),
        ratio=ratio,
        overlap=indexed,
        indexer=indexer,
        top_k=fields.integer("index_topk") if indexed else None,
    )
