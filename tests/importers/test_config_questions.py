"""What people asked of config readers elsewhere, each with the figure they met."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.importers.importing import import_path
from roofline.kernels.footprint import (
    kv_bytes_per_token,
    kv_bytes_read,
    kv_bytes_reserved,
    parameters_total,
    state_bytes,
    weight_bytes,
)
from roofline.kernels.forward import decode
from roofline.kernels.ops import Part
from roofline.specs.formats import Component, DType
from roofline.specs.mixers import GatedDeltaNet, GroupedQueryAttention, NoAttention
from roofline.specs.network import ModelSpec
from roofline.specs.placement import Placement
from tests.physics import precision_of, scalar
from tests.published import CONFIGS, defaulted, model

GIB = 2**30


def read(tmp_path: Path, config: dict[str, Any]) -> ModelSpec:
    """Return a config as a model."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    spec = import_path(file).spec
    assert isinstance(spec, ModelSpec)
    return spec


def of(name: str) -> dict[str, Any]:
    """Return a published config as data."""
    data: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return data


def attention(spec: ModelSpec) -> GroupedQueryAttention:
    """Return the first layer's grouped-query attention."""
    found = spec.layers[0].attention
    assert isinstance(found, GroupedQueryAttention)
    return found


def total_bytes(spec: ModelSpec) -> float:
    """Return the bytes of weights as published, the vision tower left out."""
    sizes = weight_bytes(spec, precision_of(spec), Placement())
    return sum(size for part, size in sizes.items() if part != Component.VISION)


def test_ask_49_nested_text_and_quantisation_configs() -> None:
    # Kimi-K2.5 read as bf16 is about 2 TB; its experts are 4-bit integers in groups of 32
    kimi = model("moonshotai--Kimi-K2.5")
    assert total_bytes(kimi) < 0.6e12
    assert 2 * parameters_total(kimi) > 2e12
    assert not model("Qwen--Qwen3.5-27B").tie_embeddings  # the flag lives at the root


@pytest.mark.parametrize(
    ("name", "stated", "guessed"),
    [
        ("Qwen--Qwen3-4B", 128, 80),
        ("mistralai--Devstral-Small-2-24B-Instruct", 128, 160),  # +25 % of KV if misread
        ("openai--gpt-oss-20b", 64, 45),  # -30 %
        ("google--gemma-3-12b-it", 256, 240),
    ],
)
def test_ask_50_head_dim_is_read_first(name: str, stated: int, guessed: int) -> None:
    spec = model(name)
    assert attention(spec).head_dim == stated
    assert spec.hidden_size // attention(spec).num_heads == guessed


def test_ask_51_missing_or_null_kv_heads_and_head_dim(tmp_path: Path) -> None:
    config = of("meta-llama--Llama-2-7b-hf")
    null = read(tmp_path, config | {"num_key_value_heads": None, "head_dim": None})
    assert (attention(null).num_kv_heads, attention(null).head_dim) == (32, 128)
    assert attention(model("Qwen--Qwen-7B")).num_kv_heads == 32
    assert attention(model("microsoft--phi-2")).num_kv_heads == 32
    assert defaulted("microsoft--phi-2")["num_key_value_heads"] == 32


# Published totals: GPT-2 (124,439,808), BLOOM-560m (559,214,592) and OPT-125m (125,239,296) as the
# libraries' own summaries print them; the shapes are those of their papers.
LEGACY = [
    (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
         "vocab_size": 50257},
        124_439_808,
    ),
    (
        {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880},
        559_214_592,
    ),
    (
        {"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072,
         "num_attention_heads": 12, "max_position_embeddings": 2048, "vocab_size": 50272},
        125_239_296,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "count"), LEGACY, ids=["gpt2", "bloom-560m", "opt-125m"])
def test_ask_52_legacy_names(tmp_path: Path, config: dict[str, Any], count: int) -> None:
    assert parameters_total(read(tmp_path, config)) == count


def test_ask_52_an_unknown_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="model_type"):
        read(tmp_path, {"model_type": "gpt5", "n_embd": 768})


def test_ask_53_kv_is_counted_layer_by_layer() -> None:
    oss = model("openai--gpt-oss-120b")
    assert kv_bytes_per_token(oss, DType.BF16) == 73_728
    assert kv_bytes_per_token(model("deepseek-ai--DeepSeek-V3"), DType.BF16) == 70_272
    full = [run for run in model("nvidia--Qwen3.6-27B-NVFP4").layers if run.attention.kind == "gqa"]
    assert sum(run.repeat for run in full) == 16  # of 64


