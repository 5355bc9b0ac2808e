"""Progress of long runs: told for every unit, shown on a terminal alone, never in the answer."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roofline.base.progress import progress, tracked, wait, watch_with
from roofline.calibrate.measure.rows import read_rows
from tests.support import ROOT, Cli


class Watcher:
    """What was told of each run: its units, their name, and how many are done."""

    def __init__(self) -> None:
        self.runs: list[tuple[float, str]] = []
        self.done: list[float] = []
        self.counted: str | None = None

    @contextmanager
    def watch(self, total: float, unit: str, counted: str | None) -> Iterator[object]:
        self.runs.append((total, unit))
        self.counted = counted
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


@contextmanager
def a_measurement(file: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a run of measurements on a terminal of its own; yield it and the terminal's number."""
    leader, follower = pty.openpty()

    def hears() -> None:  # a job in the background inherits a deaf ear
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    run = subprocess.Popen(
        [sys.executable, "-m", "roofline", "calibrate", "measure", "--device", "cpu",
         "--budget", "300s", "-o", str(file)],
        stdin=follower, stdout=subprocess.DEVNULL, stderr=follower, text=True, cwd=ROOT,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"}, start_new_session=True,
        preexec_fn=hears,  # noqa: PLW1509
    )  # fmt: skip
    os.close(follower)
    try:
        yield run, leader
    finally:
        run.kill()
        run.wait()
        os.close(leader)


def shown_until(leader: int, shown: str, *, pattern: str = "", seconds: float = 60) -> str:
    """Return what a terminal shows, until a pattern stands in it or its other side is closed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (pattern and re.search(pattern, shown)):
        if not select.select([leader], [], [], 0.2)[0]:
            continue
        try:
            chunk = os.read(leader, 2**16)
        except OSError:  # the other side is closed
            return shown
        shown += re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", chunk.decode(errors="replace"))
    return shown


def test_a_measurement_has_a_rate_and_stops_in_one_line(cli: Cli, tmp_path: Path) -> None:
    """Ctrl-C reaches every process of the terminal's group; what was measured is in the file."""
    file = tmp_path / "run.csv"
    with a_measurement(file) as (run, leader):
        bar = r"\d+%\s+[\d.]+ kernels/s\s+\d:\d\d:\d\d left"
        shown = shown_until(leader, "", pattern=bar)
        assert re.search(bar, shown), shown
        os.killpg(run.pid, signal.SIGINT)
        shown = shown_until(leader, "")
        assert run.wait(30) == 130
    last = " ".join(shown.rpartition(" left")[2].split())
    kept = re.fullmatch(
        r"roofline: stopped; (\d+) rows are kept in \S+: add --resume to go on", last
    )
    assert kept is not None, shown
    _, rows = read_rows(file)
    assert len(rows) == int(kept[1]) > 0
    more = ("calibrate", "measure", "--device", "cpu", "--budget", "1s", "-o", str(file))
    assert cli(*more, "--resume").code == 0
    assert read_rows(file)[1][: len(rows)] == rows


def test_a_measurement_that_has_not_begun_stops_in_one_line(tmp_path: Path) -> None:
    with a_measurement(tmp_path / "run.csv") as (run, leader):
        time.sleep(0.7)  # the libraries are being imported
        os.killpg(run.pid, signal.SIGINT)
        shown = shown_until(leader, "")
        assert run.wait(30) != 0
    assert "Process Spawn" not in shown


def test_a_short_run_and_a_quiet_one_show_nothing() -> None:
    assert on_a_terminal(0.001) == ("the answer\n", "")
    assert on_a_terminal(0.1, quiet=True) == ("the answer\n", "")


def test_nothing_is_shown_in_a_pipe(cli: Cli, tmp_path: Path) -> None:
    done = cli("sweep", "qwen3-8b", "--batch", "1..200", "-o", str(tmp_path / "a.csv"))
    assert done.out == ""
    assert "points" not in done.err
