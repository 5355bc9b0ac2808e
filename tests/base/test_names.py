"""Names as people type them.

Names of devices are those that drivers print: nvidia-smi and rocm-smi, as vLLM's and TensorRT-LLM's
metrics and public logs quote them. Names of models are those of public repositories.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.advice.configuration import Configuration
from roofline.base.errors import InputError
from roofline.base.names import Meaning, bundled_id, name_rules, normal_form, on_shelf, spec_file
from roofline.base.resources import bundled_names
from roofline.importers.references import DRAFTER_WORDS, DRAFTERS, drafter_word, heads_for
from roofline.specs.engine import ENGINE_SHELF, engine_id, load_engine
from roofline.specs.formats import (
    DType,
    bytes_per_element,
    format_named,
    nearest_format,
    parse_dtype,
)
from roofline.specs.gpu import GPU_SHELF, load_hardware
from roofline.specs.network import MODEL_SHELF, ModelSpec, load_model, load_network, network_named
from tests.support import Cli, assert_refused

GPUS, MODELS = bundled_names(GPU_SHELF), bundled_names(MODEL_SHELF)


def gpu_meant(typed: str) -> Meaning:
    """Return what the shelf of accelerators knows of a name."""
    found = on_shelf(typed, GPU_SHELF)
    assert found is not None
    return found


def model_meant(typed: str) -> Meaning:
    """Return what the name of a model or drafter says."""
    found = network_named(typed)
    assert found is not None
    return found


def models_offered(said: str) -> list[str]:
    """Return the names that a refusal offers: models, and no drafter."""
    offered = re.findall(r"'([\w.-]+)'", said.partition("did you mean")[2].partition("?")[0])
    assert all(isinstance(load_network(name), ModelSpec) for name in offered)
    return offered


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("4090", "rtx-4090"), ("rtx4090", "rtx-4090"), ("RTX 3090", "rtx-3090"),
        ("M4 Max", "apple-m4-max"), ("m3ultra", "apple-m3-ultra"), ("7900 XTX", "rx-7900-xtx"),
        ("A6000", "rtx-a6000"), ("6000 Ada", "rtx-6000-ada"), ("dgx spark", "gb10-dgx-spark"),
        ("Strix Halo", "ryzen-ai-max-395"), ("Gaudi 3", "gaudi3"), ("Ironwood", "tpu-v7"),
        # as drivers print them
        ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("NVIDIA A10G", "a10g"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"), ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA B300 SXM6 AC", "b300-hgx"), ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"), ("Tesla T4", "t4"),
        ("AMD Instinct MI300X OAM", "mi300x"), ("AMD Instinct MI355X", "mi355x"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"),
    ],
)  # fmt: skip
def test_accelerators_by_other_names(typed: str, meant: str) -> None:
    found = gpu_meant(typed)
    assert (found.id, found.family) == (meant, False)


@pytest.mark.parametrize(
    ("family", "part"),
    [
        ("h100", "h100-sxm"), ("H200", "h200-sxm"), ("NVIDIA H200", "h200-sxm"),
        ("b200", "b200-hgx"), ("b300", "b300-hgx"), ("h800", "h800-sxm"),
        ("v100", "v100-sxm2-32gb"), ("HGX H100", "h100-sxm"), ("a100 80gb", "a100-sxm-80gb"),
        # of two memory sizes the one that most are sold with
        ("a100", "a100-sxm-80gb"), ("a100-pcie", "a100-pcie-80gb"), ("a100 40gb", "a100-sxm-40gb"),
        ("GH200", "gh200-96gb"), ("MI300", "mi300x"), ("MI350", "mi350x"),
    ],
)  # fmt: skip
def test_a_family_means_its_usual_part(family: str, part: str) -> None:
    found = on_shelf(family, GPU_SHELF)
    assert found is not None
    assert (found.id, found.family) == (part, True)


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        ("RTX PRO 6000", {"rtx-pro-6000-blackwell-ws", "rtx-pro-6000-blackwell-server"}),
        (
            "RTX 6000",
            {"rtx-6000-ada", "rtx-pro-6000-blackwell-ws", "rtx-pro-6000-blackwell-server"},
        ),
    ],
)  # fmt: skip
def test_several_meanings_are_listed(typed: str, parts: set[str]) -> None:
    found = gpu_meant(typed)
    assert found.id is None
    assert set(found.candidates) == parts
    with pytest.raises(InputError, match="may be") as refusal:
        spec_file(typed, GPU_SHELF, "GPU")
    assert all(part in str(refusal.value) for part in parts)


@pytest.mark.parametrize(
    "typed",
    [
        "m4",  # another chip than the M4 Max
        "NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 3090 Ti", "NVIDIA GeForce RTX 4090 Laptop GPU",
        "Tesla V100-SXM2-16GB", "MI250", "A800", "L40S 24GB x", "80gb", "sxm", "nvidia", "rtx", "",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    ],
)  # fmt: skip
def test_nothing_is_guessed(typed: str) -> None:
    assert bundled_id(typed, GPU_SHELF) is None


@pytest.mark.parametrize("name", GPUS)
def test_every_accelerator_is_known_by_its_id_and_its_own_name(name: str) -> None:
    """Punctuation and case change nothing; a full product name never means another part."""
    for typed in (name, name.upper(), name.replace("-", " "), f"NVIDIA {name}"):
        found = gpu_meant(typed)
        assert found.id == name
    product = load_hardware(name).name.partition("(")[0].partition(" - ")[0]
    assert bundled_id(product, GPU_SHELF) in (name, None)


@pytest.mark.parametrize("shelf", [GPU_SHELF, ENGINE_SHELF, MODEL_SHELF, DRAFTERS, "formats"])
def test_aliases_lead_somewhere_and_are_not_in_the_way(shelf: str) -> None:
    known: dict[str, list[str]] = {
        DRAFTERS: list(DRAFTER_WORDS), "formats": [dtype.value for dtype in DType],
    }  # fmt: skip
    ids, rules = known.get(shelf) or bundled_names(shelf), name_rules(shelf)
    forms = {normal_form(name, rules.leading): name for name in ids}
    assert len(forms) == len(ids), "two ids differ in punctuation only"
    for alias, means in rules.aliases.items():
        targets = (means,) if isinstance(means, str) else means
        assert set(targets) <= set(ids), alias
        assert forms.get(normal_form(alias, rules.leading)) in (None, *targets), alias


@pytest.mark.parametrize(
    ("typed", "model", "stored"),
    [
        ("llama-3.3-70b", "llama-3.3-70b-instruct", None),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b", None),
        ("Llama 3.1 8B", "llama-3.1-8b", None),
        ("llama3.1:8b", "llama-3.1-8b", None),
        ("google/gemma-2-27b", "gemma-2-27b-it", None),
        ("gemma-3-12b", "gemma-3-12b-it", None),
        ("Qwen3 30B A3B", "qwen3-30b-a3b", None),
        ("qwen3-235b", "qwen3-235b-a22b", None),
        ("zai-org/GLM-4.7", "glm-4.7", None),
        ("moonshotai/Kimi-K2.6", "kimi-k2.6", None),
        ("kimi-k2", "kimi-k2-instruct", None),
        # formats: the repositories of Qwen, RedHat AI, NVIDIA and Unsloth
        ("Qwen/Qwen3-14B-FP8", "qwen3-14b", "fp8"),
        ("Qwen/Qwen3-14B-AWQ", "qwen3-14b", "int4-g128"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b", "int4-g128"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b-instruct", "fp8"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "llama-3.3-70b-instruct", "nvfp4"),
        ("Qwen3-32B-NVFP4", "qwen3-32b", "nvfp4"),
        ("unsloth/Qwen3-32B-GGUF:Q4_K_M", "qwen3-32b", "q4_k_m"),
        ("Qwen3-32B-UD-Q4_K_XL", "qwen3-32b", "q4_k_xl"),
        ("bartowski/Qwen2.5-32B-Instruct-GGUF:Q4_K_L", "qwen2.5-32b", "q4_k_l"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b-thinking-2507", "fp8"),
        ("Qwen3-VL-8B-Thinking", "qwen3-vl-8b-thinking", None),
        ("llama-3.1-8b-bf16", "llama-3.1-8b", "bf16"),
        # a checkpoint that is in the catalogue is itself
        ("Qwen/Qwen3-8B-FP8", "qwen3-8b-fp8", None),
        ("nvidia/Kimi-K2.6-NVFP4", "kimi-k2.6-nvfp4", None),
    ],
)  # fmt: skip
def test_models_by_other_names(typed: str, model: str, stored: str | None) -> None:
    found = model_meant(typed)
    assert (found.id, found.storage) == (model, stored)


@pytest.mark.parametrize(
    "typed",
    ["llama-3.1", "qwen3.14b", "glm-49b", "qwen3-14b-q9", "gpt-oss", "unsloth/Qwen3-32B-GGUF"],
)
def test_models_are_not_guessed(typed: str) -> None:
    assert network_named(typed) is None


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("llama-3.1", ["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"]),
        ("gpt-oss", ["gpt-oss-20b", "gpt-oss-120b"]),
        # the models of the Qwen3 report (arXiv 2505.09388, tables 1 and 2), the smallest first
        ("Qwen/Qwen3", ["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b"]),
        ("kimi-k2.5-eagle", ["kimi-k2.5"]),
        ("gemma 3", ["gemma-3-1b", "gemma-3-4b-it", "gemma-3-12b-it", "gemma-3-27b"]),
    ],
)  # fmt: skip
def test_the_models_that_a_name_begins_are_offered(cli: Cli, typed: str, first: list[str]) -> None:
    assert models_offered(cli("recommend", typed).err)[: len(first)] == first


@given(st.sampled_from(MODELS), st.integers(3, 30))
def test_no_drafter_is_offered_as_a_model(name: str, length: int) -> None:
    with pytest.raises(InputError) as refusal:
        load_model(f"{name[:length]}-x")
    models_offered(str(refusal.value))


def test_drafters_are_offered_where_one_is_asked_for(cli: Cli) -> None:
    assert "'qwen3-8b-eagle3'" in cli("models", "show", "qwen3-8b-eagle").err
    asked = cli("recommend", "llama-3.1-8b", "--drafter", "llama-3.1-8b-eagl")
    assert_refused(asked, "'llama-3.1-8b-eagle3'")


def test_the_kind_that_a_spec_states_is_its_own() -> None:
    whole = [name for name in MODELS if isinstance(load_network(name), ModelSpec)]
    assert bundled_names(MODEL_SHELF, kind="model") == whole


@given(st.sampled_from(MODELS), st.sampled_from(["-", " ", "_", ""]), st.booleans())
def test_models_whatever_the_punctuation(name: str, gap: str, upper: bool) -> None:
    """Gaps may be anything, but for those between two digits: qwen3-14b is not qwen31-4b."""
    typed = re.sub(r"(?<!\d)-|-(?!\d)", gap, name)
    found = model_meant(typed.upper() if upper else typed)
    assert (found.id, found.storage) == (name, None)


@pytest.mark.parametrize("name", MODELS)
def test_every_repository_leads_to_its_spec(name: str) -> None:
    repository = load_network(name).repository
    if repository is not None:
        found = model_meant(repository)
        assert found.id == name


@pytest.mark.parametrize("alias", name_rules(MODEL_SHELF).aliases)
def test_no_other_name_of_a_model_is_that_of_another_checkpoint(alias: str) -> None:
    """Releases of one shape differ by a date or version: these have specs of their own.

    What an alias says beside the name of its spec are words that change nothing.
    """
    rules = name_rules(MODEL_SHELF)
    means = rules.aliases[alias]
    assert isinstance(means, str)
    spec = load_network(means)
    if isinstance(spec, ModelSpec):
        known = f"{means} {spec.repository} instruct".lower()
        numbers = set(re.findall(r"[a-z]*[0-9][a-z0-9]*", alias.lower()))
        assert numbers <= set(re.findall(r"[a-z]*[0-9][a-z0-9]*", known))


#: Names that earlier versions took, and the specs that they meant.
TAKEN = {
    "gemma-3-27b-it": "gemma-3-27b", "llama-2-13b-hf": "llama-2-13b",
    "llama-2-70b-chat-hf": "llama-2-70b", "llama-2-70b-hf": "llama-2-70b",
    "llama-2-7b-chat-hf": "llama-2-7b", "llama-2-7b-hf": "llama-2-7b",
    "llama-3-8b-instruct": "llama-3-8b", "llama-3.1-405b-instruct": "llama-3.1-405b",
    "llama-3.1-70b-instruct": "llama-3.1-70b", "llama-3.1-8b-instruct": "llama-3.1-8b",
    "llama-3.2-1b-instruct": "llama-3.2-1b", "llama-3.2-3b-instruct": "llama-3.2-3b",
    "meta-llama-3-70b": "llama-3-70b", "meta-llama-3-70b-instruct": "llama-3-70b",
    "meta-llama-3-8b": "llama-3-8b", "meta-llama-3-8b-instruct": "llama-3-8b",
    "meta-llama-3.1-405b": "llama-3.1-405b", "meta-llama-3.1-70b": "llama-3.1-70b",
    "meta-llama-3.1-70b-instruct": "llama-3.1-70b", "meta-llama-3.1-8b": "llama-3.1-8b",
    "meta-llama-3.1-8b-instruct": "llama-3.1-8b",
    "mistral-7b-instruct-v0.3": "mistral-7b-v0.3",
    "mixtral-8x22b-instruct-v0.1": "mixtral-8x22b", "mixtral-8x22b-v0.1": "mixtral-8x22b",
    "mixtral-8x7b-instruct-v0.1": "mixtral-8x7b", "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "qwen2.5-0.5b-instruct": "qwen2.5-0.5b", "qwen2.5-1.5b-instruct": "qwen2.5-1.5b",
    "qwen2.5-14b-instruct": "qwen2.5-14b", "qwen2.5-32b-instruct": "qwen2.5-32b",
    "qwen2.5-3b-instruct": "qwen2.5-3b", "qwen2.5-72b-instruct": "qwen2.5-72b",
    "llama-3.3-70b-instruct": "llama-3.3-70b-instruct", "vicuna-7b-v1.3": "vicuna-7b-v1.3",
    "qwen3-coder-30b-a3b-instruct": "qwen3-coder-30b-a3b-instruct", "qwen3.8-27b": "qwen3.8-27b",
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_names_that_were_taken_still_are(name: str) -> None:
    assert bundled_id(name, MODEL_SHELF) == TAKEN[name]


@pytest.mark.parametrize(
    ("typed", "engine"),
    [
        ("llama.cpp", "llamacpp"), ("llama-cpp", "llamacpp"), ("TensorRT-LLM", "trtllm"),
        ("trt-llm", "trtllm"), ("TRTLLM", "trtllm"), ("vLLM", "vllm"), ("SGLang", "sglang"),
        # eras are those of the engine's file: 0.10 is a release of 2025
        ("vLLM@2025", "vllm@2025"), ("vllm==0.10.1", "vllm@2025"), ("vLLM==0.24", "vllm==0.24"),
        ("llama.cpp b11434", "llamacpp==b11434"),
    ],
)  # fmt: skip
def test_engines_by_other_names(typed: str, engine: str) -> None:
    profile, asked = load_engine(typed), Configuration(model="qwen3-8b", engine=typed)
    assert engine_id(asked.engine, profile) == engine
    assert profile.overhead == load_engine(engine).overhead


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("EAGLE3", "eagle3"), ("eagle-3", "eagle3"), ("Eagle 1", "eagle1"), ("MTP", "mtp"),
        ("NEXTN", "mtp"), ("n-gram", "ngram"), ("NGRAM", "ngram"), ("DFlash", "dflash"),
        ("P-EAGLE", "peagle"), ("None", "none"), ("qwen3-0.6b", None), ("head/config.json", None),
        ("heads/eagle3", None), ("acme/EAGLE-3", None),
    ],
)  # fmt: skip
def test_drafters_by_other_names(typed: str, kind: str | None) -> None:
    assert drafter_word(typed) == kind


def test_eagle_alone_is_not_guessed() -> None:
    with pytest.raises(InputError, match="'eagle' may be eagle3 or eagle1"):
        drafter_word("eagle")


@pytest.mark.parametrize(
    ("typed", "dtype"),
    [
        ("FP8", DType.FP8), ("Q4_K_M", DType.Q4_K_M), ("q4-k-m", DType.Q4_K_M),
        ("Q4_K_L", DType.Q4_K_L), ("Q4_K_XL", DType.Q4_K_XL), ("UD-Q4_K_XL", DType.Q4_K_XL),
        ("FP8-dynamic", DType.FP8),
        ("NVFP4", DType.NVFP4), ("AWQ", DType.INT4_G128), ("bfloat16", DType.BF16),
        ("4.7BPW", DType("4.7bpw")), ("instruct", None), ("int4", None), ("q9", None),
    ],
)  # fmt: skip
def test_formats_by_other_names(typed: str, dtype: DType | None) -> None:
    assert format_named(typed) == dtype


@given(st.sampled_from(list(DType)))
def test_every_format_in_any_case(dtype: DType) -> None:
    assert parse_dtype(dtype.value.upper(), "kv") == dtype


#: What `llama-quantize --help` lists (llama.cpp tools/quantize/quantize.cpp, QUANT_OPTIONS), its
#: retired names of blocks that interleave, and the endings of files by Unsloth and bartowski.
GGUF_NAMES = [
    "Q4_0", "Q4_1", "MXFP4_MOE", "Q5_0", "Q5_1", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ1_S",
    "IQ1_M", "TQ1_0", "TQ2_0", "Q2_K", "Q2_K_S", "IQ3_XXS", "IQ3_S", "IQ3_M", "Q3_K", "IQ3_XS",
    "Q3_K_S", "Q3_K_M", "Q3_K_L", "IQ4_NL", "IQ4_XS", "Q4_K", "Q4_K_S", "Q4_K_M", "Q5_K", "Q5_K_S",
    "Q5_K_M", "Q6_K", "Q8_0", "F16", "BF16", "F32", "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8",
    "IQ4_NL_4_4", "UD-TQ1_0", "UD-IQ1_S", "UD-IQ1_M", "UD-IQ2_XXS", "UD-IQ2_M", "UD-IQ3_XXS",
    "UD-IQ3_S", "UD-IQ4_XS", "UD-IQ4_NL", "UD-Q2_K_XL", "UD-Q3_K_S", "UD-Q3_K_M", "UD-Q3_K_XL",
    "UD-Q4_K_S", "UD-Q4_K_M", "UD-Q4_K_XL", "UD-Q5_K_S", "UD-Q5_K_M", "UD-Q5_K_XL", "UD-Q6_K",
    "UD-Q6_K_XL", "UD-Q8_K_XL", "Q2_K_L", "Q2_K_XL", "Q3_K_XL", "Q4_K_L", "Q4_K_XL", "Q5_K_L",
    "Q5_K_XL", "Q6_K_L", "Q6_K_XL", "Q8_K_XL",
]  # fmt: skip
#: Those that no format stands for as they are.
TAKEN_AS = {
    "Q2_K_S": "q2_k", "Q2_K_XL": "q2_k_l", "UD-Q2_K_XL": "q2_k_l",
    "Q3_K_XL": "q3_k_l", "UD-Q3_K_XL": "q3_k_l", "Q5_K_XL": "q5_k_m", "UD-Q5_K_XL": "q5_k_m",
    "Q6_K_XL": "q6_k_l", "UD-Q6_K_XL": "q6_k_l", "Q8_K_XL": "q8_0", "UD-Q8_K_XL": "q8_0",
}  # fmt: skip


@pytest.mark.parametrize("name", GGUF_NAMES)
def test_every_name_of_a_gguf_file_is_a_format(name: str) -> None:
    """Its digits are those of its bits, scales at most one more; a stand-in is the nearest name."""
    dtype = format_named(name)
    assert dtype is not None
    assert format_named(name.lower()) == format_named(name.title()) == dtype
    digits = re.search(r"\d+", name)
    assert digits is not None
    if "IQ" not in name and "TQ" not in name:
        assert int(digits[0]) <= 8 * bytes_per_element(dtype) <= int(digits[0]) + 1.3
    assert nearest_format(dtype) == (DType(TAKEN_AS[name]) if name in TAKEN_AS else None)


@pytest.mark.parametrize("name", TAKEN_AS)
def test_what_a_format_is_taken_as_is_said(cli: Cli, name: str) -> None:
    ask = ("recommend", "qwen3-8b", "--gpu", "4090", "--engine", "llamacpp", "--drafter", "none")
    done = cli(*ask, "--weights", name, "--notes")
    assert done.code == 0, done.err
    said = f"{format_named(name)} is taken as {TAKEN_AS[name]}, the nearest format of that name"
    assert said in " ".join(done.said.split())
    other = cli(*ask, "--weights", TAKEN_AS[name], "--notes")
    assert "is taken as" not in other.said
    steps = [
        cli(*ask, "--weights", each, "--format", "json").by_draft_length()[0]["step_ms"]
        for each in (name, TAKEN_AS[name])
    ]
    assert steps[0] == steps[1]


def test_a_file_of_mxfp4_experts_has_the_size_that_is_published(cli: Cli) -> None:
    """ggml-org/gpt-oss-120b-GGUF: 59.02 GiB (llama.cpp benches/dgx-spark.md); the rest is q8_0."""
    ask = ("memory", "gpt-oss-120b", "--gpu", "gb10-dgx-spark", "--drafter", "none", "--batch", "1")
    for named in ((), ("--weights", "mxfp4_moe")):
        done = cli(*ask, "--engine", "llamacpp", *named, "--context", "512", "--format", "json")
        held = done.data()["contexts"][0]["accounts"][0]["bytes"]
        weights = sum(size for part, size in held.items() if part.endswith("weights"))
        assert weights / 2**30 == pytest.approx(59.02, rel=0.003)


def test_the_mixture_of_unsloth_has_the_bits_of_its_file() -> None:
    """Qwen3.5-27B: 17.6 GB for 26.9 B weights, 5.234 bits (ggml-org/Llama-macOS pull 63)."""
    assert 8 * bytes_per_element(DType.Q4_K_XL) == pytest.approx(8 * 17.6 / 26.9, abs=1e-4)


@pytest.mark.parametrize("name", [name for name in MODELS if "-eagle3" not in name])
def test_a_quantised_copy_has_the_heads_of_its_model(name: str) -> None:
    if isinstance(load_network(name), ModelSpec):
        base = name.removesuffix("-fp8").removesuffix("-nvfp4")
        assert heads_for(name).items() >= heads_for(base).items()


@pytest.mark.parametrize(
    "flags",
    [
        ["--gpu", "rtx-4090,rtx-3090"], ["--engine", "vllm,sglang"], ["--drafter", "eagle3,mtp"],
        ["--weights", "fp8,bf16"], ["--kv", "fp8,bf16"], ["--draft-weights", "fp8,bf16"],
    ],
)  # fmt: skip
def test_a_list_where_one_is_meant(cli: Cli, flags: list[str]) -> None:
    assert_refused(cli("recommend", "llama-3.1-8b", *flags), "one kind only", "sweep", flags[1])


def test_a_list_of_models_numbers_or_words(cli: Cli) -> None:
    assert_refused(cli("recommend", "llama-3.1-8b,qwen3-8b"), "one kind only", "sweep")
    assert_refused(cli("recommend", "llama-3.1-8b", "--tp", "1,2"), "one only", "sweep")
    assert_refused(
        cli("recommend", "llama-3.1-8b", "--verify-attention", "tile,kv_once"), "one value only"
    )


def test_the_first_sentence_says_which_part_was_taken(cli: Cli) -> None:
    said = " ".join(
        cli("recommend", "llama-3.1-8b", "--gpu", "h100").out.partition("\n\n")[0].split()
    )
    assert "(h100 means h100-sxm.)" in said
    exact = cli("recommend", "llama-3.1-8b", "--gpu", "h100-sxm").out
    assert "means" not in exact


def test_the_ending_of_a_name_sets_the_format(cli: Cli) -> None:
    named = cli("recommend", "Qwen/Qwen3-14B-FP8", "--format", "json").data()
    given_ = cli("recommend", "qwen3-14b", "--weights", "fp8", "--format", "json").data()
    assert named["inputs"]["weights"] == given_["inputs"]["weights"]
    said = " ".join(cli("recommend", "Qwen/Qwen3-14B-FP8", "--notes").out.split())
    assert "fp8 weights, as the name Qwen/Qwen3-14B-FP8 ends" in said
    wide = cli("recommend", "Qwen3-14B-FP8", "--weights", "bf16", "--format", "json").data()
    assert set(wide["inputs"]["weights"].values()) == {"bf16"}


def test_a_name_never_takes_a_model_off_the_format_it_ships_in(cli: Cli) -> None:
    """gpt-oss has MXFP4 experts and bf16 attention; DeepSeek-V3's FP8 is in blocks."""
    for name, plain in (("gpt-oss-20b-mxfp4", "gpt-oss-20b"), ("DeepSeek-V3-FP8", "deepseek-v3")):
        many = ["--gpu", "b200", "--tp", "8", "--format", "json"]
        assert (
            cli("recommend", name, *many).data()["inputs"]["weights"]
            == cli("recommend", plain, *many).data()["inputs"]["weights"]
        )


@pytest.mark.parametrize(
    "typed",
    ["llamacpp@11434", "llamacpp@b11434", "llamacpp==11434", "llama.cpp b11434", "llama.cpp 11434"],
)
def test_a_build_is_named_with_or_without_its_b(typed: str) -> None:
    assert load_engine(typed).release == "b11434"


@pytest.mark.parametrize(
    "typed",
    [
        "Llama-3.1-8B-Instruct.Q4_K_M.gguf",
        "Llama-3.1-8B-Instruct-Q4_K_M-00001-of-00002.gguf",
        "https://hf.co/a/b-GGUF/blob/main/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf?download=true",
        "hf.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M",
    ],
)
def test_the_names_of_files(typed: str) -> None:
    named = network_named(typed)
    assert named is not None
    assert (named.id, named.storage) == ("llama-3.1-8b", "q4_k_m")


@pytest.mark.parametrize(
    "typed",
    [
        "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct/",
    ],
)
def test_addresses_and_trailing_slashes(typed: str) -> None:
    assert bundled_id(typed, MODEL_SHELF) == "llama-3.1-8b"
