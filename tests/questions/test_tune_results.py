"""A benchmark's result as a timing: other engines, models and loads are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from roofline.advice.belief import Timing, joint_prior
from roofline.base.errors import InputError
from roofline.engines.bench_result import BenchResult
from roofline.questions.tune.results import timed_of

BENCH = BenchResult(
    engine="vllm",
    draft_length=3,
    concurrency=7.6,
    tokens_per_s=812.0,
    tokens_per_step=2.4,
    survival=(0.7, 0.45, 0.25),
    prompts_inside=False,
    model="Qwen/Qwen3-8B",
    spread=0.01,
    repeats=2,
)


def read(result: BenchResult, **more: Any) -> Any:
    asked: dict[str, Any] = {
        "engine": "vllm",
        "models": ("qwen3-8b",),
        "batches": (1, 8, 64),
        "batch": None,
        "source": "bench.json",
    }
    return timed_of(result, **(asked | more))


def test_a_result_is_a_timing_at_the_nearest_batch() -> None:
    found = read(BENCH)
    assert (found.batch, found.draft_length, found.repeats) == (8, 3, 2)
    assert found.tokens == pytest.approx({1: 1.7, 2: 2.15, 3: 2.4})  # sums of survival
    assert found.source == "bench.json"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"engine": "sglang"}, "sglang"),
        ({"model": "meta-llama/Llama-3.1-8B"}, "Llama"),
        ({"draft_length": None}, "draft length"),
        ({"concurrency": 20.0}, "batch"),
        ({"concurrency": None}, "batch"),
        ({"prompts_inside": True}, "prompts"),
        ({"tokens_per_s": -1.0}, "tokens_per_s"),
        ({"tokens_per_s": float("inf")}, "tokens_per_s"),
        ({"tokens_per_step": 0.2, "survival": ()}, "tokens_per_step"),
    ],
)
def test_what_is_not_asked_about_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        read(replace(BENCH, **change))


def test_prompts_inside_are_taken_if_they_are_meant() -> None:
    assert read(replace(BENCH, prompts_inside=True), force=True).tokens_per_s == 812.0


def test_a_held_acceptance_tells_of_step_times_alone() -> None:
    """T(3) = AL / speed = 2.5 / 100: it moves the step, and leaves acceptance as it was."""
    found = read(replace(BENCH, held=2.5, tokens_per_step=2.5))
    assert found.tokens == {}
    assert found.held == 2.5
    prior = joint_prior(
        draft_lengths=(0, 3),
        verify=np.ones((1, 2)),
        draft=np.array([[0.0, 0.3]]),
        overhead=np.full((1, 2), 0.1),
        logits=np.zeros(3),
        logit_covariance=0.25 * np.eye(3),
    )
    steps = {0: 0.011, 3: 0.0154}  # as predicted: 1.1 and 1.4 of the same unit
    timings = [
        Timing(0, 0, 1 / steps[0], held=1.0),
        Timing(0, 3, 2.5 / steps[3], held=2.5),
    ]
    after = prior.after(timings)
    assert after.tokens_per_step == pytest.approx(prior.tokens_per_step)
    times = np.exp(after.mean[:2])
    assert times[1] / times[0] == pytest.approx(1.4, rel=0.005)
