"""A forward pass as a list of kernels, whole or shared among cards and the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import floor
from typing import NamedTuple

import numpy as np

from roofline.base.numbers import Array
from roofline.kernels import formulas
from roofline.kernels.attention import attention_block
from roofline.kernels.matrices import Linear, attention_linears, fusion_linear, head_linear
from roofline.kernels.mlp import mlp_block
from roofline.kernels.ops import (
    GemmShape,
    Kind,
    Op,
    Part,
    Pass,
    PromptShape,
    communication,
    elementwise,
    gemm,
)
from roofline.specs.formats import Component, Precision
from roofline.specs.mixers import LatentAttention
from roofline.specs.network import DrafterSpec, LayerRun, NetworkSpec
from roofline.specs.placement import Placement, Split, SplitMode

__all__ = [
    "Card",
    "Kind",
    "Op",
    "Part",
    "cards_of",
    "cpu_expert_bytes",
    "cpu_expert_layers",
    "decode",
    "fusion",
    "head_kernels",
    "layer_counts",
    "matrix",
    "prefill",
    "prompt_mixing",
    "split_among_devices",
]

LOGIT_BYTES = 4.0  # logits are turned into fp32 for sampling and verification [B]


def decode(
    network: NetworkSpec,
    precision: Precision,
    placement: Placement,
    *,
    batch: Array,
    context: Array,
    rows: Array,
    head_rows: Array | None = None,
    extra_rows: Array = 0.0,
    local_extra_rows: Array | None = None,
) -> list[Op]:
    """Return the kernels of one pass with ``rows`` rows per sequence over ``context`` tokens.

    ``head_rows`` is how many of the rows get logits: all of them in a verify pass (the default),
    one in a draft pass. ``extra_rows`` of the batch pass the layers as well, without logits.
    Arrays broadcast; each kernel keeps the smallest shape it depends on. Under data-parallel
    attention ``batch`` and ``extra_rows`` are those of all groups; the kernels are those of the
    fullest group, with ``local_extra_rows``.
    """
    shared_out = placement.dp > 1
    local = extra_rows / placement.dp if local_extra_rows is None else local_extra_rows
    state = Pass(
        network=network,
        precision=precision,
        placement=placement,
        batch=placement.local_batch(batch),
        rows=rows,
        context=context,
        extra_rows=local if shared_out else extra_rows,
        all_groups=(batch, extra_rows) if shared_out else None,
    )
    return _kernels(state, rows if head_rows is None else head_rows)


def prefill(
    network: NetworkSpec,
    precision: Precision,
    placement: Placement,
    *,
    batch: Array,
    prompt: Array,
    before: Array = 0.0,
) -> list[Op]:
    """Return the kernels that read ``prompt`` tokens after the ``before`` that the cache holds.

    Attention is causal, so a prompt of n tokens has n (n + 1) / 2 pairs and those of n rows with
    all that is before them, and its keys and values are read once from memory; MLA is expanded;
    logits are made for the last token only.
    """
    return _kernels(_prompt_pass(network, precision, placement, batch, prompt, before), 1.0)


def prompt_mixing(
    network: NetworkSpec,
    precision: Precision,
    placement: Placement,
    *,
    prompts: Array,
    tokens: Array,
    before: Array,
) -> list[Op]:
    """Return what chunks add to a pass that decodes, beyond their rows in its matrices.

    Each of ``prompts`` has a chunk of ``tokens`` after the ``before`` that the cache holds: causal
    attention, the recurrences of linear mixers, and MLA's expansion of what the cache holds.
    """
    state = _prompt_pass(network, precision, placement, prompts, tokens, before)
    kernels = []
    for run in network.layers:
        kernels += [
            replace(op, name=f"prompt_{op.name}", count=run.repeat)
            for op in attention_block(state, run)
            if isinstance(op.shape, PromptShape)
        ]
        attention = run.attention
        if isinstance(attention, LatentAttention) and attention.top_k is None and np.any(before):
            tp, hidden = placement.attention_tp, network.hidden_size
            expand = attention_linears(attention, hidden_size=hidden, tp=tp)[2]
            held = gemm(state, expand, Part.LINEAR, np.maximum(state.batch * before, 1.0))
            kernels.append(replace(held, name=f"cached_{held.name}", count=run.repeat))
    return kernels


def _prompt_pass(  # noqa: PLR0917 - what runs, where, and how much of it
    network: NetworkSpec,
    precision: Precision,
    placement: Placement,
    batch: Array,
    prompt: Array,
    before: Array,
) -> Pass:
    return Pass(
        network=network,
        precision=precision,
        placement=placement,
        batch=placement.local_batch(batch),
        rows=prompt,
        context=before + prompt,
        prefill=True,
        all_groups=(batch, 0.0) if placement.dp > 1 else None,
    )


def fusion(
    drafter: DrafterSpec, precision: Precision, placement: Placement, *, tokens: Array
) -> Op:
    """Return the projection of ``tokens`` hidden states of the target into the drafter."""
    linear = fusion_linear(drafter, tp=placement.attention_tp)
    return matrix(drafter, precision, placement, linear, tokens=tokens)


def matrix(
    network: NetworkSpec,
    precision: Precision,
    placement: Placement,
    linear: Linear,
    *,
    tokens: Array,
) -> Op:
    """Return the product of ``tokens`` rows with one matrix outside the layers."""
    head = linear.component is Component.HEAD
    state = _rows(network, precision, placement, tokens)
    return gemm(state, linear, Part.LM_HEAD if head else Part.LINEAR, tokens)


def head_kernels(
    network: NetworkSpec,
    precision: Precision,
    placement: Placement,
    *,
    tokens: Array,
    product: bool = True,
) -> list[Op]:
    """Return what turns ``tokens`` hidden states into tokens; ``product`` off leaves the head."""
    kernels = _head(_rows(network, precision, placement, tokens), 1.0)
    return kernels if product else [op for op in kernels if op.name not in ("lm_head",)]


def _rows(network: NetworkSpec, precision: Precision, placement: Placement, tokens: Array) -> Pass:
    return Pass(
        network=network,
        precision=precision,
        placement=placement,
        batch=tokens,
        rows=1.0,
        context=0.0,
    )


def _kernels(state: Pass, head_rows: Array) -> list[Op]:
    kernels = _embedding(state)
    for run in state.network.layers:
        layer = layer_kernels(state, run)
        kernels += [replace(op, count=op.count * run.repeat) for op in layer]
    return split_among_devices(state, kernels + _head(state, head_rows))


def layer_kernels(state: Pass, run: LayerRun) -> list[Op]:
    """Return one layer's kernels; parallel branches share the norm and the final all-reduce."""
    mixing, mlp = attention_block(state, run), mlp_block(state, run.mlp)
    if not run.parallel:
        return [*mixing, *mlp]
    mixing = [op for op in mixing if op.name != "attention_all_reduce"]
    return [*mixing, *(op for op in mlp if op.name != "mlp_norm")]


