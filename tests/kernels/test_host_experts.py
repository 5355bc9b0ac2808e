"""Experts beside the processor, and machines whose memory is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.base import resources
from roofline.kernels.forward import cards_of
from roofline.specs.gpu import load_hardware
from roofline.specs.network import load_model
from roofline.specs.placement import Split
from tests.consumer_cards import JSON, LLAMA, NGRAM, SPARSE, host_file
from tests.support import Cli, assert_refused

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


def test_a_refusal_names_what_would_fit(cli: Cli) -> None:
    """30.5 G weights at 8.5 bits are 32 GB; a process sees 25.4 GB of an RTX 4090."""
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
    """Three quarters of an Apple's memory; what a process sees of a GB10."""
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


def test_layers_without_experts_have_none_to_move(cli: Cli) -> None:
    """The first three layers of DeepSeek-V3 are dense."""
    done = cli(
        "recommend", "deepseek-v3", "--gpu", "rtx-4090", "--engine", "llamacpp", "--cpu-experts",
        "2", "--acceptance", "0.7", "--weights", "q4_k_m",
    )  # fmt: skip
    assert_refused(done, "--cpu-experts 2: the first 3 layers of deepseek-v3 have no experts")
