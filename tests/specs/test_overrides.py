"""``--set``: the same answer as from edited files, in every command, or one line of refusal."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.base import resources
from roofline.base.schema import Document, as_json
from roofline.specs.engine import load_engine
from roofline.specs.gpu import load_hardware
from roofline.specs.mixers import GroupedQueryAttention, LatentAttention
from roofline.specs.network import (
    MODEL_SHELF,
    DrafterSpec,
    ModelSpec,
    MoeMlp,
    load_model,
    load_network,
)
from roofline.specs.overrides import _scalar, apply_overrides, parse_override, spread_layers
from tests.support import DRAFTER, ENGINE, GPU, MODEL, Cli, assert_refused, write

LOADERS: dict[str, Callable[[str], Document]] = {
    MODEL_SHELF: load_network,
    "hardware_profiles": load_hardware,
    "engines": load_engine,
}


def model_with(model: ModelSpec, *texts: str) -> ModelSpec:
    return apply_overrides(model, [parse_override(text) for text in texts])[0]


@pytest.mark.parametrize("shelf", LOADERS)
def test_every_document_survives_being_written_and_read(shelf: str) -> None:
    for name in resources.bundled_names(shelf):
        document = LOADERS[shelf](name)
        assert type(document).check(as_json(document), name) == document


# what is typed, and the same change made in the file by hand
EDITS = [
    ("attention.num_kv_heads=4", "model", ("num_kv_heads: 2", "num_kv_heads: 4")),
    ("group_size=8", "model", ("num_kv_heads: 2", "num_kv_heads: 1")),
    ("model.num_layers=5", "model", ("repeat: 2", "repeat: 5")),
    ("layers=5", "model", ("repeat: 2", "repeat: 5")),
    ("head_dim=128", "model", ("head_dim: 64", "head_dim: 128")),
    ("mlp.intermediate_size=2k", "model", ("size: 1024,", "size: 2048,")),
    ("mlp.gated=false", "model", ("gated: true", "gated: false")),
    ("model.layers.0.mlp.intermediate_size=2048", "model", ("size: 1024,", "size: 2048,")),
    ("model.kv_dtype=fp8", "model", ("dtype: bf16", "dtype: bf16\nkv_dtype: fp8")),
    ("drafter.layers=2", "drafter", ("repeat: 1", "repeat: 2")),
    ("drafter.draft_vocab_size=250", "drafter", ("vocab_size: 500", "vocab_size: 250")),
    ("drafter.attention.num_kv_heads=8", "drafter", ("num_kv_heads: 2", "num_kv_heads: 8")),
    ("gpu.memory.bandwidth=500 GB/s", "gpu", ("1 TB/s", "500 GB/s")),
    ("gpu.compute.peaks.bf16=50 TFLOP/s", "gpu", ("value: 100 TFLOP/s", "value: 50 TFLOP/s")),
    ("engine.overhead.per_spec_round=3 ms", "engine", ("0.7 ms", "3 ms")),
    ("engine.overhead.floor_scale=0.5", "engine", ("{per_step", "{floor_scale: 0.5, per_step")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "which", "edit"), EDITS, ids=[text for text, _, _ in EDITS])
def test_a_set_is_the_file_edited_by_hand(
    cli: Cli, tmp_path: Path, text: str, which: str, edit: tuple[str, str]
) -> None:
    texts = {"model": MODEL, "drafter": DRAFTER, "gpu": GPU, "engine": ENGINE}
    plain = {name: write(tmp_path, f"{name}.yaml", text) for name, text in texts.items()}
    assert edit[0] in texts[which]
    edited = plain | {which: write(tmp_path, "edited.yaml", texts[which].replace(*edit, 1))}

    def asked(paths: dict[str, str], *more: str) -> object:
        outcome = cli(
            "recommend", paths["model"], "--gpu", paths["gpu"], "--engine", paths["engine"],
            "--drafter", paths["drafter"], "--acceptance", "0.7", "--batch", "64", "--format",
            "json", *more,
        )  # fmt: skip
        return outcome.data()["points"]

    assert asked(plain, "--set", text) == asked(edited)
    assert asked(plain) != asked(edited)  # the change matters, so the test can fail


def test_a_path_stands_for_all_layers_and_a_number_for_one() -> None:
    gemma = load_model("gemma-3-27b")  # runs with and without a window
    assert {run.attention.window for run in gemma.layers} == {1024, None}
    every = model_with(gemma, "attention.window=512")
    assert {run.attention.window for run in every.layers} == {512}
    one = model_with(gemma, "model.layers.0.attention.window=512")
    assert [run.attention.window for run in one.layers][1:] == [
        run.attention.window for run in gemma.layers
    ][1:]
    assert one.layers[0].attention.window == 512


def test_only_layers_that_have_the_value_change() -> None:
    deepseek = load_model("deepseek-v3")  # 3 dense layers, 58 with experts, one for MTP
    fewer = model_with(deepseek, "experts=64", "top_k=4")
    assert [type(run.mlp) for run in fewer.layers] == [type(run.mlp) for run in deepseek.layers]
    assert fewer.mtp is not None
    mlps = [run.mlp for run in (*fewer.layers, fewer.mtp) if isinstance(run.mlp, MoeMlp)]
    assert [(mlp.num_experts, mlp.top_k) for mlp in mlps] == [(64, 4)] * 2
    assert all(isinstance(run.attention, LatentAttention) for run in fewer.layers)


def test_overrides_are_applied_in_order_and_checked_together() -> None:
    llama = load_model("llama-3.1-70b")  # 64 heads over 8
    both = model_with(llama, "attention.num_heads=48", "group_size=16")
    attention = both.layers[0].attention
    assert isinstance(attention, GroupedQueryAttention)
    assert (attention.num_heads, attention.num_kv_heads) == (48, 3)
    # 3 KV heads alone would not divide 64
    again = model_with(llama, "attention.num_kv_heads=3", "attention.num_heads=48")
    assert again == both


def test_printed_answers_name_the_overridden_value() -> None:
    _, changes = apply_overrides(
        load_hardware("h200-sxm"), [parse_override("gpu.memory.bandwidth=4 TB/s")]
    )
    assert list(map(str, changes)) == ["gpu.memory.bandwidth = 4 TB/s (was 4.80 TB/s)"]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(0, 200))
def test_layers_are_spread_in_proportion(repeats: list[int], more: int) -> None:
    total = len(repeats) + more
    found = spread_layers(repeats, total)
    assert sum(found) == total
    assert min(found) >= 1
    ordered = sorted(zip(repeats, found, strict=True))
    assert all(b[1] >= a[1] - 1 for a, b in pairwise(ordered))
    assert spread_layers(repeats, sum(repeats)) == repeats


REFUSED = [
    ("group_size", "PATH=VALUE"),
    ("=4", "PATH=VALUE"),
    ("group_size=", "PATH=VALUE"),
    ("grup_size=4", "did you mean 'group_size'"),
    ("attention=4", "unknown path"),
    ("model=4", "unknown path; 'model' is a group of values: name one of them, or ask sweep"),
    ("group_size=3", "divisor of its 32 query heads"),
    ("group_size=0", "at least 1"),
    ("group_size=2.5", "whole number"),
    ("layers=0", "at least 1"),
    ("attention.num_kv_head=4", "did you mean 'num_kv_heads'"),
    ("attention.num_kv_heads=four", "integer"),
    ("attention.num_kv_heads=0", "greater than 0"),
    ("attention.num_kv_heads=true", "integer"),
    ("attention.num_kv_heads=3", "must be a multiple"),
    ("attention.num_kv_heads.x=3", "nothing below 'num_kv_heads'"),
    ("model.layers.7.repeat=3", "has no '7'"),
    ("model.layers.0=3", "is a group"),
    ("model.mtp.repeat=3", "nothing below 'mtp'"),
    ("model.id=other", "has no 'id'"),
    ("model.kv_dtype=fp3", "fp3"),
    ("experts=8", "has no 'num_experts'"),
    ("drafter.layers=x", "whole number"),
    ("drafter.vocab_size=1000", "exceeds vocab_size"),
    ("gpu.memory.bandwith=4 TB/s", "did you mean 'bandwidth'"),
    ("gpu.memory.bandwidth=4", "4.8 TB/s"),
    ("gpu.memory.bandwidth=4.5", "4.8 TB/s"),
    ("gpu.memory.bandwidth=4 TB", "4.8 TB/s"),
    ("gpu.compute.peaks.fp5=1 PFLOP/s", "fp5"),
    ("gpu.sources.x=4", "has no 'sources'"),
    ("engine.overhead.per_step=fast", "0.5 ms"),
    ("engine.memory.fraction=2", "less than or equal to 1"),
    ("engine.flags.eagle3=x", "has no 'flags'"),
    ("engine.graphs.steps=4", "has no 'steps'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=[text for text, _ in REFUSED])
def test_a_wrong_set_is_one_line(cli: Cli, text: str, said: str) -> None:
    line = assert_refused(cli("recommend", "llama-3.1-8b", "--set", text), said)
    assert "--set" in line


def test_more_refusals(cli: Cli) -> None:
    twice = ["--set", "group_size=2", "--set", "group_size=4"]
    assert_refused(cli("recommend", "llama-3.1-8b", *twice), "--set group_size", "twice")
    ngram = ["--drafter", "ngram", "--acceptance", "0.5", "--set", "drafter.layers=2"]
    assert_refused(cli("recommend", "llama-3.1-8b", *ngram), "--set drafter.layers=2", "ngram")
    assert_refused(cli("recommend", "deepseek-v3", "--set", "group_size=2"), "num_kv_heads")
    assert_refused(cli("recommend", "deepseek-v3", "--set", "layers=1"), "at least 2")
    # a head reads what it was made for
    wide = ["--set", "model.hidden_size=8192"]
    assert_refused(cli("recommend", "llama-3.1-8b", *wide), "reads hidden states of 4096")


@pytest.mark.parametrize("command", ["recommend", "schedule", "compare", "memory"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_every_answer_states_what_was_set(cli: Cli, command: str, form: str) -> None:
    outcome = cli(
        command, "llama-3.1-8b", "--set", "group_size=2", "--set", "drafter.layers=3", "--set",
        "gpu.tdp=650 W", "--format", form,
    )  # fmt: skip
    if form == "table":
        said = " ".join(outcome.out.split())
        for change in ("group_size = 2 (was 4)", "drafter.layers = 3 (was 1)", "gpu.tdp = 650 W"):
            assert change in said
        assert all(len(line) <= 80 or "--spec" in line for line in outcome.out.splitlines())
        return
    data = outcome.data()
    stated = data["set"] if "set" in data else data["inputs"]["set"]
    assert {"path": "group_size", "value": "2", "was": "4"} in stated
    assert {"path": "drafter.layers", "value": "3", "was": "1"} in stated
    assert len(stated) == 3


@pytest.mark.parametrize("command", ["recommend", "schedule", "compare"])
def test_csv_states_the_override(cli: Cli, command: str) -> None:
    with_set = cli(command, "llama-3.1-8b", "--set", "group_size=2", "--format", "csv").out
    (first, *_) = csv.DictReader(io.StringIO(with_set))
    assert first["set"] == "group_size = 2 (was 4)"
    assert "set" not in cli(command, "llama-3.1-8b", "--format", "csv").out.splitlines()[0]


def test_an_engines_text_has_it_on_stderr(cli: Cli) -> None:
    outcome = cli("schedule", "llama-3.1-8b", "--set", "group_size=2", "--format", "vllm")
    assert "group_size" not in outcome.out
    assert "Set: group_size = 2 (was 4)." in outcome.err


def test_a_given_bandwidth_is_no_datasheet_figure(cli: Cli) -> None:
    data = cli(
        "recommend", "llama-3.1-8b", "--set", "gpu.memory.bandwidth=2 TB/s", "--format", "json"
    ).data()
    given_ = [entry for entry in data["provenance"] if entry["kind"] == "given"]
    assert [entry["what"] for entry in given_] == ["gpu.memory.bandwidth"]
    (figures,) = (e for e in data["provenance"] if e["what"] == "bandwidth and peaks")
    assert "given" in figures["source"]


def test_a_derived_head_follows_the_changed_target(cli: Cli) -> None:
    asked = ["recommend", "llama-2-13b", "--drafter", "eagle3", "--acceptance", "0.7", "--format"]
    plain = cli(*asked, "json").data()["points"][0]["by_draft_length"]
    wider = cli(*asked, "json", "--set", "mlp.intermediate_size=27648")
    assert wider.data()["points"][0]["by_draft_length"][2]["draft_ms"] > plain[2]["draft_ms"]
    assert isinstance(load_network("llama-3.1-8b-eagle3"), DrafterSpec)


def test_a_value_below_zero_is_a_number() -> None:
    """Whether it makes sense is for the place that takes it."""
    assert [_scalar(text) for text in ("-3", "-0.5", "-x")] == [-3, -0.5, "-x"]
