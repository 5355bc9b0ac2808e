"""The joint belief of ``tune`` against draws weighed one by one, and against hand arithmetic."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from roofline.advice.belief import (
    SPEED_NOISE,
    TOKENS_NOISE,
    Candidate,
    JointBelief,
    Timing,
    joint_prior,
    log_tokens,
)
from roofline.timing.timed import GROWTH

Array = NDArray[np.float64]
LENGTHS = (0, 1, 2, 3)
#: A level that is nearly known, so that plain draws meet what was timed.
KNOWN = replace(GROWTH, level=0.05)


def belief(loads: int = 1, *, spread: float = 0.3, known: bool = True) -> JointBelief:
    """Return a belief of a step of 1 ms or so: 90 % verify, then drafts of 0.1 each."""
    lengths = np.array(LENGTHS, dtype=float)
    verify = np.tile(0.9 + 0.03 * lengths, (loads, 1))
    return joint_prior(
        draft_lengths=LENGTHS,
        verify=verify,
        draft=np.tile(0.1 * lengths, (loads, 1)),
        overhead=np.full((loads, 4), 0.1),
        logits=np.array([0.8, 0.4, 0.2]),
        logit_covariance=spread**2 * (0.5 * np.ones((3, 3)) + 0.5 * np.eye(3)),
        deviations=KNOWN if known else GROWTH,
    )


def drawn(prior: JointBelief, count: int) -> tuple[Array, Array]:
    """Return draws of log AL(0 ... 3) and of log T, without the code under test."""
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky(prior.covariance)
    u = prior.mean + rng.standard_normal((count, len(prior.mean))) @ root.T
    times, logits = u[:, :-3], u[:, -3:]
    survival = np.cumprod(1 / (1 + np.exp(-logits)), axis=1)
    tokens = np.concatenate([np.ones((count, 1)), 1 + np.cumsum(survival, axis=1)], axis=1)
    return np.log(tokens), times


def test_slopes_of_tokens_per_step_by_differences() -> None:
    logits, step = np.array([0.8, 0.4, 0.2]), 1e-6
    _, slopes = log_tokens(logits)
    for i in range(3):
        more = logits + step * (np.arange(3) == i)
        numeric = (log_tokens(more)[0] - log_tokens(logits)[0]) / step
        assert slopes[:, i] == pytest.approx(numeric, abs=1e-5)


def test_a_posterior_is_that_of_weighed_draws() -> None:
    """Half a million draws of the prior, each weighed by the likelihood of two timings."""
    prior = belief()
    timings = [Timing(0, 2, 1.8, {2: 2.0}), Timing(0, 0, 0.97)]
    found = prior.after(timings)
    tokens, times = drawn(prior, 500_000)
    speed = tokens - times
    misses = [
        (speed[:, 2] - np.log(1.8)) / SPEED_NOISE,
        (tokens[:, 2] - np.log(2.0)) / TOKENS_NOISE,
        (speed[:, 0] - np.log(0.97)) / SPEED_NOISE,
    ]
    weights = np.exp(-0.5 * np.square(misses).sum(axis=0))
    assert weights.sum() ** 2 / np.square(weights).sum() > 300  # draws that count
    weights /= weights.sum()
    mean = weights @ speed
    deviation = np.sqrt(weights @ (speed - mean) ** 2)
    slopes = found._speed_slopes
    own = np.sqrt(np.diag(slopes @ found.covariance @ slopes.T))
    assert found.log_speed[0] == pytest.approx(mean, abs=0.005)
    assert own == pytest.approx(deviation, rel=0.15)


def test_a_promise_is_that_of_draws() -> None:
    prior = belief(spread=0.1)
    found = prior.after([Timing(0, 2, 1.8, {2: 2.0})])
    rng = np.random.default_rng(2)
    slopes = found._speed_slopes
    root = np.linalg.cholesky(slopes @ found.covariance @ slopes.T + 1e-12 * np.eye(4))
    speed = found.log_speed[0] + rng.standard_normal((200_000, 4)) @ root.T
    best = found.chosen[0]
    regret = 1 - np.exp(speed[:, best] - speed.max(axis=1))
    shown = speed + SPEED_NOISE * rng.standard_normal(speed.shape)
    seen = 1 - np.exp(shown[:, best] - shown.max(axis=1))
    promise = found.promise()
    assert promise.regret == pytest.approx(regret.mean(), rel=0.1)
    assert promise.odds == pytest.approx((regret <= 0.01).mean(), abs=0.03)
    assert promise.bound == pytest.approx(np.quantile(seen, 0.9), rel=0.1)


def test_the_worth_of_a_timing_is_what_its_outcomes_gain() -> None:
    """Each outcome is drawn, the belief moved by it, and the gain of the new choice averaged."""
    prior = belief(spread=0.15).after([Timing(0, 3, 1.8, {3: 2.3})])
    tokens, rng = prior._tokens[0], np.random.default_rng(3)
    slopes = prior._speed_slopes
    for length in (0, 1, 2):
        row = np.concatenate([np.zeros(4), prior._tokens[1][length]])
        both = np.stack([slopes[length], row])
        spread = both @ prior.covariance @ both.T + np.diag([SPEED_NOISE**2, TOKENS_NOISE**2])
        mean = np.array([prior.log_speed[0, length], tokens[length]])
        gains = []
        for speed, al in np.exp(rng.multivariate_normal(mean, spread, size=800)):
            printed = {length: float(np.clip(al, 1.001, 1 + length))} if length else {}
            after = prior.after([Timing(0, length, float(speed), printed)]).log_speed[0]
            gains.append(after.max() - after[prior.chosen[0]])
        error = np.std(gains) / np.sqrt(len(gains))
        assert prior.worths[0, length] == pytest.approx(np.mean(gains), abs=4 * error + 4e-4)


def test_one_timing_says_nothing_of_ratios_where_acceptance_is_known() -> None:
    """The level is free: a single speed moves all alike, so the first is the choice itself."""
    prior = belief(spread=1e-6, known=False)
    first = prior.next_timing()
    assert first.candidate == Candidate(0, prior.choices[0])
    assert first.worth < 1e-3
    for speed in (1e-3, 812.0):
        after = prior.after([Timing(0, prior.choices[0], speed)])
        moved = after.log_speed[0] - prior.log_speed[0]
        assert np.ptp(moved) < 1e-3


def test_a_unit_of_speed_changes_nothing() -> None:
    prior = belief(known=False)
    one, other = (
        prior.after([Timing(0, 2, 2.0 * unit, {2: 2.0}), Timing(0, 3, 1.9 * unit, {3: 2.2})])
        for unit in (1.0, 1000.0)
    )
    assert one.choices == other.choices
    assert one.promise() == pytest.approx(other.promise(), abs=1e-3)


def test_what_runs_already_is_timed_first() -> None:
    assert belief().next_timing(running=Candidate(0, 1)).candidate == Candidate(0, 1)


def test_loads_share_acceptance_and_draft_passes() -> None:
    """AL(3) = 1.4 at one load, of 2.3 expected, makes drafts worth less at the other as well."""
    prior = belief(loads=2, known=False)
    after = prior.after([Timing(0, 3, 1.0, {3: 1.4})])
    assert after.choices[1] < prior.choices[1]
    expected = log_tokens(prior.mean[-3:])[0][3]
    assert np.exp(expected) == pytest.approx(2.3, abs=0.15)
    assert after.tokens_per_step[3] == pytest.approx(1.4, abs=0.05)


def test_repeats_are_worth_less_and_less() -> None:
    prior = belief(known=False).after([Timing(0, 2, 2.0, {2: 2.0}), Timing(0, 1, 1.7, {1: 1.6})])
    deviations = []
    for repeats in (1, 4, 16):
        found = prior.after([Timing(0, 3, 1.9, {3: 2.2}, repeats)])
        between = np.eye(4)[3] - np.eye(4)[2]
        slopes = between @ found._speed_slopes
        deviations.append(float(np.sqrt(slopes @ found.covariance @ slopes)))
    assert all(later < earlier for earlier, later in pairwise(deviations))


def test_survival_tells_of_shorter_drafts() -> None:
    """AL(1 ... 3) of one timing leave less open at D = 1 than AL(3) alone."""
    prior = belief(known=False)
    whole = prior.after([Timing(0, 3, 1.9, {1: 1.7, 2: 2.1, 3: 2.4})])
    last = prior.after([Timing(0, 3, 1.9, {3: 2.4})])
    assert whole.tokens_per_step[1] == pytest.approx(1.7, abs=0.01)
    assert whole.promise().regret < last.promise().regret


def test_published_tokens_that_no_survival_has_do_not_break_the_fit() -> None:
    """AL that falls with D, as published here and there."""
    found = belief(known=False).after(
        [Timing(0, 2, 2.0, {2: 2.2}), Timing(0, 3, 1.7, {3: 2.1}), Timing(0, 1, 1.5, {1: 1.9})]
    )
    assert np.isfinite(found.mean).all()
    assert found.choices[0] in LENGTHS


def test_it_stops_once_nothing_is_worth_a_timing() -> None:
    assert not belief().enough
    found = belief(known=False)
    for length in (*LENGTHS, *LENGTHS):
        speed = (1.0, 1.6, 2.0, 1.7)[length]
        found = found.after(
            [Timing(0, length, speed, {length: 1 + 0.6 * length} if length else {})]
        )
    assert found.choices == (2,)
    assert found.enough
    assert found.promise().regret < 0.003


def test_what_does_not_fit_is_never_chosen_nor_timed() -> None:
    prior = belief()
    prior = replace(prior, allowed=np.array([[True, True, False, False]]))
    found = prior.after([Timing(0, 1, 1.7, {1: 1.6})])
    assert prior.choices[0] in (0, 1)
    assert found.next_timing().candidate.draft_length in (0, 1)
    assert not found.worths[0, 2:].any()


def test_a_contradiction_is_as_many_deviations_as_by_hand() -> None:
    """Acceptance known, nothing but own scatter: two lengths differ by 0.02 sqrt 2 and noise."""
    narrow = replace(GROWTH, drafting=0.0, growth=0.0, draft=0.0, overhead=0.0)
    prior = joint_prior(
        draft_lengths=(0, 1),
        verify=np.ones((1, 2)),
        draft=np.zeros((1, 2)),
        overhead=np.zeros((1, 2)),
        logits=np.zeros(1),
        logit_covariance=1e-12 * np.eye(1),
        deviations=narrow,
    )
    after = prior.after([Timing(0, 0, 100.0)])
    (speed,) = after.surprises(Timing(0, 1, 150.0 * np.exp(0.1)))
    assert speed.expected == pytest.approx(150.0, rel=1e-3)
    expected = 0.1 / np.sqrt(2 * 0.02**2 + 2 * SPEED_NOISE**2)
    assert speed.deviations == pytest.approx(expected, rel=1e-2)


def test_what_one_run_happened_to_accept_is_no_matter_of_its_steps() -> None:
    """A run of 25 passes that accepted a fifth more is as much faster: its step is as long."""
    prior = belief(spread=0.1)
    tokens = float(prior.tokens_per_step[2])
    lucky, usual = (
        prior.after(
            [Timing(0, 0, 1.0), Timing(0, 2, luck * tokens / 1.3, {2: luck * tokens}, passes=25)]
        )
        for luck in (1.2, 1.0)
    )
    assert lucky.mean[2] - lucky.mean[0] == pytest.approx(np.log(1.3), abs=0.02)
    assert lucky.mean[2] == pytest.approx(usual.mean[2], abs=1e-3)
    moved = np.log(lucky.tokens_per_step[2] / usual.tokens_per_step[2])
    assert 0 < moved < 0.5 * np.log(1.2)  # 25 passes say little


def test_the_scatter_of_counted_tokens_by_hand() -> None:
    """One draft in two over 100 passes: sqrt(0.25 / 100) of 1.5 tokens, beside 1 % of printing."""
    prior = joint_prior(
        draft_lengths=(0, 1),
        verify=np.ones((1, 2)),
        draft=np.zeros((1, 2)),
        overhead=np.zeros((1, 2)),
        logits=np.zeros(1),
        logit_covariance=1e-12 * np.eye(1),
    )
    _, tokens = prior.surprises(Timing(0, 1, 1.0, {1: 1.5 * 1.1}, passes=100))
    scatter = np.hypot(0.05 / 1.5, 0.01)
    assert tokens.deviations == pytest.approx(np.log(1.1) / scatter, rel=1e-3)
    assert tokens.expected == pytest.approx(1.5)
