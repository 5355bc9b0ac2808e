"""Every bundled model and drafter: parameters, caches and heads as published."""

from __future__ import annotations

import pytest
import yaml

from roofline.base.resources import bundled_names
from roofline.importers.spec_yaml import spec_text, wrapped_spec_text
from roofline.kernels.footprint import kv_bytes_per_token, parameters_decode_read, parameters_total
from roofline.specs.formats import DType
from roofline.specs.network import DrafterSpec, load_model, load_network
from tests.physics import decode_ops, named, scalar

NETWORKS = bundled_names("model_specs")
DRAFTERS = [name for name in NETWORKS if name.endswith("-eagle3")]


# (all parameters, those one decode step reads), computed from each config.json by a separate
# script whose counts equal transformers 5.24's own on the `meta` device; entries marked * also
# equal the exact counts of keras-hub's presets (commit 71453d08f). Issue 3 names four of them.
PARAMETERS = {
    "deepseek-v3": (671_026_404_352, 36_625_603_584),
    "gemma-3-27b": (27_009_346_304, 27_009_346_304),
    "gpt-oss-120b": (116_829_156_672, 5_132_849_472),  # *
    "gpt-oss-20b": (20_914_757_184, 3_608_307_264),  # *
    "llama-2-70b": (68_976_648_192, 68_714_504_192),
    "llama-2-7b": (6_738_415_616, 6_607_343_616),  # *
    "llama-3.1-405b": (405_853_388_800, 403_752_042_496),
    "llama-3.1-70b": (70_553_706_496, 69_503_033_344),
    "llama-3.1-8b": (8_030_261_248, 7_504_924_672),  # *
    "llama-3.2-1b": (1_235_814_400, 1_235_814_400),
    "llama-3.2-3b": (3_212_749_824, 3_212_749_824),
    "minimax-m2.5": (228_689_748_992, 10_415_940_608),
    "mistral-7b-v0.3": (7_248_023_552, 7_113_805_824),  # *
    "mixtral-8x7b": (46_702_792_704, 12_748_853_248),  # *
    "qwen2.5-0.5b": (494_032_768, 494_032_768),  # *
    "qwen2.5-72b": (72_706_203_648, 71_460_495_360),  # *
    "qwen2.5-7b": (7_615_616_512, 7_070_619_136),  # *
    "qwen3.5-397b-a17b": (396_346_350_336, 16_331_922_176),
    "qwen3-0.6b": (596_049_920, 596_049_920),  # *
    "qwen3-1.7b": (1_720_574_976, 1_720_574_976),  # keras-hub presets (qwen3_1.7b_en), exact count
    "qwen3-14b": (14_768_307_200, 13_990_394_880),  # *
    "qwen3-235b-a22b": (235_093_634_560, 21_568_433_664),  # *
    "qwen3-30b-a3b": (30_532_122_624, 3_041_867_776),  # *
    "qwen3-32b": (32_762_123_264, 31_984_210_944),  # *
    "qwen3-8b": (8_190_735_360, 7_568_405_504),  # *
}

# Own weights of the EAGLE-3 heads, from their training configs (sgl-project/SpecForge) by the same
# script: projection, one layer, norms and own head; the embedding is the target's.
HEADS = {
    "gpt-oss-120b-eagle3": 307_641_600,
    "llama-3.1-70b-eagle3": 1_403_027_456,
    "llama-3.1-8b-eagle3": 424_689_664,
    "qwen3-235b-a22b-eagle3": 592_461_824,
    "qwen3-32b-eagle3": 782_520_320,
    "qwen3-8b-eagle3": 399_523_840,
}

