"""Any model from the command line: by path, by another name, checked, imported, regenerated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.base.names import name_rules
from roofline.base.resources import bundled_names
from roofline.importers.spec_yaml import spec_text
from roofline.specs.network import MODEL_SHELF, ModelSpec, load_model, load_network
from tests.physics import refusal, run
from tests.published import CONFIGS
from tests.support import ROOT
from workshop.model_specs import Catalogue, regenerated

FLAGS = "--acceptance 0.7 --drafter ngram --format json"


def points(reference: str | Path, options: str = FLAGS) -> object:
    """Return the answer for a model."""
    code, out, err = run(f"roofline recommend '{reference}' {options}")
    assert code == 0, err
    return json.loads(out)["points"]


def folder(tmp_path: Path, name: str, *companions: str) -> Path:
    """Return a folder as a download leaves it."""
    place = tmp_path / name
    place.mkdir()
    shutil.copy(CONFIGS / f"{name}.json", place / "config.json")
    for companion in companions:
        shutil.copy(CONFIGS / f"{name}.{companion}", place / companion)
    return place


def test_a_config_its_folder_and_its_id_answer_alike(tmp_path: Path) -> None:
    place = folder(tmp_path, "meta-llama--Meta-Llama-3.1-8B")
    answers = [points(name) for name in ("llama-3.1-8b", place, place / "config.json")]
    assert answers[0] == answers[1] == answers[2]


def test_a_folder_of_a_bundled_model_finds_its_head(tmp_path: Path) -> None:
    place = folder(tmp_path, "meta-llama--Meta-Llama-3.1-8B")
    code, out, _ = run(f"roofline recommend {place}")
    assert code == 0
    assert "llama-3.1-8b-eagle3" in out


def test_a_companion_file_changes_the_formats(tmp_path: Path) -> None:
    name = "nvidia--Llama-3.1-70B-Instruct-FP8"
    for sub in ("a", "b"):
        (tmp_path / sub).mkdir()
    with_it = folder(tmp_path / "a", name, "hf_quant_config.json")
    without = folder(tmp_path / "b", name)
    sizes = []
    for place in (with_it, without):
        code, out, _ = run(f"roofline models check {place} --format json")
        assert code == 0
        sizes.append(sum(json.loads(out)["weight_bytes"].values()))
    assert sizes[1] / sizes[0] > 1.8


def test_check_says_what_was_read_defaulted_and_ignored() -> None:
    path = CONFIGS / "openai--gpt-oss-120b.json"
    code, out, _ = run(f"roofline models check {path} --format json")
    assert code == 0
    data = json.loads(out)
    assert data["schema"] == "roofline.model/1"
    assert data["parameters_total"] == 116_829_156_672
    assert data["parameters_decode_read"] == 5_132_849_472
    assert data["kv_bytes_per_token"] == 73_728
    assert data["state_bytes_per_sequence"] == 0
    assert {entry["field"] for entry in data["defaults"]} >= {"dtype"}
    assert "swiglu_limit" in data["ignored"]
    assert sum(data["weight_bytes"].values()) / 1e9 == pytest.approx(65.25, abs=0.005)
    code, text, _ = run(f"roofline models check {path}")
    assert code == 0
    assert "experts" in text
    assert "neither dtype nor torch_dtype" in " ".join(text.split())


def test_mtp_layers_are_in_the_weights_and_not_in_the_total() -> None:
    # models.md: 671.03 B, and an MTP layer of 11.61 B
    path = CONFIGS / "deepseek-ai--DeepSeek-V3.json"
    data = json.loads(run(f"roofline models check {path} --format json")[1])
    assert data["parameters_total"] == 671_026_404_352
    assert data["mtp_layers"] == 1
    assert data["weight_bytes"]["mtp"] / 1e9 == pytest.approx(11.61, rel=0.02)


def test_import_writes_a_spec_that_answers_alike(tmp_path: Path) -> None:
    for name in ("Qwen--Qwen3-Next-80B-A3B-Instruct", "deepseek-ai--DeepSeek-V3.2"):
        path, spec = CONFIGS / f"{name}.json", tmp_path / "spec.yaml"
        code, out, _ = run(f"roofline models import {path} -o {spec}")
        assert (code, out) == (0, "")
        many = f"{FLAGS} --gpu b300-hgx --tp 8"
        assert points(spec, many) == points(path, many)


def test_other_names() -> None:
    assert load_model("meta-llama/Llama-3.1-8B-Instruct").id == "llama-3.1-8b"
    assert load_model("google/gemma-3-27b-it").id == "gemma-3-27b"


def test_the_catalogue_is_large_and_keeps_its_ids() -> None:
    networks = [load_network(name) for name in bundled_names(MODEL_SHELF)]
    models = [network for network in networks if isinstance(network, ModelSpec)]
    assert len(models) >= 90
    assert len(networks) - len(models) >= 25
    names = {network.id for network in networks}
    # ids of steps 1 and 2, and some that the issue names
    assert {
        "llama-2-7b", "llama-3.1-8b", "llama-3.1-405b", "llama-3.2-1b", "mistral-7b-v0.3",
        "mixtral-8x7b", "qwen2.5-72b", "qwen3-235b-a22b", "gemma-3-27b", "gpt-oss-20b",
        "deepseek-v3", "minimax-m2.5", "qwen3.5-397b-a17b", "llama-3.1-8b-eagle3",
        "deepseek-v4-pro", "qwen3.5-27b", "kimi-k2-instruct",
    } <= names  # fmt: skip


def test_the_specs_are_what_the_importer_writes() -> None:
    found = {f"{spec.id}.yaml": spec_text(spec) for spec in regenerated(CONFIGS)}
    shelf = ROOT / "model_specs"
    assert len(found) > 200  # any other spec was written by hand
    for name, text in found.items():
        file = shelf / name
        there = file.read_text("utf-8") if file.exists() else None
        assert there == text, f"{file} is not what make models writes: run it and commit the file"
    listed = Catalogue.load(CONFIGS / "catalogue.yaml")
    assert listed.names.aliases == name_rules(MODEL_SHELF).aliases


def test_state_handling_is_a_switch() -> None:
    base = "roofline recommend qwen3.5-27b --gpu b200-hgx --drafter mtp --acceptance 0.7"
    verify = {}
    for how in ("snapshots", "replay"):
        code, out, err = run(f"{base} --state-handling {how} --format json")
        assert code == 0, err
        (point,) = json.loads(out)["points"]
        rows = {row["draft_length"]: row for row in point["by_draft_length"]}
        verify[how] = rows[8]["verify_ms"], rows[0]["verify_ms"]
    assert verify["replay"][0] < verify["snapshots"][0]
    assert verify["replay"][1] == verify["snapshots"][1]
    assert "--state-handling" in refusal(f"{base} --state-handling undo")


def test_a_bundled_id_imports_none_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "roofline", "recommend", "llama-3.1-8b"],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    assert "roofline.specs.network" in done.stderr
    assert "roofline.importers.importing" not in done.stderr
    assert "roofline.importers.gguf" not in done.stderr


@pytest.mark.parametrize(
    "companion",
    [
        [], {"quantization": []}, {"quantization": {"quant_algo": 7}},
        {"quantization": {"quant_algo": "NVFP1"}},
    ],
)  # fmt: skip
def test_a_broken_companion_is_refused(tmp_path: Path, companion: object) -> None:
    shutil.copy(CONFIGS / "Qwen--Qwen3-8B.json", tmp_path / "config.json")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(companion))
    refusal(f"roofline models check {tmp_path}")


def test_a_device_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    assert "regular file" in refusal(f"roofline models check {tmp_path / 'zero.json'}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.json", ("missing.json", "no such file")),
        ("missing.gguf", ("missing.gguf", "no such file")),
        (".", ("config.json",)),
    ],
)
def test_paths_that_lead_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("recommend", "models check", "models import"):
        line = refusal(f"roofline {command} {name}")
        assert all(word in line for word in words)


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("deepseek-v4-flash", "b300-hgx"), ("glm-5.2", "b300-hgx"), ("kimi-k2.5", "b300-hgx"),
        ("minimax-m1-80k", "b300-hgx"), ("nvidia-nemotron-3-super-120b-a12b-nvfp4", "b200-hgx"),
        ("llama-3_3-nemotron-super-49b-v1", "h200-sxm"), ("gemma-4-26b-a4b", "h200-sxm"),
        ("mimo-v2-flash", "b300-hgx"), ("llama-4-scout-17b-16e-instruct", "b300-hgx"),
        ("falcon-40b", "h200-sxm"), ("llama-3.2-90b-vision", "b300-hgx"), ("phi-2", "h100-sxm"),
        ("kimi-k3", "gb300"), ("minimax-m3", "b300-hgx"), ("deepseek-v3.2", "b300-hgx"),
    ],
)  # fmt: skip
def test_every_kind_of_layer_gives_an_answer(model: str, gpu: str) -> None:
    tp = 8 if gpu in ("b300-hgx", "gb300") else 1
    options = f"--gpu {gpu} --tp {tp} --context 1k,2k --batch 1,16"
    code, out, err = run(f"roofline recommend {model} {options} {FLAGS} --explain")
    if code == 2 and "divisor" in err:
        fewer = options.replace("--tp 8", "--tp 4")
        code, out, err = run(f"roofline recommend {model} {fewer} {FLAGS} --explain")
    assert code == 0, err
    for point in json.loads(out)["points"]:
        times = [row["step_ms"] for row in point["by_draft_length"] if row["step_ms"] is not None]
        assert all(0 < time < 1e4 for time in times)
        assert times[-1] > 0.99 * times[0]  # nine rows take no less than one
