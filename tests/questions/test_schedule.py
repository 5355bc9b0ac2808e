"""Schedules: the best table by brute force, idle speculation, mixes and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.advice.configuration import Configuration
from roofline.advice.question import Workload, ask
from roofline.advice.recommend import recommend
from roofline.questions.schedule.bands import coverage, longest_runs
from roofline.questions.schedule.formats import ScheduleOptions, schedule_or_one
from roofline.questions.schedule.plan import plan_question
from roofline.specs.engine import load_engine
from tests import schedule_rules as rules
from tests.scheduling import APART, BATCHES, COUNT, HEAVY, MODEL, MOE, recommended, text
from tests.support import Cli, assert_refused

# The best table -------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [MODEL, MOE])
def test_without_a_tie_every_batch_runs_the_brute_force_best(
    cli: Cli, ask: tuple[str, ...]
) -> None:
    written = text(
        cli, "vllm", *ask, "--batches", BATCHES, "--contexts", "1k", "--tie", "0", *APART
    )
    lengths = rules.vllm_lengths(written, COUNT)
    for (batch, _), speeds in recommended(cli, ask, "1k").items():
        best = max(speeds, key=lambda d: speeds[d])
        assert best > 0  # so that the cost of idle speculation plays no part here
        assert lengths[batch - 1] == best, batch


@pytest.mark.parametrize("ask", [MODEL, MOE])
@pytest.mark.parametrize("tie", [1, 3])
def test_within_a_tie_no_batch_loses_more_and_no_table_is_shorter(
    cli: Cli, ask: tuple[str, ...], tie: int
) -> None:
    written = text(
        cli, "vllm", *ask, "--batches", BATCHES, "--contexts", "1k", "--tie", str(tie), *APART
    )
    lengths = rules.vllm_lengths(written, COUNT)
    permitted = []
    for (batch, _), speeds in recommended(cli, ask, "1k").items():
        top = max(speeds.values())
        permitted.append({d for d, v in speeds.items() if v >= (1 - tie / 100) * top})
        assert lengths[batch - 1] in permitted[-1], batch
    table = rules.vllm_config(written).get("num_speculative_tokens_per_batch_size", [0])
    assert len(table) == fewest(permitted)


def fewest(permitted: list[set[int]]) -> int:
    """Return the smallest number of bands, by dynamic programming over all divisions."""
    best = [0] + [len(permitted) + 1] * len(permitted)
    for end in range(1, len(permitted) + 1):
        common = permitted[end - 1]
        for start in range(end - 1, -1, -1):
            common = common & permitted[start]
            if not common:
                break
            best[end] = min(best[end], best[start] + 1)
    return best[-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=12))
def test_longest_runs_are_the_fewest_and_cover_once(permitted: list[set[int]]) -> None:
    allowed = np.array([[[d in own for d in range(5)]] for own in permitted])
    runs = longest_runs(allowed)
    assert [i for start, stop, _ in runs for i in range(start, stop)] == list(range(len(permitted)))
    for start, stop, (chosen,) in runs:
        assert all(chosen in own for own in permitted[start:stop])
    assert len(runs) == fewest(permitted)


def test_rows_cover_every_batch_once(cli: Cli) -> None:
    data = cli("schedule", *MODEL, "--batches", "1..200", "--format", "json").data()
    covered = [b for row in data["bands"] for b in range(row["batch_start"], row["batch_end"] + 1)]
    assert covered == list(range(1, 201))


def test_one_table_for_several_contexts_is_the_geometric_mean(cli: Cli) -> None:
    written = text(
        cli, "vllm", *MODEL, "--batches", BATCHES, "--contexts", "1k,8k", "--tie", "0", *APART
    )
    lengths = rules.vllm_lengths(written, COUNT)
    speeds = recommended(cli, MODEL, "1k,8k")
    for batch in (1, 7, 33, 64):
        joint = {
            d: np.prod([s[d] / max(s.values()) for s in (speeds[batch, 1024], speeds[batch, 8192])])
            for d in speeds[batch, 1024]
        }
        assert lengths[batch - 1] == max(joint, key=lambda d: joint[d])


def test_on_a_mixture_of_experts_the_best_length_rises_and_falls(cli: Cli) -> None:
    """Few rows wake new experts for each draft; many rows have woken them all (theory 6.4)."""
    written = text(cli, "vllm", *MOE, "--batches", "1..256", "--contexts", "1k", *APART)
    lengths = rules.vllm_lengths(written, 256)
    assert lengths[0] < max(lengths) > lengths[-1]
    table = text(cli, "table", *MOE, "--batches", "1..256", "--contexts", "1k", *APART)
    assert "D rises again with batch" in " ".join(table.split())


# Idle speculation -----------------------------------------------------------------------------


def test_zero_rows_only_where_they_beat_the_cost_of_being_idle(cli: Cli) -> None:
    """At rate 0.3 n-grams stop paying somewhere below batch 512; idle adds 0.2 ms to D = 0."""
    ask = ("llama-3.1-8b", "--gpu", "h200-sxm", "--drafter", "ngram", "--acceptance", "0.3")
    arguments = (*ask, "--batches", "1..400", "--contexts", "1k", "--tie", "0", *APART)
    lengths = rules.vllm_lengths(text(cli, "vllm", *arguments), 400)
    assert lengths[0] > 0
    assert lengths[-1] == 0
    idle = load_engine("vllm").idle_speculation
    assert idle is not None
    for batch in (100, 200, 300, 400):
        rows = cli(
            "recommend", *ask, "--batch", str(batch), "--context", "1k", "--format", "json"
        ).by_draft_length()
        step = {d: r["step_ms"] + 1e3 * idle.per_step * (d == 0) for d, r in rows.items()}
        best = max(rows, key=lambda d: rows[d]["tokens_per_step"] / step[d])
        assert lengths[batch - 1] == best


def test_a_head_keeps_its_cache_while_idle(cli: Cli) -> None:
    """vLLM runs one draft pass at K = 0: that costs at least reading the head's 0.85 GB once."""
    idle = cli("schedule", *MODEL, "--batches", "1..8", "--format", "json").data()["idle_ms"]
    read = 1e3 * 2 * 424_689_664 / 4.8e12
    assert 0.2 + 0.7 * read < idle < 1.5


