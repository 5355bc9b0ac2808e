"""Steps of real engines on a processor, against what is predicted of them."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.timing.timed import PROCESSORS
from workshop.proof import processor


@pytest.fixture(scope="module")
def found() -> list[processor.Predictions]:
    return [processor.predictions(sweep) for sweep in processor.SWEEPS]


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
@pytest.mark.parametrize(("name", "bar"), [(processor.OWN, 0.20), (processor.BOTH, 0.10)])
def test_real_steps_are_predicted(
    found: list[processor.Predictions], engine: str, name: str, bar: float
) -> None:
    """R(D), D = 1 to 7, as real servers gave it: from own kernels, and two timings."""
    mine = [each for each in found if each.sweep.engine == engine]
    assert np.median(np.concatenate([each.errors(name) for each in mine])) <= bar


def test_the_page_shows_what_is_found(found: list[processor.Predictions]) -> None:
    page = processor.PAGE.read_text("utf-8")
    for lines in (processor.table(found), processor.errors(found)):
        assert "\n".join(lines) + "\n" in page


def test_deviations_are_the_shipped_ones() -> None:
    """The constants in timing/timed.py are what these sweeps give, to their last digit or so."""
    fitted = processor.deviations_without(None)
    for name in ("drafting", "growth", "draft", "overhead", "own"):
        assert getattr(fitted, name) == pytest.approx(getattr(PROCESSORS, name), rel=0.05)
