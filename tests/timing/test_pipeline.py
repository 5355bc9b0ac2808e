"""Pipeline stages: limits that any such model keeps, arithmetic by hand, and memory by stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.specs.formats import Component
from roofline.specs.overrides import parse_override
from roofline.specs.placement import DrafterSeat
from roofline.specs.priors import Priors, priors
from roofline.timing import lawbook, pipeline
from roofline.timing.step import StepTimes
from tests.support import Cli, assert_refused

LLAMA, HYBRID = "llama-3.1-8b", "qwen3.5-35b-a3b"
FASTEST = "gpu.interconnect.per_direction=1000 PB/s"
DRAFTS = (0, 1, 2, 3)


def deployed(model: str = LLAMA, *sets: str, **options: Any) -> Deployment:
    """Return a deployment of one GPU of 8, or of what the options say."""
    overrides = tuple(map(parse_override, sets))
    return deploy(Configuration(model=model, overrides=overrides, **options))[0]


def times(deployment: Deployment, *, batch: int = 8) -> StepTimes:
    """Return the times of one batch at D = 0 to 3."""
    return deployment.price(deployment.grid((batch,), (4096,), DRAFTS)).times


def steps(deployment: Deployment, *, batch: int = 8) -> NDArray[np.float64]:
    """Return the steps of one batch at D = 0 to 3 [s]."""
    return np.asarray(times(deployment, batch=batch).total[0, 0])


@pytest.fixture
def free_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away every fixed time between stages, and those of launches by hand."""
    stated = priors()
    law = stated.links["direct"].model_copy(update={"floor": 0.0})
    free = stated.model_copy(
        update={
            "links": dict.fromkeys(stated.links, law),
            "pipeline": stated.pipeline.model_copy(update={"plain": 0.0, "drafting": 0.0}),
        }
    )

    def without() -> Priors:
        return free

    monkeypatch.setattr(pipeline, "priors", without)
    monkeypatch.setattr(lawbook, "priors", without)


def of_op(found: StepTimes, name: str) -> NDArray[np.float64]:
    """Return what all launches of one op take at D = 0 to 3 [s]."""
    (time,) = (time for time in found.verify_ops if time.op.name == name)
    return np.asarray(np.broadcast_to(time.total, found.verify.shape)[0, 0])


@pytest.mark.parametrize("model", [LLAMA, HYBRID])
def test_one_stage_is_no_pipeline(model: str) -> None:
    drafter = {"drafter": "mtp"} if model == HYBRID else {}
    assert np.array_equal(
        steps(deployed(model, **drafter)), steps(deployed(model, pp=1, **drafter))
    )


@pytest.mark.usefixtures("free_links")
@pytest.mark.parametrize("stages", [2, 3, 8])
def test_without_waits_and_with_a_boundless_link_stages_add_up(stages: int) -> None:
    """Every layer runs once, whichever stage holds it: the sum is one stage's time."""
    assert steps(deployed(LLAMA, FASTEST, pp=stages)) == pytest.approx(
        steps(deployed(LLAMA, FASTEST)), rel=1e-9
    )


def test_what_stages_add_by_hand() -> None:
    """Four stages over PCIe 2.0 x4, eight sequences, 8B in bf16.

    Waits: 3 x 0.3 ms, with drafts 3 x 2 ms. Hidden states: 2 tensors of 8 (1 + D) rows of 4096
    values of 2 bytes over 60 % of 2 GB/s, and 30 us of which the engine's graphs leave 0.9196.
    """
    found = times(deployed(LLAMA, pp=4, link="pcie2x4"))
    assert of_op(found, "stage_wait") == pytest.approx([0.9e-3, 6e-3, 6e-3, 6e-3])
    rows = 8 * (1 + np.array(DRAFTS))
    body = 2 * rows * 4096 * 2 / (0.6 * 2e9)
    assert of_op(found, "stage_hop") == pytest.approx(3 * (body + 0.9196 * 30e-6), rel=1e-3)
    assert of_op(found, "drafts_back")[0] == 0
    assert np.all(of_op(found, "drafts_back")[1:] > of_op(found, "tokens_back")[1:])


