"""The matrices around each token mixer, whole or as one tensor-parallel rank has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roofline.base.errors import InputError, Option
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
from roofline.specs.network import DenseMlp, DrafterSpec, LayerRun, Mlp, MoeMlp, NetworkSpec, NoMlp
from roofline.specs.placement import Placement

__all__ = [
    "Linear",
    "Side",
    "attention_linears",
    "attention_split",
    "attention_vectors",
    "beside_linears",
    "check_parallel",
    "divided_sides",
    "expert_linears",
    "fusion_linear",
    "head_linear",
    "latent_linears",
    "layer_linears",
    "local_heads",
    "medusa_linears",
    "mlp_linears",
    "router_linear",
    "shared_linears",
    "used_components",
]


class Linear(NamedTuple):
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
    Its key and its weights of heads stay as wide as a router: vLLM runs both as one product without
    quantisation (models/deepseek_v2.py, wk_weights_proj), whatever the checkpoint holds.
    """
    heads = attention.num_heads // tp
    inputs = attention.input_size or hidden_size
    query_inputs = attention.q_lora_rank or inputs
    values = heads * attention.v_head_dim
    first = attention.key_width + (attention.q_lora_rank or 0)
    gates: list[tuple[str, int, int]] = []
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
        ]
        gates = [("indexer_k_proj", inputs, scorer.head_dim + scorer.num_heads)]
    return [
        *_plain(shapes, Component.ATTENTION),
        *_plain(gates, Component.ROUTER),
        *_plain([("o_proj", values, hidden_size)], Component.ATTENTION),
    ]


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
    """Return a state mixer's projections: its inputs and gate, its small heads, its output.

    The gates of Gated DeltaNet's heads stay as wide as a router: NVIDIA's quantised Qwen3.6 lists
    in_proj_qkv, in_proj_z and out_proj, and neither in_proj_a nor in_proj_b.
    """
    width, channels = mixer.value_width // tp, mixer.channels // tp
    gates: list[tuple[str, int, int]] = []
    match mixer:
        case GatedDeltaNet():
            shapes = [("qkvz_proj", hidden_size, channels + width)]
            gates = [("ba_proj", hidden_size, 2 * mixer.num_value_heads // tp)]
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
    return [
        *_plain(shapes, Component.MIXER),
        *_plain(gates, Component.ROUTER),
        *_plain([("o_proj", width, hidden_size)], Component.MIXER),
    ]


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


def mlp_linears(mlp: Mlp, *, hidden_size: int, placement: Placement) -> list[Linear]:
    """Return the matrices of one rank's MLP, experts and router included."""
    if isinstance(mlp, NoMlp):
        return []
    if isinstance(mlp, DenseMlp):
        width = mlp.intermediate_size // placement.attention_tp
        pair = _gated_pair("", Component.MLP, hidden_size, width, gated=mlp.gated)
        return [x._replace(biases=x.outputs) for x in pair] if mlp.biases else pair
    linears = [router_linear(mlp, hidden_size=hidden_size)]
    linears += latent_linears(mlp, hidden_size=hidden_size)
    linears += expert_linears(mlp, hidden_size=hidden_size, placement=placement)
    linears += shared_linears(mlp, hidden_size=hidden_size, tp=placement.attention_tp)
    return linears + beside_linears(mlp, hidden_size=hidden_size, tp=placement.attention_tp)


def latent_linears(mlp: MoeMlp, *, hidden_size: int) -> list[Linear]:
    """Return the projections into and out of the width that routed experts work in (whole)."""
    if mlp.latent_size is None:
        return []
    shapes = [("latent_down_proj", hidden_size, mlp.latent_size)]
    shapes += [("latent_up_proj", mlp.latent_size, hidden_size)]
    return [
        Linear(name=name, component=Component.SHARED_EXPERTS, inputs=inputs, outputs=outputs)
        for name, inputs, outputs in shapes
    ]


def beside_linears(mlp: MoeMlp, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return the matrices of the dense MLP that runs beside the experts."""
    if not mlp.dense_intermediate_size:
        return []
    width = mlp.dense_intermediate_size // tp
    return _gated_pair("", Component.MLP, hidden_size, width, gated=mlp.gated)


def router_linear(mlp: MoeMlp, *, hidden_size: int) -> Linear:
    """Return the router, which every rank has whole."""
    return Linear(
        name="router",
        component=Component.ROUTER,
        inputs=hidden_size,
        outputs=mlp.num_experts,
        biases=mlp.num_experts if mlp.biases else 0,
    )


def expert_linears(mlp: MoeMlp, *, hidden_size: int, placement: Placement) -> list[Linear]:
    """Return the two matrices of one routed expert with how many experts the rank holds.

    EP places whole experts on ``ep`` groups of ranks; inside a group TP divides each expert.
    """
    width = mlp.expert_intermediate_size // (placement.tp // placement.ep)
    inner = mlp.latent_size or hidden_size
    pair = _gated_pair("expert_", Component.EXPERTS, inner, width, gated=mlp.gated)
    return [
        Linear(
            name=linear.name,
            component=linear.component,
            inputs=linear.inputs,
            outputs=linear.outputs,
            biases=linear.outputs if mlp.biases else 0,
            copies=mlp.num_experts // placement.ep,
            used=mlp.top_k,
        )
        for linear in pair
    ]


def shared_linears(mlp: MoeMlp, *, hidden_size: int, tp: int) -> list[Linear]:
    """Return the matrices of the shared experts, as one MLP of their joint width."""
    if not mlp.shared_intermediate_size:
        return []
    width = mlp.shared_intermediate_size // tp
    return _gated_pair("shared_", Component.SHARED_EXPERTS, hidden_size, width, gated=mlp.gated)


def _gated_pair(
    prefix: str, component: Component, hidden_size: int, width: int, *, gated: bool
) -> list[Linear]:
    return [
        Linear(
            name=f"{prefix}gate_up_proj" if gated else f"{prefix}up_proj",
            component=component,
            inputs=hidden_size,
            outputs=width * (2 if gated else 1),
        ),
        Linear(name=f"{prefix}down_proj", component=component, inputs=width, outputs=hidden_size),
    ]


def head_linear(network: NetworkSpec, *, tp: int = 1) -> Linear:
    """Return the vocabulary projection of one rank (its share rounded up)."""
    rows = network.draft_vocab_size if isinstance(network, DrafterSpec) else network.vocab_size
    outputs = -(-rows // tp)
    return Linear(
        name="lm_head",
        component=Component.HEAD,
        inputs=network.hidden_size,
        outputs=outputs,
        biases=outputs if network.head_bias else 0,
    )


def fusion_linear(drafter: DrafterSpec, *, tp: int = 1) -> Linear:
    """Return the projection that brings the target's hidden states into the drafter."""
    return Linear(
        name="fc",
        component=Component.ATTENTION,
        inputs=drafter.fusion.taps * drafter.fusion.target_hidden_size,
        outputs=drafter.hidden_size // tp,
        biases=drafter.hidden_size // tp if drafter.fusion.bias else 0,
    )


def medusa_linears(drafter: DrafterSpec) -> list[Linear]:
    """Return the residual blocks of one of Medusa's heads (on every rank)."""
    width = drafter.hidden_size
    block = Linear(
        name="medusa_block", component=Component.MLP, inputs=width, outputs=width, biases=width
    )
    return [block] * drafter.head_blocks


def layer_linears(run: LayerRun, *, hidden_size: int, placement: Placement) -> Iterator[Linear]:
    """Yield every matrix of one layer of ``run`` on one rank."""
    yield from attention_linears(run.attention, hidden_size=hidden_size, tp=placement.attention_tp)
    yield from mlp_linears(run.mlp, hidden_size=hidden_size, placement=placement)


def check_parallel(network: NetworkSpec, placement: Placement, field: str = "tp") -> None:
    """Refuse TP, EP and DP sizes that would split a head, an expert or a matrix unevenly.

    ``field`` is the option that gave TP.
    """
    tp, ep, dp = placement.tp, placement.ep, placement.dp
    if tp % dp:
        raise InputError(
            f"expected a divisor of {Option(field, tp)}, which counts all the GPUs",
            field="dp_attention",
            value=dp,
        )
    if tp % ep:
        raise InputError(
            f"expected a divisor of {Option(field, tp)} (EP only places experts on TP's GPUs)",
            field="ep",
            value=ep,
        )
    for run in network.layers:
        experts = run.mlp.num_experts if isinstance(run.mlp, MoeMlp) else 0
        needed = attention_split(run.attention, placement.attention_tp)
        if needed is None and experts % ep:
            needed = f"a divisor of its {experts} experts"
            raise InputError(f"{network.id} needs {needed}", field="ep", value=ep)
        needed = needed or _mlp_split(run.mlp, placement)
        if needed is None:
            continue
        if dp == 1:
            raise InputError(f"{network.id} needs {needed}", field=field, value=tp)
        both = f"{Option(field, tp)} with {Option('dp_attention', dp)}"
        raise InputError(f"{both}: {network.id} needs {needed}")


class Side(NamedTuple):
    """A side of a part's matrices that ``ranks`` divide between them."""

    component: Component
    name: str
    width: int
    ranks: int


def divided_sides(network: NetworkSpec, placement: Placement) -> Iterator[Side]:
    """Yield the sides of matrices that ranks divide: heads, and the widths of MLPs and experts.

    Heads are those of grouped attention; KV heads are copied once TP exceeds them.
    """
    tp = placement.attention_tp
    for run in network.layers:
        attention, mlp = run.attention, run.mlp
        if isinstance(attention, GroupedQueryAttention):
            for name, heads in (("query", attention.num_heads), ("KV", attention.num_kv_heads)):
                width, ranks = heads * attention.head_dim, min(tp, heads)
                yield Side(Component.ATTENTION, f"width of {name} heads", width, ranks)
        if isinstance(mlp, DenseMlp):
            yield Side(Component.MLP, "MLP width", mlp.intermediate_size, tp)
        if isinstance(mlp, MoeMlp):
            ranks, shared = placement.tp // placement.ep, Component.SHARED_EXPERTS
            yield Side(Component.EXPERTS, "expert width", mlp.expert_intermediate_size, ranks)
            yield Side(shared, "shared experts' width", mlp.shared_intermediate_size, tp)
            yield Side(Component.MLP, "MLP width", mlp.dense_intermediate_size, tp)


def _mlp_split(mlp: Mlp, placement: Placement) -> str | None:
    if isinstance(mlp, NoMlp):
        return None
    if isinstance(mlp, DenseMlp):
        bad = mlp.intermediate_size % placement.attention_tp
        return f"a divisor of its MLP width {mlp.intermediate_size}" if bad else None
    if mlp.expert_intermediate_size % (placement.tp // placement.ep):
        return (
            f"a divisor of its expert width {mlp.expert_intermediate_size} (or a larger "
            f"{Option('ep')})"
        )
    if mlp.shared_intermediate_size % placement.attention_tp:
        return f"a divisor of its shared experts' width {mlp.shared_intermediate_size}"
    if mlp.dense_intermediate_size % placement.attention_tp:
        return f"a divisor of its dense MLP's width {mlp.dense_intermediate_size}"
    return None


def used_components(network: NetworkSpec) -> set[Component]:
    """Return the parts that the products of the network's layers belong to."""
    whole = Placement()
    return {
        linear.component
        for run in network.layers
        for linear in layer_linears(run, hidden_size=network.hidden_size, placement=whole)
    }
