"""`recommend --explain`: the formulas of every kind of layer, with numbers worked out by hand."""

from __future__ import annotations

import csv
import io

import pytest

from tests.support import Cli

NGRAM = ("--gpu", "h200-sxm", "--drafter", "ngram", "--acceptance", "0.6", "--explain")


def explained(cli: Cli, *ask: str) -> tuple[int, str]:
    """Return the draft length advised, and the text of an answer with its lines joined."""
    answer = cli("recommend", *ask)
    assert answer.code == 0, answer.err
    point = cli("recommend", *ask, "--format", "json").point()
    return int(point["draft_length"]), " ".join(answer.out.split())


def test_grouped_attention_with_and_without_a_window(cli: Cli) -> None:
    """Gemma-3-27B: 32 heads over 16, bf16: 2 G q / 2 = 2 q FLOP per byte; windows of 1024."""
    d, text = explained(cli, "gemma-3-27b-it", "--context", "8k", *NGRAM)
    q = 1 + d
    assert f"Attention: 2 G (1 + D) / b_kv = 2 x 2 x {q} / 2 = {2 * q} FLOP per byte of KV;" in text
    assert f"(sliding window: {1024 + d} of 8192 tokens read)" in text


def test_latent_attention(cli: Cli) -> None:
    """DeepSeek-V3 on 8 GPUs: 16 heads each, keys of 576, values of 512, one vector of 576 read."""
    d, text = explained(cli, "deepseek-v3", "--tp", "8", *NGRAM)
    expected = 2 * 16 * (1 + d) * (576 + 512) / (576 * 2)
    assert f"MLA: 2 h (1 + D) (d_k + d_v) / (d_k b_kv) = 2 x 16 x {1 + d} x" in text
    assert f"= {expected:.0f} FLOP per byte of latent" in text


def test_linear_mixers(cli: Cli) -> None:
    """Qwen3-Next on 2 GPUs: 16 of 32 heads, 128 x 128 in fp32: 1.05 MB; one read, q written."""
    d, text = explained(cli, "qwen3-next-80b-a3b-instruct", "--tp", "2", *NGRAM)
    state = 16 * 128 * 128 * 4
    assert "Linear mixer: 1.05 MB of state a sequence and layer;" in text
    moved = f"{state * (2 + d) / 1e6:.2f}"
    assert f"a pass of {1 + d} rows moves {moved} MB (snapshots)" in text
    _, replayed = explained(
        cli, "qwen3-next-80b-a3b-instruct", "--tp", "2", *NGRAM, "--state-handling", "replay"
    )
    assert f"moves {2 * state / 1e6:.2f} MB (replay)" in replayed


def test_compressed_attention(cli: Cli) -> None:
    """V4 at 8192: a window of 128 and the rows after the first, alone or with 8192 / 128 blocks."""
    d, text = explained(cli, "deepseek-v4-flash", "--tp", "4", "--context", "8k", *NGRAM)
    for read in (128 + d, 128 + d + 8192 // 128, 128 + d + 8192 // 4):
        assert f"Compressed attention: {read} entries of 512 read for 8192 tokens" in text
    assert f"4 h (1 + D) / b_kv = 4 x 16 x {1 + d} / 2 FLOP per byte" in text


def test_attention_to_images_has_no_formula_of_its_own(cli: Cli) -> None:
    _, text = explained(cli, "llama-3.2-90b-vision", "--tp", "4", *NGRAM)
    assert text.count("Attention: 2 G") == 1
    assert "cross" not in text.partition("Memory of one GPU")[0].partition("GEMM rows")[2]


def test_markdown_has_a_table_for_each_pass(cli: Cli) -> None:
    answer = cli(
        "recommend",
        "llama-3.1-8b",
        "--acceptance",
        "llama-3.1-8b-eagle3",
        "--explain",
        "--gpu-hour",
        "2",
        "--format",
        "markdown",
    ).out
    for title in ("Verify pass", "First draft pass"):
        _, _, below = answer.partition(f"\n{title} (GFLOP and MB of one launch, ms of all):\n\n")
        assert below.startswith("| op | count | rows |")
    assert "GEMM rows: M = B (1 + D) = 1 x 6 = 6" in answer
    assert "1 x $2.00 per hour" in answer


def test_the_price_is_a_column_of_the_csv(cli: Cli) -> None:
    """2 dollars an hour over 3600 s times the batch's tokens per second, for a million tokens."""
    out = cli("recommend", "llama-3.1-8b", "--gpu-hour", "2", "--format", "csv").out
    for row in csv.DictReader(io.StringIO(out)):
        expected = 2 / 3600 / float(row["tokens_per_s"]) * 1e6
        assert float(row["dollars_per_million_tokens"]) == pytest.approx(expected, rel=1e-5)


def test_one_draft_length_leaves_nothing_to_time(cli: Cli) -> None:
    answer = cli("recommend", "llama-3.1-8b", "--drafter", "none")
    assert "nothing to time" in " ".join(answer.out.split())
