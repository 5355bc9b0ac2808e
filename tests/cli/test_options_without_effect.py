"""Options that would change nothing are refused, and the option that ends a search is named."""

from __future__ import annotations

import pytest

from tests.support import Cli, assert_refused

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
def test_what_says_nothing_for_the_drafter(cli: Cli, options: str, flag: str) -> None:
    assert_refused(cli("recommend", MODEL, *options.split()), f"{flag}: says nothing")


def test_the_same_options_where_they_say_something(cli: Cli) -> None:
    """A block that dspark has, a tree that n-grams are verified in."""
    assert cli("recommend", *DSPARK, "--draft-block", "8").code == 0
    ngram = ("--drafter", "ngram", "--acceptance", "0.5", "--verify-width", "8")
    assert cli("recommend", MODEL, *ngram).code == 0


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
        ((MODEL, "--verify-width", "3", "--acceptance", "0.7"), 2, "--verify-width 3 has no row"),
        ((*DSPARK, "--draft-block", "4"), 4, "--draft-block 4 ends there"),
        ((*DSPARK, "--max-draft-length", "16"), 7, "qwen3-8b-dspark drafts no more at once"),
        ((*DSPARK, "--max-draft-length", "2"), 2, "raise --max-draft-length to look further"),
        ((MODEL, "--acceptance", "al:1.9,2.7"), 2, "the acceptance given ends there"),
    ],
)
def test_what_ends_the_search_is_named(
    cli: Cli, options: tuple[str, ...], longest: int, why: str
) -> None:
    said = cli("recommend", *options)
    assert said.code == 0
    assert f"the longest one tried ({longest}): {why}" in said.err


def test_memory_for_a_draft_length_that_contradicts(cli: Cli) -> None:
    none = cli("memory", MODEL, "--drafter", "none", "--draft-length", "3")
    assert_refused(none, "--draft-length 3: says nothing with --drafter none")
    over = cli("memory", MODEL, "--draft-length", "3", "--max-draft-length", "2")
    assert_refused(over, "--draft-length 3", "--max-draft-length 2")
    nine = cli("memory", MODEL, "--draft-length", "9", "--acceptance", "0.7")
    assert nine.code == 0  # above what is looked at unasked
