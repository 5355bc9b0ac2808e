"""Draft lengths between measured ones: one conditional rate in each gap, never a zero."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.acceptance import load_acceptance, tokens_per_step
from roofline.acceptance.conventions import survival_from_tokens_per_step
from roofline.acceptance.curve import by_context, fill_gaps, from_curve, gap_rate, weighted_mean
from roofline.acceptance.files import bundled_curves, load_file
from roofline.acceptance.forms import parse_acceptance
from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.render.charts.heatmap import heatmap_rows
from roofline.specs.formats import DType
from tests.acceptance.test_models import GOLDEN
from tests.support import Cli, write


def test_a_curve_that_starts_at_two() -> None:
    """EAGLE-3 on Llama-3.1-8B (vLLM issue 20780): AL(2) = 2.36 is a + a^2 = 1.36.

    By the quadratic formula a = (sqrt(1 + 5.44) - 1) / 2 = 0.76886.
    """
    curve = from_curve({2: 2.36, 3: 2.79})
    assert curve.table[1] == pytest.approx(1 + (math.sqrt(6.44) - 1) / 2, abs=1e-12)
    assert (curve.table[2], curve.table[3]) == (2.36, 2.79)
    assert curve.filled == {1}
    assert curve.measured == {0: 1.0, 2: 2.36, 3: 2.79}


def test_a_gap_begins_where_the_last_known_draft_survives() -> None:
    """AL(1) = 1.8: S_1 = 0.8. AL(3) = 1.8 + 0.4 + 0.2 is a = 0.5, so AL(2) = 2.2."""
    assert fill_gaps({0: 1.0, 1: 1.8, 3: 2.4})[2] == pytest.approx(2.2)


def test_one_rate_fills_exactly() -> None:
    """Leviathan et al. 2023, Eq. 1 at 0.6: 1.6, 1.96, 2.176, 2.3056."""
    full = fill_gaps({0: 1.0, 2: 1.96, 4: 2.3056})
    assert [round(full[d], 4) for d in (1, 3)] == [1.6, 2.176]


@given(
    rate=st.floats(0.001, 0.999),
    survival=st.floats(0.01, 1),
    steps=st.integers(1, 64),
)
def test_the_rate_of_a_gap_is_the_root(rate: float, survival: float, steps: int) -> None:
    """Solved by mpmath with 40 digits, from the sum written out."""
    with mpmath.workdps(40):
        gain = mpmath.fsum(survival * mpmath.mpf(rate) ** k for k in range(1, steps + 1))
        root = mpmath.findroot(
            lambda a: mpmath.fsum(survival * a**k for k in range(1, steps + 1)) - gain,
            (0, 1),
            solver="anderson",
        )
    found = gap_rate(gain=float(gain), survival=survival, steps=steps)
    assert float(found) == pytest.approx(float(root), abs=1e-9)


def test_rates_of_many_gaps_at_once() -> None:
    """a + a^2 = 0.75 at 0.5; a + a^2 + a^3 = 0.875 at 0.5; half of both at half the survival."""
    found = gap_rate(gain=np.array([0.75, 0.875]), survival=[[1.0], [0.5]], steps=[2, 3])
    assert found.shape == (2, 2)
    np.testing.assert_allclose(found[0], [0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(
        found[1], gap_rate(gain=[1.5, 1.75], survival=1.0, steps=[2, 3]), atol=1e-12
    )


@pytest.mark.parametrize(
    ("gain", "survival", "rate"), [(-0.1, 0.5, 0), (0.0, 0.5, 0), (0.3, 0.0, 0), (1.2, 0.5, 1)]
)
def test_what_no_rate_explains_is_cut_to_the_nearest(
    gain: float, survival: float, rate: float
) -> None:
    assert float(gap_rate(gain=gain, survival=survival, steps=2)) == rate


@given(rates=st.lists(st.floats(0.05, 0.99), min_size=2, max_size=8), data=st.data())
def test_filling_meets_what_is_known(rates: list[float], data: st.DataObject) -> None:
    whole = dict(enumerate(float(al) for al in tokens_per_step(rates)))
    kept = data.draw(st.sets(st.integers(1, len(rates)), min_size=1))
    full = fill_gaps({0: 1.0} | {d: whole[d] for d in kept})
    assert list(full) == list(range(max(kept) + 1))  # no hole, and nothing beyond
    assert all(full[d] == whole[d] for d in kept)


@given(
    curve=st.dictionaries(st.integers(1, 10), st.floats(0, 1), min_size=1, max_size=6).map(
        lambda shares: {d: 1 + share * d for d, share in shares.items()}
    )
)
def test_survival_in_a_gap_is_a_probability_and_never_rises(curve: dict[int, float]) -> None:
    """For any published numbers, noisy or falling: the points stay, the gaps obey."""
    made = from_curve(curve)
    assert made.measured == {0: 1.0} | curve
    assert list(made.table) == list(range(max(curve) + 1))
    survival = [1.0, *survival_from_tokens_per_step([made.table[d] for d in list(made.table)[1:]])]
    for d in made.filled:
        assert -1e-12 <= survival[d] <= 1 + 1e-12
        if d - 1 in made.filled or d == 1:
            assert survival[d] <= survival[d - 1] + 1e-12


def test_a_falling_curve_keeps_its_points(cli: Cli) -> None:
    """DFlash on Qwen3.6-27B, published: 2.65 at D = 5, 2.60 at D = 7. Nothing survives between."""
    made = parse_acceptance("al:5=2.65,7=2.6")
    assert (made.table[5], made.table[6], made.table[7]) == (2.65, 2.65, 2.6)
    answer = cli("recommend", "qwen3-8b", "--acceptance", "al:5=2.65,7=2.6", "--format", "json")
    assert list(answer.by_draft_length()) == list(range(9))
    assert "tokens per step fall from 2.65 at D=5 to 2.6 at D=7" in answer.said


def test_nothing_is_filled_beyond_the_last() -> None:
    curve = parse_acceptance("al:2=2.36,4=3.08")
    known = curve.tokens_per_step([0, 1, 2, 3, 4, 5])
    assert np.isnan(known).tolist() == [False] * 5 + [True]


def test_what_was_filled_is_said(cli: Cli) -> None:
    text = " ".join(
        cli("recommend", "llama-3.1-8b", "--acceptance", "al:2=2.36,4=3.08").out.split()
    )
    assert "not measured at D = 1 and 3; filled in from the lengths beside" in text
    whole = cli("recommend", "llama-3.1-8b", "--acceptance", "al:1.8,2.36,2.79")
    assert "not measured" not in whole.out + whole.err
    short = cli(
        "recommend", "llama-3.1-8b", "--acceptance", "al:2=2.36,4=3.08", "--max-draft-length", "2"
    )
    assert "not measured at D = 1; filled" in " ".join(short.out.split())


def test_filled_lengths_are_never_taken_for_measured_ones(cli: Cli, tmp_path: Path) -> None:
    body = "schema: 1\nsource: invented\ntokens_per_step: {2: 2.1, 4: 2.4}\n"
    path = write(tmp_path, "gaps.yaml", body)
    shown = cli("acceptance", "show", path, "--format", "json").data()
    assert list(shown["tokens_per_step"]) == ["2", "4"]
    for row in bundled_curves():
        measured = load_file(row["id"])[1].all_curves()
        forms = {d for c in measured for d in map(int, c.tokens_per_step or {})}
        lengths = row["draft_lengths"].replace("-", " ").split()
        if forms:  # the ends of the runs in the index
            assert {int(d) for d in lengths} <= forms, row["id"]


def test_a_mix_fills_each_part_first() -> None:
    """0.5 (1.6, 1.96) + 0.5 (1.8, 2.4): D = 1 is filled in one part, so in the mix."""
    parts = [(0.5, from_curve({2: 1.96})), (0.5, from_curve({1: 1.8, 2: 2.4}))]
    mixed = weighted_mean(parts, label="", source="")
    assert [mixed.table[d] for d in (1, 2)] == pytest.approx([1.7, 2.18])
    assert mixed.filled == {1}


def test_curves_by_context_are_filled_each() -> None:
    curve = by_context(
        [(1024, from_curve({1: 1.8, 2: 2.4})), (4096, from_curve({2: 1.96}))], label="", source=""
    )
    assert curve.filled_up_to(8) == [1]
    found = curve.over_contexts([1024, 2048, 4096], [1])
    assert found.ravel() == pytest.approx([1.8, 1.7, 1.6])


@pytest.mark.parametrize(
    ("model", "gpu", "batches", "captured"),
    [("llama-3.1-8b", "h100-sxm", "128,192,256", 2), ("qwen3-8b", "a100-sxm-80gb", "200,256", 2)],
)
def test_one_draft_is_known_where_a_curve_starts_at_two(
    cli: Cli, model: str, gpu: str, batches: str, captured: int
) -> None:
    """vLLM captures 512 rows, so D = 1 is captured at batches up to 256, whatever was measured."""
    asked = ("recommend", model, "--gpu", gpu, "--batch", batches, "--context", "1k")
    answer = cli(*asked, "--acceptance", "al:2=2.1,3=2.29", "--format", "json")
    for point in answer.data()["points"]:
        rows = {row["draft_length"]: row for row in point["by_draft_length"]}
        assert captured * point["batch"] <= 512
        assert rows[1]["captured"]
        assert "every draft length needs more rows" not in point["reason"]


def test_no_cell_of_a_heatmap_is_without_drafts_for_a_gap() -> None:
    """Batches 128 to 256 are captured at D = 1 alone; the curve was measured from D = 2 on."""
    question = question_of(
        model="llama-3.1-70b", gpu="h100-sxm", tp=4, weights=DType.FP8, kv=DType.FP8,
        batches=(128, 256), contexts=(1024,), acceptance="al:2=2.1,3=2.29",
    )  # fmt: skip
    for row in heatmap_rows(recommend(question)):
        assert row.fits
        assert row.best_speculative_speedup is not None


def test_filled_from_one_value_the_golden_curves_come_out_low() -> None:
    """As docs/explain/acceptance.md says: 4 % low in the median, at worst 18, never 4 % high."""
    errors = []
    for name in GOLDEN:
        table = load_acceptance(name).table
        full = fill_gaps({0: 1.0, 7: table[7]})
        errors += [full[d] / table[d] - 1 for d in range(1, 7)]
    assert median(errors) == pytest.approx(-0.038, abs=0.005)
    assert -0.18 < min(errors) < -0.17
    assert 0.03 < max(errors) < 0.04
