"""Closed loops, limits of requests and batches that decay, against the event simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from roofline.base.errors import InputError
from roofline.questions.load.closed import rounds_without_thought, shares_of_clients
from roofline.questions.load.decay import alive_in_steps, running_odds, steps_worth_a_look
from roofline.questions.load.goodput import Waits
from roofline.questions.load.latency import Limits, yield_variance
from roofline.questions.load.load import Load, load_of
from roofline.questions.load.policies import Policy, PolicyTable, under_arrivals, under_clients
from roofline.questions.load.pricing import with_prompts
from roofline.questions.load.queueing import Chunks
from tests import serving
from tests.questions.test_load import EAGLE, drafting, long_prompts, short_prompts, steep
from tests.support import Cli, assert_refused

Step = Callable[[int, int], float]
OUTPUT = 400
#: What the model may be off beside four standard errors of the simulation.
MODEL = 0.03


def asked(step: Step, load: Load, cut: Chunks, slots: int) -> Waits:
    """Return the package's side: one policy of D = 3 (or plain decoding) with these steps."""
    count = min(slots, load.concurrency or slots) if load.slo is None else slots
    times = np.array([[[step(n, k) for k in range(cut.most + 1)]] for n in range(1, count + 1)])
    columns = PolicyTable(
        draft_lengths=(3,),
        step=times,
        seen=np.ones_like(times),
        mean=times[..., 0],
        clustering=np.ones((count, 1)),
        tokens_per_step=np.full((count, 1), 1 + sum(EAGLE)),
        slots=np.array([count]),
        past=np.zeros((count, 1), dtype=bool),
    )
    tokens = np.cumsum([1.0, *EAGLE])
    return Waits(
        columns=columns,
        batches=np.unique(np.geomspace(1, count, 40).astype(int)),
        load=load,
        cut=cut,
        variance=yield_variance(tokens, (0, 1, 2, 3))[-1:],
    )


def judged(waits: Waits) -> Policy:
    load, cut = waits.load, waits.cut
    columns = with_prompts(waits.columns, waits.batches, load, cut, rates=load.rps)
    if load.rps is not None:
        (policy,) = under_arrivals(
            columns, rps=load.rps, output=OUTPUT, per_prompt=cut.per_prompt, most=cut.most
        )
    else:
        (policy,) = under_clients(
            columns, clients=load.concurrency or 1, think=load.think_time, output=OUTPUT, cut=cut
        )
    return policy


def of_requests(**asked: Any) -> Load:
    return Load(input_tokens=1024, output_tokens=OUTPUT, **asked)


def simulated(step: Step, load: Load, cut: Chunks, slots: int, **more: Any) -> dict[str, Any]:
    engine = serving.Engine(
        step=step,
        survival=EAGLE,
        slots=slots,
        chunks_per_prompt=cut.per_prompt,
        chunks_per_step=cut.most,
    )
    clients = None
    if load.concurrency:
        clients = serving.Clients(count=load.concurrency, think=load.think_time)
    return serving.replicated(
        engine, rps=load.rps or 0.0, clients=clients, output=OUTPUT, requests=2500, runs=4, **more
    )


ONE, EIGHT = Chunks(each=1.0, per_prompt=1, most=1), Chunks(each=1.0, per_prompt=1, most=8)


@pytest.mark.parametrize(
    ("step", "clients", "think", "cut", "slots"),
    [
        (short_prompts, 64, 0.0, EIGHT, 200),
        (long_prompts, 32, 0.0, ONE, 200),
        (drafting, 40, 0.0, EIGHT, 24),
        (short_prompts, 64, 5.0, EIGHT, 200),
        (long_prompts, 24, 10.0, ONE, 200),
        (steep, 40, 2.0, EIGHT, 24),
    ],
    ids=["at once", "long prompts", "slots", "thinking", "long and thinking", "slots and thinking"],
)
def test_a_closed_loop_is_that_of_a_simulation(
    step: Step, clients: int, think: float, cut: Chunks, slots: int
) -> None:
    load = of_requests(concurrency=clients, think_time=think)
    seen = simulated(step, load, cut, slots)
    waits = asked(step, load, cut, slots)
    found, (times,) = judged(waits), waits.latencies(Limits())
    assert times is not None
    compared = {name: getattr(found, name) for name in ("running", "tpot", "gap_p50")}
    compared |= {"ttft": times.ttft, "tpot_p95": times.tpot_most, "e2e_p95": times.e2e_most}
    for name, value in compared.items():
        mean, error = seen[name]
        assert value == pytest.approx(mean, abs=4 * error + MODEL * mean), name


