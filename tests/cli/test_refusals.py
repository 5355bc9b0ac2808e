"""Refused questions: values out of range, options without effect or in conflict, odd loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.published import CONFIGS
from tests.support import Cli, assert_refused, write

MODEL = "llama-3.1-8b"
LLAMA = ("recommend", MODEL)
LOAD = ("--input-tokens", "1k", "--output-tokens", "100")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--routing-skew", "5"), "--routing-skew 5: expected 0 (uniform) to 4"),
        (("--routing-correlation", "1.5"), "--routing-correlation 1.5: expected 0 to 1"),
        (("--weights", "bf16", "--activations", "fp8"), "fp8"),
        (("--set", "group_size"), "PATH=VALUE"),
    ],
)
def test_values_out_of_range(cli: Cli, flags: tuple[str, ...], words: str) -> None:
    assert_refused(cli(*LLAMA, *flags), words)


def test_one_of_the_two_routing_numbers_keeps_the_other(cli: Cli) -> None:
    """Uniform routing wakes E (1 - (1 - k / E)^T) experts; a skew wakes fewer of them."""
    ask = (
        "recommend", "qwen3-30b-a3b", "--gpu", "h200-sxm", "--batch", "16", "--drafter", "ngram",
        "--acceptance", "0.6", "--format", "json",
    )  # fmt: skip
    skewed = cli(*ask, "--routing-skew", "0").point()
    usual = cli(*ask, "--routing-correlation", "0").point()
    assert skewed["by_draft_length"][0]["step_ms"] > usual["by_draft_length"][0]["step_ms"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"batch,share\n8\n", "batch,share"),
        (b"batch,share\n8,much\n", "8:much"),
        (b"\xff\xfe", "CSV"),
        (b"batch,share\n", "batch,share"),
    ],
)
def test_malformed_histograms_are_refused(
    cli: Cli, tmp_path: Path, text: bytes, words: str
) -> None:
    file = tmp_path / "histogram.csv"
    file.write_bytes(text)
    assert_refused(cli(*LLAMA, "--batches-histogram", str(file), *LOAD), words)


def test_a_histogram_with_or_without_a_heading(cli: Cli, tmp_path: Path) -> None:
    answers = []
    for name, text in (("with", "batch,share\n1,0.5\n8,0.5\n"), ("without", "1,0.5\n8,0.5\n")):
        file = tmp_path / f"{name}.csv"
        file.write_text(text, encoding="utf-8")
        answers.append(cli(*LLAMA, "--batches-histogram", str(file), *LOAD, "--format", "csv").out)
    assert answers[0] == answers[1] != ""


def test_a_load_that_does_not_fit_says_what_would(cli: Cli) -> None:
    """Llama-3.1-70B in bf16 is 141 GB: too much for one H100, of which a process sees 84.9 GB."""
    answer = cli("recommend", "llama-3.1-70b", "--rps", "1", *LOAD)
    assert answer.code == 3
    assert answer.out == ""
    assert "fit" in answer.err


@pytest.mark.parametrize(
    ("change", "bounds"),
    [
        ("gpu.memory.bandwidth=1e-300 TB/s", "1 MB/s to 1000 PB/s"),
        ("gpu.memory.bandwidth=1e9 TB/s", "1 MB/s to 1000 PB/s"),
        ("gpu.memory.capacity=1e30 GB", "1 B to 1000 PB"),
        ("gpu.compute.peaks.bf16=1e-9 FLOP/s", "1 MFLOP/s to"),
        ("engine.overhead.per_step=1e9 s", "0 s to 10000 s"),
    ],
)
def test_magnitudes_that_no_datasheet_has(cli: Cli, change: str, bounds: str) -> None:
    assert_refused(cli("recommend", MODEL, "--set", change), change.partition("=")[0], bounds)


@pytest.mark.parametrize("change", ["gpu.memory.bandwidth=40 TB/s", "engine.overhead.per_step=0 s"])
def test_daring_magnitudes_pass(cli: Cli, change: str) -> None:
    assert cli("recommend", MODEL, "--set", change).code == 0


def test_a_request_has_a_prompt(cli: Cli) -> None:
    load = ("--rps", "1", "--input-tokens", "0", "--output-tokens", "100")
    assert_refused(cli("recommend", MODEL, *load), "--input-tokens 0: expected at least 1")


@pytest.mark.parametrize("one", [("--tpot", "5ms"), ("--tokens-per-s", "200")])
def test_one_measurement_or_several(cli: Cli, one: tuple[str, ...]) -> None:
    """``--tpot`` is one measurement instead."""
    outcome = cli("diagnose", MODEL, *one, "--measured", "0@8:5ms")
    assert_refused(outcome, "--tpot", "--measured")


@pytest.mark.parametrize("measured", ["0:7ms,0:7.5ms", "0@1x4k:7ms,0:7ms"])
def test_a_load_measured_twice(cli: Cli, measured: str) -> None:
    outcome = cli("diagnose", MODEL, "--measured", measured)
    assert_refused(outcome, "--measured: 0@1x4096 is given twice")


def test_a_target_where_none_is_needed(cli: Cli, tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "Qwen--Qwen3-8B.json").read_text("utf-8"))
    path = write(tmp_path, "config.json", json.dumps(config))
    for command in ("check", "import"):
        refused = cli("models", command, path, "--target", MODEL)
        assert_refused(refused, f"--target {MODEL}: says nothing here", "is a whole model")
    bundled = cli("models", "check", "llama-3.1-8b-eagle3", "--target", MODEL)
    assert_refused(bundled, f"--target {MODEL}: says nothing here", "names its own")


MODEL = "llama-3.1-8b"
DSPARK = ("qwen3-8b", "--drafter", "dspark", "--acceptance", "0.9")


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ("--drafter none --acceptance 0.7", "--acceptance"),
        ("--drafter none --acceptance-rounds 100", "--acceptance-rounds"),
        ("--drafter none --draft-tp 1", "--draft-tp"),
        ("--drafter none --draft-weights fp8", "--draft-weights"),
        ("--drafter none --draft-block 8", "--draft-block"),
        ("--drafter none --verify-width 8", "--verify-width"),
        ("--drafter none --first-pass-rows 2", "--first-pass-rows"),
        ("--drafter ngram --acceptance 0.5 --draft-weights fp8", "--draft-weights"),
        ("--drafter ngram --acceptance 0.5 --draft-tp 1", "--draft-tp"),
        ("--drafter ngram --acceptance 0.5 --draft-block 4", "--draft-block"),
        ("--drafter suffix --acceptance 0.5 --draft-weights fp8", "--draft-weights"),
        ("--draft-block 4", "--draft-block"),  # the bundled EAGLE-3 head
        ("--drafter llama-3.2-1b --acceptance 0.7 --draft-block 4", "--draft-block"),
    ],
)
def test_options_without_effect_on_the_drafter_are_refused(
    cli: Cli, options: str, flag: str
) -> None:
    assert_refused(cli("recommend", MODEL, *options.split()), f"{flag}: says nothing")


def test_options_with_effect_are_accepted(cli: Cli) -> None:
    """A block that dspark has, a tree that a draft model's tokens are verified in."""
    assert cli("recommend", *DSPARK, "--draft-block", "8").code == 0
    tree = ("--engine", "sglang", "--verify-width", "8", "--tree-topk", "4")
    assert cli("recommend", MODEL, "--drafter", "llama-3.2-1b", *tree).code == 0