def test_stages_only_add_and_slower_links_add_more() -> None:
    alone = steps(deployed(LLAMA))
    nvlink = steps(deployed(LLAMA, pp=4))
    slots = steps(deployed(LLAMA, pp=4, link="pcie5x16"))
    old_slots = steps(deployed(LLAMA, pp=4, link="pcie2x4"))
    assert np.all(alone < nvlink)
    assert np.all(nvlink < slots)
    assert np.all(slots < old_slots)


def test_the_parts_are_the_step() -> None:
    found = times(deployed(HYBRID, pp=4, drafter="mtp", pp_in_flight=4))
    assert np.sum(list(found.parts.values()), axis=0)[0, 0] == pytest.approx(
        found.total[0, 0], rel=1e-12
    )


def test_micro_batches_trade_latency_for_throughput() -> None:
    """A full pipeline is bounded by its stages: M micro-batches take at least M slowest stages."""
    one, four, sixteen = (deployed(LLAMA, pp=4, pp_in_flight=m) for m in (1, 4, 16))
    assert np.array_equal(steps(one, batch=1), steps(four, batch=1))  # one sequence fills none
    alone = steps(one, batch=64)
    assert np.all(steps(four, batch=256) >= alone)  # a micro-batch of 64 waits for the others
    assert np.all(steps(four, batch=256) < steps(one, batch=256))  # four stages work at once
    assert np.all(steps(sixteen, batch=256) > steps(four, batch=256))  # no stage is idle any more


def test_recurrent_layers_are_launched_by_hand() -> None:
    """vLLM issue 35387: one GPU of capability 8.0, a hybrid of 64 layers, 17.5 ms at D = 0 and
    46.1 ms at D = 1, by its profile for want of CUDA graphs. More layers, so more launches."""
    found = times(deployed(HYBRID, gpu="a100-sxm-80gb", pp=4, drafter="mtp"), batch=1)
    launches = of_op(found, "stage_launch")
    assert launches[0] == 0
    assert np.all(launches[1:] > 0)
    assert found.total[0, 0, 1] / found.total[0, 0, 0] > 2
    dense = times(deployed(LLAMA, gpu="a100-sxm-80gb", pp=4), batch=1)
    assert not any(time.op.name == "stage_launch" for time in dense.verify_ops)


def test_a_slow_pipeline_of_a_hybrid_loses(cli: Cli) -> None:
    """Drafts that are nearly always taken still lose there, as one public run of MTP did."""
    answer = cli(
        *("recommend", HYBRID, "--gpu", "a100-sxm-80gb", "--weights", "fp8", "--drafter", "mtp"),
        *("--pp", "4", "--link", "pcie2x4", "--acceptance", "0.9", "--max-draft-length", "2"),
        *("--context", "2k"),
    ).out
    said = " ".join(answer.split())
    assert said.startswith("Experimental: do not speculate")
    assert "launches and synchronisation between them take" in said


def test_stages_share_out_memory() -> None:
    """Layers as vLLM deals them, the embedding on the first stage, head and drafter on the last."""
    memory, alone = deployed(LLAMA, pp=3).memory, deployed(LLAMA).memory
    assert [round(32 * card.layers) for card in memory.cards] == [11, 11, 10]
    held = [card.weights(memory.held) for card in memory.cards]
    assert [each[Component.EMBEDDING] > 0 for each in held] == [True, False, False]
    assert [each[Component.HEAD] > 0 for each in held] == [False, False, True]
    assert [card.caches for card in memory.draft_cards] == [0, 0, 1]
    assert sum(sum(each.values()) for each in held) == pytest.approx(sum(alone.held.values()))
    assert [card.caches for card in memory.cards] == pytest.approx([11 / 32, 11 / 32, 10 / 32])