@pytest.mark.parametrize(
    ("step", "rps", "cut"),
    [(short_prompts, 12.0, EIGHT), (short_prompts, 20.0, EIGHT), (drafting, 8.0, EIGHT),
     (long_prompts, 2.0, ONE)],
)  # fmt: skip
def test_what_requests_wait_for_is_that_of_a_simulation(
    step: Step, rps: float, cut: Chunks
) -> None:
    load = of_requests(rps=rps)
    waits = asked(step, load, cut, 200)
    (alone,) = waits.latencies(Limits())
    assert alone is not None
    # limits in the middle of what requests see, where the share that meets them says something
    limits = {"ttft": alone.ttft_most, "tpot": 0.97 * alone.tpot_most}
    seen = simulated(step, load, cut, 200, limits=serving.Limits(**limits))
    (times,) = waits.latencies(Limits(**limits))
    assert times is not None
    for name, value in (
        ("ttft", times.ttft), ("ttft_p95", times.ttft_most), ("tpot_p95", times.tpot_most),
        ("e2e_p95", times.e2e_most), ("met", times.met),
    ):  # fmt: skip
        mean, error = seen[name]
        assert value == pytest.approx(mean, abs=4 * error + MODEL * mean), name


def test_the_largest_rate_is_that_of_a_search_over_all_rates() -> None:
    limits = Limits(ttft=0.2, tpot=0.007, share=0.9)
    waits = asked(short_prompts, of_requests(slo=limits), EIGHT, 200)
    (held,) = waits.largest(limits)
    rates = np.arange(1.0, 28.0, 0.05)
    holds = [float(waits.at_rates(np.array([rate]), limits)[0]) >= limits.share for rate in rates]
    most = rates[np.flatnonzero(holds).max()]
    assert held == pytest.approx(most, abs=0.06)
    assert all(holds[: holds.index(False)])  # there is one edge


def test_the_most_clients_are_those_of_a_search_over_all() -> None:
    limits = Limits(tpot=0.006, share=0.9)
    load = of_requests(concurrency=4, slo=limits)
    waits = asked(short_prompts, load, EIGHT, 100)
    (held,) = waits.largest(limits)
    met = [waits.at_clients(np.array([n]), limits)[0] >= limits.share for n in range(1, 101)]
    assert held == np.flatnonzero(met).max() + 1


def test_the_largest_rate_holds_in_the_simulation() -> None:
    limits = {"ttft": 0.2, "tpot": 0.007}
    waits = asked(short_prompts, of_requests(slo=Limits(**limits, share=0.9)), EIGHT, 200)
    (held,) = waits.largest(Limits(**limits, share=0.9))
    shares = [
        simulated(
            short_prompts, of_requests(rps=float(part * held)), EIGHT, 200,
            limits=serving.Limits(**limits),
        )["met"][0]
        for part in (0.95, 1.05)
    ]  # fmt: skip
    assert shares[0] > 0.9 > shares[1]


def test_the_machine_repairman_by_hand() -> None:
    """2 clients who think 1 s, one server of 1/s: 1 : 2 : 2, for P(1) = 2 P(0), P(2) = P(1)."""
    found = shares_of_clients(
        sent=np.array([1.0]), completions=np.array([1.0]), slots=1, clients=2, think=1.0
    )
    assert found.share.tolist() == pytest.approx([1 / 5, 4 / 5])
    assert found.waiting == pytest.approx(2 / 5)


