"""Specs that no config describes: `make models` leaves them alone (docs/how-to/drafter.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support import ROOT
from workshop.model_specs import write_specs

CATALOGUE = """
schema: 1
models:
- {config: Qwen--Qwen3-8B.json, id: qwen3-8b, source: here}
drafters: []
aliases: {}
"""


def test_specs_written_by_hand_stay(tmp_path: Path) -> None:
    configs, shelf = tmp_path / "configs", tmp_path / "specs"
    configs.mkdir()
    shelf.mkdir()
    shutil.copy(ROOT / "model_configs" / "Qwen--Qwen3-8B.json", configs)
    (configs / "catalogue.yaml").write_text(CATALOGUE)
    (shelf / "acme-8b-eagle3.yaml").write_text("mine")
    assert write_specs(configs, shelf) == (1, ["acme-8b-eagle3.yaml"])
    assert (shelf / "acme-8b-eagle3.yaml").read_text() == "mine"
    assert "hidden_size: 4096" in (shelf / "qwen3-8b.yaml").read_text()
