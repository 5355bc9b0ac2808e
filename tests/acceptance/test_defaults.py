"""Which bundled curve is taken where none is given. Values are those of the published tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.acceptance.defaults import (
    Closeness,
    bare_name,
    choose_curve,
    closest_curves,
    default_acceptance,
    default_rules,
    same_model,
)
from roofline.acceptance.files import ACCEPTANCE_SHELF, bundled_curves, lengths_of
from roofline.base import resources
from roofline.base.names import name_rules
from roofline.base.notices import Code
from tests.support import Cli, assert_refused

MODELS = {*resources.bundled_names("model_specs"), *name_rules("model_specs").aliases}


@pytest.mark.parametrize(
    ("kind", "model", "closeness", "reference"),
    [
        ("eagle3", "llama-3.1-8b", "own", "llama-3.1-8b-eagle3"),
        ("mtp", "deepseek-r1", "own", "deepseek-r1-mtp"),
        ("mtp", "deepseek-v3", "same", "deepseek-r1-mtp"),
        ("eagle3", "qwen3-8b", "same", "qwen3-8b-eagle3-deepspec#mt-bench"),
        ("eagle3", "qwen3-8b-fp8", "same", "qwen3-8b-eagle3-deepspec#mt-bench"),
        ("eagle3", "qwen3-30b-a3b", "same", "qwen3-30b-a3b-eagle3-specforge#mtbench"),
        ("eagle3", "Qwen/Qwen3-8B", "same", "qwen3-8b-eagle3-deepspec#mt-bench"),
        ("mtp", "glm-5.2-nvfp4", "same", "glm-5.2-mtp-coding"),
        ("mtp", "glm-5.1", "kin", "glm-5.2-mtp-coding"),  # not the one on random tokens
        ("eagle3", "qwen3-235b-a22b", "kin", "qwen3-30b-a3b-eagle3-specforge#mtbench"),
        ("eagle3", "llama-3.1-70b", "stand-in", "llama-3.1-8b-eagle3"),
        ("mtp", "glm-4.7", "stand-in", "deepseek-r1-mtp"),
        ("eagle3", "llama-3.3-70b-instruct", "same", "llama-3.3-70b-eagle3-by-context"),
    ],
)
def test_the_nearest_curve_is_taken(kind: str, model: str, closeness: str, reference: str) -> None:
    choice = choose_curve(kind, f"{model}-{kind}", [model])
    assert choice is not None
    assert (choice.closeness.value, choice.reference) == (closeness, reference)


@pytest.mark.parametrize("kind", ["ngram", "suffix", "model", "peagle", "medusa"])
def test_kinds_without_a_curve_have_no_default(kind: str) -> None:
    assert choose_curve(kind, "x", ["llama-3.1-8b"]) is None


def test_a_model_of_the_same_shape_has_its_own_curve() -> None:
    """A coder's curve for the coder, though its config is that of its sibling."""
    choice = choose_curve("eagle3", "x", ["qwen3-coder-30b-a3b-instruct"])
    assert choice is not None
    assert choice.id == "qwen3-coder-30b-a3b-eagle3-specforge"


def test_published_values_arrive() -> None:
    """SpecForge data.json, mtbench, D = 3 and 5; the TensorRT-LLM blog, D = 2."""
    head = default_acceptance("eagle3", "qwen3-30b-a3b-eagle3", ["qwen3-30b-a3b"])
    layer = default_acceptance("mtp", "deepseek-v3-mtp", ["deepseek-v3"])
    assert head is not None
    assert layer is not None
    assert (head.curve.table[3], head.curve.table[5]) == (2.496, 2.831)
    assert layer.curve.table[2] == 2.58
    assert head.curve.filled == {1, 2, 4, 6}
    assert layer.curve.filled == frozenset()


