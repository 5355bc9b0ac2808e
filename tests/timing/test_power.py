"""Watts and joules: limits, signs, arithmetic by hand, and the range that was published."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import PricedGrid, deploy
from roofline.specs.gpu import load_hardware, with_power_limit
from roofline.timing.power import Draw, draw_of, joules_per_token
from tests.support import Cli, assert_refused

ASK = ("recommend", "llama-3.1-8b", "--gpu", "h200-sxm", "--acceptance", "0.7")


def priced(batch: int, **options: object) -> PricedGrid:
    """Return the steps of one batch at D = 0 to 4 on an H200."""
    asked = Configuration(model="llama-3.1-8b", gpu="h200-sxm", **options)  # type: ignore[arg-type]
    deployment, _ = deploy(asked)
    return deployment.price(deployment.grid((batch,), (4096,), tuple(range(5))))


def draw(batch: int, **options: object) -> Draw:
    """Return what its boards draw."""
    found = priced(batch, **options)
    deployment = found.deployment
    placement = deployment.target.placement
    return draw_of(found.times, deployment.gpu, placement, found.grid.draft_length)


def test_decoding_draws_what_was_published() -> None:
    """arXiv 2605.11999: decoding with grouped-query attention draws 137 to 300 W on an H200."""
    for batch in (1, 8):
        assert 137 < draw(batch).watts[0, 0, 0] < 300
    assert draw(32).low[0, 0, 0] < 300  # 308 W in the middle


@pytest.mark.parametrize("batch", [1, 8, 64, 256])
def test_a_board_draws_between_idle_and_rated_power(batch: int) -> None:
    found = draw(batch)
    assert np.all(found.low >= 0.115 * 700 - 1e-9)
    assert np.all(found.high <= 700)
    assert np.all((found.low <= found.watts) & (found.watts <= found.high))


def test_more_arithmetic_draws_more() -> None:
    """Memory is as busy at every batch; products are busier with more rows."""
    assert draw(1).watts[0, 0, 0] < draw(64).watts[0, 0, 0] < draw(256).watts[0, 0, 0]


def test_joules_fall_with_the_speedup_at_the_same_power() -> None:
    """J(D) = P T(D) / (B AL(D)), so J(0) / J(D) is the speedup."""
    step, tokens = np.array([10e-3, 13e-3]), np.array([1.0, 2.2])
    joules = joules_per_token(watts=300.0, boards=4, step=step, tokens=8 * tokens)
    speedup = tokens[1] * step[0] / step[1]
    plain, drafted = np.asarray(joules)
    assert plain / drafted == pytest.approx(speedup)
    assert plain == pytest.approx(300 * 4 * 10e-3 / 8)


def test_rated_power_is_no_cap(cli: Cli) -> None:
    """The same times, draft lengths and watts as without a cap."""
    free = cli(*ASK, "--watts", "--format", "json").by_draft_length()
    capped = cli(*ASK, "--power-cap", "700", "--format", "json").by_draft_length()
    assert capped == free
    plain = cli(*ASK, "--format", "json").by_draft_length()
    assert {key: free[3][key] for key in plain[3]} == plain[3]


def test_a_cap_holds_and_slows() -> None:
    free, capped = priced(256), priced(256, power_cap=300.0)
    assert np.all(capped.times.total >= free.times.total)
    assert np.all(draw(256, power_cap=300.0).high <= 300)


def test_a_waiting_stage_draws_idle_power() -> None:
    """Four stages of which one works: less per board than one that always does."""
    assert np.all(draw(8, pp=4).watts < draw(8).watts)


def test_every_board_of_a_group_draws() -> None:
    """Two ranks do half the work each in more than half the time: less each, more together."""
    one, two = draw(8), draw(8, tp=2)
    assert np.all(two.watts[0, 0] < one.watts[0, 0])
    assert np.all(2 * two.watts[0, 0] > one.watts[0, 0])


def test_joules_in_every_form(cli: Cli) -> None:
    data = cli(*ASK, "--watts", "--batch", "8", "--format", "json").by_draft_length()
    for row in data.values():
        expected = row["watts"] * row["step_ms"] / 1e3 / (8 * row["tokens_per_step"])
        assert row["joules_per_token"] == pytest.approx(expected)
        assert row["joules_per_token_low"] < row["joules_per_token"] < row["joules_per_token_high"]
    text = cli(*ASK, "--watts").out
    assert text.startswith("Experimental: ")
    assert max(map(len, text.splitlines())) <= 80


def test_caps_out_of_range_are_refused(cli: Cli) -> None:
    for watts in ("701", "80", "0", "nan"):
        assert_refused(cli(*ASK, "--power-cap", watts), "--power-cap")
    assert_refused(cli(*ASK, "--power-cap", "701"), "rated at 700 W and idles at about 80 W")
    none = cli("recommend", "llama-3.1-8b", "--gpu", "tpu-v6e", "--watts")
    assert_refused(none, "--watts: tpu-v6e has no rated power; give it as --set gpu.tdp=400W")


def test_a_limit_is_the_board_limit_that_exists() -> None:
    gpu = load_hardware("rtx-5090")
    assert with_power_limit(gpu, 575.0).power_share == 1
    assert with_power_limit(gpu, 400.0).power_share == pytest.approx(400 / 575)
