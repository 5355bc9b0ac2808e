"""Whether it fits: bytes by hand against the bytes of the accelerator.

Llama-3.1-8B at bf16 is 2 x 8,030,261,248 = 16,060,522,496 B; a token of KV is 131,072 B; plain
decoding of B sequences needs context + 1 slots each.
"""

from __future__ import annotations

import pytest

from tests.support import Cli, assert_refused

JSON = ("--format", "json")


@pytest.mark.parametrize(
    ("arguments", "largest"),
    [
        # (80e9 - 16,060,522,496) / (131,072 x 8193) = 59.5
        ("--gpu h100-sxm --context 8k", 59),
        # bytes the driver shows: 139.8 x 2^30 = 150,109,106,995; (... - 16.06e9) / 1.0739e9 = 124.8
        # (141e9 would give 116)
        ("--gpu h200-sxm --context 8k", 124),
        # 24e9 on an RTX 4090 at 1k: (24e9 - 16,060,522,496) / (131,072 x 1025) = 59.1
        ("--gpu rtx-4090 --context 1k", 59),
        # layer matrices 6,979,321,856 at one byte, embedding, head and norms as they were:
        # 9,081,200,640; (80e9 - that) / 1.0739e9 = 66.04 (67 if --weights touched the head too)
        ("--gpu h100-sxm --context 8k --weights fp8", 66),
        # KV at one byte: (80e9 - 16,060,522,496) / (65,536 x 8193) = 119.1
        ("--gpu h100-sxm --context 8k --kv fp8", 119),
    ],
)
def test_the_largest_batch_by_hand(cli: Cli, arguments: str, largest: int) -> None:
    base = ("recommend", "llama-3.1-8b", "--drafter", "none", *arguments.split())
    line = assert_refused(cli(*base, "--batch", str(largest + 1)), code=3)
    assert f"largest batch that fits is {largest}" in line
    assert cli(*base, "--batch", str(largest), *JSON).point()["batch"] == largest


def test_the_refusal_gives_the_numbers(cli: Cli) -> None:
    """60 x 131,072 x 8193 + 16,060,522,496 = 80.49e9 B against 80 GB."""
    outcome = cli("recommend", "llama-3.1-8b", "--context", "8k", "--batch", "60")
    assert_refused(
        outcome, "llama-3.1-8b", "h100-sxm", "80.5 GB", "16.1 GB", "1.07 GB", "80.0 GB", code=3
    )


def test_seventy_billion_on_one_h100(cli: Cli) -> None:
    """2 x 70,553,706,496 = 141.1e9 B of weights alone."""
    outcome = cli("recommend", "llama-3.1-70b", "--gpu", "h100-sxm")
    assert_refused(outcome, "llama-3.1-70b", "141 GB", "80.0 GB", "--tp", code=3)


def test_what_fits_is_answered_and_the_rest_is_named(cli: Cli) -> None:
    outcome = cli(
        "recommend", "llama-3.1-8b", "--drafter", "none", "--context", "8k", "--batch", "1,59,60",
        *JSON,
    )  # fmt: skip
    assert [point["batch"] for point in outcome.data()["points"]] == [1, 59]
    (warning,) = outcome.data()["warnings"]
    assert "batch 60" in warning
    assert "59" in warning


def test_the_drafter_takes_memory_too(cli: Cli) -> None:
    """Room beside head and target: 80e9 - 16,060,522,496 - 849,379,328 = 63,090,098,176 B.

    At D = 1 a sequence takes (131,072 + 4,096) x (8192 + 2) B, so 56 fit; at batch 57 only D = 0.
    """
    base = ("recommend", "llama-3.1-8b", "--context", "8k", "--drafter", "eagle3")
    full = cli(*base, "--acceptance", "0.7", "--batch", "56", *JSON).by_draft_length()
    assert list(full) == list(range(9))
    outcome = cli(*base, "--acceptance", "0.7", "--batch", "57", *JSON)
    assert list(outcome.by_draft_length()) == [0]
    assert outcome.point()["draft_length"] == 0
    assert any("do not fit" in text for text in outcome.data()["warnings"])


def test_longer_drafts_take_longer_slots(cli: Cli) -> None:
    """n-gram, 4090, batch 59: 7,939,477,504 / 59 / 131,072 = 1026.6 slots at 1k, so D <= 1."""
    rows = cli(
        "recommend", "llama-3.1-8b", "--gpu", "rtx-4090", "--context", "1k", "--batch", "59",
        "--drafter", "ngram", "--acceptance", "0.9", "--max-draft-length", "4", *JSON,
    ).by_draft_length()  # fmt: skip
    assert list(rows) == [0, 1]


@pytest.mark.parametrize(("gpu", "basis"), [("h200-sxm", "driver"), ("h100-sxm", "datasheet")])
def test_the_basis_of_the_bytes_is_stated(cli: Cli, gpu: str, basis: str) -> None:
    data = cli("recommend", "llama-3.1-8b", "--gpu", gpu, *JSON).data()
    (memory,) = [p for p in data["provenance"] if p["what"] == "memory size"]
    assert basis in memory["source"]


def test_weights_are_split_over_ranks(cli: Cli) -> None:
    """70B over two H100: half of 141.1e9 B is 70.6e9 B, which 80 GB hold."""
    point = cli(
        "recommend", "llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "2", "--drafter", "none", *JSON
    ).point()
    assert point["batch"] == 1
