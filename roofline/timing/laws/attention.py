"""The decode-attention law: what one SM does in turn, beside the cache streaming from memory."""

from __future__ import annotations

import numpy as np

from roofline.base.numbers import Array
from roofline.kernels.ops import AttentionShape
from roofline.specs.laws import AttentionLaw
from roofline.timing.laws.simple import Device, KernelTime, combine

__all__ = ["ROW_BANDS", "WARPS", "WARP_ROWS", "attention_time", "converted_bytes"]

MIN_SPAN = 128.0  # tokens: a split never takes fewer than one tile of keys
L2_SHARE = 0.6  # of the datasheet L2 that a cache can occupy (seen on H100, H200, B200)
SHARP = 8.0  # sharpness of the L2 edge and of the change from memory- to compute-bound
#: Upper ends of the bands of query rows that have a cost factor; the last known one stays.
ROW_BANDS = (8, 16, 32, 64, 128)


def attention_time(
    shape: AttentionShape, device: Device, law: AttentionLaw, *, warm: bool = False
) -> KernelTime:
    """Return the time of one attention kernel (GQA, MHA, absorbed MLA).

    t = floor + split_s (1 - 1 / S) + window_s [windowed] + P (row_s rows + convert_s L)
        + (body^8 + t_comp^8)^(1/8),   body = c(rows) (t_serial^p + t_mem^p)^(1/p)
    t_serial = ceil(P n s / SMs) (cta_s + token_s L / s), n = ceil(rows / row_tile) blocks for each
    of P pairs, cut into s = clip(SMs / (P n), 1, S) splits; t_mem = bytes / (BW mem_eff);
    t_comp = FLOP / (peak compute_eff), those of empty rows of a tile included. The cache is read
    once for all rows. Where the shape says n itself, the kernel cuts no cache: S = 1, and a block
    takes whole tiles of 128 keys, the first of them in cta_s; its SM alone does its arithmetic,
        t_serial = ceil(P n / SMs) (cta_s + token_s 128 (ceil(L / 128) - 1))
        t_comp = FLOP / (peak compute_eff) x ceil(P n / SMs) SMs / (P n)
    and several rows of a model take no less than one, although a cut cache has a tail of its own.
    ``warm`` says that a small cache is found in L2, as in a benchmark that repeats one call. No
    term falls when pairs, the queries of a cache or L grow.

    >>> device = Device(bandwidth=3.35e12, peak=989.4e12, units=132, l2=50e6, link=450e9)
    >>> shape = AttentionShape(pairs=256.0, rows=4.0, length=8192.0, context=8192.0, kv_width=256,
    ...                        mac_width=256, kv=2.0)
    >>> time = attention_time(shape, device, AttentionLaw(floor=5e-6, mem_eff=0.9))
    >>> round(1e6 * float(time.memory), 0)  # 1.07 GB at 90 % of 3.35 TB/s
    356.0
    """
    time = _one_call(shape, device, law, warm=warm)
    if shape.group == 0 or not np.any(np.asarray(shape.blocks) > 0):
        return time
    plain = shape._replace(rows=shape.group, work=0, blocks=0)
    several = np.asarray(shape.rows) > shape.group
    least = np.where(several, _one_call(plain, device, law, warm=warm).total, 0.0)
    return time._replace(total=np.maximum(time.total, least))


