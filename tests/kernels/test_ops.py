"""FLOPs and bytes of single kernels, against hand arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from roofline.kernels import formulas
from tests.support import MODEL, Cli, write

EXPLAIN = ("--explain", "--format", "json")


def test_one_gemm() -> None:
    """2 x 1 x 4096 x 4096 FLOP; weights 4096 x 4096 x 2, in and out 4096 x 2 bytes each."""
    assert formulas.gemm_flops(m=1, n=4096, k=4096) == 33_554_432
    moved = formulas.gemm_bytes(m=1, n=4096, k=4096, weight=2, activation=2, output=2)
    assert moved == 33_554_432 + 8_192 + 8_192


def test_gemm_bytes_use_each_width() -> None:
    """N K b_w + M K b_a + M N b_o = 3 x 5 x 1 + 2 x 5 x 2 + 2 x 3 x 4 = 59, widths all apart."""
    assert formulas.gemm_bytes(m=2, n=3, k=5, weight=1, activation=2, output=4) == 59


@pytest.mark.parametrize(
    ("name", "peak", "bandwidth", "expected"),
    [  # theory notes, 3.2: the ideal knee P b_w / (2 BW) at bf16
        ("H100", 989.4e12, 3.35e12, 295),
        ("H200", 989.4e12, 4.8e12, 206),
        ("B200", 2250e12, 8e12, 281),
    ],
)
def test_gemm_knee(name: str, peak: float, bandwidth: float, expected: int) -> None:
    assert round(formulas.gemm_knee_rows(peak=peak, bandwidth=bandwidth, weight=2)) == expected, (
        name
    )


def test_attention_by_hand() -> None:
    """B=2, q=4, A=8, H_kv=2, d=64, L=100, bf16 KV: small enough to count on paper."""
    flops = formulas.attention_flops(batch=2, rows=4, heads=8, head_dim=64, length=100)
    assert flops == 4 * 2 * 4 * 8 * 64 * 100
    once = formulas.attention_bytes(
        batch=2, rows=4, heads=8, kv_heads=2, head_dim=64, length=100, kv=2, activation=2
    )
    cache, queries = 2 * 2 * 2 * 64 * 100 * 2, 2 * 2 * 4 * 8 * 64 * 2
    assert once == cache + queries
    fourfold = formulas.attention_bytes(
        batch=2,
        rows=4,
        heads=8,
        kv_heads=2,
        head_dim=64,
        length=100,
        kv=2,
        activation=2,
        kv_reads=4,
    )
    assert fourfold == 4 * cache + queries


@pytest.mark.parametrize(
    ("group", "draft", "kv_bytes", "expected"),
    [
        # NVIDIA blog on co-design (2026-09-02), part 2: 2 G at one byte per element, G (1 + D) rows
        (8, 0, 1, 16),
        (8, 3, 1, 64),
        (8, 3, 2, 32),
        (4, 0, 2, 4),
        (4, 5, 2, 24),
    ],
)
def test_attention_intensity(group: int, draft: int, kv_bytes: int, expected: float) -> None:
    assert (
        formulas.attention_intensity(group_size=group, draft_length=draft, kv=kv_bytes) == expected
    )


@pytest.mark.parametrize("group", [1, 4, 8, 16])
@pytest.mark.parametrize("draft", [0, 1, 3, 7])
@pytest.mark.parametrize("batch", [1, 32])
def test_identity_with_the_words_of_the_request(group: int, draft: int, batch: int) -> None:
    """design.md section 1: with D' = 1 + D and G' = 1 / G, both are the same thing."""
    d_prime, g_prime = 1 + draft, 1 / group
    intensity = formulas.attention_intensity(group_size=group, draft_length=draft, kv=1)
    assert intensity == pytest.approx(2 * d_prime / g_prime)
    flops = formulas.gemm_flops(m=batch * d_prime, n=1, k=1)
    assert flops == 2 * batch * (1 + draft)


def test_collectives_by_hand() -> None:
    """Patarasu and Yuan 2009: 2 (n-1)/n S to reduce everywhere, (n-1)/n S to gather."""
    assert formulas.all_reduce_bytes(payload=800.0, ranks=8) == 1400
    assert formulas.all_gather_bytes(payload=800.0, ranks=8) == 700
    assert formulas.all_reduce_bytes(payload=800.0, ranks=1) == 0


def test_padding_and_causal_pairs() -> None:
    """Whole tiles above; a prompt of 4 tokens has 1 + 2 + 3 + 4 pairs."""
    rows = np.array([1, 128, 129, 256, 257])
    assert formulas.padded_rows(rows=rows, tile=128).tolist() == [128, 128, 256, 256, 384]  # type: ignore[union-attr]
    assert formulas.causal_pairs(tokens=4) == 10


def test_llama_attention_flops_per_layer_and_row(cli: Cli) -> None:
    """4 x heads x head size x L = 4 x 32 x 128 x 8192 for one row; eight sequences make eight."""
    kernels = cli(
        "recommend",
        "llama-3.1-8b",
        "--drafter",
        "none",
        "--context",
        "8k",
        "--batch",
        "8",
        *EXPLAIN,
    ).ops("verify")
    assert kernels["attention"]["flops"] == 8 * 134_217_728
    assert kernels["attention"]["count"] == 32
    assert kernels["o_proj"]["flops"] == 8 * 33_554_432  # N = K = 4096


def test_a_whole_pass_costs_two_flops_per_weight(cli: Cli) -> None:
    """Every matrix weight is one multiply-add per row: 2 x (7,504,924,672 - 65 norms of 4096)."""
    kernels = cli("recommend", "llama-3.1-8b", "--drafter", "none", "--batch", "3", *EXPLAIN).ops(
        "verify"
    )
    products = [row for name, row in kernels.items() if name.endswith(("_proj", "lm_head"))]
    assert sum(row["count"] * row["flops"] for row in products) == 3 * 15_009_316_864
    # and its bytes are the weights at 2 bytes each, plus activations below a thousandth of that
    moved = sum(row["count"] * row["bytes"] for row in products)
    assert 15_009_316_864 < moved < 1.001 * 15_009_316_864


def test_verify_rows_and_logits(cli: Cli) -> None:
    """Linear layers and head see B (1 + D) rows: 4 x 6 = 24, so 24 times one row's FLOPs."""
    answer = cli(
        "recommend", "llama-3.1-8b", "--batch", "4", "--context", "1k", "--drafter", "eagle3",
        "--acceptance", "al:5=5.9", "--max-draft-length", "5", *EXPLAIN,
    )  # fmt: skip
    assert answer.point()["draft_length"] == 5
    verify = answer.ops("verify")
    assert verify["o_proj"]["flops"] == 24 * 33_554_432
    assert verify["lm_head"]["flops"] == 24 * 2 * 128_256 * 4096
    assert verify["attention"]["flops"] == 24 * 4 * 32 * 128 * 1024
    # read once for all rows: 2 x 4 x 8 x 128 x 1024 x 2 of cache, 2 x 24 x 32 x 128 x 2 of rows
    assert verify["attention"]["bytes"] == 16_777_216 + 393_216


