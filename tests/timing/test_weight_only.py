"""Weights only stored in fewer bits: which law prices them, what is said of slow ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from roofline.base.resources import bundled_names
from roofline.kernels.ops import GemmShape, Kind, Op, Part
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.gpu import load_hardware, load_overlay
from roofline.specs.laws import GemmBlock
from roofline.timing.lawbook import CAPTURED, ENGINES
from roofline.timing.machine import Machine, time_op
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
    priced = "gemm int8-wo (assumed: h100-sxm sglang 0.5.14 bf16 with narrow weights"
    assert priced in " ".join(out.split())


def test_narrow_weights_that_are_slower_are_said_to_be() -> None:
    """After a norm without its all-reduce, vLLM quantises to NVFP4 by a kernel of its own."""
    asked = "roofline recommend qwen3.5-27b --gpu rtx-pro-6000-blackwell-server --tp 8"
    code, out, _ = run(f"{asked} --drafter none --batch 1 --weights nvfp4 --format json")
    assert code == 0
    step = json.loads(out)["points"][0]["by_draft_length"][0]["step_ms"]
    eight = run(f"{asked} --drafter none --batch 1 --weights fp8 --format json")[1]
    wide = json.loads(eight)["points"][0]["by_draft_length"][0]["step_ms"]
    assert step > wide
    (line,) = [w for w in json.loads(out)["warnings"] if "they save memory, not time" in w]
    assert f"{step:.3g} ms here, {wide:.3g} ms with fp8" in line
    assert "not time" not in eight


#: Marlin on one A100 with 80 GB (by its bandwidth): rows, and how many times as fast as FP16.
#: vLLM PR 2497, comment of 2024-01-24 (bench.py of IST-DASLab/marlin, int4 in groups of 128).
MARLIN = {
    1: 3.12, 2: 3.10, 4: 3.14, 8: 3.20, 16: 3.19, 32: 2.28, 64: 1.47,
    128: 1.01, 256: 0.74, 512: 0.73, 1024: 0.66, 2048: 0.60, 4000: 0.61,
}  # fmt: skip


def test_unpacking_gains_and_loses_what_marlin_did() -> None:
    """The rows' N x K is 3.1e8: 141 TFLOP/s in 0.57 ms at 128 rows."""
    machine = Machine(load_hardware("a100-sxm-80gb"), "vllm")
    rows = np.array(list(MARLIN), dtype=np.float64)
    int4, fp16 = (
        np.asarray(time_op(product(rows, n=17728, k=17728, storage=storage), machine).time.total)
        for storage in (DType.INT4_G128, DType.BF16)
    )
    error = np.abs(fp16 / int4 / np.array(list(MARLIN.values())) - 1)
    assert np.median(error) < 0.07
    assert error.max() < 0.22


@pytest.mark.parametrize(
    ("gpu", "engine"), [("h200-sxm", "vllm"), ("b200-hgx", "sglang"), ("rtx-4090", "vllm")]
)
def test_few_rows_gain_from_fewer_bits(gpu: str, engine: str) -> None:
    """MARLIN (arXiv 2408.11743): close to the most that fewer bytes can gain, to 16 rows at least.

    A product too small to gain takes no longer: it has the same launch.
    """
    machine = Machine(load_hardware(gpu), engine)
    rows = np.array([1.0, 8.0, 16.0])
    for n, k in ((1024, 2048), (6144, 4096), (28672, 8192)):
        int4, bf16 = (
            np.asarray(time_op(product(rows, n=n, k=k, storage=storage), machine).time.total)
            for storage in (DType.INT4_G128, DType.BF16)
        )
        assert (int4 <= 1.05 * bf16).all()


def product(rows: NDArray[np.float64], *, n: int, k: int, storage: DType) -> Op:
    """Return a product of 16-bit activations with weights stored in one format."""
    weight = bytes_per_element(storage)
    return Op(
        name="gate_up_proj",
        kind=Kind.GEMM,
        part=Part.LINEAR,
        compute=DType.BF16,
        storage=storage,
        flops=2 * rows * n * k,
        bytes=n * k * weight + 2 * rows * (n + k),
        rows=rows,
        shape=GemmShape(m=rows, n=n, k=k, weight=weight, activation=2.0),
    )
