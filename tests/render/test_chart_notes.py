"""What charts leave out is said, and no roof stands above the datasheet's."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.support import Cli


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


@pytest.mark.parametrize("question", ["qwen3-32b --gpu h100-sxm --tp 2", "llama-3.1-8b"])
def test_no_roof_stands_above_the_datasheet(cli: Cli, tmp_path: Path, question: str) -> None:
    """Found by a user: a fitted roof of 1,005 TFLOP/s over the datasheet's 989."""
    path = tmp_path / "roof.csv"
    outcome = cli("plot", "roofline", *question.split(), "--data", str(path))
    assert outcome.code == 0, outcome.err
    roofs = {row["op"]: row for row in _rows(path) if row["group"] == "roof"}
    for name, row in roofs.items():
        peak = float(roofs[f"{name.split()[0]} datasheet"]["attained_tflop_per_s"])
        assert float(row["attained_tflop_per_s"]) <= peak
        assert "measured" not in name
    assert any(" fitted (" in name for name in roofs)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--batch", "1,8,64", "--context", "8k"), "batch 64 does not fit in memory"),
        (("--batch", "1,16", "--context", "1k,32k"), "batch 16 at 32k does not fit in memory"),
        (("--batch", "1,8", "--context", "8k"), None),
    ],
)
def test_lines_that_are_missing_are_named(
    cli: Cli, tmp_path: Path, more: tuple[str, ...], said: str | None
) -> None:
    """Qwen3 32B in bf16 leaves some 75 GB of two H100s for its cache of 262 kB a token."""
    path = tmp_path / "speedup.svg"
    outcome = cli("plot", "speedup", "qwen3-32b", "--tp", "2", *more, "-o", str(path))
    assert outcome.code == 0, outcome.err
    drawn = " ".join(re.findall(r"<!-- (.*?) -->", path.read_text("utf-8")))
    assert ("does not fit" in drawn) == (said is not None)
    assert said is None or said in drawn


def test_contexts_that_never_fit_are_not_warned_about(cli: Cli, tmp_path: Path) -> None:
    """64 sequences of 128k tokens at 328 kB a token are 2.7 TB; four H100s have 0.3."""
    ask = ("llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--data", str(tmp_path / "heat.csv"))
    outcome = cli("plot", "heatmap", *ask, "--batch", "64,128", "--context", "1k,2k,128k")
    assert outcome.code == 0, outcome.err
    assert not any(
        r["fits"] == "true" for r in _rows(tmp_path / "heat.csv") if r["context"] == "131072"
    )
    assert "131072" not in outcome.err