def test_a_schedule_without_speculation(cli: Cli) -> None:
    out = text(
        cli, "table", "llama-3.1-8b", "--drafter", "ngram", "--acceptance", "0", "--batches", "1..9"
    )
    assert out.startswith("Do not configure speculation")
    assert "leave --speculative-config out" in out


# Mixes, lists, refusals -----------------------------------------------------------------------


def test_gain_over_the_best_fixed_length_by_hand(cli: Cli) -> None:
    """Half the time at batch 1, half at 64: tokens of both against one D for both."""
    ask = (*MODEL, "--batches", BATCHES, "--contexts", "1k", "--tie", "0", *APART)
    data = cli("schedule", *ask, "--mix", "1:1,64:1", "--format", "json").data()
    speeds = recommended(cli, MODEL, "1k")
    alone, many = speeds[1, 1024], speeds[64, 1024]
    best = max(alone.values()) + 64 * max(many.values())
    fixed = {d: alone[d] + 64 * many[d] for d in alone}
    assert data["best_fixed_draft_length"] == max(fixed, key=lambda d: fixed[d])
    assert data["gain_over_fixed"] == pytest.approx(best / max(fixed.values()) - 1)


def test_gain_of_one_draft_length_over_plain_decoding_by_hand(cli: Cli) -> None:
    """All the time at batch 1: the speedup that `recommend` gives that D there, less 1."""
    ask = (*MODEL, "--batches", "1,2", "--contexts", "1k", "--mix", "1:1")
    data = cli("schedule", *ask, "--format", "json").data()
    (length,) = {band["draft_length"] for band in data["bands"]}
    assert length == data["best_fixed_draft_length"]
    speeds = recommended(cli, MODEL, "1k")[1, 1024]
    assert data["gain_over_plain"] == pytest.approx(speeds[length] / speeds[0] - 1)
    low, high = data["gain_over_plain_range"]
    assert low <= data["gain_over_plain"] <= high
    assert data["inputs"]["hit_rate"] == 1.0


def test_listed_batches_meet_at_their_geometric_mean(cli: Cli) -> None:
    assert coverage([1, 4, 100]) == [(1, 2), (3, 20), (21, 100)]
    assert coverage([5]) == [(1, 5)]
    arguments = (
        *MODEL,
        "--batches",
        "1,2,4,8,16,32,64,128,256",
        "--contexts",
        "1k",
        "--tie",
        "0",
        *APART,
    )
    assert len(rules.vllm_lengths(text(cli, "vllm", *arguments), 256)) == 256


