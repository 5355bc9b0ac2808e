"""Verify attention and routed experts as PyTorch, flash-attn and FlashInfer offer them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from roofline.calibrate.measure.backend import CaseError, Status

__all__ = ["attention_kernels", "expert_kernels", "run_attention", "run_experts"]

PAGE = 16  # tokens of a page of FlashInfer's cache
WORKSPACE = 2**27  # bytes
LARGEST = 448.0  # of fp8 e4m3


def attention_kernels(torch: Any) -> tuple[str, ...]:
    """Return the attention kernels whose library is importable, the likeliest to serve first."""
    kernels = [name for name in ("flash_attn", "flashinfer") if find_spec(name) is not None]
    kernels += ["packed", "gqa", "per_query"]
    backends = getattr(torch.nn.attention, "SDPBackend", None)
    for name in ("CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        if hasattr(backends, name):
            kernels.append(name.removesuffix("_ATTENTION").lower())
    return tuple(kernels)


def run_attention(
    torch: Any, state: dict[Any, Any], queries: Any, keys: Any, values: Any, *, q: int, kernel: str
) -> Any:
    """Return attention rows (batch q, query heads x head); see ``Backend``.

    ``packed`` gives SDPA all G q rows of a KV head at once; ``gqa`` gives it q rows of each query
    head; ``per_query`` calls it once for each of the q rows; ``cudnn``, ``efficient`` and ``math``
    are ``gqa`` on one SDPA backend. ``state`` keeps masks and plans between calls.
    """
    batch, kv_heads, rows, head = queries.shape
    heads = (batch, kv_heads, rows // q, q, head)
    match kernel:
        case "packed":
            mask = _mask(torch, state, keys, q, rows // q)
            out = _sdpa(torch, queries, keys, values, mask).view(heads)
        case "per_query":
            out = _per_query(torch, queries.view(heads), keys, values)
        case "flash_attn":
            return _flash(state, queries.view(heads), keys, values)
        case "flashinfer":
            return _flashinfer(torch, state, queries.view(heads), keys, values)
        case "gqa" | "cudnn" | "efficient" | "math":
            out = _grouped(torch, state, queries.view(heads), keys, values, kernel)
        case _:
            raise CaseError(Status.UNSUPPORTED, f"no attention kernel called {kernel}")
    return out.permute(0, 3, 1, 2, 4).reshape(batch * q, -1)


def _sdpa(torch: Any, queries: Any, keys: Any, values: Any, mask: Any, **options: Any) -> Any:
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(queries, keys, values, attn_mask=mask, **options)


def _mask(torch: Any, state: dict[Any, Any], keys: Any, q: int, group: int) -> Any:
    """Return which tokens each row sees, None where each sees all."""
    if q == 1:
        return None
    length = keys.shape[2]
    name = ("mask", q, group, length)
    if name not in state:
        state.clear()
        seen = torch.ones(q, length, dtype=torch.bool, device=keys.device).tril(length - q)
        state[name] = seen.repeat(group, 1)
    return state[name]


def _per_query(torch: Any, queries: Any, keys: Any, values: Any) -> Any:
    length, q = keys.shape[2], queries.shape[3]
    parts = [
        _sdpa(
            torch,
            queries[:, :, :, i],
            keys[:, :, : length - q + i + 1],
            values[:, :, : length - q + i + 1],
            None,
        )
        for i in range(q)
    ]
    return torch.stack(parts, dim=3)


def _grouped(  # noqa: PLR0917
    torch: Any, state: dict[Any, Any], queries: Any, keys: Any, values: Any, kernel: str
) -> Any:
    batch, kv_heads, group, q, head = queries.shape
    flat = queries.reshape(batch, kv_heads * group, q, head)
    mask = _mask(torch, state, keys, q, 1)
    if kernel == "gqa":
        out = _sdpa(torch, flat, keys, values, mask, enable_gqa=True)
    else:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        names = {"cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
        with sdpa_kernel(getattr(SDPBackend, names[kernel])):
            out = _sdpa(torch, flat, keys, values, mask, enable_gqa=True)
    return out.view(queries.shape)


def _flash(state: dict[Any, Any], queries: Any, keys: Any, values: Any) -> Any:
    """Run flash-attn on a cache laid out as it wants it: (batch, tokens, KV heads, head)."""
    from flash_attn import flash_attn_with_kvcache

    batch, kv_heads, group, q, head = queries.shape
    rows = queries.permute(0, 3, 1, 2, 4).reshape(batch, q, kv_heads * group, head)
    cache = _laid_out(state, keys, values)
    out = flash_attn_with_kvcache(rows, *cache, cache_seqlens=keys.shape[2], causal=True)
    return out.reshape(batch * q, -1)


def _laid_out(state: dict[Any, Any], keys: Any, values: Any) -> tuple[Any, Any]:
    """Return keys and values with tokens before heads; converted once for each cache."""
    name = ("laid out", keys.data_ptr(), tuple(keys.shape))
    if name not in state:
        if any(known[-1] != name[-1] for known in state):
            state.clear()  # another shape: what was kept is not needed again
        state[name] = (keys.transpose(1, 2).contiguous(), values.transpose(1, 2).contiguous())
    cache: tuple[Any, Any] = state[name]
    return cache


def _flashinfer(torch: Any, state: dict[Any, Any], queries: Any, keys: Any, values: Any) -> Any:
    """Run FlashInfer's paged kernel for several rows per sequence; the plan is made once."""
    import flashinfer

    batch, kv_heads, group, q, head = queries.shape
    length = keys.shape[2]
    if length % PAGE:
        reason = f"a context of {length} is no whole number of pages"
        raise CaseError(Status.UNSUPPORTED, reason)
    pages, name = length // PAGE, ("plan", q, group, tuple(keys.shape))
    cache = _laid_out(state, keys, values)
    if name not in state:
        whole = {"dtype": torch.int32, "device": keys.device}
        count = torch.arange(batch + 1, **whole)
        space = torch.empty(WORKSPACE, dtype=torch.uint8, device=keys.device)
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(space, "NHD")
        wrapper.plan(
            count * q,
            count * pages,
            torch.arange(batch * pages, **whole),
            torch.full((batch,), PAGE, **whole),
            kv_heads * group,
            kv_heads,
            head,
            PAGE,
            causal=True,
            q_data_type=queries.dtype,
            kv_data_type=keys.dtype,
        )
        state[name] = wrapper
    rows = queries.permute(0, 3, 1, 2, 4).reshape(batch * q, kv_heads * group, head)
    paged = tuple(x.view(batch * pages, PAGE, kv_heads, head) for x in cache)
    return state[name].run(rows, paged).reshape(batch * q, -1)