def test_draft_passes_of_a_fused_head(cli: Cli) -> None:
    """First pass on 1 + D = 6 padded rows, logits for one; D - 1 = 4 further passes of one row."""
    answer = cli(
        "recommend", "llama-3.1-8b", "--context", "1k", "--drafter", "eagle3",
        "--acceptance", "al:5=5.9", "--max-draft-length", "5", *EXPLAIN,
    )  # fmt: skip
    first, further = answer.ops("draft"), answer.ops("draft, further")
    one_qkv = 2 * 8192 * 6144  # input is embedding and feature, 2 x 4096 wide
    one_head = 2 * 32_000 * 4096  # the draft vocabulary
    assert first["qkv_proj"]["flops"] == 6 * one_qkv
    assert first["lm_head"]["flops"] == one_head
    assert first["fc"]["flops"] == 6 * 2 * (3 * 4096) * 4096
    assert further["qkv_proj"]["flops"] == one_qkv
    assert further["lm_head"]["flops"] == one_head
    assert (further["qkv_proj"]["count"], further["lm_head"]["count"]) == (4, 4)


def test_intensity_of_the_real_kernel_reaches_the_formula(cli: Cli) -> None:
    """2 x 4 x 6 / 2 = 24 FLOP per byte at long context, where queries and outputs vanish."""
    kernels = cli(
        "recommend", "llama-3.1-8b", "--context", "128k", "--drafter", "eagle3",
        "--acceptance", "al:5=5.9", "--max-draft-length", "5", *EXPLAIN,
    ).ops("verify")  # fmt: skip
    assert kernels["attention"]["intensity"] == pytest.approx(24, rel=1e-3)


def test_tied_and_untied_heads_cost_the_same(cli: Cli, tmp_path: Path) -> None:
    """2 x vocabulary x hidden = 2 x 1000 x 512 per row, whoever owns the matrix."""
    seen = []
    for tied in ("true", "false"):
        text = MODEL.replace("embeddings: false", f"embeddings: {tied}")
        path = write(tmp_path, f"{tied}.yaml", text)
        answer = cli("recommend", path, "--context", "1k", "--drafter", "none", *EXPLAIN)
        head = answer.ops("verify")["lm_head"]
        seen.append((head["flops"], head["bytes"]))
    assert seen[0] == seen[1]
    assert seen[0][0] == 1_024_000


def test_gated_and_ungated_mlps(cli: Cli, tmp_path: Path) -> None:
    """Up: 2 x 512 x 1024, twice that with a gate; down: 2 x 1024 x 512 either way."""
    found = {}
    for gated in ("true", "false"):
        text = MODEL.replace("gated: true", f"gated: {gated}")
        path = write(tmp_path, f"{gated}.yaml", text)
        answer = cli("recommend", path, "--context", "1k", "--drafter", "none", *EXPLAIN)
        found[gated] = answer.ops("verify")
    assert found["true"]["gate_up_proj"]["flops"] == 2_097_152
    assert found["false"]["up_proj"]["flops"] == 1_048_576
    assert found["true"]["down_proj"]["flops"] == found["false"]["down_proj"]["flops"] == 1_048_576
