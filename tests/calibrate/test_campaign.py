"""A campaign survives what can happen to it: crash, resume, failures, an exhausted budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from roofline.base.errors import InputError
from roofline.calibrate.measure.backend import CaseError
from roofline.calibrate.measure.campaign import run_campaign
from roofline.calibrate.measure.cases import Case, plan_cases
from roofline.calibrate.measure.device import Samples, WorkerDevice
from roofline.calibrate.measure.rows import COLUMNS, Row, RowFile, read_rows
from roofline.render.calibration import failed_line
from roofline.specs.network import load_model
from tests.measuring import FakeDevice
from tests.support import ROOT, Cli, assert_refused

CASES = plan_cases(load_model("qwen3-0.6b"), FakeDevice().menu())[:12]


def clock(step: float = 1.0) -> Callable[[], float]:
    """Return a clock that moves by ``step`` at each look."""
    ticks = iter(range(10**6))
    return lambda: step * next(ticks)


def test_each_row_is_on_disk_before_the_next_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    seen: list[int] = []

    class Watching(FakeDevice):
        def sample(self, case: Case, *, repeats: int, seconds: float) -> Samples:
            seen.append(len(read_rows(path)[1]))
            return super().sample(case, repeats=repeats, seconds=seconds)

    device = Watching()
    run_campaign(device, CASES[:5], RowFile(path, device.facts(), resume=False), budget=1e9)
    assert seen[:5] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("lost", [1, 20, 60])
def test_a_crash_loses_one_row_and_resume_goes_on(tmp_path: Path, lost: int) -> None:
    """The last line is torn ``lost`` bytes before its end."""
    path, device = tmp_path / "run.csv", FakeDevice()
    cases = [
        case for case in plan_cases(load_model("qwen3-0.6b"), device.menu()) if not case.anchors
    ]
    cases = cases[:12]  # what bandwidth and peak are read from is timed out of turn
    run_campaign(
        device, cases, RowFile(path, device.facts(), resume=False), budget=12.0, now=clock(0.1)
    )
    whole = read_rows(path)[1]
    path.write_bytes(path.read_bytes()[:-lost])
    assert len(read_rows(path)[1]) == len(whole) - 1
    again = FakeDevice()
    file = RowFile(path, again.facts(), resume=True)
    assert file.rows == whole[:-1]
    run_campaign(again, cases, file, budget=3.0, now=clock(0.1))
    assert again.asked[0] == whole[-1].key
    keys = [(row.round, row.key) for row in read_rows(path)[1]]
    assert len(keys) == len(set(keys))


def test_without_resume_a_file_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("precious")
    with pytest.raises(InputError, match="give resume"):
        RowFile(path, {}, resume=False)
    assert path.read_text() == "precious"


def test_another_machine_cannot_continue_a_file(tmp_path: Path) -> None:
    path, facts = tmp_path / "run.csv", FakeDevice().facts()
    RowFile(path, facts, resume=False)
    with pytest.raises(InputError, match="was measured with threads 1, this is 2"):
        RowFile(path, facts | {"threads": 2}, resume=True)


@pytest.mark.parametrize("status", ["oom", "unsupported", "wrong", "hung", "crashed"])
def test_failed_kernels_are_skipped_and_reported(tmp_path: Path, status: str) -> None:
    bad = CASES[3].key
    device = FakeDevice(failing={bad: status})
    failed: list[Row] = []
    file = RowFile(tmp_path / "run.csv", device.facts(), resume=False)
    ended = run_campaign(device, CASES, file, budget=1e9, on_failure=failed.append)
    assert ended.complete
    assert ended.skipped == {bad: status}
    assert device.asked.count(bad) == 1  # not tried again in later rounds
    assert len(failed) == 1
    assert status in failed_line(failed[0])
    assert {row.status for row in file.rows if row.key == bad} == {status}
    assert {row.key for row in file.rows if row.status == "ok"} == {c.key for c in CASES} - {bad}


def test_the_budget_ends_a_run(tmp_path: Path) -> None:
    device = FakeDevice()
    file = RowFile(tmp_path / "run.csv", device.facts(), resume=False)
    ended = run_campaign(device, CASES, file, budget=10.0, now=clock())
    assert not ended.complete
    assert 0 < ended.measured < len(CASES)


def serve_badly(pipe: Connection, device: str, _library: str, _threads: int) -> None:
    """Answer ``probe``; hang or die on ``sample``, as ``device`` says."""
    pipe.send(("ok", None))
    while True:
        try:
            name, _, _ = pipe.recv()
        except EOFError:
            return
        if name == "probe":
            pipe.send(("ok", 1.0))
        elif device == "hangs":
            time.sleep(60)
        else:
            raise SystemExit(1)


@pytest.mark.parametrize(("device", "status"), [("hangs", "hung"), ("dies", "crashed")])
def test_a_kernel_that_takes_its_process_along_is_named(device: str, status: str) -> None:
    worker = WorkerDevice(
        device=device, library="none", threads=1, patience=1.0, target=serve_badly
    )
    with worker as machine:
        with pytest.raises(CaseError) as caught:
            machine.sample(CASES[0], repeats=3, seconds=0.1)
        assert caught.value.status == status
        machine._patience = 30.0  # a fresh process needs its time to start
        assert machine.probe() == 1.0  # and the next question finds one


def test_numpy_end_to_end(cli: Cli, tmp_path: Path) -> None:
    """A second of measuring is little, but its rows are whole and name what was done."""
    path = tmp_path / "run.csv"
    done = cli("calibrate", "measure", "--device", "cpu", "--budget", "2s", "-o", str(path))
    assert done.code == 0, done.err
    facts, rows = read_rows(path)
    assert facts["library"].startswith("NumPy")
    assert rows
    assert {row.clock for row in rows if row.status == "ok"} == {"cpu"}
    assert all(row.error < 1e-3 for row in rows)
    assert all(row.cold for row in rows if row.status == "ok")
    refused = cli("calibrate", "measure", "--device", "cpu", "--budget", "2s", "-o", str(path))
    assert_refused(refused, "exists", "--resume")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "tpu"), ("--device", "did you mean")),
        (("--device", "cpu", "--library", "jax"), ("--library", "numpy")),
        (("--device", "cuda", "--library", "numpy"), ("--library numpy", "torch")),
        (("--device", "cpu", "--budget", "soon"), ("--budget", "30s")),
        (("--device", "cpu", "--budget", "0s"), ("--budget", "86400")),
        (("--device", "cpu", "--threads", "0"), ("--threads 0",)),
        (("--device", "cpu", "--model", "qwen9"), ("unknown model", "qwen")),
    ],
)
def test_bad_options_are_one_line(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    path = str(tmp_path / "run.csv")
    assert_refused(cli("calibrate", "measure", *arguments, "-o", path), *words)


def test_no_gpu_or_no_torch_is_said(cli: Cli, tmp_path: Path) -> None:
    """Whichever is missing on the machine that runs the tests."""
    torch = pytest.importorskip("torch") if _has_torch() else None
    if torch is not None and torch.cuda.is_available():
        pytest.skip("a GPU is here")
    refused = cli("calibrate", "measure", "--device", "cuda", "-o", str(tmp_path / "r.csv"))
    assert_refused(refused, "--device cuda", "PyTorch")
    assert not (tmp_path / "r.csv").exists()


def _has_torch() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None


def test_fit_refuses_an_accelerator_s_datasheet_for_a_processor(cli: Cli, tmp_path: Path) -> None:
    rows = ROOT / "roofline" / "data" / "measured" / "cpu-epyc-2-cores-numpy.csv"
    done = cli("calibrate", "fit", str(rows), "-o", str(tmp_path / "x.yaml"), "--gpu", "h100-sxm")
    assert_refused(done, "--gpu h100-sxm", "a cpu")
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\r\n1,2\r\n", ("is no CSV of measurements",)),
        ("", ("is no CSV of measurements",)),
        (",".join(COLUMNS) + "\r\n", ("line 2", "facts")),
        (",".join(COLUMNS) + "\r\n0,facts" + "," * 18 + "{}\r\n", ("line 2",)),
    ],
)
def test_fit_refuses_what_is_no_run(
    cli: Cli, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(text.encode())
    out = str(tmp_path / "x.yaml")
    assert_refused(cli("calibrate", "fit", str(path), "-o", out), *words)
