"""The prior of acceptance: its arithmetic by hand, and what the shipped one says."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.acceptance.prior import (
    DRAWN,
    Effects,
    Labels,
    acceptance_prior,
    chain_rates,
    clustered_share,
    continued,
    count_weights,
    drawn_pairs,
    lookup_rates,
    mean_weights,
    tokens_of_rates,
    weighted_quantiles,
)


def test_a_flat_chain_is_the_geometric_series() -> None:
    # Leviathan et al. 2023, Eq. (1): a = 0.8 and D = 4 give (1 - 0.8^5) / 0.2 = 3.3616
    level = np.log(0.8 / 0.2)
    rates = chain_rates(level=level, slope=0.0, depth=4)
    assert tokens_of_rates(rates=rates)[4] == pytest.approx(3.3616)


def test_a_slope_lowers_deeper_drafts_by_the_logarithm_of_the_position() -> None:
    # L = 0.4, B = -0.5: logit a_4 = 0.4 - 0.5 ln 2 = 0.0534, a_4 = 0.5134
    assert chain_rates(level=0.4, slope=-0.5, depth=4)[3] == pytest.approx(0.5134, abs=1e-4)


def test_a_lookup_is_hit_rate_times_rate() -> None:
    # h = 0.25 and a = 0.6: AL(3) = 1 + 0.25 (0.6 + 0.36 + 0.216) = 1.294
    rates = lookup_rates(level=np.log(0.25 / 0.75), slope=np.log(0.6 / 0.4), depth=3)
    assert tokens_of_rates(rates=rates)[3] == pytest.approx(1.294)


def test_draws_have_the_quantiles_of_student_t() -> None:
    # tables of Student's t, 6 degrees of freedom: the 90th percentile is 1.440, the 97.5th 2.447
    level, slope = drawn_pairs(mean=np.zeros(2), covariance=np.eye(2), tail=6)
    for drawn in (level, slope):
        assert len(drawn) == DRAWN
        assert np.quantile(drawn, (0.9, 0.975)) == pytest.approx([1.440, 2.447], rel=0.03)
        assert np.median(drawn) == pytest.approx(0.0, abs=0.02)


def test_draws_have_the_correlation_of_the_covariance() -> None:
    covariance = np.array([[0.25, -0.06], [-0.06, 0.09]])  # correlation -0.4
    level, slope = drawn_pairs(mean=np.array([1.0, -0.2]), covariance=covariance, tail=6)
    assert np.corrcoef(level, slope)[0, 1] == pytest.approx(-0.4, abs=0.05)


def test_passes_of_one_request_tell_less() -> None:
    # 100 passes of 10 requests at a = 0.6: rho = 0.45^2 x 0.24 = 0.0486; 1 / (1 + 9 rho + 100 x
    # 0.24 x 0.08^2 = 0.1536) = 0.6285
    share = clustered_share(rounds=100, per_request=10, rate=0.6)
    assert share == pytest.approx(0.6285, abs=1e-3)
    assert clustered_share(rounds=1e9, per_request=1, rate=0.5) * 1e9 == pytest.approx(
        625, rel=0.01
    )


def test_many_counts_bring_the_prior_to_the_counted_rates() -> None:
    # 1000 passes of 1000 requests accept 700, then 420: a_1 = 0.7, a_2 = 0.6, AL(2) = 2.12
    level, slope = drawn_pairs(mean=np.zeros(2), covariance=0.5 * np.eye(2), tail=6)
    rates = chain_rates(level=level, slope=slope, depth=2)
    weights = count_weights(rates=rates, counts=[1000, 700, 420], requests=1000)
    tokens = weights @ tokens_of_rates(rates=rates)
    assert tokens[2] == pytest.approx(2.12, rel=0.02)
    assert weights.sum() == pytest.approx(1.0)


def test_no_counts_leave_the_draws_alone() -> None:
    rates = chain_rates(level=np.array([0.0, 1.0]), slope=np.zeros(2), depth=3)
    weights = count_weights(rates=rates, counts=[0, 0, 0, 0], requests=1)
    assert weights.tolist() == [0.5, 0.5]


def test_a_measured_mean_moves_every_draft_length() -> None:
    level, slope = drawn_pairs(mean=np.zeros(2), covariance=0.3 * np.eye(2), tail=6)
    tokens = tokens_of_rates(rates=chain_rates(level=level, slope=slope, depth=7))
    weights = mean_weights(tokens=tokens, draft_length=3, measured=2.8)
    assert (weights @ tokens)[3] == pytest.approx(2.8, rel=0.02)
    assert (weights @ tokens)[7] > tokens[:, 7].mean()


def test_a_curve_goes_on_from_its_last_survival() -> None:
    # known to D = 2 with S_2 = 0.5; the one draw has a_3 = 0.5, a_4 = 0.25: + 0.25, + 0.0625
    rates = np.array([[0.9, 0.9, 0.5, 0.25]])
    made = continued(rates=rates, weights=np.ones(1), known=[1.0, 1.8, 2.3])
    assert made.tolist() == pytest.approx([1.0, 1.8, 2.3, 2.55, 2.6125])


def test_quantiles_follow_the_weights() -> None:
    values = np.array([[1.0, 9.0], [2.0, 8.0], [3.0, 7.0]])
    weights = np.array([0.2, 0.2, 0.6])
    found = weighted_quantiles(values=values, weights=weights, shares=[0.1, 0.5])
    assert found.tolist() == [[1.0, 7.0], [3.0, 7.0]]


TWO_KINDS = Effects(
    shape="chain",
    names=(("kind", "mtp", 0), ("kind", "mtp", 1), ("domain", "code", 0), ("recipe", "one", 0)),
    mean=np.array([1.0, -0.5, 0.3, 0.2]),
    covariance=np.diag([0.04, 0.01, 0.01, 0.02]),
    spread={
        "run": np.diag([0.04, 0.01]),
        "recipe": np.diag([0.09, 0.0]),
        "domain": np.diag([0.05, 0.0]),
        "drafter": np.diag([0.01, 0.0]),
    },
    drafters={"known": (np.array([2.0, 0.0]), np.diag([0.01, 0.01]))},
    offsets={("data set", "gsm8k"): (np.array([0.5, 0.0]), np.diag([0.02, 0.0]))},
    tail=6,
    noise=0.04,
    scales={"kind, domain": {"mtp": 2.0}, "kind": {"mtp": 3.0}},
    recipes={},
)


def test_known_labels_are_added_and_unknown_ones_scatter() -> None:
    mean, covariance = TWO_KINDS.bivariate(Labels(kind="mtp", domain="code", recipe="one"))
    assert mean.tolist() == pytest.approx([1.5, -0.5])
    # run 0.04 + kind 0.04 + domain 0.01 + recipe 0.02 + a new drafter 0.01
    assert covariance[0, 0] == pytest.approx(0.12)
    mean, covariance = TWO_KINDS.bivariate(Labels(kind="mtp", domain="code", dataset="gsm8k"))
    assert mean[0] == pytest.approx(1.8)
    # recipe unknown: 0.09 in place of 0.02, the set 0.02; its scale 2 counts squared
    assert covariance[0, 0] == pytest.approx(4 * 0.21)
    mean, covariance = TWO_KINDS.bivariate(Labels(kind="mtp"))
    assert mean[0] == pytest.approx(1.0)
    # run 0.04, kind 0.04, recipe 0.09, drafter 0.01, and a domain's scatter: 0.05; scale 3
    assert covariance[0, 0] == pytest.approx(9 * 0.23)


def test_a_known_drafter_stands_for_all_that_is_its_own() -> None:
    labels = Labels(kind="mtp", domain="code", recipe="one", drafter="known")
    mean, covariance = TWO_KINDS.bivariate(labels)
    assert mean[0] == pytest.approx(2.3)
    assert covariance[0, 0] == pytest.approx(0.04 + 0.01 + 0.01)


@pytest.mark.parametrize(
    ("kind", "domain", "expected"),
    [
        # An independent fit of this model on 710 of these values, without tails: AL at D 1, 3, 5, 7
        ("eagle3", "chat", (1.64, 2.37, 2.72, 2.93)),
        ("eagle3", "code", (1.72, 2.62, 3.11, 3.40)),
        ("mtp", "chat", (1.77, 2.74, 3.21, 3.46)),
        ("dflash", "code", (1.80, 2.92, 3.58, 3.99)),
        ("dspark", "code", (1.78, 2.87, 3.55, 4.00)),
    ],
)
def test_prior_means_are_near_an_independent_fit(
    kind: str, domain: str, expected: tuple[float, ...]
) -> None:
    rates = acceptance_prior().rates(Labels(kind=kind, domain=domain), depth=8)
    assert rates is not None
    assert tokens_of_rates(rates=rates).mean(axis=0)[[1, 3, 5, 7]] == pytest.approx(
        expected, rel=0.12
    )


def test_every_kind_answers_at_every_length_with_a_spread() -> None:
    prior = acceptance_prior()
    assert {"eagle1", "eagle3", "mtp", "dflash", "dspark", "domino", "draft_model"} < {*prior.kinds}
    for kind in prior.kinds:
        rates = prior.rates(Labels(kind=kind), depth=64)
        assert rates is not None
        tokens = tokens_of_rates(rates=rates)
        assert (np.diff(tokens.mean(axis=0)) > 0).all()
        assert (tokens.std(axis=0)[1:] > 0.02).all()
        assert (tokens <= 1 + np.arange(65)).all()


def test_kinds_without_public_chains_have_no_prior() -> None:
    for kind in ("medusa", "hydra"):
        assert acceptance_prior().rates(Labels(kind=kind), depth=3) is None


def test_a_head_beyond_its_trained_context_collapses() -> None:
    # SPEED-Bench: an EAGLE-3 head trained at 2,048 tokens has AL(3) 2.93 at 1k and 1.19 at 8k
    inside = Labels(kind="eagle3", domain="code", context=1024, trained_context=2048)
    beyond = Labels(kind="eagle3", domain="code", context=8192, trained_context=2048)
    means = []
    for labels in (inside, beyond):
        rates = acceptance_prior().rates(labels, depth=3)
        assert rates is not None
        means.append(tokens_of_rates(rates=rates).mean(axis=0)[3])
    assert means[0] > 2.3
    assert means[1] < 1.5
