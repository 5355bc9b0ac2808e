"""What published configs do not say: refused in one line that names the key, or read and noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.importers.config_files import read_source
from roofline.importers.drafter_config import build_drafter, drafter_kind
from roofline.importers.importing import import_path
from roofline.importers.model_config import Identity
from roofline.specs.mixers import Mamba2
from roofline.specs.network import DrafterSpec, ModelSpec
from tests.published import ABSENT, CONFIGS, changed, imported

GEMMA = "google--gemma-4-26B-A4B"
DEEPSEEK = "deepseek-ai--DeepSeek-V3"
V4 = "deepseek-ai--DeepSeek-V4-Flash"
MIXTRAL = "mistralai--Mixtral-8x7B-v0.1"
PLAIN = "Qwen--Qwen3-8B"
SPARK = "drafter--specforge--qwen3-8b-dspark"
KIMI = "moonshotai--Kimi-K3"


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (GEMMA, {"num_kv_shared_layers": 2}, "num_kv_shared_layers: is not supported yet"),
        (GEMMA, {"layer_types": ABSENT}, "layer_types: expected a list of sliding_attention"),
        (V4, {"compress_ratios": ABSENT}, "compress_ratios: expected a list of 43 ratios"),
        # 7168 hidden over 100 heads leaves a rest
        (DEEPSEEK, {"v_head_dim": ABSENT, "num_attention_heads": 100}, "v_head_dim: is missing"),
        (MIXTRAL, {"num_experts_per_tok": ABSENT}, "num_experts_per_tok: is missing; add it"),
        (SPARK, {"dflash_config": {"projector_type": "dspark"}}, "target_layer_ids: is missing"),
    ],
)
def test_a_key_without_which_nothing_can_be_counted(
    tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        import_path(changed(tmp_path, name, changes))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mixer_listed_twice_leaves_a_layer_without(tmp_path: Path) -> None:
    inner = json.loads((CONFIGS / f"{KIMI}.json").read_text("utf-8"))
    linear = (inner.get("text_config") or inner)["linear_attn_config"]
    twice = linear | {"kda_layers": [*linear["kda_layers"][:-1], linear["kda_layers"][0]]}
    with pytest.raises(InputError, match=r"expected every layer from 1 to \d+ once"):
        import_path(changed(tmp_path, KIMI, {"linear_attn_config": twice}))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (PLAIN, {"blocksparse_block_size": 64}, "block-sparse attention is counted as full"),
        (DEEPSEEK, {"attention_bias": True}, "attention_bias on latent attention is not counted"),
    ],
)
def test_ignored_keys_are_noted(
    tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    notes = import_path(changed(tmp_path, name, changes)).notes
    assert [words in note for note in notes].count(True) == 1


def test_a_list_of_ratios_that_fits_has_nothing_for_mtp(tmp_path: Path) -> None:
    """V4-Flash states 44 ratios for 43 layers, the last for its MTP layer."""
    ratios = json.loads((CONFIGS / f"{V4}.json").read_text("utf-8"))["compress_ratios"]
    assert any("past 43 are MTP's" in note for note in imported(f"{V4}.json").notes)
    found = import_path(changed(tmp_path, V4, {"compress_ratios": ratios[:43]}))
    assert not any("are MTP's" in note for note in found.notes)
    assert found.spec.layers == imported(f"{V4}.json").spec.layers


def test_sparse_attention_that_is_switched_off_is_full(tmp_path: Path) -> None:
    name = "MiniMaxAI--MiniMax-M3"
    whole = imported(f"{name}.json").spec
    assert any(getattr(run.attention, "top_k", None) for run in whole.layers)
    data = json.loads((CONFIGS / f"{name}.json").read_text("utf-8"))
    inner = data.get("text_config") or data
    off = inner["sparse_attention_config"] | {"use_sparse_attention": False}
    spec = import_path(changed(tmp_path, name, {"sparse_attention_config": off})).spec
    assert {getattr(run.attention, "top_k", None) for run in spec.layers} == {None}


def test_granite_of_mixers_alone(tmp_path: Path) -> None:
    mamba = {
        "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 256,
        "mamba_d_conv": 4, "layer_types": ["mamba"] * 40,
    }  # fmt: skip
    spec = import_path(changed(tmp_path, "ibm-granite--granite-4-8b-dense-hybrid", mamba)).spec
    (run,) = spec.layers
    assert (run.repeat, type(run.attention)) == (40, Mamba2)


def test_mtp_layers_that_nothing_tells_of_are_left_out(tmp_path: Path) -> None:
    """Without an attention layer there is none that an MTP layer could be like."""
    mamba = {
        "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 256,
        "mamba_d_conv": 4, "layer_types": ["mamba"] * 40, "num_nextn_predict_layers": 1,
    }  # fmt: skip
    found = import_path(changed(tmp_path, "ibm-granite--granite-4-8b-dense-hybrid", mamba))
    assert isinstance(found.spec, ModelSpec)
    assert found.spec.mtp is None
    assert any("MTP layers cannot be told" in note for note in found.notes)


def test_mtp_may_be_switched_off(tmp_path: Path) -> None:
    name = "MiniMaxAI--MiniMax-M2.5"
    whole = imported(f"{name}.json").spec
    assert isinstance(whole, ModelSpec)
    assert whole.mtp is not None
    off = import_path(changed(tmp_path, name, {"use_mtp": False})).spec
    assert isinstance(off, ModelSpec)
    assert off.mtp is None


def test_a_block_drafter_is_known_by_its_config_alone() -> None:
    assert drafter_kind({"dflash_config": {}}) == "dflash"
    assert drafter_kind({"dflash_config": {"projector_type": "domino"}}) == "domino"


def test_a_whole_model_is_no_drafter() -> None:
    source = read_source(CONFIGS / f"{PLAIN}.json")
    identity = Identity(id="x", name="X", source="here", repository=None, license=None)
    with pytest.raises(InputError, match="is a whole model, not a drafter"):
        build_drafter(source, identity)


def test_a_dspark_head_without_confidence(tmp_path: Path) -> None:
    """Markov: 2 x 151,936 x 256 weights; confidence: a row over 4096 + 256, and its bias."""
    data = json.loads((CONFIGS / f"{SPARK}.json").read_text("utf-8"))
    config = data["dflash_config"] | {"enable_confidence_head": False}
    bare = import_path(changed(tmp_path, SPARK, {"dflash_config": config})).spec
    whole = imported(f"{SPARK}.json").spec
    assert isinstance(bare, DrafterSpec)
    assert isinstance(whole, DrafterSpec)
    assert bare.side_parameters == 2 * 151_936 * 256
    assert whole.side_parameters - bare.side_parameters == 4096 + 256 + 1


def test_an_algorithm_called_none_changes_nothing(tmp_path: Path) -> None:
    """ModelOpt names an algorithm by module; that of the only one named is none."""
    named = {"model.layers.0.mlp.up_proj": {"quant_algo": "NONE"}}
    quantization = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": named,
    }
    spec = import_path(changed(tmp_path, PLAIN, {"quantization_config": quantization})).spec
    assert isinstance(spec, ModelSpec)
    assert spec.dtypes == {}


def test_experts_in_fp4_beside_layers_in_no_format(tmp_path: Path) -> None:
    """Only beside FP8 layers do FP4 experts run with FP8 activations."""
    spec = import_path(changed(tmp_path, MIXTRAL, {"expert_dtype": "fp4"})).spec
    assert isinstance(spec, ModelSpec)
    assert spec.activations == {}


def test_too_large_a_file_and_too_many_values_are_no_config(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(" " * 4_000_001)
    with pytest.raises(InputError, match=r"config\.json: 4000001 bytes; a config has at most"):
        import_path(file)
    file.write_text(json.dumps({"a": [[]] * 150_000}))
    with pytest.raises(InputError, match=r"more than 150000 values; this is no config"):
        import_path(file)


def test_a_number_beyond_floats_is_no_config(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"a": 1e999}')
    with pytest.raises(InputError, match="a number is too large"):
        import_path(file)


@pytest.mark.parametrize("ignored", [["x" * 301], [f"model.layers.1.a{n}*" for n in range(2001)]])
def test_a_list_of_ignored_modules_has_an_end(tmp_path: Path, ignored: list[str]) -> None:
    scheme = {
        "quant_method": "compressed-tensors", "ignore": ignored,
        "config_groups": {
            "group_0": {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}
        },
    }  # fmt: skip
    with pytest.raises(InputError, match="modules"):
        import_path(changed(tmp_path, PLAIN, {"quantization_config": scheme}))


def test_a_width_in_words_is_no_number(tmp_path: Path) -> None:
    name = "nvidia--Llama-3_3-Nemotron-Super-49B-v1"
    block = {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": "wide"}}
    with pytest.raises(InputError, match="ffn_mult: expected a number"):
        import_path(changed(tmp_path, name, {"block_configs": [block] * 80}))
