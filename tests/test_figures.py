"""The figures in the pages are the program's own; ``python -m tests.test_figures`` draws them."""

from __future__ import annotations

import contextlib
import csv
import os
import shlex
from pathlib import Path

import pytest

from tests.physics import run
from tests.support import ROOT, Cli
from tests.test_docs import EXAMPLES

FIGURES = ROOT / "docs" / "figures"
PAGE = "docs/how-to/charts.md"
COMMANDS = [
    words
    for example in EXAMPLES
    if example.page == PAGE and (words := shlex.split(example.command))[1] == "plot"
]
WITH_DATA = [command for command in COMMANDS if "--data" in command]


def option(command: list[str], name: str) -> str:
    """Return the value of one option."""
    return command[command.index(name) + 1]


@pytest.mark.parametrize("command", WITH_DATA, ids=[option(c, "--data") for c in WITH_DATA])
def test_figures_are_up_to_date(command: list[str], cli: Cli, tmp_path: Path) -> None:
    name, at = option(command, "--data"), command.index("-o")
    again = tmp_path / name
    words = [str(again) if w == name else w for w in command[1:at] + command[at + 2 :]]
    assert cli(*words).code == 0
    shown, now = (
        list(csv.reader(path.read_text("utf-8").splitlines())) for path in (FIGURES / name, again)
    )
    assert len(shown) == len(now), "make figures"
    for old, new in zip(shown, now, strict=True):
        assert [number(cell) for cell in old] == [
            pytest.approx(cell, rel=1e-4) if isinstance(cell, float) else cell
            for cell in map(number, new)
        ], "make figures"


def number(cell: str) -> float | str:
    """Return a cell as a number where it is one."""
    with contextlib.suppress(ValueError):
        return float(cell)
    return cell


def test_every_figure_is_drawn_by_a_command_and_shown() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    drawn = {option(command, "-o") for command in COMMANDS}
    assert {path.name for path in FIGURES.glob("*.png")} == drawn
    assert all(f"](../figures/{name})" in page for name in drawn)
    assert (ROOT / "README.md").read_text("utf-8").count("](docs/figures/") >= 3


if __name__ == "__main__":
    os.chdir(FIGURES)
    for words in COMMANDS:
        code, _, talk = run(shlex.join(words))
        assert code == 0, talk
