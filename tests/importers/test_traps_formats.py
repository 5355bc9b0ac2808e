"""Traps 18 to 30 of published configs: mixtures, formats, multi-token prediction, drafters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.base.errors import InputError
from roofline.importers.importing import import_path
from roofline.specs.mixers import (
    GroupedQueryAttention,
)
from roofline.specs.network import DenseMlp
from tests.published import (
    CONFIGS,
    defaulted,
    dense,
    drafter,
    dtypes,
    experts,
    imported,
    model,
    total,
)


def refused(tmp_path: Path, config: object, *words: str) -> None:
    """Check that a config is refused with a line that has the words."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    with pytest.raises(InputError) as caught:
        import_path(file)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "count", "chosen", "width"),
    [
        ("mistralai--Mixtral-8x7B-v0.1", 8, 2, 14_336),
        ("deepseek-ai--DeepSeek-V3", 256, 8, 2048),
        ("google--gemma-4-26B-A4B", 128, 8, 704),
        ("moonshotai--Kimi-K3", 896, 16, 3072),
        ("baidu--ERNIE-4.5-21B-A3B-PT", 64, 6, 1536),
        ("MiniMaxAI--MiniMax-M2.5", 256, 8, 1536),
        ("Qwen--Qwen3-30B-A3B", 128, 8, 768),
        ("openai--gpt-oss-120b", 128, 4, 2880),
    ],
)
def test_trap_18_names_of_expert_fields(name: str, count: int, chosen: int, width: int) -> None:
    _, mixture = experts(model(name))[0]
    found = (mixture.num_experts, mixture.top_k, mixture.expert_intermediate_size)
    assert found == (count, chosen, width)


@pytest.mark.parametrize(
    ("name", "sparse", "plain"),
    [
        ("deepseek-ai--DeepSeek-V3", 58, 3),
        ("deepseek-ai--DeepSeek-V2-Lite", 26, 1),
        ("XiaomiMiMo--MiMo-V2-Flash", 47, 1),
        ("MiniMaxAI--MiniMax-M3", 57, 3),
        ("zai-org--GLM-5.2", 75, 3),
        ("baidu--ERNIE-4.5-21B-A3B-PT", 27, 1),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 48, 0),
        ("meta-llama--Llama-4-Maverick-17B-128E-Instruct", 24, 24),
    ],
)
def test_trap_19_which_layers_are_mixtures(name: str, sparse: int, plain: int) -> None:
    spec = model(name)
    assert sum(repeat for repeat, _ in experts(spec)) == sparse
    assert sum(repeat for repeat, _ in dense(spec)) == plain


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("deepseek-ai--DeepSeek-V2-Lite", 2 * 1408),
        ("moonshotai--Kimi-K3", 2 * 3072),
        ("Qwen--Qwen1.5-MoE-A2.7B", 5632),
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 3712),
        ("stepfun-ai--Step-3.7-Flash", 1280),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 8192),
        ("Qwen--Qwen3-Coder-480B-A35B-Instruct", 0),
        ("MiniMaxAI--MiniMax-M2.5", 0),
    ],
)
def test_trap_20_shared_experts(name: str, width: int) -> None:
    assert experts(model(name))[0][1].shared_intermediate_size == width


@pytest.mark.parametrize(
    ("name", "latent_size", "trillions"),
    [
        ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 1024, 0.1207),
        ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 2048, 0.5493),
        ("moonshotai--Kimi-K3", 3584, 2.78),
    ],
)
def test_trap_21_latent_experts(name: str, latent_size: int, trillions: float) -> None:
    assert experts(model(name))[0][1].latent_size == latent_size
    assert total(name) / 1e12 == pytest.approx(trillions, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "tied"),
    [
        ("google--gemma-2-9b", True),
        ("CohereForAI--c4ai-command-r-v01", True),
        ("tiiuae--falcon-7b", True),
        ("bigcode--starcoder2", True),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", False),
    ],
)
def test_trap_22_tied_embeddings_by_class(name: str, tied: bool) -> None:
    assert model(name).tie_embeddings is tied
    assert defaulted(name)["tie_word_embeddings"] is tied


