"""Multi-head latent attention: absorbed in decode and verify, expanded in prefill."""

from __future__ import annotations

import pytest

from roofline.advice.why import bound
from roofline.kernels.footprint import kv_bytes_per_token, kv_bytes_read
from roofline.kernels.formulas import latent_attention_bytes, latent_attention_flops
from roofline.kernels.ops import Kind
from roofline.specs.engine import load_engine
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware
from roofline.specs.network import LatentAttention, load_model
from roofline.specs.placement import Grid, Placement, VerifyAttention
from roofline.timing.drafters import Drafter
from roofline.timing.machine import Machine
from roofline.timing.step import Target, step_times
from tests.physics import decode_ops, named, precision_of, prefill_ops

# Datasheet of the H200 SXM: dense bf16 peak [FLOP/s] and memory bandwidth [B/s].
H200_PEAK, H200_BANDWIDTH = 989.4e12, 4.8e12


def test_intensity_of_one_row_and_head() -> None:
    # FlashMLA, docs/20250422-new-kernel-deep-dive.md: scores over 576, values over 512, and one
    # latent of 576 bf16 values read: 2 (576 + 512) / (2 x 576) = 1.889 FLOP per byte.
    flops = latent_attention_flops(
        batch=1, rows=1, heads=1, key_width=576, value_width=512, length=1
    )
    read = latent_attention_bytes(
        batch=1, rows=1, heads=0, key_width=576, value_width=512, length=1, kv=2, activation=2
    )
    assert flops / read == pytest.approx(1.889, abs=5e-4)


@pytest.mark.parametrize(("heads", "draft_length"), [(128, 0), (128, 3), (16, 0), (16, 7)])
def test_intensity_grows_with_heads_and_rows(heads: int, draft_length: int) -> None:
    # All heads and rows share the one latent vector, so each adds another 1.889 FLOP per byte.
    rows = 1 + draft_length
    flops = latent_attention_flops(
        batch=3, rows=rows, heads=heads, key_width=576, value_width=512, length=1000
    )
    cache = latent_attention_bytes(
        batch=3, rows=rows, heads=heads, key_width=576, value_width=512, length=1000,
        kv=2, activation=0,
    )  # fmt: skip
    assert flops / cache == pytest.approx(heads * rows * 2 * 1088 / 1152)


def test_cache_of_deepseek_v3() -> None:
    # 61 layers x (512 + 64) x 2 B = 70,272 B per token, on each rank of any TP.
    model = load_model("deepseek-v3")
    for tp in (1, 2, 8, 128):
        assert kv_bytes_per_token(model, DType.BF16, tp=tp) == 70_272
    assert kv_bytes_per_token(model, DType.FP8) == 35_136
    assert kv_bytes_read(model, DType.BF16, context=1000.0, rows=4.0) == 70_272_000


def test_absorbed_flops_and_bytes_by_hand() -> None:
    # One row, 128 heads, 4,096 tokens: 2 x 128 x 4,096 x (576 + 512) FLOP; 4,096 latents of
    # 1,152 B, and 128 queries of 576 and sums of 512 bf16 values.
    kernels = [op for op in decode_ops("deepseek-v3", context=4096.0) if op.kind is Kind.MLA]
    assert sum(op.count for op in kernels) == 61
    for op in kernels:
        assert float(op.flops) == 1_140_850_688
        assert float(op.bytes) == 4096 * 1152 + 128 * (576 + 512) * 2
        assert float(op.rows) == 128


@pytest.mark.parametrize("rows", [2, 4, 8])
def test_verify_reads_the_latents_once(rows: int) -> None:
    plain = named(decode_ops("deepseek-v3"), "latent_attention")
    verify = named(decode_ops("deepseek-v3", rows=rows), "latent_attention")
    assert float(verify.flops) == rows * float(plain.flops)
    queries = 128 * (576 + 512) * 2
    assert float(verify.bytes) - float(plain.bytes) == (rows - 1) * queries
    assert float(verify.rows) == 128 * rows


def test_verify_modes() -> None:
    each = Placement(verify_attention=VerifyAttention.KV_PER_QUERY)
    op = named(decode_ops("deepseek-v3", rows=4, placement=each), "latent_attention")
    assert float(op.bytes) == 4 * (4096 * 1152 + 128 * 1088 * 2)
    # 16 heads x 3 rows fill 48 of a tile of 64 query rows: the arithmetic of 64 is done.
    tiles = Placement(tp=8, verify_attention=VerifyAttention.TILE, tile_rows=64)
    op = named(decode_ops("deepseek-v3", rows=3, placement=tiles), "latent_attention")
    assert float(op.computed_flops) == 2 * 64 * 4096 * 1088
    assert float(op.flops) == 2 * 48 * 4096 * 1088