def _one_call(
    shape: AttentionShape, device: Device, law: AttentionLaw, *, warm: bool
) -> KernelTime:
    length = np.asarray(shape.length, dtype=np.float64)
    windowed = np.asarray(shape.context) > length
    visited = np.minimum(length + law.window_pad * windowed, shape.context)
    work, uncut = np.maximum(shape.rows, shape.work), np.asarray(shape.blocks) > 0
    most = np.where(uncut, 1.0, law.max_splits)
    splittable = np.minimum(most, np.maximum(visited / MIN_SPAN, 1.0))
    blocks = shape.pairs * np.where(uncut, shape.blocks, np.ceil(work / law.row_tile))
    splits = np.clip(device.units / blocks, 1.0, splittable)
    waves = np.maximum(np.ceil(blocks * splits / device.units - 1e-9), 1.0)
    beyond_first = MIN_SPAN * (np.ceil(visited / MIN_SPAN) - 1)
    tokens = np.where(uncut, beyond_first, visited / splits)
    serial = waves * (law.cta_s + law.token_s * tokens)
    memory = _stream_seconds(shape, visited, device, law, warm=warm)
    body = _row_cost(shape, law) * combine(serial, memory, law.p)
    flops = 2 * shape.pairs * work * length * shape.mac_width
    even = np.where(uncut, blocks / (waves * device.units), 1.0)  # share of the SMs at work
    compute = np.asarray(flops / (device.peak * law.compute_eff * even))
    extra = law.split_s * (1 - 1 / splittable) + law.window_s * windowed
    per_pair = law.row_s * np.asarray(shape.rows) + law.convert_s * visited
    return KernelTime(
        floor=law.floor,
        memory=memory,
        compute=compute,
        total=law.floor + extra + shape.pairs * per_pair + combine(body, compute, SHARP),
    )


#: Rows of a matrix instruction; a block of more rows has four warps, and 128 rows at the most.
WARP_ROWS, WARPS, BLOCK_ROWS = 16, 4, 128


def converted_bytes(rows: Array) -> Array:
    """Return the bytes that an FP8 value of the cache costs where nothing multiplies FP8 [B].

    2 n: ordinary instructions turn it into 16 bits, which takes what reading 16 bits would, and in
    FlashInfer's prefill kernel each of n warps does so for its own rows of the queries: n = 1 to 16
    ``rows`` of a KV head, four in each block of 128 beyond (include/flashinfer/attention/
    prefill.cuh, get_num_warps_q, and FA2DetermineCtaTileQ: 64 rows to 64, then 128).
    A100, vLLM 0.24, Llama-3.1-8B (G = 4), 32 and 64 sequences: a plain step took 14.8 and 16.6 ms
    with an fp8 cache, 14.5 and 16.9 with 16 bits, and with 24 rows 38.4 and 57.0 against 29.6 and
    50.4 (SpecDecoding-Study-vLLM-SGLang). Kernels of others are assumed to convert it once.

    >>> converted_bytes(np.array([4.0, 16.0, 24.0, 160.0]))
    array([ 2.,  2.,  8., 16.])
    """
    several = WARPS * np.ceil(np.asarray(rows) / BLOCK_ROWS)
    return 2.0 * np.where(np.asarray(rows) > WARP_ROWS, several, 1.0)


def _row_cost(shape: AttentionShape, law: AttentionLaw) -> Array:
    """Return the factor of the band that the rows fall in, the last known one beyond.

    The factors are known from models with more or fewer heads. More queries over one cache are not
    cheaper than one: from a model's own band on, the factor never falls.
    """
    costs = law.row_costs
    count = len(costs)
    most = np.array([[max(costs[min(i, j) : j + 1]) for j in range(count)] for i in range(count)])
    plain_rows = shape.rows if shape.group == 0 else shape.group
    first, last = (
        np.minimum(np.searchsorted(ROW_BANDS, rows, side="left"), count - 1)
        for rows in (plain_rows, shape.rows)
    )
    return np.asarray(most[first, last])


def _stream_seconds(
    shape: AttentionShape, visited: Array, device: Device, law: AttentionLaw, *, warm: bool
) -> Array:
    """Return the time to read the cache once, and Q and O in two bytes [s]."""
    moved = shape.pairs * (
        visited * shape.kv_width * shape.kv + 2.0 * np.asarray(shape.rows) * shape.mac_width
    )
    cold = np.asarray(moved / (device.bandwidth * law.mem_eff))
    if not warm:
        return cold
    hit = 1 / (1 + (moved / (L2_SHARE * device.l2)) ** SHARP)
    return np.asarray(cold * (1 - hit * (1 - 1 / law.l2_gain)))
