"""A point that does not fit stands in the answer, with changes that make it fit."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest

from tests.support import Cli, assert_refused

SHARE = ("--memory-fraction", "0.9")  # that all figures here were worked out with
ASK = (
    *("llama-3.1-70b", *SHARE, "--gpu", "h100-sxm", "--tp", "4", "--weights", "fp8"),
    *("--context", "8k"),
)
JSON = ("--format", "json")
#: Llama 3.1 70B (config.json): 80 layers of hidden size 8192 and MLP 28672, 8 KV heads of 128, a
#: vocabulary of 128256. H100: 0.9 x 79.11 GiB less 1.5 GB, 74.949 GB. Blocks of 16 tokens, chunks
#: of 8192.
GIB = 2**30
USABLE = 0.9 * 79.11 * GIB - 1.5e9
TOKENS, CHUNK, VOCABULARY = 8208, 8192, 128_256


def by_hand(*, tp: int, kv: float) -> int:
    """Return the largest batch on one rank, with layers in fp8 and the vocabulary's in bf16."""
    layers = 80 * (8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672)
    weights = (layers + 2 * 2 * VOCABULARY * 8192) / tp
    activations = CHUNK * (2 * 8192 + 3 * 28672 / tp) * 2
    sequence = TOKENS * 2 * 80 * max(8 // tp, 1) * 128 * kv + 6 * VOCABULARY
    return int((USABLE - weights - activations) / sequence)


def refused(cli: Cli, *arguments: str) -> list[Any]:
    found: list[Any] = cli(*arguments, *JSON).data()["refused"]
    return found


def test_the_refused_point_stands_beside_the_answer(cli: Cli) -> None:
    data = cli("recommend", *ASK, "--batch", "10,200", *JSON).data()
    assert [point["batch"] for point in data["points"]] == [10]
    (found,) = data["refused"]
    assert (found["batch"], found["context"], found["draft_length"]) == (200, 8192, 0)
    assert found["available_bytes"] == pytest.approx(USABLE)
    assert found["memory_of"] == "gpu"
    assert found["largest_batch"] == by_hand(tp=4, kv=2) == 83
    alone = [r for r in found["remedies"] if not r["beside"]]
    largest = {(r["option"], r["value"]): r["largest_batch"] for r in alone}
    assert largest["--kv", "fp8"] == by_hand(tp=4, kv=1) == 166
    assert largest["--tp", "8"] == by_hand(tp=8, kv=2) == 194
    assert largest["--context", "3k"] >= 200
    (together,) = (r for r in found["remedies"] if r["beside"])  # neither alone reaches 200
    assert (together["option"], together["value"]) == ("--tp", "8")
    assert together["beside"] == [{"option": "--kv", "value": "fp8"}]
    assert together["largest_batch"] == by_hand(tp=8, kv=1) == 387
    assert 0 < found["largest_batch_with_drafts"] < 83  # the drafter's weights and cache


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_text_says_what_is_missing_and_what_helps(cli: Cli, form: str) -> None:
    """The one rate brings a note: it overstates long drafts."""
    given = ("--acceptance", "0.7", "--batch", "10,200")
    outcome = cli("recommend", *ASK, *given, "--format", form, "--notes")
    assert outcome.code == 0
    said = " ".join(outcome.out.split())
    assert "Does not fit: batch 200 at 8k tokens needs 153 GB" in said
    assert "of each of the 4 GPUs, which have 74.9 GB usable of 84.9 GB" in said
    what_fits = (
        "221 with --context 3k, 166 with --kv fp8, 194 with --tp 8, 387 with --kv fp8 --tp 8."
    )
    assert "What fits without drafts: batch 83 as asked (" in said
    assert what_fits in said
    order = ("Run draft length", "Does not fit", "per step", "Why:", "Note:", "Assumed:")
    assert [said.index(word) for word in order] == sorted(said.index(word) for word in order)
    assert "batch 200" not in outcome.err


def test_csv_has_a_row_for_every_point_asked(cli: Cli) -> None:
    outcome = cli(
        "recommend", *ASK, "--acceptance", "0.7", "--batch", "10,83,200", "--format", "csv"
    )
    rows = list(csv.DictReader(outcome.out.splitlines()))
    assert [(row["batch"], row["draft_length"]) for row in rows] == [
        (batch, str(d)) for batch in ("10", "83", "200") for d in range(9)
    ]
    for row in rows:
        fits = float(row["memory_needed_bytes"]) <= float(row["memory_available_bytes"])
        assert row["fits"] == str(fits).lower()
        assert (row["step_ms"] != "") == (row["speedup"] != "") == fits
        assert fits or row["recommended"] == "false"
    # 83 sequences fit, but no head of 0.7 GB beside them: 83 take 74.66 of 74.95 GB
    assert [row["fits"] for row in rows] == ["true"] * 10 + ["false"] * 17


def test_many_refused_points_are_named_by_first_and_last(cli: Cli) -> None:
    """18.163 GB of weights, 0.621 of activations and by sequence 0.6732 GB at 8k, 2.6864 at 32k."""
    ask = (*ASK[:-1], "8k,32k", "--batch", "1..256")
    outcome = cli("recommend", *ask)
    said = " ".join(outcome.out.split())
    assert "Do not fit at context 8k: the 173 batches from 84 (75.3 GB) to 256 (" in said
    assert "Do not fit at context 32k: the 236 batches from 21 (75.2 GB) to 256 (" in said
    assert said.count("What fits") == 2
    assert len(refused(cli, "recommend", *ask)) == 173 + 236
    few = " ".join(cli("recommend", *ASK, "--batch", "10,90,100,200").out.split())
    assert "Do not fit at context 8k: batches 90 (79.4 GB), 100 (86.1 GB) and 200 (153 GB)." in few


LOCAL = (
    "qwen3-235b-a22b",
    "--gpu",
    "rtx-4090",
    "--engine",
    "llamacpp",
    "--weights",
    "q4_k_m",
    "--drafter",
    "ngram",
    "--acceptance",
    "0.6",
)


@pytest.mark.parametrize(
    ("ask", "options"),
    [
        ((*ASK, "--batch", "10,200"), {"--context", "--kv", "--tp"}),
        (("llama-3.1-8b", "--context", "128k", "--batch", "4,7"), {"--context", "--kv", "--tp"}),
        (("llama-3.1-70b", "--batch", "1"), {"--weights", "--tp"}),
        (("qwen3-32b", *LOCAL[1:5], "--batch", "1"), {"--weights", "--gpus"}),
        (("deepseek-v3", "--gpu", "h100-sxm", "--drafter", "none"), {"--tp"}),
        (
            ("gpt-oss-20b", *LOCAL[1:5], *LOCAL[7:], "--context", "32k", "--batch", "32"),
            {"--context", "--kv", "--cpu-experts", "--gpus"},
        ),
        ((*LOCAL, "--cpu-experts", "all"), {"--host"}),
        (
            (*LOCAL, "--cpu-experts", "70", "--host", "workstation-ddr5"),
            {"--cpu-experts", "--gpus"},
        ),
        (
            ("llama-3.1-70b", *LOCAL[1:], "--gpus", "2", "--tensor-split", "3,1"),
            {"--weights", "--tensor-split"},
        ),
    ],
)
def test_every_remedy_gives_the_batch_that_it_names(
    cli: Cli, ask: tuple[str, ...], options: set[str]
) -> None:
    """Asked with the change, the batch that is named fits and one more does not."""
    asked = dict(zip(ask[1::2], ask[2::2], strict=True))
    outcome = cli("recommend", *ask, "--format", "json")
    if outcome.code == 3:  # nothing fits: the remedies are in the line
        listed = outcome.err.split("nearest remedies: ")[1].split(", ")
        named = [part.rstrip(")\n").split(" (batch ") for part in listed if part[0] == "-"]
        changes = [[*change.split(), largest] for change, largest in named]
    else:
        (found,) = outcome.data()["refused"]
        changes = [
            [*(w for b in [*r["beside"], r] for w in (b["option"], b["value"])), r["largest_batch"]]
            for r in found["remedies"]
        ]
    assert {change[-3] for change in changes} == options
    for *words_now, largest in changes:
        asked_now = asked | dict(zip(words_now[::2], words_now[1::2], strict=True))
        words = [word for pair in (asked_now | {"--batch": str(largest)}).items() for word in pair]
        assert cli("recommend", ask[0], *words).code == 0, words_now
        words[words.index("--batch") + 1] = str(int(largest) + 1)
        assert cli("recommend", ask[0], *words).code == 3, words_now


@pytest.mark.parametrize(
    ("share", "offered"), [("0.9", "--tp 2 (batch 5)"), ("0.85", "--tp 4 (batch 103)")]
)
def test_not_even_one_sequence_fits(cli: Cli, share: str, offered: str) -> None:
    """141 GB of weights in bf16 are more than an H100 holds. A half fits in 0.9 of it, not in 0.85.

    On each of two: (74.95 - 70.55 - 0.97 GB) / (4112 slots x 163,840 B + 0.77 MB) = 5.07 sequences.
    0.85 x 84.94 - 1.5 = 70.70 GB. On each of four: (70.70 - 35.28 - 0.62) / (0.3368 + 0.0008): 103.
    """
    ask = ("recommend", "llama-3.1-70b", "--memory-fraction", share)
    line = assert_refused(cli(*ask), "141 GB of weights", code=3)
    assert "not even one sequence fits; nearest remedies" in line
    assert line.rstrip().endswith(offered)


#: Qwen3-32B (config.json): 32.76 B weights, of which 31.2 B in layers and 2 x 0.778 B at the ends.
LAYERS, END = 31.206e9, 151_936 * 5_120


@pytest.mark.parametrize(
    ("gpu", "capacity", "widest"),
    [
        ("rtx-4090", 23.64 * GIB, "q5_k_m"),
        ("rtx-5090", 31.37 * GIB, "q6_k"),
        ("rtx-3090", 23.70 * GIB, "q5_k_m"),
        ("l4", 24e9, "q4_k_m"),
    ],
)
def test_the_widest_format_that_fits_is_named(
    cli: Cli, gpu: str, capacity: float, widest: str
) -> None:
    """By hand: weights alone, by bits of llama.cpp's table, a head of at least 6.5625 bits."""
    bits = {"q8_0": 8.5, "q6_k": 6.5625, "q5_k_m": 5.7036, "q4_k_m": 4.8944, "q3_k_m": 3.996}
    room = capacity - 0.5e9 - 1.3e9  # what llama.cpp leaves free; a cache of 4k and activations
    fitting = [
        name
        for name, width in bits.items()
        if ((LAYERS + END) * width + END * max(width, 6.5625)) / 8 <= room
    ]
    assert fitting[0] == widest
    ask = ("recommend", "qwen3-32b", "--gpu", gpu, "--engine", "llamacpp")
    line = assert_refused(cli(*ask), "not even one sequence fits", code=3)
    assert f"nearest remedies: --weights {widest} (batch" in line
    assert "--gpus 2" in line
    assert "--tp" not in line
    assert cli(*ask, "--weights", widest).code == 0


def test_a_goal_leaves_out_batches_that_nobody_asked_for(cli: Cli) -> None:
    goal = ("recommend", *ASK, "--slo-tpot", "20")
    assert refused(cli, *goal) == []
    (found,) = refused(cli, *goal, "--batch", "10,200")
    assert found["batch"] == 200


def test_other_contexts_are_accounted_for(cli: Cli) -> None:
    """At 128k 74.9 GB hold 3 sequences of an 8B model beside its weights, at 1k any 4."""
    ask = ("memory", "llama-3.1-8b", "--drafter", "none", "--batch", "4", "--context", "1k,128k")
    data = cli(*ask, *JSON).data()
    assert [found["context"] for found in data["contexts"]] == [1024]
    (found,) = data["refused"]
    assert (found["batch"], found["context"], found["largest_batch"]) == (4, 131072, 3)
    assert "Does not fit: batch 4 at 128k tokens" in " ".join(cli(*ask).out.split())
    assert_refused(cli(*ask[:-1], "128k"), "batch 4 at 128k tokens", code=3)


def test_a_comparison_names_what_it_leaves_out(cli: Cli) -> None:
    ask = (
        "compare",
        *ASK,
        "--batch",
        "10,200",
        "--drafter",
        "eagle3=0.7",
        "--drafter",
        "ngram=0.3",
    )
    data = cli(*ask, *JSON).data()
    assert [point["batch"] for point in data["points"]] == [10]
    assert data["refused"] == refused(cli, "recommend", *ASK, "--batch", "10,200")
    for form in ("table", "markdown"):
        said = " ".join(cli(*ask, "--format", form).out.split())
        assert "Does not fit: batch 200 at 8k tokens needs 153 GB" in said
    rows = list(csv.DictReader(cli(*ask, "--format", "csv").out.splitlines()))
    assert [(row["batch"], row["fits"]) for row in rows] == [("10", "true")] * 2 + [
        ("200", "false")
    ] * 2
    assert {row["drafter"] for row in rows[2:]} == {"llama-3.1-70b-eagle3", "ngram"}
    assert all(row["speedup"] == "" for row in rows[2:])


def test_a_variant_that_does_not_fit_says_why(cli: Cli) -> None:
    """Of 80 layers' weights in fp8 half fit an H100 with room for caches."""
    ask = ("explore", "llama-3.1-70b", "--weights", "fp8", "--acceptance", "0.7", *SHARE)
    data = cli(*ask, "--vary", "layers=40,80", *JSON).data()
    fits, lost = data["variants"]
    assert fits["refused"] == []
    (found,) = lost["refused"]
    assert (found["batch"], found["largest_batch"]) == (1, 0)
    assert found["needed_bytes"] > USABLE
    said = " ".join(cli(*ask, "--vary", "layers=40,80").out.split())
    assert "layers = 80: Does not fit: batch 1 at 4k tokens needs" in said
    rows = list(
        csv.DictReader(cli(*ask, "--vary", "layers=40,80", "--format", "csv").out.splitlines())
    )
    assert [row["fits"] for row in rows] == ["true", "false"]


@pytest.mark.parametrize("acceptance", ["al:2=2.0,3=2.5", "0.7"])
def test_a_schedule_ends_where_the_memory_does(cli: Cli, acceptance: str) -> None:
    """Whatever batches are listed, no band reaches a batch that does not fit beside the drafter."""
    base = ("llama-3.1-70b", *ASK[1:-2], "--acceptance", acceptance)
    length = "1" if acceptance == "0.7" else "2"
    held = cli("memory", *base, "--context", "8k", "--draft-length", length, *JSON).data()
    largest = held["contexts"][0]["largest_batch_speculative"]
    for batches in ("1..256", "10,200", "60,100", f"{largest},{largest + 1}"):
        data = cli("schedule", *base, "--contexts", "8k", "--batches", batches, *JSON).data()
        assert max(band["batch_end"] for band in data["bands"]) <= largest
        (found,) = data["refused"]
        assert found["batch"] > largest
        assert any(f"batches from {found['batch']} on do not fit" in w for w in data["warnings"])
    several = (
        "schedule",
        *base,
        "--contexts",
        "8k,32k",
        "--batches",
        "1..256",
        "--proposed",
        *JSON,
    )
    data = cli(*several).data()
    far = {band["batch_end"] for band in data["bands"] if band["context"] == [32768]}
    (found,) = [each for each in data["refused"] if each["context"] == 32768]
    assert max(far) == found["batch"] - 1 < largest


UNLINKED = (
    "llama-3.1-70b --gpu rtx-4090 --engine llamacpp --weights q4_k_m --gpus 2 "
    "--drafter llama-3.2-1b --acceptance 0.6"
)


@pytest.mark.parametrize(
    "ask",
    [
        "recommend llama-3.1-70b --tp 4 --weights fp8 --batch 200 --context 8k",
        f"recommend {UNLINKED} --batch 40 --context 2k",
        f"schedule {UNLINKED} --batches 40 --contexts 2k",
    ],
)
def test_the_parts_of_what_is_needed_add_up(cli: Cli, ask: str) -> None:
    """All of them are those of the fullest GPU; each is rounded to three digits."""
    line = assert_refused(cli(*ask.split()), code=3)
    held = re.search(r"needs .*?\((.*?)\)", line)
    assert held is not None
    total = 0.0
    for part in held[1].split(", "):
        count, size, unit = re.findall(r"^(?:(\d+) x )?([\d.]+) ([GM]B)", part)[0]
        total += int(count or 1) * float(size) * (1 if unit == "GB" else 1e-3)
    assert total == pytest.approx(float(line.split("needs ")[1].split()[0]), rel=5e-3)


def test_a_goal_names_every_context_that_it_leaves_out(cli: Cli) -> None:
    """0.55 x 84.9 - 1.5 = 45.2 GB less 35.3 of weights and 0.6 of activations: 128k need 10.7 GB.

    A token takes 81,920 B of KV on each of 4 GPUs (80 layers x 2 heads x 256 x 2 B).
    """
    tight = ("llama-3.1-70b", "--tp", "4", "--memory-fraction", "0.55", "--acceptance", "0.7")
    ask = ("recommend", *tight, "--context", "2k,32k,128k", "--objective", "latency", *JSON)
    data = cli(*ask).data()
    assert [choice["context"] for choice in data["goal"]["choices"]] == [2048, 32768]
    (found,) = data["refused"]
    assert (found["batch"], found["context"], found["largest_batch"]) == (1, 131072, 0)
    # what takes long at 32k is out of reach there alone
    paces = [choice["sure_tpot_ms"] for choice in data["goal"]["choices"]]
    goal = ("--slo-tpot", f"{sum(paces) / 2:.3f}")
    limited = cli(*ask[:-4], *goal, *JSON).data()
    assert [choice["context"] for choice in limited["goal"]["choices"]] == [2048]
    (line,) = [text for text in limited["warnings"] if text.startswith("context 32768: --slo-tpot")]
    fastest = float(line.split("the fastest is ")[1].split()[0])
    assert fastest == pytest.approx(paces[1], rel=0.01)  # of batches within 1 % the first is chosen


@pytest.mark.parametrize("command", ["recommend", "memory", "schedule"])
def test_a_share_of_memory_that_leaves_nothing_is_refused(cli: Cli, command: str) -> None:
    """1 % of 84.9 GB is 0.8 GB, less than the 1.5 GB that vLLM keeps for itself."""
    outcome = cli(command, "llama-3.1-8b", "--memory-fraction", "0.01")
    assert_refused(outcome, "--memory-fraction 0.01", "84.9 GB", "larger share")


@pytest.mark.parametrize(
    ("batch", "context", "offered"),
    [
        (83, "512", "--context 384 (batch 83)"),
        (63, "528", "--context 384"),  # 512 would fit too, 3 % fewer
    ],
)
def test_a_shorter_context_is_a_round_number_and_much_shorter(
    cli: Cli, batch: int, context: str, offered: str
) -> None:
    """Blocks of 16 slots are padded: one token less may free one of them, which helps nobody.

    0.9 x 23.64 GiB - 1.5 GB less 16.06 of weights and 0.84 of activations are 4.446 GB. Slots of
    131,072 B and 0.77 MB of logits: 83.6 sequences of 400 slots (context 384), 63.5 of 528 (512),
    61.7 of 544 (528).
    """
    asked = ("recommend", "llama-3.1-8b", "--gpu", "rtx-4090", "--batch", str(batch), *SHARE)
    assert_refused(cli(*asked, "--context", context), offered, code=3)