def test_options_for_several_drafters_are_for_those_that_have_them(cli: Cli) -> None:
    """Side by side, or multiplied out in a grid, one of the drafters need not have the option."""
    both = ("--drafter", "dspark=0.8", "--drafter", "eagle3=0.7", "--draft-block", "8")
    assert cli("compare", "qwen3-8b", *both).code == 0
    alone = cli("compare", "qwen3-8b", *both[2:])
    assert_refused(alone, "--draft-block: says nothing for eagle3")
    grid = ("--drafter", "none,ngram", "--acceptance", "0.7", "--draft-weights", "fp8")
    rows = cli("sweep", MODEL, *grid, "--max-draft-length", "1", "--format", "csv").out.splitlines()
    reason = rows[0].split(",").index("reason")
    assert [row.split(",")[reason] for row in rows[1:]] == ["", "", ""]


@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_a_diagnosis_of_plain_steps_needs_no_drafter(cli: Cli, drafter: str) -> None:
    asked = ("diagnose", MODEL, "--measured", "0:7ms", "--draft-weights", "fp8")
    assert cli(*asked).code == 0
    assert_refused(cli(*asked, "--drafter", drafter), "--draft-weights: says nothing")


@pytest.mark.parametrize(
    ("options", "longest", "why"),
    [
        # rows 1 + D <= 3; dspark's block holds what it drafts
        (
            (
                *(MODEL, "--engine", "sglang", "--verify-width", "3", "--tree-topk", "4"),
                *("--acceptance", "0.7"),
            ),
            2,
            "--verify-width 3 has no row",
        ),
        ((*DSPARK, "--draft-block", "4"), 4, "--draft-block 4 ends there"),
        ((*DSPARK, "--max-draft-length", "16"), 7, "qwen3-8b-dspark drafts no more at once"),
        ((*DSPARK, "--max-draft-length", "2"), 2, "raise --max-draft-length to look further"),
        (
            (
                "qwen3-8b",
                "--drafter",
                "peagle",
                "--acceptance",
                "al:1.9,2.7",
            ),  # nothing continues it
            2,
            "the acceptance given ends there",
        ),
    ],
)
def test_the_option_that_ends_the_search_is_named(
    cli: Cli, options: tuple[str, ...], longest: int, why: str
) -> None:
    data = cli("recommend", *options, "--format", "json").data()
    assert f"the longest one tried ({longest}): {why}" in " ".join(data["warnings"])


