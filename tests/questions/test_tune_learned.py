"""What a tuning file teaches other commands: its own answer where it timed, shared factors else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import roofline as rf
from roofline.advice.question import Question, question_of
from roofline.advice.recommend import recommend
from roofline.questions.tune.file import Timed
from roofline.questions.tune.learned import learned_from
from roofline.questions.tune.tune import Tuned, tune
from tests.support import Cli, assert_refused

ASK = {"model": "qwen3-8b", "gpu": "h100-sxm", "domain": "chat"}
#: Two timings of an invented server.
TIMED = (
    Timed(draft_length=4, batch=8, tokens_per_s=1790.0, tokens_per_step=2.35),
    Timed(draft_length=2, batch=8, tokens_per_s=1720.0, tokens_per_step=1.95),
)


def tuned_of(batches: tuple[int, ...] = (8,), timings: tuple[Timed, ...] = TIMED) -> Tuned:
    return tune(question_of(**ASK, batches=batches), timings)


def asked(tuned: Tuned, **options: object) -> Question:
    return question_of(**ASK | options, tuned=learned_from(tuned, "t.yaml"))


def test_at_a_timed_batch_the_answer_is_that_of_the_file() -> None:
    tuned = tuned_of()
    (point,) = recommend(asked(tuned, batches=(8,))).points
    assert (point.draft_length,) == tuned.belief.choices
    speed = point.tokens_per_step / point.step
    ours = speed / speed[point.best]
    np.testing.assert_allclose(ours, tuned.relative_speed(0), rtol=1e-9)
    np.testing.assert_allclose(point.tokens_per_step, tuned.belief.tokens_per_step, rtol=1e-9)
    for timed in TIMED:  # each was timed to 1.5 %, all users together
        assert 8 * speed[timed.draft_length] == pytest.approx(timed.tokens_per_s, rel=0.02)
    np.testing.assert_allclose(point.verify + point.draft + point.overhead, point.step)
    np.testing.assert_allclose(sum(point.parts.values()), point.step)


def test_at_another_batch_what_all_batches_share_moves() -> None:
    """The joint belief of a file with both batches says the same by its whole covariance."""
    tuned = tuned_of((8, 64))
    (point,) = recommend(asked(tuned, batches=(64,))).points
    speed = np.log(point.tokens_per_step / point.step)
    believed = tuned.belief.log_speed[1]
    np.testing.assert_allclose(speed - speed[0], believed - believed[0], atol=1e-9)
    (plain,) = recommend(question_of(**ASK, batches=(64,))).points
    assert not np.allclose(point.step / point.step[0], plain.step / plain.step[0])


def test_draws_have_the_covariance_that_the_timings_leave() -> None:
    tuned = tuned_of()
    question = asked(tuned, batches=(8,))
    steps = np.log(question.price().drawn.steps()[:, 0, 0])
    times = len(tuned.belief.draft_lengths)
    left = tuned.belief.covariance[:times, :times]
    for first, second in ((2, 4), (3, 5), (4, 8)):
        # no draw is below that of plain decoding, which only D = 1 comes near
        apart = left[first, first] + left[second, second] - 2 * left[first, second]
        assert np.std(steps[:, first] - steps[:, second]) == pytest.approx(apart**0.5, rel=1e-3)


def test_no_loads_order_changes_it_and_contexts_keep_their_batch() -> None:
    timings = (*TIMED, Timed(draft_length=3, batch=2, tokens_per_s=560.0, tokens_per_step=2.2))
    tuned = tuned_of((2, 8), timings)
    many = recommend(asked(tuned, batches=(8, 2), contexts=(4096, 8192))).points
    one = recommend(asked(tuned, batches=(2,))).points[0]
    np.testing.assert_allclose(many[2].step, one.step)
    assert many[0].draft_length == tuned.belief.choices[1]
    assert (many[1].step > many[0].step).all()


def test_held_acceptance_teaches_step_times_alone() -> None:
    held = Timed(draft_length=3, batch=8, tokens_per_s=2000.0, held=2.5)
    plain = question_of(**ASK, batches=(8,))
    question = asked(tuned_of(timings=(held,)), batches=(8,))
    assert question.acceptance == plain.acceptance
    step = recommend(question).points[0].step[3]
    assert 8 * 2.5 / step == pytest.approx(2000.0, rel=0.02)


def test_speeds_of_one_user_are_seen() -> None:
    each = tuple(t.model_copy(update={"tokens_per_s": t.tokens_per_s / 8}) for t in TIMED)
    one = recommend(asked(tuned_of(timings=each), batches=(8,))).points[0]
    every = recommend(asked(tuned_of(), batches=(8,))).points[0]
    np.testing.assert_allclose(one.step, every.step, rtol=1e-5)


@pytest.fixture
def file(cli: Cli, tmp_path: Path) -> Path:
    """Return a tuning file with a timing."""
    path = tmp_path / "t.yaml"
    ask = ("qwen3-8b", "--gpu", "h100-sxm", "--batch", "8", "--domain", "chat")
    assert cli("tune", "start", *ask, "-o", str(path)).code == 0
    timed = ("--draft-length", "4", "--tokens-per-s", "1790", "--tokens-per-step", "2.35")
    assert cli("tune", "add", str(path), *timed).code == 0
    return path


def test_three_commands_need_no_other_option(cli: Cli, file: Path) -> None:
    status = cli("tune", "status", str(file), "--format", "json").data()
    shown = cli("recommend", "--tuned", str(file), "--format", "json").data()
    (point,) = shown["points"]
    assert point["batch"] == 8
    assert point["draft_length"] == status["points"][0]["draft_length"]
    assert any(
        note["code"] == "timings-taken" and "after 1 timing of t.yaml" in note["text"]
        for note in shown["notes"]
    )
    text = cli("schedule", "--tuned", str(file), "--batches", "1..16")
    assert text.code == 0
    assert "1 timing of t.yaml" in text.out
    rows = cli("sweep", "--tuned", str(file), "--batch", "8")
    assert rows.code == 0
    assert rf.recommend(tuned=file).draft_length == point["draft_length"]
    assert len(rf.sweep(tuned=file).to_frame()) == len(point["by_draft_length"])
    assert rf.schedule(tuned=file, batches=8).points


@pytest.mark.parametrize("command", ["recommend", "schedule", "sweep"])
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--gpu", "a100"), "was timed with gpu h100-sxm"),
        (("--engine", "sglang"), "was timed with engine vllm"),
        (("--drafter", "ngram"), "was timed with drafter"),
        (("--domain", "code"), "was begun with another value"),
        (("--acceptance", "0.7"), "was begun with another value"),
        (("llama-3.1-8b",), "was timed with model qwen3-8b"),
    ],
)
def test_another_deployment_is_one_line(
    cli: Cli, file: Path, command: str, typed: tuple[str, ...], said: str
) -> None:
    assert_refused(cli(command, *typed, "--tuned", str(file)), said)


def test_what_says_the_same_may_be_typed(cli: Cli, file: Path) -> None:
    same = ("qwen3-8b", "--gpu", "h100", "--domain", "chat", "--engine", "vllm")
    assert cli("recommend", *same, "--tuned", str(file)).code == 0
    assert cli("recommend", "--tuned", str(file), "--batch", "16", "--context", "8k").code == 0


def test_a_file_without_timings_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    assert cli("tune", "start", "qwen3-8b", "-o", str(path)).code == 0
    assert_refused(cli("recommend", "--tuned", str(path)), "holds no timing yet")
    assert_refused(cli("recommend", "--tuned", str(tmp_path / "no.yaml")), "no such file")
    live = ("--live", "http://127.0.0.1:1", "--tuned")
    assert_refused(cli("recommend", *live, str(path)), "holds no timing yet")


def test_diagnose_takes_the_timings_as_steps(cli: Cli, file: Path) -> None:
    """By hand: 8 users x 2.35 tokens / 1790 tokens/s = 10.503 ms a step."""
    data = cli("diagnose", "--tuned", str(file), "--format", "json").data()
    (point,) = data["points"]
    assert (point["draft_length"], point["batch"], point["context"]) == (4, 8, 4096)
    assert point["measured_step_ms"] == pytest.approx(8e3 * 2.35 / 1790)
    beside = ("diagnose", "--tuned", str(file), "--measured", "0:7ms")
    assert_refused(cli(*beside), "--measured and --tuned: give one of them")


def test_the_loop_in_python_says_what_the_command_does(cli: Cli, file: Path) -> None:
    status = cli("tune", "status", str(file), "--format", "json").data()
    timed = {"draft_length": 4, "tokens_per_s": 1790, "tokens_per_step": 2.35}
    answer = rf.tune("qwen3-8b", gpu="h100-sxm", domain="chat", batch=8, timings=[timed])
    assert answer.verdict == status["verdict"]
    assert answer.draft_length == status["points"][0]["draft_length"]
    assert answer.best.expected_regret == status["points"][0]["expected_regret"]
    assert answer.next_timing is not None
    assert answer.next_timing["draft_length"] == status["next"]["draft_length"]
    with pytest.raises(rf.InputError, match="is missing"):
        rf.tune("qwen3-8b", timings=[{"draft_length": 3}])
