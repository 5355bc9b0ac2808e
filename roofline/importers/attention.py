"""Grouped-query and latent attention (MLA, DSA) of a config, under every spelling of their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.base.errors import InputError
from roofline.importers.families import Family
from roofline.importers.fields import Fields
from roofline.importers.windows import layer_windows
from roofline.specs.mixers import Attention, GroupedQueryAttention, Indexer, LatentAttention

__all__ = ["Heads", "grouped_layers", "latent_layers", "make_grouped", "read_heads"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """Query heads, KV heads and the width of one."""

    query: int
    kv: int
    width: int


def read_heads(fields: Fields, hidden: int) -> Heads:
    """Return the heads. Without a number of KV heads, every query head has its own.

    Falcon's ``multi_query`` means one KV head, unless its newer decoder states a number.
    """
    query = fields.integer("num_attention_heads", "n_head", "num_heads")
    return Heads(query=query, kv=_kv_heads(fields, query), width=_width(fields, hidden, query))


def _kv_heads(fields: Fields, query: int) -> int:
    stated = fields.optional(
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "multi_query_group_num",
        "num_attention_groups",
    )
    if fields.has("multi_query") and not fields.flag("new_decoder_architecture"):
        return 1 if fields.flag("multi_query") else stated or query
    fields.flag("multi_query")
    if stated is None:
        why = "absent: every query head has its own keys and values"
        return fields.log.default("num_key_value_heads", query, why)
    if query % stated:
        raise InputError(
            f"{fields.file}: {fields.path}num_key_value_heads: {stated} does not divide "
            f"num_attention_heads {query}; correct the config"
        )
    return stated


def _width(fields: Fields, hidden: int, query: int) -> int:
    stated = fields.optional("head_dim", "attention_head_dim", "kv_channels")
    if stated is not None:
        return stated
    if hidden % query:
        raise InputError(
            f"{fields.file}: {fields.path}head_dim: is missing, and hidden_size {hidden} is no "
            f"multiple of {query} heads; add it"
        )
    return fields.log.default("head_dim", hidden // query, "absent: hidden size / heads")


def qk_norm(fields: Fields, family: Family) -> Literal["head", "layer"] | None:
    """Return whether queries and keys are normed by head or by layer, None for not at all."""
    if family.qk_norm is not None:
        fields.flag("use_qk_norm", "qk_norm")
        return family.qk_norm
    if not fields.flag("use_qk_norm", "qk_norm"):
        return None
    if fields.data.get("model_type") == "llama4_text":
        return None  # a norm without weights
    kind = fields.text("qk_norm_type")
    if kind not in (None, "per_layer", "per_head"):
        raise fields.wrong("qk_norm_type", "per_layer or per_head")
    return "layer" if kind == "per_layer" or fields.data.get("model_type") == "cohere" else "head"


def make_grouped(
    fields: Fields,
    family: Family,
    heads: Heads,
    *,
    window: int | None = None,
    chunked: bool = False,
    **changes: object,
) -> GroupedQueryAttention:
    """Return one grouped-query attention with the family's norms, biases and sinks."""
    norm = qk_norm(fields, family)
    stated = fields.flag(family.bias_key)
    values: dict[str, object] = {
        "num_heads": heads.query,
        "num_kv_heads": heads.kv,
        "head_dim": heads.width,
        "window": window,
        "window_kind": "chunked" if chunked and window is not None else "sliding",
        "qk_norm": norm is not None,
        "qk_norm_width": norm or "head",
        "output_gate": fields.flag("attn_output_gate", "attention_output_gate"),
        "qkv_bias": family.qkv_bias or stated,
        "output_bias": family.output_bias or (stated and family.bias_on_output),
        "sinks": family.sinks,
    }
    return GroupedQueryAttention.model_validate(values | changes)


def grouped_layers(
    fields: Fields, family: Family, *, hidden: int, layers: int, context: int
) -> list[Attention]:
    """Return every layer's grouped-query attention; only windows differ."""
    heads = read_heads(fields, hidden)
    windows, chunked = layer_windows(fields, family, layers, context)
    if fields.has("blocksparse_block_size"):
        fields.log.note("block-sparse attention is counted as full: its pattern saves less")
    return [
        make_grouped(fields, family, heads, window=window, chunked=chunked) for window in windows
    ]


def latent_layers(
    fields: Fields, family: Family, *, hidden: int, layers: int, output_gate: bool = False
) -> list[Attention]:
    """Return every layer's latent attention, with an indexer where sparse attention has one.

    ``num_key_value_heads`` and ``head_dim`` have no meaning in latent attention and are not read.
    """
    heads = fields.integer("num_attention_heads")
    value_width = fields.optional("v_head_dim")
    if value_width is None:
        if hidden % heads:
            raise InputError(f"{fields.file}: {fields.path}v_head_dim: is missing; add it")
        why = "absent: hidden size / heads"
        value_width = fields.log.default("v_head_dim", hidden // heads, why)
    top_k = fields.optional("index_topk")
    has_indexer = [False] * layers
    indexer = None
    if top_k is not None:
        indexer = Indexer(
            num_heads=fields.integer("index_n_heads"), head_dim=fields.integer("index_head_dim")
        )
        kinds = fields.texts("indexer_types", length=layers)
        if set(kinds or []) - {"full", "shared"}:
            raise fields.wrong("indexer_types", "words among full, shared")
        has_indexer = [kind == "full" for kind in kinds[:layers]] if kinds else [True] * layers
    base = LatentAttention(
        num_heads=heads,
        q_lora_rank=fields.optional("q_lora_rank"),
        kv_lora_rank=fields.integer("kv_lora_rank"),
        qk_nope_head_dim=fields.integer("qk_nope_head_dim"),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim"),
        v_head_dim=value_width,
        output_gate=output_gate,
        top_k=top_k,
    )
    if fields.flag(family.bias_key):
        fields.log.note("attention_bias on latent attention is not counted")
    return [base.model_copy(update={"indexer": indexer if own else None}) for own in has_indexer]
