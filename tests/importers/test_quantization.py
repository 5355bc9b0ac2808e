"""Quantisation as configs write it: formats by hand from each tool's own names, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.importers.importing import import_path
from roofline.specs.formats import Component, DType
from roofline.specs.network import ModelSpec
from tests.support import Cli, assert_refused, write

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512,
    "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def read(tmp_path: Path, quantization: object) -> ModelSpec:
    """Return a small Llama that is quantised so."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA | {"quantization_config": quantization}))
    spec = import_path(file).spec
    assert isinstance(spec, ModelSpec)
    return spec


def grouped(weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a compressed-tensors config with one group."""
    group = {"weights": weights, "targets": ["Linear"]} | more
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, DType.INT8),
        ({"quant_method": "awq", "w_bit": "4", "q_group_size": 128}, DType.INT4_G128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True}, DType.INT4_G64),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}, DType.INT4_G32),
        ({"quant_method": "auto-round", "bits": 4, "group_size": -1}, DType.INT4_G128),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, DType.INT8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, DType.INT4_G128),
        ({"quant_method": "fbgemm_fp8"}, DType.FP8),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, DType.INT4_G128),
        (grouped({"num_bits": 8, "type": "float", "strategy": "channel"}), DType.FP8),
        (grouped({"num_bits": 8, "type": "float", "strategy": "block"}), DType.FP8_BLOCK),
        (grouped({"num_bits": 4, "type": "float", "group_size": 16}), DType.NVFP4),
        (grouped({"num_bits": 4, "type": "float", "group_size": 32}), DType.MXFP4),
        (grouped({"num_bits": 4, "type": "int", "group_size": 128}), DType.INT4_G128),
        (grouped({"num_bits": 8, "type": "int"}, targets=[]), DType.INT8),
        ({"config_groups": grouped({"num_bits": 8, "type": "int"})["config_groups"]}, DType.INT8),
    ],
)  # fmt: skip
def test_the_format_of_a_scheme(tmp_path: Path, quantization: dict[str, Any], dtype: DType) -> None:
    spec = read(tmp_path, quantization)
    assert spec.stored()[Component.ATTENTION] == dtype
    assert spec.stored()[Component.MLP] == dtype
    assert spec.stored()[Component.HEAD] == DType.BF16  # layers' matrices only


@pytest.mark.parametrize(
    ("more", "kv"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, DType.FP8),
        ({"kv_cache_quant_algo": "FP8"}, DType.FP8),
        ({"kv_cache_quant_algo": "NVFP4"}, DType.NVFP4),
        ({"kv_cache_quant_method": "int8"}, DType.INT8),
        ({"kv_cache_quant_algo": "none", "kv_cache_quant_method": "fp8"}, DType.FP8),
        ({"kv_cache_quant_algo": "NONE"}, None),
    ],
)
def test_the_cache_has_a_format_of_its_own(
    tmp_path: Path, more: dict[str, Any], kv: DType | None
) -> None:
    assert read(tmp_path, {"quant_method": "fp8"} | more).kv_dtype == kv


def test_a_group_may_name_its_targets(tmp_path: Path) -> None:
    """Two groups: fp8 for everything that is linear, 4-bit integers for what a pattern names."""
    spec = read(
        tmp_path,
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "wide": {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]},
                "narrow": {
                    "weights": {"num_bits": 4, "type": "int", "group_size": 128},
                    "targets": ["re:.*mlp.*"],
                },
                "odd": {"output_activations": None},  # says nothing of weights
            },
        },
    )
    assert spec.stored()[Component.ATTENTION] == DType.FP8
    assert spec.stored()[Component.MLP] == DType.INT4_G128


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ({"quant_method": "gptq", "group_size": 128}, "bits: is missing"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "3-bit integers are not known"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 16}, "group_size: 16 is not known"),
        ({"quant_method": "fp8", "ignore": "lm_head"}, "a list of module names"),
        ({"quant_method": "compressed-tensors"}, "config_groups: is missing"),
        (grouped({"num_bits": 8, "type": "complex"}), "float or int"),
        (grouped({"num_bits": 8, "type": "int"}, targets="Linear"), "a list of names"),
        ({"quant_method": "fp8", "kv_cache_quant_algo": "FP7"}, "one of FP8, INT8, NVFP4, NONE"),
        ({"quant_method": "modelopt", "quant_algo": "FP6"}, "quant_algo: 'FP6' is not known"),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": []},
            "quantized_layers",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
             "quantized_layers": {"model.layers.0.mlp.up_proj": "FP8"}},
            "quantized_layers: has no quant_algo",
        ),
        ({"quant_method": "hqq"}, "quant_method: 'hqq' is not known"),
        ({"quant_method": "fp8", "weight_block_size": [0, 0]}, "weight_block_size: expected two"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size: expected two"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, r"group_size: expected -1 .* got 0"),
        (grouped({"num_bits": 4, "type": "int", "group_size": 0}), "group_size: expected -1"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "no group says how weights"),
        (grouped({}) | {"config_groups": {"g": {"weights": None}}}, "no group says how weights"),
        (
            grouped({"num_bits": 8, "type": "int"}, input_activations={"num_bits": 3}),
            "input_activations: expected 8-bit activations",
        ),
    ],
)  # fmt: skip
def test_unknown_quantizations_are_refused(
    tmp_path: Path, quantization: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, quantization)


EIGHT_BITS = {"num_bits": 8, "type": "int"}


@pytest.mark.parametrize(
    ("quantization", "activations"),
    [
        # compressed-tensors' int-quantized (W8A8), and ModelOpt's SmoothQuant
        (grouped(EIGHT_BITS, input_activations={**EIGHT_BITS, "dynamic": True}), DType.INT8),
        ({"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"}, DType.INT8),
        # ... its W4A8, and pack-quantized (W8A16), which says nothing of activations
        (
            grouped(
                {"num_bits": 4, "type": "int", "group_size": 128},
                input_activations={"num_bits": 8, "type": "float"},
            ),
            DType.FP8,
        ),
        (grouped(EIGHT_BITS, input_activations=None), None),
        (grouped(EIGHT_BITS), None),
    ],
)
def test_integers_are_multiplied_with_the_activations_of_the_config(
    tmp_path: Path, quantization: dict[str, Any], activations: DType | None
) -> None:
    found = read(tmp_path, quantization).activations
    parts = () if activations is None else (Component.ATTENTION, Component.MLP)
    assert found == dict.fromkeys(parts, activations)


def test_groups_that_differ_in_activations_count_as_weight_only(tmp_path: Path) -> None:
    groups = {
        "both": {"weights": EIGHT_BITS, "input_activations": EIGHT_BITS, "targets": ["Linear"]},
        "one": {"weights": EIGHT_BITS, "targets": ["re:.*mlp.*"]},
    }
    spec = read(tmp_path, {"quant_method": "compressed-tensors", "config_groups": groups})
    assert spec.activations == {}
    assert "groups of int8 differ in activations: counted as weight-only" in spec.notes


def test_a_cache_alone_may_be_quantised(tmp_path: Path) -> None:
    only = {
        "quant_method": "compressed-tensors", "config_groups": {},
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    }  # fmt: skip
    spec = read(tmp_path, only)
    assert (spec.kv_dtype, spec.dtypes) == (DType.FP8, {})
    assert any("only the cache is narrow" in note for note in spec.notes)


def test_int8_activations_of_a_config_on_the_command_line(tmp_path: Path, cli: Cli) -> None:
    """The kernels are those of int8 with int8; asking for what the config has changes nothing."""
    config = LLAMA | {"quantization_config": grouped(EIGHT_BITS, input_activations=EIGHT_BITS)}
    path = write(tmp_path, "w8a8.json", json.dumps(config))
    asked = ("recommend", path, "--gpu", "a100-sxm-80gb", "--drafter", "none", "--format", "json")
    own = cli(*asked).data()
    assert own == cli(*asked, "--activations", "int8").data()
    wide = cli(*asked, "--activations", "bf16").data()
    kernels = [{line["what"] for line in found["provenance"]} for found in (own, wide)]
    assert "gemm int8" in kernels[0]
    assert "gemm int8" not in kernels[1]
    refused = cli(*asked, "--weights", "bf16", "--activations", "int8")
    assert_refused(refused, "--activations int8", "the bf16 weights of attention")
