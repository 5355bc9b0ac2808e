"""Bands that the model's error cannot tell apart are one: by brute force, by hand, as printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.advice.decide import SURE
from roofline.advice.question import Question, question_of
from roofline.engines.writing import Band
from roofline.questions.schedule.bands import (
    Run,
    merge_runs,
    moved_rows,
    octave_weights,
    odds_of_two,
)
from roofline.questions.schedule.engine_bands import cell_bands, falling_bands
from roofline.questions.schedule.plan import SchedulePlan, plan_question
from roofline.questions.schedule.rises import rises
from roofline.questions.schedule.written import loss, losses
from roofline.specs.formats import DType
from roofline.specs.priors import priors
from roofline.timing.machine import OpTime
from tests import schedule_rules as rules
from tests.scheduling import COUNTED, MODEL, text
from tests.support import Cli, assert_refused

Table = Sequence[Sequence[float]]

# Brute force ----------------------------------------------------------------------------------


def naive_merge(
    bands: list[tuple[int, int, int]],
    speeds: list[Table],
    usable: list[list[bool]],
    weights: list[float],
    odds: float,
) -> tuple[float, int, float]:
    """Return the best way to join bands (first, last batch, length) whose borders have the odds.

    It surely loses least, has the fewest pieces, yields most, in this order. In loops over all ways
    to join them, batches, lengths and draws. ``speeds`` are tables of batch and length, one for
    each draw; the expected one is their mean.
    """

    def runs(first: int, last: int, length: int) -> bool:
        return all(usable[b - 1][length] for b in range(first, last + 1))

    def tokens(table: Table, first: int, last: int, length: int) -> float:
        if not runs(first, last, length):
            return -np.inf
        return sum(weights[b - 1] * b * table[b - 1][length] for b in range(first, last + 1))

    def expected(first: int, last: int, length: int) -> float:
        return sum(tokens(table, first, last, length) for table in speeds)

    def best_length(first: int, last: int) -> int:
        return max(range(len(usable[0])), key=lambda d: expected(first, last, d))

    def odds_of(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
        (f1, l1, d1), (f2, l2, d2) = one, other
        rivals = [best_length(f1, l2)] + ([d1, d2] if d2 > d1 else [])
        wins = 0
        for table in speeds:
            two = tokens(table, f1, l1, d1) + tokens(table, f2, l2, d2)
            wins += all(two > tokens(table, f1, l1, d) + tokens(table, f2, l2, d) for d in rivals)
        return wins / len(speeds)

    def surely_lost(band: tuple[int, int, int], length: int) -> float:
        first, last, own = band
        wins = sum(
            tokens(table, first, last, own) > tokens(table, first, last, length) for table in speeds
        )
        if own == length or wins / len(speeds) < odds:
            return 0.0
        return expected(first, last, own) - expected(first, last, length)

    ways = []
    for joined in product((False, True), repeat=len(bands) - 1):
        pieces, members = [bands[0]], [[bands[0]]]
        for band, same in zip(bands[1:], joined, strict=True):
            if same:
                pieces[-1] = (pieces[-1][0], band[1], best_length(pieces[-1][0], band[1]))
                members[-1].append(band)
            else:
                pieces.append(band)
                members.append([band])
        if all(odds_of(*pair) >= odds for pair in pairwise(pieces)):
            lost = sum(
                surely_lost(band, piece[2])
                for piece, inside in zip(pieces, members, strict=True)
                for band in inside
            )
            ways.append((lost, len(pieces), -sum(expected(*piece) for piece in pieces)))
    return min(ways)


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
    found = merge_runs(runs, odds)
    assert [found[0].start, *(run.stop for run in found)][-1] == batches
    assert all(one.stop == other.start for one, other in pairwise(found))
    _, count, missed = naive_merge(bands, speeds, can_run, weights, odds)
    assert (len(found), sum(run.expected for run in found)) == (count, -missed)
    assert all(odds_of_two(*pair) >= odds for pair in pairwise(found))


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
        captured=table,
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


#: What schedules are asked for here: the fault's own kind first.
JUMPED = ("llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--weights", "fp8", "--drafter",
          "eagle3", "--batches", "1..200")  # fmt: skip
CURVES = ("survival:0.72,0.45,0.21,0.1", "survival:0.8,0.62,0.48,0.35,0.25")
SAMPLES = 1000
#: Rows that vLLM 0.11 and later capture at most (vllm/config: max_cudagraph_capture_size).
CAPTURED = 512


def simulated(question: Question) -> np.ndarray:
    """Return speeds by batch, D and sample, of the stated model of errors, by random numbers.

    Written anew from its equations: log f = s (z_kind + z_kernel) / sqrt(2) + r W_kind(q) + v z for
    every kernel, W a Brownian motion in log q with unit variance at q = 4; no step with drafts is
    shorter than the plain one; the rows are moved by exp(S z), S the mean of the s of the verify
    pass by time.
    """
    random, spread = np.random.default_rng(5), priors().spread
    priced = question.price()
    times, lengths = priced.times, np.array(question.draft_lengths)
    shape = (len(question.workload.batches), 1, len(lengths))
    walks: dict[object, np.ndarray] = {}
    shared: dict[object, np.ndarray] = {}
    q = np.arange(2, lengths[-1] + 2)
    jump = np.sqrt(np.log(q / (q - 1)) / np.log(4))

    def normal(name: object) -> np.ndarray:
        return shared.setdefault(name, random.standard_normal(SAMPLES))

    def level(time: OpTime) -> float:
        evidence = time.chosen.evidence
        if evidence is None:
            return spread.prior
        transfer = max(spread.calibrated, time.chosen.relative_error / 0.6745)
        return float(np.hypot(evidence.median_error / 0.6745, transfer))

    total = np.broadcast_to(times.overhead, shape)[:, 0, :, None] * np.exp(
        spread.overhead * normal("overhead")
    )
    weighted = weight = 0.0
    for ops, repeats, longer in (
        (times.verify_ops, np.ones_like(lengths), True),
        (times.first_pass_ops, lengths > 0, True),
        (times.further_pass_ops, np.maximum(lengths - 1, 0), False),
    ):
        for time in ops:
            kind, sigma = time.op.kind, level(time)
            evidence = time.chosen.evidence
            ratio = evidence.ratio_error if evidence is not None else None
            rows = spread.rows if ratio is None else ratio / 0.6745
            if kind not in walks:
                steps = jump[:, None] * random.standard_normal((len(q), SAMPLES))
                walks[kind] = np.concatenate([np.zeros((1, SAMPLES)), steps.cumsum(axis=0)])
            error = sigma * (normal(kind) + normal((kind, time.op.name))) / np.sqrt(2)
            walk = walks[kind][lengths] if longer else 0.0
            seconds = np.broadcast_to(time.total, shape)[:, 0] * repeats
            total = total + seconds[..., None] * np.exp(error + rows * walk)
            if ops is times.verify_ops:
                last = float(np.asarray(time.total).flat[-1])
                weighted, weight = weighted + last * sigma, weight + last
    total[:, lengths > 0] *= np.exp(spread.served * normal("served"))
    total = np.maximum(total, total[:, :1])
    speed = question.tokens_per_step((4096,))[0][:, None] / total
    where = np.arange(1, shape[0] + 1)[:, None] * np.exp(weighted / weight * normal("rows"))
    moved = np.empty_like(speed)
    for sample in range(SAMPLES):
        for d in range(len(lengths)):
            last = min(CAPTURED // (1 + int(lengths[d])), shape[0])
            inside = np.arange(1, last + 1)
            moved[:last, d, sample] = np.interp(
                where[:last, sample], inside, speed[:last, d, sample]
            )
            moved[last:, d, sample] = -np.inf
    return np.asarray(moved)


def bands_of(data: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(b["batch_start"], b["batch_end"], b["draft_length"]) for b in data["bands"]]


def odds_by_hand(
    speed: np.ndarray, lengths: Sequence[int], first: Sequence[int], second: Sequence[int]
) -> float:
    """Return the share of samples in which two lengths beat one, by over 1 % of what it changes.

    The one is what yields most over both; where drafts grow with the batch, either of the two too.
    """
    (f1, l1, own), (f2, l2, other) = first, second

    def tokens(start: int, stop: int, length: int) -> np.ndarray:
        batches = np.arange(start, stop + 1)
        runs = speed[start - 1 : stop, lengths.index(length)]
        return np.asarray((np.log1p(1 / batches) * batches) @ np.nan_to_num(runs, neginf=-1e9))

    best = max(lengths, key=lambda d: tokens(f1, l2, d).mean())
    wins = np.ones(speed.shape[-1], dtype=bool)
    for one in {best, *((own, other) if other > own else ())}:
        more = np.zeros(speed.shape[-1])
        for start, stop, length in ((f1, l1, own), (f2, l2, other)):
            if length != one:
                more += tokens(start, stop, length) - 1.01 * tokens(start, stop, one)
        wins &= more > 0
    return float(wins.mean())


@pytest.mark.parametrize(
    "ask",
    [
        *((*JUMPED, "--acceptance", curve) for curve in CURVES),
        ("qwen3-8b", "--gpu", "a100-sxm-80gb", "--batches", "1..80", "--acceptance", CURVES[1]),
        ("llama-3.1-8b", "--gpu", "h200-sxm", "--batches", "1..160", "--acceptance", CURVES[0]),
        ("qwen3-30b-a3b", "--gpu", "h200-sxm", "--batches", "1..160", "--acceptance", CURVES[0]),
    ],
)
def test_every_border_that_is_left_has_the_odds(cli: Cli, ask: tuple[str, ...]) -> None:
    """80 % by random samples of the stated error; every D that rises has its reason beside it.

    64 draws count a share of 80 % with a standard error of 5 points: two of them are left.
    """
    data = cli("schedule", *ask, "--format", "json").data()
    kinds: dict[str, Callable[[str], Any]] = {"--tp": int, "--weights": DType}
    options = {
        name[2:]: kinds.get(name, str)(value)
        for name, value in zip(ask[1::2], ask[2::2], strict=True)
        if name != "--batches"
    }
    batches = tuple(range(1, data["inputs"]["batches"] + 1))
    asked = question_of(model=ask[0], engine="vllm", batches=batches, **options)
    speed, lengths = simulated(asked), list(asked.draft_lengths)
    error = np.sqrt(0.8 * 0.2 / 64)
    bands = bands_of(data)
    for first, second in pairwise(bands):
        assert odds_by_hand(speed, lengths, first, second) >= 0.8 - 2 * error
    apart = bands_of(cli("schedule", *ask, "--odds", "0", "--format", "json").data())
    assert len(apart) >= len(bands)
    if len(apart) > len(bands):  # something fell because its odds were too low
        borders = [odds_by_hand(speed, lengths, *pair) for pair in pairwise(apart)]
        assert min(borders) < 0.8 + 2 * error
    rising = [(f2, d1, d2) for (_, _, d1), (f2, _, d2) in pairwise(bands) if d2 > d1]
    assert [(r["batch"], r["shorter"], r["longer"]) for r in data["rises"]] == rising
    assert data["inputs"]["odds"] == 0.8


@pytest.mark.parametrize("curve", CURVES)
def test_the_example_that_jumped_hardly_does(cli: Cli, curve: str) -> None:
    """It was 3, 2, 3, 2, 3, 2: the borders were edges of tiles of 64 and 128 rows, to the row."""
    asked = ("schedule", *JUMPED, "--acceptance", curve)
    apart = [d for _, _, d in bands_of(cli(*asked, "--odds", "0", "--format", "json").data())]
    assert sum(b > a for a, b in pairwise(apart)) >= 2
    data = cli(*asked, "--format", "json").data()
    lengths = [d for _, _, d in bands_of(data)]
    rises = sum(b > a for a, b in pairwise(lengths))
    assert rises == len(data["rises"]) <= 1
    assert len(lengths) < len(apart)
    assert data["gain_over_fixed"] > 0.005  # what is real is kept
    out = " ".join(cli(*asked).out.split())
    assert f"Against the best D at each batch this loses {data['loss']:.2%} of all tokens" in out


def test_rows_are_moved_by_hand() -> None:
    """A step from 10 to 20 between batches 2 and 3: f = 1.5 reads 1.5, 3 and 4.5, so 4, of 4."""
    speed = np.array([10.0, 10.0, 20.0, 20.0]).reshape(4, 1, 1, 1).repeat(2, axis=-1)
    every = np.ones((4, 1, 1), dtype=bool)
    moved = moved_rows(speed, np.array([1.5, 0.5]), every)
    assert moved[:, 0, 0, 0].tolist() == [10, 20, 20, 20]
    assert moved[:, 0, 0, 1].tolist() == [10, 10, 10, 10]
    ends = np.array([True, True, False, False]).reshape(4, 1, 1)  # memory or graphs end at 2
    assert moved_rows(speed, np.array([1.5, 1.5]), ends)[:2, 0, 0, 0].tolist() == [10, 10]


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
    assert "more than --tie 1: the batches get another D only where that gains more" in out
    apart = text(cli, "table", *asked, "--odds", "0")
    assert "within --tie 1." in " ".join(apart.split())


def test_where_plain_decoding_beats_a_schedule_is_said(cli: Cli) -> None:
    """By the speedups of `recommend`, which compares with no drafter at all.

    D = 0 in a schedule pays for an idle drafter, so D = 3 may win there and still lose to that.
    An A100 has 0.9 x 79.25 GiB - 1.5 GB = 75.08 GB: less 16.06 + 0.85 of weights and 0.84 of
    activations 57.34, for (4112 slots x 135,168 B + 4 rows of 0.77 MB) 102.6 sequences.
    """
    asked = (
        "llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--acceptance", "survival:0.72,0.45,0.21",
        "--memory-fraction", "0.9",
    )  # fmt: skip
    data = cli("schedule", *asked, "--contexts", "4k", "--format", "json").data()
    points = cli(
        "recommend", *asked, "--context", "4k", "--batch", "1..102", "--format", "json"
    ).data()["points"]
    assert [(band["batch_start"], band["draft_length"]) for band in data["bands"]] == [(1, 3)]
    step = {p["batch"]: {r["draft_length"]: r for r in p["by_draft_length"]} for p in points}
    loses = {b: 1 / rows[3]["speedup"] - 1 for b, rows in step.items()}
    found = data["plain_faster"]
    inside = {b for first, last in found["ranges"] for b in range(first, last + 1)}
    assert inside == {b for b, loss in loses.items() if loss > 0.01}
    assert found["batch"] == max(loses, key=lambda b: loses[b])
    assert found["gain"] == pytest.approx(loses[found["batch"]], rel=1e-6)
    assert found["idle"] == pytest.approx(1e-3 * data["idle_ms"], rel=0.5)
    out = " ".join(text(cli, "table", *asked, "--contexts", "4k").split())
    assert f"by up to {found['gain']:.1%} at batch {found['batch']} (D = 0 in a schedule" in out


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
    out = text(cli, "table", "llama-3.1-8b", *COUNTED, "--batches", "1..16")
    head, flags, *_ = out.split("\n\n")
    assert head.startswith("One draft length for batches 1 to 16: no schedule needed.")
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
