"""Layers that change along a model: lists, patterns and searched blocks, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.importers.importing import import_path
from roofline.specs.formats import DType
from roofline.specs.mixers import GroupedQueryAttention, Mamba2
from roofline.specs.network import DenseMlp, ModelSpec
from tests.published import ABSENT, CONFIGS, changed

GRANITE = "ibm-granite--granite-4-8b-dense-hybrid"
NEMOTRON_H = "nvidia--Nemotron-H-56B-Base-8K"
NEMOTRON_3 = "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
SEARCHED = "nvidia--Llama-3_3-Nemotron-Super-49B-v1"
QWEN_NEXT = "Qwen--Qwen3-Next-80B-A3B-Instruct"
KIMI = "moonshotai--Kimi-K3"
MINIMAX = "MiniMaxAI--MiniMax-M1-80k"
SCOUT = "meta-llama--Llama-4-Scout-17B-16E-Instruct"
GEMMA = "google--gemma-3-1b"
DEEPSEEK = "deepseek-ai--DeepSeek-V4-Flash"
VISION = "meta-llama--Llama-3.2-90B-Vision"
GLM = "zai-org--GLM-5.2"
MIMO = "XiaomiMiMo--MiMo-V2-Flash"
PLAIN = "Qwen--Qwen3-8B"

#: A Mamba-2 mixer under Granite's names.
MAMBA = {
    "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 256,
    "mamba_d_conv": 4,
}  # fmt: skip


def read(tmp_path: Path, name: str, changes: dict[str, Any]) -> ModelSpec:
    """Return the changed config's model."""
    spec = import_path(changed(tmp_path, name, changes)).spec
    assert isinstance(spec, ModelSpec)
    return spec


def windows(spec: ModelSpec) -> list[int | None]:
    """Return each run's window, as often as it occurs, in the order of first occurrence."""
    found: list[int | None] = []
    for run in spec.layers:
        assert isinstance(run.attention, GroupedQueryAttention)
        found += [run.attention.window] * run.repeat
    return found


