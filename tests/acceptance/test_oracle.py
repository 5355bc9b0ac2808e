"""Acceptance against oracles that share no code with it: 50 digits, and a sampler that is played.

Closed forms are summed by mpmath. The sampler is Leviathan et al. 2023, Algorithm 1, on small
vocabularies: it drafts from q, verifies against p and counts what it emits; no survival appears in
it. Its means are compared within 5 of their own standard errors (one false alarm in 2 million).
Trees are not here: the package has no acceptance model for them, they bring their own AL.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from roofline.acceptance import tokens_per_step
from roofline.acceptance.conventions import (
    Convention,
    convert,
    iid_rate,
    standard_error,
    survival_from_histogram,
)
from roofline.acceptance.curve import from_rates, weighted_mean
from roofline.acceptance.models import decaying, fit_constant, geometric, rounds_covariance

Array = NDArray[np.float64]
DIGITS = 50
FLOAT = 1e-14  # a few roundings of the last bit
STANDARD_ERRORS = 5
ROUNDS = 60_000

rates = st.floats(min_value=0, max_value=1)
depths = st.integers(min_value=1, max_value=64)
many = settings(max_examples=200, deadline=None)


def closed_form(rate: float, depth: int) -> float:
    """(1 - a^(D+1)) / (1 - a), and its limit 1 + D at a = 1."""
    with mpmath.workdps(DIGITS):
        a = mpmath.mpf(rate)
        return float(depth + 1 if a == 1 else (1 - a ** (depth + 1)) / (1 - a))


@many
@given(rates, depths)
def test_one_rate_is_the_closed_form(rate: float, depth: int) -> None:
    expected = closed_form(rate, depth)
    assert geometric(rate=rate, depth=depth)[depth] == pytest.approx(expected, rel=FLOAT * depth)
    known = from_rates([rate], unlimited=True)
    assert known.tokens_per_step([depth])[0] == pytest.approx(expected, rel=FLOAT * depth)


@many
@given(rates, st.floats(min_value=0.05, max_value=1), depths)
def test_rates_that_fall_geometrically(first: float, ratio: float, depth: int) -> None:
    """AL = sum over i of a^i r^(i (i - 1) / 2): the product of a, a r, ... a r^(i - 1)."""
    with mpmath.workdps(DIGITS):
        a, r = mpmath.mpf(first), mpmath.mpf(ratio)
        expected = float(mpmath.fsum(a**i * r ** (i * (i - 1) // 2) for i in range(depth + 1)))
    found = decaying(first=first, ratio=ratio, depth=depth)[depth]
    assert found == pytest.approx(expected, rel=FLOAT * depth)


@many
@given(st.floats(min_value=0.01, max_value=0.99), st.integers(min_value=1, max_value=16))
def test_the_one_rate_behind_a_mean_is_the_root(rate: float, depth: int) -> None:
    mean = closed_form(rate, depth)
    with mpmath.workdps(DIGITS):
        expected = float(
            mpmath.findroot(
                lambda a: mpmath.fsum(a**i for i in range(depth + 1)) - mean,
                (0, 1),
                solver="illinois",
            )
        )
    assert iid_rate(tokens_per_step=mean, draft_length=depth) == pytest.approx(expected, abs=1e-12)
    assert fit_constant({depth: mean}, depth=depth).parameters["a"] == pytest.approx(
        expected, abs=1e-6
    )  # a minimum of squares is flat: half the digits


@many
@given(st.lists(rates, min_size=1, max_size=8))
def test_conventions_lead_back_to_where_they_began(conditional: list[float]) -> None:
    for middle in (Convention.SURVIVAL, Convention.TOKENS_PER_STEP, Convention.ACCEPTED_DRAFTS):
        there = convert(conditional, source=Convention.CONDITIONAL, target=middle)
        survival = convert(there, source=middle, target=Convention.SURVIVAL)
        with mpmath.workdps(DIGITS):
            products = [
                float(mpmath.fprod(map(mpmath.mpf, conditional[: i + 1])))
                for i in range(len(conditional))
            ]
        np.testing.assert_allclose(survival, products, atol=1e-14)


def targets_and_drafts(seed: int, depth: int, words: int = 5) -> tuple[Array, Array]:
    """Return p (depth + 1, words) and q (depth, words): any distributions, by position."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(words, 0.8), depth + 1)
    near = rng.dirichlet(np.full(words, 0.8), depth)
    return p, 0.6 * p[:depth] + 0.4 * near


