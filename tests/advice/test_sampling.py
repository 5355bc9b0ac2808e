"""What a finite count leaves open: against a simulation, and in the ranges that are printed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from roofline.acceptance.models import (
    drawn_tokens_per_step,
    rounds_covariance,
    survival_by_position,
)
from roofline.advice.decide import Confidence, Point
from roofline.render.why import likely_line
from tests.schedule_rules import vllm_config
from tests.support import ENGINE, Cli, assert_refused, write


def test_covariance_against_a_simulation() -> None:
    """400,000 rounds of a chain with a = 0.8, 0.7, 0.5 (fixed generator)."""
    conditional = np.array([0.8, 0.7, 0.5])
    generator = np.random.default_rng(20261129)
    accepted = np.cumprod(generator.random((400_000, 3)) < conditional, axis=1)
    simulated = np.cov(np.cumsum(accepted, axis=1).T)
    assert rounds_covariance(np.cumprod(conditional)) == pytest.approx(simulated, abs=0.01)


def test_one_draft_is_a_coin() -> None:
    """Binomial: 0.7 x 0.3 / 900 rounds, a standard error of 0.0153."""
    draws = drawn_tokens_per_step((0, 1), np.array([[1.0, 1.7]]), 900)[:, 0, 0, :]
    assert (draws[:, 0] == 1).all()
    assert draws[:, 1].std() == pytest.approx(math.sqrt(0.7 * 0.3 / 900), rel=0.1)
    assert draws[:, 1].mean() == pytest.approx(1.7, abs=0.003)


def test_a_table_that_falls_is_held_to_a_chain() -> None:
    """DSpark's measured curve falls after D = 6; survival cannot be negative."""
    curve = np.array([1, 1.84, 2.51, 3.01, 3.36, 3.61, 3.77, 3.73])
    found = survival_by_position(tuple(range(8)), curve)
    assert found[-1] == 0
    assert (np.diff(found) <= 0).all()


COUNTED = ("recommend", "llama-3.1-8b", "--acceptance", "al:1=1.77,2=2.36,3=2.79,4=3.1,5=3.3")


def test_fewer_rounds_widen_the_range(cli: Cli) -> None:
    widths = []
    for rounds in ("10000", "30"):
        point = cli(*COUNTED, "--acceptance-rounds", rounds, "--format", "json").point()
        widths.append(point["speedup_high"] - point["speedup_low"])
    assert widths[0] < widths[1]


def test_what_nobody_measured_says_less_than_numbers_of_ones_own(cli: Cli) -> None:
    """The range of an expected acceptance holds its own error beside that of the step times."""
    widths = []
    for options in (("--acceptance", "al:1=1.7,2=2.16,3=2.5"), ()):
        point = cli(
            "recommend", "qwen3-8b", "--drafter", "eagle3", *options, "--max-draft-length", "3",
            "--format", "json",
        ).point()  # fmt: skip
        widths.append(point["speedup_high"] / point["speedup_low"])
    assert widths[0] < 0.9 * widths[1]


def test_the_odds_of_an_expected_acceptance_claim_no_certainty(cli: Cli) -> None:
    """The head's own run was best at D = 4, 1.75x (vLLM issue 20780), which the range holds."""
    point = cli(
        "recommend", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "2k", "--format", "json"
    ).point()
    near = {row["draft_length"]: row["near_best"] for row in point["by_draft_length"]}
    assert max(near.values()) < 0.8
    assert near[4] > 0.1
    assert point["speedup_low"] < 1.75 < point["speedup_high"]


def test_a_count_of_very_many_passes_is_the_curve_itself(cli: Cli) -> None:
    many = cli(*COUNTED, "--acceptance-rounds", "100000000", "--format", "json").point()
    plain = cli(*COUNTED, "--format", "json").point()
    assert many["draft_length"] == plain["draft_length"]
    assert many["speedup"] == pytest.approx(plain["speedup"], rel=1e-3)


def test_odds_of_being_within_a_percent(cli: Cli) -> None:
    """At rate 0 nothing can beat D = 0; every share lies between 0 and 1, and one is large."""
    lost = cli("recommend", "llama-3.1-8b", "--acceptance", "0", "--format", "json")
    assert lost.by_draft_length()[0]["near_best"] == 1
    open_rows = cli(*COUNTED, "--acceptance-rounds", "50", "--format", "json").by_draft_length()
    odds = [row["near_best"] for row in open_rows.values()]
    assert all(0 <= share <= 1 for share in odds)
    assert sum(odds) >= 1


@pytest.mark.parametrize("rounds", [[], ["--acceptance-rounds", "40"]])
def test_two_or_three_lengths_are_worth_timing(cli: Cli, rounds: list[str]) -> None:
    """Ask 67: 27 configurations in five batches become two or three."""
    point = cli(*COUNTED, *rounds, "--format", "json").point()
    assert 2 <= len(point["benchmark"]) <= 3
    odds = {row["draft_length"]: row["near_best"] for row in point["by_draft_length"]}
    timed = {row["draft_length"] for row in point["benchmark"]}
    assert max(odds, key=lambda d: odds[d]) in timed


