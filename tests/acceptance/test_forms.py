"""The forms in which people have acceptance, and what a refused one probably meant."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from roofline.acceptance import load_acceptance
from roofline.acceptance.curve import Acceptance, Definition
from roofline.acceptance.forms import parse_acceptance
from roofline.base.errors import InputError
from roofline.engines.acceptance_source import acceptance_from
from tests.support import Cli, assert_refused, write


@pytest.mark.parametrize(
    ("text", "definition", "curve"),
    [
        # vLLM's "Per-position acceptance rate: 0.720, 0.450, 0.210": 1 + .72 + .45 + .21
        ("survival:0.72,0.45,0.21", "survival", [1, 1.72, 2.17, 2.38]),
        ("survival: 0.720, 0.450, 0.210", "survival", [1, 1.72, 2.17, 2.38]),
        ("SURVIVAL:0.8,0.8", "survival", [1, 1.8, 2.6]),
        # 1 + .72 + .72 x .62 + .72 x .62 x .47
        ("conditional:0.72,0.62,0.47", "conditional", [1, 1.72, 2.1664, 2.376208]),
        ("conditional:0.5,0.6", "conditional", [1, 1.5, 1.8]),
        # the same rate at every position
        ("0.7", "one-rate", [1, 1.7, 2.19, 2.533, 2.7731]),
        # accepted over drafted: AL(3) = 1 + 3 x 0.54, AL(1) = 1 + 0.8
        ("rate:1=0.8,3=0.54", "rate", [1, 1.8, math.nan, 2.62]),
        ("rate:3=0.54", "rate", [1, math.nan, math.nan, 2.62]),
        ("al:3=2.31", "tokens_per_step", [1, math.nan, math.nan, 2.31]),
        ("al:1.84,2.45,2.87", "tokens_per_step", [1, 1.84, 2.45, 2.87]),
        # the older words
        ("pos:0.72,0.45", "survival", [1, 1.72, 2.17]),
        ("cond:0.72,0.45", "conditional", [1, 1.72, 2.044]),
    ],
)
def test_every_form(text: str, definition: str, curve: list[float]) -> None:
    made = parse_acceptance(text)
    assert made.definition.value == definition
    assert made.other_reading is None
    for length, expected in enumerate(curve):
        if not math.isnan(expected):
            assert made.tokens_per_step([length])[0] == pytest.approx(expected, rel=1e-12), length
    assert made.filled == {d for d, al in enumerate(curve) if math.isnan(al)}


def test_what_an_engine_prints_is_one_thing() -> None:
    """One vLLM log line: AL 2.38, positions 0.72, 0.45, 0.21, average rate 46.0 %, all D = 3."""
    by_position = parse_acceptance("survival:0.72,0.45,0.21").table[3]
    assert by_position == pytest.approx(parse_acceptance("al:3=2.38").table[3])
    assert by_position == pytest.approx(parse_acceptance("rate:3=0.46").table[3])
    conditional = f"conditional:0.72,{0.45 / 0.72},{0.21 / 0.45}"
    assert by_position == pytest.approx(parse_acceptance(conditional).table[3])


def test_the_forms_of_a_file(tmp_path: Path) -> None:
    """The same words as on the command line; in a file one rate has no word of its own."""
    for body, typed in (
        ("survival: [0.72, 0.45, 0.21]", "survival:0.72,0.45,0.21"),
        ("conditional: [0.72, 0.62]", "conditional:0.72,0.62"),
        ("rate: 0.7", "0.7"),
        ("rate: {1: 0.8, 3: 0.54}", "rate:1=0.8,3=0.54"),
        ("tokens_per_step: {3: 2.31}", "al:3=2.31"),
    ):
        path = write(tmp_path, "own.yaml", f"schema: 1\nsource: invented\n{body}\n")
        read, given = load_acceptance(path), parse_acceptance(typed)
        assert (read.definition, read.filled) == (given.definition, given.filled)
        np.testing.assert_allclose(
            read.tokens_per_step(range(5)), given.tokens_per_step(range(5)), equal_nan=True
        )


def test_decaying_rates_are_conditional(tmp_path: Path) -> None:
    body = "schema: 1\nsource: invented\ndecay: {first: 0.8, ratio: 0.9}\n"
    assert load_acceptance(write(tmp_path, "own.yaml", body)).definition == Definition.CONDITIONAL


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("rate: {3: 1.54}", ("own.yaml: rate.3:", "less than or equal to 1", "1.54")),
        ("rate: {x: 0.5}", ("own.yaml: rate:", "not a number")),
        ("rate: {0: 0.5}", ("rate:", "from 1 to 256", "'0'")),
        ("rate: {}", ("rate:", "at least one draft length")),
        ("rate: [0.7]", ("own.yaml: rate: input should be a valid number",)),
    ],
)
def test_bad_rates_of_a_file(cli: Cli, tmp_path: Path, body: str, words: tuple[str, ...]) -> None:
    path = write(tmp_path, "own.yaml", f"schema: 1\nsource: invented\n{body}\n")
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", path), *words)


def test_a_mix_takes_every_form() -> None:
    """0.5 (1 + 0.8 + 0.6) + 0.25 (1 + 2 x 0.5) + 0.25 x 2.2 = 1.2 + 0.5 + 0.55."""
    mixed = acceptance_from("mix:0.5*survival:0.8,0.6,0.25*rate:2=0.5,0.25*al:1=1.7,2=2.2")
    assert mixed.table[2] == pytest.approx(2.25)
    assert mixed.definition == Definition.MIX
    alike = acceptance_from("mix:0.5*survival:0.8,0.6,0.5*survival:0.6,0.4")
    assert alike.definition == Definition.SURVIVAL
    assert alike.table[2] == pytest.approx(2.2)


def test_a_list_in_a_mix_needs_its_word(cli: Cli) -> None:
    outcome = cli("recommend", "llama-3.1-8b", "--acceptance", "mix:0.5*0.8,0.6,0.5*0.7")
    assert_refused(outcome, "--acceptance mix", "survival:0.8,0.6", "conditional:0.8,0.6")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        # tokens per step without their draft length
        ("al:2.31", "al:3=2.31"),
        ("al:1.8", "al:3=1.8"),
        ("al:5.5", "al:5=5.5"),
        ("al:1=2.31", "al:3=2.31"),
        ("2.31", "al:3=2.31"),
        ("3=2.31", "al:3=2.31"),
        ("1.8,2.4", "al:1.8,2.4"),
        ("survival:2.38", "al:3=2.38"),
        ("rate:3=1.62", "al:3=1.62"),
        # accepted over drafted
        ("rate:0.54", "rate:3=0.54"),
        ("al:0.54", "rate:3=0.54"),
        ("al:3=0.54", "rate:3=0.54"),
        ("3=0.54", "rate:3=0.54"),
        ("survival:3=0.54", "rate:3=0.54"),
        ("rate:3=54", "rate:3=0.54"),
        ("rate:3=54%", "rate:3=0.54"),
        # rates by position
        ("al:0.72,0.45", "survival:0.72,0.45"),
        ("rate:0.72,0.45,0.21", "survival:0.72,0.45,0.21"),
        ("survival:1=0.72,2=0.45", "survival:0.72,0.45"),
        ("72,45,21", "survival:0.72,0.45,0.21"),
        ("72%,45%", "survival:0.72,0.45"),
        ("survival:0.5,0.6", "conditional:0.5,0.6"),
        ("survival:72,45", "survival:0.72,0.45"),
        # other words, other names
        ("surv:0.72,0.45", "survival:0.72,0.45"),
        ("conditionals:0.8,0.7", "conditional:0.8,0.7"),
        (
            "alpha:0.7",
            "0.7 (the same at every position) or rate:3=0.7 (accepted over drafted at D = 3)",
        ),
        ("54", "0.54 (the same at every position) or rate:3=0.54 (accepted over drafted at D = 3)"),
        ("kimi-k2.5-eagle3-codings", "kimi-k2.5-eagle3-coding"),
        ("localhost:8000/metrics", "http://localhost:8000/metrics"),
    ],
)
def test_a_refusal_names_the_form_that_was_meant(cli: Cli, text: str, meant: str) -> None:
    line = assert_refused(
        cli("recommend", "llama-3.1-8b", "--acceptance", text), f"--acceptance {text}: "
    )
    assert line.endswith(f"did you mean {meant}?")
    if not meant.startswith("http"):
        acceptance_from(meant.split(" ", maxsplit=1)[0])  # it can be read


@pytest.mark.parametrize(
    "text", ["0.8,1.1", "-0.1", "nan", "inf", "al:", "0.8,,0.7", "al:x=2", "al:2=2,2=2", "high",
             "al:2.31,2.6", "survival:", "rate:", "conditional:-1", "0x1", ""]
)  # fmt: skip
def test_nothing_is_guessed_where_nothing_is_near(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_acceptance(text)
    assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize("text", ["0.5,0.6", "0.9,0.5,0.6"])
def test_a_list_that_rises_is_asked_for_its_word(cli: Cli, text: str) -> None:
    """Draft 2 is reached only where draft 1 was accepted, so S_2 cannot exceed S_1."""
    outcome = cli("recommend", "qwen3-8b", "--acceptance", text)
    assert_refused(outcome, f"--acceptance {text}: ", "(survival:)", f"write conditional:{text} ")


@pytest.mark.parametrize(
    ("text", "survival", "conditional"),
    # 1 + 3 x 0.8 and 1 + .8 + .64 + .512; 1 + .8 + .6 + .6 and 1 + .8 + .48 + .288
    [("0.8,0.8,0.8", "3.4", "2.952"), ("0.8,0.6,0.6", "3", "2.568")],
)
def test_a_list_that_stays_level_is_asked_for_its_word(
    cli: Cli, text: str, survival: str, conditional: str
) -> None:
    line = assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", text))
    assert f"write survival:{text} " in line
    assert f"conditional:{text} " in line
    assert re.findall(r"\((\d\.?\d*)[ )]", line) == [survival, conditional]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1,1,1", 4), ("0.5,0,0", 1.5), ("0.000, 0.000", 1), ("1,0.5", 2.5), ("1,1,0.5", 3.5)],
)
def test_one_reading_where_both_agree(text: str, expected: float) -> None:
    """A target that drafts for itself, or a draft that always fails: S_i = a_i or 0."""
    made = parse_acceptance(text)
    assert made.table[made.deepest] == pytest.approx(expected)
    assert (made.definition, made.other_reading) == (Definition.SURVIVAL, None)


def test_a_list_that_falls_has_two_readings() -> None:
    """The vLLM line's numbers: 1 + .72 + .45 + .21 = 2.38, or 1 + .72 + .324 + .06804 = 2.11204."""
    made = parse_acceptance("0.72,0.45,0.21")
    assert made.definition == Definition.SURVIVAL
    assert made.table[3] == pytest.approx(2.38)
    other = made.other_reading
    assert isinstance(other, Acceptance)
    assert other.definition == Definition.CONDITIONAL
    assert other.table[3] == pytest.approx(2.11204)
    assert made.label == "survival by position 0.72, 0.45, 0.21"
    assert other.label == "conditional rates 0.72, 0.45, 0.21"


