"""Progress of long runs: told for every unit, shown on a terminal alone, never in the answer."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roofline.base.progress import progress, tracked, wait, watch_with
from tests.support import ROOT, Cli


class Watcher:
    """What was told of each run: its units, their name, and how many are done."""

    def __init__(self) -> None:
        self.runs: list[tuple[float, str]] = []
        self.done: list[float] = []

    @contextmanager
    def watch(self, total: float, unit: str) -> Iterator[object]:
        self.runs.append((total, unit))
        self.done.append(0)

        def advance(more: float) -> None:
            self.done[-1] += more

        yield advance


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    watch_with(watcher.watch)  # type: ignore[arg-type]
    yield watcher
    watch_with(None)


def test_every_item_is_told_once(watcher: Watcher) -> None:
    assert list(tracked("abc", "letters")) == ["a", "b", "c"]
    assert (watcher.runs, watcher.done) == ([(3, "letters")], [3])


def test_a_run_inside_another_is_a_part_of_it(watcher: Watcher) -> None:
    for _ in tracked([1, 2], "rows"):
        list(tracked("abc", "letters"))
    assert (watcher.runs, watcher.done) == ([(2, "rows")], [2])


def test_a_wait_tells_its_seconds(watcher: Watcher) -> None:
    with progress(0.3, "s") as advance:
        wait(0.3, advance)
    assert watcher.done == [pytest.approx(0.3)]


def test_a_failed_run_ends_its_watch(watcher: Watcher) -> None:
    with pytest.raises(ZeroDivisionError), progress(1, "rows"):
        _ = 1 / 0
    assert list(tracked("a", "letters")) == ["a"]
    assert len(watcher.runs) == 2


#: Two models, two batches, D = 0 to 3; two values times three.
LOOPS = {
    "sweep llama-3.1-8b,qwen3-8b --batch 1,8 --max-draft-length 3": (16, "points"),
    "explore llama-3.1-8b --vary group_size=1,2 --vary layers=8,16,32 --batches 1": (6, "variants"),
}


@pytest.mark.parametrize("command", LOOPS)
def test_loops_tell_all_that_they_do(
    cli: Cli, tmp_path: Path, watcher: Watcher, command: str
) -> None:
    outcome = cli(*command.split(), "-o", str(tmp_path / "a.csv"))
    assert outcome.code == 0, outcome.err
    assert watcher.runs == [LOOPS[command]]
    assert 0 < watcher.done[0] <= LOOPS[command][0]


def test_a_validation_tells_its_runs(watcher: Watcher) -> None:
    from roofline.calibrate.engine.spec_pricing import price_runs
    from roofline.calibrate.engine.spec_rows import load_spec_rows

    price_runs(load_spec_rows()[:3])
    assert (watcher.runs, watcher.done) == ([(3, "runs")], [3])


#: A run of three seconds, as the command line shows it.
LONG_RUN = """
import time
from roofline.base.progress import tracked, watch_with
from roofline.cli import printing
from roofline.cli.bar import bar
watch_with(bar)
printing.show(short=False, notes=False, quiet=QUIET)
for _ in tracked(range(30), "rows"):
    time.sleep(SECONDS)
print("the answer")
"""


def on_a_terminal(seconds: float, *, quiet: bool = False) -> tuple[str, str]:
    """Return stdout, a pipe, and stderr, a terminal, of the run in a process of its own."""
    leader, follower = pty.openpty()
    code = LONG_RUN.replace("SECONDS", str(seconds)).replace("QUIET", str(quiet))
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=follower,
        cwd=ROOT,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
        text=True,
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 2**16)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(leader)
    return run.communicate()[0], shown.decode()


def test_a_long_run_has_a_bar_with_rate_and_time_left() -> None:
    out, shown = on_a_terminal(0.1)
    assert out == "the answer\n"
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    assert re.search(r"\d+%\s+[\d.]+ rows/s\s+\d:\d\d:\d\d left", plain), plain


def test_a_short_run_and_a_quiet_one_show_nothing() -> None:
    assert on_a_terminal(0.001) == ("the answer\n", "")
    assert on_a_terminal(0.1, quiet=True) == ("the answer\n", "")


def test_nothing_is_shown_in_a_pipe(cli: Cli, tmp_path: Path) -> None:
    done = cli("sweep", "qwen3-8b", "--batch", "1..200", "-o", str(tmp_path / "a.csv"))
    assert done.out == ""
    assert "points" not in done.err