def test_ask_53_gpt_oss_without_a_hybrid_allocator_reserves_all_layers() -> None:
    oss = model("openai--gpt-oss-120b")
    whole, capped = (
        scalar(kv_bytes_reserved(oss, DType.BF16, tokens=131_072.0, block=16, caps_windows=capped))
        for capped in (False, True)
    )
    assert whole == 131_072 * 73_728
    assert scalar(kv_bytes_read(oss, DType.BF16, context=131_072.0)) < capped < 0.51 * whole


def test_ask_53_gemma_at_131072_tokens() -> None:
    gemma = model("google--gemma-3-27b-it")
    capped = scalar(kv_bytes_read(gemma, DType.BF16, context=131_072.0))
    ignored = 131_072 * kv_bytes_per_token(gemma, DType.BF16)
    assert capped / GIB == pytest.approx(10.4, abs=0.05)
    assert ignored / GIB == pytest.approx(62.0, abs=0.05)
    assert ignored * 168 / 128 / GIB == pytest.approx(81.4, abs=0.05)  # head_dim as hidden/heads


def test_ask_55_groups_share_their_kv() -> None:
    llama = model("meta-llama--Meta-Llama-3-8B-Instruct")
    assert kv_bytes_per_token(llama, DType.BF16) == 2 * 32 * 8 * 128 * 2  # not 32 heads: 4 x over


def test_ask_56_experts_are_counted_and_a_batch_reads_their_union() -> None:
    mixtral = model("mistralai--Mixtral-8x7B-v0.1")
    assert parameters_total(mixtral) == 46_702_792_704  # not 13 B
    v3 = model("deepseek-ai--DeepSeek-V3")
    expert = next(run.mlp for run in v3.layers if run.mlp.kind == "moe")
    assert expert.kind == "moe"
    # the expert's width, not the dense layers' 18,432: nine times over
    assert expert.expert_intermediate_size * 9 == 18_432
    assert expert.shared_intermediate_size == 2048

    def moe_bytes(batch: float) -> float:
        kernels = decode(
            mixtral, precision_of(mixtral), Placement(), batch=batch, context=1.0, rows=1.0
        )
        return sum(op.count * scalar(op.bytes) for op in kernels if op.name == "experts")

    # 8 (1 - (3/4)^32) of 8 experts, against 2 of one token
    assert moe_bytes(32) / moe_bytes(1) == pytest.approx(8 * (1 - 0.75**32) / 2, rel=0.01)


def test_ask_59_tying_changes_memory_and_not_the_head(tmp_path: Path) -> None:
    config = of("meta-llama--Llama-3.2-1B")
    tied = read(tmp_path, config)
    untied = read(tmp_path, config | {"tie_word_embeddings": False})

    def head(spec: ModelSpec) -> float:
        kernels = decode(spec, precision_of(spec), Placement(), batch=1.0, context=1.0, rows=1.0)
        return sum(scalar(op.flops) for op in kernels if op.part == Part.LM_HEAD)

    assert head(tied) == head(untied) == 2 * 128_256 * 2048
    assert parameters_total(untied) - parameters_total(tied) == 128_256 * 2048
    assert total_bytes(untied) - total_bytes(tied) == 2 * 128_256 * 2048


def test_gpt_oss_weighs_65_gb() -> None:
    # models.md: experts at 4.25 bits and everything else, their biases too, at 16
    assert total_bytes(model("openai--gpt-oss-120b")) / 1e9 == pytest.approx(65.25, abs=0.005)


def test_qwen3_next_keeps_a_fixed_state() -> None:
    spec = model("Qwen--Qwen3-Next-80B-A3B-Instruct")
    states = [
        (run.repeat, state_bytes(run.attention))
        for run in spec.layers
        if isinstance(run.attention, GatedDeltaNet)
    ]
    assert sum(n * recurrent for n, (recurrent, _) in states) / 1e6 == pytest.approx(75.5, abs=0.01)
    assert sum(n * filters for n, (_, filters) in states) / 1e6 == pytest.approx(1.77, abs=0.005)
    assert kv_bytes_per_token(spec, DType.BF16) == 24_576


def test_nemotron_super_attends_in_49_of_80_layers() -> None:
    spec = model("nvidia--Llama-3_3-Nemotron-Super-49B-v1")
    idle = sum(run.repeat for run in spec.layers if isinstance(run.attention, NoAttention))
    assert (idle, spec.num_layers) == (31, 80)
