"""The kernel law by hand, and whole steps against published measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.kernels.ops import AttentionShape
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware, load_overlay
from roofline.specs.laws import AttentionBlock, AttentionLaw, SimpleLaw
from roofline.timing.laws.attention import attention_time
from roofline.timing.laws.simple import Device, simple_time
from roofline.timing.machine import OpTime
from roofline.validation.kernel_families import FAMILIES
from tests.physics import plain_step, priced, scalar
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
    ("model", "gpu", "batch", "context", "options", "measured_ms"),
    [
        # vllm-project/vllm issue 20780 (2025-07), MT-Bench, batch 1, no speculation
        ("llama-3.1-8b", "h100-sxm", 1, 1024, {}, 7.07),
        # gpustack docs/performance-lab/qwen3-8b/h100-latency.md (2025-10), mean TPOT, ShareGPT
        ("qwen3-8b", "h100-sxm", 1, 512, {}, 7.28),
        ("qwen3-8b", "h100-sxm", 8, 512, {}, 7.71),
        ("qwen3-8b", "h100-sxm", 4, 512, {"weights": DType.FP8}, 5.65),
        # meta-pytorch/gpt-fast README (A100-80GB): 93.89 and, over four, 37.45 tokens/s
        ("llama-3.1-8b", "a100-sxm-80gb", 1, 128, {}, 10.65),
        ("llama-3.1-70b", "a100-sxm-80gb", 1, 128, {"tp": 4}, 26.70),
    ],
)
def test_plain_decoding_against_published_times(  # noqa: PLR0917 - columns of the table
    model: str, gpu: str, batch: int, context: int, options: dict[str, Any], measured_ms: float
) -> None:
    """Nothing was fitted to these rows: an uncalibrated profile must come within 30 %."""
    step = plain_step(model, gpu=gpu, batch=batch, context=context, **options)
    assert 1e3 * step == pytest.approx(measured_ms, rel=0.3)


def verify_kernel(name: str, *, batch: int, context: int) -> OpTime:
    """Return one kernel of a plain step of Llama 3.1 8B on an H100."""
    times = priced("llama-3.1-8b", batches=[batch], contexts=[context], drafter="none").times
    return next(kernel for kernel in times.verify_ops if kernel.op.name == name)


@pytest.mark.parametrize(
    ("batch", "measured_us"),
    [  # k-aicgemm-001, -008, -013: 4096 x 4096 bf16, H100 SXM, TensorRT-LLM 1.3.0rc20
        (1, 16.56),
        (8, 16.41),
        (32, 15.24),
    ],
)
def test_one_gemm_against_a_published_kernel_table(batch: int, measured_us: float) -> None:
    kernel = verify_kernel("o_proj", batch=batch, context=1024)
    assert 1e6 * scalar(kernel.each) == pytest.approx(measured_us, rel=0.3)


@pytest.mark.parametrize(
    ("gpu", "bandwidth"),  # GB/s as in gpus.csv
    [
        ("a100-sxm-80gb", 2039),
        ("h100-sxm", 3350),
        ("h200-sxm", 4800),
        ("b200-hgx", 8000),
        ("mi300x", 5325),
    ],
)
def test_no_step_beats_its_datasheet(gpu: str, bandwidth: float) -> None:
    """15.01 GB of weights and 8 x 4096 x 131,072 B of KV must be read; twice the time is plenty."""
    least = (15.0093 + 8 * 4096 * 131_072e-9) / bandwidth
    times = priced("llama-3.1-8b", gpu=gpu, batches=[8], drafter="none").times
    assert least < scalar(times.verify) < 2 * least


def test_the_compute_bound_limit(tmp_path: Path) -> None:
    """8192 rows x 15.0093 GFLOP on 100 TFLOP/s take 1.2296 s at the very least; twice is plenty."""
    gpu = write(tmp_path, "gpu.yaml", GPU.replace("64 GB", "640 GB"))
    found = priced("llama-3.1-8b", gpu=gpu, batches=[8192], contexts=[16], drafter="none")
    products = scalar(found.times.parts["linear"]) + scalar(found.times.parts["lm_head"])
    assert 1.2296 < products < 2 * 1.2296


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


DEVICE = Device(bandwidth=3e12, peak=1e15, units=132, l2=50e6, link=450e9)
LAW = AttentionLaw(floor=5e-6, row_costs=(1.0, 0.5, 2.0, 0.5))


def attention_seconds(*, rows: np.ndarray, group: int) -> np.ndarray:
    """Return the times of more queries over one cache: the same bytes, more arithmetic."""
    shape = AttentionShape(
        pairs=256.0, rows=rows, length=8192.0, context=8192.0, kv_width=256, mac_width=256, kv=2.0,
        group=group,
    )  # fmt: skip
    return np.asarray(attention_time(shape, DEVICE, LAW).total)


def test_a_block_that_cuts_no_cache_takes_its_keys_in_turn() -> None:
    """By hand: 8 blocks on 132 SMs are one wave, 4 us and 7 of 8 tiles of 128 keys at 20 ns each.

    Their arithmetic, 64 rows x 1,024 keys x 512 FLOP at 60 % of 1/132 of 1 PFLOP/s, takes 7.4 us.
    """
    law = AttentionLaw(floor=0.0, cta_s=4e-6, token_s=2e-8, p=8.0)
    shape = AttentionShape(
        pairs=1.0, rows=16.0, length=1024.0, context=1024.0, kv_width=256, mac_width=256, kv=2.0,
        work=512.0, blocks=8.0,
    )  # fmt: skip
    time = attention_time(shape, DEVICE, law)
    assert time.total == pytest.approx(4e-6 + 7 * 128 * 2e-8, rel=1e-3)
    assert time.compute == pytest.approx(64 * 1024 * 512 * 132 / 0.6e15)
    packed = attention_time(shape._replace(work=0, blocks=0), DEVICE, law)
    assert packed.total < 0.6 * time.total  # cut into 8 of at least 128 tokens


@pytest.mark.parametrize(
    ("gpu", "batch", "kv_heads", "group", "context", "window", "microseconds"),
    [
        ("l40s", 1, 1, 1, 65536, 0, 1203.8),
        ("l40s", 16, 1, 1, 32768, 0, 619.2),
        ("l40s", 512, 1, 1, 512, 0, 188.1),
        ("l40s", 2048, 1, 1, 16, 0, 62.6),
        ("l40s", 64, 2, 8, 128, 128, 38.7),
        ("l40s", 2048, 8, 3, 32, 128, 1408.7),
        ("rtx-pro-6000-blackwell-server", 1, 1, 1, 65536, 0, 1260.8),
        ("rtx-pro-6000-blackwell-server", 256, 8, 3, 32, 128, 135.8),
        ("a100-sxm-80gb", 1, 1, 1, 65536, 0, 1526.0),
        ("a100-sxm-80gb", 32, 1, 1, 32768, 0, 778.9),
        ("a100-sxm-80gb", 512, 1, 1, 512, 0, 99.6),
    ],
)
def test_flash_attention_2_gives_every_query_head_a_block(  # noqa: PLR0917
    gpu: str, batch: int, kv_heads: int, group: int, context: int, window: int, microseconds: float
) -> None:
    """Rows of the tables with a window, or a KV head for each query head, by the shipped laws.

    vLLM 0.24.0 (0.14.0 on A100), head size 128, aiconfigurator-core 0.12.0 (Apache-2.0); caches
    well inside L2 or well beyond it. A verify pass runs by the same kernel.
    """
    profile, family = load_hardware(gpu), FAMILIES["attention"]
    overlay = load_overlay(gpu, "vllm")
    assert overlay is not None
    (law,) = (
        block.law
        for block in overlay.calibration
        if isinstance(block, AttentionBlock) and (block.dtype, block.head_dim) == ("bf16", 128)
    )
    sizes = {"batch": batch, "kv_heads": kv_heads, "group": group, "context": context}
    columns = {name: np.array([float(x)]) for name, x in (sizes | {"window": window}).items()}
    label = {"dtype": "bf16", "kernel": "vllm_flash_attn_fa2", "head_dim": 128}
    found = family.seconds(columns, label, law, profile)
    assert 1e6 * float(found[0]) == pytest.approx(microseconds, rel=0.2)


@pytest.mark.parametrize("group", [1, 4, 8, 16])
def test_more_queries_are_never_faster(group: int) -> None:
    rows = group * np.arange(1.0, 17.0)
    assert (np.diff(attention_seconds(rows=rows, group=group)) >= 0).all()


def test_other_models_keep_their_measured_factor() -> None:
    """One query of 16 heads: the second band's factor, half of the first's, by hand.

    A body of factor x memory time; 17 GFLOP at 600 TFLOP/s at most are far below it.
    """
    one, other = attention_seconds(rows=np.array([8.0, 16.0]), group=0) - LAW.floor
    assert other / one == pytest.approx(0.5, rel=0.05)


def test_a_verify_pass_is_not_cheaper_than_a_plain_one(cli: Cli) -> None:
    ask = ("recommend", "qwen3-8b", "--gpu", "h200-sxm", "--batch", "8", "--context", "32k")
    (point,) = cli(*ask, "--acceptance", "0.7", "--format", "json").data()["points"]
    attention = [row["breakdown_ms"]["attention"] for row in point["by_draft_length"]]
    verify = [row["verify_ms"] for row in point["by_draft_length"]]
    assert attention == sorted(attention)
    assert min(verify) == verify[0]
