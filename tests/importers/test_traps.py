"""Traps 1 to 17 of published configs, one test each, with the file that springs it."""

from __future__ import annotations

import pytest

from roofline.kernels.footprint import (
    attended_tokens,
    kv_bytes_per_token,
    kv_bytes_read,
    parameters_total,
    state_bytes_per_sequence,
)
from roofline.specs.formats import DType
from roofline.specs.mixers import (
    CompressedAttention,
    CrossAttention,
    GatedDeltaNet,
    GroupedQueryAttention,
    LightningAttention,
    Mamba2,
    NoAttention,
)
from roofline.specs.network import LayerRun
from tests.published import (
    CONFIGS,
    defaulted,
    dense,
    dtypes,
    experts,
    first,
    latent,
    model,
    total,
    windowed,
)


def test_trap_01_nested_text_config() -> None:
    # quantisation inside (Kimi-K2.5), the tie flag outside only (Qwen3.5), the tower kept apart
    assert dtypes("moonshotai--Kimi-K2.5") == {"experts": "int4-g32"}
    nine = model("Qwen--Qwen3.5-9B")
    assert not nine.tie_embeddings
    assert 0.1e9 < nine.vision_parameters < 0.9e9
    assert parameters_total(nine) == 8_953_803_264  # without the tower


def test_trap_02_absent_keys_are_class_defaults() -> None:
    # google/gemma-3-27b-it minimal: no vocabulary, no tie flag, no pattern
    minimal = "google--gemma-3-27b-it.minimal"
    assert total(minimal) == total("google--gemma-3-27b-it")
    assert defaulted(minimal)["vocab_size"] == 262_208
    assert windowed(model(minimal)) == {1024: 52, None: 10}
    # null and zero: no query compression; no experts
    assert all(a.q_lora_rank is None for _, a in latent(model("deepseek-ai--DeepSeek-V2-Lite")))
    assert not experts(model("ibm-granite--granite-4-8b-dense-hybrid"))


def test_trap_03_other_vocabularies_of_names() -> None:
    seven, forty = first(model("tiiuae--falcon-7b")), first(model("tiiuae--falcon-40b"))
    assert (seven.num_heads, seven.num_kv_heads) == (71, 1)
    assert (forty.num_heads, forty.num_kv_heads) == (128, 8)
    glm = first(model("THUDM--glm-4-9b"))
    assert (glm.num_heads, glm.num_kv_heads, glm.head_dim) == (32, 2, 128)
    assert dense(model("microsoft--phi-2"))[0][1].intermediate_size == 4 * 2560
    assert first(model("nvidia--Nemotron-H-56B-Base-8K")).head_dim == 128


def test_trap_04_layers_are_absent_or_count_something_else() -> None:
    ultra = model("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16")
    assert ultra.num_layers == 108
    nano = model("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    kinds = {run.attention.kind: run.repeat for run in nano.layers}
    assert kinds == {"mamba2": 23, "none": 23, "gqa": 6}
    assert model("deepseek-ai--DeepSeek-V4-Flash").num_layers == 43  # of 44 compress_ratios
    k3 = model("moonshotai--Kimi-K3")  # lists that count from 1
    assert {run.attention.kind for run in k3.layers} == {"kda", "mla"}
    assert sum(repeat for repeat, _ in latent(k3)) == 24


def test_trap_05_not_strict_json() -> None:
    for name in (
        "nvidia--Nemotron-H-56B-Base-8K",
        "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    ):
        assert "Infinity" in (CONFIGS / f"{name}.json").read_text()
        assert model(name).num_layers > 0


def test_trap_06_dtype_under_two_names_or_none() -> None:
    assert defaulted("openai--gpt-oss-120b")["dtype"] == "bf16"
    assert defaulted("allenai--OLMo-2-1124-7B")["dtype"] == "bf16"  # states float32
    assert model("meta-llama--Llama-2-7b-hf").dtype == DType.FP16
    assert dtypes("deepseek-ai--DeepSeek-V3")["experts"] == "fp8-block"  # bfloat16 is stated


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("Qwen--Qwen3-32B", 128),
        ("Qwen--Qwen3-0.6B", 128),
        ("mistralai--Mistral-Nemo-Instruct-2407", 128),
        ("google--gemma-3-27b-it", 128),
        ("google--gemma-2-9b", 256),
        ("Qwen--Qwen3.5-27B", 256),
        ("MiniMaxAI--MiniMax-M1-80k", 128),
    ],
)
def test_trap_07_head_dim_is_not_hidden_over_heads(name: str, width: int) -> None:
    attention = first(model(name))
    assert attention.head_dim == width
    assert attention.num_heads * width != model(name).hidden_size


