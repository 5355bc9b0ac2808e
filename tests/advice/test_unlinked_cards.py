"""Cards in one machine without a link; llama.cpp's flags for them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.base import resources
from roofline.base.names import spec_file
from roofline.kernels.forward import cards_of, layer_counts
from roofline.specs.formats import Component
from roofline.specs.gpu import HOST_SHELF, load_host
from roofline.specs.network import MODEL_SHELF, load_model
from roofline.specs.placement import Split, SplitMode
from tests.consumer_cards import DENSE, JSON, LLAMA, NGRAM, PAIR, SPARSE, host_file
from tests.support import Cli, assert_refused

# Layers, rows, heads -----------------------------------------------------------------------------


def test_layers_are_dealt_out_as_llamacpp_does() -> None:
    """Item i of n + 1 goes to the first card whose share ends beyond i / (n + 1): brute force."""
    for layers in (1, 28, 32, 61, 64, 80):
        for shares in ((1.0, 1.0), (3.0, 1.0), (1.0, 2.0, 1.0), (0.0, 1.0), (1.0,) * 4):
            ends = [sum(shares[: i + 1]) / sum(shares) for i in range(len(shares))]
            dealt = [0] * len(shares)
            for i in range(layers):
                dealt[next(j for j, end in enumerate(ends) if i / (layers + 1) < end)] += 1
            assert layer_counts(layers, Split(cards=len(shares), shares=shares)) == dealt


def test_two_cards_by_layers_hold_their_own(cli: Cli) -> None:
    """Llama-3.1-8B in bf16 on two cards at 8k, by hand.

    32 layers and the output are 33 items: 17 layers against 15 and the head, which are more.
    A layer has 218,112,000 weights in matrices and 8,192 in norms, the final norm counts with the
    layers' (4,096 / 32 each); embedding and head are 128,256 x 4,096. A token caches 131,072 bytes.
    8,192 + 1 slots round up to 8,448 in blocks of 256.
    """
    text = cli("memory", *DENSE[1:4], *LLAMA, *PAIR, "--context", "8k", "--batch", "1", *JSON)
    (found,) = text.data()["contexts"]
    parts = found["accounts"][0]["bytes"]
    assert parts["attention weights"] == 15 * 41_943_040 * 2
    assert parts["mlp weights"] == 15 * 176_160_768 * 2
    assert "embedding weights" not in parts  # the host's: llama.cpp never offloads the input layer
    assert parts["head weights"] == 128_256 * 4_096 * 2
    assert parts["logits"] == 128_256 * (2 + 4)
    cache = sum(parts[name] for name in ("target KV", "D + 1 slots", "block rounding"))
    assert cache == pytest.approx(8_448 * 131_072 * 15 / 32)
    assert sum(parts.values()) == pytest.approx(23.70 * 2**30)  # what a process sees of an RTX 3090


def test_an_input_table_stays_with_the_host_unless_it_is_the_head(cli: Cli) -> None:
    """llama-3.1-8b: 2 B a parameter without 128,256 x 4,096; llama-3.2-1b is tied and has all."""
    own = {"llama-3.1-8b": 8_030_261_248 - 128_256 * 4_096, "llama-3.2-1b": 1_235_814_400}
    for model, count in own.items():
        text = cli("memory", model, *LLAMA, "--gpu", "rtx-4090", "--drafter", "none", *JSON)
        parts = text.data()["contexts"][0]["accounts"][0]["bytes"]
        weights = sum(size for name, size in parts.items() if name.endswith(" weights"))
        assert weights == 2 * count


def test_a_drafter_without_room_says_what_it_needs_and_what_is_free(cli: Cli) -> None:
    """Of 1,235.8 M parameters at 8.5 bits 9 of 16 layers: 739 MB; of 18,688 slots of 32 KiB 344."""
    outcome = cli(
        "recommend", "llama-3.1-70b", "--gpu", "rtx-4090", *LLAMA, "--gpus", "2",
        "--weights", "q4_k_m", "--drafter", "llama-3.2-1b", "--draft-weights", "q8_0",
        "--acceptance", "0.7", "--context", "18k",
    )  # fmt: skip
    text = " ".join(outcome.out.split())
    assert "llama-3.2-1b needs 1.08 GB more on card 1 of 2" in text
    assert "--draft-weights, a shorter --context or another --tensor-split" in text
    assert "Only plain decoding fits" in text
    assert "nothing to decide" not in text
    assert "Odds" not in text


def test_a_draft_model_may_have_up_to_128_tokens_more_or_fewer(cli: Cli, tmp_path: Path) -> None:
    """SPEC_VOCAB_MAX_SIZE_DIFFERENCE: 152,064 - 151,936 = 128 passes, one more does not."""
    base = ("recommend", "qwen2.5-7b", "--acceptance", "0.7")
    taken = cli(*base, *LLAMA, "--drafter", "qwen2.5-0.5b")
    assert taken.code == 0
    assert "151936" in taken.said
    assert_refused(cli(*base, "--drafter", "qwen2.5-0.5b"), "151936", "152064")
    spec = spec_file("qwen2.5-0.5b", MODEL_SHELF, "model")
    text = spec.read_text(encoding="utf-8").replace("151936", "151935")
    smaller = tmp_path / "smaller.yaml"
    smaller.write_text(text, encoding="utf-8")
    assert_refused(cli(*base, *LLAMA, "--drafter", str(smaller)), "151935", "152064")


def test_rows_divide_weights_and_not_the_cache() -> None:
    main, other = cards_of(load_model("llama-3.1-8b"), Split(cards=2, mode=SplitMode.ROW))
    held = {Component.MLP: 8.0, Component.HEAD: 2.0, Component.EMBEDDING: 1.0}
    assert sum(main.weights(held).values()) == 4 + 1 + 1
    assert sum(other.weights(held).values()) == 4 + 1
    assert (main.caches, other.caches) == (1, 0)


def test_a_pass_goes_through_the_cards_in_turn(cli: Cli) -> None:
    """Layers on two cards take one card's time and a hop: 30 us of latency, 16 KB over the slot."""
    one = cli(*DENSE[:-2], "--drafter", "none", *JSON).by_draft_length()[0]
    two = cli(*DENSE[:-2], *PAIR, *JSON).by_draft_length()[0]
    hop = 30e-3 + 1e3 * 4096 * 4 / (31.5e9 * 0.6)
    assert two["step_ms"] - one["step_ms"] == pytest.approx(hop, rel=1e-6)


