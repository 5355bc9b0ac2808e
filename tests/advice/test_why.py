"""What decided an answer, as a record: the outcome, and the numbers that it turned on."""

from __future__ import annotations

from typing import Any

import pytest

from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.advice.why import (
    Bound,
    Outcome,
    Sharing,
    deciding,
    dominant_bound,
    outcome,
    plain_pass,
)
from roofline.render.why import DO_NOT_SPECULATE, HEADLINES

LLAMA = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
#: 300 sequences make 600 rows with one draft each: past the 512 that vLLM captures.
MANY = {"drafter": "eagle3", "acceptance": "0.6", "batches": (300,), "contexts": (512,)}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, Outcome.DRAFTS),
        ({"drafter": "none"}, Outcome.ALONE),
        ({"max_draft_length": 0}, Outcome.ALONE),
        ({"acceptance": "0.01"}, Outcome.PLAIN),
        (MANY, Outcome.PAST_GRAPHS),
    ],
)
def test_the_outcome(asked: dict[str, Any], expected: Outcome) -> None:
    point = recommend(question_of(**LLAMA | asked)).points[0]
    assert outcome(point) is expected
    assert (deciding(point) is None) is (expected not in (Outcome.PLAIN, Outcome.DRAFTS))


@pytest.mark.parametrize("acceptance", ["0.8", "0.01"])
def test_the_best_draft_length_decides(acceptance: str) -> None:
    """AL(D) t(0) / t(D) of the one that is looked at is the largest of all drafts, to a tie."""
    point = recommend(question_of(**LLAMA, acceptance=acceptance)).points[0]
    at = deciding(point)
    assert at
    gains = point.tokens_per_step * point.step[0] / point.step
    assert gains[at] == pytest.approx(max(gains[1:]), rel=0.01)


def test_what_a_plain_pass_reads() -> None:
    """8.03e9 parameters less an embedding of 128256 x 4096, 2 bytes each; 128 KiB of KV a token."""
    answer = recommend(question_of(**LLAMA, contexts=(4096,)))
    found = plain_pass(answer, answer.points[0], 3)
    assert dominant_bound(answer, answer.points[0])[0] is Bound.MEMORY
    assert (found.sharing, found.active_experts) == (Sharing.ALL, None)
    assert found.weight_bytes == pytest.approx(2 * (8.03e9 - 128_256 * 4096), rel=0.01)
    assert found.cache_bytes == pytest.approx(4096 * 131_072, rel=0.02)


def test_not_speculating_is_said_in_the_same_words() -> None:
    without = {Outcome.NO_ROOM, Outcome.PAST_GRAPHS, Outcome.PLAIN}
    begins = DO_NOT_SPECULATE.capitalize()
    assert {kind for kind, words in HEADLINES.items() if words.startswith(begins)} == without
