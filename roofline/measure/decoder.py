"""A decoder with random weights that runs real steps on the kernels that were calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roofline.errors import InputError
from roofline.layers import attention_linears, head_linear, mlp_linears
from roofline.measure.backend import Backend
from roofline.model import DenseMlp, GroupedQueryAttention, LayerRun, ModelSpec
from roofline.workload import Placement

__all__ = ["Decoder", "Layer", "Shape", "build"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One step: sequences, rows per sequence, tokens in the cache with the rows among them."""

    batch: int
    rows: int
    context: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """The matrices and norms of one layer."""

    qkv: Any
    out: Any
    up: Any
    down: Any
    norms: tuple[Any, Any]
    qk_norm: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """Random weights in a library's arrays, and how attention reads its cache."""

    model: ModelSpec
    backend: Backend
    dtype: str
    kernel: str
    layers: tuple[Layer, ...]
    head: Any
    table: Any
    gain: Any

    def caches(self, shape: Shape) -> list[tuple[Any, Any]]:
        """Return keys and values of every layer for a batch at a context."""
        attention = _attention(self.model.layers[0])
        sizes = (shape.batch, attention.num_kv_heads, shape.context, attention.head_dim)
        own, operand = self.backend.own, self.backend.operand
        return [
            (own(operand(sizes, self.dtype, 2 * i)), own(operand(sizes, self.dtype, 2 * i + 1)))
            for i in range(len(self.layers))
        ]

    def step(self, shape: Shape, caches: list[tuple[Any, Any]], ids: Any, angles: Any) -> Any:
        """Run one pass over ``rows`` tokens of each sequence; return the tokens chosen."""
        use, attention = self.backend, _attention(self.model.layers[0])
        sizes = {
            "batch": shape.batch, "q": shape.rows, "context": shape.context,
            "heads": attention.num_heads, "kv_heads": attention.num_kv_heads,
            "head_dim": attention.head_dim,
        }  # fmt: skip
        x = use.embedding(self.table, ids)
        residual = x
        for layer, cache in zip(self.layers, caches, strict=True):
            x, residual = use.norm(x, residual, layer.norms[0])
            qkv = use.linear(x, layer.qkv, self.dtype)
            if layer.qk_norm is not None:
                self._norm_heads(qkv, attention, layer.qk_norm)
            queries = use.rope_write(qkv, cache, angles, sizes)
            x = use.attention(queries, *cache, q=shape.rows, kernel=self.kernel)
            x = use.linear(x, layer.out, self.dtype)
            x, residual = use.norm(x, residual, layer.norms[1])
            x = use.activation(use.linear(x, layer.up, self.dtype))
            x = use.linear(x, layer.down, self.dtype)
        x, _ = use.norm(x, residual, self.gain)
        return use.sampling(use.linear(x, self.head, self.dtype))

    def _norm_heads(self, qkv: Any, attention: GroupedQueryAttention, gain: Any) -> None:
        count = attention.num_heads + attention.num_kv_heads
        width = count * attention.head_dim
        heads = qkv[:, :width].reshape(qkv.shape[0], count, attention.head_dim)
        qkv[:, :width] = self.backend.qk_norm(heads, gain).reshape(qkv.shape[0], width)

    def angles(self, shape: Shape) -> Any:
        """Return random cosines and sines for the rows of a step."""
        half = _attention(self.model.layers[0]).head_dim // 2
        return [self.backend.operand((shape.rows, 1, half), self.dtype, i) for i in (3, 4)]


def _attention(run: LayerRun) -> GroupedQueryAttention:
    if not isinstance(run.attention, GroupedQueryAttention) or not isinstance(run.mlp, DenseMlp):
        raise InputError("this decoder has grouped-query attention and dense MLPs only")
    return run.attention


def _layer(matrices: list[Any], norms: tuple[Any, Any], qk_norm: Any) -> Layer:
    qkv, out, up, down = matrices
    return Layer(qkv=qkv, out=out, up=up, down=down, norms=norms, qk_norm=qk_norm)


def build(model: ModelSpec, backend: Backend, *, dtype: str, kernel: str) -> Decoder:
    """Return a decoder of the model's shape; windows are ignored, as is what weights mean."""
    layers = []
    hidden, number = model.hidden_size, 0

    def weight(outputs: int, inputs: int) -> Any:
        nonlocal number
        number += 1
        return backend.own(backend.operand((outputs, inputs), dtype, number))

    for run in model.layers:
        attention, mlp = _attention(run), run.mlp
        pair = attention_linears(attention, hidden_size=hidden)
        pair += mlp_linears(mlp, hidden_size=hidden, placement=Placement())
        norm = backend.operand((attention.head_dim,), dtype, 5) if attention.qk_norm else None
        gains = (backend.operand((hidden,), dtype, 1), backend.operand((hidden,), dtype, 2))
        layers += [
            _layer([weight(x.outputs, x.inputs) for x in pair], gains, norm)
            for _ in range(run.repeat)
        ]
    head = head_linear(model)
    return Decoder(
        model=model, backend=backend, dtype=dtype, kernel=kernel, layers=tuple(layers),
        head=weight(head.outputs, head.inputs),
        table=weight(model.vocab_size, hidden), gain=backend.operand((hidden,), dtype, 3),
    )  # fmt: skip
