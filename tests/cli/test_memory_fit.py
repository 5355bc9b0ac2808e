"""Whether it fits: bytes by hand against the bytes of the accelerator.

Llama-3.1-8B at bf16 is 2 x 8,030,261,248 = 16,060,522,496 B, a token of KV 131,072 B. The engine
takes 0.9 of the accelerator less 1.5 GB (70.5 GB of an H100), and keeps KV in blocks of 16: 8193
slots are 513 blocks, 1,075,838,976 B. A pass of 8192 rows needs 2 x 4096 + 3 x 14,336 values for
each, 838,860,800 B; logits take 2 + 4 bytes for each of 128,256 tokens, 769,536 B a row.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ENGINE, Cli, assert_refused, write

JSON = ("--format", "json")


@pytest.fixture
def engine(tmp_path: Path) -> str:
    """Return an engine whose rules are those above, whatever the bundled ones become."""
    return write(tmp_path, "engine.yaml", ENGINE)


@pytest.mark.parametrize(
    ("arguments", "largest"),
    [
        # (70.5e9 - 16,060,522,496 - 838,860,800) / (1,075,838,976 + 769,536) = 49.8
        ("--gpu h100-sxm --context 8k", 49),
        # bytes the driver shows: 139.8 x 2^30 x 0.9 - 1.5e9 = 133,598,196,296: 108.4
        # (141e9 B would give 100)
        ("--gpu h200-sxm --context 8k", 108),
        # 24e9 x 0.9 - 1.5e9 = 20.1e9; 1025 slots are 65 blocks, 136,314,880 B: 23.3
        ("--gpu rtx-4090 --context 1k", 23),
        # layer matrices 6,979,321,856 at one byte, embedding, head and norms as they were:
        # 9,081,200,640 B: 56.3 (57 if --weights touched embedding and head as well)
        ("--gpu h100-sxm --context 8k --weights fp8", 56),
        # KV at one byte: 537,919,488 + 769,536 for each: 99.5
        ("--gpu h100-sxm --context 8k --kv fp8", 99),
    ],
)
def test_the_largest_batch_by_hand(cli: Cli, engine: str, arguments: str, largest: int) -> None:
    base = (
        "recommend",
        "llama-3.1-8b",
        "--drafter",
        "none",
        "--engine",
        engine,
        *arguments.split(),
    )
    line = assert_refused(cli(*base, "--batch", str(largest + 1)), code=3)
    assert f"largest batch that fits is {largest}" in line
    assert cli(*base, "--batch", str(largest), *JSON).point()["batch"] == largest


def test_the_refusal_gives_the_numbers(cli: Cli, engine: str) -> None:
    """60 x 1,076,608,512 + 16,060,522,496 + 838,860,800 = 81.5e9 B against 70.5 of 80 GB."""
    outcome = cli(
        "recommend", "llama-3.1-8b", "--context", "8k", "--batch", "60", "--engine", engine
    )
    assert_refused(
        outcome, "llama-3.1-8b", "h100-sxm", "81.5 GB", "16.1 GB", "1.08 GB", "70.5 GB", "80.0 GB",
        code=3,
    )  # fmt: skip


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm"])
def test_seventy_billion_on_one_gpu(cli: Cli, gpu: str) -> None:
    """2 x 70,553,706,496 = 141.1e9 B of weights: too much for 80 GB and for 90 % of 150."""
    outcome = cli("recommend", "llama-3.1-70b", "--gpu", gpu)
    assert_refused(outcome, "llama-3.1-70b", "141 GB", "--tp", code=3)


def test_weights_are_split_over_ranks(cli: Cli) -> None:
    """70B over two H200: half of 141.1e9 B is 70.6e9 B, which 150 GB hold."""
    point = cli(
        "recommend", "llama-3.1-70b", "--gpu", "h200-sxm", "--tp", "2", "--drafter", "none", *JSON
    ).point()
    assert point["batch"] == 1


def test_what_fits_is_answered_and_the_rest_is_named(cli: Cli, engine: str) -> None:
    outcome = cli(
        "recommend", "llama-3.1-8b", "--drafter", "none", "--context", "8k", "--batch", "1,49,50",
        "--engine", engine, *JSON,
    )  # fmt: skip
    assert [point["batch"] for point in outcome.data()["points"]] == [1, 49]
    (refused,) = outcome.data()["refused"]
    assert (refused["batch"], refused["context"], refused["largest_batch"]) == (50, 8192, 49)
    assert refused["needed_bytes"] > refused["available_bytes"]
    assert outcome.data()["warnings"] == []


def test_the_drafter_takes_memory_too(cli: Cli, engine: str) -> None:
    """Beside the head (849,379,328 B) and its KV (4,096 B a token) fewer sequences fit.

    At D = 8: (53,600,616,704 - 849,379,328) / (135,168 x 8208 + 9 x 769,536) = 47.3; at D = 1:
    47.5. So 47 sequences may draft, and 48 can only decode plainly.
    """
    base = ("recommend", "llama-3.1-8b", "--context", "8k", "--drafter", "eagle3")
    more = ("--acceptance", "0.7", "--engine", engine, *JSON)
    assert list(cli(*base, "--batch", "47", *more).by_draft_length()) == list(range(9))
    outcome = cli(*base, "--batch", "48", *more)
    assert list(outcome.by_draft_length()) == [0]
    assert outcome.point()["draft_length"] == 0
    assert any("do not fit" in text for text in outcome.data()["warnings"])


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_an_answer_without_room_for_drafts_prints(cli: Cli, engine: str, form: str) -> None:
    outcome = cli(
        "recommend", "llama-3.1-8b", "--context", "8k", "--drafter", "eagle3", "--batch", "48",
        "--acceptance", "0.7", "--engine", engine, "--format", form,
    )  # fmt: skip
    assert outcome.code == 0
    assert outcome.out


def test_longer_drafts_take_more_logits(cli: Cli, engine: str) -> None:
    """RTX 4090, n-gram, batch 23 at 1k: 3,200,616,704 / 23 - 136,314,880 is 3.7 rows of logits."""
    rows = cli(
        "recommend", "llama-3.1-8b", "--gpu", "rtx-4090", "--context", "1k", "--batch", "23",
        "--drafter", "ngram", "--acceptance", "0.9", "--engine", engine, *JSON,
    ).by_draft_length()  # fmt: skip
    assert list(rows) == [0, 1, 2]


@pytest.mark.parametrize(("gpu", "basis"), [("h200-sxm", "driver"), ("h100-sxm", "datasheet")])
def test_the_basis_of_the_bytes_is_stated(cli: Cli, gpu: str, basis: str) -> None:
    """The issue: mem_visible_gib x 2^30 where known, else mem_gb x 1e9; the profile says which."""
    data = cli("recommend", "llama-3.1-8b", "--gpu", gpu, *JSON).data()
    (memory,) = [p for p in data["provenance"] if p["what"] == "memory size"]
    assert basis in memory["source"]
