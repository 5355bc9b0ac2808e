"""Verify attention as PyTorch, flash-attn and FlashInfer offer it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from roofline.calibrate.measure.device import CaseError

__all__ = ["available", "run_attention"]

PAGE = 16  # tokens of a page of FlashInfer's cache
WORKSPACE = 2**27  # bytes


def available(torch: Any) -> tuple[str, ...]:
    """Return the kernels whose library is importable, the likeliest to serve first."""
    found = []
    if find_spec("flash_attn") is not None:
        found.append("flash_attn")
    if find_spec("flashinfer") is not None:
        found.append("flashinfer")
    found += ["packed", "gqa", "per_query"]
    backends = getattr(torch.nn.attention, "SDPBackend", None)
    for name in ("CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        if hasattr(backends, name):
            found.append(name.removesuffix("_ATTENTION").lower())
    return tuple(found)


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
            raise CaseError("unsupported", f"no attention kernel called {kernel}")
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
    each = [
        _sdpa(torch, queries[:, :, :, i], keys[:, :, : length - q + i + 1],
              values[:, :, : length - q + i + 1], None)
        for i in range(q)
    ]  # fmt: skip
    return torch.stack(each, dim=3)


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
    kept: tuple[Any, Any] = state[name]
    return kept


def _flashinfer(torch: Any, state: dict[Any, Any], queries: Any, keys: Any, values: Any) -> Any:
    """Run FlashInfer's paged kernel for several rows per sequence; the plan is made once."""
    import flashinfer

    batch, kv_heads, group, q, head = queries.shape
    length = keys.shape[2]
    if length % PAGE:
        raise CaseError("unsupported", f"a context of {length} is no whole number of pages")
    pages, name = length // PAGE, ("plan", q, group, tuple(keys.shape))
    cache = _laid_out(state, keys, values)
    if name not in state:
        where = {"dtype": torch.int32, "device": keys.device}
        count = torch.arange(batch + 1, **where)
        space = torch.empty(WORKSPACE, dtype=torch.uint8, device=keys.device)
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(space, "NHD")
        wrapper.plan(
            count * q, count * pages, torch.arange(batch * pages, **where),
            torch.full((batch,), PAGE, **where), kv_heads * group, kv_heads, head, PAGE,
            causal=True, q_data_type=queries.dtype, kv_data_type=keys.dtype,
        )  # fmt: skip
        state[name] = wrapper
    rows = queries.permute(0, 3, 1, 2, 4).reshape(batch * q, kv_heads * group, head)
    paged = tuple(x.view(batch * pages, PAGE, kv_heads, head) for x in cache)
    return state[name].run(rows, paged).reshape(batch * q, -1)
