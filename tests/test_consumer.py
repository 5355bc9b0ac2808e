"""Cards in one machine without a link, experts beside the processor, unified memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline import resources
from roofline.cards import cards_of, layer_counts
from roofline.hardware import load_hardware
from roofline.host import SHELF, load_host
from roofline.model import SHELF as MODELS
from roofline.model import load_model
from roofline.quantization import Component
from roofline.workload import Split, SplitMode
from tests.support import Cli, assert_refused

JSON = ("--format", "json")
LLAMA = ("--engine", "llamacpp")
DENSE = ("recommend", "llama-3.1-8b", "--gpu", "rtx-3090", *LLAMA, "--acceptance", "0.7")
SPARSE = ("recommend", "qwen3-30b-a3b", "--gpu", "rtx-4090", *LLAMA, "--weights", "q8_0")
NGRAM = ("--drafter", "ngram", "--acceptance", "0.6")
APPLE = (*SPARSE[:2], "--gpu", "apple-m4-max", *LLAMA, *NGRAM)
PAIR = ("--gpus", "2", "--drafter", "none")


def host_file(folder: Path, **changed: str) -> str:
    """Write the DDR5 desktop with other figures."""
    text = (resources.shelf(SHELF) / "desktop-ddr5.yaml").read_text("utf-8")
    for old, new in (pair.split("->") for pair in changed.values()):
        assert old in text
        text = text.replace(old, new)
    file = folder / "host.yaml"
    file.write_text(text, "utf-8")
    return str(file)


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
    assert sum(parts.values()) == pytest.approx(24e9)


def test_an_input_table_stays_with_the_host_unless_it_is_the_head(cli: Cli) -> None:
    """llama-3.1-8b: 2 B a parameter without 128,256 x 4,096; llama-3.2-1b is tied and has all."""
    own = {"llama-3.1-8b": 8_030_261_248 - 128_256 * 4_096, "llama-3.2-1b": 1_235_814_400}
    for model, count in own.items():
        text = cli("memory", model, *LLAMA, "--gpu", "rtx-4090", "--drafter", "none", *JSON)
        parts = text.data()["contexts"][0]["accounts"][0]["bytes"]
        weights = sum(size for name, size in parts.items() if name.endswith(" weights"))
        assert weights == 2 * count


def test_a_drafter_without_room_says_what_it_needs_and_what_is_free(cli: Cli) -> None:
    """Of 1,235.8 M parameters at 8.5 bits 9 of 16 layers: 739 MB; of 10,496 slots of 32 KiB 193."""
    outcome = cli(
        "recommend", "llama-3.1-70b", "--gpu", "rtx-4090", *LLAMA, "--gpus", "2",
        "--weights", "q4_k_m", "--drafter", "llama-3.2-1b", "--draft-weights", "q8_0",
        "--acceptance", "0.7", "--context", "10k",
    )  # fmt: skip
    text = " ".join(outcome.out.split())
    assert "llama-3.2-1b needs 932 MB more on card 1 of 2" in text
    assert "--draft-weights, a shorter --context or another --tensor-split" in text
    assert "Only plain decoding fits" in text
    assert "nothing to decide" not in text
    assert "Odds" not in text


def test_a_draft_model_may_have_up_to_128_tokens_more_or_fewer(cli: Cli, tmp_path: Path) -> None:
    """SPEC_VOCAB_MAX_SIZE_DIFFERENCE: 152,064 - 151,936 = 128 passes, one more does not."""
    base = ("recommend", "qwen2.5-7b", "--acceptance", "0.7")
    taken = cli(*base, *LLAMA, "--drafter", "qwen2.5-0.5b")
    assert taken.code == 0
    assert "151936" in taken.err
    assert_refused(cli(*base, "--drafter", "qwen2.5-0.5b"), "151936", "152064")
    spec = resources.find("qwen2.5-0.5b", MODELS, "model")
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
    one = cli(*DENSE, "--drafter", "none", *JSON).by_draft_length()[0]
    two = cli(*DENSE, *PAIR, *JSON).by_draft_length()[0]
    hop = 30e-3 + 1e3 * 4096 * 4 / (31.5e9 * 0.6)
    assert two["step_ms"] - one["step_ms"] == pytest.approx(hop, rel=1e-6)


@pytest.mark.parametrize(
    ("mode", "measured"), [("layer", 23.1), ("tensor", 38.3)], ids=["layer", "tensor"]
)
def test_two_5060_ti(cli: Cli, tmp_path: Path, mode: str, measured: float) -> None:
    """sudoingX/qwen38-mtp sweeps/multi-gpu.md, PR 32: Q4_K_M, PCIe 3.0 x8, no peer to peer."""
    host = host_file(tmp_path, link="PCIe 5.0 x8->PCIe 3.0 x8", rate="31.5 GB->7.88 GB")
    gpu = resources.data_file("validation").joinpath("gpus", "rtx-5060-ti.yaml")
    rows = cli(
        "recommend", "qwen3.6-27b", "--gpu", str(gpu), *LLAMA, "--gpus", "2", "--split", mode,
        "--host", host, "--weights", "4.7bpw", "--drafter", "none", "--context", "300", *JSON,
    ).by_draft_length()  # fmt: skip
    assert rows[0]["step_ms"] == pytest.approx(1e3 / measured, rel=0.05)


def test_rows_of_matrices_cost_a_way_there_and_back_each(cli: Cli) -> None:
    """Seven products a layer here are four (fused), and the head: 4 x 32 + 1 gathers."""
    ops = cli(*DENSE, *PAIR, "--split", "row", *JSON, "--explain").ops("verify")
    gathers = [op for name, op in ops.items() if name.endswith("_gather")]
    assert sum(op["count"] for op in gathers) == 4 * 32 + 1


# Experts beside the processor --------------------------------------------------------------------


def test_experts_leave_the_card(cli: Cli) -> None:
    """24 of 48 layers: half of 48 x 128 x 3 x 2,048 x 768 weights at 8.5 bits."""
    experts = 48 * 128 * 3 * 2048 * 768 * 8.5 / 8
    answers = [
        cli("memory", *SPARSE[1:], *NGRAM, "--draft-length", "1", *extra, *JSON).data()
        for extra in (("--cpu-experts", "24"), ("--cpu-experts", "36"))
    ]
    found = [a["contexts"][0]["accounts"][0]["bytes"]["experts weights"] for a in answers]
    assert found == pytest.approx([experts / 2, experts / 4])


def test_the_first_layers_are_the_first_cards(cli: Cli) -> None:
    """30 of 48 layers beside the processor, two cards of 25 and 23: the first keeps none."""
    first, last = cards_of(load_model("qwen3-30b-a3b"), Split(cards=2, cpu_layers=30))
    assert first.experts == 0
    assert last.experts == pytest.approx(18 / 48)
    assert cli(*SPARSE, *NGRAM, "--gpus", "2", "--cpu-experts", "30").code == 0


def test_the_processor_reads_every_awake_expert_once(cli: Cli) -> None:
    """One row wakes 8 experts of 3 x 2,048 x 768 weights; DDR5 gives 0.6 of 89.6 GB/s.

    Its arithmetic (8 rows at the fitted FLOP a weight, at 1.28 T) hides by the square root of the
    sum of squares; 100 us are the layer's way there and back.
    """
    command = (*SPARSE, "--drafter", "none", "--cpu-experts", "all", *JSON, "--explain")
    ops = cli(*command).ops("verify")
    weights = 8 * 3 * 2048 * 768
    stream, math = weights * 8.5 / 8 / (0.6 * 89.6e9), weights * 1.736 / 1.28e12
    each = 1e3 * (100e-6 + (stream**2 + math**2) ** 0.5)
    assert ops["cpu_experts"]["count"] == 48
    assert ops["cpu_experts"]["total_ms"] == pytest.approx(48 * each, rel=0.01)
    assert "experts" not in ops


def test_many_rows_bring_the_weights_to_the_card(cli: Cli) -> None:
    """From 32 rows on the awake experts cross the slot: bytes / 31.5 GB/s and the card's time."""
    command = (*SPARSE, "--drafter", "none", "--cpu-experts", "all", *JSON, "--explain", "--batch")
    below, above = (cli(*command, batch).ops("verify")["cpu_experts"] for batch in ("31", "32"))
    awake = 32 * 8 / above["rows"]
    crossing = 48 * 1e3 * awake * 3 * 2048 * 768 * 8.5 / 8 / 31.5e9
    assert crossing < above["total_ms"] < 1.1 * crossing
    assert below["total_ms"] != pytest.approx(above["total_ms"], rel=0.02)


