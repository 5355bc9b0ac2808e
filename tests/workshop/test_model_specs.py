"""`make models`: published configs become specs; a spec written by hand stays and is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roofline.base.schema import load_yaml
from roofline.specs.network import ModelSpec
from tests.published import CONFIGS
from tests.support import ROOT
from workshop import model_specs

CATALOGUE = """\
schema: 1
models:
- {config: Qwen--Qwen3-8B.json, id: qwen3-8b, repository: Qwen/Qwen3-8B, source: here}
drafters: []
names: {}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the package's folder of an invented checkout with one config and an own spec."""
    package = tmp_path / "roofline"
    for folder in (package / "data", tmp_path / "model_configs", tmp_path / "model_specs"):
        folder.mkdir(parents=True)
    shutil.copy(CONFIGS / "Qwen--Qwen3-8B.json", tmp_path / "model_configs")
    (tmp_path / "model_configs" / "catalogue.yaml").write_text(CATALOGUE)
    (tmp_path / "model_specs" / "own.yaml").write_text("schema: 1\n")
    monkeypatch.setattr(model_specs, "files", lambda _: package)
    return package


def test_specs_of_the_catalogue_are_written(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_specs.main()
    shelf = package.parent / "model_specs"
    assert {file.name for file in shelf.iterdir()} == {"qwen3-8b.yaml", "own.yaml"}
    assert (shelf / "own.yaml").read_text() == "schema: 1\n"
    assert ModelSpec.load(shelf / "qwen3-8b.yaml").num_layers == 36
    assert load_yaml(package / "data" / "model_specs.aliases.yaml") == {"schema": 1}
    said = "1 specs and 0 aliases written\nleft as they are, by hand: own.yaml\n"
    assert capsys.readouterr().out == said


def test_a_config_that_cannot_be_read_changes_nothing(package: Path) -> None:
    (package.parent / "model_configs" / "Qwen--Qwen3-8B.json").write_text("{}")
    with pytest.raises(SystemExit) as stop:
        model_specs.main()
    assert str(stop.value.code).startswith("roofline: Qwen--Qwen3-8B.json: ")
    assert [file.name for file in (package.parent / "model_specs").iterdir()] == ["own.yaml"]


def test_specs_written_by_hand_stay(tmp_path: Path) -> None:
    configs, shelf = tmp_path / "configs", tmp_path / "specs"
    configs.mkdir()
    shelf.mkdir()
    shutil.copy(ROOT / "model_configs" / "Qwen--Qwen3-8B.json", configs)
    (configs / "catalogue.yaml").write_text(CATALOGUE)
    (shelf / "acme-8b-eagle3.yaml").write_text("mine")
    assert model_specs.write_specs(configs, shelf) == (1, ["acme-8b-eagle3.yaml"])
    assert (shelf / "acme-8b-eagle3.yaml").read_text() == "mine"
    assert "hidden_size: 4096" in (shelf / "qwen3-8b.yaml").read_text()
