"""How well the prior of acceptance does on drafters that it has not seen."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.acceptance.prior import acceptance_prior
from roofline.validation.acceptance import (
    HIDDEN,
    LeftOutValue,
    _may_be,
    _scores,
    all_scales,
    continuations,
    left_out_values,
    posteriors,
)

#: Kinds with twenty values and more. Suffix decoding is not among them: four makers in two studies
#: say so little of the next that its range is that of other kinds as well, and too wide for these.
KINDS = ("dflash", "draft_model", "dspark", "eagle3", "mtp", "ngram")
#: Where the 80 % range holds less or more than its bar of 75 to 88 %: 30 values of five makers, 80
#: of six and 172 of twelve.
MISSES = {
    ("kind, domain", "draft_model"): (0.85, 0.93),
    ("kind, domain", "ngram"): (0.70, 0.75),
    ("kind", "dspark"): (0.70, 0.75),
}


@pytest.fixture(scope="module")
def values() -> dict[str, list[LeftOutValue]]:
    return {known: list(left_out_values(known)) for known in HIDDEN}


def test_a_drafter_left_out_is_foretold(values: dict[str, list[LeftOutValue]]) -> None:
    every = values["kind, domain, recipe"]
    deep = [v for v in every if v.draft_length in (3, 5, 7) and v.kind not in ("ngram", "suffix")]
    errors = np.abs([v.predicted / v.measured - 1 for v in deep])
    assert np.median(errors) < 0.09
    assert np.quantile(errors, 0.9) < 0.28  # 0.24 is the aim: heads that fail show in no label


@pytest.mark.parametrize("known", HIDDEN)
def test_ranges_hold_what_they_say(values: dict[str, list[LeftOutValue]], known: str) -> None:
    """The scale of a range is that of the other drafters' misses, the domain known or not."""
    assert 0.75 < np.mean([v.inside for v in values[known]]) < 0.88
    for kind in KINDS:
        own = [v.inside for v in values[known] if v.kind == kind]
        assert len(own) >= 20
        low, high = MISSES.get((known, kind), (0.75, 0.88))
        assert low <= np.mean(own) <= high, kind


def test_a_scale_is_set_by_the_other_drafters() -> None:
    every = all_scales()
    makers = {made for _, made, _ in _scores()["kind"]}
    moved = [all_scales(frozenset([made]))["kind"] for made in sorted(makers)[:20]]
    assert any(scale != every["kind"] for scale in moved)
    shipped = {k: v for part in acceptance_prior().parts for k, v in part.scales["kind"].items()}
    assert shipped == pytest.approx(every["kind"], abs=0.01)  # the numbers are stored rounded


def test_who_may_be_the_same_drafter_is_left_out_too() -> None:
    """A head of Llama-3.1-8B whose maker nobody stated may be any of the public ones."""
    posterior = posteriors()["chain"]
    (unstated, *_) = (v for v in posterior.design.first if v.id.startswith("h100dl-"))
    out = _may_be(unstated)
    assert "eagle3|llama3.18b|EAGLE authors" in out
    assert not any("qwen" in made for made in out)


def test_a_curve_that_ends_early_goes_on() -> None:
    for d, most in ((5, 0.015), (7, 0.032)):
        at = [c for c in continuations() if c.draft_length == d]
        assert len(at) > 30
        assert np.median([abs(c.predicted / c.measured - 1) for c in at]) < most