def test_a_2080_with_36_layers_of_experts_in_ddr4(cli: Cli, tmp_path: Path) -> None:
    """llmfit PR 755: Qwen3-30B-A3B Q4_K_M, i9-10900X with four channels, 36.7 tokens/s.

    The stated constants of the processor were chosen with this run in sight.
    """
    host = host_file(tmp_path, ddr="89.6 GB->102.4 GB", cores="1.28 TFLOP->1.18 TFLOP")
    text = (resources.shelf("hardware_profiles") / "t4.yaml").read_text("utf-8")
    gpu = tmp_path / "rtx-2080.yaml"
    gpu.write_text(text.replace("320 GB/s", "448 GB/s"), "utf-8")
    rows = cli(
        "recommend", "qwen3-30b-a3b", "--gpu", str(gpu), *LLAMA, "--cpu-experts", "36", "--weights",
        "q4_k_m", "--activations", "fp16", "--drafter", "none", "--context", "1k", "--host", host,
        *JSON,
    ).by_draft_length()  # fmt: skip
    assert rows[0]["step_ms"] == pytest.approx(1e3 / 36.7, rel=0.15)


def test_what_would_fit_is_named(cli: Cli) -> None:
    """30.5 G weights at 8.5 bits are 32 GB: some layers' experts must leave a card of 24 GB."""
    outcome = cli(*SPARSE, *NGRAM)
    assert outcome.code == 3
    layers = int(outcome.err.split("--cpu-experts ")[1].split()[0])
    assert "--gpus 2" in outcome.err
    assert cli(*SPARSE, *NGRAM, "--cpu-experts", str(layers)).code == 0
    assert cli(*SPARSE, *NGRAM, "--cpu-experts", str(layers - 1)).code == 3


