"""A cold start imports only what it needs: the reason why the command line is quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.carriers import carriers
from tests.support import ROOT

#: Run the command line and tell on stderr what was imported by its end.
_RUN = """
import atexit, sys
atexit.register(lambda: print("imported", *sys.modules, file=sys.stderr))
from roofline.cli import main
main()
"""


def _modules(*arguments: str) -> set[str]:
    """Return the modules that a fresh process imports."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return set(done.stderr.rpartition("imported ")[2].split())


def _packages(*arguments: str) -> set[str]:
    """Return the top-level packages that a fresh process imports."""
    return {name.partition(".")[0] for name in _modules(*arguments)}


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
    assert _packages(*arguments) & unwanted == set()


def test_a_report_needs_no_plotting_package(tmp_path: Path) -> None:
    """It copies the script that Plotly brings along; the package itself is not imported."""
    found = _packages("report", "llama-3.1-8b", "-o", str(tmp_path / "a.html"))
    assert found & {"pandas", "scipy", "matplotlib", "plotly"} == set()


def test_one_answer_imports_few_modules() -> None:
    """Three of them are the loop of timings, whose first step every answer ends in."""
    own = {name for name in _modules("recommend", "llama-3.1-8b") if name.startswith("roofline")}
    assert len(own) <= 88


def test_few_classes_hold_the_step_time() -> None:
    """A limit that the project sets itself, as the one on modules above."""
    assert 0 < len(carriers()) <= 11
