"""Fixtures of the whole suite."""

from __future__ import annotations

import re
import sys

import pytest

from roofline.base.errors import OPTION_MARKS
from roofline.cli import main
from tests.html_browser import browser, report
from tests.servers import stop_the_clock
from tests.support import Cli, Outcome

__all__ = ["browser", "cli", "clock", "report"]

#: An option of a text, as texts hold it until the command line has spelled it.
TOKEN = re.compile(rf"[{OPTION_MARKS}]|\\ufdd[012]")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs the command line in this process."""

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["roofline", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        unspelled = TOKEN.search(captured.out + captured.err)
        assert unspelled is None, f"an option is not spelled: {unspelled}"
        code = stop.value.code
        assert isinstance(code, int)
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let waiting take no time: the clock moves on by what was asked for."""
    return stop_the_clock(monkeypatch)
