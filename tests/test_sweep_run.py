"""Sweeps that are stopped, killed, short of disk, or spread over a cluster lose nothing."""

from __future__ import annotations

import json
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

from roofline.sweeps import plan as planning
from roofline.sweeps import run as running
from roofline.sweeps.store import Store
from tests.support import ACCEPTANCE, DRAFTER, ENGINE, GPU, MODEL, ROOT, Cli, assert_refused, write

ASKED = ("sweep", "llama-3.1-8b", "--acceptance", "0.7", "--max-draft-length", "3")
GRID = (*ASKED, "--batch", "1..40", "--context", "1k..8k*2")
POINTS = 40 * 4 * 4


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut grids into parts of five batches."""
    monkeypatch.setattr(planning, "PART_POINTS", 5 * 4 * 4)


@pytest.fixture
def whole(cli: Cli) -> str:
    """The grid in one go."""
    return cli(*GRID).out


def stop_after(count: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this many parts be finished, then raise."""
    real = running.run_task
    done: list[int] = []

    def run_task(*given: Any) -> Any:
        if len(done) == count:
            raise error
        done.append(1)
        return real(*given)

    monkeypatch.setattr(running, "run_task", run_task)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_stopped_sweep_goes_on(
    cli: Cli, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, stopped = tmp_path / f"a.{form}", tmp_path / f"b.{form}"
    assert cli(*GRID, "-o", str(at_once)).code == 0
    with monkeypatch.context() as patch:
        stop_after(3, KeyboardInterrupt(), patch)
        line = assert_refused(cli(*GRID, "-o", str(stopped)), "--resume", code=130)
    assert "3 finished parts" in line
    assert not stopped.exists()
    # without --resume nothing of it is touched
    assert_refused(cli(*GRID, "-o", str(stopped)), "b." + form + ".partial", "--resume")
    with monkeypatch.context() as patch:
        stop_after(5, AssertionError("the finished parts were priced again"), patch)
        assert cli(*GRID, "-o", str(stopped), "--resume").code == 0
    assert stopped.read_bytes() == at_once.read_bytes() or form == "parquet"
    about = [json.loads(Path(f"{p}.provenance.json").read_text()) for p in (at_once, stopped)]
    for page in about:
        del page["command"]
    assert about[0] == about[1]
    assert about[0]["rows"] == POINTS
    assert not Path(f"{stopped}.partial").exists()


@pytest.mark.usefixtures("small_parts")
def test_another_grid_does_not_resume(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    with monkeypatch.context() as patch:
        stop_after(1, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    outcome = cli(*ASKED, "--batch", "1..41", "--context", "1k", "-o", str(path), "--resume")
    assert_refused(outcome, "batches", "contexts", "another")
    assert cli(*GRID, "-o", str(path), "--resume").code == 0


@pytest.mark.usefixtures("small_parts")
def test_a_torn_journal_costs_one_part(
    cli: Cli, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ended while it wrote a line, and while it wrote a part."""
    path = tmp_path / "x.csv"
    with monkeypatch.context() as patch:
        stop_after(3, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    folder = Path(f"{path}.partial")
    journal = folder / "journal.jsonl"
    journal.write_text(journal.read_text()[:-20])
    (folder / "00000004.new").write_text("half a par")
    assert cli(*GRID, "-o", str(path), "--resume").code == 0
    assert path.read_text() == whole


NAMED = {
    "gpu.yaml": GPU, "model.yaml": MODEL, "head.yaml": DRAFTER, "engine.yaml": ENGINE,
    "acceptance.yaml": ACCEPTANCE, "grid.yaml": "schema: 1\nbatch: 1..40\n",
}  # fmt: skip


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("name", NAMED)
def test_a_file_that_was_edited_does_not_resume(
    cli: Cli, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the rows would be those of another machine, model or acceptance."""
    path = tmp_path / "x.csv"
    paths = {each: write(tmp_path, each, text) for each, text in NAMED.items()}
    asked = (
        "sweep", paths["model.yaml"], "--gpu", paths["gpu.yaml"], "--drafter", paths["head.yaml"],
        "--engine", paths["engine.yaml"], "--acceptance",
        f"mix:0.5*{paths['acceptance.yaml']},0.5*llama-3.1-8b-eagle3-lmsys",
        "--grid", paths["grid.yaml"], "-o", str(path),
    )  # fmt: skip
    with monkeypatch.context() as patch:
        stop_after(1, KeyboardInterrupt(), patch)
        assert cli(*asked).code == 130
    write(tmp_path, name, NAMED[name] + "# edited\n")
    assert_refused(cli(*asked, "--resume"), paths[name], "changed since")
    write(tmp_path, name, NAMED[name])
    stop_after(0, KeyboardInterrupt(), monkeypatch)  # far enough: it goes on
    assert cli(*asked, "--resume").code == 130


@pytest.mark.usefixtures("small_parts")
def test_an_edited_config_in_a_folder_does_not_resume(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, config = tmp_path / "x.csv", tmp_path / "model" / "config.json"
    config.parent.mkdir()
    text = json.dumps({
        "model_type": "llama", "hidden_size": 512, "vocab_size": 1000, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1024,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "hidden_act": "silu",
    })  # fmt: skip
    config.write_text(text)
    asked = ("sweep", str(config.parent), "--drafter", "ngram", "--acceptance", "0.7", "--batch",
             "1..40", "-o", str(path))  # fmt: skip
    with monkeypatch.context() as patch:
        stop_after(1, KeyboardInterrupt(), patch)
        assert cli(*asked).code == 130
    (config.parent / "hf_quant_config.json").write_text("{}")
    assert_refused(cli(*asked, "--resume"), "hf_quant_config.json", "changed since")
    (config.parent / "hf_quant_config.json").unlink()
    config.write_text(text.replace("1024", "2048"))
    assert_refused(cli(*asked, "--resume"), str(config), "changed since")


@pytest.fixture
def stopped(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A sweep with three finished parts: its output and its folder."""
    path = tmp_path / "x.csv"
    monkeypatch.setattr(planning, "PART_POINTS", 5 * 4 * 4)
    with monkeypatch.context() as patch:
        stop_after(3, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    return path, Path(f"{path}.partial")


@pytest.mark.parametrize("harm", ["short", "flipped", "gone"])
def test_a_harmed_part_is_priced_again(
    cli: Cli, whole: str, stopped: tuple[Path, Path], harm: str
) -> None:
    path, folder = stopped
    part = folder / "00000001.part"
    content = part.read_bytes()
    part.write_bytes(content[:-30] if harm == "short" else content.replace(b"1", b"2", 1))
    if harm == "gone":
        part.unlink()
    assert cli(*GRID, "-o", str(path), "--resume").code == 0
    assert path.read_text() == whole


@pytest.mark.parametrize("line", [b"null", b'{"index":1}', b"\xff\xfe", b"[]", b"7", b"hello"])
def test_garbage_in_the_journal_is_one_line(
    cli: Cli, stopped: tuple[Path, Path], line: bytes
) -> None:
    path, folder = stopped
    with (folder / "journal.jsonl").open("ab") as journal:
        journal.write(b"\n" + line)
    assert_refused(cli(*GRID, "-o", str(path), "--resume"), "journal.jsonl:4", "remove that line")
    assert not path.exists()


@pytest.mark.parametrize("plan", [b"[]", b"", b"{}", b"null", b"\xff", b"{", None])
def test_parts_without_a_plan_are_not_adopted(
    cli: Cli, stopped: tuple[Path, Path], plan: bytes | None
) -> None:
    path, folder = stopped
    (folder / "plan.json").unlink()
    if plan is not None:
        (folder / "plan.json").write_bytes(plan)
    outcome = cli(*GRID, "-o", str(path), "--resume")
    assert_refused(outcome, "plan.json", "missing or damaged", str(folder))
    assert not path.exists()


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
        "import roofline.sweeps.plan as p; p.PART_POINTS = 80; import roofline.cli as c; c.main()"
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


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(0, AssertionError("it was priced before anyone looked"), monkeypatch)
    assert_refused(cli(*GRID, "-o", str(tmp_path / "no" / "x.csv")), "-o ", "can be written to")
    assert_refused(cli(*GRID, "-o", "/proc/x.csv"), "-o /proc/x.csv", "can be written to")


@pytest.mark.usefixtures("small_parts")
def test_the_old_file_stays_until_the_new_one_is_whole(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("old")
    with monkeypatch.context() as patch:
        stop_after(2, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    assert path.read_text() == "old"
    assert cli(*GRID, "-o", str(path), "--resume").code == 0
    assert path.read_text().count("\n") == 1 + POINTS


@pytest.mark.usefixtures("small_parts")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_a_dask_cluster_that_loses_a_worker_gives_the_same_rows(
    cli: Cli, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers of one thread; one is killed as soon as the first part has come back."""
    distributed = pytest.importorskip("distributed")
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
