"""Which kernel is priced: the one that an engine's own dispatch takes, from sound tables."""

from __future__ import annotations

import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.specs.formats import DType
from roofline.specs.gpu import load_overlay
from roofline.specs.laws import GemmLaw, MoeBlock
from roofline.timing.machine import OpTime
from tests.physics import plain_step


def kernels(deployment: Deployment, *, batch: int = 8) -> dict[str, OpTime]:
    """Return the kernels of a plain step by name."""
    priced = deployment.price(deployment.grid((batch,), (2048,), (0,)))
    return {time.op.name: time for time in priced.times.verify_ops}


def deployed(model: str, gpu: str, **options: object) -> Deployment:
    """Return a deployment without a drafter."""
    return deploy(Configuration(model=model, gpu=gpu, drafter="none", **options))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm"])
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "mixtral-8x7b"])
def test_fp8_experts_on_hopper_are_no_slower_than_bf16(gpu: str, model: str) -> None:
    """vLLM's Triton experts read half the bytes: 0.74 to 0.58 of BF16's time (0.19, H200)."""
    fp8, bf16 = (
        plain_step(model, gpu=gpu, tp=2, batch=8, context=2048, weights=weights)
        for weights in (DType.FP8, DType.BF16)
    )
    assert fp8 <= bf16


def test_int4_experts_on_a_b200_take_what_a_b300_takes() -> None:
    """Kimi-K2.5, TP 8, batch 16, 4k: 13.7 ms on a B300, whose memory is as fast (same kernel)."""
    b200, b300 = (
        1e3 * plain_step("kimi-k2.5", gpu=gpu, tp=8, batch=16, context=4096)
        for gpu in ("b200-hgx", "b300-hgx")
    )
    assert b200 == pytest.approx(b300, rel=0.15)
    assert b200 == pytest.approx(14.1, rel=0.15)


@pytest.mark.parametrize(("tp", "batch", "served"), [(4, 16, 3.10), (2, 64, 5.85), (1, 32, 7.70)])
def test_gpt_oss_on_tensorrt_llm_takes_what_was_served(tp: int, batch: int, served: float) -> None:
    """InferenceMAX runs of TensorRT-LLM 1.2.0rc2 on B200, input 1024 and output 8192 (decode.csv).

    Its experts multiply MXFP4 weights with MXFP8 activations on Blackwell.
    """
    step = plain_step(
        "gpt-oss-120b", gpu="b200-hgx", engine="trtllm", tp=tp, batch=batch, context=5120
    )
    assert 1e3 * step == pytest.approx(served, rel=0.12)


@pytest.mark.parametrize(("tp", "batch", "served"), [(1, 16, 5.40), (1, 64, 9.82), (4, 16, 3.71)])
def test_gpt_oss_on_vllm_takes_what_was_served_with_fp8_activations(
    tp: int, batch: int, served: float
) -> None:
    """InferenceMAX runs of vLLM 0.15.1 on B200 (decode.csv).

    Their script sets VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1 and an fp8 cache.
    """
    options = {"gpu": "b200-hgx", "tp": tp, "batch": batch, "context": 5120, "kv": DType.FP8}
    step, wide = (
        1e3 * plain_step("gpt-oss-120b", **options, activations=activations)  # type: ignore[arg-type]
        for activations in (DType.FP8, None)
    )
    assert step == pytest.approx(served, rel=0.12)
    assert step < wide


@pytest.mark.parametrize("engine", ["trtllm", "sglang"])
def test_mxfp4_experts_are_multiplied_in_fp8_on_blackwell_only(engine: str) -> None:
    """TensorRT-LLM's get_mxfp4_quant_algo; SGLang's --flashinfer-mxfp4-moe-precision default."""
    for gpu, compute in (("b200-hgx", DType.FP8), ("h200-sxm", DType.BF16)):
        found = kernels(deployed("gpt-oss-120b", gpu, engine=engine))
        assert found["experts"].op.compute is compute


def test_block_fp8_on_hopper_takes_triton_unless_experts_are_on_groups_of_ranks() -> None:
    """vLLM's oracle/fp8.py: Triton for TP, FlashInfer's CUTLASS for EP."""
    overlay = load_overlay("h200-sxm", "vllm")
    assert overlay is not None
    laws = {b.kernel: b.law for b in overlay.calibration if isinstance(b, MoeBlock)}
    for ep, word in ((1, "triton"), (8, "flashinfer_cutlass")):
        found = kernels(deployed("deepseek-v3", "h200-sxm", tp=8, ep=ep))
        (kernel,) = [k for k, law in laws.items() if law == found["experts"].chosen.law]
        assert word in kernel


@pytest.mark.parametrize("gpu", ["h200-sxm", "b200-hgx", "l40s"])
def test_only_attention_is_followed_by_a_quantisation_of_its_own(gpu: str) -> None:
    """vLLM, docs/design/fusions.md: norms and SiLU write FP8, fuse_attn_quant is off."""
    narrow = kernels(deployed("llama-3.1-8b", gpu, weights=DType.FP8))
    wide = kernels(deployed("llama-3.1-8b", gpu))
    floors = {name: narrow[name].chosen.law.floor for name in ("qkv_proj", "down_proj", "o_proj")}  # type: ignore[attr-defined]
    law = wide["qkv_proj"].chosen.law
    assert isinstance(law, GemmLaw)
    assert floors["qkv_proj"] == floors["down_proj"] == law.floor < floors["o_proj"]


def test_builds_before_the_fusions_quantise_by_themselves() -> None:
    """vLLM 0.11 and older have no fusion by default."""
    old = kernels(deployed("llama-3.1-8b", "h200-sxm", weights=DType.FP8, engine="vllm@2025"))
    laws = [old[name].chosen.law for name in ("qkv_proj", "o_proj")]
    assert laws[0] == laws[1]


@pytest.mark.parametrize(
    ("model", "gate", "narrow"),
    [
        ("qwen3.5-27b", "ba_proj", "qkvz_proj"),
        ("deepseek-v3.2", "indexer_k_proj", "indexer_q_proj"),
    ],
)
def test_small_matrices_of_gates_are_never_narrow(model: str, gate: str, narrow: str) -> None:
    """NVIDIA's narrow Qwen3.6 holds in_proj_a and in_proj_b wide; vLLM, wk_weights_proj."""
    every = kernels(deployed(model, "b200-hgx", tp=8, weights=DType.NVFP4))
    assert (every[gate].op.storage, every[gate].op.compute) == (DType.BF16, DType.BF16)
    assert every[narrow].op.storage is DType.NVFP4
