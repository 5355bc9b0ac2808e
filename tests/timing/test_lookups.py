"""Drafters that look drafts up and may find none: a pass has drafts of some sequences only.

Expected rows are hand arithmetic, B (1 + h D). That a miss runs one row in vLLM and 1 + D in SGLang
and TensorRT-LLM is in their own code (the sources stand in the engines' files).
"""

from __future__ import annotations

from math import comb
from pathlib import Path

import numpy as np
import pytest

from roofline.advice.question import Question, question_of
from roofline.base.errors import InputError
from roofline.engines.counts import DecodeTotals, from_counts
from roofline.engines.vllm_log import COUNTED
from roofline.specs.placement import Grid, Placement
from roofline.timing.step import RARE, local_rows
from tests.support import Cli

#: n-gram on chat, AL at D = 1, 3, 5, 7: the mean of a model pooled over published curves.
CHAT = "al:1=1.37,3=1.67,5=1.80,7=1.88"


def _asked(**options: object) -> Question:
    return question_of(**({"model": "llama-3.1-8b", "drafter": "ngram", "batches": (8,)} | options))


def _rows(question: Question) -> np.ndarray:
    deployment = question.deployment
    return np.asarray(local_rows(deployment.target.placement, question.price().grid)[0, 0])


@pytest.mark.parametrize("kind", ["ngram", "suffix"])
@pytest.mark.parametrize(("batch", "hits"), [(1, 0.5), (8, 0.5), (64, 0.75), (8, 1.0)])
def test_rows_of_a_pass(kind: str, batch: int, hits: float) -> None:
    question = _asked(drafter=kind, batches=(batch,), acceptance="0.4", hit_rate=hits)
    drafts = np.array(question.draft_lengths)
    np.testing.assert_allclose(_rows(question), batch * (1 + hits * drafts))


@pytest.mark.parametrize("acceptance", ["0.3", CHAT])
def test_on_chat_a_lookup_misses_more_often_than_it_hits(acceptance: str) -> None:
    """Between 1 + D / 10 and 1 + D rows for a sequence, and at least S_1 of the passes hit."""
    question = _asked(acceptance=acceptance, domain="chat")
    drafts = np.array(question.draft_lengths)[1:]
    share = (_rows(question)[1:] / 8 - 1) / drafts
    first = question.acceptance.table[1] - 1
    assert np.all((share >= max(0.1, first)) & (share < 0.8))


def test_code_editing_hits_nearly_always() -> None:
    question = _asked(acceptance="0.9")
    drafts = np.array(question.draft_lengths)[1:]
    assert np.all((_rows(question)[1:] / 8 - 1) / drafts >= 0.9)  # S_1 = 0.9 needs as many hits


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_engines_that_pad_misses_verify_every_row(engine: str) -> None:
    question = _asked(engine=engine, acceptance="0.3")
    np.testing.assert_allclose(_rows(question), 8 * (1 + np.array(question.draft_lengths)))


def test_a_counted_share_of_passes_is_used() -> None:
    """Half of 200 passes drafted: AL = 300 / 200, rows 1 + D / 2."""
    reading = from_counts(
        COUNTED, how="counters", where="page", drafts=100, drafted=200, accepted=100,
        per_position=[60, 40], decoded=DecodeTotals(tokens=300, passes=200),
    )  # fmt: skip
    question = _asked(acceptance=reading.acceptance())
    np.testing.assert_allclose(_rows(question)[:3], [8, 12, 16])


def test_a_file_keeps_the_share(tmp_path: Path) -> None:
    file = tmp_path / "counted.yaml"
    file.write_text("schema: 1\nsource: mine\nhit_rate: 0.25\nsurvival: [0.2, 0.1]\n")
    np.testing.assert_allclose(_rows(_asked(acceptance=str(file)))[:3], [8, 10, 12])


def test_a_head_drafts_always() -> None:
    question = _asked(drafter="eagle3", acceptance="0.3")
    np.testing.assert_allclose(_rows(question), 8 * (1 + np.array(question.draft_lengths)))


def test_fewer_hits_cost_less() -> None:
    """Where arithmetic binds, a row less is time less: 256 sequences of an 8B on one H100."""
    totals = [
        _asked(batches=(256,), contexts=(512,), acceptance="0.2", max_draft_length=1, hit_rate=h)
        .price().times.total[0, 0]
        for h in (0.25, 0.5, 1.0)
    ]  # fmt: skip
    assert totals[0][0] == totals[1][0] == totals[2][0]
    assert totals[0][1] < totals[1][1] < totals[2][1]