# (layers, KV heads, head size): 2 x layers x heads x size x 2 B per token in bf16, unwindowed.
CACHES = {
    "gemma-3-27b": (62, 16, 128),
    "gpt-oss-120b": (36, 8, 64),
    "gpt-oss-20b": (24, 8, 64),
    "llama-2-70b": (80, 8, 128),
    "llama-2-7b": (32, 32, 128),
    "llama-3.1-405b": (126, 8, 128),
    "llama-3.1-70b": (80, 8, 128),
    "llama-3.1-8b": (32, 8, 128),
    "llama-3.2-1b": (16, 8, 64),
    "llama-3.2-3b": (28, 8, 128),
    "minimax-m2.5": (62, 8, 128),
    "mistral-7b-v0.3": (32, 8, 128),
    "mixtral-8x7b": (32, 8, 128),
    "qwen2.5-0.5b": (24, 2, 64),
    "qwen2.5-72b": (80, 8, 128),
    "qwen2.5-7b": (28, 4, 128),
    "qwen3.5-397b-a17b": (15, 2, 256),  # the other 45 layers are linear mixers
    "qwen3-0.6b": (28, 8, 128),
    "qwen3-1.7b": (28, 8, 128),
    "qwen3-14b": (40, 8, 128),
    "qwen3-235b-a22b": (94, 4, 128),
    "qwen3-30b-a3b": (48, 4, 128),
    "qwen3-32b": (64, 8, 128),
    "qwen3-8b": (36, 8, 128),
    "gpt-oss-120b-eagle3": (1, 8, 64),
    "llama-3.1-70b-eagle3": (1, 8, 128),
    "llama-3.1-8b-eagle3": (1, 8, 128),
    "qwen3-235b-a22b-eagle3": (1, 4, 128),
    "qwen3-32b-eagle3": (1, 8, 128),
    "qwen3-8b-eagle3": (1, 8, 128),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_spec_loads_under_its_own_name(name: str) -> None:
    network = load_network(name)
    assert network.id == name
    assert network.source
    if isinstance(network, DrafterSpec):
        target = load_model(network.target)
        assert name.startswith(f"{target.id}-")
        assert network.vocab_size == target.vocab_size
        assert network.fusion.target_hidden_size == target.hidden_size


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_a_model(name: str) -> None:
    model = load_model(name)
    assert (parameters_total(model), parameters_decode_read(model)) == PARAMETERS[name]


@pytest.mark.parametrize("name", HEADS)
def test_parameters_of_a_drafter(name: str) -> None:
    assert parameters_total(load_network(name)) == HEADS[name]


@pytest.mark.parametrize("name", CACHES)
def test_cache_bytes_per_token(name: str) -> None:
    layers, kv_heads, head_dim = CACHES[name]
    expected = 2 * layers * kv_heads * head_dim * 2
    assert kv_bytes_per_token(load_network(name), DType.BF16) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen2.5-7b", 57_344),  # issue 3, "Must hold"
        ("deepseek-v3", 70_272),  # 61 x 576 x 2; grouped-query arithmetic would say 1,748,992
        ("gpt-oss-120b", 73_728),  # as vLLM reserves it (hf-mem issue 60)
        ("llama-3.1-8b", 131_072),
        ("qwen3-8b", 147_456),
        ("qwen3-32b", 262_144),
    ],
)
def test_published_cache_bytes_per_token(name: str, expected: int) -> None:
    assert kv_bytes_per_token(load_network(name), DType.BF16) == expected


def test_attention_flops_of_64_heads() -> None:
    # InferenceX-app pull request 849: 32,768 L per layer for 64 heads of 128, not 65,536 L.
    op = named(decode_ops("llama-3.1-70b", context=1000.0), "attention")
    assert scalar(op.flops) == 32_768 * 1000
    assert op.count == 80


def test_which_of_the_first_models_have_an_mtp_layer() -> None:
    with_mtp = [name for name in PARAMETERS if load_model(name).mtp is not None]
    assert with_mtp == ["deepseek-v3", "minimax-m2.5", "qwen3.5-397b-a17b"]


def test_every_spec_is_shown_in_80_columns_with_the_same_values() -> None:
    for name in NETWORKS:
        spec = load_network(name)
        text = wrapped_spec_text(spec)
        assert max(map(len, text.splitlines())) <= 80, name
        assert yaml.safe_load(text) == yaml.safe_load(spec_text(spec)), name
