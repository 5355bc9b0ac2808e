"""Weights only stored in fewer bits: which law prices them, what is said of slow ones."""

from __future__ import annotations

import json

import pytest

from roofline.base.resources import bundled_names
from roofline.specs.formats import DType
from roofline.specs.gpu import load_overlay
from roofline.specs.laws import GemmBlock
from roofline.timing.lawbook import CAPTURED, ENGINES
from tests.physics import plain_step, run


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_fewer_bits_are_faster_where_weights_are_what_is_read(engine: str) -> None:
    """70B on four H100 at batch 1: 141, 70 and 36 GB of weights to read, all else alike."""
    bf16, int8, int4 = (
        plain_step("llama-3.1-70b", tp=4, batch=1, context=1024, engine=engine, weights=weights)
        for weights in (DType.BF16, DType.INT8, DType.INT4_G128)
    )
    assert int4 < int8 < bf16


def test_groups_of_any_size_are_priced_alike() -> None:
    """int4-g32 has 0.5625 B a weight, int4-g128 0.5195 B: at most 8.3 % more to read."""
    by_128, by_32 = (
        plain_step("kimi-k2-instruct", gpu="b200-hgx", tp=8, batch=8, context=1024, weights=weights)
        for weights in (DType.INT4_G128, DType.INT4_G32)
    )
    assert by_128 <= by_32 <= 1.083 * by_128


def test_int4_gains_what_a_published_run_gained() -> None:
    """NVIDIA Model-Optimizer, benchmark.md: Llama 3.1 8B, H200, TensorRT-LLM, batch 1, 2048 in and
    128 out: 173.8 tokens/s in BF16, 231.75 in INT4 AWQ, prompt included (55 ms at 2 x 8e9 x 2048
    FLOP and 600 TFLOP/s): (128/231.75 - 0.055) / (128/173.8 - 0.055) = 0.73. The engine priced
    here is two years younger (its launches overlap), so within a quarter.
    """  # fmt: skip
    int4, bf16 = (
        plain_step(
            "llama-3.1-8b",
            gpu="h200-sxm",
            engine="trtllm",
            batch=1,
            context=2112,
            weights=weights,
        )
        for weights in (DType.INT4_G128, DType.BF16)
    )
    assert int4 / bf16 == pytest.approx(0.73, rel=0.25)


def test_a_table_of_host_launches_is_left_out() -> None:
    """SGLang 0.5.6 on the H100 takes 22 us for the smallest int8 product; nothing else over 14."""
    slow = {
        (gpu, engine, block.dtype)
        for gpu in bundled_names("hardware_profiles")
        if "." not in gpu
        for engine in ENGINES
        for block in getattr(load_overlay(gpu, engine), "calibration", ())
        if isinstance(block, GemmBlock) and block.law.floor > CAPTURED
    }
    assert slow == {("h100-sxm", "sglang", "int8-wo")}
    asked = "roofline recommend qwen3-8b --gpu h100-sxm --engine sglang --weights int8"
    code, out, err = run(f"{asked} --drafter none --notes")
    assert code == 0, err
    assert "gemm int8-wo (assumed: stated prior)" in " ".join(out.split())


def test_narrow_weights_that_are_slower_are_said_to_be() -> None:
    """vLLM's table of FP8 experts on the H200 is slower than that of BF16 experts."""
    asked = "roofline recommend qwen3-30b-a3b --gpu h200-sxm --drafter none --batch 1"
    code, out, _ = run(f"{asked} --weights fp8 --format json")
    assert code == 0
    step = json.loads(out)["points"][0]["by_draft_length"][0]["step_ms"]
    wide = 1e3 * plain_step("qwen3-30b-a3b", gpu="h200-sxm", batch=1, context=4096)
    assert step > wide
    (line,) = [w for w in json.loads(out)["warnings"] if "they save memory, not time" in w]
    assert f"{step:.3g} ms here, {wide:.3g} ms with bf16" in line
    assert "experts" in line
    assert "not time" not in run(f"{asked} --weights fp8-block --format json")[1]
    assert "not time" not in run(f"{asked} --format json")[1]