def test_without_a_chat_set_the_mean_of_all_is_taken() -> None:
    """SPEED-Bench, Qwen3-Next's MTP: (3.34 + 3.13 + 3.19 + 2.94 + 2.89 + 2.85 + 2.68 + 2.71 + 2.66
    + 2.09) / 10 = 2.848."""
    found = default_acceptance(
        "mtp", "qwen3-next-80b-a3b-instruct-mtp", ["qwen3-next-80b-a3b-instruct"]
    )
    assert found is not None
    assert found.curve.table[3] == pytest.approx(2.848)
    told = found.notices[0]
    assert (told.code, told.values["general"]) == (Code.ACCEPTANCE_ASSUMED, False)
    assert told.values["label"].endswith("mean of 10 sets")


def test_curves_named_by_rules_exist() -> None:
    rows, stated = bundled_curves(), default_rules()
    targets = {bare_name(row["target"]) for row in rows}
    known = {bare_name(name) for name in MODELS} | targets
    named = {*(n for group in stated.same for n in group), *stated.kin, *stated.kin.values()}
    extra = {"qwen3-30b-a3b-thinking-2507", "qwen3-next-80b-a3b-thinking", "gemma-4-26b-a4b-it"}
    assert {name for name in named if bare_name(name) not in known} <= extra
    assert {word for words in stated.kinds.values() for word in words} <= {
        row["drafter"] for row in rows
    }
    assert {*stated.left_out, *stated.stand_in.values()} <= {row["id"] for row in rows}
    assert all(choose_curve(kind, "x", ["x"]) for kind in stated.stand_in)


def test_every_relative_has_a_curve() -> None:
    """A relative without one would be a dead entry."""
    stated = default_rules()
    for name in stated.kin:
        found = [choose_curve(kind, "x", [name]) for kind in stated.kinds]
        assert any(c is not None and c.closeness in (Closeness.KIN, Closeness.SAME) for c in found)


def test_a_stand_in_names_the_closest_curves(cli: Cli) -> None:
    said = cli("recommend", "llama-3.1-70b", "--tp", "4").said
    assert "stands in; closest bundled curves: llama-3.3-70b-eagle3-by-context" in said
    assert_refused(
        cli("recommend", "qwen3.5-9b", "--drafter", "dflash"),
        "no acceptance is known",
        "closest bundled curves are qwen3-4b-dflash-deepspec",
    )
    assert closest_curves("ngram", ["llama-3.1-8b"]) == []


def test_the_answer_says_which_was_taken(cli: Cli) -> None:
    """1.48x with the model's own curve, where Llama-3.1-8B's promised 1.65x."""
    outcome = cli("recommend", "qwen3-30b-a3b", "--notes")
    said = " ".join(outcome.out.split())
    assert "Assumed: acceptance of qwen3-30b-a3b-eagle3-specforge#mtbench" in said
    assert "no acceptance is bundled" not in outcome.said
    given = cli(
        "recommend", "qwen3-30b-a3b", "--acceptance", "qwen3-30b-a3b-eagle3-specforge#mtbench"
    )
    assert outcome.out.splitlines()[0] == given.out.splitlines()[0]


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
    """400 passes in the file: the same range as with --acceptance-rounds 400, and wider."""
    curve = "schema: 1\nsource: a count\nsurvival: [0.8, 0.6, 0.4]\n"
    counted, exact = tmp_path / "counted.yaml", tmp_path / "exact.yaml"
    exact.write_text(curve)
    counted.write_text(f"{curve}drafts: 400\n")
    own = cli(*VLLM, "--acceptance", str(counted))
    given = cli(*VLLM, "--acceptance", str(exact), "--acceptance-rounds", "400")
    none = cli(*VLLM, "--acceptance", str(exact))
    assert own.data()["inputs"]["acceptance_rounds"] == 400

    def width(rows: dict[int, dict[str, float]]) -> float:
        return rows[3]["speedup_high"] - rows[3]["speedup_low"]

    assert width(own.by_draft_length()) == pytest.approx(width(given.by_draft_length()))
    assert width(own.by_draft_length()) > width(none.by_draft_length())
