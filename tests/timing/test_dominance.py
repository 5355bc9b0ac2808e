"""A part without a measurement of its own is no faster than a measured one that is no worse."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.base.numbers import Array
from roofline.kernels.ops import GemmShape, Kind, Op, Part
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware
from roofline.timing.lawbook import LawBook, is_no_worse
from roofline.timing.machine import Machine, time_op

BATCHES, CONTEXTS, LENGTHS = (1, 8, 64, 256), (2048, 8192), (0, 1, 3, 7)

#: (without tables of its own, measured and no worse): by the datasheets of the profiles.
PAIRS = [
    ("b100", "b200-hgx"),
    ("h200-nvl", "h200-sxm"),
    ("h100-nvl", "h200-sxm"),
    ("h100-pcie", "h100-sxm"),
    ("h20", "h200-sxm"),
    ("a100-sxm-40gb", "a100-sxm-80gb"),
    ("l4", "l40s"),
]


def _steps(model: str, gpu: str, weights: str, *, tp: int = 1) -> Array:
    deployment, _ = deploy(
        Configuration(
            model=model, gpu=gpu, tp=tp, weights=DType(weights), engine="vllm", drafter="ngram"
        )
    )
    grid = deployment.grid(BATCHES, CONTEXTS, LENGTHS)
    return np.asarray(deployment.price(grid).times.total)


@pytest.mark.parametrize(("part", "better"), PAIRS)
@pytest.mark.parametrize(
    ("model", "weights"),
    [
        ("llama-3.1-8b", "bf16"),
        ("llama-3.1-8b", "fp8"),
        ("llama-3.1-8b", "int4-g128"),
        ("qwen3-30b-a3b", "bf16"),
        ("qwen3-30b-a3b", "fp8"),
    ],
)
def test_a_lesser_part_is_no_faster(part: str, better: str, model: str, weights: str) -> None:
    assert is_no_worse(load_hardware(better), load_hardware(part))
    ratio = _steps(model, better, weights) / _steps(model, part, weights)
    assert np.max(ratio) <= 1.0 + 1e-9


@pytest.mark.parametrize("weights", ["fp8", "bf16"])
@pytest.mark.parametrize("batch", [64, 96, 128])
def test_a_part_with_little_arithmetic_has_no_cliff_between_draft_lengths(
    weights: str, batch: int
) -> None:
    """H20 has 37 FLOP per byte in 16 bits: a step grows as the work does, at most 1.3 x as fast.

    The datasheet: 148 and 296 TFLOP/s, 4 TB/s; Llama-3.1-8B has 8.03e9 weights, of which 0.53e9 in
    a head of 16 bits. At 288 rows, one tile of 256 and 32 rows more, arithmetic binds.
    """
    deployment, _ = deploy(
        Configuration(
            model="llama-3.1-8b", gpu="h20", weights=DType(weights), engine="vllm", drafter="ngram"
        )
    )
    rows = batch * np.arange(1.0, 6.0)
    price = deployment.price(deployment.grid((batch,), (512,), range(5)))
    step = np.asarray(price.times.total).ravel()
    peak, width = {"fp8": (296e12, 1), "bf16": (148e12, 2)}[weights]
    work = 2 * rows * (6.98e9 / peak + 0.53e9 / 148e12)
    roofline = np.maximum(work, (6.98e9 * width + 0.53e9 * 2) / 4e12)
    assert np.all(np.diff(step) >= 0)
    assert np.all(step[1:] / step[:-1] <= 1.3 * roofline[1:] / roofline[:-1])
    assert np.all(step >= roofline)


def test_a_b100_is_no_faster_than_a_b200_at_eight_cards() -> None:
    ratio = _steps("llama-3.1-70b", "b200-hgx", "fp8", tp=8) / _steps(
        "llama-3.1-70b", "b100", "fp8", tp=8
    )
    assert np.max(ratio) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("gpu", "nearest"),
    [
        ("h200-nvl", "h200-sxm"),  # the same 4.8 TB/s; 836 against 989 TFLOP/s on both
        ("gh200-144gb", "h200-sxm"),  # 4.9 TB/s
        ("h100-pcie", "h100-sxm"),  # 2.0 TB/s
        ("b100", "b200-hgx"),  # 8 TB/s; 1,750 TFLOP/s, against 2,250 and 2,500
        ("l4", "l40s"),
    ],
)
def test_the_nearest_measured_part_stands_in(gpu: str, nearest: str) -> None:
    relative = LawBook(load_hardware(gpu), "vllm").relative
    assert relative is not None
    assert relative.id == nearest


def test_a_part_without_a_count_of_units_has_its_relatives() -> None:
    assert load_hardware("b100").compute.units is None
    assert Machine(load_hardware("b100")).device("bf16").units == 148  # B200, its datasheet


def test_a_measured_kernel_is_left_as_measured() -> None:
    op = _product(8, 4096, 4096)
    for gpu in ("h100-sxm", "h200-sxm", "b300-hgx"):
        with_rule, without = (
            time_op(op, Machine(load_hardware(gpu), dominance=on)) for on in (True, False)
        )
        assert np.array_equal(with_rule.each, without.each)


def _product(m: int, n: int, k: int) -> Op:
    shape = GemmShape(m=float(m), n=n, k=k, weight=2.0, activation=2.0)
    moved = 2.0 * (n * k + m * k + m * n)
    return Op(
        name="product",
        kind=Kind.GEMM,
        part=Part.LINEAR,
        count=1,
        flops=2.0 * m * n * k,
        bytes=moved,
        rows=float(m),
        storage=DType.BF16,
        compute=DType.BF16,
        shape=shape,
    )
