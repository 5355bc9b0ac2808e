"""Laws that hold for every question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofline.acceptance import from_curve, tokens_per_step
from roofline.acceptance.expected import belief, learned
from roofline.acceptance.prior import Labels
from roofline.advice.decide import Point, smallest_within_tie
from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.base.units import format_size, parse_quantity, parse_size
from roofline.specs.laws import SimpleLaw
from roofline.specs.placement import Grid
from roofline.timing.laws.simple import simple_time
from roofline.timing.machine import Machine
from roofline.timing.step import StepTimes, step_times
from tests.strategies import curves, laws, rates, requests, work

few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=200, deadline=None)
ROUNDING = 1e-12


def seconds(constants: SimpleLaw, flops: float, moved: float, reduction: int = 0) -> float:
    time = simple_time(
        flops=flops, bytes=moved, reduction=reduction, peak=1e14, bandwidth=1e12, law=constants
    )
    return float(np.asarray(time.total))


@many
@given(laws(), work, work, st.floats(min_value=1, max_value=10), st.booleans())
def test_time_never_falls_when_work_grows(
    constants: SimpleLaw, flops: float, moved: float, growth: float, more_flops: bool
) -> None:
    before = seconds(constants, flops, moved)
    after = seconds(
        constants, flops * growth if more_flops else flops, moved if more_flops else moved * growth
    )
    assert after >= before * (1 - ROUNDING)


@many
@given(laws(), work, work)
def test_a_kernel_lies_between_full_overlap_and_none(
    constants: SimpleLaw, flops: float, moved: float
) -> None:
    """max(a, b) <= t - floor <= a + b whatever p is; a and b by hand from the rates."""
    compute, memory = (
        flops / 1e14 / constants.compute_eff,
        moved / 1e12 / constants.mem_eff,
    )
    body = seconds(constants, flops, moved) - constants.floor
    slack = 1e-9 * (compute + memory) + 1e-15
    assert max(compute, memory) - slack <= body <= compute + memory + slack


@many
@given(rates)
def test_tokens_per_step_stay_within_bounds(conditional: list[float]) -> None:
    """1 <= AL <= 1 + D, never falling with D, and each step adds no more than the last."""
    curve = tokens_per_step(conditional)
    assert curve[0] == 1
    assert (curve >= 1).all()
    assert (curve <= 1 + np.arange(len(curve)) + ROUNDING * 10).all()
    gains = np.diff(curve)
    assert (gains >= 0).all()
    assert (np.diff(gains) <= 1e-12).all()


@many
@given(curves(), st.integers(min_value=1, max_value=8))
def test_a_continued_curve_stays_within_bounds(curve: dict[int, float], further: int) -> None:
    """Even from wild data, no draft length may yield more than all its drafts and the bonus."""
    draft = max(curve) + further
    known = from_curve(curve, label="", source="")
    assert np.isnan(known.tokens_per_step([draft])[0])
    for rounds in (None, 10.0, 1e9):
        made = learned(known, belief((Labels(kind="mtp"),)), rounds=rounds, requests=5)
        lengths = np.arange(draft + 1)
        tokens = np.vstack([made.drawn(draft), made.tokens_per_step(lengths.tolist())])
        assert np.isfinite(tokens).all()
        assert ((tokens >= 1 - 1e-9) & (tokens <= 1 + lengths + 1e-9)).all()


@many
@given(st.lists(st.floats(min_value=1, max_value=1000), min_size=1, max_size=9))
def test_the_choice_against_brute_force(speed: list[float]) -> None:
    best, tie = smallest_within_tie(np.array(speed))
    good = [i for i, value in enumerate(speed) if value >= 0.99 * max(speed)]
    assert int(best) == good[0]
    assert np.flatnonzero(tie).tolist() == good


def only(options: dict[str, Any]) -> Point:
    (point,) = recommend(question_of(**options)).points
    return point


@few
@given(requests())
def test_an_answer_is_consistent(options: dict[str, Any]) -> None:
    point = only(options)
    draft = np.array(point.draft_lengths)
    step = point.verify + point.draft + point.overhead
    np.testing.assert_allclose(point.step, step, rtol=1e-12)
    np.testing.assert_allclose(point.step, sum(point.parts.values()), rtol=1e-12)
    # D = 0 is exactly 1
    assert (point.speedup[0], point.tokens_per_step[0], point.cost_ratio[0]) == (1, 1, 1)
    assert (point.low[0], point.high[0]) == (1, 1)
    assert point.draft[0] == 0
    assert (point.tokens_per_step >= 1).all()
    assert (point.tokens_per_step <= 1 + draft + 1e-9).all()
    # drafts only add work, so a step yields no more speed than tokens
    assert (point.cost_ratio >= 1).all()
    assert (point.speedup <= point.tokens_per_step).all()
    assert ((point.low <= point.speedup) & (point.speedup <= point.high)).all()
    assert np.isfinite(point.speedup).all()
    # the smallest draft length within 1 % of the best
    speed = point.tokens_per_step / point.step
    # of what fits inside the captured graphs: 57 x 9 rows are more than vLLM's 512
    usable = np.where(point.candidates, speed, 0)
    good = np.flatnonzero(usable >= 0.99 * usable.max())
    assert point.best == good[0]


def smooth(
    options: dict[str, Any],
) -> tuple[StepTimes, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Return step times with c(M) = 1, and the tokens per step of each draft length."""
    question = question_of(**options)
    deployment, workload = question.deployment, question.workload
    grid = Grid.of(workload.batches, workload.contexts, question.draft_lengths)
    machine = Machine(deployment.gpu, deployment.engine.id, staircase=False)
    overhead = deployment.engine.overhead
    times = step_times(deployment.target, deployment.drafter, grid, machine, overhead)
    return times, question.acceptance.tokens_per_step(question.draft_lengths)


