"""Tokens per step: one rate, rates by position, measured curves, gaps, extrapolation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from roofline.acceptance import tokens_per_step
from roofline.acceptance.forms import parse_acceptance
from tests.support import Cli, assert_refused, write


def at(text: str, draft_length: int) -> float:
    curve = parse_acceptance(text)
    return float(curve.tokens_per_step([draft_length])[0])


@pytest.mark.parametrize(
    ("rate", "draft", "expected"),
    [
        # Leviathan et al. 2023, Eq. (1): (1 - a^(D+1)) / (1 - a), worked by hand
        (0.7, 4, 2.7731),  # (1 - 0.16807) / 0.3
        (0.8, 3, 2.952),  # (1 - 0.4096) / 0.2
        (0.5, 1, 1.5),
        (0.0, 5, 1.0),
        (1.0, 5, 6.0),
    ],
)
def test_one_rate(rate: float, draft: int, expected: float) -> None:
    assert at(str(rate), draft) == pytest.approx(expected, abs=1e-9)


def test_one_rate_holds_at_any_depth() -> None:
    """At 0.8 and D = 8: (1 - 0.8^9) / 0.2 with 0.8^9 = 0.134217728."""
    assert at("0.8", 8) == pytest.approx(4.32891136, abs=1e-9)


def test_conditional_rates() -> None:
    """1 + 0.8 + 0.8 x 0.7 + 0.8 x 0.7 x 0.6 = 1, 1.8, 2.36, 2.696."""
    curve = parse_acceptance("conditional:0.8,0.7,0.6").tokens_per_step([0, 1, 2, 3])
    np.testing.assert_allclose(curve, [1, 1.8, 2.36, 2.696], rtol=1e-12)


def test_against_brute_force() -> None:
    """Enumerate the 2^4 outcomes of four drafts; a step emits the accepted run and one more."""
    rates = [0.9, 0.6, 0.35, 0.8]
    expected = 0.0
    for outcome in range(16):
        bits = [bool(outcome >> i & 1) for i in range(4)]
        chance = math.prod(a if ok else 1 - a for a, ok in zip(rates, bits, strict=True))
        run = bits.index(False) if False in bits else 4
        expected += chance * (run + 1)
    assert tokens_per_step(rates)[4] == pytest.approx(expected)


def test_a_measured_curve_is_taken_as_it_is() -> None:
    assert [at("al:1.84,2.45,2.87", d) for d in (0, 1, 2, 3)] == [1, 1.84, 2.45, 2.87]


def test_a_curve_may_fall(cli: Cli) -> None:
    """The issue: 3.77 then 3.73 is data, not an error."""
    rows = cli(
        "recommend", "llama-3.1-8b", "--acceptance", "al:4=3.77,5=3.73", "--format", "json"
    ).by_draft_length()
    assert rows[4]["tokens_per_step"] == 3.77
    assert rows[5]["tokens_per_step"] == 3.73


@pytest.mark.parametrize("text", ["conditional:0.8,0.7,0.6", "al:1.84,2.45,2.87"])
def test_a_curve_that_ends_early_is_continued_and_marked(cli: Cli, text: str) -> None:
    """AL goes on to grow, each draft by no more than the one before it."""
    answer = cli("recommend", "llama-3.1-8b", "--acceptance", text, "--format", "json")
    tokens = [row["tokens_per_step"] for row in answer.by_draft_length().values()]
    known = parse_acceptance(text).tokens_per_step(range(4)).tolist()
    assert tokens[:4] == pytest.approx(known)
    gains = np.diff(tokens)
    assert (gains > 0).all()
    assert (np.diff(gains[2:]) <= 0).all()
    assert answer.data()["acceptance"]["continued_from"] == 3
    assert "ends at D = 3; D = 4 to 8 are what public runs" in answer.said


def test_going_beyond_by_an_option_is_gone(cli: Cli) -> None:
    refused = cli("recommend", "llama-3.1-8b", "--acceptance", "al:1=1.8", "--extrapolate")
    assert_refused(refused, "--extrapolate: is gone: a curve that ends early is continued")


def test_the_limit_defaults_to_eight(cli: Cli) -> None:
    rows = cli("recommend", "llama-3.1-8b", "--acceptance", "0.8", "--format", "json")
    assert list(rows.by_draft_length()) == list(range(9))


def test_a_file_of_each_kind(cli: Cli, tmp_path: Path) -> None:
    """The same three forms as on the command line; 0.9 alone gives 1 + 0.9 + 0.81 at D = 2."""
    head = "schema: 1\nsource: invented for a test\n"
    bodies = {
        "rate": ("rate: 0.9", 2.71),
        "vector": ("conditional: [0.9, 0.5]", 2.35),
        "curve": ("tokens_per_step: {2: 2.5}", 2.5),
    }
    for name, (body, expected) in bodies.items():
        path = write(tmp_path, f"{name}.yaml", head + body + "\n")
        answer = cli("recommend", "llama-3.1-8b", "--acceptance", path, "--format", "json")
        assert answer.by_draft_length()[2]["tokens_per_step"] == pytest.approx(expected), name


def test_a_vector_of_one_is_no_rate_for_every_depth(tmp_path: Path) -> None:
    """Beyond the length of a vector D is unknown, and this vector has length 1."""
    text = "schema: 1\nsource: invented\nconditional: [0.8]\n"
    path = write(tmp_path, "one.yaml", text)
    assert at(path, 1) == pytest.approx(1.8)
    assert math.isnan(at(path, 2))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("rate: 1.2", ("rate",)),
        ("rate: -0.1", ("rate",)),
        ("rate: true", ("rate",)),
        ("rate: .nan", ("rate",)),
        ("rate: '0.8'", ("rate",)),
        ("conditional: [0.8, 1.01]", ("conditional",)),
        ("conditional: []", ("conditional",)),
        ("tokens_per_step: {1: 2.1}", ("tokens_per_step", "D=1")),
        ("tokens_per_step: {3: 0.9}", ("tokens_per_step", "D=3")),
        ("tokens_per_step: {0: 1}", ("tokens_per_step",)),
        ("tokens_per_step: {1.5: 1.2}", ("tokens_per_step",)),
        ("tokens_per_step: {}", ("tokens_per_step",)),
        ("tokens_per_step: {1: 1e999}", ("tokens_per_step",)),
        ("tokens_per_step: {2: 2.3, 02: 2.9}", ("tokens_per_step",)),
        ("rate: 0.8\nconditional: [0.8]", ("exactly one",)),
        ("note: nothing else", ("exactly one",)),
        ("rates: 0.8", ("rates", "did you mean")),
    ],
)
def test_bad_files(cli: Cli, tmp_path: Path, body: str, words: tuple[str, ...]) -> None:
    path = write(tmp_path, "bad.yaml", f"schema: 1\nsource: invented\n{body}\n")
    outcome = cli("recommend", "llama-3.1-8b", "--acceptance", path)
    assert_refused(outcome, "bad.yaml", *words)
