"""The thirty traps of published configs, one test each, with the file that springs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.cache import attended_tokens, kv_bytes_per_token, kv_bytes_read
from roofline.errors import InputError
from roofline.footprint import parameters_total, state_bytes_per_sequence
from roofline.hf_config.importer import import_path
from roofline.mixers import (
    CompressedAttention,
    CrossAttention,
    GatedDeltaNet,
    GroupedQueryAttention,
    LatentAttention,
    LightningAttention,
    Mamba2,
    NoAttention,
)
from roofline.model import DenseMlp, LayerRun, ModelSpec, MoeMlp
from roofline.quantization import DType
from tests.published import CONFIGS, defaulted, drafter, dtypes, imported, model, total


def windowed(spec: ModelSpec) -> dict[int | None, int]:
    """Return how many layers have each window."""
    found: dict[int | None, int] = {}
    for run in spec.layers:
        if isinstance(run.attention, GroupedQueryAttention):
            found[run.attention.window] = found.get(run.attention.window, 0) + run.repeat
    return found


def first(spec: ModelSpec) -> GroupedQueryAttention:
    """Return the first grouped-query attention."""
    found = (run.attention for run in spec.layers)
    return next(a for a in found if isinstance(a, GroupedQueryAttention))


def latent(spec: ModelSpec) -> list[tuple[int, LatentAttention]]:
    """Return the latent attentions with their layers."""
    return [
        (run.repeat, run.attention)
        for run in spec.layers
        if isinstance(run.attention, LatentAttention)
    ]


def experts(spec: ModelSpec) -> list[tuple[int, MoeMlp]]:
    """Return the mixtures with their layers."""
    return [(run.repeat, run.mlp) for run in spec.layers if isinstance(run.mlp, MoeMlp)]


def dense(spec: ModelSpec) -> list[tuple[int, DenseMlp]]:
    """Return the dense MLPs with their layers."""
    return [(run.repeat, run.mlp) for run in spec.layers if isinstance(run.mlp, DenseMlp)]


def refused(tmp_path: Path, config: object, *words: str) -> None:
    """Check that a config is refused with a line that has the words."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    with pytest.raises(InputError) as caught:
        import_path(file)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


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


def test_reads_are_capped_and_reservations_are_not() -> None:
    spec = model("openai--gpt-oss-120b")
    assert kv_bytes_per_token(spec, DType.BF16) == 73_728
    read = float(kv_bytes_read(spec, DType.BF16, context=131_072.0))
    assert read == 18 * (131_072 + 128) * 2 * 8 * 64 * 2
