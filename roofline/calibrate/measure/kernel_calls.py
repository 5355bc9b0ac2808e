"""A case as a call that can be timed, and the check of its result against fp64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.measure.backend import Backend, CaseError, Status
from roofline.calibrate.measure.cases import Case

__all__ = [
    "Prepared",
    "deviation",
    "draw_experts",
    "prepare",
    "reference_attention",
    "reference_experts",
]

Array = NDArray[np.float64]
CHECKED = 64  # outputs that are recomputed in fp64
DRAWS = 8  # of experts


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """``call(i)`` runs the kernel on the i-th set of operands; ``error()`` is its deviation."""

    call: Callable[[int], Any]
    error: Callable[[], float]
    cold: str


def prepare(case: Case, backend: Backend) -> Prepared:
    """Return the kernel of a case on random operands."""
    sizes = dict(case.shape)
    match case.kind:
        case "gemm":
            return _product(case, backend, sizes)
        case "attention":
            return _attention(case, backend, sizes)
        case "elementwise":
            return _elementwise(case, backend, sizes)
        case "moe":
            return _experts(case, backend, sizes)
        case "stream" | "launch" | "allreduce":
            return _extra(case, backend, sizes)
    raise CaseError(Status.UNSUPPORTED, f"no kernel of kind {case.kind}")


def _sets_in_turn(copies: int) -> str:
    return f"{copies} sets of operands in turn"


def _product(case: Case, backend: Backend, sizes: dict[str, int]) -> Prepared:
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    wide = _activation_format(case)
    x = backend.operand((m, k), wide, 0)
    copies = backend.cold_copies(n * k, case.dtype)
    weights = [backend.packed(backend.operand((n, k), wide, i), case.dtype) for i in range(copies)]

    def error() -> float:
        result = backend.to_float64(backend.linear(x, weights[0], case.dtype))[:, :CHECKED]
        weight = backend.to_float64(backend.operand((n, k), wide, 0)[:CHECKED])
        return deviation(result, backend.to_float64(x) @ weight.T)

    return Prepared(
        call=lambda i: backend.linear(x, weights[i % copies], case.dtype),
        error=error,
        cold=_sets_in_turn(copies),
    )


def _activation_format(case: Case) -> str:
    """Return the format of what a case's weights or cache are multiplied with."""
    return "fp32" if case.dtype == "fp32" else "bf16"


def _attention(case: Case, backend: Backend, sizes: dict[str, int]) -> Prepared:
    batch, heads, head = sizes["batch"], sizes["kv_heads"], sizes["head_dim"]
    q, group, length = sizes["q"], sizes["group"], sizes["context"]
    queries = backend.operand((batch, heads, group * q, head), _activation_format(case), 0)
    copies = backend.cold_copies(2 * batch * heads * length * head, case.dtype)
    shape = (batch, heads, length, head)
    keys = [backend.operand(shape, case.dtype, 2 * i) for i in range(copies)]
    values = [backend.operand(shape, case.dtype, 2 * i + 1) for i in range(copies)]

    def call(i: int) -> Any:
        at = i % copies
        return backend.attention(queries, keys[at], values[at], q=q, kernel=case.kernel)

    def error() -> float:
        result = backend.to_float64(call(0))[:q, : group * head]
        first = [backend.to_float64(x[:1, :1])[0, 0] for x in (queries, keys[0], values[0])]
        exact = reference_attention(first[0], first[1], first[2], q)
        return deviation(result, exact.reshape(group, q, head).swapaxes(0, 1).reshape(q, -1))

    return Prepared(call=call, error=error, cold=_sets_in_turn(copies))


def _elementwise(case: Case, backend: Backend, s: dict[str, int]) -> Prepared:
    rows, dtype = s["rows"], case.dtype
    name = case.op.removeprefix("shared_")
    name = "norm" if name.endswith("_norm") and name != "qk_norm" else name
    makers = {
        "norm": _norm,
        "qk_norm": _qk_norm,
        "rope_kv_write": _rope,
        "embedding": _embedding,
        "activation": _activation,
        "sampling": _sampling,
        "top_k": _top_k,
    }
    if name not in makers:
        raise CaseError(Status.UNSUPPORTED, f"no kernel for {case.op}")
    call, result, exact = makers[name](backend, s, rows, dtype)
    return Prepared(
        call=call,
        error=lambda: deviation(backend.to_float64(result()), exact()),
        cold="warm, as after the kernel before it",
    )


