"""A cold start imports only what it needs: the reason why the command line is quick."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT


def _imported(*arguments: str) -> set[str]:
    """Return the top-level packages that a fresh process imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "roofline", *arguments],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    names = re.findall(r"^import time:[^|]*\|[^|]*\|\s*(\S+)$", done.stderr, re.MULTILINE)
    assert "roofline.cli" in names
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("--help",), {"numpy", "pydantic", "yaml", "pandas", "scipy", "matplotlib"}),
        # Typer itself loads pydantic where a command has numbers to parse
        (("recommend", "--help"), {"numpy", "yaml", "pandas", "scipy", "matplotlib"}),
        (("plot", "speedup", "--help"), {"numpy", "yaml", "pandas", "scipy", "matplotlib"}),
        (("recommend", "llama-3.1-8b"), {"pandas", "scipy", "matplotlib"}),
        (
            ("explore", "llama-3.1-8b", "--vary", "group_size=1,2"),
            {"pandas", "scipy", "matplotlib"},
        ),
    ],
)
def test_heavy_packages_stay_out(arguments: tuple[str, ...], unwanted: set[str]) -> None:
    assert _imported(*arguments) & unwanted == set()


def test_a_report_needs_no_plotting_package(tmp_path: Path) -> None:
    """It copies the script that Plotly brings along; the package itself is not imported."""
    found = _imported("report", "llama-3.1-8b", "-o", str(tmp_path / "a.html"))
    assert found & {"pandas", "scipy", "matplotlib", "plotly"} == set()