def test_trap_23_vocabularies_differ_inside_a_family() -> None:
    small, large = model("Qwen--Qwen2.5-0.5B"), model("Qwen--Qwen2.5-7B")
    assert (small.vocab_size, large.vocab_size) == (151_936, 152_064)
    assert model("google--gemma-3-27b-it").vocab_size == 262_208
    assert model("google--gemma-3-1b").vocab_size == 262_144


@pytest.mark.parametrize(
    "name",
    [
        "nvidia--Qwen3-235B-A22B-NVFP4", "nvidia--DeepSeek-V3.1-NVFP4",
        "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
        "nvidia--Llama-3.1-70B-Instruct-FP8", "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8",
    ],
)  # fmt: skip
def test_trap_24_the_quantisation_stands_in_another_file(name: str) -> None:
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    assert "quantization_config" not in config
    found = dtypes(name)
    assert "nvfp4" in found.values() if "NVFP4" in name else "fp8" in found.values()
    assert found["kv"] == "fp8"


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("MiniMaxAI--MiniMax-M2.5", {"attention": "fp8-block", "experts": "fp8-block"}),
        ("mistralai--Devstral-2-123B-Instruct", {"attention": "fp8", "mlp": "fp8"}),
        ("meta-llama--Meta-Llama-3.1-405B-Instruct-FP8", {"mlp": "fp8"}),
        ("moonshotai--Kimi-K2.5", {"experts": "int4-g32"}),
        ("moonshotai--Kimi-K3", {"experts": "mxfp4"}),
        ("openai--gpt-oss-120b", {"experts": "mxfp4"}),
        ("Qwen--Qwen3-32B-FP8-Static-PerTensor", {"attention": "fp8", "mlp": "fp8", "kv": "fp8"}),
        ("ibm-granite--granite-3.3-8b-instruct-FP8", {"attention": "fp8", "mlp": "fp8"}),
    ],
)
def test_trap_25_variants_of_quantisation(name: str, formats: dict[str, str]) -> None:
    found = dtypes(name)
    assert {part: found.get(part) for part in formats} == formats


def test_trap_25_two_methods_at_once() -> None:
    # quant_method fp8 beside quant_algo MIXED_PRECISION; the original keeps expert_dtype outside
    found = dtypes("nvidia--DeepSeek-V4-Flash-NVFP4")
    assert found["experts"] == "nvfp4"
    assert found["attention"] == found["shared_experts"] == "fp8-block"
    original = dtypes("deepseek-ai--DeepSeek-V4-Flash")
    assert (original["experts"], original["attention"]) == ("mxfp4", "fp8-block")


def test_trap_26_lists_of_what_is_not_quantised() -> None:
    everything = {"attention", "mlp", "experts", "shared_experts"}
    assert everything & set(dtypes("moonshotai--Kimi-K2.5")) == {"experts"}  # re: patterns
    gemma = dtypes("nvidia--Gemma-4-31B-IT-NVFP4")  # globs keep attention
    assert gemma == {"mlp": "nvfp4", "kv": "fp8"}
    # globs on mlp keep the dense MLP that runs beside the experts, not the experts
    assert dtypes("nvidia--Gemma-4-26B-A4B-NVFP4") == {"experts": "nvfp4", "kv": "fp8"}
    minimax = dtypes("nvidia--MiniMax-M2.5-NVFP4")
    assert minimax == {"experts": "nvfp4", "kv": "fp8"}
    v3 = dtypes("deepseek-ai--DeepSeek-V3")  # lists nothing
    assert not {"head", "embedding", "norm", "router"} & set(v3)
    notes = imported("meta-llama--Meta-Llama-3.1-405B-Instruct-FP8.json").notes
    assert any("1.6 % is bf16" in note for note in notes)  # layers 0 and 125 of 126


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("deepseek-ai--DeepSeek-V3", 1),
        ("moonshotai--Kimi-K2.5", 0),
        ("Qwen--Qwen3.5-27B", 1),
        ("MiniMaxAI--MiniMax-M2.5", 3),
        ("Qwen--Qwen3-Next-80B-A3B-Instruct", 1),  # no key says so
        ("Qwen--Qwen3-8B", 0),
    ],
)
def test_trap_27_mtp_layers(name: str, modules: int) -> None:
    spec = model(name)
    assert (spec.mtp_modules if spec.mtp else 0) == modules


