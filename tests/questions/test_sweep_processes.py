"""Sweeps in processes: killed, interrupted, two at once, short of disk, on a cluster."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from roofline.questions.sweep import plan as planning
from roofline.questions.sweep.store import Store
from tests.support import ROOT, Cli, assert_refused
from tests.sweeping import ASKED, GRID


@pytest.fixture
def whole(cli: Cli) -> str:
    """The grid in one go."""
    return cli(*GRID).out


@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_two_sweeps_do_not_write_one_file(
    cli: Cli, whole: str, tmp_path: Path, resume: tuple[str, ...]
) -> None:
    path = tmp_path / "x.csv"
    grid = (*GRID, "-o", str(path))
    first = started(*ASKED, "--batch", "1..4000", "--context", "1k..8k*2", "-o", str(path))
    wait_for_parts(Path(f"{path}.partial"), 1)
    first.send_signal(signal.SIGSTOP)  # it is alive, and will not end meanwhile
    assert_refused(cli(*grid, *resume), f"-o {path}", "another sweep is writing it")
    first.kill()
    first.communicate()
    # what a killed process leaves does not block
    assert_refused(cli(*grid), "--resume")
    shutil.rmtree(f"{path}.partial")
    assert cli(*grid).code == 0
    assert path.read_text() == whole


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a sweep as a process of its own, its grid cut small."""
    small = (
        "import roofline.questions.sweep.plan as p; p.PART_POINTS = 80; "
        "import roofline.cli as c; c.main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", small, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=ROOT, **options,
    )  # fmt: skip


def wait_for_parts(folder: Path, count: int) -> None:
    """Wait until so many parts are finished."""
    for _ in range(600):
        if len(list(folder.glob("*.part"))) >= count:
            return
        time.sleep(0.05)
    pytest.fail("no parts appeared")


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    grid = (*ASKED, "--batch", "1..4000", "--context", "1k..8k*2", "-o", str(path))
    process = started(*grid)
    wait_for_parts(Path(f"{path}.partial"), 2)
    process.kill()
    process.communicate()
    assert not path.exists()
    store = Store(path)
    entries = list(store.journal())
    assert entries
    assert all(store.part(entry.index).read_text().count("\n") == entry.rows for entry in entries)
    assert [entry.index for entry in entries] == list(range(len(entries)))


def test_ctrl_c_ends_the_workers_too(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    grid = (*ASKED, "--batch", "1..4000", "--context", "1k..8k*2", "-o", str(path), "--jobs", "2")

    def hears() -> None:  # a job in the background inherits a deaf ear
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = started(*grid, start_new_session=True, preexec_fn=hears)
    wait_for_parts(Path(f"{path}.partial"), 2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.count("\n") == 1, errors
    assert "--resume" in errors
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("workers are left")


def test_a_full_disk_keeps_what_is_finished(whole: str, tmp_path: Path) -> None:
    """The parts fit a limit on the size of a file, the whole of them does not."""
    path = tmp_path / "x.csv"
    size = len(whole) // 2

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    process = started(*GRID, "-o", str(path), preexec_fn=limit)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.count("\n") == 1, errors
    assert "cannot be written" in errors
    assert "8 finished parts are kept" in errors
    assert not path.exists()
    again = started(*GRID, "-o", str(path), "--resume")
    assert again.wait(60) == 0
    again.communicate()
    assert path.read_text() == whole


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_a_dask_cluster_that_loses_a_worker_gives_the_same_rows(
    cli: Cli, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers of one thread; one is killed as soon as the first part has come back."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(planning, "PART_POINTS", 5 * 4 * 4)
    path = tmp_path / "x.csv"
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        victim = cluster.workers[0].pid
        real = Store.add

        def add(store: Store, *given: Any) -> None:
            if not store.entries:
                os.kill(victim, signal.SIGKILL)
            real(store, *given)

        monkeypatch.setattr(Store, "add", add)
        outcome = cli(*GRID, "-o", str(path), "--dask", cluster.scheduler_address)
        assert outcome.code == 0, outcome.err
        for _ in range(300):  # its nanny notices within its heartbeat
            if cluster.workers[0].pid != victim:
                break
            time.sleep(0.1)
        assert cluster.workers[0].pid != victim
    assert path.read_text() == whole