def test_decode_folds_the_up_projection_into_query_and_output() -> None:
    # kv_b_proj never runs in decode. Its two halves run as one small product per head each:
    # 128 x (1 x 128 -> 512) for the keys, 128 x (512 -> 128) for the values, in bf16.
    kernels = decode_ops("deepseek-v3")
    assert "kv_b_proj" not in {op.name for op in kernels}
    for name in ("absorb_k", "absorb_v"):
        op = named(kernels, name)
        assert float(op.flops) == 2 * 128 * 128 * 512
        assert float(op.bytes) == 128 * 2 * (128 * 512 + 128 + 512)
    assert float(named(kernels, "kv_a_proj").flops) == 2 * 7168 * (1536 + 576)
    assert float(named(kernels, "q_b_proj").flops) == 2 * 1536 * 128 * 192
    assert float(named(kernels, "o_proj").flops) == 2 * 128 * 128 * 7168


def test_prefill_is_expanded_by_hand() -> None:
    # Keys and values are made for every head (kv_b_proj), then causal attention over
    # 4,096 x 4,097 / 2 pairs: 2 x pairs x 128 heads x (192 for scores + 128 for values).
    kernels = prefill_ops("deepseek-v3", prompt=4096.0)
    assert float(named(kernels, "kv_b_proj").flops) == 2 * 4096 * 512 * 128 * 256
    attention = named(kernels, "attention")
    assert float(attention.flops) == 2 * 8_390_656 * 128 * 320
    # queries and keys 192 wide, values and outputs 128 wide, each once, bf16
    assert float(attention.bytes) == 4096 * 128 * (192 + 192 + 128 + 128) * 2
    assert not {"absorb_k", "absorb_v", "latent_attention"} & {op.name for op in kernels}


def test_absorbing_a_prompt_would_cost_more() -> None:
    # (576 + 512) against (192 + 128) FLOP per pair and head: 3.4 times.
    attention = load_model("deepseek-v3").layers[0].attention
    assert isinstance(attention, LatentAttention)
    key = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    ratio = (attention.key_width + attention.value_width) / (key + attention.v_head_dim)
    assert ratio == pytest.approx(3.4)


@pytest.mark.parametrize(
    ("tp", "draft_length", "compute_bound"),
    [
        # The H200 balances at 989.4 / 4.8 = 206 FLOP per byte, 109 head-rows of 1.889: 128 heads
        # are past it without a draft, 16 heads (TP 8) only at 7 rows (FlashMLA's measure, theory).
        (1, 0, True),
        (1, 1, True),
        (8, 0, False),
        (8, 1, False),
        (8, 3, False),
        (8, 5, False),
        (8, 7, True),
    ],
)
def test_draft_length_at_which_the_h200_is_compute_bound(
    tp: int, draft_length: int, *, compute_bound: bool
) -> None:
    kernels = decode_ops(
        "deepseek-v3", batch=32, rows=1 + draft_length, context=8192.0, placement=Placement(tp=tp)
    )
    op = named(kernels, "latent_attention")
    compute, memory = float(op.flops) / H200_PEAK, float(op.bytes) / H200_BANDWIDTH
    assert (compute > memory) is compute_bound


@pytest.mark.parametrize(("tp", "compute_bound"), [(1, True), (8, False)])
def test_draft_length_at_which_the_kernel_law_is_compute_bound(
    tp: int, *, compute_bound: bool
) -> None:
    # Must hold with the efficiencies of real kernels as well: at D = 0 or 1 without TP, not with
    # TP 8 at D = 0 and 1.
    model = load_model("deepseek-v3")
    times = step_times(
        Target(model=model, precision=precision_of(model), placement=Placement(tp=tp)),
        Drafter(kind="none", name="none"),
        Grid.of([32], [8192], [0, 1]),
        Machine(load_hardware("h200-sxm")),
        load_engine("vllm").overhead,
    )
    attention = next(time for time in times.verify_ops if time.op.kind is Kind.MLA)
    waits_for = [bound(attention, (0, 0, draft_length)) for draft_length in (0, 1)]
    assert ("compute" in waits_for) is compute_bound, waits_for
