"""``show`` and ``check`` of models and accelerators: any path, units, and every fault of a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from roofline.base.errors import FaultsError, InputError
from roofline.base.schema import Document, _homes
from roofline.specs.gpu import HardwareProfile
from roofline.specs.network import ModelSpec
from tests.published import CONFIGS
from tests.support import GPU, MODEL, Cli, write


@pytest.mark.parametrize(
    ("config", "bundled"),
    [("Qwen--Qwen3-8B.json", "qwen3-8b"), ("openai--gpt-oss-120b.json", "gpt-oss-120b")],
)
def test_a_published_config_is_shown_as_its_spec(cli: Cli, config: str, bundled: str) -> None:
    shown = cli("models", "show", str(CONFIGS / config), "--format", "json").data()
    known = cli("models", "show", bundled, "--format", "json").data()
    assert shown["spec"]["layers"] == known["spec"]["layers"]
    assert shown["parameters"] == known["parameters"]
    assert "layers:" in cli("models", "show", str(CONFIGS / config)).out


def test_a_shown_config_can_be_kept_and_used(cli: Cli, tmp_path: Path) -> None:
    text = cli("models", "show", str(CONFIGS / "Qwen--Qwen3-8B.json")).out
    path = write(tmp_path, "own.yaml", text)
    assert cli("models", "check", path).code == 0


def test_figures_have_the_units_of_the_field(cli: Cli) -> None:
    """NVIDIA's datasheet of the T4: 16 GB, 320 GB/s, 65 TFLOP/s in fp16, 70 W."""
    lines = cli("hardware", "show", "t4").out.splitlines()
    shown = dict(
        re.split(r": +", line, maxsplit=1)
        for line in lines
        if line.startswith(("memory", "comp", "tdp"))
    )
    assert shown["memory.capacity"].startswith("16 GB,")
    assert shown["memory.bandwidth"].startswith("320 GB/s,")
    assert shown["compute.peaks.fp16"].startswith("65 TFLOP/s,")
    assert shown["tdp"].startswith("70 W,")
    figures = cli("hardware", "show", "t4", "--format", "json").data()["figures"]
    assert (figures["memory.capacity"]["value"], figures["memory.capacity"]["unit"]) == (16e9, "B")


