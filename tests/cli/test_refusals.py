"""Refusals that need a question of their own: loads, routing, formats, servers, overrides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Cli, assert_refused

LLAMA = ("recommend", "llama-3.1-8b")
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
def test_histograms_that_are_none(cli: Cli, tmp_path: Path, text: bytes, words: str) -> None:
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
    """Llama-3.1-70B in bf16 is 141 GB: nothing of it fits one GPU of 80 GB."""
    answer = cli("recommend", "llama-3.1-70b", "--rps", "1", *LOAD)
    assert answer.code == 3
    assert answer.out == ""
    assert "fit" in answer.err
