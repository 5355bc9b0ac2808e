"""Answers without a measured acceptance: each first sentence shows the width of its number."""

from __future__ import annotations

import re

import pytest

from tests.support import Cli

HEAD = ("qwen3-8b", "--gpu", "h100-sxm", "--drafter", "eagle3")


@pytest.fixture
def advised(cli: Cli) -> dict[str, float]:
    """The advised row at batch 8, as ``recommend`` states it."""
    point = cli("recommend", *HEAD, "--batch", "8", "--format", "json").point()
    plain = 1e3 / float(re.findall(r"(\d+) -> ", point["headline"])[0])
    ends = {name: point[name] for name in ("speedup_low", "speedup_high")}
    return {"length": point["draft_length"], "plain_ms": plain, **ends}


def test_a_histogram_of_one_batch_has_the_range_of_that_batch(
    cli: Cli, advised: dict[str, float]
) -> None:
    """The same draws of step times and acceptance, so the same 10th and 90th percentile."""
    data = cli("recommend", *HEAD, "--batches-histogram", "8:1", "--format", "json").data()
    low, high = data["gain_range"]
    assert data["draft_length"] == advised["length"]
    assert low == pytest.approx(advised["speedup_low"], rel=0.02)
    assert high == pytest.approx(advised["speedup_high"], rel=0.02)
    assert f"{low:.2f}x to {high:.2f}x plain decoding" in data["headline"]
    assert "(acceptance not measured)" in data["headline"]


def test_arrivals_have_a_range_too(cli: Cli) -> None:
    load = ("--rps", "4", "--input-tokens", "1000", "--output-tokens", "300")
    data = cli("recommend", *HEAD, *load, "--format", "json").data()
    low, high = data["gain_range"]
    assert 1 < low < data["gain"] < high < 4
    own = cli("recommend", *HEAD, *load, "--acceptance", "0.7", "--format", "json").data()
    assert own["gain_range"] is None
    assert "not measured" not in own["headline"]


def test_a_goal_shows_the_range_of_its_pace(cli: Cli, advised: dict[str, float]) -> None:
    """A pace is that of plain decoding times the speedup."""
    goal = ("--objective", "latency", "--batch", "8")
    said = cli("recommend", *HEAD, *goal).said
    found = re.search(r"([\d.]+) to ([\d.]+) ms per token, (\d+) to (\d+) tokens/s", said)
    assert found, said
    fast, slow, least, most = map(float, found.groups())
    assert fast == pytest.approx(advised["plain_ms"] / advised["speedup_high"], rel=0.01)
    assert slow == pytest.approx(advised["plain_ms"] / advised["speedup_low"], rel=0.01)
    assert (least, most) == pytest.approx((8e3 / slow, 8e3 / fast), rel=0.01)


def test_a_schedule_shows_the_range_of_its_gain(cli: Cli, advised: dict[str, float]) -> None:
    """One batch and one draft length: the gain over no speculation is the speedup less one."""
    asked = (*HEAD, "--batches", "8", "--mix", "8:1")
    flat = cli("schedule", *asked).said
    found = re.search(r"gives \+([\d.]+)% to \+([\d.]+)% tokens against no speculation", flat)
    assert found, flat
    low, high = (1 + float(share) / 100 for share in found.groups())
    assert low == pytest.approx(advised["speedup_low"], rel=0.05)
    assert high == pytest.approx(advised["speedup_high"], rel=0.05)


def test_the_last_label_of_an_explanation_has_the_range_of_the_answer(cli: Cli) -> None:
    """One acceptance has one range: the labels end where the curve of the same answer stands."""
    data = cli("acceptance", "explain", *HEAD, "--context", "2k", "--format", "json").data()
    (row,) = (row for row in data["curve"] if row["draft_length"] == data["draft_length"])
    last = [label for label in data["labels"] if label["value"] is not None][-1]
    assert (last["low"], last["high"]) == (row["tokens_per_step_low"], row["tokens_per_step_high"])


@pytest.mark.parametrize("given", [(), ("--acceptance", "al:3=2.4,4=2.6")])
def test_a_tree_needs_the_acceptance_of_a_tree(cli: Cli, given: tuple[str, ...]) -> None:
    """A chain's is another number: at every depth a tree has several tokens to be right with."""
    asked = ("recommend", *HEAD, "--engine", "sglang", *given, "--format", "json")
    tree = ("--tree-topk", "4", "--verify-width", "16")
    texts = [
        [
            note["text"]
            for note in cli(*asked, *more).data()["notes"]
            if "whole tree" in note["text"]
        ]
        for more in (tree, ())
    ]
    assert len(texts[0]) == 1
    assert texts[1] == []
