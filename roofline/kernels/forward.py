"""A forward pass as a list of kernels: FLOPs, bytes and rows, before anyone says how fast.

One function serves decode (one row per sequence), verify (1 + D rows) and every pass of a drafter;
prefill has its own.
"""

from __future__ import annotations

from dataclasses import replace

from roofline.base.arrays import Array
from roofline.kernels import formulas
from roofline.kernels.attention import attention_block
from roofline.kernels.matrices import Linear, fusion_linear, head_linear
from roofline.kernels.mlp import mlp_block
from roofline.kernels.ops import Kind, Op, Part, Pass, communication, elementwise, gemm
from roofline.kernels.split import spread
from roofline.specs.formats import Component, Precision
from roofline.specs.network import DrafterSpec, LayerRun, NetworkSpec
from roofline.specs.placement import Placement

__all__ = ["Kind", "Op", "Part", "decode", "fusion", "head_kernels", "matrix", "prefill"]

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
    riders: Array = 0.0,
    local_riders: Array | None = None,
) -> list[Op]:
    """Return the kernels of one pass with ``rows`` rows per sequence over ``context`` tokens.

    ``head_rows`` is how many of the rows get logits: all of them in a verify pass (the default),
    one in a draft pass. ``riders`` are rows of the whole batch that pass the layers beside them.
    Arrays broadcast; each kernel keeps the smallest shape it depends on. Under data-parallel
    attention ``batch`` and ``riders`` are those of all groups; the kernels are the fullest one's,
    with ``local_riders``.
    """
    shared_out = placement.dp > 1
    local = riders / placement.dp if local_riders is None else local_riders
    state = Pass(
        network=network,
        precision=precision,
        placement=placement,
        batch=placement.local(batch),
        rows=rows,
        context=context,
        riders=local if shared_out else riders,
        in_all=(batch, riders) if shared_out else None,
    )
    return _kernels(state, rows if head_rows is None else head_rows)


def prefill(
    network: NetworkSpec, precision: Precision, placement: Placement, *, batch: Array, prompt: Array
) -> list[Op]:
    """Return the kernels that read a prompt of ``prompt`` tokens into an empty cache.

    Attention is causal, so a prompt of n tokens has n (n + 1) / 2 pairs, and its keys and values
    are read once from memory; MLA is expanded; logits are made for the last token only.
    """
    state = Pass(
        network=network,
        precision=precision,
        placement=placement,
        batch=placement.local(batch),
        rows=prompt,
        context=prompt,
        prefill=True,
        in_all=(batch, 0.0) if placement.dp > 1 else None,
    )
    return _kernels(state, 1.0)


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
    return spread(state, kernels + _head(state, head_rows))


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
