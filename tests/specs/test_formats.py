"""Number formats: bytes with their scales, and at which rate products run."""

from __future__ import annotations

import re

import pytest

from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.specs.formats import Component, DType, Precision, bytes_per_element, resolve_precision
from tests.support import Cli, assert_refused

A100 = ["fp64", "fp32", "tf32", "bf16", "fp16", "int8", "int4"]  # gpus.csv: no fp8
H100 = ["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
B200 = [*H100, "fp6", "fp4"]


def decide(
    rates: list[str],
    *,
    weights: DType | None = None,
    activations: DType | None = None,
    kv: DType | None = None,
) -> tuple[Precision, list[Notice]]:
    return resolve_precision(
        stored=dict.fromkeys(Component, DType.BF16), base=DType.BF16, kv_stored=None,
        available=rates, gpu="card", weights=weights, activations=activations, kv=kv,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (DType.FP32, 4),
        (DType.BF16, 2),
        (DType.FP16, 2),
        (DType.FP8, 1),
        (DType.INT8, 1),
        (DType.FP8_BLOCK, 1 + 4 / 16384),  # DeepSeek-V3: one fp32 scale per 128 x 128 block
        (DType.INT4_G128, 0.5 + 2.5 / 128),  # fp16 scale and 4-bit zero point per 128
        (DType.NVFP4, 0.5625),  # one fp8 scale per 16: 4.5 bits
        (DType.MXFP4, 0.53125),  # OCP MX: one 8-bit exponent per 32: 4.25 bits
    ],
)
def test_bytes_include_the_scales(dtype: DType, expected: float) -> None:
    assert bytes_per_element(dtype) == pytest.approx(expected, abs=1e-12)


def test_weights_change_layer_matrices_only() -> None:
    """The issue: embedding, head, router and norms keep the spec's dtype."""
    precision, _ = decide(H100, weights=DType.FP8)
    changed = {part for part, dtype in precision.weights.items() if dtype is DType.FP8}
    assert changed == {
        Component.ATTENTION, Component.MIXER, Component.MLP, Component.EXPERTS,
        Component.SHARED_EXPERTS,
    }  # fmt: skip
    assert precision.activations[Component.MLP] is DType.FP8
    assert precision.activations[Component.HEAD] is DType.BF16


@pytest.mark.parametrize(
    ("wide", "own", "gigabytes"),
    # files of Qwen2.5-32B-Instruct (model card of bartowski/Qwen2.5-32B-Instruct-GGUF): 20.43 GB
    # and 19.85, 23.74 and 23.26, 27.26 and 26.89
    [("q4_k_l", "q4_k_m", 0.58), ("q5_k_l", "q5_k_m", 0.48), ("q6_k_l", "q6_k", 0.37)],
)
def test_an_l_mixture_has_embedding_and_output_in_eight_bits(
    wide: str, own: str, gigabytes: float
) -> None:
    """By hand for q4_k_l: 152,064 x 5,120 weights, from 4.8944 and 6.5625 bits to 8.5."""
    first, _ = decide(H100, weights=DType(wide))
    other, _ = decide(H100, weights=DType(own))
    changed = {part for part in Component if first.weights[part] != other.weights[part]}
    ends = {Component.HEAD, Component.EMBEDDING}
    assert {first.weights[part] for part in ends} == {DType.Q8_0}
    assert bytes_per_element(DType(wide)) == bytes_per_element(DType(own))
    assert changed - ends == {
        Component.ATTENTION, Component.MIXER, Component.MLP, Component.EXPERTS,
        Component.SHARED_EXPERTS,
    }  # fmt: skip
    more = sum(
        152_064 * 5_120
        * (bytes_per_element(first.weights[part]) - bytes_per_element(other.weights[part]))
        for part in ends
    )  # fmt: skip
    # the file's embedding has the narrow type of its mixture, 0.4 bits less than the average here
    assert more / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_weight_only_where_the_gpu_lacks_the_rate() -> None:
    precision, told = decide(A100, weights=DType.FP8)
    assert precision.weights[Component.MLP] is DType.FP8
    assert precision.activations[Component.MLP] is DType.BF16
    assert told == [
        notice(Code.WEIGHTS_STORED_ONLY, gpu="card", rate="fp8", weights="fp8", multiplied="bf16")
    ]


def test_activations_are_those_of_layers_whose_weights_are_no_wider() -> None:
    """vLLM's VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1 leaves the 16-bit attention of gpt-oss alone."""
    stored = dict.fromkeys(Component, DType.BF16) | {Component.EXPERTS: DType.MXFP4}
    precision, _ = resolve_precision(
        stored=stored, base=DType.BF16, kv_stored=None, available=B200, gpu="card",
        activations=DType.FP8,
    )  # fmt: skip
    assert precision.activations[Component.EXPERTS] is DType.FP8
    assert precision.activations[Component.ATTENTION] is DType.BF16
    with pytest.raises(InputError, match="narrower than the bf16 weights"):
        decide(B200, activations=DType.FP8)


