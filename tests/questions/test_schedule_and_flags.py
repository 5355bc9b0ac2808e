"""What stands to be pasted is what the first sentence advises, and fits wherever it will run."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from roofline.advice.question import Question, question_of
from roofline.advice.recommend import recommend
from roofline.base.notices import Code as NoticeCode
from roofline.engines.writing import Band
from roofline.questions.schedule.formats import ScheduleOptions, schedule_or_one
from roofline.questions.schedule.plan import SchedulePlan, plan_question
from roofline.questions.schedule.written import (
    best_fixed,
    fixed_at,
    one_for_all,
    without_room,
)
from roofline.render.blocks import Code
from roofline.render.recommendation import answer_blocks as recommended_blocks
from roofline.render.recommendation import headline_blocks
from roofline.render.schedule import answer_blocks, schedule_headline
from roofline.specs.engine import load_engine
from tests.support import Cli

ENGINES = ("vllm", "vllm==0.27", "vllm==0.30", "sglang", "trtllm", "llamacpp")
KINDS = [
    (engine, kind)
    for engine in ENGINES
    for kind in load_engine(engine).flags
    if kind not in ("none", "mtp") and load_engine(engine).has(kind)
]
#: Each engine's word that turns drafts on (its own argument parser; see flags in data/engines).
TURNS_ON = re.compile(r"--speculative-config|--speculative-algorithm|decoding_type|--spec-type")


def asked(engine: str, kind: str, acceptance: str, **changes: object) -> Question:
    options = {
        "model": "llama-3.1-8b", "gpu": "a100-sxm-40gb", "engine": engine,
        "drafter": "llama-3.2-1b" if kind == "model" else kind, "acceptance": acceptance,
        "batches": (1, 8, 64), "contexts": (1024,),
    }  # fmt: skip
    return question_of(**(options | changes))


def pasted(blocks: object) -> str:
    assert isinstance(blocks, list)
    return "\n".join(block.text for block in blocks if isinstance(block, Code))


@pytest.mark.parametrize(("engine", "kind"), KINDS)
@pytest.mark.parametrize("acceptance", ["0.3", "0.6"])
def test_flags_are_those_of_the_first_sentence(engine: str, kind: str, acceptance: str) -> None:
    """Brute force: bands that lose to no speculation were pasted as one D (vLLM 0.27)."""
    question = asked(engine, kind, acceptance)
    plan = plan_question(question, tie=0.01, mix=None)
    written = schedule_or_one(plan, ScheduleOptions())
    said, text = schedule_headline(plan, written), pasted(answer_blocks(plan, written))
    plain = said.startswith("Do not") or "over no speculation at all: run that" in said
    assert bool(TURNS_ON.search(text)) is not plain, said
    assert "leave" not in text  # prose is no flag
    named = re.search(r"over D = (\d+) at every batch: run that|batch[^.]*\. D = (\d+) gives", said)
    if named:
        assert written.only_length == int(named[1] or named[2])
    answer = recommend(question)
    for point, block in zip(answer.points, headline_blocks(answer), strict=False):
        speculates = point.draft_length > 0
        assert ("Do not speculate" in block.text) is not speculates  # type: ignore[union-attr]
    shown = pasted(recommended_blocks(answer)).count("num_speculative_tokens")
    if engine.startswith("vllm"):
        assert shown == sum(point.draft_length > 0 for point in answer.points)


def test_without_speculation_nothing_is_idle(cli: Cli) -> None:
    """Plain decoding is compared with itself: 1.00x at every batch, and no cost of K = 0."""
    out = cli(
        "schedule", "llama-3.1-8b", "--gpu", "a100-sxm-40gb", "--drafter", "dspark",
        "--acceptance", "0.3", "--batches", "1,8,64", "--contexts", "8k", "--engine", "vllm==0.27",
    ).out  # fmt: skip
    assert out.startswith("Bands gain nothing")
    assert re.search(r"8k +0 +1\.00x +1\.00x", out)
    assert "stays configured" not in out


# One draft length for all batches ----------------------------------------------------------------


def cut(plan: SchedulePlan, *, longest: int, from_batch: int) -> SchedulePlan:
    """Return a plan in which draft lengths above ``longest`` do not fit from a batch on."""
    speed, priced = plan.speed.copy(), plan.priced.copy()
    for array in (speed, priced):
        array[from_batch - 1 :, :, longest + 1 :] = np.nan
    return replace(plan, speed=speed, priced=priced)


@pytest.fixture(name="tight")
def tight_plan() -> SchedulePlan:
    question = asked("llamacpp", "eagle3", "0.9", gpu="h100-sxm")
    return cut(plan_question(question, tie=0.01, mix=None), longest=2, from_batch=60)


def test_one_draft_length_for_all_batches_says_where_it_has_no_room(tight: SchedulePlan) -> None:
    """Nothing was said of it: D above 2 has no room at the last 5 of 64 batches."""
    for batch in (None, 4):
        written = one_for_all(tight, "none here", batch=batch)
        (band,) = written.bands
        assert band.draft_length > 2
        assert written.notes[-1].values["batches"] == (60, 61, 62, 63, 64)
    everywhere = cut(tight, longest=2, from_batch=2)  # what yields nothing from 2 on is not chosen
    assert best_fixed(everywhere)[0] <= 2
    (note,) = one_for_all(everywhere, "none here", batch=None).notes
    assert note.code is NoticeCode.NO_SCHEDULE


def test_a_length_without_room_is_said(tight: SchedulePlan) -> None:
    """A load may advise one that runs fewer sequences: where, is said."""
    assert without_room(tight, [Band(first=1, last=64, draft_lengths=(2,))]) == ()
    (said,) = without_room(tight, [Band(first=1, last=64, draft_lengths=(5,))])
    assert said.code is NoticeCode.LENGTH_HAS_NO_ROOM
    assert said.values["batches"] == (60, 61, 62, 63, 64)


def test_at_a_running_batch_plain_decoding_is_not_idle() -> None:
    """vLLM switches the schedule of suffix off: D = 0 is no speculation, not K = 0 (0.2 ms)."""
    plan = plan_question(asked("vllm", "suffix", "0.3"), tie=0.01, mix=None)
    speeds = plan.speed[63, 0].copy()
    speeds[0] = plan.plain[63, 0]
    within = np.flatnonzero(speeds >= 0.99 * np.nanmax(speeds))  # the smallest within the tie
    assert fixed_at(plan, 64) == plan.draft_lengths[int(within[0])]