def play(p: Array, q: Array, rounds: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the accepted drafts of every round, and the first token each round emits."""
    rng = np.random.default_rng(seed)
    accepted = np.zeros(rounds, dtype=np.intp)
    first = np.zeros(rounds, dtype=np.intp)
    alive = np.arange(rounds)  # rounds that have accepted all drafts so far
    for i in range(len(q)):
        tokens = rng.choice(len(p[i]), size=len(alive), p=q[i])
        kept = rng.random(len(alive)) * q[i, tokens] < p[i, tokens]
        rest = np.maximum(p[i] - q[i], 0)
        corrected = rng.choice(len(rest), size=len(alive), p=rest / rest.sum())
        if i == 0:
            first[:] = np.where(kept, tokens, corrected)
        alive = alive[kept]
        accepted[alive] += 1
    return accepted, first


@pytest.mark.parametrize(("seed", "depth"), [(1, 1), (2, 3), (3, 6)])
def test_a_sampler_that_is_played(seed: int, depth: int) -> None:
    """a_i = sum over words of min(p, q): the paper's Theorem 3.5, position by position."""
    p, q = targets_and_drafts(seed, depth)
    accepted, first = play(p, q, ROUNDS, seed)
    # the sampler is sound: what it emits first is distributed as the target would have it
    share = np.bincount(first, minlength=p.shape[1]) / ROUNDS
    assert (abs(share - p[0]) < STANDARD_ERRORS * np.sqrt(p[0] * (1 - p[0]) / ROUNDS)).all()

    conditional = np.minimum(p[:depth], q).sum(axis=1).tolist()
    curve = tokens_per_step(conditional)
    for d in range(1, depth + 1):
        emitted = 1 + np.minimum(accepted, d)
        error = emitted.std(ddof=1) / math.sqrt(ROUNDS)
        assert error < 0.01  # what 60,000 rounds tell, so that this test can fail
        assert emitted.mean() == pytest.approx(curve[d], abs=STANDARD_ERRORS * error)

    # the sampling error that is printed, and how AL at different D err together
    survival = np.cumprod(conditional)
    told = standard_error(survival=survival.tolist(), drafts=ROUNDS)
    played = float(accepted.std(ddof=1) / math.sqrt(ROUNDS))
    assert told == pytest.approx(played, rel=STANDARD_ERRORS * 2 / math.sqrt(ROUNDS))
    each = np.minimum(accepted[:, None], np.arange(1, depth + 1))
    seen = np.atleast_2d(np.cov(each, rowvar=False))
    wanted = rounds_covariance(survival)
    scale = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    assert (abs(seen - wanted) < STANDARD_ERRORS * 2 * scale / math.sqrt(ROUNDS)).all()

    # and a histogram of the rounds leads back to the same survival
    counts = np.bincount(accepted, minlength=depth + 1)
    back = survival_from_histogram(counts.tolist())
    spread = np.sqrt(survival * (1 - survival) / ROUNDS)
    assert (abs(back - survival) < STANDARD_ERRORS * spread + 1e-12).all()


def test_a_mix_is_what_a_mixed_batch_emits() -> None:
    """Two kinds of sequences, 30 and 70 % of the passes, played side by side."""
    depth, shares = 4, (0.3, 0.7)
    kinds = [targets_and_drafts(seed, depth) for seed in (11, 12)]
    parts = [
        (share, from_rates(np.minimum(p[:depth], q).sum(axis=1).tolist()))
        for share, (p, q) in zip(shares, kinds, strict=True)
    ]
    emitted = np.concatenate(
        [
            1 + play(p, q, round(share * ROUNDS), seed)[0]
            for seed, (share, (p, q)) in enumerate(zip(shares, kinds, strict=True))
        ]
    )
    told = weighted_mean(parts, label="", source="").table[depth]
    error = emitted.std(ddof=1) / math.sqrt(len(emitted))
    assert error < 0.01
    assert emitted.mean() == pytest.approx(told, abs=STANDARD_ERRORS * error)