def test_activations_are_refused_where_the_gpu_lacks_the_rate() -> None:
    with pytest.raises(InputError, match="fp8"):
        decide(A100, activations=DType.FP8)


def test_the_remedy_for_refused_activations_works() -> None:
    """Each format that the message offers must be one that ``--activations`` accepts."""
    with pytest.raises(InputError) as caught:
        decide(A100, activations=DType.FP8)
    offered = re.split(r",\s*", str(caught.value).rsplit(":", 1)[1].strip())
    for name in offered:
        assert name in set(DType), name


def test_kv_is_storage_only() -> None:
    """A cache format needs no rate: fp8 KV on an A100 changes bytes and nothing else."""
    precision, told = decide(A100, kv=DType.FP8)
    assert precision.kv is DType.FP8
    assert precision.base is DType.BF16
    assert told == []


@pytest.mark.parametrize(
    ("rates", "weights", "runs_at"),
    [
        (B200, DType.NVFP4, DType.NVFP4),
        (H100, DType.NVFP4, DType.BF16),
        (H100, DType.INT4_G128, DType.BF16),
        (H100, DType.FP8_BLOCK, DType.FP8),
    ],
)
def test_rate_of_products_by_weight_format(
    rates: list[str], weights: DType, runs_at: DType
) -> None:
    precision, _ = decide(rates, weights=weights)
    assert precision.activations[Component.MLP] is runs_at


def test_fp8_weights_on_an_a100_save_bytes_but_no_arithmetic(cli: Cli) -> None:
    """Memory-bound they are nearly twice as fast; compute-bound they lose by unpacking.

    Marlin on an A100 at 2,048 rows: 0.60 times as fast as FP16 (vLLM PR 2497; int4 weights, and one
    of the rows that the share of its arithmetic was fitted on).
    """

    def linear(batch: str, context: str, *more: str) -> float:
        row = cli(
            "recommend", "llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--batch", batch,
            "--context", context, "--drafter", "none", "--format", "json", *more,
        ).by_draft_length()[0]  # fmt: skip
        return float(row["breakdown_ms"]["linear"])

    one = linear("1", "128") / linear("1", "128", "--weights", "fp8")
    many = linear("2k", "16") / linear("2k", "16", "--weights", "fp8")
    assert 1.6 < one < 2
    assert many == pytest.approx(0.60, rel=0.1)


def test_fp8_weights_on_an_h100_speed_up_arithmetic(cli: Cli) -> None:
    """Peaks differ by two (gpus.csv: 1978.9 against 989.4 TFLOP/s); tables reach less.

    k-aicgemm, vLLM 0.24, 512 rows: 298 against 164 us (51200 x 4096), 140 against 95 (16384 x
    7168), 162 against 112 (8192 x 16384): 1.45 to 1.82. Here: 28672 x 4096.
    """

    def gate_up(*more: str) -> float:
        kernels = cli(
            "recommend", "llama-3.1-8b", "--batch", "512", "--context", "16", "--drafter", "none",
            "--explain", "--format", "json", *more,
        ).ops("verify")  # fmt: skip
        return float(kernels["gate_up_proj"]["time_us"])

    assert 1.3 < gate_up() / gate_up("--weights", "fp8") <= 2


def test_the_warning_reaches_text_json_and_the_talk_beside_a_csv(cli: Cli) -> None:
    asked = (
        "recommend", "llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--weights", "fp8", "--drafter",
        "none",
    )  # fmt: skip
    said = "a100-sxm-80gb has no fp8 rate"
    data = cli(*asked, "--format", "json").data()
    assert any(said in text for text in data["warnings"])
    assert any(said in note["text"] and not note["assumption"] for note in data["notes"])
    assert f"Note: {said}" in cli(*asked).out
    assert f"note: {said}" in cli(*asked, "--format", "csv").err


def test_refused_activations_on_the_command_line(cli: Cli) -> None:
    outcome = cli("recommend", "llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--activations", "fp8")
    assert_refused(outcome, "a100-sxm-80gb", "fp8", "--activations")


def test_fp8_kv_halves_the_cache_traffic(cli: Cli) -> None:
    """2 x 8 x 128 x 131072 tokens at two bytes, then at one, plus 2 x 32 x 128 x 2 of rows."""
    for kv, size in (("bf16", 2), ("fp8", 1)):
        kernel = cli(
            "recommend", "llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--context", "128k", "--kv", kv,
            "--drafter", "none", "--explain", "--format", "json",
        ).ops("verify")["attention"]  # fmt: skip
        assert kernel["bytes"] == 268_435_456 * size + 16_384