def test_a_drafter_on_its_own_gpu_frees_memory_and_takes_longer() -> None:
    beside, own = (deployed(LLAMA, drafter_on=seat) for seat in (None, DrafterSeat.OWN))
    assert own.cards == beside.cards + 1
    assert own.memory.largest_batch(context=4096, draft_length=3) > beside.memory.largest_batch(
        context=4096, draft_length=3
    )
    one, other = steps(beside), steps(own)
    assert one[0] == other[0]
    assert np.all(other[1:] > one[1:])


def test_copies_on_every_stage_need_fewer_messages_and_more_memory() -> None:
    last, everywhere = (
        deployed(LLAMA, pp=4, drafter="llama-3.2-1b", drafter_on=seat)
        for seat in (DrafterSeat.LAST, DrafterSeat.ALL)
    )
    assert np.all(steps(everywhere)[1:] < steps(last)[1:])
    assert [card.layers for card in everywhere.memory.draft_cards] == [1, 1, 1, 1]
    assert [card.layers for card in last.memory.draft_cards] == [0, 0, 0, 1]


def test_tensor_parallelism_over_slots_and_nodes() -> None:
    """The same collectives over a slower link take longer; the rest stays."""
    linked = times(deployed(LLAMA, tp=8))
    slots = times(deployed(LLAMA, tp=8, link="pcie4x16"))
    nodes = times(deployed(LLAMA, tp=16, nodes=2, internode=50e9))
    slower = times(deployed(LLAMA, tp=16, nodes=2, internode=5e9))
    for fast, slow in ((linked, slots), (nodes, slower)):
        assert np.all(fast.parts["communication"] < slow.parts["communication"])
        assert fast.parts["linear"] == pytest.approx(slow.parts["linear"])


def test_hops_between_nodes_are_few() -> None:
    """Four stages on two nodes: one hop of three crosses the network."""
    found = times(deployed(LLAMA, pp=4, nodes=2))
    counts = {time.op.name: time.op.count for time in found.verify_ops}
    assert (counts["stage_hop"], counts["node_hop"]) == (2, 1)


def test_ranges_are_wider_than_on_one_stage(cli: Cli) -> None:
    ask = ("recommend", LLAMA, "--batch", "8", "--acceptance", "0.7", "--format", "json")
    one, four = (
        cli(*ask, *more).by_draft_length()[3] for more in ((), ("--pp", "4", "--link", "pcie2x4"))
    )

    def width(row: Any) -> float:
        return float(row["speedup_high"] / row["speedup_low"])

    assert width(four) > 1.05 * width(one)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--pp 33", "has 32 layers; give --pp 32 or less"),
        ("--pp 4 --tp 4", "are 16 GPUs, and h100-sxm links 8; give --nodes 2"),
        ("--pp 0", "expected at least 1"),
        ("--pp-in-flight 2", "says nothing on one stage; give --pp 2"),
        ("--pp 2 --pp-in-flight 9", "expected at most 4 for each of 2 stages"),
        ("--link pcie9x3", "expected a PCIe generation and its lanes: pcie4x16"),
        ("--internode 50", "says nothing on one node; give --nodes 2"),
        ("--nodes 2 --internode fast --pp 2", "expected an amount such as 50GB/s"),
        ("--pp 2 --drafter-on all", "needs the hidden states of the last stage"),
        ("--drafter-on all --drafter llama-3.2-1b", "there is one stage; give --pp 2"),
        ("--drafter-on own --drafter ngram", "has no weights to place; leave it out"),
        ("--drafter-on own --tp 2 --draft-tp 2", "leave --draft-tp out"),
        ("--engine llamacpp --pp 2", "joins cards by --gpus, --split and --host"),
    ],
)
def test_odd_layouts_are_refused(cli: Cli, options: str, said: str) -> None:
    assert_refused(cli("recommend", LLAMA, "--acceptance", "0.7", *options.split()), said)
