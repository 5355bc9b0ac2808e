"""``roofline memory`` and what fits: accounts add up, and their slots are counted by hand.

Llama-3.1-8B at bf16 is 2 x 8,030,261,248 = 16,060,522,496 B, a token of KV 131,072 B. The engine
takes 0.9 of what a process sees of the accelerator less 1.5 GB (H100: 0.9 x 79.11 GiB - 1.5e9 =
74,949,344,127 B), and keeps KV in blocks of 16: 8193 slots are 513 blocks, 1,075,838,976 B. A pass
of 8192 rows needs 2 x 4096 + 3 x 14,336 values for each, 838,860,800 B; logits take 2 + 4 bytes for
each of 128,256 tokens, 769,536 B a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roofline.specs.gpu import load_hardware
from tests.support import ENGINE, Cli, assert_refused, write

CACHE = ("target KV", "draft KV", "D + 1 slots", "block rounding", "state", "state snapshots")
PAIR = ("qwen3-14b", "--gpu", "h200-sxm", "--drafter", "qwen3-1.7b", "--draft-length", "4")


def only(cli: Cli, *arguments: str) -> Any:
    (context,) = cli("memory", *arguments, "--format", "json").data()["contexts"]
    return context


def test_a_separate_drafter_costs_qwen3_14b_two_fifths_of_its_slots(cli: Cli) -> None:
    """Published for this pair on one H200 at 2k: 43.8 % of the slots (cases.md, golden numbers)."""
    found = only(cli, *PAIR, "--context", "2k")
    assert 0.41 <= found["slots_lost"] <= 0.44


def test_slots_by_hand(cli: Cli) -> None:
    """A process sees 79.11 GiB of an H100 (vLLM issue 27508); 0.92 taken, 1.5 GB reserve.

    vLLM 0.22.0 to 0.33.0, vllm/config/cache.py: gpu_memory_utilization = Field(default=0.92).
    """
    found = only(cli, "llama-3.1-8b", "--drafter", "none", "--context", "2k")
    usable = 0.92 * 79.11 * 2**30 - 1.5e9
    weights = 2 * 8_030_261_248
    blocks = -(-(2048 + 1) // 16) * 16 * 131_072
    # a chunk of 8192 prompt tokens: 2 H + 3 I values of two bytes; logits in bf16 and fp32
    activations = 8192 * (2 * 4096 + 3 * 14336) * 2
    by_hand = int((usable - weights - activations) / (blocks + 128_256 * 6))
    assert found["largest_batch"] == by_hand
    older = only(
        cli, "llama-3.1-8b", "--drafter", "none", "--context", "2k", "--engine", "vllm@2025"
    )
    usable = 0.9 * 79.11 * 2**30 - 1.5e9  # as docs.vllm.ai of v0.6.4 has it
    by_hand = int((usable - weights - activations) / (blocks + 128_256 * 6))
    assert older["largest_batch"] == by_hand


@pytest.mark.parametrize(
    "ask",
    [
        (*PAIR, "--context", "2k"),
        ("llama-3.1-8b", "--context", "8k", "--batch", "3"),
        ("gemma-3-27b", "--gpu", "h200-sxm", "--drafter", "none", "--context", "64k"),
        (
            "qwen3.5-397b-a17b", "--gpu", "h200-sxm", "--tp", "8", "--weights", "fp8", "--drafter",
            "mtp", "--draft-length", "3",
        ),
    ],
)  # fmt: skip
def test_parts_make_the_whole(cli: Cli, ask: tuple[str, ...]) -> None:
    found = only(cli, *ask)
    for account in found["accounts"]:
        parts = account["bytes"]
        assert all(size >= -1 for size in parts.values()), parts
        gpu = ask[ask.index("--gpu") + 1] if "--gpu" in ask else "h100-sxm"
        assert sum(parts.values()) == pytest.approx(load_hardware(gpu).memory_bytes)
        each = sum(parts[name] for name in CACHE)
        assert each == pytest.approx(account["batch"] * account["per_sequence"]["reserved"])


def test_one_more_sequence_would_not_fit(cli: Cli) -> None:
    found = only(cli, *PAIR, "--context", "2k")
    for account in found["accounts"]:
        free = account["bytes"]["free"]
        assert 0 <= free < account["per_sequence"]["reserved"] + 5 * 151_936 * 6


def test_snapshots_are_one_state_for_each_draft(cli: Cli) -> None:
    """SSM states are kept once, and once more for every drafted token (theory 6.6)."""
    ask = ("qwen3.5-397b-a17b", "--gpu", "h200-sxm", "--tp", "8", "--weights", "fp8")
    found = only(cli, *ask, "--drafter", "mtp", "--draft-length", "3", "--batch", "10")
    plain, drafted = found["accounts"]
    assert plain["bytes"]["state snapshots"] == 0
    assert drafted["bytes"]["state snapshots"] == pytest.approx(3 * drafted["bytes"]["state"])


def test_reserved_and_read_are_told_apart(cli: Cli) -> None:
    """Gemma 3 27B at 64k: 10 of 62 layers see everything, 52 a window of 1024 (ask 64)."""
    found = only(
        cli, "gemma-3-27b", "--gpu", "h200-sxm", "--drafter", "none", "--context", "64k",
        "--batch", "1",
    )  # fmt: skip
    each = found["accounts"][0]["per_sequence"]
    layer = 2 * 16 * 128 * 2
    assert each["per_token"] == 62 * layer
    assert each["read"] == pytest.approx(layer * (10 * 65536 + 52 * 1024), rel=1e-3)
    assert each["reserved"] >= each["read"]
    assert each["reserved"] < 0.5 * 65536 * each["per_token"]


def test_throughput_at_equal_memory_by_hand(cli: Cli) -> None:
    """Each side at its own largest batch, from ``recommend`` at those batches."""
    ask = ("qwen3-14b", "--gpu", "h200-sxm", "--drafter", "qwen3-1.7b", "--acceptance", "0.7")
    found = only(cli, *ask, "--context", "2k")
    equal, drafts = found["equal_memory"], found["draft_length"]

    def row(batch: int, length: int) -> Any:
        rows = cli(
            "recommend", *ask, "--context", "2k", "--batch", str(batch), "--format", "json"
        ).by_draft_length()
        return rows[length]

    plain = row(found["largest_batch"], 0)["tokens_per_s"]
    drafted = row(found["largest_batch_speculative"], drafts)
    assert equal["plain_tokens_per_s"] == pytest.approx(plain)
    assert equal["speculative_tokens_per_s"] == pytest.approx(drafted["tokens_per_s"])
    assert equal["speedup_at_equal_batch"] == pytest.approx(drafted["speedup"])
    assert equal["gain"] < equal["speedup_at_equal_batch"]  # slots lost are throughput lost


def test_the_engines_share_of_memory_can_be_set(cli: Cli) -> None:
    """The same question at two shares (ask 46): 0.05 of the GPU is 0.05 of 79.11 GiB."""
    counts = []
    for share in ("0.90", "0.95"):
        found = only(
            cli, "llama-3.1-8b", "--drafter", "none", "--context", "2k", "--memory-fraction", share
        )
        counts.append(found["largest_batch"])
    more = 0.05 * 79.11 * 2**30 / (2064 * 131_072 + 128_256 * 6)
    assert counts[1] - counts[0] == pytest.approx(more, abs=1)


def test_a_capacity_of_ones_own_replaces_what_a_process_sees(cli: Cli) -> None:
    """40 GB x 0.92 - 1.5 GB, less weights and activations, over a sequence of 2k: 67.8."""
    ask = ("llama-3.1-8b", "--drafter", "none", "--context", "2k")
    own = ("--set", "gpu.memory.capacity=40 GB")
    assert only(cli, *ask, *own)["largest_batch"] == 67
    # 30 GB seen of them: 33.9
    seen = ("--set", "gpu.memory.visible=30 GB")
    assert only(cli, *ask, *own, *seen)["largest_batch"] == 33


def test_remedies_of_a_refusal_work(cli: Cli) -> None:
    ask = ("llama-3.1-8b", "--drafter", "none", "--context", "128k")
    line = assert_refused(cli("memory", *ask, "--batch", "4"), "nearest remedies", code=3)
    for word in ("--kv fp8", "--tp 2", "batch 3", "GB"):
        assert word in line
    assert only(cli, *ask, "--batch", "4", "--kv", "fp8")["largest_batch"] >= 4
    assert only(cli, *ask, "--batch", "4", "--tp", "2")["largest_batch"] >= 4
    assert only(cli, *ask, "--batch", "3")["largest_batch"] == 3
    shorter = line.split("--context ")[1].split()[0]
    assert only(cli, *ask[:-1], shorter, "--batch", "4")["largest_batch"] == 4


@pytest.mark.parametrize(
    ("ask", "length"),
    [
        # kinds of which nobody published enough to expect an acceptance
        (("llama-2-7b", "--drafter", "medusa", "--engine", "vllm@0.32"), 4),
        (("qwen3-8b", "--drafter", "peagle"), 5),
    ],
)
def test_memory_needs_no_acceptance(cli: Cli, ask: tuple[str, ...], length: int) -> None:
    """Sizes do not depend on how many drafts are accepted: any other curve leads to the same."""
    found = only(cli, *ask, "--draft-length", str(length))
    assert found["draft_length"] == length
    assert found["equal_memory"] is None
    other = only(cli, *ask, "--draft-length", str(length), "--acceptance", "0.7")
    assert other["accounts"] == found["accounts"]
    assert other["equal_memory"] is not None
    text = cli("memory", *ask, "--draft-length", str(length)).out
    assert f"needs the acceptance at draft length {length}" in " ".join(text.split())


def test_a_draft_length_beyond_the_drafter_is_refused(cli: Cli) -> None:
    outcome = cli(
        "memory", "qwen3.6-27b", "--gpu", "h20", "--drafter", "dflash", "--draft-length", "16"
    )
    assert_refused(outcome, "--draft-length 16", "at most 15", "drafts no more at once")


def test_recommend_names_the_remedies_too(cli: Cli) -> None:
    line = assert_refused(cli("recommend", "llama-3.1-70b"), "nearest remedies", code=3)
    tp = line.split("--tp ")[-1].split(" ")[0]
    assert cli("recommend", "llama-3.1-70b", "--tp", tp).code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--batch 0", ("--batch", "0")),
        ("--draft-length 0", ("--draft-length", "0")),
        ("--draft-length 99", ("--draft-length", "99")),
        ("--drafter peagle", ("--draft-length", "peagle", "--acceptance")),
        ("--memory-fraction 0", ("--memory-fraction", "0")),
        ("--memory-fraction 1.2", ("--memory-fraction", "1.2")),
        ("--format xml", ("--format", "xml")),
        ("--context 0", ("--context",)),
    ],
)
def test_refused_with_one_line(cli: Cli, arguments: str, words: tuple[str, ...]) -> None:
    assert_refused(cli("memory", "llama-3.1-8b", *arguments.split()), *words)


def test_the_table_fits_eighty_columns(cli: Cli) -> None:
    out = cli("memory", *PAIR, "--acceptance", "0.7").out
    assert [line for line in out.splitlines() if len(line) > 80] == []


JSON = ("--format", "json")


@pytest.fixture
def engine(tmp_path: Path) -> str:
    """Return an engine whose rules are those above, whatever the bundled ones become."""
    return write(tmp_path, "engine.yaml", ENGINE)


@pytest.mark.parametrize(
    ("arguments", "largest"),
    [
        # (74,949,344,127 - 16,060,522,496 - 838,860,800) / (1,075,838,976 + 769,536) = 53.9
        # (80e9 B would give 49)
        ("--gpu h100-sxm --context 8k", 53),
        # bytes a process sees: 139.8 x 2^30 x 0.9 - 1.5e9 = 133,598,196,296: 108.4
        # (141e9 B would give 100)
        ("--gpu h200-sxm --context 8k", 108),
        # 23.64 x 2^30 x 0.9 - 1.5e9 = 21,344,931,047; 1025 slots are 65 blocks, 136,314,880 B: 32.4
        ("--gpu rtx-4090 --context 1k", 32),
        # layer matrices 6,979,321,856 at one byte, embedding, head and norms as they were:
        # 9,081,200,640 B: 60.4 (61 if --weights touched embedding and head as well)
        ("--gpu h100-sxm --context 8k --weights fp8", 60),
        # KV at one byte: 537,919,488 + 769,536 for each: 107.8
        ("--gpu h100-sxm --context 8k --kv fp8", 107),
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
    """60 x 1,076,608,512 + 16,060,522,496 + 838,860,800 = 81.5e9 B against 74.9 of 84.9 GB."""
    outcome = cli(
        "recommend", "llama-3.1-8b", "--context", "8k", "--batch", "60", "--engine", engine
    )
    assert_refused(
        outcome, "llama-3.1-8b", "h100-sxm", "81.5 GB", "16.1 GB", "1.08 GB", "74.9 GB", "84.9 GB",
        code=3,
    )  # fmt: skip


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm"])
def test_seventy_billion_on_one_gpu(cli: Cli, gpu: str) -> None:
    """2 x 70,553,706,496 = 141.1e9 B of weights: too much for 85 GB and for 90 % of 150."""
    outcome = cli("recommend", "llama-3.1-70b", "--gpu", gpu)
    assert_refused(outcome, "llama-3.1-70b", "141 GB", "--tp", code=3)


def test_weights_are_split_over_ranks(cli: Cli) -> None:
    """70B over two H200: half of 141.1e9 B is 70.6e9 B, which 150 GB hold."""
    point = cli(
        "recommend", "llama-3.1-70b", "--gpu", "h200-sxm", "--tp", "2", "--drafter", "none", *JSON
    ).point()
    assert point["batch"] == 1


def test_points_that_fit_are_answered_and_the_others_named(cli: Cli, engine: str) -> None:
    outcome = cli(
        "recommend", "llama-3.1-8b", "--drafter", "none", "--context", "8k", "--batch", "1,53,54",
        "--engine", engine, *JSON,
    )  # fmt: skip
    assert [point["batch"] for point in outcome.data()["points"]] == [1, 53]
    (refused,) = outcome.data()["refused"]
    assert (refused["batch"], refused["context"], refused["largest_batch"]) == (54, 8192, 53)
    assert refused["needed_bytes"] > refused["available_bytes"]
    assert outcome.data()["warnings"] == []


def test_the_drafter_takes_memory_too(cli: Cli, engine: str) -> None:
    """Beside the head (849,379,328 B) and its KV (4,096 B a token) fewer sequences fit.

    At D = 8: (58,049,960,831 - 849,379,328) / (135,168 x 8208 + 9 x 769,536) = 51.2; at D = 1:
    51.5. So 51 sequences may draft, and 52 can only decode plainly.
    """
    base = ("recommend", "llama-3.1-8b", "--context", "8k", "--drafter", "eagle3")
    more = ("--acceptance", "0.7", "--engine", engine, *JSON)
    assert list(cli(*base, "--batch", "51", *more).by_draft_length()) == list(range(9))
    outcome = cli(*base, "--batch", "52", *more)
    assert list(outcome.by_draft_length()) == [0]
    assert outcome.point()["draft_length"] == 0
    assert any("do not fit" in text for text in outcome.data()["warnings"])


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_an_answer_without_room_for_drafts_prints(cli: Cli, engine: str, form: str) -> None:
    outcome = cli(
        "recommend", "llama-3.1-8b", "--context", "8k", "--drafter", "eagle3", "--batch", "52",
        "--acceptance", "0.7", "--engine", engine, "--format", form,
    )  # fmt: skip
    assert outcome.code == 0
    assert outcome.out


def test_longer_drafts_take_more_logits(cli: Cli, engine: str) -> None:
    """RTX 4090, n-gram, batch 32 at 1k: 4,445,547,751 / 32 - 136,314,880 is 3.4 rows of logits."""
    rows = cli(
        "recommend", "llama-3.1-8b", "--gpu", "rtx-4090", "--context", "1k", "--batch", "32",
        "--drafter", "ngram", "--acceptance", "0.9", "--engine", engine, *JSON,
    ).by_draft_length()  # fmt: skip
    assert list(rows) == [0, 1, 2]


@pytest.mark.parametrize(("gpu", "basis"), [("h100-sxm", "process"), ("mi325x", "datasheet")])
def test_the_basis_of_the_bytes_is_stated(cli: Cli, gpu: str, basis: str) -> None:
    """What a process sees where the profile has it, else the datasheet's capacity."""
    data = cli("recommend", "llama-3.1-8b", "--gpu", gpu, *JSON).data()
    (memory,) = [p for p in data["provenance"] if p["what"] == "memory size"]
    assert basis in memory["source"]
