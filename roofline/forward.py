"""A forward pass as a list of kernels: FLOPs, bytes and rows, before anyone says how fast.

One function serves decode (one row per sequence), verify (1 + D rows) and every pass of a drafter;
prefill has its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from roofline import ops
from roofline.layers import (
    Linear,
    attention_linears,
    fusion_linear,
    head_linear,
    local_heads,
    mlp_linears,
)
from roofline.model import Attention, DrafterSpec, LayerRun, Mlp, NetworkSpec
from roofline.ops import Array, VerifyAttention
from roofline.quantization import DType, Precision, bytes_per_element
from roofline.workload import Placement

__all__ = ["Kind", "Op", "Part", "decode", "prefill"]

LOGIT_BYTES = 4.0  # logits are turned into fp32 for sampling and verification [B]


class Kind(StrEnum):
    """A family of kernels that share one law."""

    GEMM = "gemm"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    ALL_REDUCE = "allreduce"


class Part(StrEnum):
    """A share of the step, as `breakdown_ms` reports it."""

    LINEAR = "linear"
    ATTENTION = "attention"
    MOE = "moe"
    LM_HEAD = "lm_head"
    COMMUNICATION = "communication"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One kernel of a pass, launched ``count`` times.

    ``flops`` and ``bytes`` are those of one launch on one accelerator (bytes over the link for
    communication). ``rows`` is M of a GEMM and G q of attention; ``reduction`` is K.
    """

    name: str
    kind: Kind
    part: Part
    compute: DType
    storage: DType
    flops: Array
    bytes: Array
    rows: Array
    count: int = 1
    width: int = 1
    reduction: int = 0
    ranks: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pass:
    """What every kernel of one pass has in common."""

    network: NetworkSpec
    precision: Precision
    placement: Placement
    batch: Array
    rows: Array  # per sequence
    context: Array

    @property
    def tokens(self) -> Array:
        return self.batch * self.rows

    @property
    def base_bytes(self) -> float:
        return bytes_per_element(self.precision.base)


def decode(
    network: NetworkSpec,
    precision: Precision,
    placement: Placement,
    *,
    batch: Array,
    context: Array,
    rows: Array,
    head_rows: Array | None = None,
) -> list[Op]:
    """Return the kernels of one pass with ``rows`` rows per sequence over ``context`` tokens.

    ``head_rows`` is how many of the rows get logits: all of them in a verify pass (the default),
    one in a draft pass. Arrays broadcast; each kernel keeps the smallest shape it depends on.
    """
    state = _Pass(
        network=network,
        precision=precision,
        placement=placement,
        batch=batch,
        rows=rows,
        context=context,
    )
    kernels = _embedding(state)
    for run in network.layers:
        layer = [*_attention_block(state, run), *_mlp_block(state, run.mlp)]
        kernels += [replace(op, count=op.count * run.repeat) for op in layer]
    return kernels + _head(state, rows if head_rows is None else head_rows)


def prefill(
    network: NetworkSpec, precision: Precision, placement: Placement, *, batch: Array, prompt: Array
) -> list[Op]:
    """Return the kernels that read a prompt of ``prompt`` tokens into an empty cache.

    Attention is causal, so a prompt of n tokens has n (n + 1) / 2 pairs, and its keys and values
    are read once from memory; logits are made for the last token only.
    """
    kernels = decode(
        network, precision, placement, batch=batch, context=prompt, rows=prompt, head_rows=1
    )
    share = ops.causal_pairs(tokens=prompt) / (prompt * prompt)
    return [
        replace(op, flops=op.flops * share) if op.kind is Kind.ATTENTION else op for op in kernels
    ]


def _gemm(state: _Pass, linear: Linear, part: Part, rows: Array) -> Op:
    weight = state.precision.weights[linear.component]
    compute = state.precision.activations[linear.component]
    return Op(
        name=linear.name,
        kind=Kind.GEMM,
        part=part,
        compute=compute,
        storage=weight,
        flops=ops.gemm_flops(m=rows, n=linear.outputs, k=linear.inputs),
        bytes=ops.gemm_bytes(
            m=rows,
            n=linear.outputs,
            k=linear.inputs,
            weight=bytes_per_element(weight),
            activation=bytes_per_element(compute),
            output=state.base_bytes,
        ),
        rows=rows,
        width=linear.outputs,
        reduction=linear.inputs,
    )


def _elementwise(state: _Pass, name: str, values_per_row: float, rows: Array) -> Op:
    """Return a kernel that streams ``values_per_row`` base-format values for each row."""
    return Op(
        name=name,
        kind=Kind.ELEMENTWISE,
        part=Part.OTHER,
        compute=state.precision.base,
        storage=state.precision.base,
        flops=0.0,
        bytes=rows * values_per_row * state.base_bytes,
        rows=rows,
    )


def _all_reduce(state: _Pass, name: str) -> list[Op]:
    """Return the all-reduce of one hidden state per row, if there is more than one rank."""
    ranks = state.placement.tp
    payload = state.tokens * state.network.hidden_size * state.base_bytes
    sent = ops.all_reduce_bytes(payload=payload, ranks=ranks)
    return [_communication(state, name, sent, payload)] if ranks > 1 else []


