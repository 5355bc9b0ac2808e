"""From speeds to a decision: ties, confidence, and what the answer may never do."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.advice.decide import (
    CONFIDENCES,
    TIE,
    Confidence,
    confidence,
    smallest_within_tie,
    speedups,
)
from roofline.advice.question import Workload, question_of
from roofline.advice.recommend import decide_grid
from roofline.base.errors import InputError
from roofline.specs.priors import priors
from roofline.timing.uncertainty import drawn_steps
from tests.support import Cli

NAN = float("nan")


@pytest.mark.parametrize(
    ("speed", "best", "band"),
    [
        # design.md section 5: the smallest within 1 % of the best, D = 0 included
        ([100, 150, 160, 155], 2, [2]),
        ([100, 158.4, 160], 1, [1, 2]),  # 158.4 is exactly 1 % below
        ([100, 158.3, 160], 2, [2]),
        ([100, 100.9], 0, [0, 1]),  # a gain below 1 % is not worth drafts
        ([100, 101.5], 1, [1]),
        ([100, 99.5, 80], 0, [0, 1]),
        ([100, NAN, 160, NAN, 159], 2, [2, 4]),
        ([100, NAN, NAN], 0, [0]),
    ],
)
def test_smallest_within_a_percent(speed: list[float], best: int, band: list[int]) -> None:
    found, tie = smallest_within_tie(np.array(speed))
    assert int(found) == best
    assert np.flatnonzero(tie).tolist() == band


def test_ties_are_taken_point_by_point() -> None:
    grid = np.array([[[100.0, 160.0, 161.0]], [[100.0, 90.0, 80.0]]])
    found, _ = smallest_within_tie(grid)
    assert found.tolist() == [[1], [0]]


def test_speedups_by_hand() -> None:
    """AL / R with steps of 10, 12.5 and 20 ms: 1, 2 / 1.25, 3 / 2."""
    found = speedups(np.array([1.0, 2.0, 3.0]), np.array([10.0, 12.5, 20.0]))
    assert found.tolist() == [1.0, 1.6, 1.5]


@pytest.mark.parametrize(
    ("low", "high", "best", "expected"),
    [
        ([1.0, 1.2], [1.0, 1.5], 1, Confidence.WIN),
        ([1.0, 0.9], [1.0, 1.5], 1, Confidence.INSIDE_ERROR),
        ([1.0, 0.8], [1.0, 1.1], 0, Confidence.INSIDE_ERROR),
        ([1.0, 0.7], [1.0, 0.9], 0, Confidence.LOSS),
    ],
)
def test_confidence(low: list[float], high: list[float], best: int, expected: Confidence) -> None:
    """The issue's words: a win even at the low end, a loss even at the high end, else inside."""
    feasible = np.array([True, True])
    found = confidence(np.array(low), np.array(high), best, feasible)
    assert CONFIDENCES[int(found)] is expected


@pytest.mark.parametrize("batch", ["1", "8", "32", "128"])
@pytest.mark.parametrize("acceptance", ["0.2", "0.5", "0.7", "0.9", "al:2=2.36,4=3.77,5=3.73"])
def test_the_recommended_length_is_the_smallest_in_its_band(
    cli: Cli, batch: str, acceptance: str
) -> None:
    """Checked from the printed rows alone, by brute force; at 128 only D up to 3 is captured."""
    point = cli(
        "recommend", "llama-3.1-8b", "--batch", batch, "--context", "1k", "--acceptance",
        acceptance, "--format", "json",
    ).point()  # fmt: skip
    rows = [row for row in point["by_draft_length"] if row["captured"]]
    speed = {row["draft_length"]: row["tokens_per_s"] for row in rows}
    good = [d for d, v in speed.items() if v >= 0.99 * max(speed.values())]
    assert point["tie_band"] == good
    assert point["draft_length"] == min(good)
    assert point["speculate"] is (min(good) > 0)
    assert TIE == 0.01


def test_useless_drafts_are_not_recommended(cli: Cli) -> None:
    """At rate 0 every draft is thrown away; at D = 0 nothing is, and a loss is certain."""
    point = cli("recommend", "llama-3.1-8b", "--acceptance", "0", "--format", "json").point()
    assert point["draft_length"] == 0
    assert point["confidence"] == "loss"


def test_perfect_drafts_are_run_as_deep_as_allowed(cli: Cli) -> None:
    """At rate 1 a draft costs a pass of 0.85 GB and saves one of 15 GB."""
    point = cli("recommend", "llama-3.1-8b", "--acceptance", "1", "--format", "json").point()
    assert point["draft_length"] == 8
    assert point["confidence"] == "win"


def test_error_ranges(cli: Cli) -> None:
    """D = 0 is the yardstick and has no range; the low never exceeds the high."""
    rows = cli("recommend", "llama-3.1-8b", "--acceptance", "0.7", "--format", "json")
    for draft, row in rows.by_draft_length().items():
        assert row["speedup_low"] <= row["speedup_high"]
        if draft == 0:
            assert row["speedup"] == row["speedup_low"] == row["speedup_high"] == 1


def test_common_errors_cancel() -> None:
    """Independent errors of 5 % on both sides would spread the ratio 2 x 1.28 x 1.41 x 5 % = 18 %.

    5 % is less than any law claims; D = 0 and D = 1 read the same 49 GB and err together. What a
    served build adds to D > 0 alone (6.5 %) comes on top: sqrt(12^2 + (2 x 1.28 x 6.5)^2) = 21 %,
    of which the lower half ends at the plain step: a ratio of 1.02 less 2 %, plus half of 21 %.
    """
    question = question_of(
        model="llama-3.1-8b",
        batches=(32,),
        contexts=(8192,),
        drafter="ngram",
        acceptance="0.7",
        max_draft_length=1,
    )
    found = question.price()
    width = {}
    for served in (0.0, 0.065):
        spread = priors().spread.model_copy(update={"served": served})
        drawn = drawn_steps(found.times, found.grid, spread)[:, 0, 0]
        low, high = np.quantile(drawn[:, 1] / drawn[:, 0], (0.1, 0.9))
        width[served] = (high - low) / np.median(drawn[:, 1] / drawn[:, 0])
    assert width[0.0] < 0.12
    assert 0.09 < width[0.065] < 0.13


def test_no_draw_makes_a_step_with_drafts_shorter_than_one_without() -> None:
    """Its verify pass does all that a plain pass does: the speedup cannot exceed AL(D)."""
    question = question_of(model="llama-3.1-8b", drafter="ngram", acceptance="0.7")
    found = question.price()
    steps = found.drawn.steps()
    assert (steps >= steps[..., :1]).all()
    assert (steps[..., 1:] > steps[..., :1]).any()
    tokens = question.tokens_per_step((4096,))
    assert (decide_grid(question, found, tokens).high <= tokens * (1 + 1e-12)).all()


def test_the_edge_of_the_search_is_said(cli: Cli) -> None:
    outcome = cli("recommend", "llama-3.1-8b", "--acceptance", "1", "--format", "json")
    assert any("longest one tried (8)" in text for text in outcome.data()["warnings"])


def test_an_empty_list_of_batches_is_refused() -> None:
    with pytest.raises(InputError, match="batch: expected at least one number"):
        Workload(batches=())
