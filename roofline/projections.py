"""The matrices around each token mixer, whole or as one tensor-parallel rank has them."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.specs.formats import Component
from roofline.specs.mixers import (
    Attention,
    CompressedAttention,
    CrossAttention,
    GatedDeltaNet,
    GroupedQueryAttention,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba2,
    NoAttention,
    StateMixer,
)

__all__ = ["Linear", "attention_linears", "attention_split", "attention_vectors", "local_heads"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """A matrix of ``outputs`` x ``inputs``; fused projections that run as one GEMM are one.

    ``copies`` of it exist on the rank (experts), ``used`` of them by one token.
    """

    name: str
    component: Component
    inputs: int
    outputs: int
    biases: int = 0
    copies: int = 1
    used: int = 1

    @property
    def parameters(self) -> int:
        """Weights and biases of one copy."""
        return self.inputs * self.outputs + self.biases


def local_heads(attention: Attention, tp: int) -> tuple[int, int]:
    """Return the query and KV heads on one rank; KV heads are copied once TP exceeds them."""
    match attention:
        case NoAttention():
            return 0, 0
        case LatentAttention() | CompressedAttention():
            return attention.num_heads // tp, 1
        case GatedDeltaNet():
            return attention.num_value_heads // tp, attention.num_key_heads // tp
        case GroupedQueryAttention() | CrossAttention():
            return attention.num_heads // tp, max(attention.num_kv_heads // tp, 1)
        case _:
            return attention.num_heads // tp, attention.num_heads // tp


def attention_linears(attention: Attention, *, hidden_size: int, tp: int = 1) -> list[Linear]:
    """Return the projections of one rank, those into attention first and the output last."""
    match attention:
        case NoAttention():
            return []
        case LatentAttention():
            return _latent_linears(attention, hidden_size=hidden_size, tp=tp)
        case CompressedAttention():
            return _compressed_linears(attention, hidden_size=hidden_size, tp=tp)
        case CrossAttention():
            return _cross_linears(attention, hidden_size=hidden_size, tp=tp)
        case GroupedQueryAttention():
            return _grouped_linears(attention, hidden_size=hidden_size, tp=tp)
        case _:
            return _state_linears(attention, hidden_size=hidden_size, tp=tp)


def _plain(shapes: list[tuple[str, int, int]], component: Component) -> list[Linear]:
    return [
        Linear(name=name, component=component, inputs=inputs, outputs=outputs)
        for name, inputs, outputs in shapes
    ]


def _grouped_linears(
    attention: GroupedQueryAttention, *, hidden_size: int, tp: int
) -> list[Linear]:
    """Return the fused Q, K and V projection, the indexer's, and the output's."""
    heads, kv_heads = local_heads(attention, tp)
    queries = 2 * heads if attention.output_gate else heads
    values = 0 if attention.shared_kv else kv_heads * attention.value_dim
    fused = (queries + kv_heads) * attention.head_dim + values
    inputs = attention.input_size or hidden_size
    first = Linear(
        name="qkv_proj",
        component=Component.ATTENTION,
        inputs=inputs,
        outputs=fused,
        biases=fused if attention.qkv_bias else 0,
    )
    output = Linear(
        name="o_proj",
        component=Component.ATTENTION,
        inputs=heads * attention.value_dim,
        outputs=hidden_size,
        biases=hidden_size if attention.output_bias else 0,
    )
    scorer = attention.indexer
    if scorer is None:
        return [first, output]
    width = (scorer.num_heads + 1) * scorer.head_dim
    return [first, *_plain([("indexer_proj", inputs, width)], Component.ATTENTION), output]


def _cross_linears(attention: CrossAttention, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return the query's projection, the one of the image's keys and values, and the output's."""
    heads, kv_heads = local_heads(attention, tp)
    shapes = [
        ("q_proj", hidden_size, heads * attention.head_dim),
        ("media_kv_proj", hidden_size, 2 * kv_heads * attention.head_dim),
        ("o_proj", heads * attention.head_dim, hidden_size),
    ]
    return _plain(shapes, Component.ATTENTION)