def test_trap_27_mtp_layers_follow_their_model() -> None:
    v3 = model("deepseek-ai--DeepSeek-V3").mtp
    mimo = model("XiaomiMiMo--MiMo-7B-Base").mtp
    nano = model("nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4").mtp
    assert v3 is not None
    assert mimo is not None
    assert nano is not None
    assert v3.mlp.kind == "moe"
    assert mimo.mlp.kind == "dense"
    assert (nano.attention.kind, nano.mlp.kind) == ("gqa", "moe")


def test_trap_28_a_drafter_is_no_small_copy_of_its_target() -> None:
    deepseek = drafter("specforge--deepseek-v3-671b-eagle3")
    attention, mlp = deepseek.layers[0].attention, deepseek.layers[0].mlp
    assert isinstance(attention, GroupedQueryAttention)
    assert isinstance(mlp, DenseMlp)
    assert (attention.num_heads, mlp.intermediate_size) == (56, 40_960)
    kimi = drafter("torchspec--kimi_k25_eagle3")
    assert kimi.draft_vocab_size == kimi.vocab_size == 163_840
    assert drafter("specforge--gpt-oss-120B-eagle3").fusion.layer_ids == (1, 17, 33)
    vicuna = drafter("eagle--EAGLE1-vicuna_33B").layers[0].attention
    assert isinstance(vicuna, GroupedQueryAttention)
    assert vicuna.num_kv_heads == 13


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("specforge--qwen3-8b-eagle3", "eagle3"),
        ("eagle--EAGLE3-LLaMA3.1-8B-train", "eagle3"),  # LlamaForCausalLM
        ("eagle--EAGLE1-vicuna_7B", "eagle1"),  # LlamaForCausalLM as well
        ("specforge--qwen3-8b-dflash", "dflash"),  # model_type qwen3
        ("specforge--qwen3-8b-dspark", "dspark"),
        ("specforge--qwen3-8b-domino", "domino"),
        ("specforge--qwen3-8b-peagle", "peagle"),
        ("medusa--medusa-vicuna-7b-v1.3", "medusa"),
    ],
)
def test_trap_29_drafters_pose_as_plain_models(name: str, kind: str) -> None:
    assert drafter(name).kind == kind


def test_trap_29_medusa_says_two_heads_and_has_five() -> None:
    assert drafter("medusa--medusa-vicuna-7b-v1.3").heads == 5
    assert defaulted("drafter--medusa--medusa-vicuna-7b-v1.3")["medusa_num_heads"] == 5


def test_trap_30_encoder_decoders_and_unknown_classes_are_refused(tmp_path: Path) -> None:
    t5 = {"model_type": "t5", "d_model": 512, "d_ff": 2048, "num_decoder_layers": 6}
    refused(tmp_path, t5 | {"is_encoder_decoder": True}, "encoder-decoder")
    base = json.loads((CONFIGS / "Qwen--Qwen3-8B.json").read_text())
    refused(tmp_path, base | {"model_type": "rwkv9"}, "model_type", "rwkv9")
    refused(tmp_path, {k: v for k, v in base.items() if k != "model_type"}, "model_type")
    # a known class with a mixer that it does not have
    refused(tmp_path, base | {"attn_type_list": [0] * 36}, "attn_type_list")
    refused(tmp_path, base | {"kv_lora_rank": 512}, "kv_lora_rank")