def test_zeros_at_the_end_are_no_level() -> None:
    """vLLM prints 0.000 for positions that were never accepted."""
    made = parse_acceptance("0.72,0.3,0,0")
    assert made.other_reading is not None
    assert made.table[4] == pytest.approx(2.02)


def test_one_value_after_a_word_is_of_the_first_position() -> None:
    for text in ("survival:0.8", "conditional:0.8"):
        made = parse_acceptance(text)
        assert made.table[1] == pytest.approx(1.8)
        assert math.isnan(made.tokens_per_step([2])[0])


def test_every_place_that_takes_acceptance_takes_the_forms(cli: Cli, tmp_path: Path) -> None:
    grid = write(
        tmp_path,
        "grid.yaml",
        "schema: 1\nmodel: llama-3.1-8b\nacceptance: ['rate:1=0.8,3=0.54', 'survival:0.7,0.5']\n",
    )
    for command in (
        ("compare", "llama-3.1-8b", "--drafter", "eagle3=rate:3=0.54", "--drafter", "ngram=0.4"),
        ("sweep", "llama-3.1-8b", "--acceptance", "survival:0.7,0.5", "--format", "jsonl"),
        ("sweep", "--grid", grid, "--format", "jsonl"),
        ("schedule", "llama-3.1-8b", "--acceptance", "conditional:0.7,0.6", "--batches", "1..4"),
        ("memory", "llama-3.1-8b", "--acceptance", "al:3=2.31"),
        ("explore", "llama-3.1-8b", "--acceptance", "rate:3=0.54", "--vary", "layers=16,32"),
    ):
        found = cli(*command)
        assert found.code == 0, found.err
        assert "read as survival" not in found.err, command