def _latent_linears(attention: LatentAttention, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return MLA's projections; the compressions are copied to every rank, heads are divided.

    An indexer's small heads are on every rank as well: it picks tokens for all query heads at once.
    """
    heads = attention.num_heads // tp
    inputs = attention.input_size or hidden_size
    query_inputs = attention.q_lora_rank or inputs
    values = heads * attention.v_head_dim
    first = attention.key_width + (attention.q_lora_rank or 0)
    shapes = [
        ("kv_a_proj", inputs, first + (values if attention.output_gate else 0)),
        (
            "q_b_proj",
            query_inputs,
            heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim),
        ),
        ("kv_b_proj", attention.kv_lora_rank, heads * attention.qk_nope_head_dim + values),
    ]
    scorer = attention.indexer
    if scorer is not None:
        shapes += [
            ("indexer_q_proj", query_inputs, scorer.num_heads * scorer.head_dim),
            ("indexer_k_proj", inputs, scorer.head_dim + scorer.num_heads),
        ]
    return _plain([*shapes, ("o_proj", values, hidden_size)], Component.ATTENTION)


def _compressed_linears(
    attention: CompressedAttention, *, hidden_size: int, tp: int
) -> list[Linear]:
    """Return V4's projections: queries behind a compression, one KV vector, a grouped output."""
    heads, groups = attention.num_heads // tp, max(attention.o_groups // tp, 1)
    scorer = attention.indexer
    narrow = 4 * scorer.head_dim + scorer.num_heads if scorer else 0
    shapes = [
        (
            "q_a_kv_proj",
            hidden_size,
            attention.q_lora_rank + attention.head_dim + 2 * attention.compressor_width + narrow,
        ),
        ("q_b_proj", attention.q_lora_rank, heads * attention.head_dim),
    ]
    if scorer is not None:
        shapes += [("indexer_q_proj", attention.q_lora_rank, scorer.num_heads * scorer.head_dim)]
    shapes += [
        ("o_a_proj", heads * attention.head_dim // groups, groups * attention.o_lora_rank),
        ("o_proj", groups * attention.o_lora_rank, hidden_size),
    ]
    return _plain(shapes, Component.ATTENTION)


def _state_linears(mixer: StateMixer, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return a state mixer's projections: its inputs and gate, its small heads, its output."""
    width, channels = mixer.value_width // tp, mixer.channels // tp
    match mixer:
        case GatedDeltaNet():
            shapes = [
                ("qkvz_proj", hidden_size, channels + width),
                ("ba_proj", hidden_size, 2 * mixer.num_value_heads // tp),
            ]
        case Mamba2():
            shapes = [("in_proj", hidden_size, width + channels + mixer.num_heads // tp)]
        case LightningAttention():
            shapes = [("qkvg_proj", hidden_size, 4 * width)]
        case KimiDeltaAttention():
            ranks = mixer.head_dim * (1 if mixer.full_rank_gate else 2)
            gate = width if mixer.full_rank_gate else 0
            shapes = [
                ("qkvg_proj", hidden_size, channels + gate + mixer.num_heads // tp + ranks),
                ("decay_proj", mixer.head_dim, width * (1 if mixer.full_rank_gate else 2)),
            ]
    return _plain([*shapes, ("o_proj", width, hidden_size)], Component.MIXER)


def attention_vectors(attention: Attention) -> int:
    """Return the numbers of one layer's mixer that are in no matrix: norms, sinks, filters."""
    match attention:
        case NoAttention():
            return 0
        case GroupedQueryAttention():
            return _grouped_vectors(attention)
        case CrossAttention():
            return 2 * attention.head_dim if attention.qk_norm else 0
        case LatentAttention():
            scorer = 2 * attention.indexer.head_dim if attention.indexer else 0
            return (attention.q_lora_rank or 0) + attention.kv_lora_rank + scorer
        case CompressedAttention():
            return _compressed_vectors(attention)
        case GatedDeltaNet():
            convolution = attention.channels * attention.conv_width
            return convolution + 2 * attention.num_value_heads + attention.value_head_dim
        case Mamba2():
            filters = attention.channels * (attention.conv_width + attention.conv_bias)
            return filters + 3 * attention.num_heads + attention.value_width
        case LightningAttention():
            return attention.value_width
        case KimiDeltaAttention():
            filters = attention.channels * attention.conv_width
            return filters + attention.num_heads + attention.value_width + attention.head_dim


def _grouped_vectors(attention: GroupedQueryAttention) -> int:
    count = attention.num_heads if attention.sinks else 0
    if attention.indexer is not None:
        count += 2 * attention.indexer.head_dim
    if not attention.qk_norm:
        return count
    if attention.qk_norm_width == "head":
        return count + 2 * attention.head_dim
    return count + (attention.num_heads + attention.num_kv_heads) * attention.head_dim


def _compressed_vectors(attention: CompressedAttention) -> int:
    """Norms of query rank and KV vector, sinks, and the compressors' positions and norms."""
    count = attention.q_lora_rank + attention.head_dim + attention.num_heads
    if attention.ratio:
        count += attention.ratio * attention.compressor_width + attention.head_dim
    if attention.indexer is not None:
        count += (2 * attention.ratio + 1) * attention.indexer.head_dim
    return count


def attention_split(attention: Attention, tp: int) -> str | None:
    """Say what ``tp`` would have to divide, where it does not."""
    if isinstance(attention, NoAttention):
        return None
    if isinstance(attention, GatedDeltaNet):
        split = attention.num_key_heads % tp or attention.num_value_heads % tp
        return f"a divisor of its {attention.num_key_heads} linear key heads" if split else None
    if isinstance(attention, Mamba2):
        split = attention.num_heads % tp or attention.num_groups % tp
        return f"a divisor of its {attention.num_groups} state-space groups" if split else None
    if attention.num_heads % tp:
        return f"a divisor of its {attention.num_heads} query heads"
    if isinstance(attention, CompressedAttention) and attention.o_groups % tp:
        return f"a divisor of its {attention.o_groups} output groups"
    if isinstance(attention, GroupedQueryAttention | CrossAttention):
        kv_heads = attention.num_kv_heads
        if kv_heads % tp and tp % kv_heads:
            return f"a divisor or a multiple of its {kv_heads} KV heads"
    return None
