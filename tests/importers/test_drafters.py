"""Drafters from published configs: recognised, paired with their target, or derived and said so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.importers.drafter_config import drafter_kind
from roofline.importers.importing import import_path
from roofline.specs.mixers import GroupedQueryAttention, LatentAttention
from roofline.specs.network import DrafterSpec, load_drafter, load_model
from roofline.specs.published_heads import published_heads
from tests.physics import refusal, run
from tests.published import CONFIGS, DRAFTERS, MODELS, drafter
from tests.support import ROOT, Cli, assert_refused
from workshop.published_heads import heads


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_is_recognised(name: str) -> None:
    kind = drafter_kind(json.loads((CONFIGS / name).read_text()))
    words = {
        "peagle": "peagle", "dspark": "dspark", "domino": "domino", "dflare": "dflash",
        "dflash": "dflash", "medusa": "medusa", "EAGLE1": "eagle1",
    }  # fmt: skip
    expected = next((k for word, k in words.items() if word in name), "eagle3")
    assert kind == expected


@pytest.mark.parametrize("name", MODELS)
def test_no_model_is_taken_for_a_drafter(name: str) -> None:
    assert drafter_kind(json.loads((CONFIGS / name).read_text())) is None


def test_a_config_as_the_speculators_library_nests_it(tmp_path: Path) -> None:
    plain = json.loads((CONFIGS / "drafter--specforge--llama3-8B-eagle3.json").read_text())
    nested = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32_000,
        "eagle_aux_hidden_state_layer_ids": [2, 16, 29],
        "transformer_layer_config": {
            key: plain[key]
            for key in (
                "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                "vocab_size", "max_position_embeddings", "num_hidden_layers",
            )
        },
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(nested))
    spec = import_path(file).spec
    assert isinstance(spec, DrafterSpec)
    assert spec.fusion.layer_ids == (2, 16, 29)
    assert spec.layers == drafter("specforge--llama3-8B-eagle3").layers


def test_own_heads_and_ffn() -> None:
    first = drafter("specforge--llama3-8B-eagle3").layers[0]
    assert isinstance(first.attention, GroupedQueryAttention)
    assert first.attention.input_size == 2 * 4096  # embedding and hidden state
    assert first.norms == 3
    parallel = drafter("specforge--qwen3-8b-peagle")
    assert parallel.num_layers == 4
    wide = [
        run.repeat
        for run in parallel.layers
        if isinstance(run.attention, GroupedQueryAttention) and run.attention.input_size
    ]
    assert wide == [1]
    latent = drafter("torchspec--kimi_k25_eagle3_mla").layers[0].attention
    assert isinstance(latent, LatentAttention)
    assert latent.input_size == 2 * 7168


def test_block_drafters_keep_their_block() -> None:
    flash, spark = drafter("specforge--qwen3-8b-dflash"), drafter("specforge--qwen3-8b-dspark")
    assert (flash.block_size, spark.block_size) == (16, 7)
    assert flash.shares_head
    assert flash.fusion.layer_ids == (1, 9, 17, 25, 33)


def test_medusa_needs_its_target() -> None:
    with pytest.raises(InputError, match="give target with the model"):
        import_path(CONFIGS / "drafter--medusa--medusa-vicuna-7b-v1.3.json")


# Pairs that do not belong together -----------------------------------------------------------


def test_the_classic_small_and_large_qwen() -> None:
    line = refusal("roofline recommend qwen2.5-7b --drafter qwen2.5-0.5b --acceptance 0.7")
    assert "151936" in line
    assert "152064" in line


def test_a_head_of_another_hidden_size() -> None:
    path = CONFIGS / "drafter--specforge--qwen3-8b-eagle3.json"
    line = refusal(f"roofline recommend qwen3-32b --drafter {path} --acceptance 0.7")
    assert "4096" in line
    assert "5120" in line


def test_a_head_that_taps_a_layer_beyond_the_target(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "drafter--specforge--qwen3-8b-dflash.json").read_text())
    config["dflash_config"]["target_layer_ids"] = [1, 60]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    line = refusal(f"roofline recommend qwen3-8b --drafter {file} --acceptance 0.7")
    assert "layer 60" in line
    assert "36 layers" in line


def test_a_drafter_is_no_target() -> None:
    path = CONFIGS / "drafter--specforge--qwen3-8b-eagle3.json"
    assert "drafter" in refusal(f"roofline recommend {path} --acceptance 0.7")


def test_a_published_head_by_path_is_the_bundled_one() -> None:
    path = CONFIGS / "drafter--specforge--qwen3-8b-eagle3.json"
    answers = [
        run(f"roofline recommend qwen3-8b --drafter {name} --acceptance 0.7 --format json")
        for name in (path, "eagle3")
    ]
    rows = [json.loads(out)["points"][0]["by_draft_length"] for code, out, _ in answers if not code]
    assert len(rows) == 2
    assert rows[0] == rows[1]


def inner(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in an answer."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from inner(item)


def test_a_derived_head_is_labelled_assumed() -> None:
    code, out, _ = run("roofline recommend llama-3.2-3b --drafter eagle3 --acceptance 0.7")
    assert code == 0
    assert "derived" in out
    code, out, _ = run(
        "roofline recommend llama-3.2-3b --drafter eagle3 --acceptance 0.7 --format json"
    )
    said = [entry["source"] for entry in inner(json.loads(out)) if entry.get("kind") == "assumed"]
    assert any("derived" in line for line in said)


def test_bundled_drafters_fit_their_targets() -> None:
    for name in (
        "qwen3-8b-dflash",
        "qwen3.6-27b-dspark",
        "kimi-k2.5-eagle3",
        "mixtral-8x7b-eagle1",
    ):
        head = load_drafter(name)
        target = load_model(head.target)
        assert head.vocab_size == target.vocab_size
        assert head.fusion.target_hidden_size == target.hidden_size


def test_a_published_head_is_known_by_its_repository(cli: Cli) -> None:
    """Kind and target are those of its row in values.csv, its maker that of its owner."""
    asked = ("--gpu", "h100-sxm", "--drafter", "redhatai/Qwen3-32B-speculator.eagle3")
    for model in ("qwen3-32b", "qwen3-32b-fp8"):
        answer = cli("recommend", model, *asked, "--notes")
        assert answer.code == 0
        assert '"method": "eagle3", "model": "RedHatAI/Qwen3-32B-speculator.eagle3"' in answer.said
        assert "its shape is that of the bundled qwen3-32b-eagle3" in answer.said
        assert "expected of public runs of qwen3-32b-speculator.eagle3" in answer.said
    told = cli("acceptance", "explain", "qwen3-32b", *asked).out
    assert re.search("trained by +RedHat", told)
    assert_refused(cli("recommend", "qwen3-8b", *asked), "was made for qwen3-32b", "eagle3")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("some/thing-eagle3", ("drafter repository 'some/thing-eagle3'", "config.json", "kind")),
        ("no/such", ("drafter repository 'no/such'", "config.json", "kind")),
        ("Qwen/Qwen3-0.6", ("did you mean", "qwen3-0.6b")),
        ("unsloth/Qwen3.5-0.8B-GGUF", ("several formats",)),
    ],
)
def test_an_unknown_repository_says_what_to_give(
    cli: Cli, name: str, words: tuple[str, ...]
) -> None:
    answer = cli("recommend", "qwen3-8b", "--gpu", "h100-sxm", "--drafter", name)
    assert_refused(answer, *words)


def test_the_names_of_heads_are_those_of_the_table() -> None:
    """`python -m workshop.published_heads` writes them; each target is one model's name."""
    stored = {
        head.repository: {
            "kind": head.kind,
            "target": head.target,
            **({"trained_context": head.trained_context} if head.trained_context else {}),
        }
        for head in published_heads().values()
    }
    assert stored == heads()
    assert stored["yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"] == {
        "kind": "eagle3",
        "target": "llama-3.1-8b",
        "trained_context": 2048,
    }
    assert len(stored) >= 35


def test_no_bundled_head_needs_code_of_its_own() -> None:
    """So no flag beside it says --trust-remote-code.

    vLLM 0.33.0 (transformers_utils/config.py, HFConfigParser) asks for it where a config's class
    is in the repository (auto_map has AutoConfig), and both engines have the heads' own classes
    (registry.py: DFlashDraftModel, DSparkDraftModel, Qwen3DSparkModel; SGLang, models/dflash.py).
    """
    folder = ROOT / "model_configs"
    configs = [json.loads(file.read_text("utf-8")) for file in folder.glob("drafter--*.json")]
    assert len(configs) > 40
    assert all("AutoConfig" not in config.get("auto_map", {}) for config in configs)