def _communication(state: _Pass, name: str, sent: Array, payload: Array) -> Op:
    return Op(
        name=name,
        kind=Kind.ALL_REDUCE,
        part=Part.COMMUNICATION,
        compute=state.precision.base,
        storage=state.precision.base,
        flops=0.0,
        bytes=sent,
        rows=payload,
        ranks=state.placement.tp,
    )


def _attention_block(state: _Pass, run: LayerRun) -> list[Op]:
    attention, hidden = run.attention, state.network.hidden_size
    qkv, out = attention_linears(attention, hidden_size=hidden, tp=state.placement.tp)
    return [
        _elementwise(state, "attention_norm", 4 * hidden, state.tokens),
        _gemm(state, qkv, Part.LINEAR, state.tokens),
        *_rotary(state, attention),
        _attention(state, attention),
        _gemm(state, out, Part.LINEAR, state.tokens),
        *_all_reduce(state, "attention_all_reduce"),
    ]


def _rotary(state: _Pass, attention: Attention) -> list[Op]:
    """Rotate queries and keys and write the new keys and values to the cache."""
    heads, kv_heads = local_heads(attention, state.placement.tp)
    moved = 2 * (heads + 2 * kv_heads) * attention.head_dim
    kernels = [_elementwise(state, "rope_kv_write", moved, state.tokens)]
    if attention.qk_norm:
        normed = 2 * (heads + kv_heads) * attention.head_dim
        kernels.insert(0, _elementwise(state, "qk_norm", normed, state.tokens))
    return kernels


def _attention(state: _Pass, attention: Attention) -> Op:
    heads, kv_heads = local_heads(attention, state.placement.tp)
    group = heads // kv_heads
    mode = state.placement.verify_attention
    rows = state.rows
    work_rows = (
        ops.padded_rows(rows=group * rows, tile=state.placement.tile_rows) / group
        if mode == VerifyAttention.TILE
        else rows
    )
    return Op(
        name="attention",
        kind=Kind.ATTENTION,
        part=Part.ATTENTION,
        compute=state.precision.base,
        storage=state.precision.kv,
        flops=ops.attention_flops(
            batch=state.batch,
            rows=work_rows,
            heads=heads,
            head_dim=attention.head_dim,
            length=state.context,
        ),
        bytes=ops.attention_bytes(
            batch=state.batch,
            rows=rows,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=attention.head_dim,
            length=state.context,
            kv=bytes_per_element(state.precision.kv),
            activation=state.base_bytes,
            kv_reads=rows if mode == VerifyAttention.KV_PER_QUERY else 1,
        ),
        rows=group * rows,
    )


def _mlp_block(state: _Pass, mlp: Mlp) -> list[Op]:
    hidden = state.network.hidden_size
    up, down = mlp_linears(mlp, hidden_size=hidden, tp=state.placement.tp)
    return [
        _elementwise(state, "mlp_norm", 4 * hidden, state.tokens),
        _gemm(state, up, Part.LINEAR, state.tokens),
        _elementwise(state, "activation", up.outputs + down.inputs, state.tokens),
        _gemm(state, down, Part.LINEAR, state.tokens),
        *_all_reduce(state, "mlp_all_reduce"),
    ]


def _embedding(state: _Pass) -> list[Op]:
    """Gather the token rows; a fused drafter also projects the target's hidden states."""
    hidden = state.network.hidden_size
    gather = _elementwise(state, "embedding", 2 * hidden, state.tokens)
    if not isinstance(state.network, DrafterSpec):
        return [gather]
    return [gather, _elementwise(state, "hidden_norm", 2 * hidden, state.tokens)]


def fusion(
    drafter: DrafterSpec, precision: Precision, placement: Placement, *, tokens: Array
) -> Op:
    """Return the projection of the target's hidden states, run once for each verified token."""
    state = _Pass(
        network=drafter,
        precision=precision,
        placement=placement,
        batch=tokens,
        rows=1.0,
        context=0.0,
    )
    return _gemm(state, fusion_linear(drafter, tp=placement.tp), Part.LINEAR, tokens)


def _head(state: _Pass, head_rows: Array) -> list[Op]:
    """Return the final norm, the head, the gather of its shards, and the pass over the logits."""
    tokens = state.batch * head_rows
    linear = head_linear(state.network, tp=state.placement.tp)
    ranks = state.placement.tp
    vocabulary = linear.outputs * ranks
    logits = tokens * vocabulary * state.base_bytes
    kernels = [
        _elementwise(state, "final_norm", 2 * state.network.hidden_size, state.tokens),
        _gemm(state, linear, Part.LM_HEAD, tokens),
    ]
    if ranks > 1:
        received = ops.all_gather_bytes(payload=logits, ranks=ranks)
        kernels.append(_communication(state, "logits_gather", received, logits))
    # read, write as fp32, read again to sample or compare
    per_row = vocabulary * (1 + 2 * LOGIT_BYTES / state.base_bytes)
    return [*kernels, _elementwise(state, "sampling", per_row, tokens)]