def test_experts_that_the_host_has_no_room_for(cli: Cli) -> None:
    outcome = cli("recommend", "gpt-oss-120b", "--gpu", "rtx-3090", *LLAMA, "--cpu-experts", "all",
                  "--drafter", "none")  # fmt: skip
    assert outcome.code == 3
    assert outcome.out == ""
    assert "desktop-ddr5 has 56.0 GB usable of 64.0 GB" in outcome.err


# One memory for both -----------------------------------------------------------------------------


def test_unified_machines_keep_a_share() -> None:
    """Three quarters of an Apple's memory; what the driver shows of a GB10."""
    assert load_hardware("apple-m4-max").memory_bytes == 96e9
    assert load_hardware("gb10-dgx-spark").memory_bytes == pytest.approx(119.7 * 2**30)
    assert all(load_hardware(g).unified for g in ("apple-m3-ultra", "ryzen-ai-max-395"))
    assert not load_hardware("rtx-4090").unified


def test_strix_halo(cli: Cli) -> None:
    """sudoingX/qwen38-mtp sweeps/apu-igpu.md, PR 9: 27B UD-Q4_K_XL, 11.5 tokens/s, 2.06x at D = 2.

    AL(2) of 2.56 is the pooled 78.2 % of accepted drafts.
    """
    rows = cli(
        "recommend", "qwen3.6-27b", "--gpu", "ryzen-ai-max-395", *LLAMA, "--weights", "5bpw",
        "--drafter", "mtp", "--acceptance", "al:2=2.564", "--context", "300", *JSON,
    ).by_draft_length()  # fmt: skip
    assert rows[0]["step_ms"] == pytest.approx(1e3 / 11.5, rel=0.15)
    assert rows[2]["speedup"] == pytest.approx(2.06, rel=0.1)


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
    flags = cli(*DENSE, "--drafter", "llama-3.2-1b", "--acceptance", "0.9", *JSON).point()["flag"]
    assert "--model-draft PATH-TO-llama-3.2-1b.gguf" in flags


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((*DENSE, "--split", "layer"), "says nothing without --gpus"),
        ((*DENSE, "--host", "server-ddr5"), "says nothing without --gpus"),
        ((*DENSE, "--gpus", "3"), "slots for 2 cards"),
        ((*DENSE, "--gpus", "0"), "expected at least 1"),
        ((*DENSE, "--gpus", "2", "--tp", "2"), "give either --tp"),
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
        ((*DENSE, "--tp", "4"), "--gpus 4 --split tensor"),
    ],
)
def test_refusals(cli: Cli, command: tuple[str, ...], words: str) -> None:
    assert_refused(cli(*command), words)


@pytest.mark.parametrize("name", resources.bundled_names(SHELF))
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