BLOCK = {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 1.0}}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (GRANITE, {"layer_types": ["attention", "gru"] * 40}, "a list of attention and mamba"),
        (NEMOTRON_H, {"hybrid_override_pattern": "M?"}, "blocks among mamba, moe"),
        (NEMOTRON_H, {"num_hidden_layers": 7}, "but the pattern has 118 blocks"),
        (NEMOTRON_H, {"mamba_ssm_cache_dtype": "int8"}, "one of float32, bfloat16, float16"),
        (NEMOTRON_3, {"n_routed_experts": ABSENT}, "n_routed_experts: is missing"),
        (SEARCHED, {"block_configs": [BLOCK]}, "a list of 80 blocks"),
        (SEARCHED, {"block_configs": [1] * 80}, "a list of objects"),
        (SEARCHED, {"block_configs": [{"ffn": {}}] * 80}, "attention and ffn: are missing"),
        (
            SEARCHED,
            {"block_configs": [BLOCK | {"ffn": {"replace_with_linear": True}}] * 80},
            "replace_with_linear: is not supported",
        ),
        (
            SEARCHED,
            {"block_configs": [BLOCK | {"attention": {"n_heads_in_group": 7}}] * 80},
            "a divisor of 64 heads",
        ),
        (SEARCHED, {"block_configs": [BLOCK | {"ffn": {"ffn_mult": -1}}] * 80}, "positive number"),
        (QWEN_NEXT, {"layer_types": ["rnn"] * 48}, "linear_attention, full_attention"),
        (
            QWEN_NEXT,
            {"layer_types": ABSENT, "full_attention_interval": ABSENT},
            "which layers attend is unknown",
        ),
        (MINIMAX, {"attn_type_list": [2] * 80}, "0 (lightning) and 1 (attention)"),
        (KIMI, {"linear_attn_config": ABSENT}, "linear_attn_config: is missing"),
        (SCOUT, {"no_rope_layers": [1, 0]}, "48 entries"),
        (GEMMA, {"layer_types": ABSENT, "sliding_window_pattern": "LXG"}, "letters L"),
        (GEMMA, {"layer_types": ["local"] * 26}, "words among"),
        (DEEPSEEK, {"compress_ratios": [4]}, "has 1 entries for 43 layers"),
        (VISION, {"cross_attention_layers": [500]}, "a list of layers below 100"),
        (GLM, {"indexer_types": ["none"] * 78}, "words among full, shared"),
        (GLM, {"mlp_layer_types": ["thick"] * 78}, "words among dense, sparse"),
        (GEMMA, {"layer_types": [1] * 26}, "a list of texts"),
        (PLAIN, {"layer_types": "full"}, "layer_types: expected a list"),
        (PLAIN, {"layer_types": ["full_attention"] * 3}, "layer_types: has 3 entries for 36"),
        (PLAIN, {"layer_types": ["zorp"] * 36}, "layer_types: expected words among"),
        (PLAIN, {"layer_types": ["mamba"] * 36}, "layer_types: expected words among"),
        (PLAIN, {"num_hidden_layers": 5000}, "at most 2000 layers"),
        (MINIMAX, {"attn_type_list": ["0"] * 80}, "a list of whole numbers"),
    ],
)
def test_a_list_that_cannot_be_is_refused(
    tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        import_path(changed(tmp_path, name, changes))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_granite_may_mix_attention_and_state_spaces(tmp_path: Path) -> None:
    """One layer in ten attends; the inner width is 128 heads of 64, twice the hidden size."""
    kinds = (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4
    spec = read(tmp_path, GRANITE, {"layer_types": kinds} | MAMBA)
    assert spec.num_layers == 40
    mixers = [(run.repeat, run.attention) for run in spec.layers]
    assert sorted(count for count, _ in mixers) == [4, 36]
    mamba = next(mixer for _, mixer in mixers if isinstance(mixer, Mamba2))
    assert mamba.state_elements == 128 * 64 * 256
    assert mamba.state_dtype == DType.FP32


def test_a_state_kept_as_the_class_chooses_is_fp32(tmp_path: Path) -> None:
    spec = read(tmp_path, NEMOTRON_H, {"mamba_ssm_cache_dtype": "auto"})
    assert {
        run.attention.state_dtype for run in spec.layers if isinstance(run.attention, Mamba2)
    } == {DType.FP32}


def test_a_searched_block_may_state_its_width(tmp_path: Path) -> None:
    """The width as given, or 2/3 of 1.5 x 8192 up to a multiple of 256: 8192."""
    stated = BLOCK | {"ffn": {"intermediate_size": 1000}}
    multiple = BLOCK | {"ffn": {"ffn_mult": 1.5}}
    skipped = BLOCK | {"ffn": {"no_op": True}}
    spec = read(tmp_path, SEARCHED, {"block_configs": [stated, multiple, skipped] + [stated] * 77})
    widths = {
        run.mlp.intermediate_size: run.repeat
        for run in spec.layers
        if isinstance(run.mlp, DenseMlp)
    }
    assert widths == {1000: 78, 8192: 1}
    assert sum(run.repeat for run in spec.layers) == 80


def test_a_pattern_of_letters_repeats(tmp_path: Path) -> None:
    """LLG over 26 layers: every third is global, 8 of them."""
    spec = read(tmp_path, GEMMA, {"layer_types": ABSENT, "sliding_window_pattern": "LLG"})
    found = windows(spec)
    assert found.count(None) == 8
    assert found.count(512) == 18


def test_the_class_has_one_global_layer_in_six(tmp_path: Path) -> None:
    absent = {"layer_types": ABSENT, "sliding_window_pattern": ABSENT}
    assert windows(read(tmp_path, GEMMA, absent)).count(None) == 4  # of 26: 6, 12, 18 and 24


def test_gemma_2_has_a_window_in_every_other_layer(tmp_path: Path) -> None:
    found = windows(read(tmp_path, "google--gemma-2-9b", {"layer_types": ABSENT}))
    assert (found.count(4096), found.count(None)) == (21, 21)


def test_qwen_windows_start_late_in_the_stack(tmp_path: Path) -> None:
    changes = {
        "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 30,
        "layer_types": ABSENT,
    }  # fmt: skip
    found = windows(read(tmp_path, PLAIN, changes))
    assert (found.count(None), found.count(4096)) == (30, 6)


def test_llama_4_lists_its_rotary_layers(tmp_path: Path) -> None:
    """Layers with rotary positions attend within a chunk; the others see everything."""
    found = windows(read(tmp_path, SCOUT, {"no_rope_layers": [1, 1, 1, 0] * 12}))
    assert (found.count(8192), found.count(None)) == (36, 12)


def test_a_falcon_of_the_old_kind_may_be_sequential(tmp_path: Path) -> None:
    spec = read(tmp_path, "tiiuae--falcon-180B", {"parallel_attn": False})
    assert {(run.norms, run.parallel) for run in spec.layers} == {(4, False)}


def test_a_text_model_inside_a_thinker(tmp_path: Path) -> None:
    inner = json.loads((CONFIGS / f"{PLAIN}.json").read_text("utf-8"))
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"thinker_config": {"text_config": inner}}))
    spec = import_path(file).spec
    assert isinstance(spec, ModelSpec)
    assert spec.num_layers == 36
    file.write_text(json.dumps({"text_config": [inner]}))
    with pytest.raises(InputError, match="text_config: expected an object"):
        import_path(file)


def test_windowed_layers_without_a_window_are_said(tmp_path: Path) -> None:
    spec = read(tmp_path, PLAIN, {"layer_types": ["sliding_attention"] * 36})
    assert set(windows(spec)) == {None}
    assert any("names windowed layers, but no window" in note for note in spec.notes)
