"""Draft lengths that an engine takes of a drafter: none that it refuses is shown anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.specs.engine import load_engine
from roofline.specs.network import load_model
from tests.charting import read
from tests.html_page import read_page
from tests.support import ROOT, Cli, assert_refused, write
from tests.sweeping import rows

ASKED = ("--gpu", "h200-sxm", "--drafter", "mtp", "--acceptance", "0.8")


def refused(length: int, modules: int) -> bool:
    """vLLM 0.33.0, vllm/config/speculative.py: num_speculative_tokens above n_predict (the target's
    mtp_num_hidden_layers, num_nextn_predict_layers or num_mtp_modules) must be divisible by it."""
    return length > modules and length % modules != 0


@pytest.fixture
def two(tmp_path: Path) -> str:
    """Qwen3.5-35B-A3B as published, but for a second MTP layer."""
    config = json.loads((ROOT / "model_configs" / "Qwen--Qwen3.5-35B-A3B.json").read_text("utf-8"))
    assert config["text_config"]["mtp_num_hidden_layers"] == 1
    config["text_config"]["mtp_num_hidden_layers"] = 2
    return write(tmp_path, "config.json", json.dumps(config))


def shown(cli: Cli, command: str, *arguments: str) -> Any:
    return cli(command, *arguments, "--format", "json").data()


def lengths(point: Any) -> list[int]:
    return [row["draft_length"] for row in point["by_draft_length"]]


def test_two_modules_draft_one_token_or_whole_turns(cli: Cli, two: str) -> None:
    data = shown(cli, "recommend", two, *ASKED)
    (point,) = data["points"]
    assert lengths(point) == [0, 1, 2, 4, 6, 8]
    assert point["draft_length"] in (1, 2, 4, 6, 8)
    assert {row["draft_length"] for row in point["benchmark"]} <= {0, 1, 2, 4, 6, 8}
    assert any("D = 3, 5, 7 left out" in warning for warning in data["warnings"])


def test_one_module_drafts_any_number_of_tokens(cli: Cli) -> None:
    data = shown(cli, "recommend", "qwen3.5-35b-a3b", *ASKED)
    assert lengths(data["points"][0]) == list(range(9))
    assert not any("left out" in warning for warning in data["warnings"])


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "llamacpp"])
def test_other_engines_take_any_draft_length_of_two_modules(
    cli: Cli, two: str, engine: str
) -> None:
    data = shown(cli, "recommend", two, *ASKED, "--engine", engine)
    assert lengths(data["points"][0]) == list(range(9))


@pytest.mark.parametrize(
    ("model", "modules", "most"),
    [("stepfun-ai--Step-3.7-Flash.json", 3, 10), ("MiniMaxAI--MiniMax-M3.json", 7, 16)],
)
def test_published_models_with_several_modules(
    cli: Cli, model: str, modules: int, most: int
) -> None:
    """Step 3.7 Flash states num_nextn_predict_layers 3, MiniMax-M3 num_mtp_modules 7."""
    path = str(ROOT / "model_configs" / model)
    data = shown(cli, "recommend", path, *ASKED, "--tp", "8", "--max-draft-length", str(most))
    taken = [d for d in range(most + 1) if not refused(d, modules)]
    assert lengths(data["points"][0]) == taken
    assert taken[-1] < most


def test_a_fact_of_drafter_and_engine() -> None:
    """Only MTP heads have modules; an n-gram lookup of the same model drafts any length."""
    vllm = load_engine("vllm")
    for modules in range(1, 9):
        for length in range(65):
            taken = vllm.takes(length, kind="mtp", modules=modules)
            assert taken is not refused(length, modules)
            assert vllm.takes(length, kind="ngram", modules=modules)
    assert load_model("minimax-m3").mtp_modules == 7


def test_no_command_shows_a_draft_length_that_is_refused(
    cli: Cli, two: str, tmp_path: Path
) -> None:
    taken = {0, 1, 2, 4, 6, 8}
    plan = shown(cli, "schedule", two, *ASKED, "--batches", "1..64")
    assert {band["draft_length"] for band in plan["bands"]} <= taken
    config = json.loads(plan["text"].split("'")[1])
    assert config["num_speculative_tokens"] in taken
    priced = rows(cli("sweep", two, *ASKED, "--batch", "1,8", "--context", "1k").out)
    assert {row["draft_length"] for row in priced} == taken
    load = shown(cli, "recommend", two, *ASKED, "--context", "1k", "--batches-histogram", "4:1")
    assert {p["draft_length"] for p in load["policies"] if p["policy"] == "fixed"} == taken
    varied = shown(cli, "explore", two, *ASKED, "--vary", "top_k=4,8", "--batch", "4")
    assert {
        row["draft_length"] for v in varied["variants"] for row in v["by_draft_length"]
    } == taken
    compared = shown(cli, "compare", two, "--gpu", "h200-sxm", "--drafter", "mtp=0.8")
    assert {row["best_draft_length"] for p in compared["points"] for row in p["drafters"]} <= taken
    for chart in ("speedup", "breakdown", "frontier", "roofline"):
        file = tmp_path / f"{chart}.png"
        done = cli("plot", chart, two, *ASKED, "-o", str(file), "--data", str(tmp_path / "d.csv"))
        assert done.code == 0, done.err
        cells = {row["draft_length"] for row in read(tmp_path / "d.csv")}
        drawn = {int(cell) for cell in cells if cell}  # roofs belong to none
        assert drawn
        assert drawn <= taken, chart
    page = tmp_path / "report.html"
    assert cli("report", two, *ASKED, "-o", str(page)).code == 0
    assert set(read_page(page).data["draft_lengths"]) == taken


def stopped_early(tmp_path: Path, curve: str) -> str:
    """Return a file of drafts that stopped early, of which nothing is carried to longer ones."""
    text = f"schema: 1\nsource: here\nearly_stops: true\ntokens_per_step: {curve}\n"
    return write(tmp_path, "stopped.yaml", text)


def test_the_next_draft_lengths_to_measure_can_be_drafted(
    cli: Cli, two: str, tmp_path: Path
) -> None:
    done = cli("recommend", two, *ASKED[:-1], stopped_early(tmp_path, "{1: 1.8, 2: 2.5}"))
    assert "Measure acceptance at D = 4 and 6, where none is known" in " ".join(done.out.split())


def test_the_limit_of_the_search_is_what_ends_it(cli: Cli, two: str) -> None:
    """Up to 7 the last one that can be drafted is 6, though the acceptance goes on."""
    done = cli("recommend", two, *ASKED[:-1], "0.95", "--max-draft-length", "7")
    assert "is the longest one tried (6): raise --max-draft-length to look further" in done.said


def test_an_acceptance_of_refused_draft_lengths_alone(cli: Cli, two: str, tmp_path: Path) -> None:
    """AL(3) = 2.5 fills D = 1 and 2, which vLLM takes; it does not take 3."""
    given = stopped_early(tmp_path, "{3: 2.5}")
    done = cli("recommend", two, *ASKED[:-1], given, "--format", "json")
    assert list(done.by_draft_length()) == [0, 1, 2]


def test_a_draft_length_typed_is_refused(cli: Cli, two: str) -> None:
    base = (two, "--gpu", "h200-sxm", "--drafter", "mtp")
    assert_refused(
        cli("memory", *base, "--draft-length", "3"), "--draft-length 3", "2 modules", "1, 2, 4"
    )
    assert cli("memory", *base, "--draft-length", "4").code == 0
    assert_refused(
        cli("diagnose", *base, "--measured", "3@1x1k:4ms:2.5"), "--measured 3", "2 modules"
    )