def test_clients_without_thought_by_hand() -> None:
    # 10 clients without prompts' cost: n = 10 but for a step of each K + 1: 10 K / (K + 1)
    step = np.full((10, 2), 0.01)
    rounds = rounds_without_thought(
        step=step, tokens_per_step=np.ones(10), inside=10, output=100,
        cut=Chunks(each=1.0, per_prompt=1, most=1),
    )  # fmt: skip
    running = float(rounds.paces @ (rounds.step * rounds.running))
    assert running == pytest.approx(10 * 100 / 101, rel=1e-2)


@pytest.mark.parametrize("lengths", [{400: 1.0}, {200: 0.5, 800: 0.4, 3000: 0.1}])
@pytest.mark.parametrize("requests", [1, 8, 64])
def test_a_batch_that_decays_takes_as_long_as_in_the_simulation(
    requests: int, lengths: dict[int, float]
) -> None:
    def step(n: int, k: int) -> float:
        return 0.008 + 0.0003 * n + 0.014 * k

    engine = serving.Engine(
        step=step, survival=EAGLE, slots=requests, chunks_per_prompt=1, chunks_per_step=8
    )
    rng = np.random.default_rng(7)
    sizes, odds = np.array(list(lengths)), np.array(list(lengths.values()))
    seen = [
        serving.roll_out(engine, lengths=rng.choice(sizes, requests, p=odds), seed=seed)
        for seed in range(200)
    ]
    tokens = 1 + sum(EAGLE)
    steps, stands_for = steps_worth_a_look(int(1.5 * max(lengths) / tokens) + requests)
    chance = alive_in_steps(
        steps, requests=requests, tokens_per_step=tokens, lengths=lengths, cut=EIGHT,
        variance=float(yield_variance(np.cumsum([1.0, *EAGLE]), (0, 1, 2, 3))[-1]),
    )  # fmt: skip
    took = np.array([step(n, 0) for n in range(1, requests + 1)])
    total = float(stands_for @ (running_odds(requests, chance)[:, 1:] @ took))
    total += 0.014 * requests + 0.008 * math.ceil(requests / 8) * (requests == 1)
    mean, error = float(np.mean(seen)), float(np.std(seen, ddof=1) / np.sqrt(len(seen)))
    assert total == pytest.approx(mean, abs=4 * error + MODEL * mean)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "1 to 4096 clients"),
        ({"concurrency": 2, "think_time": "-1"}, "0 to 86400 seconds"),
        ({"think_time": "2"}, "describes a load"),
        ({"rps": "2", "think_time": "2"}, "belongs to"),
        ({"rps": "2", "concurrency": 2}, "expected one of them"),
        ({"rps": "2", "slo_ttft": "1s", "slo_percentile": "0"}, "from 1 to 99.9"),
        ({"rps": "2", "slo_ttft": "1s", "slo_percentile": "100"}, "from 1 to 99.9"),
        ({"rps": "2", "slo_ttft": "-1"}, "above 0"),
        ({"slo_percentile": "95"}, "of which limit"),
        ({"batches_histogram": "8:1", "slo_ttft": "1s"}, "need a load of requests"),
    ],
)
def test_what_no_load_has_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_of(**({"input_tokens": "1k", "output_tokens": "400"} | options))


ASK = "recommend llama-3.1-8b --gpu h100-sxm --input-tokens 1k --output-tokens 400"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--slo-tpot 1", "out of reach: alone on the engine"),
        ("--slo-ttft 5", "out of reach: alone on the engine"),
        ("--rollouts 0", "1 to 1024 requests"),
        ("--output-lengths 8:1", "belongs to --rollouts"),
        ("--rollouts 4 --rps 2", "leave it out beside --rollouts"),
    ],
)
def test_one_clear_line(cli: Cli, more: str, said: str) -> None:
    assert_refused(cli(*f"{ASK} {more}".split()), said)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        ("--rollouts 4", "give --input-tokens and --output-tokens", 2),
        ("--rollouts 4 --input-tokens 0 --output-tokens 4", "--input-tokens 0: expected", 2),
        (
            "--rollouts 4 --input-tokens 1k --output-tokens 4 --output-lengths 8:1",
            "--output-tokens: follows from --output-lengths",
            2,
        ),
        (  # 127k + 8k = 138,240 tokens
            "--rollouts 4 --input-tokens 127k --output-tokens 8k",
            "(138240 tokens): llama-3.1-8b handles at most 131072",
            2,
        ),
        (  # 131,072 bytes of KV a token: 13.4 GB a sequence, and 60 GB beside the weights
            "--rollouts 1000 --input-tokens 100k --output-tokens 100",
            "the largest batch that fits is 4",
            3,
        ),
    ],
)
def test_rollouts_that_cannot_be(cli: Cli, arguments: str, said: str, code: int) -> None:
    asked = f"recommend llama-3.1-8b --gpu h100-sxm {arguments}"
    assert_refused(cli(*asked.split()), said, code=code)