def grouped_product(torch: Any) -> Any:
    """Return PyTorch's product of row groups with one matrix each, None where it has none."""
    public = getattr(torch.nn.functional, "grouped_mm", None)
    return public or getattr(torch, "_grouped_mm", None)


def expert_kernels(torch: Any, *, base: str, fp8: bool) -> tuple[tuple[str, str], ...]:
    """Return (format, kernel) of what PyTorch offers, the likeliest to serve first.

    ``fp8``: whether the device is one whose grouped fp8 product the library has (sm_90).
    """
    kernels = [(base, "padded")] if base != "fp32" else [(base, "sorted"), (base, "padded")]
    if grouped_product(torch) is not None:
        kernels.insert(0, (base, "grouped"))
    if fp8 and hasattr(torch, "_scaled_grouped_mm"):
        kernels.append(("fp8", "grouped"))
    return tuple(kernels)


def run_experts(  # noqa: PLR0917
    torch: Any,
    x: Any,
    choice: Any,
    up: Any,
    down: Any,
    activation: Callable[[Any], Any],
    kernel: str,
) -> Any:
    """Return the mean of each row's chosen experts, routing and permutation included.

    ``grouped``: two grouped products on sorted rows; how many each expert has stays on the device,
    so a graph can capture it. ``sorted``: one product for each awake expert. ``padded``: a batched
    product over the awake experts, padded to the busiest. The last two read the counts back.
    Shapes as in ``Backend.experts``; fp8 weights get rows quantised to fp8 one by one.
    """
    tokens, top_k = choice.shape
    flat = choice.flatten()
    order = flat.argsort()
    count = torch.zeros(up.shape[0], dtype=torch.int32, device=x.device)
    count.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    rows = x[order // top_k]
    match kernel:
        case "grouped":
            ends = count.cumsum(0).to(torch.int32)
            inner = activation(_grouped_product(torch, rows, up, ends))
            by_expert = _grouped_product(torch, inner, down, ends)
        case "sorted":
            by_expert = _sorted(torch, rows, count.tolist(), up, down, activation)
        case "padded":
            by_expert = _padded(torch, rows, count.long(), up, down, activation)
        case _:
            raise CaseError(Status.UNSUPPORTED, f"no expert kernel called {kernel}")
    out = torch.empty_like(by_expert)
    out[order] = by_expert
    return out.view(tokens, top_k, -1).mean(dim=1)


def _grouped_product(torch: Any, rows: Any, weights: Any, ends: Any) -> Any:
    if weights.dtype == rows.dtype:
        return grouped_product(torch)(rows, weights.transpose(1, 2), offs=ends)
    scale = rows.abs().amax(dim=-1).float().clamp(min=1e-6) / LARGEST
    narrow = (rows.float() / scale[:, None]).clamp(-LARGEST, LARGEST).to(weights.dtype)
    ones = torch.ones(weights.shape[:2], dtype=torch.float32, device=rows.device)
    return torch._scaled_grouped_mm(
        narrow, weights.transpose(1, 2), scale, ones, offs=ends, out_dtype=rows.dtype
    )


def _sorted(  # noqa: PLR0917
    torch: Any, rows: Any, count: list[int], up: Any, down: Any, activation: Callable[[Any], Any]
) -> Any:
    product, end, parts = torch.nn.functional.linear, 0, []
    for expert, size in enumerate(count):
        if size:
            start, end = end, end + size
            inner = activation(product(rows[start:end], up[expert]))
            parts.append(product(inner, down[expert]))
    return torch.cat(parts)


def _padded(  # noqa: PLR0917
    torch: Any, rows: Any, count: Any, up: Any, down: Any, activation: Callable[[Any], Any]
) -> Any:
    awake = count.nonzero().flatten()
    busy = count[awake]
    place = torch.repeat_interleave(torch.arange(len(awake), device=rows.device), busy)
    start = torch.repeat_interleave(busy.cumsum(0) - busy, busy)
    slot = torch.arange(len(rows), device=rows.device) - start
    boxes = rows.new_zeros(len(awake), int(busy.max()), rows.shape[1])
    boxes[place, slot] = rows
    if len(awake) < up.shape[0]:
        up, down = up[awake], down[awake]
    inner = activation(torch.bmm(boxes, up.transpose(1, 2)))
    return torch.bmm(inner, down.transpose(1, 2))[place, slot]
