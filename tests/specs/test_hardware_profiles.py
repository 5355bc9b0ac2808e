"""The bundled accelerators: figures as in facts/gpus.csv, each with source and confidence."""

from __future__ import annotations

from typing import Any

import pytest

from roofline.base.resources import bundled_names
from roofline.specs.gpu import load_hardware
from tests.support import Cli

#: gpus.csv (54 accelerators; columns named alike): GB, GiB seen (four of them as public messages of
#: memory that ran out, or rocminfo, print it), GB/s, SMs or CUs, boost MHz,
#: L2 MiB, GB/s per direction, TDP W, dense TFLOP/s.
GPUS: dict[str, dict[str, Any]] = {
    "a100-sxm-80gb": {
        "mem": 80, "seen": 79.25, "bw": 2039, "units": 108, "mhz": 1410, "l2": 40, "link": 300,
        "tdp": 400, "peaks": {"bf16": 312, "fp16": 312, "int8": 624},
    },
    "h100-sxm": {
        "mem": 80, "seen": 79.11, "bw": 3350, "units": 132, "mhz": 1830, "l2": 50, "link": 450,
        "tdp": 700, "peaks": {"bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "int8": 1978.9},
    },
    "h200-sxm": {
        "mem": 141, "seen": 139.8, "bw": 4800, "units": 132, "mhz": 1830, "l2": 60, "link": 450,
        "tdp": 700, "peaks": {"bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "int8": 1978.9},
    },
    "b200-hgx": {
        "mem": 180, "seen": 178.4, "bw": 8000, "units": 148, "mhz": 1965, "l2": 126, "link": 900,
        "tdp": 1000, "peaks": {"bf16": 2250, "fp8": 4500, "int8": 4500, "fp6": 4500, "fp4": 9000},
    },
    "mi300x": {
        "mem": 192, "seen": 191.98, "bw": 5325, "units": 304, "mhz": 2100, "l2": 32, "link": 448,
        "tdp": 750, "peaks": {"bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9, "int8": 2614.9},
    },
    "rtx-4090": {
        "mem": 24, "seen": 23.64, "bw": 1008, "units": 128, "mhz": 2520, "l2": 72, "link": None,
        "tdp": 450, "peaks": {"bf16": 165.2, "fp16": 165.2, "fp8": 330.3, "int8": 660.6},
    },
}  # fmt: skip


@pytest.mark.parametrize("gpu", GPUS)
def test_figures(cli: Cli, gpu: str) -> None:
    """As rows of gpus.csv have them, in SI: GB and GB/s are 1e9, MiB and GiB are binary."""
    row = GPUS[gpu]
    shown = cli("hardware", "show", gpu, "--format", "json").data()
    figures = {where: figure["value"] for where, figure in shown["figures"].items()}
    assert figures["memory.capacity"] == row["mem"] * 1e9
    assert figures["memory.bandwidth"] == pytest.approx(row["bw"] * 1e9)
    assert figures["compute.units"] == row["units"]
    assert figures["compute.clock"] == row["mhz"] * 1e6
    assert figures["compute.l2"] == row["l2"] * 2**20
    assert figures["tdp"] == row["tdp"]
    if row["link"]:
        assert figures["interconnect.per_direction"] == row["link"] * 1e9
        assert shown["domain_size"] == 8
    for rate, peak in row["peaks"].items():
        assert figures[f"compute.peaks.{rate}"] == pytest.approx(peak * 1e12)


@pytest.mark.parametrize("gpu", GPUS)
def test_bytes_a_process_can_use(gpu: str) -> None:
    """What a process sees where somebody printed it, else the capacity: GiB are 2^30 bytes."""
    row = GPUS[gpu]
    expected = row["seen"] * 2**30 if row["seen"] else row["mem"] * 1e9
    assert load_hardware(gpu).memory_bytes == pytest.approx(expected)


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm", "h200-sxm"])
def test_rates_the_hardware_lacks_are_absent(gpu: str) -> None:
    """No fp4 before Blackwell, no fp8 on Ampere; a missing peak is refused, never invented."""
    rates = load_hardware(gpu).rates
    assert "fp4" not in rates
    assert ("fp8" in rates) is (gpu != "a100-sxm-80gb")


@pytest.mark.parametrize("gpu", bundled_names("hardware_profiles"))
def test_every_profile_is_sound(cli: Cli, gpu: str) -> None:
    """One walk over all shipped files: named after its id, sourced, peaks in a sensible order."""
    profile = load_hardware(gpu)
    assert profile.id == gpu
    for where, figure in profile.figures().items():
        assert figure.source in profile.sources, where
        assert figure.confidence or profile.sources[figure.source].confidence, where
    peaks = {rate: figure.value for rate, figure in profile.compute.peaks.items()}
    for slow, fast in (("fp32", "bf16"), ("bf16", "fp8"), ("fp8", "fp4")):
        if slow in peaks and fast in peaks:
            assert peaks[slow] <= peaks[fast], (slow, fast)
    assert cli("hardware", "check", gpu, "--format", "json").data()["ok"] is True


@pytest.mark.parametrize("model", bundled_names("model_specs"))
def test_every_spec_is_sound(cli: Cli, model: str) -> None:
    shown = cli("models", "check", model, "--format", "json").data()
    assert shown["ok"] is True
    assert shown["id"] == model


def test_lists_hold_the_first_gpus_and_models(cli: Cli) -> None:
    gpus = {row["id"] for row in cli("hardware", "list", "--format", "json").data()}
    models = {row["id"] for row in cli("models", "list", "--format", "json").data()}
    assert set(GPUS) <= gpus
    assert {
        "llama-3.1-8b", "llama-3.1-70b", "llama-3.2-1b", "qwen3-0.6b", "qwen3-8b", "qwen3-32b",
        "llama-3.1-8b-eagle3", "llama-3.1-70b-eagle3", "qwen3-8b-eagle3", "qwen3-32b-eagle3",
    } <= models  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        "hardware list",
        "hardware show h100-sxm",
        "models list --match qwen3",
        "models show qwen3-8b",
    ],
)
def test_text_and_json_of_the_lists(cli: Cli, arguments: str) -> None:
    text = cli(*arguments.split())
    assert text.code == 0
    assert text.err == ""
    assert max(map(len, text.out.splitlines())) <= 80
    assert ("h100-sxm" if "hardware" in arguments else "qwen3-8b") in text.out
    cli(*arguments.split(), "--format", "json").data()
