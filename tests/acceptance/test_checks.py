"""What is said of a curve that was given: other models, falls, counts; and names of models."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.acceptance.files import ACCEPTANCE_SHELF, bundled_curves, lengths_of
from roofline.acceptance.prior import same_model
from roofline.base import resources
from tests.support import Cli


def test_the_index_states_lengths_as_the_files_have_them() -> None:
    for row in bundled_curves():
        assert lengths_of(row), row["id"]
    assert set(resources.bundled_names(ACCEPTANCE_SHELF)) == {row["id"] for row in bundled_curves()}


VLLM = ["recommend", "llama-3.1-8b", "--drafter", "eagle3", "--format", "json"]


def test_a_curve_of_another_model_is_named(cli: Cli) -> None:
    outcome = cli(*VLLM, "--acceptance", "qwen3-8b-eagle3-deepspec#gsm8k")
    assert "counted on Qwen3-8B, not on llama-3.1-8b" in outcome.said


def test_parts_of_a_mix_are_named(cli: Cli) -> None:
    mix = "mix:0.5*llama-3.1-8b-eagle3,0.5*kimi-k2.5-eagle3-coding"
    outcome = cli(*VLLM, "--acceptance", mix)
    assert "counted on Kimi-K2.5-NVFP4" in outcome.said
    assert "counted on Llama" not in outcome.said


@pytest.mark.parametrize("name", ["llama-3.1-8b-eagle3", "llama-3.1-8b-eagle3-lmsys#mtbench"])
def test_a_models_own_curve_is_not_doubted(cli: Cli, name: str) -> None:
    done = cli(*VLLM, "--acceptance", name)
    assert done.code == 0
    assert "counted on" not in done.said


def test_every_bundled_curve_fits_the_model_that_it_is_named_after() -> None:
    """Ids begin with the target, so a target and its own id must be one model."""
    for row in bundled_curves():
        family = row["id"].split("-eagle")[0].split("-mtp")[0].split("-d")[0]
        if row["target"].split()[0].lower().startswith(family):
            assert same_model(row["target"], family), row["id"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("Llama-3-8B", "llama-3.1-8b"), ("Qwen3.8-27B", "qwen3.6-27b"), ("Qwen3-8B", "qwen3-80b")],
)
def test_siblings_are_told_apart(one: str, other: str) -> None:
    assert not same_model(one, other)


def test_falling_tokens_per_step_are_said(cli: Cli) -> None:
    outcome = cli(*VLLM, "--acceptance", "al:1.8,2.6,2.4")
    assert "fall from 2.6 at D=2 to 2.4 at D=3" in outcome.said
    assert "fall from" not in cli(*VLLM, "--acceptance", "al:1.8,2.4,2.4").said


def test_a_readings_own_count_is_its_rounds(cli: Cli, tmp_path: Path) -> None:
    """40 passes in the file: the same range as with --acceptance-rounds 40, and wider."""
    curve = "schema: 1\nsource: a count\nsurvival: [0.8, 0.6, 0.4]\n"
    counted, exact = tmp_path / "counted.yaml", tmp_path / "exact.yaml"
    exact.write_text(curve)
    counted.write_text(f"{curve}drafts: 40\n")
    own = cli(*VLLM, "--acceptance", str(counted))
    given = cli(*VLLM, "--acceptance", str(exact), "--acceptance-rounds", "40")
    none = cli(*VLLM, "--acceptance", str(exact))
    assert own.data()["inputs"]["acceptance_rounds"] == 40

    def width(rows: dict[int, dict[str, float]]) -> float:
        return rows[3]["speedup_high"] / rows[3]["speedup_low"]

    assert width(own.by_draft_length()) == pytest.approx(width(given.by_draft_length()))
    assert width(own.by_draft_length()) > width(none.by_draft_length())