def _embedding(state: Pass) -> list[Op]:
    """Gather the token rows; a drafter also norms the target's hidden states."""
    hidden = state.network.hidden_size
    gather = elementwise(state, "embedding", 2 * hidden, state.tokens)
    if not isinstance(state.network, DrafterSpec):
        return [gather]
    return [gather, elementwise(state, "hidden_norm", 2 * hidden, state.tokens)]


def _head(state: Pass, head_rows: Array) -> list[Op]:
    """Return the final norm, the head, the gather of its shards, and the pass over the logits."""
    tokens = state.batch * head_rows
    linear = head_linear(state.network, tp=state.placement.attention_tp)
    ranks = state.placement.attention_tp
    vocabulary = linear.outputs * ranks
    logits = tokens * vocabulary * state.base_bytes
    kernels = [
        elementwise(state, "final_norm", 2 * state.network.hidden_size, state.tokens),
        gemm(state, linear, Part.LM_HEAD, tokens),
    ]
    if ranks > 1:
        received = formulas.all_gather_bytes(payload=logits, ranks=ranks)
        kernels.append(
            communication(
                state, "logits_gather", sent=received, payload=logits, kind=Kind.ALL_GATHER
            )
        )
    # read, write as fp32, read again to sample or compare
    per_row = vocabulary * (1 + 2 * LOGIT_BYTES / state.base_bytes)
    return [*kernels, elementwise(state, "sampling", per_row, tokens)]


FP32 = 4.0  # hidden states between backends [B]


def cpu_expert_layers(*, layers: int, expert_layers: int, cpu_layers: int) -> int:
    """Return how many layers with experts are among the first ``cpu_layers``, dense ones first.

    >>> cpu_expert_layers(layers=61, expert_layers=58, cpu_layers=10)
    7
    """
    return min(max(cpu_layers - (layers - expert_layers), 0), expert_layers)


def split_among_devices(state: Pass, kernels: list[Op]) -> list[Op]:
    """Return a pass's kernels as its placement's split runs them."""
    split, network = state.placement.split, state.network
    kernels = _experts_on_cpu(state, kernels)
    if split.cards == 1 or split.mode is SplitMode.TENSOR or split.layers:
        return kernels  # what crosses the links between an engine's stages: timing/pipeline.py
    if split.mode is SplitMode.LAYER:
        hop = _copy(state, "card_to_card", network.hidden_size * FP32)
        return [*kernels, replace(hop, count=split.cards - 1)]
    return [part for op in kernels for part in _by_rows(op, split.cards)]


def _copy(state: Pass, name: str, bytes_per_row: float) -> Op:
    return Op(
        name=name,
        kind=Kind.COPY,
        part=Part.COMMUNICATION,
        compute=state.precision.base,
        storage=state.precision.base,
        flops=0.0,
        bytes=state.tokens * bytes_per_row,
        rows=state.tokens,
    )


