"""What an answer says to time first: the advice, its loss by the draws, and its worth."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.advice.belief_prior import first_timing
from roofline.advice.question import question_of
from roofline.advice.recommend import drawn_tokens, recommend
from tests.support import Cli

ASK = {"model": "qwen3-8b", "gpu": "h100-sxm", "batches": (8,)}


def test_the_loss_is_that_of_the_draws_behind_the_odds() -> None:
    """By hand, draw by draw: how much faster the fastest length is than the advice."""
    question = question_of(**ASK, domain="chat")
    answer = recommend(question)
    (point,) = answer.points
    found = first_timing(answer, point)
    assert found is not None
    tokens = drawn_tokens(question, question.tokens_on(answer.priced.grid), grid=answer.priced.grid)
    lost = []
    for drawn, steps in zip(tokens[:, 0, 0], answer.priced.drawn.steps()[:, 0, 0], strict=True):
        speeds = [al / step for al, step in zip(drawn, steps, strict=True)]
        lost.append(1 - speeds[point.best] / max(speeds))
    assert found.expected_loss == pytest.approx(np.mean(lost))
    assert found.draft_length == point.draft_length
    assert 0 < found.worth <= found.expected_loss


def test_one_timing_tells_little_where_acceptance_is_known() -> None:
    """The level of speed is free: one speed says nothing of ratios of step times."""
    worth = []
    for given in (None, "survival:0.7,0.5,0.35,0.25,0.17,0.12,0.08,0.05"):
        answer = recommend(question_of(**ASK, acceptance=given))
        found = first_timing(answer, answer.points[0])
        assert found is not None
        worth.append(found.worth)
    assert worth[1] < 0.2 * worth[0]


def test_it_is_said_in_text_and_data(cli: Cli) -> None:
    asked = ("recommend", "qwen3-8b", "--batch", "8")
    data = cli(*asked, "--format", "json").data()
    first = data["first_timing"]
    said = " ".join(cli(*asked).out.split())
    assert first["draft_length"] == data["points"][0]["draft_length"]
    loss = f"{100 * first['expected_loss']:.1f} %"
    assert f"Time D = {first['draft_length']} first: its expected loss is {loss}" in said
    several = cli("recommend", "qwen3-8b", "--batch", "8,16", "--format", "json").data()
    assert several["first_timing"] is None
    plain = cli("recommend", "qwen3-8b", "--drafter", "none", "--format", "json").data()
    assert plain["first_timing"] is None
