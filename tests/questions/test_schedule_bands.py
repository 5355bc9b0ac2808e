"""Bands that the model's error cannot tell apart are one: by brute force, by hand, as printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.advice.decide import SURE
from roofline.advice.question import Question, question_of
from roofline.engines.writing import Band
from roofline.questions.schedule.bands import Run, merge_runs, octave_weights, odds_of_two
from roofline.questions.schedule.engine_bands import cell_bands, falling_bands
from roofline.questions.schedule.plan import SchedulePlan, plan_question
from roofline.questions.schedule.rises import rises
from roofline.questions.schedule.written import loss, losses
from tests import schedule_rules as rules
from tests.scheduling import MODEL, text
from tests.support import Cli, assert_refused

Table = Sequence[Sequence[float]]

# Brute force ----------------------------------------------------------------------------------


def naive_merge(
    bands: list[tuple[int, int, int]],
    speeds: list[Table],
    usable: list[list[bool]],
    weights: list[float],
    odds: float,
) -> list[tuple[int, int, int]]:
    """Merge bands (first batch, last batch, length) in loops over batches, lengths and draws.

    ``speeds`` are tables of batch and length, one for each draw; the expected one is their mean.
    """

    def runs(first: int, last: int, length: int) -> bool:
        return all(usable[b - 1][length] for b in range(first, last + 1))

    def tokens(table: Table, first: int, last: int, length: int) -> float:
        return sum(weights[b - 1] * b * table[b - 1][length] for b in range(first, last + 1))

    def odds_at(border: int) -> float:
        (f1, l1, d1), (f2, l2, d2) = bands[border], bands[border + 1]
        wins = 0
        for table in speeds:
            two = tokens(table, f1, l1, d1) + tokens(table, f2, l2, d2)
            ones = [tokens(table, f1, l2, d) for d in (d1, d2) if runs(f1, l2, d)]
            wins += all(two > one for one in ones)
        return wins / len(speeds)

    while len(bands) > 1:
        certain = [odds_at(border) for border in range(len(bands) - 1)]
        least = min(certain)
        if least >= odds:
            break
        at = certain.index(least)
        first, last = bands[at][0], bands[at + 1][1]
        possible = [d for d in range(len(usable[0])) if runs(first, last, d)]
        best = max(possible, key=lambda d: sum(tokens(table, first, last, d) for table in speeds))
        bands = [*bands[:at], (first, last, best), *bands[at + 2 :]]
    return bands


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Table], list[list[bool]], list[float], list[int]]:
    """Draw speeds by draw, batch and length; what can be run; weights; where bands begin.

    All are whole numbers, so that sums are exact in whichever order they are made.
    """
    batches, lengths, count = draw(st.integers(2, 9)), draw(st.integers(2, 4)), 8
    whole = st.integers(0, 60)
    base = draw(st.lists(whole, min_size=batches * lengths, max_size=batches * lengths))
    noise = draw(st.lists(whole, min_size=count * lengths, max_size=count * lengths))
    expected = 100 + np.array(base, dtype=float).reshape(batches, lengths)
    factor = 100 + np.array(noise, dtype=float).reshape(count, 1, lengths)
    usable = np.ones((batches, lengths), dtype=bool)
    last = draw(st.integers(0, batches))  # longer drafts leave the graphs from some batch on
    usable[last:, 1:] = False
    weights = draw(st.lists(st.integers(1, 5), min_size=batches, max_size=batches))
    starts = sorted({0, *draw(st.sets(st.integers(1, batches - 1)))})
    return (
        (expected * factor).tolist(),
        usable.tolist(),
        [float(weight) for weight in weights],
        starts,
    )


@settings(max_examples=200, deadline=None)
@given(tables(), st.sampled_from([0.0, 0.5, 0.8, 1.0]))
def test_the_merge_is_the_naive_one(
    case: tuple[list[Table], list[list[bool]], list[float], list[int]], odds: float
) -> None:
    speeds, can_run, weights, starts = case
    drawn, usable = np.array(speeds), np.array(can_run, dtype=bool)
    batches = len(weights)
    stops = [*starts[1:], batches]
    worth = np.array(weights) * np.arange(1, batches + 1)
    runs, bands = [], []
    for start, stop in zip(starts, stops, strict=True):
        whole = np.asarray(usable[start:stop].all(axis=0))
        of_draws = np.einsum("b,sbd->ds", worth[start:stop], drawn[:, start:stop])
        of_draws = np.where(whole[:, None], of_draws, -np.inf)
        tokens = of_draws.sum(axis=-1)
        chosen = int(tokens.argmax())
        runs.append(
            Run(start=start, stop=stop, chosen=(chosen,), tokens=tokens[None], drawn=of_draws[None])
        )
        bands.append((start + 1, stop, chosen))
    found = [(run.start + 1, run.stop, run.chosen[0]) for run in merge_runs(runs, odds)]
    assert found == naive_merge(bands, speeds, can_run, weights, odds)


# A plan by hand -------------------------------------------------------------------------------

LENGTHS = (0, 1, 2)
NAN = float("nan")


@pytest.fixture(scope="module")
def question() -> Question:
    asked = question_of(model="llama-3.1-8b", drafter="ngram", acceptance="0.7", max_draft_length=2)
    assert asked.draft_lengths == LENGTHS
    return asked


def plan_of(
    question: Question,
    speed: Table,
    sway: list[float],
    *,
    odds: float = SURE,
    weights: list[float] | None = None,
) -> SchedulePlan:
    """Return a plan of these speeds; in draw i those at D = 2 are off by the i-th ``sway``."""
    table = np.array(speed, dtype=float)[:, None, :]
    factors = np.ones((len(LENGTHS), len(sway)))
    factors[2] = 1 + np.array(sway)
    return SchedulePlan(
        question=question,
        speed=table,
        drawn=np.nan_to_num(table)[..., None] * factors,
        priced=table,
        plain=table[..., 0],
        cost_ratio=np.ones_like(table),
        weights=octave_weights(len(table)) if weights is None else np.array(weights),
        mix=None,
        tie=0.005,
        odds=odds,
        idle=0.0,
        notices=(),
    )


def as_tuples(bands: list[Band]) -> list[tuple[int, int, int]]:
    return [(band.first, band.last, band.draft_length) for band in bands]


#: D = 2 is 2 % faster at batches 1 and 2, D = 1 at 3 and 4, by 1 %, and 2 again at 5.
NEAR = [[50, 98, 100], [50, 98, 100], [50, 100, 99], [50, 100, 99], [50, 98, 100]]


def test_what_no_draw_separates_stays_one_band(question: Question) -> None:
    """Ten draws move D = 2 by -4 ... 5 %; to win is to be faster by more than the tie, 0.5 %.

    D = 1 wins at 3 where D = 2 moves by less than 100 / 99 / 1.005 - 1 = 0.51 %, D = 2 at 1 where
    it moves by more than 98 * 1.005 / 100 - 1 = -1.51 %: both hold at -1 and 0 %, 2 of 10.
    """
    plan = plan_of(question, NEAR, [i / 100 for i in range(-4, 6)])
    assert as_tuples(plan.merged) == [(1, 5, 2)]
    apart = plan_of(question, NEAR, [i / 100 for i in range(-4, 6)], odds=0.2)
    assert as_tuples(apart.merged) == [(1, 2, 2), (3, 4, 1), (5, 5, 2)]


def test_what_every_draw_separates_stays_apart(question: Question) -> None:
    plan = plan_of(question, NEAR, [i / 1000 for i in range(-4, 6)])
    assert as_tuples(plan.merged) == [(1, 2, 2), (3, 4, 1), (5, 5, 2)]


def test_odds_of_exactly_the_least_are_enough(question: Question) -> None:
    """Four draws of five separate them: 80 %."""
    for far, count in ((0.05, 3), (0.0, 3)):
        plan = plan_of(question, NEAR, [0.0, 0.001, -0.001, 0.002, far])
        first, second = (
            Run(start=s, stop=e, chosen=c, tokens=t, drawn=d)
            for s, e, c, t, d in (
                (0, 2, (2,), plan.speed[:2].sum(0), plan.drawn[:2].sum(0)),
                (2, 4, (1,), plan.speed[2:4].sum(0), plan.drawn[2:4].sum(0)),
            )
        )
        assert odds_of_two(first, second) == (0.8 if far else 1.0)
        assert len(plan.merged) == count


def test_no_band_runs_what_some_batch_of_it_cannot(question: Question) -> None:
    """D = 2 leaves the graphs at 3: to run one length for all, D = 1 gives up 20 % at 1 and 2."""
    speed: Table = [[50, 80, 100], [50, 80, 100], [50, 80, NAN], [50, 80, NAN]]
    sure = plan_of(question, speed, [-0.01, 0.0, 0.01, 0.02])
    assert as_tuples(sure.merged) == [(1, 2, 2), (3, 4, 1)]
    unsure = plan_of(question, speed, [-0.3, -0.25, 0.01, 0.02])
    assert as_tuples(unsure.merged) == [(1, 4, 1)]


def test_batches_that_the_mix_never_sees_add_no_band(question: Question) -> None:
    """All time at batches 1 and 5; D = 1 at 3 and 4 gains where nobody is."""
    plan = plan_of(question, NEAR, [0.0] * 5, weights=[0.5, 0, 0, 0, 0.5])
    assert as_tuples(plan.merged) == [(1, 5, 2)]


def test_what_the_mix_never_sees_is_still_run_well(question: Question) -> None:
    """All time at batch 1, and D = 2 leaves the graphs at 3: D = 1 there, not what comes first."""
    speed: Table = [[50, 80, 100], [50, 80, 100], [50, 80, NAN], [50, 60, NAN]]
    plan = plan_of(question, speed, [0.0] * 5, weights=[1, 0, 0, 0])
    assert as_tuples(plan.merged) == [(1, 2, 2), (3, 4, 1)]


def test_losses_by_hand(question: Question) -> None:
    """One band of D = 2: 1 % lost at 3 and 4. Weights w_B B of tokens, w_B as log(1 + 1 / B)."""
    plan = plan_of(question, NEAR, [i / 100 for i in range(-4, 6)])
    assert losses(plan, plan.merged)[:, 0] == pytest.approx([0, 0, 0.01, 0.01, 0])
    count = [np.log(1 + 1 / b) * b for b in range(1, 6)]
    lost = count[2] + count[3]  # one token of 100 at each
    assert loss(plan, plan.merged) == pytest.approx(lost / (100 * sum(count)))


def test_sglang_cells_go_through_the_same_merge(question: Question) -> None:
    starts = np.array([0, 0, 2, 2, 4])
    sway = [i / 100 for i in range(-4, 6)]
    assert as_tuples(cell_bands(plan_of(question, NEAR, sway), starts)) == [(1, 5, 2)]
    apart = cell_bands(plan_of(question, NEAR, sway, odds=0.0), starts)
    assert as_tuples(apart) == [(1, 2, 2), (3, 4, 1), (5, 5, 2)]


def test_a_merged_falling_table_still_drafts_the_most_first(question: Question) -> None:
    """TensorRT-LLM: D = 1 is best at 1 and 2 after it; the first band must have the longest.

    Beginning with D = 2 loses 1 % at batch 1 and gains 20 % at 2 to 4 against never running it.
    """
    speed = [[50, 100, 99], [50, 80, 100], [50, 80, 100], [50, 80, 100]]
    for odds in (0.0, SURE):
        found = as_tuples(falling_bands(plan_of(question, speed, [0.0] * 5, odds=odds)))
        assert found == [(1, 4, 2)]
    falls = [[50, 80, 100], [50, 100, 99], [50, 100, 99], [50, 98, 100]]
    sway = [i / 100 for i in range(-4, 6)]
    assert as_tuples(falling_bands(plan_of(question, falls, sway))) == [(1, 4, 2)]


# What is printed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        ("llama-3.1-8b", "--batches", "1..200"),
        ("llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--batches", "1..128"),
        ("llama-3.1-70b", "--gpu", "h200-sxm", "--tp", "4", "--batches", "1..64"),
    ],
)
def test_every_border_that_is_left_has_the_odds(cli: Cli, ask: tuple[str, ...]) -> None:
    """By the draws of the plan, batch by batch; every D that rises has its reason beside it."""
    data = cli("schedule", *ask, "--format", "json").data()
    batches = tuple(range(1, data["inputs"]["batches"] + 1))
    asked = question_of(
        model=ask[0],
        batches=batches,
        **{name[2:]: int(value) if name == "--tp" else value
           for name, value in zip(ask[1::2], ask[2::2], strict=True) if name != "--batches"},
    )  # fmt: skip
    plan = plan_question(asked, tie=0.01, mix=None)
    bands = [(b["batch_start"], b["batch_end"], b["draft_length"]) for b in data["bands"]]
    for (f1, l1, d1), (f2, l2, d2) in pairwise(bands):
        one, two = (plan.draft_lengths.index(d) for d in (d1, d2))

        def yields(first: int, last: int, at: int, plan: SchedulePlan = plan) -> np.ndarray:
            inside = slice(first - 1, last)
            if np.isnan(plan.speed[inside, 0, at]).any():
                return np.full(plan.drawn.shape[-1], -np.inf)
            count = plan.weights[inside] * np.arange(first, last + 1)
            return np.asarray(count @ plan.drawn[inside, 0, at])

        own = yields(f1, l1, one) + yields(f2, l2, two)
        alone = np.maximum(
            yields(f1, l1, one) + yields(f2, l2, one), yields(f1, l1, two) + yields(f2, l2, two)
        )
        assert (own > alone).mean() >= SURE
    rising = [(f2, d1, d2) for (_, _, d1), (f2, _, d2) in pairwise(bands) if d2 > d1]
    assert [(r["batch"], r["shorter"], r["longer"]) for r in data["rises"]] == rising
    assert data["inputs"]["odds"] == SURE


def test_the_example_that_jumped_is_two_bands_at_most(cli: Cli) -> None:
    """It was 5, 4, 5, 4 (and 3, 2, 3, 2 on an earlier model): 1 % here and there."""
    data = cli("schedule", "llama-3.1-8b", "--batches", "1..200", "--format", "json").data()
    lengths = [band["draft_length"] for band in data["bands"]]
    assert len(lengths) <= 2
    assert lengths == sorted(lengths, reverse=True)


def test_the_loss_of_the_simpler_table_by_brute_force(cli: Cli) -> None:
    """Against the same table without a tie and without a merge."""
    ask = (*MODEL, "--batches", "1..64", "--contexts", "1k")
    data = cli("schedule", *ask, "--format", "json").data()
    rows = cli(
        "recommend", *MODEL, "--batch", ",".join(map(str, range(1, 65))), "--context", "1k",
        "--format", "json",
    ).data()  # fmt: skip
    speeds = {
        point["batch"]: {
            row["draft_length"]: row["tokens_per_s"]
            for row in point["by_draft_length"]
            if row["draft_length"] and row["captured"]
        }
        for point in rows["points"]
    }
    chosen = {
        batch: band["draft_length"]
        for band in data["bands"]
        for batch in range(band["batch_start"], band["batch_end"] + 1)
    }
    share = {b: np.log1p(1 / b) for b in speeds}
    best = sum(share[b] * max(speeds[b].values()) for b in speeds)
    own = sum(share[b] * speeds[b][chosen[b]] for b in speeds)
    assert data["loss"] == pytest.approx(1 - own / best, abs=1e-9)
    lost = {b: 1 - speeds[b][chosen[b]] / max(speeds[b].values()) for b in speeds}
    assert data["largest_loss"] == pytest.approx(max(lost.values()), abs=1e-9)
    assert lost[data["worst_batch"]] == pytest.approx(max(lost.values()), abs=1e-9)


def test_a_loss_beyond_the_tie_is_said(cli: Cli) -> None:
    asked = ("llama-3.1-8b", "--batches", "1..200", "--contexts", "2k")
    out = " ".join(text(cli, "table", *asked).split())
    assert "That is more than --tie 1: bands are kept apart only where each draft length" in out
    apart = text(cli, "table", *asked, "--odds", "0")
    assert "within --tie 1." in " ".join(apart.split())


def test_the_reason_of_a_rise_is_the_part_that_falls() -> None:
    """All experts are awake in a large batch: the longer draft adds less there than before it."""
    asked = question_of(
        model="qwen3-30b-a3b",
        gpu="h200-sxm",
        drafter="ngram",
        acceptance="0.7",
        batches=tuple(range(1, 65)),
        contexts=(1024,),
    )
    plan = replace(plan_question(asked, tie=0.0, mix=None), odds=0.0)
    bands = [
        Band(first=1, last=8, draft_lengths=(2,)),
        Band(first=9, last=64, draft_lengths=(7,)),
    ]
    (rise,) = rises(plan, bands)
    assert (rise.batch, rise.shorter, rise.longer, rise.part) == (9, 2, 7, "moe")
    assert rise.before is not None
    assert rise.after is not None
    assert rise.before > rise.after


def test_a_rise_past_the_graphs_says_so(question: Question) -> None:
    """D = 2 cannot run until plain decoding leaves the graphs as well."""
    plan = plan_of(question, [[50, 80, NAN], [50, 60, 100]], [0.0])
    (rise,) = rises(plan, plan.merged)
    assert (rise.batch, rise.part) == (2, None)


def test_one_band_gives_the_flags_first(cli: Cli) -> None:
    out = text(cli, "table", "llama-3.1-8b", "--batches", "1..16")
    head, flags, *_ = out.split("\n\n")
    assert head.startswith("One draft length for all batches: no schedule needed.")
    assert rules.vllm_config(flags.removeprefix("vLLM:\n"))["num_speculative_tokens"] == 5
    assert out.count("--speculative-config") == 1


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_one_band_is_no_schedule_for_any_engine(cli: Cli, engine: str) -> None:
    written = text(cli, engine, "llama-3.1-8b", "--batches", "1..16")
    assert "adaptive" not in written
    assert "draft_len_schedule" not in written
    assert "per_batch_size" not in written


@pytest.mark.parametrize("odds", ["-1", "101", "nan", "much"])
def test_odds_that_cannot_be(cli: Cli, odds: str) -> None:
    assert_refused(cli("schedule", "llama-3.1-8b", f"--odds={odds}"), "--odds", "percent")
