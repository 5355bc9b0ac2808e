"""What the draws of the step times share between draft lengths, and what they do not."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.advice.question import question_of
from roofline.kernels.ops import Kind
from roofline.specs.priors import priors
from roofline.timing.uncertainty import drawn_steps, row_walk


@pytest.mark.parametrize("kind", [Kind.GEMM, Kind.ATTENTION, Kind.MOE, Kind.MLA, Kind.STATE])
def test_the_walk_is_a_brownian_motion_in_log_rows(kind: Kind) -> None:
    """E[W(p) W(q)] = log(min(p, q)) / log 4: the covariance of a Brownian motion at those times."""
    rows = (1, 2, 3, 5, 6, 9, 17, 33)
    walk = row_walk(kind, rows)
    lesser = np.minimum.outer(rows, rows)
    assert walk @ walk.T / walk.shape[1] == pytest.approx(np.log(lesser) / np.log(4), abs=1e-9)
    assert np.abs(walk.mean(axis=1)).max() < 0.25


def test_a_step_of_the_walk_does_not_depend_on_the_rows_asked_for() -> None:
    alone, among = row_walk(Kind.GEMM, (4, 6)), row_walk(Kind.GEMM, tuple(range(1, 12)))
    assert (alone == among[[3, 5]]).all()


def test_kinds_of_kernels_walk_apart() -> None:
    walks = [row_walk(kind, (6,))[0] for kind in (Kind.GEMM, Kind.ATTENTION, Kind.MOE)]
    shared = np.corrcoef(walks) - np.eye(3)
    assert np.abs(shared).max() < 0.5


@pytest.mark.parametrize(("shorter", "longer"), [(1, 2), (4, 5), (4, 8)])
def test_neighbouring_lengths_share_most_of_an_error_and_not_all(shorter: int, longer: int) -> None:
    """One kernel alone: log t(p) / t(q) is spread by r sqrt(log(p / q) / log 4), 1.8 % for 6 and 5.

    All other spreads are 0. The kernel reads every row's logits, so that no step with drafts is as
    short as a plain one.
    """
    question = question_of(
        model="llama-3.1-8b", batches=(64,), contexts=(64,), drafter="ngram", acceptance="0.7"
    )
    priced = question.price()
    (kernel,) = [time for time in priced.times.verify_ops if time.op.name == "sampling"]
    alone = priced.times._replace(
        overhead=np.zeros_like(priced.times.overhead),
        verify_ops=[kernel],
        first_pass_ops=[],
        further_pass_ops=[],
    )
    spread = priors().spread.model_copy(
        update=dict.fromkeys(("prior", "served", "growth", "draft", "each"), 0.0) | {"rows": 0.05}
    )
    expected = np.broadcast_to(kernel.total, priced.grid.shape)[0, 0]
    error = np.log(drawn_steps(alone, priced.grid, spread)[:, 0, 0] / expected)
    apart = error[:, longer] - error[:, shorter]
    spread_of_ratio = 0.05 * np.sqrt(np.log((1 + longer) / (1 + shorter)) / np.log(4))
    assert np.sqrt(np.mean(apart**2)) == pytest.approx(spread_of_ratio, rel=1e-6)


def test_a_verify_pass_of_any_width_has_its_draws() -> None:
    """1,024 rows, the most that may be asked for: every step is there, and none is lost."""
    walk = row_walk(tuple(Kind)[-1], (64, 1024))
    assert np.isfinite(walk).all()
    # Var W(q) = log q / log 4: 3 at 64 rows, 5 at 1,024
    assert walk[0].std() == pytest.approx(3**0.5, rel=0.15)
    assert walk[1].std() == pytest.approx(5**0.5, rel=0.15)


def test_what_served_builds_do_is_drawn_as_stated() -> None:
    """With one spread at a time, log R(D) has its standard deviation times the share it moves.

    s(7) = log2(8) / 3 = 1. Without drafter and overhead the verify pass is the whole step.
    """
    question = question_of(
        model="llama-3.1-8b", batches=(64,), contexts=(4096,), drafter="ngram", acceptance="0.7"
    )
    priced = question.price()
    times = priced.times._replace(overhead=np.zeros_like(priced.times.overhead))
    nothing = dict.fromkeys(("calibrated", "prior", "rows", "overhead"), 0.0)
    for name, at_one, at_seven in (
        ("served", 0.1, 0.1),
        ("growth", 0.1 / 3, 0.1),
        ("each", 0.1, 0.1),
    ):
        others = dict.fromkeys({"served", "growth", "draft", "each"} - {name}, 0.0)
        spread = priors().spread.model_copy(update=nothing | others | {name: 0.1})
        bare = priors().spread.model_copy(update=nothing | others | {name: 0.0})
        moved, laws = (np.log(drawn_steps(times, priced.grid, s)[:, 0, 0]) for s in (spread, bare))
        error = moved - laws
        rises = np.log(times.verify[0, 0] / times.verify[0, 0, 0])
        for length, expected in ((1, at_one), (7, at_seven)):
            if rises[length] < 0.3:  # no step is drawn below plain decoding
                continue
            assert error[:, length].std() == pytest.approx(expected, rel=0.15), (name, length)
