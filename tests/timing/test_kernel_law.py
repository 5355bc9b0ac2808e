"""The kernel law by hand, and whole steps against published measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from roofline.specs.laws import SimpleLaw
from roofline.timing.laws.simple import simple_time
from tests.support import GPU, Cli, write


def law(
    *,
    floor: float = 0.0,
    serial: float = 0.0,
    mem_eff: float = 1.0,
    compute_eff: float = 1.0,
    overlap: float = 1.0,
) -> SimpleLaw:
    return SimpleLaw(
        floor=floor, serial=serial, mem_eff=mem_eff, compute_eff=compute_eff, overlap=overlap
    )


def seconds(constants: SimpleLaw, *, flops: float, moved: float, reduction: int = 0) -> float:
    """Return the time on 1 FLOP/s and 1 B/s, where work is its own time."""
    time = simple_time(
        flops=flops, bytes=moved, reduction=reduction, peak=1.0, bandwidth=1.0, law=constants
    )
    return float(np.asarray(time.total))


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (1.0, 7.0),  # no overlap: 3 + 4
        (2.0, 5.0),  # the 3-4-5 triangle
        (1e6, 4.0),  # the textbook roofline: the longer one
    ],
)
def test_overlap(overlap: float, expected: float) -> None:
    """design.md section 3: (t_mem^p + t_comp^p)^(1/p)."""
    assert seconds(law(overlap=overlap), flops=4, moved=3) == pytest.approx(expected, rel=1e-5)
    assert seconds(law(overlap=overlap), flops=3, moved=4) == pytest.approx(expected, rel=1e-5)


def test_equal_times_at_the_steepest_overlap() -> None:
    """Two equal terms of 1 s at p = 8: 2^(1/8) = 1.0905077."""
    assert seconds(law(overlap=8.0), flops=1, moved=1) == pytest.approx(1.0905077, rel=1e-6)


def test_each_constant_on_its_own() -> None:
    """floor 2 + serial 0.5 x 128/64 + 3 / 0.5 + 4 / 0.8 = 2 + 1 + 6 + 5."""
    constants = law(floor=2.0, serial=0.5, mem_eff=0.5, compute_eff=0.8)
    assert seconds(constants, flops=4, moved=3, reduction=128) == pytest.approx(14)


def test_work_of_one_kind_only() -> None:
    """An op of zero FLOPs costs its bytes and its floor; one of nothing costs its floor."""
    constants = law(floor=2.0, overlap=4.0)
    assert seconds(constants, flops=0, moved=3) == pytest.approx(5)
    assert seconds(constants, flops=3, moved=0) == pytest.approx(5)
    assert seconds(constants, flops=0, moved=0) == pytest.approx(2)


def test_rates_divide_the_work() -> None:
    """989.4e9 FLOP on 989.4 TFLOP/s and 3.35e9 B on 3.35 TB/s are a millisecond each."""
    time = simple_time(
        flops=989.4e9, bytes=3.35e9, reduction=0, peak=989.4e12, bandwidth=3.35e12, law=law()
    )
    assert float(np.asarray(time.memory)) == pytest.approx(1e-3)
    assert float(np.asarray(time.compute)) == pytest.approx(1e-3)
    assert float(np.asarray(time.total)) == pytest.approx(2e-3)
    assert float(np.asarray(time.floor)) == 0


@pytest.mark.parametrize(
    ("arguments", "measured_ms"),
    [
        # vllm-project/vllm issue 20780 (2025-07), MT-Bench, batch 1, no speculation
        ("llama-3.1-8b --gpu h100-sxm --batch 1 --context 1k", 7.07),
        # gpustack docs/performance-lab/qwen3-8b/h100-latency.md (2025-10), mean TPOT, ShareGPT
        ("qwen3-8b --gpu h100-sxm --batch 1 --context 512", 7.28),
        ("qwen3-8b --gpu h100-sxm --batch 8 --context 512", 7.71),
        ("qwen3-8b --gpu h100-sxm --batch 4 --context 512 --weights fp8", 5.65),
        # meta-pytorch/gpt-fast README (A100-80GB): 93.89 and, over four, 37.45 tokens/s
        ("llama-3.1-8b --gpu a100-sxm-80gb --batch 1 --context 128", 10.65),
        ("llama-3.1-70b --gpu a100-sxm-80gb --tp 4 --batch 1 --context 128", 26.70),
    ],
)
def test_plain_decoding_against_published_times(
    cli: Cli, arguments: str, measured_ms: float
) -> None:
    """Nothing was fitted to these rows: an uncalibrated profile must come within 30 %."""
    answer = cli("recommend", *arguments.split(), "--drafter", "none", "--format", "json")
    assert answer.by_draft_length()[0]["tpot_ms"] == pytest.approx(measured_ms, rel=0.3)


@pytest.mark.parametrize(
    ("batch", "measured_us"),
    [  # k-aicgemm-001, -008, -013: 4096 x 4096 bf16, H100 SXM, TensorRT-LLM 1.3.0rc20
        (1, 16.56),
        (8, 16.41),
        (32, 15.24),
    ],
)
def test_one_gemm_against_a_published_kernel_table(
    cli: Cli, batch: int, measured_us: float
) -> None:
    kernels = cli(
        "recommend", "llama-3.1-8b", "--batch", str(batch), "--context", "1k", "--drafter", "none",
        "--explain", "--format", "json",
    ).ops("verify")  # fmt: skip
    assert kernels["o_proj"]["time_us"] == pytest.approx(measured_us, rel=0.3)


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-hgx", "mi300x"])
def test_no_step_beats_its_datasheet(cli: Cli, gpu: str) -> None:
    """15.01 GB of weights and 8 x 4096 x 131,072 B of KV must be read; twice the time is plenty.

    Bandwidths in GB/s as in gpus.csv.
    """
    bandwidth = {
        "a100-sxm-80gb": 2039, "h100-sxm": 3350, "h200-sxm": 4800, "b200-hgx": 8000, "mi300x": 5325,
    }[gpu]  # fmt: skip
    least_ms = (15.0093 + 8 * 4096 * 131_072e-9) / bandwidth * 1e3
    answer = cli(
        "recommend", "llama-3.1-8b", "--gpu", gpu, "--batch", "8", "--drafter", "none",
        "--format", "json",
    )  # fmt: skip
    assert least_ms < answer.by_draft_length()[0]["verify_ms"] < 2 * least_ms


def test_the_compute_bound_limit(cli: Cli, tmp_path: Path) -> None:
    """8192 rows x 15.0093 GFLOP on 100 TFLOP/s take 1.2296 s at the very least; twice is plenty."""
    gpu = write(tmp_path, "gpu.yaml", GPU.replace("64 GB", "640 GB"))
    row = cli(
        "recommend", "llama-3.1-8b", "--gpu", gpu, "--batch", "8k", "--context", "16",
        "--drafter", "none", "--format", "json",
    ).by_draft_length()[0]  # fmt: skip
    assert 1229.6 < row["breakdown_ms"]["linear"] + row["breakdown_ms"]["lm_head"] < 2 * 1229.6


def test_bounds_are_named(cli: Cli) -> None:
    """Row counts far below and far above the knee of 295, and a kernel of almost no work."""

    def bound(batch: str, context: str, op: str) -> str:
        kernels = cli(
            "recommend", "llama-3.1-8b", "--batch", batch, "--context", context,
            "--drafter", "none", "--explain", "--format", "json",
        ).ops("verify")  # fmt: skip
        return str(kernels[op]["bound"])

    assert bound("1", "1k", "lm_head") == "memory"
    assert bound("2k", "16", "lm_head") == "compute"
    assert bound("1", "16", "final_norm") == "latency"


def test_every_kernel_says_where_its_constants_come_from(cli: Cli, tmp_path: Path) -> None:
    """Nobody has measured an invented accelerator: every constant is a prior, called assumed."""
    gpu = write(tmp_path, "gpu.yaml", GPU)
    answer = cli("recommend", "llama-3.1-8b", "--gpu", gpu, "--explain", "--format", "json")
    assert {row["source"] for row in answer.ops("verify").values()} == {"assumed"}
    laws = [p for p in answer.data()["provenance"] if p["what"].startswith(("gemm", "attention"))]
    assert laws
    assert {p["kind"] for p in laws} == {"assumed"}