@pytest.mark.parametrize(("rate", "advised"), [("0.4", 4), ("0.2", 2)])
def test_the_advice_is_among_what_is_timed(cli: Cli, rate: str, advised: int) -> None:
    """Found by a user: a long tie advised its smallest length, and named only others to time."""
    ask = ("recommend", "mistral-nemo-instruct-2407", "--gpu", "l40s", "--drafter", "ngram")
    answer = cli(*ask, "--acceptance", rate)
    point = cli(*ask, "--acceptance", rate, "--format", "json").point()
    assert point["draft_length"] == advised
    assert advised in {row["draft_length"] for row in point["benchmark"]}
    odds = answer.out[answer.out.index("Odds of") : answer.out.index("Time D =")]
    assert f"% for D = {advised}" in " ".join(odds.split())


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_the_engines_own_switch_holds_the_acceptance(cli: Cli, engine: str) -> None:
    """vLLM and SGLang count the bonus token, TensorRT-LLM does not (theory 2)."""
    answer = cli(
        "recommend", "llama-3.1-8b", "--context", "1k", "--engine", engine, "--format", "json"
    )
    rows = answer.by_draft_length()
    for timed in answer.point()["benchmark"]:
        length, text = timed["draft_length"], timed["flag"]
        tokens = rows[length]["tokens_per_step"]
        if engine == "vllm":
            config = vllm_config(text)
            assert config["rejection_sample_method"] == "synthetic"
            assert config["synthetic_acceptance_length"] == pytest.approx(tokens, abs=0.005)
            assert config["num_speculative_tokens"] == length
            continue
        name = {"sglang": "SGLANG_SIMULATE_ACC_LEN", "trtllm": "TLLM_SPEC_DECODE_FORCE_NUM"}[engine]
        export, first = text.split()[:2]
        assert export == "export"
        assert first.startswith(name)
        bonus = 0 if engine == "sglang" else 1
        assert float(first.split("=")[1]) == pytest.approx(tokens - bonus, abs=0.005)
    if engine == "trtllm":
        body = text.split("\n", 1)[1]
        assert yaml.safe_load(body)["speculative_config"]["max_draft_len"] == length


def test_an_engine_without_the_switch_says_so(cli: Cli, tmp_path: Path) -> None:
    """All bundled engines have one by now; an engine file of one's own need not."""
    own = write(tmp_path, "engine.yaml", ENGINE)
    ask = ("llama-3.1-8b", "--engine", own, "--drafter", "ngram", "--acceptance", "0.6")
    assert "cannot hold acceptance fixed" in cli("recommend", *ask, "--explain").out
    timed = cli("recommend", *ask, "--format", "json").point()["benchmark"]
    assert {row["flag"] for row in timed if row["draft_length"]} == {None}


def test_a_gain_inside_the_error_is_said_in_words(cli: Cli) -> None:
    """Near break-even the range straddles 1."""
    for rate in np.arange(0.20, 0.50, 0.01):
        outcome = cli(
            "recommend", "llama-3.1-8b", "--batch", "128", "--context", "1k", "--acceptance",
            f"{rate:.2f}", "--format", "json",
        )  # fmt: skip
        point = json.loads(outcome.out)["points"][0]
        if point["draft_length"] and point["confidence"] == "inside_error":
            assert "inside the error" in point["headline"]
            return
    pytest.fail("no rate leaves the gain inside the error")


def test_rounds_must_be_counted(cli: Cli) -> None:
    assert_refused(
        cli("recommend", "llama-3.1-8b", "--acceptance-rounds", "0"), "--acceptance-rounds", "0"
    )
    alone = cli("recommend", "llama-3.1-8b", "--acceptance-rounds", "50")
    assert_refused(alone, "--acceptance-rounds: says nothing where nothing was counted")


def odds_of(odds: dict[int, float], speedup: dict[int, float], advised: int) -> Point:
    """Return a point with these odds and speedups, everything else being of no concern here."""
    lengths, none = tuple(odds), np.zeros(len(odds))
    return Point(
        batch=1,
        context=1,
        draft_lengths=lengths,
        feasible=np.ones(len(odds), dtype=bool),
        tokens_per_step=none,
        step=none,
        verify=none,
        draft=none,
        overhead=none,
        parts={},
        speedup=np.array([speedup[d] for d in lengths]),
        low=none,
        high=none,
        tie=none.astype(bool),
        near_best=np.array(list(odds.values())),
        faster=np.array(list(odds.values())),
        sure_time_per_token=none,
        pass_rows=1.0 + np.array(lengths),
        captured=np.ones(len(odds), dtype=bool),
        by_hand=none,
        best=lengths.index(advised),
        confidence=Confidence.WIN,
    )


def test_the_surest_is_timed_and_told_from_the_advice() -> None:
    """Found by a user: D = 5 was over 98 % like 6 and 7, and left out because they are faster."""
    point = odds_of(
        {4: 0.52, 5: 1.0, 6: 1.0, 7: 1.0}, {4: 2.07, 5: 2.08, 6: 2.09, 7: 2.091}, advised=4
    )
    said = likely_line(point)
    assert said.endswith("Time D = 4 first.")
    assert "of the fastest of D = 4 to 7, given the errors" in said
    assert "D = 4 is the shortest within 1 % of the highest expected speed" in said
    assert "D = 5 has the best odds" in said


def test_the_likeliest_length_is_not_mentioned_when_advised() -> None:
    point = odds_of({2: 0.0, 3: 0.9, 4: 0.0}, {2: 1.5, 3: 1.9, 4: 1.6}, advised=3)
    said = likely_line(point)
    assert "expected speed" not in said
    assert said.endswith("Time D = 3 first.")
