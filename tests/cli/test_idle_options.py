"""An option that cannot act on the question is told, or refused where it contradicts another."""

from __future__ import annotations

import pytest

from tests.support import Cli, assert_refused

DENSE = ("recommend", "llama-3.1-8b", "--acceptance", "0.7")
MIXTURE = ("recommend", "qwen3-30b-a3b", "--acceptance", "0.7")
HYBRID = ("recommend", "qwen3.5-27b", "--acceptance", "0.7", "--tp", "2")


def codes(cli: Cli, *words: str) -> dict[str, str]:
    notes = cli(*words, "--format", "json").data()["notes"]
    return {note["code"]: note["text"] for note in notes}


@pytest.mark.parametrize(
    ("asked", "options", "said"),
    [
        (DENSE, "--routing-skew 1.5", "--routing-skew acts on experts only; llama-3.1-8b has none"),
        (DENSE, "--routing-correlation 0.5", "--routing-correlation acts on experts only"),
        (DENSE, "--tp 2 --ep 2", "--ep acts on experts only"),
        (DENSE, "--state-handling replay", "--state-handling acts on recurrent states only"),
        (MIXTURE, "--state-handling replay", "--state-handling acts on recurrent states only"),
        (HYBRID, "--routing-skew 1.5", "qwen3.5-27b has none"),
        (
            ("recommend", "llama-3.1-8b", "--drafter", "none"),
            "--verify-attention tile",
            "--verify-attention acts on verify passes only; here nothing is drafted",
        ),
        (("memory", *DENSE[1:]), "--routing-skew 1.5", "acts on experts only"),
        (("schedule", *DENSE[1:]), "--routing-skew 1.5", "acts on experts only"),
        (("compare", "llama-3.1-8b"), "--routing-skew 1.5", "acts on experts only"),
    ],
)
def test_an_option_that_cannot_act_is_told(
    cli: Cli, asked: tuple[str, ...], options: str, said: str
) -> None:
    assert said in codes(cli, *asked, *options.split())["changes-nothing"]


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (MIXTURE, "--routing-skew 1.5"),
        (MIXTURE, "--tp 2 --ep 2"),
        (HYBRID, "--state-handling replay"),
        (DENSE, "--state-handling snapshots"),
        (DENSE, "--verify-attention tile"),
    ],
)
def test_an_option_that_acts_is_not(cli: Cli, asked: tuple[str, ...], options: str) -> None:
    assert "changes-nothing" not in codes(cli, *asked, *options.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("recommend llama-3.1-8b --short --explain", "--short and --explain: the headline alone"),
        ("schedule llama-3.1-8b --short --notes", "--short and --notes: the headline alone"),
        ("recommend llama-3.1-8b -q --notes --format csv", "--notes: go to stderr here"),
        ("sweep llama-3.1-8b -q --notes", "--notes: go to stderr here"),
        ("compare llama-3.1-8b --drafter ngram=0.4 --drafter llama-3.2-1b=0.6 --draft-block 4",
         "--draft-block: says nothing for any of these drafters"),
        ("compare llama-3.1-8b --drafter eagle3 --drafter llama-3.2-1b=0.6 --hit-rate 0.9",
         "--hit-rate: says nothing for any of these drafters"),
        ("memory llama-3.1-8b --hit-rate 0.9", "--hit-rate: says nothing of"),
    ],
)  # fmt: skip
def test_options_that_contradict_are_refused(cli: Cli, words: str, said: str) -> None:
    assert_refused(cli(*words.split()), said)


def test_notes_of_a_table_are_on_stdout_with_quiet(cli: Cli) -> None:
    outcome = cli(*DENSE, "-q", "--notes")
    assert "Assumed: " in outcome.out
    assert not outcome.err