#: The call that is timed, its result, and the same in fp64.
Checkable = tuple[Callable[[int], Any], Callable[[], Any], Callable[[], Array]]


def _normed(values: Array) -> Array:
    return np.asarray(values / np.sqrt(np.mean(values**2, axis=-1, keepdims=True) + 1e-6))


def _norm(backend: Backend, s: dict[str, int], rows: int, dtype: str) -> Checkable:
    x, other = (backend.operand((rows, s["hidden"]), dtype, i) for i in (0, 1))
    gain = backend.operand((s["hidden"],), dtype, 2)
    x64, other64, gain64 = (backend.to_float64(v) for v in (x, other, gain))
    return (
        lambda _: backend.norm(x, other, gain),
        lambda: backend.norm(x, other, gain)[0],
        lambda: _normed(x64 + other64) * gain64,
    )


def _qk_norm(backend: Backend, s: dict[str, int], rows: int, dtype: str) -> Checkable:
    heads = s["heads"] + s["kv_heads"]
    x = backend.operand((rows, heads, s["head_dim"]), dtype, 0)
    gain = backend.operand((s["head_dim"],), dtype, 2)
    return (
        lambda _: backend.qk_norm(x, gain),
        lambda: backend.qk_norm(x, gain),
        lambda: _normed(backend.to_float64(x)) * backend.to_float64(gain),
    )