@pytest.mark.parametrize(
    ("mode", "measured"), [("layer", 23.1), ("tensor", 38.3)], ids=["layer", "tensor"]
)
def test_two_5060_ti(cli: Cli, tmp_path: Path, mode: str, measured: float) -> None:
    """sudoingX/qwen38-mtp sweeps/multi-gpu.md, PR 32: Q4_K_M, PCIe 3.0 x8, no peer to peer.

    6 % is the median error of plain steps of GeForce cards left out (docs/validation.md).
    """
    host = host_file(tmp_path, link="PCIe 5.0 x8->PCIe 3.0 x8", rate="31.5 GB->7.88 GB")
    gpu = resources.data_file("validation").joinpath("gpus", "rtx-5060-ti.yaml")
    rows = cli(
        "recommend", "qwen3.6-27b", "--gpu", str(gpu), *LLAMA, "--gpus", "2", "--split", mode,
        "--host", host, "--weights", "4.7bpw", "--drafter", "none", "--context", "300", *JSON,
    ).by_draft_length()  # fmt: skip
    assert rows[0]["step_ms"] == pytest.approx(1e3 / measured, rel=0.06)


def test_rows_of_matrices_cost_a_way_there_and_back_each(cli: Cli) -> None:
    """Seven products a layer here are four (fused), and the head: 4 x 32 + 1 gathers."""
    ops = cli(*DENSE[:-2], *PAIR, "--split", "row", *JSON, "--explain").ops("verify")
    gathers = [op for name, op in ops.items() if name.endswith("_gather")]
    assert sum(op["count"] for op in gathers) == 4 * 32 + 1


# What is printed and what is refused -------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "end"),
    [
        (("--gpus", "2"), "--split-mode layer"),
        (("--gpus", "2", "--split", "tensor"), "--split-mode tensor"),
        (("--gpus", "2", "--tensor-split", "2,1"), "--split-mode layer --tensor-split 2,1"),
        (("--gpus", "2", "--cpu-experts", "12"), "--split-mode layer --n-cpu-moe 12"),
        (("--cpu-experts", "all"), "--cpu-moe"),
        (("--cpu-experts", "48"), "--cpu-moe"),
    ],
)
def test_flags(cli: Cli, options: tuple[str, ...], end: str) -> None:
    flag = cli(*SPARSE, *NGRAM, *options, *JSON).point()["flag"]
    assert flag.endswith(end)
    assert flag.startswith(("--spec-type ngram-simple", end))  # without drafts nothing else


