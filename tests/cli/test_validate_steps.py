"""``roofline validate steps`` and ``advice``: JSON, Markdown, plots, and one group alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.validation.steps import POOLS
from tests.support import Cli, assert_refused

# Command line ----------------------------------------------------------------------------------


def test_json_of_steps(cli: Cli) -> None:
    data = cli("validate", "steps", "--format", "json").data()
    assert data["schema"] == "roofline.validate/1"
    assert {row["kind"] for row in data["rows"]} == {"step", "cost-ratio"}
    assert set(POOLS) <= {row["group"] for row in data["rows"]}
    for row in data["rows"]:
        assert row["suite"] == "steps"
        assert row["n"] > 0
        assert 0 <= row["median_abs_error"] <= row["p90_abs_error"]
    assert data["left_out"]


def test_json_of_advice(cli: Cli) -> None:
    data = cli("validate", "advice", "--format", "json").data()
    assert {row["kind"] for row in data["rows"]} == {"regret", "sign"}
    assert all(row["group"] for row in data["rows"])
    assert {"own", "best", "chosen", "regret"} <= set(data["sweeps"][0])


def test_one_group(cli: Cli) -> None:
    text = cli("validate", "steps", "--group", "vllm20780").out
    assert "vllm20780" in text
    assert "specbundle" not in text
    assert_refused(cli("validate", "advice", "--group", "vllm2078"), "--group", "vllm20780")
    assert_refused(cli("validate", "steps", "--format", "xml"), "--format", "xml")


@pytest.mark.parametrize("what", ["steps", "advice"])
def test_plots_and_markdown(cli: Cli, what: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = cli(
        "validate", what, "--format", "markdown", "--plot", str(tmp_path / "plot.svg"), "-o",
        str(tmp_path / "page.md"),
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    assert (
        "| --- |" in (tmp_path / "page.md").read_text()
        or "|---" in (tmp_path / "page.md").read_text()
    )


def test_json_has_no_not_a_number(cli: Cli) -> None:
    json.loads(cli("validate", "advice", "--format", "json").out)