def _rope(backend: Backend, s: dict[str, int], rows: int, dtype: str) -> Checkable:
    head, width = s["head_dim"], s["heads"] + 2 * s["kv_heads"]
    qkv = backend.operand((rows, width * head), dtype, 0)
    cache = [backend.operand((rows, s["kv_heads"], 64, head), dtype, i + 1) for i in range(2)]
    angles = [backend.operand((1, 1, head // 2), dtype, i + 3) for i in range(2)]
    sizes = s | {"batch": rows, "q": 1, "context": 64}

    def run() -> Any:
        return backend.rope_write(qkv, cache, angles, sizes)

    def exact() -> Array:
        x = backend.to_float64(qkv).reshape(rows, width, head)[:, : s["heads"]]
        cos, sin = (backend.to_float64(a)[0, 0] for a in angles)
        low, high = x[..., : head // 2], x[..., head // 2 :]
        turned = np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
        return turned.reshape(rows, s["kv_heads"], -1, head)

    return (lambda _: run(), run, exact)


def _embedding(backend: Backend, s: dict[str, int], rows: int, dtype: str) -> Checkable:
    table, ids = backend.operand((s["vocab"], s["hidden"]), dtype, 0), backend.ids(rows, s["vocab"])
    positions = backend.to_float64(ids).astype(np.intp)
    return (
        lambda _: backend.embedding(table, ids),
        lambda: backend.embedding(table, ids),
        lambda: np.stack([backend.to_float64(table[int(i)]) for i in positions]),
    )


def _activation(backend: Backend, s: dict[str, int], rows: int, dtype: str) -> Checkable:
    x = backend.operand((rows, 2 * s["width"]), dtype, 0)

    def exact() -> Array:
        gate, up = np.split(backend.to_float64(x), 2, axis=1)
        return np.asarray(gate / (1 + np.exp(-gate)) * up)

    return (lambda _: backend.activation(x), lambda: backend.activation(x), exact)


def _sampling(backend: Backend, s: dict[str, int], rows: int, dtype: str) -> Checkable:
    logits = backend.operand((rows, s["vocab"]), dtype, 0)

    def result() -> Any:
        chosen = backend.to_float64(backend.sampling(logits)).astype(np.intp)
        return backend.to_float64(logits)[np.arange(rows), chosen]

    return (
        lambda _: backend.sampling(logits),
        result,
        lambda: backend.to_float64(logits).max(axis=1),
    )


def _top_k(backend: Backend, s: dict[str, int], rows: int, dtype: str) -> Checkable:
    logits = backend.operand((rows, s["width"]), dtype, 0)

    def result() -> Any:
        chosen = backend.to_float64(backend.top_k(logits, s["top_k"])).astype(np.intp)
        return np.sort(np.take_along_axis(backend.to_float64(logits), chosen, axis=1), axis=1)

    return (
        lambda _: backend.top_k(logits, s["top_k"]),
        result,
        lambda: np.sort(backend.to_float64(logits), axis=1)[:, -s["top_k"] :],
    )


def _experts(case: Case, backend: Backend, s: dict[str, int]) -> Prepared:
    if s["matrices"] != 3:
        raise CaseError(Status.UNSUPPORTED, "experts without a gate")
    tokens, count, hidden, width = s["tokens"], s["experts"], s["hidden"], s["width"]
    x = backend.operand((tokens, hidden), _activation_format(case), 0)
    copies = backend.cold_copies(2 * count * width * hidden, case.dtype)
    weights = [
        (
            backend.operand((count, 2 * width, hidden), case.dtype, 2 * i + 1),
            backend.operand((count, hidden, width), case.dtype, 2 * i + 2),
        )
        for i in range(copies)
    ]
    drawn = [draw_experts(tokens, count, s["top_k"], seed=i) for i in range(DRAWS)]
    choices = [backend.indices(choice) for choice in drawn]

    def call(i: int) -> Any:
        up, down = weights[i % copies]
        return backend.experts(x, choices[i % DRAWS], up, down, kernel=case.kernel)

    def error() -> float:
        stored = _activation_format(case)
        up = backend.operand((count, 2 * width, hidden), stored, 1)
        down = backend.operand((count, hidden, width), stored, 2)
        checked = [0, tokens - 1]
        exact = [
            reference_experts(
                backend.to_float64(x[row]),
                [
                    (backend.to_float64(up[int(e)]), backend.to_float64(down[int(e)]))
                    for e in drawn[0][row]
                ],
            )
            for row in checked
        ]
        return deviation(backend.to_float64(call(0))[checked], np.stack(exact))

    cold = f"{_sets_in_turn(copies)}, {DRAWS} draws of experts in turn"
    return Prepared(call=call, error=error, cold=cold)


def _extra(case: Case, backend: Backend, sizes: dict[str, int]) -> Prepared:
    count = sizes.get("count", sizes.get("payload", 1))
    op = case.kernel if case.kind != "allreduce" else "all_reduce"
    copies = 2 if case.kind == "stream" else 1
    calls = [backend.extra(op, count, i) for i in range(copies)]
    return Prepared(
        call=lambda i: calls[i % copies](), error=lambda: 0.0, cold=_sets_in_turn(copies)
    )


def deviation(result: Array, exact: Array) -> float:
    """Return the largest difference over the largest value.

    >>> deviation(np.array([1.0, 2.1]), np.array([1.0, 2.0])).__round__(3)
    0.05
    """
    scale = max(float(np.abs(exact).max(initial=0.0)), 1e-30)
    return float(np.abs(result - exact).max(initial=0.0)) / scale


def reference_attention(queries: Array, keys: Array, values: Array, q: int) -> Array:
    """Return attention of one KV head in fp64: rows (G q, head), the q rows of a head together.

    >>> row = np.array([[1.0, 0.0]])
    >>> reference_attention(row, np.zeros((2, 2)), np.array([[1.0, 0.0], [3.0, 0.0]]), 1)
    array([[2., 0.]])
    """
    scores = queries @ keys.T / np.sqrt(queries.shape[1])
    length = keys.shape[0]
    position = np.arange(len(queries)) % q + length - q
    scores = np.where(np.arange(length) > position[:, None], -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((weights / weights.sum(axis=1, keepdims=True)) @ values)


def draw_experts(tokens: int, experts: int, top_k: int, *, seed: int) -> NDArray[np.intp]:
    """Return experts drawn for each token: uniform, independent, none of them twice.

    >>> draw_experts(2, 4, 4, seed=0).sum(axis=1).tolist()
    [6, 6]
    """
    keys = np.random.default_rng(seed).random((tokens, experts))
    return np.asarray(np.argsort(keys, axis=1)[:, :top_k])


def reference_experts(row: Array, chosen: Sequence[tuple[Array, Array]]) -> Array:
    """Return the mean of experts (gate and linear matrix, matrix back) for one row, in fp64.

    >>> up, down = np.array([[0.0], [5.0]]), np.array([[1.0]])  # silu(0) = 0
    >>> reference_experts(np.array([2.0]), [(up, down)])
    array([0.])
    """
    total = np.zeros(chosen[0][1].shape[0])
    for up, down in chosen:
        gate, linear = np.split(up @ row, 2)
        total += down @ (gate / (1 + np.exp(-gate)) * linear)
    return np.asarray(total / len(chosen))