@pytest.mark.parametrize("more", ["--rollouts 4 ", ""])
def test_requests_need_a_model(cli: Cli, more: str) -> None:
    asked = f"recommend {more}--input-tokens 1k --output-tokens 10"
    assert_refused(cli(*asked.split()), "MODEL is missing")


def test_rollouts_without_drafts_have_no_range(cli: Cli) -> None:
    """One draft in a hundred is accepted: drafting cannot pay, and nothing is gained or lost."""
    data = cli(*f"{ASK} --rollouts 4 --acceptance 0.01 --format json".split()).data()
    assert (data["draft_length"], data["gain"], data["gain_range"]) == (0, 1.0, [1.0, 1.0])


def test_limits_give_the_largest_rate_the_replicas_and_their_price(cli: Cli) -> None:
    limits = "--slo-ttft 500 --slo-tpot 12 --acceptance survival:0.72,0.64,0.43"
    alone = cli(*f"{ASK} {limits} --format json".split()).data()["load"]["goodput"]
    low, high = alone["held_range"]
    assert low <= alone["held"] <= high
    wanted = 5 * alone["held"]
    data = cli(*f"{ASK} {limits} --rps {wanted * 1.01} --format json".split()).data()
    goodput = data["load"]["goodput"]
    assert goodput["replicas"] == math.ceil(wanted * 1.01 / goodput["held"])
    assert goodput["replicas"] <= goodput["replicas_at_low_end"]
    assert goodput["replicas_plain"] == math.ceil(wanted * 1.01 / goodput["held_plain"])
    assert data["headline"].startswith("For ")


def test_mixed_contexts_cost_what_their_tokens_do(cli: Cli) -> None:
    """Full attention reads the sum of the contexts; a window of 1024 caps each on its own."""

    def tpot(model: str, more: str) -> float:
        asked = f"recommend {model} --gpu h100-sxm --drafter ngram --acceptance 0.6"
        asked += " --batches-histogram 16:1"
        data = cli(*f"{asked} {more} --format json".split()).data()
        return float(data["policies"][0]["tpot_ms"])

    mixed, mean = (
        tpot("llama-3.1-8b", more) for more in ("--context-mix 1k:0.5,7k:0.5", "--context 4k")
    )
    assert mixed == pytest.approx(mean, rel=0.02)
    ends = [tpot("llama-3.1-8b", f"--context {context}") for context in ("1k", "7k")]
    assert mixed == pytest.approx(sum(ends) / 2, rel=1e-9)
    ends = [tpot("gemma-3-12b", f"--context {context}") for context in ("512", "15872")]
    mixed = tpot("gemma-3-12b", "--context-mix 512:0.5,15872:0.5")
    assert mixed == pytest.approx(sum(ends) / 2, rel=1e-9)
    # half of the sequences fill no window: fewer bytes than 16 that all do
    assert mixed < tpot("gemma-3-12b", "--context 8192")


def test_limits_that_nothing_misses_hold_to_the_end_of_capacity(cli: Cli) -> None:
    asked = "--rps 8 --slo-tpot 1000 --acceptance 0.6 --max-draft-length 3 --format json"
    data = cli(*f"{ASK} {asked}".split()).data()
    capacity = max(policy["most_rps"] for policy in data["policies"])
    assert 0.9 * capacity < data["load"]["goodput"]["held"] <= capacity
