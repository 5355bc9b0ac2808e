"""Drafters in GGUF files, after llama.cpp b11434 (src/models/eagle3.cpp)."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.base.errors import InputError
from roofline.importers.importing import import_path
from roofline.kernels.footprint import parameters_total
from roofline.specs.formats import Component, DType
from roofline.specs.network import DrafterSpec, load_drafter
from tests import gguf_file
from tests.support import Cli, assert_refused


def head(folder: Path, raw: bytes) -> DrafterSpec:
    file = folder / "head.gguf"
    file.write_bytes(raw)
    spec = import_path(file).spec
    assert isinstance(spec, DrafterSpec)
    return spec


def test_an_eagle3_head_is_that_of_its_config(tmp_path: Path) -> None:
    """The bundled spec is read of the same head's config.json."""
    read, bundled = head(tmp_path, gguf_file.eagle3_8b()), load_drafter("llama-3.1-8b-eagle3")
    same = ("kind", "hidden_size", "vocab_size", "draft_vocab_size", "layers", "shares_head")
    assert all(getattr(read, key) == getattr(bundled, key) for key in same)
    assert parameters_total(read) == parameters_total(bundled)
    assert (read.fusion.taps, read.fusion.layer_ids) == (3, (2, 16, 29))
    stored = {Component.ATTENTION, Component.MLP, Component.HEAD}
    assert {read.dtypes[part] for part in stored} == {DType.Q8_0}


def test_a_head_without_an_output_takes_its_targets(tmp_path: Path) -> None:
    """Llama.cpp inherits llama_model::output then, over the whole vocabulary."""
    read = head(tmp_path, gguf_file.eagle3_8b(own_head=False))
    assert (read.shares_head, read.draft_vocab_size) == (True, 128_256)


def test_llamacpp_runs_it(cli: Cli, tmp_path: Path) -> None:
    target, drafter = tmp_path / "target.gguf", tmp_path / "head.gguf"
    target.write_bytes(gguf_file.llama_8b())
    drafter.write_bytes(gguf_file.eagle3_8b())
    outcome = cli(
        "recommend", str(target), "--engine", "llamacpp", "--gpu", "rtx-4090",
        "--drafter", str(drafter), "--acceptance", "0.9", "--context", "1k",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "--spec-type draft-eagle3" in outcome.out


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_other_heads_say_what_to_give(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match=rf"is a {kind} head, .*config.json"):
        head(tmp_path, gguf_file.eagle3_8b(architecture=kind))


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        # vLLM's docs/features/quantization/gguf.md from 0.28 on; 0.22.0 reads such files itself
        ("vllm", "vllm-gguf-plugin"), ("vllm@0.22", ""), ("sglang", ""), ("llamacpp", ""),
    ],
)  # fmt: skip
def test_a_gguf_target_beside_an_engine(cli: Cli, tmp_path: Path, engine: str, said: str) -> None:
    file = tmp_path / "target.gguf"
    file.write_bytes(gguf_file.llama_8b())
    outcome = cli(
        "recommend", str(file), "--engine", engine, "--gpu", "h100-sxm", "--drafter", "ngram",
        "--acceptance", "0.6", "--context", "1k", "--notes",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert ("plugin" in outcome.said) == bool(said)
    assert said in outcome.said


def test_an_engine_that_reads_no_gguf(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "target.gguf"
    file.write_bytes(gguf_file.llama_8b())
    outcome = cli("recommend", str(file), "--engine", "trtllm", "--gpu", "h100-sxm")
    assert_refused(outcome, "TensorRT-LLM reads no GGUF files", "--engine llamacpp")