@pytest.mark.parametrize("hits", [0.1, 0.75, 1.0])
@pytest.mark.parametrize(("drafts", "width"), [(1, None), (4, None), (4, 7)])
def test_a_share_of_the_passes_fits_in_the_graphs(
    hits: float, drafts: int, width: int | None
) -> None:
    """The binomial sum over sequences that hit, each with D rows more (a tree of W with W - 1)."""
    batches, rows = (1, 40, 128, 300), 512
    grid = Grid.of(batches, (512,), (0, drafts), verify_width=width, hit_rate=hits)
    more = drafts if width is None else width - 1
    for at, n in enumerate(batches):
        expected = sum(
            comb(n, k) * hits**k * (1 - hits) ** (n - k)
            for k in range(n + 1)
            if n + more * k <= rows
        )
        found = grid.share_within(rows, Placement())[at, 0]
        assert found.tolist() == pytest.approx([1.0, expected])


def test_passes_beyond_the_graphs_are_launched_by_hand_on_both_sides_of_the_mean() -> None:
    """128 sequences, h = 0.75, D = 4: 512 rows on the mean, the last that vLLM captures on H200.

    96 hits are the mean and the most that fit, and each kernel takes 40 us to launch.
    """
    inside, outside = 128, 129
    priced = _asked(
        model="llama-3.2-1b", gpu="h200-sxm", batches=(inside, outside), contexts=(512,),
        acceptance="0.6", max_draft_length=4, hit_rate=0.75,
    ).price()  # fmt: skip
    launches = priced.times.launches
    assert launches.captured[:, 0, 4].tolist() == [False, False]
    count = sum(time.op.count for time in priced.times.verify_ops)
    for at, n in enumerate((inside, outside)):
        fits = sum(comb(n, k) * 0.75**k * 0.25 ** (n - k) for k in range((512 - n) // 4 + 1))
        each = count * 40e-6 - priced.times.verify[at, 0, 4]
        assert each > 0
        assert launches.by_hand[at, 0, 4] == pytest.approx((1 - fits) * each)


@pytest.mark.parametrize("hits", [0.1, 0.5, 0.75, 1.0])
def test_marks_go_by_all_but_rare_passes(hits: float) -> None:
    """By the binomial sum: graphs cover D where at most 1 pass in 400 has more rows than 512.

    vLLM itself sizes them for whole drafts: max_num_seqs (1 + num_speculative_tokens) at the most
    (0.33.0, vllm/config/vllm.py, _set_cudagraph_sizes: decode_query_len).
    """
    batches = (64, 100, 120, 128, 200)
    priced = _asked(
        model="llama-3.2-1b", gpu="h200-sxm", batches=batches, contexts=(512,), acceptance="0.05",
        hit_rate=hits,
    ).price()  # fmt: skip
    launches = priced.times.launches
    for at, n in enumerate(batches):
        for d in range(9):
            beyond = sum(
                comb(n, k) * hits**k * (1 - hits) ** (n - k)
                for k in range(n + 1)
                if n + d * k > 512
            )
            assert launches.captured[at, 0, d] == (beyond <= RARE), (n, d)
            assert launches.rows[at, 0, d] == n * (1 + d)


def test_the_size_that_captures_all_is_that_of_whole_drafts(cli: Cli) -> None:
    """512 sequences of 8 drafts are 4,608 rows where all of them hit; their mean is 3,174."""
    said = " ".join(
        cli(
            "recommend", "llama-3.1-8b", "--gpu", "b200-hgx", "--batch", "512", "--context", "1k",
            "--drafter", "ngram", "--acceptance", "0.6", "--format", "json",
        ).data()["warnings"]
    )  # fmt: skip
    assert "--max-cudagraph-capture-size 4608 captures all of them" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hit_rate": 0.2, "acceptance": "0.3"}, "0.3 of the passes"),  # cannot accept what is not
        ({"hit_rate": 0.0, "acceptance": "0.3"}, "above 0"),
        ({"hit_rate": 0.5, "drafter": "eagle3"}, "always drafts"),
    ],
)
def test_hit_rates_that_cannot_be(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        _asked(**options)
    assert refused.value.field == "hit_rate"


def test_the_answer_says_what_it_assumes(cli: Cli) -> None:
    command = ("recommend", "llama-3.1-8b", "--drafter", "ngram", "--acceptance", "0.2")
    assert "finds a draft in 25 % of the passes" in " ".join(cli(*command).out.split())
    assert "of the passes; --hit-rate" not in " ".join(
        cli(*command, "--hit-rate", "0.4").out.split()
    )
