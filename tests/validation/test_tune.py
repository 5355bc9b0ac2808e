"""Timings replayed on published sweeps: the figures that `roofline tune` has to keep.

The limits are the project's own: mean loss above that of a full sweep timed once, over groups of
sweeps, for accelerators with measured kernels. The study that the method comes from (113 sweeps)
reached 0.7 to 1.0, 0.15 and 0.00 % without noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roofline.validation.tune import (
    AL,
    MEASURED,
    NOTHING,
    RULES,
    SURVIVAL,
    TimedSweep,
    deviations_without,
    timed_sweeps,
    tune_rows,
)

pytest.importorskip("scipy")

LIMITS = {
    ("expected", 1): 0.010,
    ("expected", 2): 0.0035,
    ("expected", 3): 0.002,
    ("own", 1): 0.008,
    ("own", 2): 0.0025,
    ("own", 3): 0.0015,
}
#: What is missed where AL is printed alone: DeepSeek-R1 is a group of one sweep, and loses 3 %.
MISSED = ("expected", 2)


@pytest.fixture(scope="module")
def sweeps() -> list[TimedSweep]:
    return [sweep for sweep in timed_sweeps() if not sweep.priors_only]


@pytest.fixture(scope="module")
def rows(sweeps: list[TimedSweep]) -> list[dict[str, Any]]:
    return tune_rows(sweeps, printed=(SURVIVAL, AL))


def by(
    rows: list[dict[str, Any]], printed: str, rule: str = "ours"
) -> dict[tuple[str, int], dict[str, Any]]:
    chosen = [row for row in rows if row["kind"] == "regret" and row["rule"] == rule]
    return {(row["acceptance"], row["after"]): row for row in chosen if row["printed"] == printed}


@pytest.mark.parametrize("printed", [SURVIVAL, AL])
def test_losses_keep_their_limits(rows: list[dict[str, Any]], printed: str) -> None:
    found = by(rows, printed)
    for about, limit in LIMITS.items():
        if (printed, about) != (AL, MISSED):
            assert found[about]["mean_regret"] <= limit, about
    assert max(found[name, 3]["worst_regret"] for name in ("expected", "own")) <= 0.04
    assert {row["part"] for row in rows} == {MEASURED}


@pytest.mark.xfail(strict=True, reason="one group of one sweep loses 3 % after two timings")
def test_two_timings_with_tokens_per_step_alone(rows: list[dict[str, Any]]) -> None:
    assert by(rows, AL)[MISSED]["mean_regret"] <= LIMITS[MISSED]


@pytest.mark.parametrize("printed", [SURVIVAL, AL])
def test_it_beats_other_rules(rows: list[dict[str, Any]], printed: str) -> None:
    """Where AL is printed alone the line through two timings is as good after two."""
    ours = by(rows, printed)
    for rule in RULES[1:]:
        other = by(rows, printed, rule)
        for about, row in ours.items():
            if (printed, rule, about) != (AL, "two and a line", MISSED):
                assert row["mean_regret"] <= other[about]["mean_regret"], (rule, about)


def test_it_stops_in_time_and_keeps_its_bound(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["kind"] == "stop":
            assert row["timings"] <= 3
            assert row["kept_share"] >= 0.9
            assert row["mean_regret"] <= 0.003


def test_deviations_are_the_shipped_ones(sweeps: list[TimedSweep]) -> None:
    """The constants in timing/timed.py are what the fit gives, to their last digit or so."""
    from roofline.timing.timed import GROWTH

    fitted = deviations_without("", timed_sweeps())
    for name in ("drafting", "growth", "draft", "overhead", "own"):
        assert getattr(fitted, name) == pytest.approx(getattr(GROWTH, name), rel=0.1)
    assert sweeps


def test_a_sweep_is_in_its_own_words(sweeps: list[TimedSweep]) -> None:
    """vLLM pull 20780: EAGLE-1 on Llama-3.1-8B runs fastest at D = 3 on MT-bench."""
    (sweep,) = [s for s in sweeps if s.group == "vllm20780" and "eagle1" in s.name]
    assert sweep.lengths == (0, 2, 3, 4, 5, 6, 7)
    assert sweep.lengths[int(np.argmax(sweep.speed))] == 3
    shares = np.sum(sweep.parts, axis=0)
    assert shares == pytest.approx(np.ones(7))
    assert sweep.parts[1][0] == 0  # nothing is drafted at D = 0


def test_sweeps_without_tokens_are_replayed_without(sweeps: list[TimedSweep]) -> None:
    some = [sweep for sweep in sweeps if sweep.tokens is None][:1]
    (group,) = {row["n"] for row in tune_rows(some, rules=("ours",), copies=1)}
    assert group == 1
    assert {row["printed"] for row in tune_rows(some, rules=("ours",), copies=1)} == {NOTHING}
