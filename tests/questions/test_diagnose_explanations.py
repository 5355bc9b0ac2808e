"""How far times are from explained: the distance, its band, and which explanation comes first."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.questions.diagnose.explain import Suspect, agreement, distance, explain
from roofline.questions.diagnose.terms import Term


def test_distance_is_that_of_gauss() -> None:
    """With covariance [[2, 1], [1, 2]] / 3 the inverse is [[2, -1], [-1, 2]]: 2 + 8 - 4 = 6."""
    covariance = np.array([[2.0, 1.0], [1.0, 2.0]]) / 3
    assert distance(np.array([1.0, 2.0]), covariance) == pytest.approx(6.0)


def test_the_band_holds_what_it_says() -> None:
    """Of 2000 draws of the errors themselves 95 % are inside (binomial error 0.5 %)."""
    random = np.random.default_rng(7)
    covariance = np.array([[4.0, 3.0, 1.0], [3.0, 5.0, 2.0], [1.0, 2.0, 3.0]]) * 1e-4
    noise, total = 0.02, np.array([5.0, 7.0, 11.0])
    errors = random.multivariate_normal(np.zeros(3), covariance + noise**2 * np.eye(3), size=2000)
    within = [agreement(total * np.exp(e), total, covariance, noise=noise).inside for e in errors]
    assert np.mean(within) == pytest.approx(0.95, abs=0.015)


def test_of_equal_explanations_the_least_strained_comes_first() -> None:
    """Both terms are 5 of 10 at the only point: 15 wants a factor of 2 of either.

    Strains are log 2 over 0.1 and 0.4: 6.9 and 1.7.
    """
    none = np.zeros((1, 1))
    suspects = [
        Suspect(term=Term.DRAFTER, seconds=np.array([5.0]), sigma=0.1, others=none),
        Suspect(term=Term.HOST, seconds=np.array([5.0]), sigma=0.4, others=none),
        Suspect(term=Term.EXPERTS, seconds=np.array([0.0]), sigma=0.4, others=none),
    ]
    found = explain(np.array([15.0]), np.array([10.0]), suspects, noise=0.01)
    assert [e.term for e in found] == [Term.HOST, Term.DRAFTER, Term.EXPERTS]
    assert [e.factor for e in found[:2]] == pytest.approx([2, 2], rel=0.01)
    assert [e.strain for e in found[:2]] == pytest.approx([1.73, 6.93], rel=0.01)
    assert not found[2].moves
