"""Sliding and chunked windows: what a layer reads, and what an engine keeps for it."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.base.resources import bundled_names
from roofline.kernels.footprint import (
    attended_tokens,
    kv_bytes_per_token,
    kv_bytes_read,
    kv_bytes_reserved,
)
from roofline.kernels.formulas import windowed_pairs
from roofline.kernels.forward import prefill
from roofline.kernels.ops import Op
from roofline.specs.engine import load_engine
from roofline.specs.formats import DType
from roofline.specs.network import GroupedQueryAttention, LayerRun, ModelSpec, load_model
from roofline.specs.placement import Placement
from tests.physics import decode_ops, named, precision_of, prefill_ops

GIB = 2.0**30


def windowed(window: int | None, *, chunked: bool = False) -> GroupedQueryAttention:
    kind = "chunked" if chunked else "sliding"
    return GroupedQueryAttention.model_validate(
        {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "window": window, "window_kind": kind}
    )


def seen(position: int, window: int, *, chunked: bool = False) -> set[int]:
    """Return the positions that the row at ``position`` attends to, itself included."""
    first = position // window * window if chunked else max(position - window + 1, 0)
    return set(range(first, position + 1))


@pytest.mark.parametrize("window", [1, 5, 16])
@pytest.mark.parametrize("rows", [1, 2, 4, 9])
@pytest.mark.parametrize("context", [30, 100])
def test_verify_rows_widen_a_sliding_window(window: int, rows: int, context: int) -> None:
    # Brute force: each of q rows sees w tokens; together they see w + q - 1 different ones.
    union = set[int]().union(*(seen(context + row, window) for row in range(rows)))
    assert float(attended_tokens(windowed(window), float(context), float(rows))) == len(union)
    assert len(union) == window + rows - 1


@pytest.mark.parametrize("window", [1, 5, 16, 64])
def test_a_short_context_is_read_whole(window: int) -> None:
    for context in range(1, window + 1):
        tokens = float(attended_tokens(windowed(window), float(context)))
        assert tokens == context == len(seen(context - 1, window))
    assert attended_tokens(windowed(None), 1e6, 9.0) == 1e6


@pytest.mark.parametrize("chunk", [1, 4, 16, 100])
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_chunk_is_charged_whole(chunk: int, chunks: int) -> None:
    # Brute force over every position of whole chunks after the first: the last one sees all of it.
    sizes = [len(seen(p, chunk, chunked=True)) for p in range(chunk, (1 + chunks) * chunk)]
    tokens = attended_tokens(windowed(chunk, chunked=True), float(2 * chunk))
    assert float(tokens) == max(sizes)
    assert float(attended_tokens(windowed(chunk, chunked=True), float(chunk))) == chunk


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("window", [1, 128, 8192])
def test_attention_does_not_fall_where_a_window_or_chunk_ends(
    window: int, *, chunked: bool
) -> None:
    """At 8,193 tokens Llama-4 reads no less than at 8,192; so for every window, far beyond it."""
    contexts = np.arange(1.0, 3 * window + 3)
    tokens = np.asarray(attended_tokens(windowed(window, chunked=chunked), contexts))
    assert np.all(np.diff(tokens) >= 0)
    assert np.all(np.diff(tokens) <= 1)


def test_arrays_of_contexts() -> None:
    contexts = np.array([10.0, 128.0, 129.0, 4096.0])
    assert np.asarray(attended_tokens(windowed(128), contexts)).tolist() == [10, 128, 128, 128]
    chunked = windowed(128, chunked=True)
    assert np.asarray(attended_tokens(chunked, contexts)).tolist() == [10, 128, 128, 128]


def test_windowed_layers_of_gpt_oss_read_128_tokens() -> None:
    # 18 of 36 layers have a window of 128; 2 x 8 x 64 x 2 B = 2,048 B per token and layer.
    model = load_model("gpt-oss-120b")
    read = float(kv_bytes_read(model, DType.BF16, context=4096.0))
    assert read == 18 * 128 * 2048 + 18 * 4096 * 2048
    verify = float(kv_bytes_read(model, DType.BF16, context=4096.0, rows=4.0))
    assert verify - read == 18 * 3 * 2048
    short = float(kv_bytes_read(model, DType.BF16, context=100.0))
    assert short == 36 * 100 * 2048


def test_gpt_oss_bytes_reserved_and_read_are_told_apart() -> None:
    # hf-mem issue 60: vLLM reserves 73,728 B per token of gpt-oss-120b when every layer gets the
    # same blocks (36 x 2,048 B). With windows capped, blocks of 16: 128 + 16 tokens are 9 blocks.
    model = load_model("gpt-oss-120b")
    assert kv_bytes_per_token(model, DType.BF16) == 73_728
    whole = kv_bytes_reserved(model, DType.BF16, tokens=4096, block=16, caps_windows=False)
    capped = kv_bytes_reserved(model, DType.BF16, tokens=4096, block=16, caps_windows=True)
    read = float(kv_bytes_read(model, DType.BF16, context=4096.0))
    assert float(whole) == 73_728 * 4096
    assert float(capped) == 18 * 144 * 2048 + 18 * 4096 * 2048
    assert read < float(capped) < float(whole)


def test_gemma_3_27b_at_131072_tokens() -> None:
    # hf-mem issue 60 and unsloth pull request 4757: 10.4 GiB read, 62.0 with windows ignored,
    # 81.4 when head_dim is taken as hidden / heads (168) as well. 52 layers of 1,024, 10 whole;
    # 2 x 16 x 128 x 2 B = 8,192 B per token and layer.
    model, context = load_model("gemma-3-27b"), 131_072
    read = float(kv_bytes_read(model, DType.BF16, context=float(context)))
    assert read == (52 * 1024 + 10 * context) * 8192
    assert read / GIB == pytest.approx(10.4, abs=0.05)
    ignored = kv_bytes_per_token(model, DType.BF16) * context
    assert ignored / GIB == pytest.approx(62.0, abs=0.05)
    assert ignored / GIB * 168 / 128 == pytest.approx(81.4, abs=0.05)


@pytest.mark.parametrize("rows", [1, 4])
def test_the_kernel_computes_w_tokens_per_row_and_reads_the_union(rows: int) -> None:
    # gpt-oss-120b: 64 heads of 64 over a window of 128. Every row computes 128 tokens; the pass
    # reads 128 + q - 1. Queries in and outputs out are 2 x q x 64 x 64 bf16 values.
    kernels = decode_ops("gpt-oss-120b", rows=float(rows), context=4096.0)
    sliding = named(kernels, "sliding_attention")
    assert float(sliding.flops) == 4 * rows * 64 * 64 * 128
    assert float(sliding.bytes) == (128 + rows - 1) * 2048 + 2 * rows * 64 * 64 * 2
    whole = named(kernels, "attention")
    assert float(whole.flops) == 4 * rows * 64 * 64 * 4096
    assert (sliding.count, whole.count) == (18, 18)


def attention_of_prompt(attention: GroupedQueryAttention, prompt: int) -> Op:
    """Return the attention of one layer over a prompt, in a model made of that layer."""
    small = load_model("llama-3.2-1b")
    run = LayerRun(repeat=1, attention=attention, mlp=small.layers[0].mlp)
    model: ModelSpec = small.model_copy(update={"layers": (run,)})
    kernels = prefill(model, precision_of(model), Placement(), batch=1.0, prompt=np.float64(prompt))
    return next(op for op in kernels if op.name.endswith("attention"))


@pytest.mark.parametrize("prompt", [1, 7, 16, 17, 40, 64])
@pytest.mark.parametrize("window", [1, 8, 16, 100])
def test_pairs_of_a_sliding_prompt(window: int, prompt: int) -> None:
    pairs = sum(len(seen(p, window)) for p in range(prompt))
    assert float(windowed_pairs(tokens=prompt, window=window)) == pairs
    op = attention_of_prompt(windowed(window), prompt)
    assert float(op.flops) == pytest.approx(4 * 8 * 64 * pairs)


@pytest.mark.parametrize("prompt", [7, 16, 17, 40, 64])
@pytest.mark.parametrize("chunk", [8, 16, 100])
def test_pairs_of_a_chunked_prompt(chunk: int, prompt: int) -> None:
    pairs = sum(len(seen(p, chunk, chunked=True)) for p in range(prompt))
    op = attention_of_prompt(windowed(chunk, chunked=True), prompt)
    assert float(op.flops) == pytest.approx(4 * 8 * 64 * pairs)


@pytest.mark.parametrize("prompt", [16, 17, 40])
def test_a_prompt_moves_the_keys_and_values_of_all_its_tokens(prompt: int) -> None:
    # Sliding over a prompt touches every token's keys and values at least once.
    op = attention_of_prompt(windowed(16), prompt)
    queries_and_outputs = 2 * prompt * 8 * 64 * 2
    assert float(op.bytes) >= 2 * prompt * 2 * 64 * 2 + queries_and_outputs


def test_a_causal_prompt_without_a_window() -> None:
    # Llama-3.1-8B: 32 heads of 128 over 1,000 x 1,001 / 2 pairs.
    op = named(prefill_ops("llama-3.1-8b", prompt=1000.0), "attention")
    assert float(op.flops) == pytest.approx(4 * 32 * 128 * 500_500)


@pytest.mark.parametrize("engine", bundled_names("engines"))
@pytest.mark.parametrize("draft_length", [0, 1, 3, 8])
def test_no_engine_reserves_less_than_a_pass_reads(engine: str, draft_length: int) -> None:
    rules = load_engine(engine).memory
    for name in ("gpt-oss-120b", "gemma-3-27b"):
        model = load_model(name)
        for context in (64, 1024, 16_384):
            reserved = kv_bytes_reserved(
                model,
                DType.BF16,
                tokens=context + draft_length + 1,
                block=rules.kv_block,
                caps_windows=rules.caps_windows,
                rows=1.0 + draft_length,
            )
            read = kv_bytes_read(model, DType.BF16, context=float(context), rows=1.0 + draft_length)
            assert float(reserved) >= float(read)