def test_trap_08_absent_kv_heads_mean_all() -> None:
    assert defaulted("drafter--eagle--EAGLE1-vicuna_7B")["num_key_value_heads"] == 32
    assert first(model("baichuan-inc--Baichuan2-7B")).num_kv_heads == 32
    assert first(model("tiiuae--falcon-7b")).num_kv_heads == 1  # multi_query
    assert first(model("tiiuae--falcon-180B")).num_kv_heads == 8  # newer decoder


def test_trap_09_latent_attention_has_no_kv_heads() -> None:
    v3 = model("deepseek-ai--DeepSeek-V3")
    assert kv_bytes_per_token(v3, DType.BF16) == 70_272 == 61 * (512 + 64) * 2
    ((_, glm), *_) = latent(model("zai-org--GLM-5.2"))
    assert (glm.qk_nope_head_dim, glm.qk_rope_head_dim, glm.v_head_dim) == (192, 64, 256)
    ((_, mini), *_) = latent(model("openbmb--MiniCPM3-4B"))
    assert mini.v_head_dim == 2560 // 40


def test_trap_10_sparse_attention() -> None:
    v32 = model("deepseek-ai--DeepSeek-V3.2")
    added = parameters_total(v32) - total("deepseek-ai--DeepSeek-V3")
    assert added / 1e9 == pytest.approx(0.85, abs=0.005)
    assert kv_bytes_per_token(v32, DType.BF16) == 61 * (576 + 128) * 2
    ((_, attention), *_) = latent(v32)
    assert float(attended_tokens(attention, 65_536.0)) == 2048
    owners = [(n, a) for n, a in latent(model("zai-org--GLM-5.2")) if a.indexer is not None]
    assert sum(repeat for repeat, _ in owners) == 21
    m3 = [run for run in model("MiniMaxAI--MiniMax-M3").layers if first_top(run) is not None]
    assert sum(run.repeat for run in m3) == 57
    ratios = {
        run.attention.ratio
        for run in model("deepseek-ai--DeepSeek-V4-Flash").layers
        if isinstance(run.attention, CompressedAttention)
    }
    assert ratios == {0, 4, 128}


def first_top(run: LayerRun) -> int | None:
    """Return the tokens that a sparse grouped-query layer picks."""
    attention = run.attention
    return attention.top_k if isinstance(attention, GroupedQueryAttention) else None


@pytest.mark.parametrize(
    "name",
    [
        "Qwen--Qwen2.5-7B", "XiaomiMiMo--MiMo-7B-Base", "microsoft--Phi-3-mini-128k-instruct",
        "microsoft--Phi-3.5-MoE-instruct",
    ],
)  # fmt: skip
def test_trap_11_sliding_windows_that_are_off(name: str) -> None:
    assert set(windowed(model(name))) == {None}


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("mistralai--Mistral-7B-v0.1", {4096: 32}),  # all layers
        ("mistralai--Mistral-7B-Instruct-v0.3", {None: 32}),
        ("openai--gpt-oss-20b", {128: 12, None: 12}),  # a list
        ("allenai--Olmo-3.1-32B-Instruct", {4096: 48, None: 16}),
        ("google--gemma-3-27b-it", {1024: 52, None: 10}),
        ("google--gemma-3-4b-it", {1024: 29, None: 5}),  # an integer pattern
        ("LGAI-EXAONE--EXAONE-4.0-32B", {4096: 48, None: 16}),  # letters
        ("google--gemma-2-9b", {4096: 21, None: 21}),  # nothing: the class
        ("XiaomiMiMo--MiMo-V2-Flash", {128: 39, None: 9}),  # 0 and 1
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", {8192: 36, None: 12}),  # chunks
    ],
)
def test_trap_12_sliding_windows_that_are_on(name: str, windows: dict[int | None, int]) -> None:
    assert windowed(model(name)) == windows


