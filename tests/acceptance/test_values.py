"""The table of published acceptance values: each row is possible and says its source."""

from __future__ import annotations

import csv
from collections import Counter

import pytest

from roofline.acceptance.files import bundled_curves, load_file
from roofline.acceptance.labels import MOST_OVER_TRAINED
from roofline.acceptance.prior import WARMEST
from roofline.acceptance.values import published_reach
from tests.support import ROOT, Cli

TABLE = ROOT / "roofline" / "data" / "acceptance" / "values.csv"
STATED = {"id", "target", "drafter", "kind", "recipe", "dataset", "definition", "source", "license"}
OPEN = {"temperature", "context", "trained_context", "engine", "curve", "note"}
COUNTED = {"domain", "draft_length", "tokens_per_step", "trust"}
TASKS = {"chat", "code", "math", "knowledge", "summary", "creative", "agentic", "translation"}
DOMAINS = TASKS | {"multilingual", "mixed"}
with TABLE.open(encoding="utf-8", newline="") as text:
    ROWS = list(csv.DictReader(text))


def test_the_columns_are_as_named() -> None:
    assert set(ROWS[0]) == STATED | OPEN | COUNTED
    assert len({row["id"] for row in ROWS}) == len(ROWS)


def is_possible(row: dict[str, str]) -> bool:
    """Return whether a pass yields its own token and at most all drafts."""
    return 1 <= float(row["tokens_per_step"]) <= 1 + int(row["draft_length"])


def test_every_row_is_possible_and_says_where_it_is_from() -> None:
    assert not [row["id"] for row in ROWS if not is_possible(row)]
    assert not [row["id"] for row in ROWS if not all(row[name] for name in STATED)]
    assert {row["domain"] for row in ROWS} <= DOMAINS
    assert {row["trust"] for row in ROWS} <= {"A", "B", "C"}


def test_the_rows_of_a_curve_are_the_curve_s_values() -> None:
    stated: Counter[tuple[str, int, float]] = Counter()
    for bundled in bundled_curves():
        for curve in load_file(bundled["id"])[1].all_curves():
            measured = curve.to_acceptance(label="", source="").measured
            stated.update((bundled["id"], d, round(al, 4)) for d, al in measured.items() if d > 0)
    listed = Counter(
        (row["curve"], int(row["draft_length"]), float(row["tokens_per_step"]))
        for row in ROWS
        if row["curve"]
    )
    assert listed == stated


def test_how_far_published_runs_go() -> None:
    """By the table: n-grams of Llama and Qwen end at 5 drafts, suffix decoding at 32; DeepSeek's
    layer was counted at 98,304 tokens, and a head of 2,048 at 8,192."""
    assert published_reach("ngram").draft_length == 5
    assert published_reach("suffix").draft_length == 32
    assert published_reach("mtp").context == 98304
    assert published_reach("ngram").context == 4096  # none says how long it is
    beyond = [
        float(row["context"]) / float(row["trained_context"])
        for row in ROWS
        if row["context"] and row["trained_context"] and row["trust"] != "C"
    ]
    assert max(beyond) == MOST_OVER_TRAINED
    assert max(float(row["temperature"] or 0) for row in ROWS) == WARMEST


@pytest.mark.parametrize("most", ["8", "32", "64"])
def test_a_lookup_is_not_advised_beyond_what_was_run(cli: Cli, most: str) -> None:
    """Its one rate, of which five drafts cannot tell 0.9 from 0.99, went on for ever."""
    asked = ("qwen3-8b", "--gpu", "h100-sxm", "--drafter", "ngram", "--max-draft-length", most)
    answer = cli("recommend", *asked, "--format", "json")
    assert answer.point()["draft_length"] == 5
    assert "end at D = 5" in answer.said
    rows = answer.by_draft_length()
    assert rows[8]["tokens_per_step"] == rows[5]["tokens_per_step"]


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("qwen3-8b", ("--drafter", "eagle3", "--temperature", "1.5"), "end at temperature 1"),
        ("qwen3-8b", ("--drafter", "eagle3", "--temperature", "1"), ""),
        ("llama-3.1-8b", ("--drafter", "eagle3", "--context", "16k"), "would end at 8k"),
        ("llama-3.1-8b", ("--drafter", "eagle3", "--context", "8k"), ""),
    ],
)
def test_beyond_published_runs_is_said(
    cli: Cli, model: str, options: tuple[str, ...], said: str
) -> None:
    answer = cli("recommend", model, "--gpu", "h100-sxm", *options)
    assert ("published runs" in answer.said.replace("expected of public runs", "")) == bool(said)
    assert said in answer.said


def test_a_pull_beyond_chance_is_said(cli: Cli) -> None:
    """50 passes: AL(3) = 3.6 of 4 is above all public heads; 2.5 is like them."""
    asked = ("qwen3-8b", "--gpu", "h100-sxm", "--drafter", "eagle3", "--acceptance-rounds")
    assert "draw it to" in cli("recommend", *asked, "50", "--acceptance", "al:3=3.6").said
    assert "draw it to" not in cli("recommend", *asked, "50", "--acceptance", "al:3=2.5").said
    assert "draw it to" not in cli("recommend", *asked, "90000", "--acceptance", "al:3=2.5").said
