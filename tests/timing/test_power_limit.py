"""A board that may draw less: its clock falls and arithmetic with it, its memory below a knee."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.specs.formats import DType
from roofline.specs.gpu import clock_share, memory_share
from roofline.specs.overrides import parse_override
from tests.support import Cli, assert_refused

ASK = ("recommend", "qwen3.6-27b", "--gpu", "5090", "--engine", "llamacpp", "--drafter", "none")


def _steps(*sets: str) -> NDArray[np.float64]:
    """Return the steps at D = 0 to 6 of the published sweeps on an RTX 5090 [s]."""
    deployment, _ = deploy(
        Configuration(
            model="qwen3.6-27b",
            gpu="rtx-5090",
            engine="llamacpp",
            weights=DType.Q4_K_XL,
            drafter="mtp",
            overrides=tuple(parse_override(each) for each in sets),
        )
    )
    grid = deployment.grid((1,), (300,), tuple(range(7)))
    return np.asarray(deployment.price(grid).times.total[0, 0])


def test_cost_ratios_under_a_cap() -> None:
    """sudoingX/qwen38-mtp, RTX 5090: R at 400 W is 1.04 to 1.15 of R at 600 W, above its 575 W."""
    free, capped = _steps("gpu.power_limit=600W"), _steps("gpu.power_limit=400W")
    assert np.array_equal(free, _steps())
    growth = (capped / capped[0]) / (free / free[0])
    assert np.all((growth[2:6] >= 1.04) & (growth[2:6] <= 1.15))
    assert np.all(np.diff(growth) > 0)
    assert 1 < capped[0] / free[0] < 1.05  # a plain step waits for memory


def test_the_memory_holds_on_to_a_knee() -> None:
    """Half the power: 0.3 / 0.8 of the clock; a quarter: half the bandwidth."""
    assert clock_share(0.5) == pytest.approx(0.375)
    assert (memory_share(0.5), memory_share(0.25)) == (1.0, 0.5)
    assert (clock_share(1.2), memory_share(1.2)) == (1.0, 1.0)


def test_what_is_assumed_is_said(cli: Cli) -> None:
    done = cli(*ASK, "--weights", "q4_k_m", "--set", "gpu.power_limit=400 W", "--notes")
    assert "the clock is taken as 62% and the memory's bandwidth as 100%" in " ".join(
        done.said.split()
    )
    assert "power limit" not in cli(*ASK, "--weights", "q4_k_m", "--notes").said


def test_a_limit_needs_the_power_without_it(cli: Cli) -> None:
    ask = ("recommend", "llama-3.1-8b", "--gpu", "apple-m4-max", "--engine", "llamacpp")
    refused = cli(*ask, "--drafter", "none", "--set", "gpu.power_limit=40W")
    assert_refused(refused, "--set", "needs tdp")
