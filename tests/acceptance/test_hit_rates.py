"""Hit rates beside an acceptance: possible ones, of mixes, and where drafts end.

Expected values are hand arithmetic from the definitions (docs/glossary.md): a draft is accepted in
no more passes than it was made in; AL over all passes is 1 + h (AL - 1); a pass without a draft
yields one token.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.acceptance.curve import from_curve, from_survival
from roofline.acceptance.expected import belief, learned, weight_of_count
from roofline.acceptance.prior import Labels
from roofline.advice.question import Question, question_of
from roofline.base import resources
from roofline.base.notices import Code
from roofline.timing.step import local_rows
from tests.support import Cli, assert_refused, write

NGRAM = ("recommend", "llama-3.1-8b", "--drafter", "ngram")
LOG_LINE = (
    "SpecDecoding metrics: Draft acceptance rate: 48.7%, Mean acceptance length: 2.46, Accepted: "
    "725 tokens, Drafted: 1488 tokens, Per-position acceptance rate: 0.615, 0.464, 0.383"
)


def curve(folder: Path, name: str, **fields: object) -> str:
    lines = [f"{key}: {value}" for key, value in {"schema": 1, "source": "here", **fields}.items()]
    return str(write(folder, name, "\n".join(lines) + "\n"))


def asked(**options: Any) -> Question:
    return question_of(**({"model": "llama-3.1-8b", "drafter": "ngram", "batches": (8,)} | options))


def codes(question: Question) -> list[Code]:
    return [notice.code for notice in question.notices]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"survival": [0.5, 0.2]}, "draft 1 is accepted in 0.5 of the passes"),
        ({"conditional": [0.5, 0.9]}, "draft 1 is accepted in 0.5 of the passes"),
        ({"rate": 0.5}, "draft 1 is accepted in 0.5 of the passes"),
        ({"decay": "{first: 0.5, ratio: 0.9}"}, "draft 1 is accepted in 0.5 of the passes"),
        # 1.5 tokens of three drafts: one of the three is accepted in at least half of the passes
        ({"tokens_per_step": "{3: 2.5}"}, "drafts 1 to 3 are accepted in 0.5 of the passes"),
        ({"rate": "{2: 0.5}"}, "drafts 1 to 2 are accepted in 0.5 of the passes"),
    ],
)
def test_a_file_states_no_hit_rate_below_its_survival(
    cli: Cli, tmp_path: Path, fields: dict[str, object], said: str
) -> None:
    below = curve(tmp_path, "below.yaml", hit_rate=0.4, **fields)
    assert_refused(cli(*NGRAM, "--acceptance", below), "below.yaml", "hit_rate", said, "0.4")
    assert cli(*NGRAM, "--acceptance", curve(tmp_path, "at.yaml", hit_rate=0.5, **fields)).code == 0
    alone = curve(tmp_path, "alone.yaml", hit_rate=0.4, passes="drafting", **fields)
    assert cli(*NGRAM, "--acceptance", alone).code == 0


def test_one_curve_of_several_is_named(cli: Cli, tmp_path: Path) -> None:
    curves = "[{dataset: a, survival: [0.5]}, {dataset: b, hit_rate: 0.2, survival: [0.3]}]"
    below = curve(tmp_path, "several.yaml", curves=curves)
    refused = cli(*NGRAM, "--acceptance", f"{below}#a")
    assert_refused(refused, "several.yaml: curves.1: hit_rate", "0.3 of the passes")


def test_the_hit_rate_of_a_mix_is_the_mean_of_its_parts(tmp_path: Path) -> None:
    """0.5 x 0.95 + 0.5 x 0.90 = 0.925 of the passes have a draft: 8 (1 + 0.925 D) rows."""
    first = curve(tmp_path, "a.yaml", hit_rate=0.95, survival=[0.5, 0.4])
    second = curve(tmp_path, "b.yaml", hit_rate=0.90, survival=[0.4, 0.3])
    question = asked(acceptance=f"mix: 0.5 * {first}, 0.5 * {second}")
    drafts = np.array(question.draft_lengths)
    grid = question.deployment.grid((8,), (4096,), question.draft_lengths)
    rows = local_rows(question.deployment.target.placement, grid)[0, 0]
    np.testing.assert_allclose(rows, 8 * (1 + 0.925 * drafts))
    assert Code.HIT_RATE_ASSUMED not in codes(question)


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ("--drafter ngram --acceptance 0.3 --hit-rate 0.45", 0.45),
        ("--drafter ngram --engine sglang --acceptance 0.3 --hit-rate 0.45", 0.45),
        ("--drafter dspark --acceptance 0.6 --hit-rate 0.9,0.7", [0.9, 0.7]),
        ("--drafter eagle3 --acceptance 0.6", 1.0),
        ("--drafter none", None),
    ],
)
def test_json_says_which_hit_rate_was_taken(cli: Cli, words: str, share: object) -> None:
    data = cli("recommend", "llama-3.1-8b", *words.split(), "--format", "json").data()
    assert data["inputs"]["hit_rate"] == data["acceptance"]["hit_rate"] == share
    assert data["inputs"]["domain"] is None


@pytest.mark.parametrize("whole", [False, True])
def test_parts_of_passes_that_drafted_are_mixed_over_all_passes(
    tmp_path: Path, whole: bool
) -> None:
    """Of 100 passes 25 are of a, of which 0.9 draft and yield 1.5, and 75 of b: 0.5 draft, 1.8.

    25 (0.1 + 0.9 x 1.5) + 75 (0.5 + 0.5 x 1.8) = 141.25 tokens; 22.5 + 37.5 passes drafted.
    """
    word = "" if whole else "drafting:"
    first = curve(tmp_path, "a.yaml", hit_rate=0.9, passes="drafting", survival=[0.5])
    second = curve(tmp_path, "b.yaml", hit_rate=0.5, passes="drafting", survival=[0.8])
    mix = f"mix:0.25*{word}{first},0.75*{word}{second}"
    question = asked(acceptance=f"drafting:{mix}" if whole else mix)
    assert question.tokens_per_step((4096,), (1,))[0, 0] == pytest.approx(1.4125)
    assert question.deployment.hit_rate == pytest.approx(0.6)
    drafting = [n for n in question.notices if n.code is Code.OVER_ALL_PASSES]
    assert [n.values["hit_rate"] for n in drafting] == [0.9, 0.5]


def test_a_hit_rate_that_is_given_is_that_of_every_part() -> None:
    """0.5 (1 + 0.6 x 1) + 0.5 (1 + 0.6 x 2) = 1.9 tokens at D = 3."""
    mix = "mix:0.5*drafting:al:3=2.0,0.5*drafting:al:3=3.0"
    question = asked(acceptance=mix, hit_rate=0.6)
    assert question.tokens_per_step((4096,), (3,))[0, 0] == pytest.approx(1.9)
    assert question.deployment.hit_rate == 0.6


def test_a_part_without_a_hit_rate_is_named_and_the_others_keep_theirs(tmp_path: Path) -> None:
    known = curve(tmp_path, "a.yaml", hit_rate=0.9, survival=[0.5])
    question = asked(acceptance=f"mix:0.5*{known},0.5*survival:0.3")
    (told,) = [n for n in question.notices if n.code is Code.HIT_RATE_ASSUMED]
    assert told.values["typed"] == "survival:0.3"
    assert 0.3 <= told.values["hit_rate"] < 0.9
    mean = 0.5 * 0.9 + 0.5 * told.values["hit_rate"]
    assert question.deployment.hit_rate == pytest.approx(mean)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mix:a = 0.5, b=0.5", "expected a share and a source, such as 0.7*ID"),
        ("mix: 0.5 * nothing.yaml, 0.5 * 0.6", "no such file"),
    ],
)
def test_a_mix_that_cannot_be_read_is_refused_in_one_line(cli: Cli, text: str, said: str) -> None:
    assert_refused(cli(*NGRAM, "--acceptance", text), said)


def published(kind: str) -> int:
    """Return the longest draft among the published values of a kind."""
    with (resources.shelf("acceptance") / "values.csv").open() as file:
        return max(int(row["draft_length"]) for row in csv.DictReader(file) if row["kind"] == kind)


@pytest.mark.parametrize(
    ("given", "last"),
    [
        ("survival:0.6,0.5,0.4", 3),
        ("al:3=2.5", 3),
        ("drafting:survival:0.8,0.7,0.6", 3),
        ("mix:0.5*survival:0.6,0.5,0.4,0.5*survival:0.5,0.4,0.3", 3),
        ("al:8=3.1", 8),
    ],
)
def test_a_lookup_gains_nothing_beyond_what_was_given_or_published(given: str, last: int) -> None:
    end = max(last, published("ngram"))
    question = asked(acceptance=given, max_draft_length=12)
    tokens = question.tokens_per_step((4096,))[0]
    assert np.all(np.diff(tokens[: end + 1]) > 0)
    assert np.all(tokens[end:] == tokens[end])
    (told,) = [n for n in question.notices if n.code is Code.BEYOND_PUBLISHED_RUNS]
    assert told.values["reached"] == end
    continued = [n for n in question.notices if n.code is Code.CURVE_CONTINUED]
    assert [n.values["longest"] for n in continued] == ([end] if end > last else [])


def test_a_head_goes_on_as_public_runs_do() -> None:
    """Its prior has two numbers for each drafter, of which published chains tell both."""
    question = asked(drafter="eagle3", acceptance="survival:0.6,0.5,0.4", max_draft_length=12)
    assert np.all(np.diff(question.tokens_per_step((4096,))[0]) > 0)
    assert Code.BEYOND_PUBLISHED_RUNS not in codes(question)


STOPPING = {"engine": "llamacpp", "drafter": "llama-3.2-1b"}


@pytest.mark.parametrize("given", ["survival:0.7,0.5,0.4", "0.6", "survival:0.7,0.5,0.4,0.3,0.2"])
@pytest.mark.parametrize("shares", [(0.9,), (0.9, 0.7), (0.95, 0.8, 0.6)])
def test_drafts_that_stop_early_end_at_the_last_share(
    given: str, shares: tuple[float, ...]
) -> None:
    question = asked(**STOPPING, acceptance=given, hit_rate=shares)
    assert question.draft_lengths == tuple(range(len(shares) + 1))
    (told,) = [n for n in question.notices if n.code is Code.EARLY_STOPS_END]
    assert (told.values["last"], told.values["longest"]) == (len(shares), 8)
    whole = asked(**STOPPING, acceptance=given)
    assert whole.draft_lengths == tuple(range(9))


def test_a_single_share_of_drafts_that_stop_early_is_of_the_first_position(cli: Cli) -> None:
    """As each number of a list is: every command ends there."""
    ask = ("llama-3.1-8b", "--engine", "llamacpp", "--drafter", "llama-3.2-1b",
           "--acceptance", "0.6", "--hit-rate", "0.9")  # fmt: skip
    point = cli("recommend", *ask, "--format", "json").point()
    assert [row["draft_length"] for row in point["by_draft_length"]] == [0, 1]
    rows = cli("sweep", *ask).out.splitlines()
    assert len(rows) == 1 + 2
    answer = cli("recommend", *ask)
    assert "--hit-rate ends at D = 1" in " ".join(answer.out.split())


def test_the_weight_of_a_count() -> None:
    """One pass of each of n requests, half of them accepted: m = 1 / (0.25 x 0.08^2) = 625.

    1250 / (1250 + 625) = 2/3 (`learned`).
    """
    prior = belief((Labels(kind="eagle3"),))
    given = from_survival([0.5])
    made = learned(given, prior, rounds=1250, requests=1250)
    found = weight_of_count(made, prior, rounds=1250, requests=1250)
    assert found == pytest.approx((2 / 3, 2 / 3), rel=1e-3)
    untouched = from_curve({3: 2.4})
    assert weight_of_count(untouched, prior, rounds=10, requests=10) is None


def test_every_count_says_that_it_was_joined(cli: Cli, tmp_path: Path) -> None:
    """1488 tokens in drafts of 3 are 496 passes; by the line's rounded mean 725 / 1.46 = 497."""
    counted = curve(tmp_path, "a.yaml", drafts=496, survival=[0.615, 0.464, 0.383])
    typed = ("--acceptance", "survival:0.615,0.464,0.383", "--acceptance-rounds", "496")
    told = []
    for words in (("--acceptance", LOG_LINE), typed, ("--acceptance", counted)):
        outcome = cli("recommend", "llama-3.1-8b", *words, "--format", "json")
        notes = {note["code"]: note["text"] for note in outcome.data()["notes"]}
        told.append(notes["joined-with-prior"].partition("): its ")[2])
    assert told[0].removeprefix("497") == told[1].removeprefix("496")
    assert told[1] == told[2]
    assert " % of the weight, public runs of such drafters the rest" in told[0]
    named = ("--drafter", "eagle3", "--acceptance", LOG_LINE, "--notes")
    shown = cli("recommend", "llama-3.1-8b", *named).out
    assert "% of the weight" in " ".join(shown.split())
    exact = cli("recommend", "llama-3.1-8b", *typed[:2], "--format", "json").data()["notes"]
    assert "joined-with-prior" not in {note["code"] for note in exact}