def test_a_draft_model_is_a_file(cli: Cli) -> None:
    flags = cli(*DENSE[:-2], "--drafter", "llama-3.2-1b", "--acceptance", "0.9", *JSON).point()[
        "flag"
    ]
    assert "--model-draft PATH-TO-llama-3.2-1b.gguf" in flags


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((*DENSE, "--split", "layer"), "says nothing without --gpus"),
        ((*DENSE, "--host", "server-ddr5"), "says nothing without --gpus"),
        ((*DENSE, "--gpus", "3"), "slots for 2 cards"),
        ((*DENSE, "--gpus", "0"), "--gpus 0: expected at least 1"),
        ((*DENSE, "--gpus", "2", "--tp", "2"), "give either --gpus or --tp"),
        ((*DENSE, "--gpus", "2", "--tensor-split", "1,2,3"), "a share for each of 2"),
        *(
            ((*DENSE, "--gpus", "2", "--tensor-split", shares), "a share for each of 2")
            for shares in ("nan,1", "inf,1", "1e308,1e308")
        ),
        ((*DENSE, "--gpus", "2", "--tensor-split", "a"), "expected numbers such as 3,1"),
        ((*DENSE, "--gpus", "2", "--host", "laptop"), "unknown host 'laptop'"),
        ((*DENSE, "--cpu-experts", "all"), "has no experts"),
        ((*SPARSE, *NGRAM, "--cpu-experts", "49"), "1 to 48 layers"),
        ((*SPARSE, *NGRAM, "--cpu-experts", "some"), "expected all"),
        ((*SPARSE, *NGRAM, "--gpus", "2", "--split", "row"), "cannot be split by rows"),
        (
            (*SPARSE[:2], "--gpu", "apple-m4-max", *LLAMA, *NGRAM, "--cpu-experts", "4"),
            "one memory",
        ),
        ((*SPARSE[:2], "--gpu", "apple-m4-max", *LLAMA, *NGRAM, "--gpus", "2"), "nothing to split"),
        ((*DENSE[:4], "--acceptance", "0.7", "--gpus", "2"), "use --engine llamacpp"),
        ((*DENSE, "--tp", "4"), "has slots for 2 cards"),
        (("recommend", "qwen3-8b", "--gpu", "rtx-3090", "--tp", "4"), "--gpus 4 --split tensor"),
    ],
)
def test_refusals(cli: Cli, command: tuple[str, ...], words: str) -> None:
    assert_refused(cli(*command), words)


@pytest.mark.parametrize("name", resources.bundled_names(HOST_SHELF))
def test_every_host_is_sound(name: str) -> None:
    """Bandwidth is channels x 8 bytes x rate, as the kind says; a slot is what its lanes carry."""
    host = load_host(name)
    channels, kind = host.memory.kind.split(" x ")
    rate = float(kind.split("-")[1]) * 1e6
    assert host.id == name
    assert host.memory.bandwidth.value == pytest.approx(int(channels) * 8 * rate)
    _, generation, lanes = host.link.kind.split()
    per_lane = {"4.0": 16e9, "5.0": 32e9}[generation] * 128 / 130 / 8
    carried = int(lanes.removeprefix("x")) * per_lane
    assert host.link.per_direction.value == pytest.approx(carried, rel=0.002)


LLAMACPP = ("recommend", "qwen3-8b", "--gpu", "rtx-4090", "--engine", "llamacpp", "--gpus", "2")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--split", "row", "--tensor-split", "3,1"), "--tensor-split 3,1: only --split layer"),
        (("--tensor-split", "3,1,1"), "expected a share for each of 2 cards"),
    ],
)
def test_shares_of_cards(cli: Cli, flags: tuple[str, ...], words: str) -> None:
    assert_refused(cli(*LLAMACPP, "--acceptance", "0.7", *flags), words)


@pytest.mark.parametrize(("gpu", "cards"), [("rtx-3090", 2), ("h100-sxm", 4)])
def test_tp_is_a_tensor_split_in_llama_cpp(cli: Cli, gpu: str, cards: int) -> None:
    """llama.cpp has no other tensor parallelism than --split-mode tensor: one answer."""
    asked = ("recommend", "qwen3-8b", "--gpu", gpu, *LLAMA, "--drafter", "none")
    by_tp = cli(*asked, "--tp", str(cards))
    by_split = cli(*asked, "--gpus", str(cards), "--split", "tensor")
    assert by_tp.code == by_split.code == 0, by_tp.err
    assert by_tp.out == by_split.out
    assert "--split-mode tensor" in by_tp.out
    through_host = cli(*asked, "--tp", str(cards), "--host", "server-ddr5", *JSON)
    own = cli(*asked, "--tp", str(cards), *JSON)
    steps = [each.by_draft_length()[0]["step_ms"] for each in (own, through_host)]
    assert (steps[0] < 0.8 * steps[1]) is (gpu == "h100-sxm")  # NVLink of the board


def test_tp_beside_another_split_is_refused(cli: Cli) -> None:
    asked = ("recommend", "qwen3-8b", "--gpu", "rtx-3090", *LLAMA, "--tp", "2", "--split", "layer")
    assert_refused(
        cli(*asked), "--tp 2: is --gpus 2 --split tensor with llama.cpp", "--gpus 2 alone"
    )