@few
@given(requests())
def test_without_tile_steps_drafts_are_never_free(options: dict[str, Any]) -> None:
    """The issue: with c(M) = 1 the speedup is at most 1 + D, and more rows never take less time."""
    times, yields = smooth(options)
    total, verify = times.total[0, 0], times.verify[0, 0]
    assert (np.diff(verify) >= -ROUNDING * verify[0]).all()
    assert (np.diff(total) >= -ROUNDING * total[0]).all()
    lengths = np.array(question_of(**options).draft_lengths)
    assert (yields * total[0] / total <= (1 + lengths) * (1 + ROUNDING)).all()


@few
@given(requests(), st.integers(min_value=1, max_value=4), st.integers(min_value=1, max_value=4))
def test_without_tile_steps_more_work_takes_longer(
    options: dict[str, Any], wider: int, longer: int
) -> None:
    small, _ = smooth({**options, "batches": (8,), "contexts": (512,)})
    large, _ = smooth({**options, "batches": (8 * wider,), "contexts": (512 * longer,)})
    assert (large.verify >= small.verify * (1 - ROUNDING)).all()
    assert (large.draft >= small.draft * (1 - ROUNDING)).all()


@few
@given(requests())
def test_one_grid_is_the_same_as_separate_calls(options: dict[str, Any]) -> None:
    """Broadcasting changes no number (beyond the last bit of a vectorised power)."""
    batches, contexts = (1, 3, 32), (100, 4096)
    grid = recommend(question_of(**{**options, "batches": batches, "contexts": contexts}))
    assert [(p.batch, p.context) for p in grid.points] == [
        (b, c) for b in batches for c in contexts
    ]
    for point in grid.points:
        alone = only({**options, "batches": (point.batch,), "contexts": (point.context,)})
        assert point.draft_lengths == alone.draft_lengths
        assert point.draft_length == alone.draft_length
        assert point.confidence == alone.confidence
        for name in ("step", "verify", "draft", "overhead", "speedup", "low", "high"):
            np.testing.assert_allclose(
                getattr(point, name), getattr(alone, name), rtol=1e-12, err_msg=name
            )
        for part, values in point.parts.items():
            np.testing.assert_allclose(values, alone.parts[part], rtol=1e-12, err_msg=part)


@few
@given(requests(), st.integers(min_value=1, max_value=7))
def test_the_search_limit_changes_no_row(options: dict[str, Any], limit: int) -> None:
    """Draft lengths are judged one by one: looking further changes nothing nearer."""
    whole = only({**options, "acceptance": "0.7"})
    part = only({**options, "acceptance": "0.7", "max_draft_length": limit})
    np.testing.assert_allclose(part.step, whole.step[: limit + 1], rtol=1e-12)
    np.testing.assert_allclose(part.speedup, whole.speedup[: limit + 1], rtol=1e-12)


@many
@given(st.integers(min_value=1, max_value=10**9))
def test_sizes_survive_print_and_parse(count: int) -> None:
    assert parse_size(format_size(count)) == count


@many
@given(
    st.floats(min_value=1e-3, max_value=1e6),
    st.sampled_from([("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15)]),
)
def test_decimal_prefixes(number: float, prefix: tuple[str, float]) -> None:
    name, scale = prefix
    assert parse_quantity(f"{number!r} {name}B/s", "B/s") == pytest.approx(number * scale)
    assert parse_quantity(f"{number!r} {name}FLOP/s", "FLOP/s") == pytest.approx(number * scale)