def _by_rows(op: Op, cards: int) -> list[Op]:
    """Return one card's part of a product, and the copies of its rows to and from other cards."""
    shape = op.shape
    if op.kind is not Kind.GEMM or not isinstance(shape, GemmShape):
        return [op]
    moved = shape.m * (shape.k + shape.n * (cards - 1) / cards) * FP32
    weights = shape.n * shape.k * shape.weight
    product = replace(
        op,
        flops=op.flops / cards,
        bytes=op.bytes - weights * (1 - 1 / cards),
        shape=shape._replace(n=shape.n / cards),
    )
    copies = Op(
        name=f"{op.name}_gather",
        kind=Kind.COPY,
        part=Part.COMMUNICATION,
        compute=op.compute,
        storage=op.storage,
        flops=0.0,
        bytes=moved,
        rows=op.rows,
        count=op.count,
    )
    return [product, copies]


def _experts_on_cpu(state: Pass, kernels: list[Op]) -> list[Op]:
    """Give the experts of the first layers to the processor."""
    left = _layers_with_cpu_experts(state.network, state.placement.split.cpu_layers)
    if not left:
        return kernels
    shared_out = []
    for op in kernels:
        on_cpu = min(left, op.count) if op.kind is Kind.MOE else 0
        left -= on_cpu
        if op.count > on_cpu:
            shared_out.append(replace(op, count=op.count - on_cpu))
        if on_cpu:
            hidden = 2 * state.network.hidden_size * FP32
            copies = replace(_copy(state, "experts_there_and_back", hidden), count=on_cpu)
            shared_out += [replace(op, name="cpu_experts", kind=Kind.CPU_MOE, count=on_cpu), copies]
    return shared_out


def _layers_with_cpu_experts(network: NetworkSpec, cpu_layers: int) -> int:
    return cpu_expert_layers(
        layers=network.num_layers, expert_layers=network.num_expert_layers, cpu_layers=cpu_layers
    )


class Card(NamedTuple):
    """Shares of a network on one card; a card alone holds everything."""

    layers: float = 1.0  # of the layers' weights
    experts: float = 1.0  # of the routed experts' weights
    caches: float = 1.0
    embedding: float = 1.0
    head: float = 1.0
    #: Whether logits are made here, and heads that draft lie here.
    last: bool = True

    def weights(self, held: Mapping[Component, float]) -> dict[Component, float]:
        """Return the bytes of each component that lie on the card [B]."""
        shares = {
            Component.EXPERTS: self.experts,
            Component.EMBEDDING: self.embedding,
            Component.VISION: self.embedding,
            Component.HEAD: self.head,
        }
        return {part: size * shares.get(part, self.layers) for part, size in held.items()}


def layer_counts(layers: int, split: Split) -> list[int]:
    """Return how many of the layers each card gets, as llama.cpp deals them out.

    The output counts as one layer more, the last; item i of n + 1 goes to the first card whose
    cumulated share exceeds i / (n + 1).

    >>> layer_counts(64, Split(cards=2))
    [33, 31]
    >>> layer_counts(64, Split(cards=2, shares=(3.0, 1.0)))
    [49, 15]
    """
    if split.layers:
        return list(split.layers)
    shares = split.shares or (1.0,) * split.cards
    total, ends, reached = sum(shares), [], 0.0
    for share in shares:
        reached += share
        ends.append(min(-floor(-(layers + 1) * reached / total + 1e-9), layers))
    ends[-1] = layers
    return [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def cards_of(network: NetworkSpec, split: Split) -> tuple[Card, ...]:
    """Return the cards that a network lies on; kinds of layers count as evenly mixed."""
    layers, experts = network.num_layers, network.num_expert_layers
    alone = Card(experts=_kept(network, split, 0, layers))
    if split.cards == 1 or split.mode is SplitMode.TENSOR:
        return (alone,)
    if split.mode is SplitMode.ROW:
        share = 1 / split.cards
        main = Card(layers=share, experts=share, head=share)
        other = Card(layers=share, experts=share, head=share, caches=0, embedding=0, last=False)
        return (main, *(other for _ in range(split.cards - 1)))
    cards, start = [], 0
    for i, count in enumerate(layer_counts(layers, split)):
        final = i == split.cards - 1
        cards.append(
            Card(
                layers=count / layers,
                experts=_kept(network, split, start, start + count) if experts else 0.0,
                caches=count / layers,
                embedding=float(i == 0),
                head=float(final),
                last=final,
            )
        )
        start += count
    return tuple(cards)


def _kept(network: NetworkSpec, split: Split, start: int, stop: int) -> float:
    """Return the share of all routed experts that the layers from start to stop keep on cards."""
    layers, experts = network.num_layers, network.num_expert_layers
    if not experts:
        return 1.0

    def first(count: int) -> int:
        return cpu_expert_layers(layers=layers, expert_layers=experts, cpu_layers=count)

    with_experts = first(stop) - first(start)
    on_cpu = first(min(stop, split.cpu_layers)) - first(min(start, split.cpu_layers))
    return (with_experts - on_cpu) / experts


def cpu_expert_bytes(network: NetworkSpec, held: Mapping[Component, float], split: Split) -> float:
    """Return the bytes of routed experts that stay beside the processor [B]."""
    kept = _kept(network, split, 0, network.num_layers)
    return held.get(Component.EXPERTS, 0.0) * (1 - kept)
