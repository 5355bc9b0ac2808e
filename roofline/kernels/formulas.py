"""The arithmetic and the traffic of single kernels, as small pure functions.

Every function takes keyword-only arguments, broadcasts like NumPy, and returns floats: FLOP (one
multiply-add is 2) or bytes of main-memory traffic of one launch on one accelerator. Counts are
exact for the shapes given; what a kernel really moves is the laws' business. docs/explain/model.md
derives each equation and names its sources.

Symbols: M rows, N outputs, K reduction; B batch; q = 1 + D rows per sequence; A query heads,
H_kv KV heads, G = A / H_kv; d head size; L tokens attended to; b bytes per element.
"""

from __future__ import annotations

import numpy as np

from roofline.base.numbers import Array
from roofline.specs.placement import StateHandling

__all__ = [
    "all_gather_bytes",
    "all_reduce_bytes",
    "all_to_all_bytes",
    "attention_bytes",
    "attention_flops",
    "attention_intensity",
    "causal_pairs",
    "chunked_pairs",
    "gemm_bytes",
    "gemm_flops",
    "gemm_knee_rows",
    "latent_attention_bytes",
    "latent_attention_flops",
    "padded_rows",
    "state_traffic",
    "windowed_pairs",
]


def state_traffic(*, state: Array, rows: Array, handling: StateHandling) -> Array:
    """Return the bytes of recurrent state that a pass moves for one sequence [B].

    ``state`` S is its size. Snapshots: S (1 + q); replay: 2 S whatever the rows.

    >>> state_traffic(state=4.0, rows=4, handling=StateHandling.SNAPSHOTS)
    20.0
    """
    return state * (1 + rows) if handling == StateHandling.SNAPSHOTS else 2 * state + 0 * rows


def gemm_flops(*, m: Array, n: Array, k: Array) -> Array:
    """Return the FLOPs of an M x K by K x N product: 2 M N K [FLOP].

    >>> gemm_flops(m=1, n=4096, k=4096)
    33554432
    """
    return 2 * m * n * k


def gemm_bytes(
    *, m: Array, n: Array, k: Array, weight: float, activation: float, output: float
) -> Array:
    """Return the traffic of a GEMM: weights once, inputs once, outputs once [B].

    N K b_w + M K b_a + M N b_o, with ``weight``, ``activation`` and ``output`` in bytes per
    element [B].

    >>> gemm_bytes(m=1, n=4096, k=4096, weight=2, activation=2, output=2)
    33570816
    """
    return n * k * weight + m * k * activation + m * n * output


def gemm_knee_rows(*, peak: float, bandwidth: float, weight: float) -> float:
    """Return the rows at which an ideal large GEMM turns compute-bound: P b_w / (2 BW).

    ``peak`` [FLOP/s], ``bandwidth`` [B/s], ``weight`` bytes per element [B]. From
    2 M N K / P = N K b_w / BW.

    >>> round(gemm_knee_rows(peak=989.4e12, bandwidth=3.35e12, weight=2))  # H100, bf16
    295
    """
    return peak * weight / (2 * bandwidth)


def attention_flops(
    *,
    batch: Array,
    rows: Array,
    heads: int,
    head_dim: int,
    length: Array,
    v_head_dim: int | None = None,
) -> Array:
    """Return the FLOPs of decode or verify attention: 2 B q A (d + d_v) L, 4 B q A d L [FLOP].

    Scores and values are a multiply-add each per head, element and token. Every row is charged the
    same L; the few draft tokens that see each other are not.

    >>> attention_flops(batch=1, rows=1, heads=64, head_dim=128, length=1)  # 32,768 L
    32768
    """
    return 2 * batch * rows * heads * (head_dim + (v_head_dim or head_dim)) * length


def attention_bytes(
    *,
    batch: Array,
    rows: Array,
    heads: int,
    kv_heads: int,
    head_dim: int,
    length: Array,
    kv: float,
    activation: float,
    kv_reads: Array = 1,
    v_head_dim: int | None = None,
) -> Array:
    """Return the traffic of decode or verify attention [B].

    KV read ``kv_reads`` times, B H_kv (d + d_v) L b_kv each, plus the queries in and the outputs
    out, B q A (d + d_v) b_a; d_v is d unless given. ``kv`` and ``activation`` in bytes per
    element [B].

    >>> attention_bytes(batch=1, rows=1, heads=32, kv_heads=8, head_dim=128, length=8192,
    ...                 kv=2, activation=2) / 32  # Llama-3.1-8B at 8k: bytes per query head
    1049088.0
    """
    width = head_dim + (v_head_dim or head_dim)
    cache = batch * kv_heads * width * length * kv * kv_reads
    return cache + batch * rows * heads * width * activation


