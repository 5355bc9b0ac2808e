"""What the shell completes values to, asked as bash asks: by environment variables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support import ROOT, Cli

#: What bash sets to ask for values.
ASK = {"_ROOFLINE_COMPLETE": "complete_bash"}

Complete = Callable[[str], list[str]]


def asked(line: str) -> dict[str, str]:
    """Return the environment in which bash asks for the last word of a line."""
    return ASK | {"COMP_WORDS": line, "COMP_CWORD": f"{len(line.split(' ')) - 1}"}


@pytest.fixture
def complete(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Return what gives the words that the shell is offered for the last word of a line."""

    def words(line: str) -> list[str]:
        for name, value in asked(line).items():
            monkeypatch.setenv(name, value)
        return cli().out.split()

    return words


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("roofline recommend qwen3-8b --gpu h1", {"h100-sxm", "h100-pcie", "h100-nvl"}),
        ("roofline recommend llama-3.1-8", {"llama-3.1-8b"}),
        ("roofline recommend qwen3-8b --engine v", {"vllm"}),
        ("roofline recommend qwen3-8b --engine sglang@", {"sglang@0.4", "sglang@0.5"}),
        ("roofline recommend qwen3-8b --drafter ea", {"eagle1", "eagle3"}),
        ("roofline recommend qwen3-8b --drafter qwen3-8b-pe", {"qwen3-8b-peagle"}),
        ("roofline recommend qwen3-8b --kv fp8", {"fp8", "fp8-block"}),
        ("roofline recommend qwen3-8b --host server", {"server-ddr5"}),
        ("roofline sweep qwen3-8b,llama-3.1-8", {"qwen3-8b,llama-3.1-8b"}),
        ("roofline sweep qwen3-8b --gpu a10,l40", {"a10,l40", "a10,l40s"}),
        ("roofline plot heatmap qwen3-8b --gpu h200-s", {"h200-sxm"}),
        ("roofline live http://host --model llama-3.1-8", {"llama-3.1-8b"}),
        ("roofline hardware show b200", {"b200-hgx"}),
        ("roofline models show qwen3-8b-eagle3", {"qwen3-8b-eagle3", "qwen3-8b-eagle3-mla"}),
        ("roofline calibrate fit-steps f.csv llama-3.1-8", {"llama-3.1-8b"}),
        ("roofline recommend qwen3-8b --gpu nothing-like-it", set()),
        ("roofline recommend qwen3-8b --engine ./mine.yaml", set()),
    ],
)
def test_values_are_completed(complete: Complete, line: str, offered: set[str]) -> None:
    found = complete(line)
    assert offered <= set(found)
    last = line.rpartition(" ")[2]
    assert all(name.startswith(last) for name in found)
    assert bool(found) == bool(offered)


def test_a_model_is_no_drafter(complete: Complete) -> None:
    found = complete("roofline recommend qwen3-8b")
    assert "qwen3-8b" in found
    assert "qwen3-8b-eagle3" not in found


def test_curves_are_completed(complete: Complete) -> None:
    curve = "llama-3.1-8b-eagle3"
    assert curve in complete(f"roofline recommend llama-3.1-8b --acceptance {curve}")
    assert curve in complete(f"roofline acceptance show {curve[:-3]}")


def test_completing_names_loads_no_numbers() -> None:
    """Asked in a process of its own, as the shell does."""
    code = "import sys; sys.argv = ['roofline']; from roofline.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | asked("roofline recommend qwen3-8b --gpu h1"),
        check=False,
    )
    assert "h100-sxm" in done.stdout
    names = re.findall(r"^import time:[^|]*\|[^|]*\|\s*(\S+)$", done.stderr, re.MULTILINE)
    heavy = {"numpy", "scipy", "pandas", "matplotlib"}
    assert {name.split(".")[0] for name in names} & heavy == set()
