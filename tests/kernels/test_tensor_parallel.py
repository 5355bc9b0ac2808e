"""What one rank holds and sends when a model is spread over GPUs; hand arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ENGINE, GPU, Cli, assert_refused, write

PLAIN = ("--drafter", "none", "--explain", "--format", "json")


@pytest.mark.parametrize(
    ("tp", "heads", "cache"),
    [
        # 2 x KV heads on the rank x 128 x 8192 tokens x 2 bytes
        (1, 32, 33_554_432),  # 8 KV heads
        (4, 8, 8_388_608),  # 2
        (8, 4, 4_194_304),  # 1
        (16, 2, 4_194_304),  # still 1: replicated, 8 heads over 16 ranks
    ],
)
def test_kv_heads_are_replicated_beyond_their_number(
    cli: Cli, tmp_path: Path, tp: int, heads: int, cache: int
) -> None:
    gpu = write(tmp_path, "gpu.yaml", GPU)
    kernels = cli(
        "recommend", "llama-3.1-8b", "--gpu", gpu, "--tp", str(tp), "--context", "8k", *PLAIN
    ).ops("verify")
    assert kernels["attention"]["bytes"] == cache + 2 * heads * 128 * 2  # queries in, outputs out
    assert kernels["attention"]["flops"] == 4 * heads * 128 * 8192
    # QKV outputs on the rank: (query heads + 2 KV heads) x 128
    kv_heads = max(8 // tp, 1)
    assert kernels["qkv_proj"]["flops"] == 2 * 4096 * (heads + 2 * kv_heads) * 128
    assert kernels["down_proj"]["flops"] == 2 * (14_336 // tp) * 4096


def test_replicated_kv_takes_memory_on_every_rank(cli: Cli, tmp_path: Path) -> None:
    """8 and 16 ranks hold 16,384 bytes of KV per token each; only the weights get smaller.

    On 16 ranks: layer matrices 4096 x (2 + 2) x 128 + 256 x 4096 + 3 x 4096 x 896 = 14,155,776
    elements, 32 times; 2 x 8016 x 4096 for embedding and head; 65 norms of 4096; twice that in
    bytes is 1,037,836,288. Of 8 GB the engine takes 0.9 less 1.5 GB. Working: 8192 rows of
    2 x 4096 + 3 x 896 values, 178,257,920. A sequence: 8193 slots in 513 blocks of 16 are
    134,479,872, and logits of 6 x 128,256 bytes. So floor(4,483,905,792 / 135,249,408) = 33.
    """
    gpu = write(tmp_path, "gpu.yaml", GPU.replace("64 GB", "8 GB"))
    engine = write(tmp_path, "engine.yaml", ENGINE)
    line = assert_refused(
        cli("recommend", "llama-3.1-8b", "--gpu", gpu, "--tp", "16", "--context", "8k",
            "--batch", "1k", "--drafter", "none", "--engine", engine),
        code=3,
    )  # fmt: skip
    assert "largest batch that fits is 33" in line


def test_all_reduce_and_logits_gather(cli: Cli) -> None:
    """70B over 4: two reduces per layer of 2 x 3/4 x 8192 x 2 bytes, one gather of 3/4 x V x 2."""
    kernels = cli(
        "recommend", "llama-3.1-70b", "--gpu", "h200-sxm", "--tp", "4", "--context", "1k", *PLAIN
    ).ops("verify")
    reduces = [row for name, row in kernels.items() if name.endswith("all_reduce")]
    assert sum(row["count"] for row in reduces) == 160
    assert {row["bytes"] for row in reduces} == {24_576}
    assert kernels["logits_gather"]["bytes"] == 192_384
    assert kernels["lm_head"]["flops"] == 2 * 8192 * 128_256 // 4


def test_one_gpu_does_not_communicate(cli: Cli) -> None:
    row = cli(
        "recommend", "llama-3.1-8b", "--drafter", "none", "--format", "json"
    ).by_draft_length()[0]
    assert row["breakdown_ms"]["communication"] == 0


def test_communication_takes_latency_and_bandwidth(cli: Cli) -> None:
    """A hundred times the bytes take longer, but not a hundred times: the launch is not free."""

    def seconds(batch: int) -> float:
        rows = cli(
            "recommend", "llama-3.1-8b", "--tp", "4", "--context", "256", "--batch", str(batch),
            "--drafter", "none", "--format", "json",
        ).by_draft_length()  # fmt: skip
        return float(rows[0]["breakdown_ms"]["communication"])

    one, many = seconds(1), seconds(100)
    # 65 transfers at least; each carries 1.5 x 100 x 4096 x 2 bytes over 450 GB/s = 2.73 us
    assert many - one > 64 * 2.73e-3 * 0.99 * 0.9
    assert many < 20 * one


def test_a_drafter_may_have_its_own_tp(cli: Cli) -> None:
    """A draft model on one GPU reads its whole head: 2 x 2048 x 128256 FLOP, against a quarter."""

    def head(draft_tp: str) -> float:
        answer = cli(
            "recommend", "llama-3.1-70b", "--gpu", "h200-sxm", "--tp", "4", "--context", "1k",
            "--drafter", "llama-3.2-1b", "--draft-tp", draft_tp, "--acceptance", "0.9",
            "--max-draft-length", "2", "--explain", "--format", "json",
        )  # fmt: skip
        return float(answer.ops("draft")["lm_head"]["flops"])

    assert head("1") == 525_336_576
    assert head("4") == 131_334_144