def test_json_and_csv_hold_the_same_bands(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    data = cli("schedule", *HEAVY, "--format", "json").data()
    assert cli("schedule", *HEAVY, "-o", str(target)).code == 0
    header, *lines = (line.split(",") for line in target.read_text().splitlines())
    assert header == ["contexts" if key == "context" else key for key in data["bands"][0]]
    assert [int(line[3]) for line in lines] == [row["draft_length"] for row in data["bands"]]
    assert data["schema"] == "roofline.schedule/2"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--batches 9..1", ("--batches", "9..1", "lowest first")),
        ("--batches 0..4", ("--batches",)),
        ("--batches 0", ("--batches 0", "at least 1")),
        ("--batches 4,8,4", ("--batches 4,8,4", "twice")),
        ("--contexts 1k,1k", ("--contexts 1k,1k", "twice")),
        ("--contexts 999k", ("--contexts 1022976", "at most")),
        ("--format trtllm --engine-version=", ("--engine-version: expected a release",)),
        ("--batches 1..", ("--batches",)),
        ("--batches", ("--batches",)),
        ("--batches 1..99999", ("--batches", "4096")),
        ("--contexts 0", ("--contexts 0", "at least 1")),
        ("--tie -1", ("--tie", "0 to 50")),
        ("--tie 80", ("--tie",)),
        ("--tie nan", ("--tie",)),
        ("--mix 1", ("--mix", "1:0.2")),
        ("--mix 1:0", ("--mix", "above 0")),
        ("--mix 1:1,1:2", ("--mix", "once")),
        ("--mix 999:1", ("--mix", "999", "largest batch")),
        ("--format trtllm --engine vllm", ("--format", "contradicts", "--engine vllm")),
        ("--gate", ("--gate", "trtllm")),
        ("--engine-version 1.2", ("--engine-version", "trtllm")),
        ("--format trtllm --engine-version new", ("--engine-version", "new")),
        ("--format sglang --proposed", ("--proposed", "vllm")),
        ("--candidate-sets", ("--candidate-sets", "sglang")),
        ("--graph-batches 1,2", ("--graph-batches", "sglang")),
        ("--data-parallel 0", ("--data-parallel", "0")),
        ("--drafter none", ("--drafter none", "nothing to schedule")),
        ("--format xml", ("--format", "xml")),
    ],
)
def test_refused_with_one_line(cli: Cli, arguments: str, words: tuple[str, ...]) -> None:
    assert_refused(cli("schedule", "llama-3.1-8b", *arguments.split()), *words)


def test_nothing_fits_is_exit_three(cli: Cli) -> None:
    assert_refused(cli("schedule", "llama-3.1-70b"), "llama-3.1-70b", code=3)


@pytest.mark.parametrize("more", [[], ["--contexts", "1k,8k"], ["--proposed"]])
def test_the_table_fits_eighty_columns(cli: Cli, more: list[str]) -> None:
    out = cli("schedule", *MODEL, "--tie", "3", *more).out
    assert [line for line in out.splitlines() if len(line) > 80 and "--spec" not in line] == []


ONE_BATCH = [
    (engine, drafter, batch, context)
    for engine in ("vllm", "sglang", "trtllm", "llamacpp")
    for drafter in ("", "ngram")
    for batch, context in ((1, 8192), (16, 8192), (128, 1024), (256, 1024))
]


@pytest.mark.parametrize(("engine", "drafter", "batch", "context"), ONE_BATCH)
def test_one_batch_gets_the_length_that_recommend_advises(
    engine: str, drafter: str, batch: int, context: int
) -> None:
    """Of one batch a schedule names the smallest D within 1 % of the best, plain decoding included.

    The rule is applied here by hand to the speeds that both are decided on. A drafter that idles at
    D = 0 is no reason to draft: whoever does not draft configures none.
    """
    configuration = Configuration(
        model="llama-3.1-8b",
        gpu="h200-sxm",
        tp=8 if engine != "llamacpp" else 1,
        engine=engine,
        drafter=drafter or None,
    )
    question = ask(configuration, Workload(batches=(batch,), contexts=(context,)))
    (point,) = recommend(question).points
    speeds = {
        d: float(speed)
        for d, speed, may in zip(point.draft_lengths, point.speedup, point.candidates, strict=True)
        if may
    }
    advised = min(d for d, speed in speeds.items() if speed >= 0.99 * max(speeds.values()))
    written = schedule_or_one(plan_question(question, tie=0.01, mix=None), ScheduleOptions())
    assert point.draft_length == advised
    assert written.bands[-1].draft_lengths == (advised,)
    if advised == 0:
        assert written.largest_loss == pytest.approx(0)