#: What is wrong in each file, and the field that the fault stands under.
BROKEN = {
    "hardware": (
        GPU,
        {"vendor:": "vendr:", "64 GB": "64 metres", "kind: link": "knd: link"},
        ("vendr", "64 metres", "knd"),
    ),
    "models": (
        MODEL,
        {"vocab_size: 1000": "vocab_size: many", "hidden_size": "hiden_size"},
        ("many", "hiden_size"),
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_check_names_every_fault(cli: Cli, tmp_path: Path, what: str) -> None:
    text, changes, words = BROKEN[what]
    for right, wrong in changes.items():
        assert right in text
        text = text.replace(right, wrong)
    path = write(tmp_path, "broken.yaml", text)
    outcome = cli(what, "check", path)
    assert outcome.code == 2
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert all(line.startswith("roofline: broken.yaml: ") for line in lines)
    for word in words:
        assert any(word in line for line in lines), word
    # elsewhere one line tells the first, and how many there are
    other = {"hardware": ("recommend", "qwen3-8b", "--gpu", path), "models": ("recommend", path)}
    (line,) = cli(*other[what]).err.splitlines()
    assert line == f"{lines[0]} (and {len(lines) - 1} more)"


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_without_its_version_names_every_other_fault(
    cli: Cli, tmp_path: Path, what: str
) -> None:
    text, changes, _ = BROKEN[what]
    for right, wrong in changes.items():
        text = text.replace(right, wrong)
    with_version = cli(what, "check", write(tmp_path, "own.yaml", text)).err.splitlines()
    path = write(tmp_path, "own.yaml", text.replace("schema: 1\n", ""))
    first, *others = cli(what, "check", path).err.splitlines()
    assert first == "roofline: own.yaml: schema: is missing; add 'schema: 1'"
    assert others == with_version
    # of another version nothing is known
    other = write(tmp_path, "own.yaml", text.replace("schema: 1\n", "schema: 2\n"))
    (line,) = cli(what, "check", other).err.splitlines()
    assert "schema: expected 1" in line


@pytest.mark.parametrize(
    ("what", "change", "words"),
    [
        ("hardware", ("compute:\n", "peaks: {}\ncompute:\n"),
         "peaks: unknown key 'peaks' here; it belongs in 'compute'"),
        ("hardware", ("memory:\n", "memory:\n  release_year: 2025\n"),
         "memory.release_year: unknown key 'release_year' here; it belongs at the top level"),
        ("hardware", ("sources:\n", "source:\n"),
         "source: unknown key 'source'; did you mean 'sources'?"),
        ("models", ("layers:\n", "head_dim: 64\nlayers:\n"),
         "head_dim: unknown key 'head_dim' here; it belongs in 'attention'"),
        ("models", ("kind: gqa,", "kind: gqa, vocab_size: 9,"),
         "vocab_size: unknown key 'vocab_size' here; it belongs at the top level"),
        ("models", ("layers:\n", "kind_: 9\nlayers:\n"),
         "unknown key 'kind_'; did you mean 'kind'?"),
    ],
)  # fmt: skip
def test_a_key_in_the_wrong_place_is_told_its_own(
    cli: Cli, tmp_path: Path, what: str, change: tuple[str, str], words: str
) -> None:
    text = BROKEN[what][0]
    assert change[0] in text
    err = cli(what, "check", write(tmp_path, "own.yaml", text.replace(*change))).err
    assert words in err, err


@pytest.mark.parametrize("what", BROKEN)
@given(data=st.data())
def test_no_key_is_suggested_for_itself(what: str, data: st.DataObject) -> None:
    """Whichever known key stands at the top of a file, and whatever it should hold."""
    schemas: dict[str, type[Document]] = {"hardware": HardwareProfile, "models": ModelSpec}
    model = schemas[what]
    whole = yaml.safe_load(BROKEN[what][0])
    key = data.draw(st.sampled_from(sorted(_homes(model))))
    try:
        model.of_data(whole | {key: "odd"}, "own.yaml")
    except FaultsError as error:
        for fault in error.faults:
            asked = re.search(r"unknown key '(\w+)'; did you mean '(\w+)'", fault)
            assert asked is None or asked[1] != asked[2], fault
    except InputError:  # the version itself
        assert key == "schema"


def test_check_names_every_fault_of_a_config(cli: Cli, tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "Qwen--Qwen3-8B.json").read_text("utf-8"))
    del config["hidden_size"]
    changed = {"vocab_size": "many", "num_attention_heads": 0, "tie_word_embeddings": "yes"}
    path = write(tmp_path, "config.json", json.dumps(config | changed))
    outcome = cli("models", "check", path)
    assert (outcome.code, outcome.out) == (2, "")
    lines = sorted(outcome.err.splitlines())
    keys = [line.removeprefix("roofline: config.json: ").split(":")[0] for line in lines]
    assert [key.split(" ")[0] for key in keys] == sorted(["hidden_size", *changed])
    assert "(and 3 more)" in cli("recommend", path).err


def test_a_key_in_which_a_layer_is_at_fault_is_named_once(cli: Cli, tmp_path: Path) -> None:
    """What depends on a stand-in is no fault of the file."""
    config = json.loads((CONFIGS / "openai--gpt-oss-120b.json").read_text("utf-8"))
    path = write(tmp_path, "config.json", json.dumps(config | {"num_hidden_layers": "all"}))
    (line,) = cli("models", "check", path).err.splitlines()
    assert "num_hidden_layers: expected a whole number, got 'all'" in line