def test_trap_13_shapes_change_from_layer_to_layer() -> None:
    local, wide = (run.attention for run in model("google--gemma-4-26B-A4B").layers)
    assert isinstance(local, GroupedQueryAttention)
    assert isinstance(wide, GroupedQueryAttention)
    assert (local.head_dim, local.num_kv_heads, local.shared_kv) == (256, 8, False)
    assert (wide.head_dim, wide.num_kv_heads, wide.shared_kv) == (512, 2, True)
    searched = model("nvidia--Llama-3_3-Nemotron-Super-49B-v1")
    without = [run for run in searched.layers if isinstance(run.attention, NoAttention)]
    assert sum(run.repeat for run in without) == 31
    # 2/3 x 2.625 x 8192 = 14,336; 2/3 x 5.25 x 8192 = 28,672
    widths = {mlp.intermediate_size for _, mlp in dense(searched)}
    assert {14_336, 28_672} < widths
    assert all(width % 256 == 0 for width in widths)
    vision = model("meta-llama--Llama-3.2-90B-Vision")
    crossing = [run for run in vision.layers if isinstance(run.attention, CrossAttention)]
    assert sum(run.repeat for run in crossing) == 20
    assert kv_bytes_per_token(vision, DType.BF16) == 80 * 2 * 8 * 128 * 2


def test_trap_14_linear_mixers_have_a_fixed_state() -> None:
    following = model("Qwen--Qwen3-Next-80B-A3B-Instruct")  # only full_attention_interval
    gdn = [run for run in following.layers if isinstance(run.attention, GatedDeltaNet)]
    assert sum(run.repeat for run in gdn) == 36
    assert first(following).output_gate  # implicit: q_proj is doubled
    assert kv_bytes_per_token(following, DType.BF16) == 24_576
    m1 = model("MiniMaxAI--MiniMax-M1-80k")
    lightning = [run for run in m1.layers if isinstance(run.attention, LightningAttention)]
    assert sum(run.repeat for run in lightning) == 70
    hybrid = model("nvidia--Nemotron-H-56B-Base-8K")
    mamba = [run for run in hybrid.layers if isinstance(run.attention, Mamba2)]
    assert mamba
    assert state_bytes_per_sequence(hybrid) > 0
    # hybrid-looking, but every layer attends
    granite = model("ibm-granite--granite-4-8b-dense-hybrid")
    assert {run.attention.kind for run in granite.layers} == {"gqa"}
    assert state_bytes_per_sequence(granite) == 0


def test_trap_15_biases_and_norms() -> None:
    assert first(model("Qwen--Qwen2.5-7B")).qkv_bias  # hard-coded, no key
    glm, oss = first(model("zai-org--GLM-4.5")), first(model("openai--gpt-oss-120b"))
    assert (glm.qkv_bias, glm.output_bias) == (True, False)
    assert (oss.qkv_bias, oss.output_bias, oss.sinks) == (True, True, True)
    assert first(model("Qwen--Qwen3-8B")).qk_norm_width == "head"
    assert first(model("MiniMaxAI--MiniMax-M2.5")).qk_norm_width == "layer"
    assert first(model("allenai--OLMo-2-1124-7B")).qk_norm_width == "layer"


def test_trap_16_mlps_of_two_matrices() -> None:
    for name in ("tiiuae--falcon-7b", "microsoft--phi-2", "bigcode--starcoder2"):
        assert not dense(model(name))[0][1].gated
    ((_, mixture), *_) = experts(model("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"))
    assert not mixture.gated
    assert total("microsoft--phi-2") / 1e9 == pytest.approx(2.78, abs=0.005)
    assert dense(model("Qwen--Qwen-7B"))[0][1].intermediate_size == 11_008  # gate + up = 22,016
    assert dense(model("microsoft--Phi-3-small-8k-instruct"))[0][1].intermediate_size == 14_336
    assert dense(model("ibm-granite--granite-4-8b-dense-hybrid"))[0][1].intermediate_size == 12_800
    for name in ("moonshotai--Kimi-K3", "MiniMaxAI--MiniMax-M3", "google--gemma-7b"):
        assert all(run.mlp.gated for run in model(name).layers if run.mlp.kind != "none")


def test_trap_17_parallel_attention_and_mlp() -> None:
    for name in ("tiiuae--falcon-7b", "CohereForAI--c4ai-command-r-v01", "microsoft--phi-2"):
        assert all(run.parallel for run in model(name).layers)
    (run,) = model("CohereForAI--c4ai-command-r-v01").layers
    assert run.norms == 1


def test_reads_are_capped_and_reservations_are_not() -> None:
    spec = model("openai--gpt-oss-120b")
    assert kv_bytes_per_token(spec, DType.BF16) == 73_728
    read = float(kv_bytes_read(spec, DType.BF16, context=131_072.0))
    assert read == 18 * (131_072 + 128) * 2 * 8 * 64 * 2
