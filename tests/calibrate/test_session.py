"""What `calibrate measure` and `calibrate fit` say when they end, on a device that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError, Option
from roofline.calibrate import session
from roofline.calibrate.fit.fitted_law import RowSource, fastest_kernel
from roofline.calibrate.fit.five_number import fit_five_numbers
from roofline.calibrate.fit.machine import fit_all_reduce, measured_figures
from roofline.calibrate.fit.tiles import fit_products_by_tiles
from roofline.calibrate.measure.backend import CaseError
from roofline.calibrate.measure.campaign import run_campaign
from roofline.calibrate.measure.cases import Menu, in_format, pass_kernels, plan_cases
from roofline.calibrate.measure.device import LocalDevice
from roofline.calibrate.profile import profile_data
from roofline.kernels.ops import Kind
from roofline.render.calibration import measured_lines
from roofline.specs.gpu import load_hardware
from roofline.specs.network import load_model
from roofline.timing.laws.simple import Device
from tests.measuring import FakeDevice, short_campaign
from tests.support import Cli, assert_refused

MODEL = "qwen3-0.6b"
MENU = Menu(base="bf16", products=("bf16",), caches=("bf16",), attention=("packed",))


class FakeWorker(FakeDevice):
    """Takes the place of the process that would hold the device."""

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *_: object) -> None:
        """There is no process to end."""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that measures 40 cases on a fake device and gives what is said."""
    monkeypatch.setattr(session, "plan_cases", lambda *a: plan_cases(*a)[:40])

    def measure(device: FakeWorker, budget: float = 1e9, *, resume: bool = False) -> str:
        monkeypatch.setattr(session, "WorkerDevice", lambda **_: device)
        measured = session.measure(
            device="cpu",
            library="numpy",
            model=MODEL,
            budget=budget,
            threads=1,
            path=tmp_path / "run.csv",
            resume=resume,
            on_failure=lambda _: None,
        )
        return "\n".join(measured_lines(measured))

    return measure


def test_a_whole_run_says_how_many_rows(said: Any) -> None:
    text = said(FakeWorker())
    assert "rows of Planted, 1 core (Planted 1.0) written to" in text
    assert "budget" not in text
    assert "skipped" not in text


def test_failures_are_counted_by_status(said: Any) -> None:
    """One case runs out of memory, two are not supported."""
    keys = [
        case.key for case in plan_cases(load_model(MODEL), FakeDevice().menu()) if not case.anchors
    ]
    failing = {keys[0]: "oom", keys[1]: "unsupported", keys[2]: "unsupported"}
    line = said(FakeWorker(failing=failing)).splitlines()[-1]
    assert line.startswith("skipped: ")
    assert set(line.removeprefix("skipped: ").split(", ")) == {"1 oom", "2 unsupported"}


