"""Loads: Little's law, the running batch and the tail of the gaps against an event simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from roofline.questions.load.backlog import chunk_odds
from roofline.questions.load.policies import Policy, PolicyTable, over_histogram, under_arrivals
from roofline.questions.load.queueing import Chunks, occupancy, prompt_chunks
from tests.serving import Engine, replicated

#: What the model leaves out: that the last step of a request may emit less, a step in the hundred
#: or more that a request takes part in.
MODEL = 0.01
#: And where prompts fill a third to a half of the time: that requests which start one after another
#: take steps to do so, which the model has them do at once.
BUSY = 0.02


def judged(  # the package's side of a comparison
    step: Callable[[int, int], float],
    *,
    survival: tuple[float, ...] = (),
    rps: float,
    output: int,
    slots: int = 200,
    per_prompt: int = 0,
    most: int = 0,
) -> Policy:
    times = np.array([[[step(n, k) for k in range(most + 1)]] for n in range(1, slots + 1)])
    tokens = np.full((slots, 1), 1 + sum(survival))
    columns = PolicyTable(
        draft_lengths=(len(survival),),
        step=times,
        seen=np.ones_like(times),
        mean=times[..., 0],
        clustering=np.ones((slots, 1)),
        tokens_per_step=tokens,
        slots=np.array([slots]),
        past=np.zeros((slots, 1), dtype=bool),
    )
    if per_prompt:
        cut = Chunks(each=1.0, per_prompt=per_prompt, most=most)
        ride = chunk_odds(rps * times, cut, steps=output / tokens)
        mean = (ride.odds * times).sum(axis=-1)
        columns = replace(columns, seen=ride.seen, mean=mean, clustering=ride.clustering)
    (policy,) = under_arrivals(columns, rps=rps, output=output, per_prompt=per_prompt, most=most)
    return policy


def flat(n: int, _k: int) -> float:
    return 0.010 + 0.0001 * n


def one_chunk(n: int, k: int) -> float:
    return 0.010 + 0.0001 * n + 0.03 * k


def many_chunks(n: int, k: int) -> float:
    return 0.010 + 0.0001 * n + 0.004 * k


def drafting(n: int, k: int) -> float:
    return 0.012 + 0.0003 * n + 0.004 * k


def steep(n: int, k: int) -> float:
    return 0.008 + 0.002 * (n // 8) + 0.004 * k


def short_prompts(n: int, k: int) -> float:
    return 0.008 + 0.0001 * n + 0.014 * k


def long_prompts(n: int, k: int) -> float:
    return 0.009 + 0.0005 * n + 0.21 * k


EAGLE = (0.72, 0.64, 0.43)


@pytest.mark.parametrize(
    ("step", "survival", "rps", "chunked", "model"),
    [
        (flat, (), 5.0, (0, 0), MODEL),
        (one_chunk, (), 4.0, (1, 1), MODEL),
        (many_chunks, (), 8.0, (1, 16), MODEL),
        (drafting, (0.8, 0.6, 0.4), 8.0, (1, 16), MODEL),
        (steep, (0.8, 0.6, 0.4), 6.0, (1, 8), MODEL),
        (short_prompts, EAGLE, 22.0, (1, 8), BUSY),
        (long_prompts, EAGLE, 2.0, (1, 1), BUSY),
        (long_prompts, EAGLE, 1.0, (2, 1), BUSY),
        (long_prompts, EAGLE, 0.6, (4, 1), BUSY),
    ],
    ids=[
        "plain",
        "a chunk a step",
        "many chunks",
        "drafts",
        "a staircase",
        "a third prompts",
        "long prompts",
        "two chunks a prompt",
        "four chunks a prompt",
    ],
)
def test_running_batch_and_gaps_are_those_of_a_simulation(
    step: Callable[[int, int], float],
    survival: tuple[float, ...],
    rps: float,
    chunked: tuple[int, int],
    model: float,
) -> None:
    (per_prompt, most), output = chunked, 400
    engine = Engine(
        step=step if most else lambda n, _k: step(n, 0),
        survival=survival,
        slots=200,
        chunks_per_prompt=max(per_prompt, 1),
        chunks_per_step=most or 1000,
    )
    seen = replicated(engine, rps=rps, output=output, requests=1500, runs=8)
    found = judged(
        step, survival=survival, rps=rps, output=output, per_prompt=per_prompt, most=most
    )
    for name in ("running", "tpot", "gap_p50", "gap_p99"):
        mean, error = seen[name]
        # 4 standard errors of the simulation's own mean: one false alarm in 10,000
        assert getattr(found, name) == pytest.approx(mean, abs=4 * error + model * mean), name
    # and these are not so noisy that this says nothing
    assert all(seen[name][1] < 0.02 * seen[name][0] for name in ("tpot", "gap_p99"))


def test_answers_of_one_length_are_the_worst_case() -> None:
    """Where lengths vary, requests that start together end apart: shorter steps, by a little."""
    engine = Engine(
        step=short_prompts, survival=EAGLE, slots=200, chunks_per_prompt=1, chunks_per_step=8,
        lengths_vary=True,
    )  # fmt: skip
    mean, error = replicated(engine, rps=22.0, output=400, requests=6000, runs=8)["tpot"]
    found = judged(short_prompts, survival=EAGLE, rps=22.0, output=400, per_prompt=1, most=8)
    assert mean - 4 * error < found.tpot < 1.04 * mean + 4 * error


def test_a_full_engine_makes_requests_wait() -> None:
    engine = Engine(
        step=lambda n, _k: flat(n, 0), survival=(), slots=24, chunks_per_prompt=1,
        chunks_per_step=1000,
    )  # fmt: skip
    seen = replicated(engine, rps=4.3, output=400, requests=1500, runs=8)
    found = judged(flat, rps=4.3, output=400, slots=24)
    for name in ("running", "tpot", "gap_p99"):
        mean, error = seen[name]
        assert getattr(found, name) == pytest.approx(mean, abs=4 * error + MODEL * mean), name
    # equal lengths wait less often than the model's, which vary without bound: an upper bound
    mean, error = seen["waiting"]
    assert 0 < mean - 4 * error < found.waiting < 2 * mean


def test_little_s_law() -> None:
    # running = rps x output x TPOT, whatever the steps
    found = judged(drafting, survival=(0.8, 0.6), rps=7.0, output=300, per_prompt=1, most=4)
    assert found.running == pytest.approx(7.0 * 300 * found.tpot, rel=1e-9)
    assert found.tokens_per_s == pytest.approx(7.0 * 300, rel=1e-9)


def test_constant_steps_give_a_poisson_batch() -> None:
    # M/G/infinity: lambda x service = 3 requests in service on average, Poisson
    share = occupancy(
        arrivals=2.0, completions=np.arange(1.0, 41.0)[:, None] / 1.5, slots=np.array([40])
    ).share[:, 0]
    expected = [math.exp(-3) * 3**n / math.factorial(n) for n in range(12)]
    np.testing.assert_allclose(share[:12], expected, rtol=1e-9)


def test_requests_that_start_in_bursts() -> None:
    """M^X/M/infinity with bursts of mean 1 / (1 - 0.6): negative binomial of mean 3, p = 0.6."""
    completions = np.arange(1.0, 201.0)[:, None] / 1.5
    share = occupancy(
        arrivals=2.0, completions=completions, slots=np.array([200]), burst=0.6
    ).share[:, 0]  # fmt: skip
    expected = stats.nbinom(3 * 0.4 / 0.6, 0.4).pmf(np.arange(60))
    np.testing.assert_allclose(share[:60], expected, rtol=1e-9)


def test_prompts_of_several_chunks_bring_others_by_hand() -> None:
    """Each of 2 prompts/s adds c (s(1) - s(0)) = 0.2 s: 1 / (1 - 0.4)^2 (Consul & Jain 1973).

    And the mean step is 10 ms / (1 - 0.4).
    """
    for per_prompt, longer in ((1, 0.2), (2, 0.1), (4, 0.05)):
        step = np.array([0.010, 0.010 + longer])
        cut = Chunks(each=1.0, per_prompt=per_prompt, most=1)
        found = chunk_odds(2.0 * step, cut, steps=np.array(1e5))
        assert float(found.clustering) == pytest.approx(1 / 0.36, rel=2e-3)
        assert float(found.odds @ step) == pytest.approx(0.010 / 0.6, rel=1e-6)
        # a request starts right after its own chunks: it sees more of the others' than the steps do
        brief = chunk_odds(2.0 * step, cut, steps=np.array(5.0))
        assert float(brief.seen[1]) > float(brief.odds[1])


def test_the_fixed_point_by_hand() -> None:
    # B = lambda N s(B) with s = 10 ms + 0.1 ms B, lambda N = 2000: B = 20 + 0.2 B = 25, and the
    # spread of B adds 0.2 (var / mean = 1): 25.25
    assert judged(flat, rps=5.0, output=400).running == pytest.approx(25.25, rel=1e-3)


def test_prompts_lengthen_the_mean_step_by_hand() -> None:
    # 4 chunks/s of 30 ms: 12 % of the time; 10 ms become 10 / 0.88
    step = np.array([0.010, 0.040])
    cut = Chunks(each=1.0, per_prompt=1, most=1)
    odds = chunk_odds(4.0 * step, cut, steps=np.array(400.0)).odds
    assert float(odds @ step) == pytest.approx(0.010 / 0.88, rel=1e-9)
    assert prompt_chunks(prompt=10_000, budget=8192).per_prompt == 2
    assert prompt_chunks(prompt=1000, budget=8192, groups=2).most == 16


def test_most_requests_by_hand() -> None:
    # 200 slots, s = 10 + 0.1 x 200 = 30 ms: 200 / 0.03 tokens/s, 400 each
    assert judged(flat, rps=1.0, output=400).most_rps == pytest.approx(200 / 0.030 / 400)
    # with a chunk of 30 ms for each request: 200 / 400 chunks a step, 45 ms
    found = judged(one_chunk, rps=1.0, output=400, per_prompt=1, most=1)
    assert found.most_rps == pytest.approx(200 / 0.045 / 400)
    # answers of 100 tokens: prompts fill every step (2 wanted), at n = 50 = one a step: 45 ms
    found = judged(one_chunk, rps=1.0, output=50, per_prompt=1, most=1)
    assert found.most_rps == pytest.approx(1 / 0.045)
    assert found.slots == 50
    assert not judged(flat, rps=16.7, output=400).usable


def test_a_histogram_by_hand() -> None:
    # half the time 1 at 10 ms, half 3 at 30 ms: 50 + 50 tokens/s, TPOT = 2 / 100 s;
    # gaps per second: 50 of 10 ms, 50 of 30 ms
    step = np.array([0.010, 0.020, 0.030])[:, None, None]
    columns = PolicyTable(
        draft_lengths=(0,), step=step, seen=np.ones_like(step), mean=step[..., 0],
        clustering=np.ones((3, 1)), tokens_per_step=np.ones((3, 1)), slots=np.array([3]),
        past=np.array([[False], [False], [True]]),
    )  # fmt: skip
    (found,) = over_histogram(columns, np.array([0.0, 0.5, 0.0, 0.5]))
    assert found.tokens_per_s == pytest.approx(100.0)
    assert found.tpot == pytest.approx(0.020)
    assert found.past_graphs == pytest.approx(0.5)  # those at 3 sequences: 50 of 100 gaps
    assert (found.gap_p50, found.gap_p99) == (0.010, 0.030)
