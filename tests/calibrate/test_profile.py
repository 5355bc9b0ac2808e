"""A fitted machine as a profile: on a datasheet, on measured figures, compared, and used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roofline.base.schema import dump_yaml
from roofline.calibrate.diff import profile_differences
from roofline.calibrate.fit.machine import fit_rows
from roofline.calibrate.measure.campaign import run_campaign
from roofline.calibrate.measure.cases import Case, Menu, plan_cases
from roofline.calibrate.measure.rows import RowFile
from roofline.calibrate.measure.torch_timing import CALLS, time_on_device
from roofline.calibrate.profile import datasheet_for, profile_data
from roofline.specs.gpu import HardwareProfile, load_hardware
from roofline.specs.network import load_model
from tests.measuring import FakeDevice, FakeGpu
from tests.support import Cli


def planted_run(device: FakeDevice, folder: Path, budget: float = 1e9) -> Path:
    path = folder / "run.csv"
    file = RowFile(path, device.facts(), resume=False)
    run_campaign(device, plan_cases(load_model("qwen3-0.6b"), device.menu()), file, budget=budget)
    return path


def test_fit_writes_a_profile_that_recommend_uses(cli: Cli, tmp_path: Path) -> None:
    path = planted_run(FakeDevice(), tmp_path)
    out, plot = tmp_path / "mine.yaml", tmp_path / "parity.png"
    done = cli("calibrate", "fit", str(path), "-o", str(out), "--plot", str(plot))
    assert done.code == 0, done.err
    assert "the machine was steady" in done.out
    paths = ("written to", str(tmp_path))  # a path is not broken
    lines = [line for line in done.out.splitlines() if not any(path in line for path in paths)]
    assert max(map(len, lines)) <= 80
    assert plot.read_bytes()[:4] == b"\x89PNG"
    assert cli("hardware", "check", str(out)).code == 0
    answer = cli(
        "recommend", "qwen3-0.6b", "--gpu", str(out), "--drafter", "ngram", "--acceptance", "0.7",
        "--explain", "--format", "json",
    )  # fmt: skip
    assert "priced in fp32" in answer.said
    ops = answer.ops("verify")
    assert {row["source"] for name, row in ops.items() if name != "sampling"} == {"calibrated"}
    # 1024 x 3072 fp32 weights at 80 GB/s are 157 us, and 5 us to launch
    down = ops["down_proj"]
    assert down["time_us"] == pytest.approx(1e6 * (5e-6 + down["bytes"] / 80e9), rel=0.05)


def fast(case: Case) -> float:
    """Return 4 us + max(bytes / 4 TB/s, FLOP / 700 TFLOP/s) [s]."""
    return 4e-6 + max(case.bytes / 4e12, case.flops / 700e12)


def test_a_gpu_keeps_its_datasheet_and_gets_measured_laws(tmp_path: Path) -> None:
    menu = Menu(base="bf16", products=("bf16",), caches=("bf16",), attention=("packed",), ranks=4)
    device = FakeGpu(law=fast, menu_=menu)
    path = planted_run(device, tmp_path)
    from roofline.calibrate.measure.rows import read_rows

    facts, rows = read_rows(path)
    datasheet = datasheet_for(facts)
    assert datasheet is not None
    assert datasheet.id == "h200-sxm"
    fitted = fit_rows(rows, facts, datasheet, cite="planted")
    data = profile_data(fitted, facts, datasheet, cite="planted")
    profile = HardwareProfile.check(data, "h200.yaml")
    assert profile.bandwidth == load_hardware("h200-sxm").bandwidth
    kinds = {(b.kind, getattr(b, "covers", None)) for b in profile.calibration}
    assert {k for k, _ in kinds} >= {"allreduce"}
    for judged in fitted.laws:
        if judged.block["kind"] in ("gemm", "attention") or "gemm" in str(judged.block):
            assert judged.median < 0.06, judged.block
    changed = {row["what"] for row in profile_differences(datasheet, profile)}
    assert any(name.startswith("gemm") for name in changed)
    assert "memory.bandwidth" not in changed


@pytest.mark.parametrize(
    ("name", "gib", "wanted"),
    [
        ("NVIDIA H100 80GB HBM3", 79.6, "h100-sxm"),
        ("NVIDIA H200", 139.8, "h200-sxm"),
        ("NVIDIA H200 NVL", 139.8, "h200-nvl"),
        ("NVIDIA A100-SXM4-80GB", 79.3, "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", 39.6, "a100-sxm-40gb"),
        ("NVIDIA L40S", 44.4, "l40s"),
        ("NVIDIA GeForce RTX 4090", 23.6, "rtx-4090"),
        ("Strange Accelerator 9", 10, None),
    ],
)
def test_devices_are_known_by_the_names_that_drivers_give(
    name: str, gib: float, wanted: str | None
) -> None:
    found = datasheet_for({"kind": "gpu", "device": name, "memory": gib * 2**30})
    assert (found.id if found else None) == wanted


def test_diff_shows_figures_and_laws(cli: Cli, tmp_path: Path) -> None:
    first = cli("hardware", "diff", "h100-sxm", "h200-sxm", "--format", "json").data()
    rows = {row["what"]: row for row in first}
    assert rows["memory.bandwidth"]["change"] == "x1.43"  # 4800 / 3350 GB/s
    assert "compute.units" not in rows  # 132 on both
    assert cli("hardware", "diff", "h100-sxm", "h100-sxm").out == "no difference\n"
    device = FakeDevice()
    fitted = fit_rows(
        RowFile(planted_run(device, tmp_path), device.facts(), resume=True).rows, device.facts(),
        None, cite="planted",
    )  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text(dump_yaml(profile_data(fitted, device.facts(), None, cite="planted")))
    table = cli("hardware", "diff", "h100-sxm", str(path)).out
    assert "mlp_norm fp32 mem_eff" in table
    assert max(map(len, table.splitlines())) <= 80
    other = tmp_path / "other.yaml"
    other.write_text(path.read_text().replace("mem_eff: 0.", "mem_eff: 0.5"))
    table = cli("hardware", "diff", str(path), str(other)).out
    assert max(map(len, table.splitlines())) <= 80


class Event:
    """A device event that reads the fake device's clock."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda, self.at = cuda, 0.0

    def record(self) -> None:
        self.at = self._cuda.now

    def synchronize(self) -> None:
        """Nothing runs behind."""

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.at - self.at)