def test_a_budget_that_ends_early_can_be_gone_on_with(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that moves a second at each look ends 60 s of budget within the first round."""
    ticks = iter(range(10**7))
    monkeypatch.setattr(
        session,
        "run_campaign",
        lambda *a, **k: run_campaign(*a, **k, now=lambda: float(next(ticks))),
    )
    text = said(FakeWorker(), 60.0)
    assert "the budget ended the first round after" in text
    assert f"continue with {Option('resume')}" in text
    rows = int(text.split()[0])
    again = said(FakeWorker(), 60.0, resume=True)
    assert f"{rows} rows were there already" in again


@pytest.mark.parametrize(("count", "words"), [(1, "1 case was"), (3, "3 cases were")])
def test_cases_too_long_for_the_budget_are_counted(
    said: Any, monkeypatch: pytest.MonkeyPatch, count: int, words: str
) -> None:
    from dataclasses import replace

    monkeypatch.setattr(
        session, "run_campaign", lambda *a, **k: replace(run_campaign(*a, **k), too_long=count)
    )
    assert f"{words} left out: too long for the budget" in said(FakeWorker())


def test_a_model_without_ordinary_attention_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "WorkerDevice", lambda **_: FakeWorker())
    with pytest.raises(InputError, match=r"model='deepseek-v3': .* no layer with grouped-query"):
        session.measure(
            device="cpu",
            library="numpy",
            model="deepseek-v3",
            budget=9,
            threads=1,
            path=tmp_path / "run.csv",
            resume=False,
            on_failure=lambda _: None,
        )
    assert not (tmp_path / "run.csv").exists()


def test_a_plot_is_drawn_only_where_it_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    short_campaign(FakeDevice(), load_model(MODEL), tmp_path)
    fit = ("calibrate", "fit", str(tmp_path / "short.csv"), "-o", str(tmp_path / "mine.yaml"))
    assert_refused(cli(*fit, "--plot", str(tmp_path / "parity.odd")), "parity.odd", ".png")
    assert cli(*fit).code == 0
    assert {file.name for file in tmp_path.iterdir()} == {"short.csv", "mine.yaml"}


def test_a_profile_is_yaml(cli: Cli, tmp_path: Path) -> None:
    out = str(tmp_path / "mine.json")
    assert_refused(cli("calibrate", "fit", "x.csv", "-o", out), "expected a name ending in .yaml")


def test_figures_need_a_stream_and_a_product(tmp_path: Path) -> None:
    rows = short_campaign(FakeDevice(), load_model(MODEL), tmp_path)
    with pytest.raises(InputError, match="no copy or read bandwidth was measured"):
        measured_figures([row for row in rows if row.kind != "stream"])
    with pytest.raises(InputError, match="no matrix product was measured"):
        measured_figures([row for row in rows if row.kind != "gemm"])


def test_the_first_layer_with_ordinary_attention_is_measured() -> None:
    """Three of four layers of Qwen3-Next keep a state; its heads of 256 wide are its cache's."""
    cases = plan_cases(load_model("qwen3-next-80b-a3b-instruct"), MENU)
    sizes = [dict(case.shape) for case in cases if case.kind == "attention"]
    assert {size["head_dim"] for size in sizes} == {256}


def test_a_narrow_cache_is_only_for_kernels_that_read_one() -> None:
    menu = Menu(
        base="bf16", products=("bf16",), caches=("bf16", "fp8"), attention=("packed", "flashinfer")
    )
    found = {
        (case.kernel, case.dtype)
        for case in plan_cases(load_model(MODEL), menu)
        if case.kind == "attention"
    }
    assert found == {("packed", "bf16"), ("flashinfer", "bf16"), ("flashinfer", "fp8")}


def test_products_are_measured_in_every_format_of_the_library() -> None:
    """Each product of a layer but the head, whose format is the model's own."""
    menu = Menu(base="bf16", products=("bf16", "fp8"), caches=("bf16",), attention=("packed",))
    model = load_model(MODEL)
    found = [case for case in plan_cases(model, menu) if case.dtype == "fp8"]
    named = {op.name for op in pass_kernels(in_format(model, "bf16"), batch=1, rows=1, context=1)
             if op.kind is Kind.GEMM}  # fmt: skip
    assert {case.op for case in found} == named - {"lm_head"}
    assert {128, 256, 512} < {dict(case.shape)["m"] for case in found}


def test_too_few_rows_make_no_law(tmp_path: Path) -> None:
    rows = short_campaign(FakeDevice(), load_model(MODEL), tmp_path)
    gpu = load_hardware("h200-sxm")
    device = Device(bandwidth=100e9, peak=10e12, units=4, l2=1e6, link=1e9)
    products = [row for row in rows if row.kind == "gemm"]
    source = RowSource(cite="planted", date="", library="planted", version="planted 1.0")
    assert fit_five_numbers(products[:2], device, source) is None
    assert fit_all_reduce(products[:3], device, source) is None
    # fp32 is no format of tensor cores
    assert fit_products_by_tiles(products, gpu, device, source) is None
    assert fastest_kernel({}) is None


def test_a_datasheet_is_one_of_the_bundled() -> None:
    """What was fitted is written into the bundled file; another profile has none."""
    own = load_hardware("h200-sxm").model_copy(update={"id": "my-own"})
    fitted: Any = None
    with pytest.raises(InputError, match="gpu='my-own': give the id of a bundled profile"):
        profile_data(fitted, {}, own, cite="x")


class Failing:
    """A library that fails as told."""

    def __init__(self, error: Exception, status: str | None) -> None:
        self.error, self.status = error, status

    def failure(self, error: Exception) -> str | None:
        assert error is self.error
        return self.status

    def __getattr__(self, name: str) -> Any:
        raise self.error


def test_a_failure_that_a_library_does_not_know_is_a_bug() -> None:
    """A known one becomes its status with the first line of what was said; others go through."""
    case = next(c for c in plan_cases(load_model(MODEL), MENU) if c.kind == "gemm")
    device = LocalDevice.__new__(LocalDevice)
    error = RuntimeError("no memory left\nmore of it")
    device._backend = Failing(error, "oom")  # type: ignore[assignment]
    with pytest.raises(CaseError) as known:
        device.sample(case, repeats=1, seconds=0.0)
    assert (known.value.status, known.value.reason) == ("oom", "no memory left")
    device._backend = Failing(error, None)  # type: ignore[assignment]
    with pytest.raises(RuntimeError):
        device.sample(case, repeats=1, seconds=0.0)