def test_memory_for_a_draft_length_that_contradicts(cli: Cli) -> None:
    none = cli("memory", MODEL, "--drafter", "none", "--draft-length", "3")
    assert_refused(none, "--draft-length 3: says nothing with --drafter none")
    over = cli("memory", MODEL, "--draft-length", "3", "--max-draft-length", "2")
    assert_refused(over, "--draft-length 3", "--max-draft-length 2")
    nine = cli("memory", MODEL, "--draft-length", "9", "--acceptance", "0.7")
    assert nine.code == 0  # above what is looked at unasked


@pytest.mark.parametrize(
    "command",
    [
        ("memory", MODEL),
        ("plot", "roofline", MODEL, "--data", "FILE"),
        ("explore", MODEL, "--vary", "group_size=1,2"),
        ("recommend", MODEL),
    ],
)
@pytest.mark.parametrize("option", [("--acceptance", "0.7"), ("--acceptance-rounds", "9")])
def test_no_command_takes_acceptance_where_nothing_is_drafted(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], option: tuple[str, ...]
) -> None:
    asked = (word.replace("FILE", str(tmp_path / "a.csv")) for word in command)
    outcome = cli(*asked, "--drafter", "none", *option)
    taken = option[0] == "--acceptance" or command[0] == "recommend"
    assert_refused(outcome, f"{option[0]}: {'says nothing' if taken else 'roofline'}")


@pytest.mark.parametrize("name", ["2xh100", "2x3090", "2 x rtx-3090", "2x 4090"])
def test_a_number_of_gpus_is_told_apart_from_their_name(cli: Cli, name: str) -> None:
    assert_refused(cli(*LLAMA, "--gpu", name), "name the GPU alone, and their number as --tp 2")


def test_a_number_in_front_of_no_name_is_none(cli: Cli) -> None:
    line = assert_refused(cli("recommend", "8x7b"), "unknown model '8x7b'")
    assert "--tp" not in line
