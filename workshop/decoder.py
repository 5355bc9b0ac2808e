"""A decoder with random weights that runs real steps on the kernels that were calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roofline.base.errors import InputError
from roofline.calibrate.measure.backend import Backend
from roofline.kernels.matrices import (
    Linear,
    attention_linears,
    expert_linears,
    head_linear,
    mlp_linears,
    router_linear,
    shared_linears,
)
from roofline.specs.network import DenseMlp, GroupedQueryAttention, LayerRun, ModelSpec, MoeMlp
from roofline.specs.placement import Placement

__all__ = ["Decoder", "DecoderLayer", "DecoderMlp", "StepShape", "build_decoder"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepShape:
    """One step: sequences, rows per sequence, tokens in the cache with the rows among them."""

    batch: int
    rows: int
    context: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderMlp:
    """Two matrices of a dense MLP or of shared experts; a router and two for each routed expert."""

    up: Any = None
    down: Any = None
    router: Any = None
    experts: tuple[Any, Any] | None = None
    top_k: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderLayer:
    """The matrices and norms of one layer."""

    qkv: Any
    out: Any
    mlp: DecoderMlp
    norms: tuple[Any, Any]
    qk_norm: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """Random weights in a library's arrays, and how attention reads its cache."""

    model: ModelSpec
    backend: Backend
    dtype: str
    kernel: str
    expert_kernel: str
    layers: tuple[DecoderLayer, ...]
    head: Any
    table: Any
    gain: Any

    def caches(self, shape: StepShape) -> list[tuple[Any, Any]]:
        """Return keys and values of every layer for a batch at a context."""
        attention = _attention(self.model.layers[0])
        sizes = (shape.batch, attention.num_kv_heads, shape.context, attention.head_dim)
        copy, operand = self.backend.copy, self.backend.operand
        return [
            (copy(operand(sizes, self.dtype, 2 * i)), copy(operand(sizes, self.dtype, 2 * i + 1)))
            for i in range(len(self.layers))
        ]

    def step(self, shape: StepShape, caches: list[tuple[Any, Any]], ids: Any, angles: Any) -> Any:
        """Run one pass over ``rows`` tokens of each sequence; return the tokens chosen."""
        backend, attention = self.backend, _attention(self.model.layers[0])
        sizes = {
            "batch": shape.batch,
            "q": shape.rows,
            "context": shape.context,
            "heads": attention.num_heads,
            "kv_heads": attention.num_kv_heads,
            "head_dim": attention.head_dim,
        }
        x = backend.embedding(self.table, ids)
        residual = x
        for layer, cache in zip(self.layers, caches, strict=True):
            x, residual = backend.norm(x, residual, layer.norms[0])
            qkv = backend.linear(x, layer.qkv, self.dtype)
            if layer.qk_norm is not None:
                self._norm_heads(qkv, attention, layer.qk_norm)
            queries = backend.rope_write(qkv, cache, angles, sizes)
            x = backend.attention(queries, *cache, q=shape.rows, kernel=self.kernel)
            x = backend.linear(x, layer.out, self.dtype)
            x, residual = backend.norm(x, residual, layer.norms[1])
            x = self._mlp(x, layer.mlp)
        x, _ = backend.norm(x, residual, self.gain)
        return backend.sampling(backend.linear(x, self.head, self.dtype))

    def _mlp(self, x: Any, mlp: DecoderMlp) -> Any:
        backend, parts = self.backend, []
        if mlp.experts is not None:
            chosen = backend.top_k(backend.linear(x, mlp.router, self.dtype), mlp.top_k)
            parts.append(backend.experts(x, chosen, *mlp.experts, kernel=self.expert_kernel))
        if mlp.up is not None:
            inner = backend.activation(backend.linear(x, mlp.up, self.dtype))
            parts.append(backend.linear(inner, mlp.down, self.dtype))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _norm_heads(self, qkv: Any, attention: GroupedQueryAttention, gain: Any) -> None:
        count = attention.num_heads + attention.num_kv_heads
        width = count * attention.head_dim
        heads = qkv[:, :width].reshape(qkv.shape[0], count, attention.head_dim)
        qkv[:, :width] = self.backend.qk_norm(heads, gain).reshape(qkv.shape[0], width)

    def angles(self, shape: StepShape) -> Any:
        """Return random cosines and sines for the rows of a step."""
        half = _attention(self.model.layers[0]).head_dim // 2
        return [self.backend.operand((shape.rows, 1, half), self.dtype, i) for i in (3, 4)]


def _attention(run: LayerRun) -> GroupedQueryAttention:
    if not isinstance(run.attention, GroupedQueryAttention):
        raise InputError("this decoder has grouped-query attention only")
    return run.attention


class _Weights:
    """Random matrices, each in memory of its own."""

    def __init__(self, backend: Backend, dtype: str) -> None:
        self._backend, self._dtype, self._number = backend, dtype, 0

    def __call__(self, *shape: int) -> Any:
        self._number += 1
        return self._backend.copy(self._backend.operand(shape, self._dtype, self._number))

    def linear(self, outputs: int, inputs: int) -> Any:
        """Return a matrix as products take it."""
        return self._backend.packed(self(outputs, inputs), self._dtype)

    def pair(self, linears: list[Linear]) -> tuple[Any, Any]:
        """Return both matrices of an MLP."""
        up, down = (self.linear(x.outputs, x.inputs) for x in linears)
        return up, down


def _mlp(run: LayerRun, hidden: int, weights: _Weights) -> DecoderMlp:
    placement = Placement()
    match run.mlp:
        case DenseMlp(gated=True) as mlp:
            up, down = weights.pair(mlp_linears(mlp, hidden_size=hidden, placement=placement))
            return DecoderMlp(up=up, down=down)
        case MoeMlp(gated=True, latent_size=None, dense_intermediate_size=0) as mlp:
            router = router_linear(mlp, hidden_size=hidden)
            count = mlp.num_experts
            pair = expert_linears(mlp, hidden_size=hidden, placement=placement)
            first, second = (weights(count, x.outputs, x.inputs) for x in pair)
            shared = shared_linears(mlp, hidden_size=hidden, tp=1)
            up, down = weights.pair(shared) if shared else (None, None)
            return DecoderMlp(
                up=up,
                down=down,
                router=weights.linear(router.outputs, hidden),
                experts=(first, second),
                top_k=mlp.top_k,
            )
    raise InputError("this decoder has gated MLPs, dense or of experts, only")


def build_decoder(
    model: ModelSpec, backend: Backend, *, dtype: str, kernel: str, expert_kernel: str = ""
) -> Decoder:
    """Return a decoder of the model's shape with random weights; windows are ignored."""
    layers, weights, hidden = [], _Weights(backend, dtype), model.hidden_size
    for run in model.layers:
        attention = _attention(run)
        norm = backend.operand((attention.head_dim,), dtype, 5) if attention.qk_norm else None
        gains = (backend.operand((hidden,), dtype, 1), backend.operand((hidden,), dtype, 2))
        for _ in range(run.repeat):
            qkv, out = weights.pair(attention_linears(attention, hidden_size=hidden))
            mlp = _mlp(run, hidden, weights)
            layers.append(DecoderLayer(qkv=qkv, out=out, mlp=mlp, norms=gains, qk_norm=norm))
    head = head_linear(model)
    return Decoder(
        model=model,
        backend=backend,
        dtype=dtype,
        kernel=kernel,
        expert_kernel=expert_kernel,
        layers=tuple(layers),
        head=weights.linear(head.outputs, head.inputs),
        table=weights(model.vocab_size, hidden),
        gain=backend.operand((hidden,), dtype, 3),
    )