def attention_intensity(*, group_size: Array, draft_length: Array, kv: Array) -> Array:
    """Return the FLOPs per KV byte of verify attention read once: 2 G (1 + D) / b_kv [FLOP/B].

    ``kv`` in bytes per element [B]. With D' = 1 + D rows and G' = 1 / G KV heads per query head
    this is 2 D' / G' at one byte per element: `docs/explain/five-rules.md` shows the identity.

    >>> attention_intensity(group_size=8, draft_length=3, kv=1)
    64.0
    """
    return 2 * group_size * (1 + draft_length) / kv


def latent_attention_flops(
    *, batch: Array, rows: Array, heads: int, key_width: int, value_width: int, length: Array
) -> Array:
    """Return the FLOPs of absorbed MLA: 2 B q h L (d_k + d_v) [FLOP].

    Each head compares with the whole cached vector (d_k = 576 in DeepSeek) and sums its latent
    part (d_v = 512). Source: FlashMLA, docs/20250422-new-kernel-deep-dive.md.

    >>> latent_attention_flops(batch=1, rows=1, heads=1, key_width=576, value_width=512, length=1)
    2176
    """
    return 2 * batch * rows * heads * length * (key_width + value_width)


def latent_attention_bytes(
    *,
    batch: Array,
    rows: Array,
    heads: int,
    key_width: int,
    value_width: int,
    length: Array,
    kv: float,
    activation: float,
    kv_reads: Array = 1,
) -> Array:
    """Return the traffic of absorbed MLA: one latent vector per token, queries in, sums out [B].

    B L d_k b_kv ``kv_reads`` times, plus B q h (d_k + d_v) b_a. Per row and head at bf16 that is
    2 (576 + 512) / (576 x 2) = 1.889 FLOP per cached byte.

    >>> latent_attention_bytes(batch=1, rows=1, heads=0, key_width=576, value_width=512, length=1,
    ...                        kv=2, activation=2)
    1152
    """
    cache = batch * length * key_width * kv * kv_reads
    return cache + batch * rows * heads * (key_width + value_width) * activation


def padded_rows(*, rows: Array, tile: int) -> Array:
    """Return ``rows`` rounded up to whole tiles.

    >>> float(padded_rows(rows=129, tile=128))
    256.0
    """
    return np.ceil(np.asarray(rows) / tile) * tile


def causal_pairs(*, tokens: Array) -> Array:
    """Return the query-key pairs of causal attention over a prompt: n (n + 1) / 2.

    >>> causal_pairs(tokens=3)
    6.0
    """
    return tokens * (tokens + 1) / 2


def chunked_pairs(*, tokens: Array, chunk: int) -> Array:
    """Return the query-key pairs of causal attention that starts over every ``chunk`` tokens.

    floor(n / c) whole chunks of c (c + 1) / 2, and r (r + 1) / 2 for the r tokens of the last.

    >>> float(chunked_pairs(tokens=5, chunk=2))
    7.0
    """
    whole = np.floor(np.asarray(tokens) / chunk)
    rest = np.asarray(tokens) - whole * chunk
    return whole * causal_pairs(tokens=chunk) + causal_pairs(tokens=rest)


def windowed_pairs(*, tokens: Array, window: Array) -> Array:
    """Return the query-key pairs of a causal sliding window over a prompt.

    The first w rows see 1 ... w tokens, every later one w: w (w + 1) / 2 + (n - w) w.

    >>> float(windowed_pairs(tokens=5, window=2)), float(windowed_pairs(tokens=3, window=8))
    (9.0, 6.0)
    """
    seen = np.minimum(tokens, window)
    return causal_pairs(tokens=seen) + (np.asarray(tokens) - seen) * seen


def all_reduce_bytes(*, payload: Array, ranks: int) -> Array:
    """Return the bytes each rank sends in a bandwidth-optimal all-reduce: 2 (n - 1) / n S [B].

    ``payload`` S is the tensor's size [B]. Source: Patarasu and Yuan 2009 (the ring bound).

    >>> all_reduce_bytes(payload=1e6, ranks=4)
    1500000.0
    """
    return 2 * (ranks - 1) / ranks * payload


def all_to_all_bytes(*, payload: Array, groups: int) -> Array:
    """Return the bytes a rank sends when its S is spread evenly: (n - 1) / n S leave it [B].

    >>> all_to_all_bytes(payload=1e6, groups=8)
    875000.0
    """
    return (groups - 1) / groups * payload


def all_gather_bytes(*, payload: Array, ranks: int) -> Array:
    """Return the bytes each rank receives when everyone ends up with all of S: (n - 1) / n S [B].

    >>> all_gather_bytes(payload=1e6, ranks=4)
    750000.0
    """
    return (ranks - 1) / ranks * payload
