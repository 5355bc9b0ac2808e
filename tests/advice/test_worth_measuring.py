"""What a count of the acceptance would change, before it is made."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.acceptance.prior import count_weights
from roofline.advice.question import question_of
from roofline.advice.recommend import Recommendation, recommend
from roofline.advice.worth_measuring import (
    Count,
    WorthMeasuring,
    simulated_counts,
    worth_measuring,
)
from roofline.base.numbers import DRAWS
from tests.support import Cli


def asked(**options: object) -> Recommendation:
    defaults: dict[str, object] = {"model": "llama-3.1-8b", "contexts": (1024,)}
    return recommend(question_of(**(defaults | options)))


def found(answer: Recommendation) -> WorthMeasuring | None:
    return worth_measuring(answer, answer.points[0])


def test_weights_of_several_counts_are_those_of_each() -> None:
    rates = np.random.default_rng(5).uniform(0.2, 0.9, size=(50, 3))
    counts = np.array([[40, 30, 20, 5], [100, 60, 20, 10]])
    together = count_weights(rates=rates, counts=counts, requests=4)
    alone = [count_weights(rates=rates, counts=count, requests=4) for count in counts]
    np.testing.assert_allclose(together, alone)
    np.testing.assert_allclose(together.sum(axis=1), 1)


def binomial_counts(rates: np.ndarray, *, passes: int, requests: int) -> np.ndarray:
    """Count many drafters of the same rates draft by draft: accepted drafts by position."""
    generator, drafters = np.random.default_rng(5), 20_000
    scatter = 0.45 * generator.normal(size=(drafters, requests))
    kept = np.full(scatter.shape, passes)
    counted = []
    for rate in rates:
        kept = generator.binomial(kept, 1 / (1 + np.exp(-np.log(rate / (1 - rate)) - scatter)))
        counted.append(kept.sum(axis=1))
    return np.stack(counted, axis=1)


@pytest.mark.parametrize(("requests", "passes"), [(2, 25), (10, 20), (50, 20)])
def test_simulated_counts_scatter_as_counted_ones(requests: int, passes: int) -> None:
    """Means and deviations are as near as those of DRAWS counts come nine times in ten.

    That is 1.645 / sqrt(64) of a deviation for means, 1.645 / sqrt(2 x 64) for deviations.
    """
    rates = np.array([0.85, 0.8, 0.75, 0.7, 0.6])
    drawn = simulated_counts(np.tile(rates, (DRAWS, 1)), passes=passes, requests=requests)
    counted = binomial_counts(rates, passes=passes, requests=requests)
    assert (drawn[:, 0] == passes * requests).all()
    assert (np.diff(drawn, axis=1) <= 0).all()
    off = drawn[:, 1:].mean(axis=0) - counted.mean(axis=0)
    assert (abs(off) < 0.206 * counted.std(axis=0)).all()
    np.testing.assert_allclose(drawn[:, 1:].std(axis=0), counted.std(axis=0), rtol=0.145)
    between = np.corrcoef(drawn[:, 1:], rowvar=False) - np.corrcoef(counted, rowvar=False)
    assert abs(between).max() < 0.15


def test_simulated_counts_scatter_as_requests_do() -> None:
    """At a rate of 0.5, 10 requests of 20 passes: variance 200 a (1 - a) (1 + 19 rho) = 98.

    rho = 0.45^2 x 0.25 = 0.0506, less what a logit of 0.45 bends (a few per cent).
    """
    drawn = simulated_counts(np.full((DRAWS, 1), 0.5), passes=20, requests=10)
    assert (drawn[:, 0] == 200).all()
    assert drawn[:, 1].mean() == pytest.approx(100, abs=1)
    assert drawn[:, 1].var() == pytest.approx(98, rel=0.1)


def test_longer_counts_tell_more() -> None:
    worth = found(asked(batches=(128,)))
    assert worth is not None
    odds = [count.odds for count in worth.counts]
    assert [count.passes for count in worth.counts] == [50, 200, 1000]
    assert [count.requests for count in worth.counts] == [2, 10, 50]
    assert worth.odds < odds[0] < odds[2] + 0.02
    assert all(count.gain > -0.005 for count in worth.counts)  # what is learned is no loss


def test_an_answer_says_it_only_where_the_odds_rise(cli: Cli) -> None:
    asks = ("recommend", "llama-3.1-8b", "--context", "1k")
    said = " ".join(cli(*asks).out.split())
    assert "Count your acceptance:" in said
    worth = cli(*asks, "--format", "json").data()["worth_measuring"]
    assert worth["counts"][-1]["odds"] - worth["odds"] >= 0.1
    counted = cli(*asks, "--acceptance", "survival:0.7,0.5,0.3", "--format", "json")
    assert counted.data()["worth_measuring"] is None
    assert "Count your acceptance" not in cli(*asks, "--batch", "1,8").out  # said of one point


def count(passes: int, odds: float) -> Count:
    return Count(passes=passes, requests=passes // 20, odds=odds, gain=0.0, changes=0.0)


@pytest.mark.parametrize(
    ("odds", "after", "proposed"),
    [
        (0.61, (0.70, 0.88, 0.90), 200),  # 0.27 of 0.29 is most of the rise; 0.09 is not
        (0.61, (0.85, 0.88, 0.90), 50),
        (0.61, (0.62, 0.65, 0.70), None),  # a rise of 0.09
        (0.92, (0.95, 0.98, 1.00), None),  # sure enough
    ],
)
def test_the_shortest_count_with_most_of_the_rise_is_proposed(
    odds: float, after: tuple[float, float, float], proposed: int | None
) -> None:
    counts = tuple(count(n, share) for n, share in zip((50, 200, 1000), after, strict=True))
    worth = WorthMeasuring(draft_length=5, odds=odds, counts=counts)
    assert (worth.proposed and worth.proposed.passes) == proposed


def test_nothing_to_count_where_nothing_is_drafted() -> None:
    assert found(asked(drafter="none")) is None
