"""A planted machine is found again: constants, modes, cliffs, outliers, drift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.base.resources import data_file
from roofline.calibrate.fit.five_number import KernelRows, fit_simple, predict
from roofline.calibrate.fit.machine import MachineFit, fit_rows
from roofline.calibrate.measure.campaign import run_campaign
from roofline.calibrate.measure.cases import Case, plan_cases
from roofline.calibrate.measure.noise import believable_rows, cliffs, drifted, summarise
from roofline.calibrate.measure.rows import Row, RowFile, read_rows
from roofline.calibrate.profile import profile_data
from roofline.specs.gpu import HardwareProfile
from roofline.specs.network import load_model
from roofline.specs.placement import VerifyAttention
from tests.measuring import (
    BANDWIDTH,
    COMPUTE_EFF,
    FLOOR,
    MEM_EFF,
    PEAK,
    FakeDevice,
    of_case,
    short_campaign,
)

MODEL = "qwen3-0.6b"


def campaign(device: FakeDevice, path: Path, budget: float = 1e9, **options: Any) -> RowFile:
    file = RowFile(path, device.facts(), resume=path.exists())
    run_campaign(
        device, plan_cases(load_model(MODEL), device.menu()), file, budget=budget, **options
    )
    return file


def fitted(device: FakeDevice, folder: Path) -> MachineFit:
    file = campaign(device, folder / "run.csv")
    return fit_rows(file.rows, device.facts(), None, cite="planted")


def law_of(result: MachineFit, covers: str) -> dict[str, Any]:
    blocks = [j.block for j in result.laws if j.block.get("covers") == covers]
    law: dict[str, Any] = blocks[0]["law"]
    return law


def test_a_planted_law_is_recovered_within_three_percent(tmp_path: Path) -> None:
    """2 % noise; the expected constants are those that tests/measuring.py writes out by hand."""
    result = fitted(FakeDevice(), tmp_path)
    assert result.figures.bandwidth == pytest.approx(BANDWIDTH, rel=0.03)
    assert result.figures.peaks["fp32"] == pytest.approx(PEAK, rel=0.03)
    law = law_of(result, "gemm")
    assert law["mem_eff"] * result.figures.bandwidth == pytest.approx(BANDWIDTH * MEM_EFF, rel=0.03)
    reached = law["compute_eff"] * result.figures.peaks["fp32"]
    assert reached == pytest.approx(PEAK * COMPUTE_EFF, rel=0.03)
    for judged in result.laws:
        measured = np.array([of_case_row(row) for row in judged.rows])
        assert np.median(np.abs(judged.predicted / measured - 1)) < 0.03, judged.block


def of_case_row(row: Row) -> float:
    """Return what the planted machine would take without noise."""
    return FLOOR + max(row.bytes / (BANDWIDTH * MEM_EFF), row.flops / (PEAK * COMPUTE_EFF))


def test_a_planted_floor_is_recovered(tmp_path: Path) -> None:
    """Norms of a few rows move kilobytes: their time is the floor of 5 us."""
    result = fitted(FakeDevice(noise=0.005), tmp_path)
    floor = next(j.block["law"]["floor"] for j in result.laws if j.block.get("op") == "mlp_norm")
    assert floor == pytest.approx(FLOOR, rel=0.03)


def test_outliers_do_not_move_a_law(tmp_path: Path) -> None:
    device = FakeDevice(outlier_every=2)
    file = campaign(device, tmp_path / "run.csv")
    assert sum(row.outliers for row in file.rows) >= len(file.rows) // 3
    result = fit_rows(file.rows, device.facts(), None, cite="planted")
    law = law_of(result, "gemm")
    assert law["mem_eff"] * result.figures.bandwidth == pytest.approx(BANDWIDTH * MEM_EFF, rel=0.03)


def test_rows_measured_while_the_machine_was_slow_are_left_out(tmp_path: Path) -> None:
    """The last fifth of the run is half as fast; the reference kernel tells."""
    device = FakeDevice()
    ticks = iter(range(10**6))
    cases = plan_cases(load_model(MODEL), device.menu())
    device.drift_after = int(0.8 * len(cases))
    file = RowFile(tmp_path / "run.csv", device.facts(), resume=False)
    run_campaign(device, cases, file, budget=4.4 * len(cases), now=lambda: float(next(ticks)))
    slow = [row for row in file.rows if row.probe > 1.2e-3]
    assert slow
    believable = believable_rows(file.rows)
    assert believable.left_out["drift"] == len(slow)
    assert not {(r.round, r.key) for r in believable.rows} & {(r.round, r.key) for r in slow}
    result = fit_rows(file.rows, device.facts(), None, cite="planted")
    law = law_of(result, "gemm")
    assert law["mem_eff"] * result.figures.bandwidth == pytest.approx(BANDWIDTH * MEM_EFF, rel=0.03)


def test_a_kernel_that_falls_off_a_cliff_is_named(tmp_path: Path) -> None:
    def slower(case: Case) -> float:
        return of_case(case) * (2.0 if case.op == "o_proj" and case.rows > 16 else 1.0)

    result = fitted(FakeDevice(law=slower), tmp_path)
    (cliff,) = result.cliffs
    assert (cliff.op, cliff.kernel, cliff.dtype) == ("o_proj", "linear", "fp32")
    assert (cliff.before, cliff.after) == (16, 20)
    assert cliff.jump == pytest.approx(2.0, rel=0.1)


def test_the_staircase_of_a_library_is_followed(tmp_path: Path) -> None:
    """One row takes a fast path (x1), two and more cost four times the stream."""

    def stairs(case: Case) -> float:
        step = 4.0 if case.kind == "gemm" and case.op != "peak" and case.rows > 1 else 1.0
        return step * of_case(case)

    result = fitted(FakeDevice(law=stairs, noise=0.01), tmp_path)
    judged = next(j for j in result.laws if j.block.get("covers") == "gemm")
    assert judged.median < 0.03
    steps = dict(judged.block["law"]["steps"])
    assert steps[2.0] / steps[1.0] == pytest.approx(4.0, rel=0.05)


def test_one_row_has_a_step_even_with_few_timings() -> None:
    """By hand: one row at 1 us, two and more at 4 us, each moving 80 kB at 80 GB/s or a quarter."""
    m = np.array([1.0, *np.repeat([2.0, 4.0, 8.0, 16.0, 32.0], 3)])
    seconds = np.where(m == 1, 1e-6, 4e-6)
    bench = KernelRows(
        flops=2 * m, bytes=np.full(m.shape, 80e3), rows=m, depth=np.ones(m.shape),
        work=np.zeros(m.shape), seconds=seconds, peak=1e15, bandwidth=80e9,
    )  # fmt: skip
    predicted = predict(bench, fit_simple(bench))
    np.testing.assert_allclose(predicted, seconds, rtol=0.01)


def test_a_product_with_a_law_of_its_own_leaves_that_of_the_others_alone(tmp_path: Path) -> None:
    """o_proj takes three times as long; the others keep the planted 80 GB/s."""

    def law(case: Case) -> float:
        return of_case(case) * (3.0 if case.op == "o_proj" else 1.0)

    result = fitted(FakeDevice(law=law), tmp_path)
    laws = {j.block.get("op"): j for j in result.laws if j.block.get("covers") == "gemm"}
    assert set(laws) == {None, "o_proj"}
    assert "o_proj" not in {row.op for row in laws[None].rows}
    rate = laws[None].block["law"]["mem_eff"] * result.figures.bandwidth
    assert rate == pytest.approx(BANDWIDTH * MEM_EFF, rel=0.03)
    for op, times in ((None, 1.0), ("o_proj", 3.0)):
        wanted = np.array([times * of_case_row(row) for row in laws[op].rows])
        assert np.median(np.abs(laws[op].predicted / wanted - 1)) < 0.03


def test_small_products_that_take_another_path_are_priced_apart(tmp_path: Path) -> None:
    """Up to 600 kFLOP for a sequence and KV head 240 GB/s, above that 80 GB/s."""

    def per_head(sizes: dict[str, int]) -> int:
        return 4 * sizes["q"] * sizes["group"] * sizes["head_dim"] * sizes["context"]

    def law(case: Case) -> float:
        if case.kind != "attention":
            return of_case(case)
        small = per_head(dict(case.shape)) <= 600_000
        return FLOOR + max(case.bytes / (240e9 if small else 80e9), case.flops / 6e12)

    result = fitted(FakeDevice(law=law), tmp_path)
    judged = next(j for j in result.laws if j.block.get("covers") == "attention")
    # the sizes measured about it: 4 x 2 rows x 128 x 512 tokens, and 4 x 6 x 128 x 256
    assert 524_288 < judged.block["law"]["small"] < 786_432
    small = np.array([per_head(row.sizes) <= 600_000 for row in judged.rows])
    assert small.sum() >= 3
    measured = np.array([row.seconds for row in judged.rows])
    for part in (small, ~small):
        assert np.median(np.abs(judged.predicted[part] / measured[part] - 1)) < 0.03


def test_no_product_gets_its_own_law_unless_it_is_faster(tmp_path: Path) -> None:
    result = fitted(FakeDevice(), tmp_path)
    assert "small" not in law_of(result, "attention")


def test_a_slow_start_does_not_hide_the_peak_or_the_bandwidth(tmp_path: Path) -> None:
    """What they are read from is looked at again: the first look is 1.6 times too slow."""
    seen: set[str] = set()

    def law(case: Case) -> float:
        first = case.anchors and case.key not in seen
        seen.add(case.key)
        return of_case(case) * (1.6 if first else 1.0)

    device = FakeDevice(law=law)
    rows = short_campaign(device, load_model(MODEL), tmp_path)
    looks = [row for row in rows if row.op == "copy"]
    assert len(looks) >= 4
    assert len({(row.round, row.key) for row in rows}) == len(rows)
    figures = fit_rows(rows, device.facts(), None, cite="planted").figures
    assert figures.bandwidth == pytest.approx(BANDWIDTH, rel=0.03)
    assert figures.peaks["fp32"] == pytest.approx(PEAK, rel=0.03)


def planted_mode(mode: VerifyAttention, tile: int = 32) -> FakeDevice:
    """Return a machine whose attention reads its cache in one of the three ways."""

    def law(case: Case) -> float:
        if case.kind != "attention":
            return of_case(case)
        s = dict(case.shape)
        rows = s["q"] * s["group"]
        pairs = s["batch"] * s["kv_heads"]
        reads = s["q"] if mode is VerifyAttention.KV_PER_QUERY else 1
        worked = -(-rows // tile) * tile if mode is VerifyAttention.TILE else rows
        moved = pairs * s["head_dim"] * 4 * (2 * s["context"] * reads + 2 * rows)
        flops = pairs * 4 * worked * s["head_dim"] * s["context"]
        return FLOOR + max(moved / 80e9, flops / 1e12)

    return FakeDevice(law=law)


def test_the_ways_of_three_real_kernels_are_told_apart() -> None:
    """On the shipped run of a CPU: kernels that read the cache once, in tiles, per row."""
    facts, rows = read_rows(Path(str(data_file("measured"))) / "cpu-epyc-2-cores-numpy.csv")
    read_modes = fit_rows(rows, facts, None, cite="shipped").read_modes
    assert {kernel: v.mode.value for (kernel, _), v in read_modes.items()} == {
        "packed": "kv_once", "per_query": "kv_per_query", "tile": "tile",
    }  # fmt: skip
    assert all(read_mode.told_apart for read_mode in read_modes.values())
    assert read_modes["tile", "fp32"].tile_rows == 32


@pytest.mark.parametrize(
    "mode", [VerifyAttention.KV_ONCE, VerifyAttention.TILE, VerifyAttention.KV_PER_QUERY]
)
def test_the_three_ways_to_read_a_cache_are_told_apart(
    mode: VerifyAttention, tmp_path: Path
) -> None:
    result = fitted(planted_mode(mode), tmp_path)
    (read_mode,) = result.read_modes.values()
    assert read_mode.mode is mode
    assert read_mode.told_apart
    if mode is VerifyAttention.TILE:
        assert read_mode.tile_rows == 32
    assert min(read_mode.errors, key=lambda name: read_mode.errors[name]) == mode.value


def test_the_mode_found_is_the_default_of_the_profile(tmp_path: Path) -> None:
    device = planted_mode(VerifyAttention.TILE)
    result = fitted(device, tmp_path)
    data = profile_data(result, device.facts(), None, cite="planted")
    profile = HardwareProfile.check(data, "planted.yaml")
    assert profile.verify_attention is not None
    assert profile.verify_attention.mode is VerifyAttention.TILE
    assert profile.verify_attention.tile_rows == 32


def test_samples_settle_on_the_median_without_far_ones() -> None:
    """MAD of (1, 1, 1.02, .98, 1.01) about 1 is .01: 5 x 1.4826 x .01 = .074; 1.2 is far."""
    summary = summarise([1.0, 1.0, 1.02, 0.98, 1.01, 1.2])
    assert summary.outliers == 1
    assert summary.median == 1.0
    assert not summary.noisy
    assert summarise([1.0, 2.0, 3.0, 4.0]).noisy


def test_drift_is_judged_only_where_a_probe_was_taken() -> None:
    assert not drifted(np.zeros(3)).any()
    assert drifted(np.array([1.0, 1.0, 1.0, 1.16])).tolist() == [False, False, False, True]


def test_time_that_grows_with_the_rows_is_no_cliff() -> None:
    m = np.array([1.0, 2.0, 4.0, 8.0])
    assert cliffs(m, m * 1e-3) == []
    assert cliffs(np.array([64.0, 65.0]), np.array([1.0, 1.66])) == [(64.0, 65.0, 1.66)]