class FakeCuda:
    """As much of ``torch.cuda`` as timing uses; a kernel takes ``kernel`` s, a launch 1 ms more."""

    def __init__(self, kernel: float, *, capturable: bool) -> None:
        self.now, self.kernel, self.capturable = 0.0, kernel, capturable
        self.recorded: list[int] | None = None
        self.cuda = self

    def call(self, index: int) -> None:
        if self.recorded is not None:
            if not self.capturable:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.recorded.append(index)
        else:
            self.now += self.kernel + 1e-3

    def __getattr__(self, name: str) -> Any:
        return getattr(_Pieces(self), name)


class _Pieces:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    def Event(self, *, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self._cuda)

    def Stream(self) -> _Stream:
        return _Stream()

    current_stream = Stream

    def stream(self, _: object) -> _Stream:
        return _Stream()

    def synchronize(self) -> None:
        """Nothing runs behind."""

    def CUDAGraph(self) -> _Graph:
        return _Graph(self._cuda)

    def graph(self, graph: _Graph) -> _Graph:
        return graph


class _Stream:
    def wait_stream(self, _: object) -> None:
        """Nothing runs behind."""

    def __enter__(self) -> None:
        """Enter nothing."""

    def __exit__(self, *_: object) -> None:
        """Leave nothing."""


class _Graph:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda, self.calls = cuda, 0

    def __enter__(self) -> None:
        self._cuda.recorded = []

    def __exit__(self, *_: object) -> None:
        assert self._cuda.recorded is not None
        self.calls, self._cuda.recorded = len(self._cuda.recorded), None

    def replay(self) -> None:
        self._cuda.now += self.calls * self._cuda.kernel


@pytest.mark.parametrize(
    ("kernel", "capturable", "graph", "clock", "expected"),
    [
        (50e-6, True, True, "graph", 50e-6),  # short: captured, no launch shows
        (50e-6, False, True, "events", 1.05e-3),  # cannot be captured
        (50e-6, True, False, "events", 1.05e-3),  # launch cost wanted
        (5e-3, True, True, "events", 6e-3),  # long: single launches
    ],
)
def test_short_kernels_are_replayed_from_a_graph(
    kernel: float, capturable: bool, graph: bool, clock: str, expected: float
) -> None:
    device = FakeCuda(kernel, capturable=capturable)
    found, how, _ = time_on_device(device, device.call, repeats=5, seconds=60.0, graph=graph)
    assert how == clock
    assert found == pytest.approx([expected] * 5)
    assert CALLS >= 8
