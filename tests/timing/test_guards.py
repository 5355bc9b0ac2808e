"""No kernel is faster than its roofline, and no product gets cheaper with more rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.kernels.ops import GemmShape, Kind, Op, Part
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware
from roofline.timing.laws.gemm import between_envelopes, row_edges
from roofline.timing.machine import Machine, time_op

#: Parts with tables, borrowed laws and priors.
GPUS = ("a100-sxm-80gb", "h20", "h200-sxm", "b100", "b300-hgx", "l40s", "rtx-5090", "mi300x")
#: Datasheets: dense bf16 [FLOP/s] and memory [B/s].
DATASHEETS = {"h20": (148e12, 4.0e12), "h100-sxm": (989.4e12, 3.35e12), "l4": (121e12, 300e9)}


def product(rows: object, n: int, k: int, dtype: DType = DType.BF16) -> Op:
    """Return an M x K by K x N product in one format."""
    m, width = np.asarray(rows, dtype=np.float64), 2.0 if dtype is DType.BF16 else 1.0
    return Op(
        name="gate_up_proj",
        kind=Kind.GEMM,
        part=Part.LINEAR,
        compute=dtype,
        storage=dtype,
        flops=2 * m * n * k,
        bytes=n * k * width + m * (k * width + n * 2),
        rows=m,
        shape=GemmShape(m=m, n=n, k=k, weight=width, activation=width),
    )


@pytest.mark.parametrize("gpu", DATASHEETS)
@pytest.mark.parametrize(("n", "k"), [(28672, 4096), (4096, 14336), (151936, 5120), (1024, 1024)])
def test_no_product_beats_the_datasheet(gpu: str, n: int, k: int) -> None:
    rows = np.array([1.0, 8.0, 64.0, 256.0, 1024.0, 4096.0])
    peak, bandwidth = DATASHEETS[gpu]
    least = np.maximum(2 * rows * n * k / peak, n * k * 2 / bandwidth)
    each = time_op(product(rows, n, k), Machine(load_hardware(gpu))).each
    assert (each >= 0.9999 * least).all()  # datasheets have four digits


@pytest.mark.parametrize(("n", "k"), [(57344, 8192), (73728, 4608)])
def test_the_law_of_a_part_with_little_arithmetic_needs_no_floor(
    n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H20 (148 TFLOP/s), 128 to 512 rows of gate_up of Llama-3.1-70B and Gemma-2-27B."""
    monkeypatch.setattr(Machine, "guarded", False)
    rows = np.array([128.0, 192.0, 256.0, 512.0])
    each = time_op(product(rows, n, k), Machine(load_hardware("h20"))).each
    assert (each >= 2 * rows * n * k / 148e12).all()


@settings(deadline=None)
@given(
    gpu=st.sampled_from(GPUS),
    engine=st.sampled_from(("vllm", "sglang", "trtllm")),
    dtype=st.sampled_from((DType.BF16, DType.FP8)),
    rows=st.lists(st.integers(1, 5000), min_size=2, max_size=40, unique=True),
    n=st.sampled_from((512, 2048, 6144, 28672)),
    k=st.sampled_from((512, 4096, 14336)),
)
def test_products_never_get_cheaper_with_more_rows(  # noqa: PLR0917
    gpu: str, engine: str, dtype: DType, rows: list[int], n: int, k: int
) -> None:
    machine = Machine(load_hardware(gpu), engine)
    if dtype.value not in machine.gpu.rates:
        return
    each = np.asarray(time_op(product(sorted(rows), n, k, dtype), machine).each)
    assert (np.diff(each) >= -1e-9 * each[1:]).all()


@settings(deadline=None)
@given(rows=st.lists(st.integers(1, 3000), min_size=2, max_size=20, unique=True))
def test_a_time_depends_on_its_own_rows_alone(rows: list[int]) -> None:
    machine = Machine(load_hardware("h200-sxm"))
    together = time_op(product(rows, 6144, 4096, DType.FP8), machine).each
    alone = [float(time_op(product(row, 6144, 4096, DType.FP8), machine).each) for row in rows]
    assert together == pytest.approx(alone)


def test_laws_that_do_not_fall_stay_as_they_are() -> None:
    edges = row_edges(2000)
    rows = np.arange(1.0, 2000.0)
    rising = 1e-6 * np.sqrt(rows)
    guarded = between_envelopes(rows, rising, edges=edges, at_edges=1e-6 * np.sqrt(edges))
    assert guarded == pytest.approx(rising)


@pytest.mark.parametrize("most", [1, 15, 16, 63, 64, 65, 1023, 1024, 1025, 5000])
def test_edges_reach_past_the_most_rows(most: int) -> None:
    edges = row_edges(most)
    assert edges[-1] > most
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize(
    ("model", "gpu", "weights"),
    [("llama-3.1-8b", "h20", "fp8"), ("qwen3-32b", "rtx-5090", "nvfp4"), ("phi-4", "h20", "bf16")],
)
def test_steps_never_fall_as_drafts_grow(model: str, gpu: str, weights: str) -> None:
    """H20, fp8, batch 96 fell from 42.2 to 37.6 ms between two and four drafts."""
    deployment, _ = deploy(
        Configuration(model=model, gpu=gpu, weights=DType(weights), drafter="ngram")
    )
    step = deployment.price(deployment.grid((8, 32, 96), (512,), range(11))).times.total
    assert (np.diff(step, axis=-1) >= 0).all()
