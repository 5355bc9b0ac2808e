"""The fit of the prior of acceptance: made-up values, rows left out, and the shipped file."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from roofline.acceptance.prior import Labels, acceptance_prior, chain_rates, tokens_of_rates
from roofline.acceptance.values import values_text
from roofline.base import resources
from roofline.base.schema import load_yaml
from roofline.calibrate.fit.acceptance import Value, fit, load_values, scales

DOMAINS = {"chat": 0.0, "code": 0.3}


def made_up() -> list[Value]:
    """Values of 30 drafters of two kinds: level 0.6 and 1.1, slope -0.1 and -0.5, code + 0.3."""
    generator = np.random.default_rng(7)
    values = []
    for number in range(30):
        kind = ("eagle3", "mtp")[number % 2]
        drafter = f"{kind}|{number}"
        own = generator.normal(0, (0.2, 0.1))
        for domain, shift in DOMAINS.items():
            run = generator.normal(0, (0.1, 0.05))
            level = (0.6, 1.1)[number % 2] + own[0] + run[0] + shift
            slope = (-0.1, -0.5)[number % 2] + own[1] + run[1]
            tokens = tokens_of_rates(rates=chain_rates(level=level, slope=slope, depth=7))
            values += [
                Value(
                    id=f"{drafter}-{domain}-{d}",
                    labels=Labels(kind=kind, domain=domain, recipe="r", family="f", dataset=domain),
                    target="f-7b",
                    drafter=drafter,
                    made=drafter,
                    model="f7b",
                    run=(drafter, domain),
                    draft_length=d,
                    tokens_per_step=float(tokens[d]),
                    source="made up",
                )
                for d in (1, 3, 5, 7)
            ]
    return values


def test_a_fit_finds_what_values_were_made_of() -> None:
    posterior = fit(made_up(), shape="chain", iterations=30)
    effects = posterior.effects(scales={})
    for kind, level, slope in (("eagle3", 0.6, -0.1), ("mtp", 1.1, -0.5)):
        for domain, shift in DOMAINS.items():
            labels = Labels(kind=kind, domain=domain, recipe="r", family="f", dataset=domain)
            mean, _ = effects.bivariate(labels)
            # the mean of 15 drafters is known to 0.2 / sqrt(15) = 0.05 and 0.1 / sqrt(15) = 0.03
            assert mean == pytest.approx([level + shift, slope], abs=0.15)
    assert np.sqrt(posterior.spread["run"][0, 0]) == pytest.approx(0.1, abs=0.05)


def test_leaving_runs_out_is_a_fit_without_them() -> None:
    values = made_up()
    every = fit(values, shape="chain", iterations=30)
    gone = np.array([value.made == "mtp|1" for value in every.design.first])
    left = every.without(gone).effects(scales={})
    fewer = [value for value in values if value.made != "mtp|1"]
    again = fit(
        fewer, shape="chain", spread=every.spread, noise=every.noise, iterations=30
    ).effects(scales={})
    labels = Labels(kind="mtp", domain="code", recipe="r", family="f", dataset="code")
    (mean, covariance), (mean_again, covariance_again) = (
        effects.bivariate(labels) for effects in (left, again)
    )
    assert mean == pytest.approx(mean_again, abs=0.02)
    assert covariance == pytest.approx(covariance_again, abs=0.01)
    assert "mtp|1" not in left.drafters


def test_a_scale_widens_what_was_too_narrow() -> None:
    # sizes 0.1 ... 1.0 of one kind: four in five are within 0.82, over 1.2816 is 0.64; the pull to
    # all kinds changes nothing where there is but one
    scores = [("mtp", f"maker {i}", i / 10) for i in range(1, 11)]
    assert scales(scores)["mtp"] == pytest.approx(0.82 / 1.2816, abs=1e-3)


def test_the_shipped_prior_is_of_the_shipped_values() -> None:
    data = load_yaml(resources.data_file("acceptance_prior.yaml"))
    assert data["values"] == hashlib.sha256(values_text().encode()).hexdigest()[:16], (
        "values.csv has changed: python -m workshop.acceptance_prior"
    )


def test_the_shipped_lookups_are_what_a_fit_gives() -> None:
    """The chains take half a minute; lookups take the same way."""
    (shipped,) = (part for part in acceptance_prior().parts if part.shape == "lookup")
    fitted = fit(load_values(), shape="lookup").effects(scales={})
    at = {name: i for i, name in enumerate(fitted.names)}
    again = [fitted.mean[at[name]] for name in shipped.names]
    assert shipped.mean == pytest.approx(again, abs=1e-3)  # as the file is rounded
    assert shipped.drafters.keys() == fitted.drafters.keys()
