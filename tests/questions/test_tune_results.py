"""A benchmark's result as a timing: other engines, models and loads are refused."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.advice.belief import Timing, joint_prior
from roofline.base.errors import InputError
from roofline.engines.bench_result import BenchResult
from roofline.questions.tune.file import TuningFile, add_timings, load_tuning, save_tuning
from roofline.questions.tune.results import check_new, check_timed, timed_of

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


def test_the_mean_of_a_run_is_of_a_batch_that_is_said() -> None:
    """A tool that says the mean of the running requests says 5.3 of a run with 8."""
    with pytest.raises(InputError, match=r"5.3 requests ran at once.*mean of a run.*give batch"):
        read(replace(BENCH, concurrency=5.3))
    with pytest.raises(InputError, match=r"begin another file, with batch=20"):
        read(replace(BENCH, concurrency=20.0))


def test_shares_that_do_not_fit_are_refused() -> None:
    """Draft 2 is accepted only after draft 1: S_2 <= S_1; three drafts have three shares."""
    asked: dict[str, Any] = {"draft_lengths": (0, 1, 2, 3), "batches": (1, 8, 64), "where": "r"}
    with pytest.raises(InputError, match="grow by position"):
        check_timed(read(replace(BENCH, survival=(0.2, 0.9, 0.1))), **asked)
    with pytest.raises(InputError, match="2 shares"):
        check_timed(read(replace(BENCH, survival=(0.7, 0.7))), **asked)


@pytest.mark.parametrize(
    ("change", "same"),
    [({"source": "copy.json"}, True), ({"tokens_per_s": 812.5}, False), ({"batch": 64}, False)],
)
def test_a_timing_is_known_by_its_numbers(change: dict[str, Any], same: bool) -> None:
    found = read(BENCH)
    other = found.model_copy(update=change)
    if same:
        with pytest.raises(InputError, match="added before"):
            check_new(other, [found])
    else:
        check_new(other, [found])


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """flock(2): ENOLCK where the file system keeps no locks; any other failure is one line."""
    fcntl = pytest.importorskip("fcntl")

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    file = tmp_path / "t.yaml"
    save_tuning(file, TuningFile.begin({"model": "qwen3-8b"}, engine="vllm"))
    if number == errno.ENOLCK:
        assert len(add_timings(file, (read(BENCH),)).timings) == 1
    else:
        with pytest.raises(InputError, match="cannot be read"):
            add_timings(file, (read(BENCH),))
        assert load_tuning(file).timings == ()


def test_a_file_that_is_gone_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        add_timings(tmp_path / "none.yaml", ())


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
