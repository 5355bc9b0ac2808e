"""What decided an answer, as a record: the outcome, and the numbers that it turned on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofline.advice.question import question_of
from roofline.advice.recommend import drawn_tokens, recommend
from roofline.advice.why import (
    Bound,
    Outcome,
    Sharing,
    UnknownLength,
    dearest_growth,
    deciding,
    dominant_bound,
    outcome,
    plain_pass,
    shortest_unknown,
)
from roofline.base.notices import Code
from roofline.render.notices import sentence
from roofline.render.why import DO_NOT_SPECULATE, HEADLINES, headline, reason
from roofline.specs.placement import VerifyAttention

LLAMA = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
#: 300 sequences make 600 rows with one draft each: past the 512 that vLLM captures.
MANY = {"drafter": "eagle3", "acceptance": "0.6", "batches": (300,), "contexts": (512,)}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, Outcome.DRAFTS),
        ({"drafter": "none"}, Outcome.ALONE),
        ({"max_draft_length": 0}, Outcome.ALONE),
        ({"acceptance": "0.01"}, Outcome.PLAIN),
        (MANY, Outcome.PAST_GRAPHS),
    ],
)
def test_the_outcome(asked: dict[str, Any], expected: Outcome) -> None:
    answer = recommend(question_of(**LLAMA | asked))
    point = answer.points[0]
    assert outcome(answer, point) is expected
    assert (deciding(point) is None) is (expected not in (Outcome.PLAIN, Outcome.DRAFTS))


def test_the_first_sentence_says_where_plain_decoding_is_faster_more_often() -> None:
    """The advice goes by the mean; odds of the drawn speeds, counted here one by one."""
    said = {}
    for context in (1024, 8192):
        asked = {"model": "llama-3.1-8b", "gpu": "h200-sxm", "tp": 8, "engine": "sglang"}
        question = question_of(**asked, drafter="ngram", batches=(256,), contexts=(context,))
        answer = recommend(question)
        (point,) = answer.points
        tokens = question.tokens_on(answer.priced.grid)
        drawn = drawn_tokens(question, tokens, grid=answer.priced.grid)
        speeds = (drawn / answer.priced.drawn.steps())[:, 0, 0]
        wins = [draw[point.best] > draw[0] for draw in speeds]
        sentence_of = headline(answer, point)
        rarely = bool(point.best > 0 and 2 * sum(wins) < len(wins))
        assert ("plain decoding is faster more often than not" in sentence_of) is rarely
        said[context] = rarely
    assert said == {1024: False, 8192: True}  # at 1k the advice is plain decoding


@pytest.mark.parametrize(
    ("asked", "batch", "unknown"),
    [
        (LLAMA, 160, None),  # D = 2 makes 480 rows: it is advised
        (LLAMA, 192, 384),  # 576 rows at D = 2, 384 at D = 1
        (LLAMA, 256, 512),
        (LLAMA, 257, None),  # one draft makes 514 rows
        ({"model": "qwen3-8b", "gpu": "h200-sxm"}, 200, 400),
    ],
)
def test_what_the_engine_captures_decides_and_not_what_the_curve_knows(
    asked: dict[str, Any], batch: int, unknown: int | None
) -> None:
    """vLLM captures 512 rows on Hopper; the acceptance here is known from D = 2 on."""
    whole = question_of(
        **asked, drafter="eagle3", acceptance="0.7", batches=(batch,), contexts=(512,)
    )
    answer = recommend(replace(whole, draft_lengths=(0, 2, 3)))
    point = answer.points[0]
    found = shortest_unknown(answer, point)
    said, why = headline(answer, point), reason(answer, point)
    drafts = batch <= 170
    assert ("every draft length needs more rows" in said) is (not drafts and unknown is None)
    if unknown is None:
        assert outcome(answer, point) is (Outcome.DRAFTS if drafts else Outcome.PAST_GRAPHS)
        return
    assert outcome(answer, point) is Outcome.UNKNOWN
    assert "Whether drafts pay is not known" in said
    assert found == UnknownLength(draft_length=1, rows=unknown)
    assert f"Draft length 1 makes {unknown} rows a pass and could run" in why
    # with its acceptance it is advised
    assert recommend(whole).points[0].draft_length == 1


@pytest.mark.parametrize("acceptance", ["0.8", "0.01"])
def test_the_best_draft_length_decides(acceptance: str) -> None:
    """AL(D) t(0) / t(D) of the one that is looked at is the largest of all drafts, to a tie."""
    point = recommend(question_of(**LLAMA, acceptance=acceptance)).points[0]
    at = deciding(point)
    assert at
    gains = point.tokens_per_step * point.step[0] / point.step
    assert gains[at] == pytest.approx(max(gains[1:]), rel=0.01)


def test_what_a_plain_pass_reads() -> None:
    """8.03e9 parameters less an embedding of 128256 x 4096, 2 bytes each; 128 KiB of KV a token."""
    answer = recommend(question_of(**LLAMA, contexts=(4096,)))
    found = plain_pass(answer, answer.points[0], 3)
    assert dominant_bound(answer, answer.points[0])[0] is Bound.MEMORY
    assert (found.sharing, found.active_experts) == (Sharing.ALL, None)
    assert found.weight_bytes == pytest.approx(2 * (8.03e9 - 128_256 * 4096), rel=0.01)
    assert found.cache_bytes == pytest.approx(4096 * 131_072, rel=0.02)


def test_not_speculating_is_said_in_the_same_words() -> None:
    without = {Outcome.NO_ROOM, Outcome.PAST_GRAPHS, Outcome.PLAIN}
    begins = DO_NOT_SPECULATE.capitalize()
    assert {kind for kind, words in HEADLINES.items() if words.startswith(begins)} == without


ON_L40S = {"model": "qwen3-32b", "gpu": "l40s", "tp": 2, "drafter": "eagle3", "contexts": (32768,)}


def test_the_reason_names_the_kernel_that_makes_a_verify_pass_dear() -> None:
    """One block for each of 32 query heads reads 32,768 keys in turn: about 0.6 ms a layer.

    Measured for one such head: 605 us (tables of vLLM 0.24.0 on L40S); 64 layers.
    """
    answer = recommend(question_of(**ON_L40S))
    point = answer.points[0]
    growth = dearest_growth(answer, point, 2)
    assert growth is not None
    assert growth.op == "attention"
    assert growth.verify == pytest.approx(64 * 605e-6, rel=0.15)
    assert growth.share > 0.9
    why = reason(answer, point)
    assert "The kernel attention takes 9" in why
    # 64 query heads on two cards, one sequence; an L40S has 142 SMs
    assert growth.head_blocks == (64, 32, 142)
    assert "a block of its own of 64 rows" in why
    assert "(32 blocks on 142 SMs)" in why
    assert "which all rows of a verify pass share" not in why
    shared = recommend(question_of(**ON_L40S, verify_attention=VerifyAttention.KV_ONCE))
    why = reason(shared, shared.points[0])
    assert "The kernel" not in why
    assert "which all rows of a verify pass share" in why


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        (ON_L40S | {"acceptance": "0.35"}, VerifyAttention.KV_ONCE),
        (
            ON_L40S | {"acceptance": "0.35", "verify_attention": VerifyAttention.HEAD_TILE},
            None,
        ),
        (LLAMA | {"acceptance": "0.5"}, None),  # FlashAttention 3 reads once: read in its source
        (LLAMA | {"gpu": "gaudi3", "batches": (64,)}, VerifyAttention.KV_PER_QUERY),
    ],
)
def test_an_answer_says_where_another_way_to_read_the_cache_would_change_it(
    asked: dict[str, Any], other: VerifyAttention | None
) -> None:
    answer = recommend(question_of(**asked))
    found = [n.values for n in answer.notices if n.code is Code.VERIFY_PATH_DECIDES]
    assert [values["other"] for values in found] == ([] if other is None else [other])
    for values in found:
        elsewhere = recommend(question_of(**asked | {"verify_attention": other}))
        (point,) = elsewhere.points
        assert values["other_length"] == point.draft_length != values["length"]
        assert values["other_speedup"] == pytest.approx(point.speedup[point.best])


@pytest.mark.parametrize(("context", "said"), [(2048, False), (32768, True)])
def test_an_answer_says_where_another_way_to_read_the_cache_gains_much_more(
    context: int, said: bool
) -> None:
    """D stays 3, the last one asked for; a speedup that moves by over 15 % is said all the same."""
    asked = ON_L40S | {"acceptance": "0.8", "max_draft_length": 3, "contexts": (context,)}
    answer = recommend(question_of(**asked))
    once = recommend(question_of(**asked, verify_attention=VerifyAttention.KV_ONCE))
    before, after = (each.points[0] for each in (answer, once))
    assert before.draft_length == after.draft_length == 3
    assert bool(after.speedup[3] > 1.15 * before.speedup[3]) is said
    found = [n for n in answer.notices if n.code is Code.VERIFY_PATH_DECIDES]
    assert bool(found) is said
    for noted in found:
        assert noted.values["other_speedup"] == pytest.approx(after.speedup[3])
        assert f"D = 3 would give {after.speedup[3]:.2f}x instead of" in sentence(noted)


def test_a_range_is_wider_where_how_the_cache_is_read_is_assumed() -> None:
    asked = LLAMA | {"gpu": "gaudi3", "batches": (64,), "acceptance": "al:5=3"}
    assumed, stated = (
        recommend(question_of(**asked | more)).points[0]
        for more in ({}, {"verify_attention": VerifyAttention.KV_ONCE})
    )
    assert assumed.speedup == pytest.approx(stated.speedup)
    assert assumed.low[-1] < stated.low[-1] < stated.high[-1] < assumed.high[-1]


@pytest.mark.parametrize(("hit_rate", "said"), [(0.625, "a mean of 3.5 rows"), (1.0, "5 rows")])
def test_rows_are_a_mean_where_some_sequences_have_no_drafts(hit_rate: float, said: str) -> None:
    """1 + 0.625 x 4 = 3.5 rows of a verify pass with four drafts."""
    asked = LLAMA | {"drafter": "ngram", "acceptance": "0.6", "max_draft_length": 4}
    answer = recommend(question_of(**asked, hit_rate=hit_rate))
    (point,) = answer.points
    assert point.draft_length == 4
    assert f"Verifying {said} per sequence" in reason(answer, point)
