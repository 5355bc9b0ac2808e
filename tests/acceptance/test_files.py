"""The bundled curves: every file holds, names its source, and is in the index.

``python -m tests.acceptance.test_files`` writes the index anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.acceptance import ACCEPTANCE_SHELF, load_acceptance
from roofline.acceptance.files import (
    INDEX_COLUMNS,
    INDEX_FILE,
    AcceptanceFile,
    bundled_curves,
    index_text,
    load_file,
)
from roofline.base import resources
from tests.support import Cli, assert_refused

NAMES = resources.bundled_names(ACCEPTANCE_SHELF)
FOLDER = Path(str(resources.shelf(ACCEPTANCE_SHELF)))


def test_the_index_says_what_the_files_say() -> None:
    assert (FOLDER / INDEX_FILE).read_text("utf-8") == index_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_curve_can_be_used_and_has_an_origin(name: str) -> None:
    _, file = load_file(name)
    assert file.target
    assert file.drafter
    assert file.source
    assert file.license in ("Apache-2.0", "MIT", "published figures, cited")
    for dataset in file.dataset_ids():
        made = load_acceptance(f"{name}#{dataset}" if dataset else name)
        assert made.deepest >= 1
        assert made.label.startswith(file.drafter)
        assert len(made.table) > 1


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        # the projects' own numbers: InferenceX golden, SpecForge data.json, DSpark Table 1,
        # SPEED-Bench by domain, vLLM issue 20780, TensorRT-LLM blog 01
        ("qwen3.5-397b-mtp-coding", {1: 1.93, 4: 3.97, 8: 5.21}),
        ("kimi-k2.5-eagle3-coding", {1: 1.83, 8: 3.77}),
        ("qwen3-30b-a3b-eagle3-specforge#gsm8k", {3: 2.64, 5: 3.011, 7: 3.149}),
        ("qwen3-8b-eagle3-deepspec#gsm8k", {7: 5.3}),
        ("deepseek-r1-mtp-speedbench#roleplay", {3: 2.14}),
        ("llama-3.1-8b-eagle1", {2: 2.1, 3: 2.29}),
        ("deepseek-r1-mtp", {1: 1.92, 2: 2.58, 3: 2.82}),
        # accepted over drafted: 1 + 0.355 x 3, 1 + 0.25 x 5
        ("nemotron-nano-8b-eagle3-commerce", {3: 2.065, 5: 2.25}),
        # survival: 1 + 0.7568 + 0.6011
        ("inkling-mtp-gsm8k", {2: 2.3579}),
    ],
)
def test_bundled_values(reference: str, expected: dict[int, float]) -> None:
    table = load_acceptance(reference).table
    assert {d: table[d] for d in expected} == pytest.approx(expected, abs=1e-4)


def test_a_lookup_opens_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    load = AcceptanceFile.load

    def counting(file: Path) -> AcceptanceFile:
        opened.append(file.name)
        return load(file)

    monkeypatch.setattr(AcceptanceFile, "load", staticmethod(counting))
    load_acceptance("glm-5.2-mtp-coding")
    assert opened == ["glm-5.2-mtp-coding.yaml"]
    bundled_curves()
    assert len(opened) == 1


def test_list(cli: Cli) -> None:
    rows = cli("acceptance", "list", "--format", "json").data()
    assert [row["id"] for row in rows] == NAMES
    assert set(rows[0]) == set(INDEX_COLUMNS)
    some = cli("acceptance", "list", "--match", "specforge", "--format", "json").data()
    assert {row["license"] for row in some} == {"MIT"}
    assert_refused(cli("acceptance", "list", "--match", "nothing-like-it"), "nothing-like-it")
    assert "datasets" in cli("acceptance", "list", "--all").out


def test_show(cli: Cli) -> None:
    data = cli("acceptance", "show", "kimi-k2.5-eagle3-coding", "--format", "json").data()
    assert data["license"] == "Apache-2.0"
    assert data["tokens_per_step"]["8"] == 3.77
    one = cli("acceptance", "show", "qwen3-8b-eagle3-deepspec#math", "--format", "json").data()
    assert one["tokens_per_step"] == {"7": 4.77}
    assert_refused(cli("acceptance", "show", "kimi-k2.5"), "did you mean")
    assert_refused(cli("acceptance", "show", "inkling-mtp-gsm8k", "deepseek-r1-mtp"), "--models")
    assert_refused(
        cli("acceptance", "show", "qwen3-8b-eagle3-deepspec", "--models"),
        "several datasets",
        "#gsm8k",
    )


if __name__ == "__main__":
    (FOLDER / INDEX_FILE).write_text(index_text(), encoding="utf-8")
