"""GEMM tables: what is read and rejected, and what a fit makes of a law that we planted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.calibrate.fit.core import held_out_shapes, score
from roofline.calibrate.fit.tiles import (
    BOUNDS,
    PRODUCT_FORMATS,
    STEP,
    product_scored,
    product_seconds,
    product_textbook,
)
from roofline.kernels.ops import GemmShape
from roofline.specs.formats import bytes_per_element, rate_name
from roofline.specs.gpu import HardwareProfile, load_hardware, load_overlay
from roofline.specs.laws import GemmBlock, GemmLaw
from roofline.timing.lawbook import ENGINES
from roofline.timing.laws.gemm import gemm_time
from roofline.timing.machine import Machine
from workshop.tables import gemm
from workshop.tables.family import TableGroup
from workshop.tables.parquet import FOLDERS, Table

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("scipy")

Array = NDArray[np.float64]
H200 = "h200-sxm"
M = (1, 4, 8, 16, 24, 32, 48, 64, 65, 96, 128, 129, 192, 256, 257, 384, 512, 768, 1024)
SIZES = (512, 1024, 2048, 4096, 6144, 8192, 12288)
#: The law behind the synthetic rows: a static table of tiles whose empty rows cost extra.
PLANTED = GemmLaw(
    tiles="static",
    floor=5e-6,
    act=2.0,
    latency=1.2e-7,
    compute_eff=0.75,
    edge=8e-7,
    split=0.0,
    traffic=0.0,
    mem_eff=0.82,
    r=2.5,
    q=0.4,
    pad=1.0,
    c=(0.6, 0.7, 0.7, 0.8, 0.9, 1.0),
)


@pytest.fixture(scope="module")
def gpu() -> HardwareProfile:
    return load_hardware(H200)


def grid() -> dict[str, Array]:
    """Return every M with every (N, K)."""
    m, n, k = np.meshgrid(M, SIZES, SIZES, indexing="ij")
    return {"m": m.ravel() * 1.0, "n": n.ravel() * 1.0, "k": k.ravel() * 1.0}


def row(m: int, latency: float | None, **other: Any) -> dict[str, Any]:
    """Return a row as the wheel has it; ``latency`` is in milliseconds."""
    common = {"framework": "none", "op_name": "gemm", "kernel_source": "k", "gemm_dtype": "fp8"}
    return common | {"m": m, "n": 4096, "k": 4096, "latency": latency} | other


def table_of(folder: Path, rows: Iterable[dict[str, Any]]) -> Table:
    path = folder / "gemm_perf.parquet"
    parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    return Table(gpu=H200, family="gemm", name="gemm_perf", engine="vllm", version="1", path=path)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, gpu: HardwareProfile) -> TableGroup:
    """Return the rows of the planted law, read from a table with 3 % noise."""
    columns = grid()
    exact = product_seconds(columns, {"dtype": "fp8"}, PLANTED, gpu)
    noisy = exact * np.exp(np.random.default_rng(7).normal(0.0, 0.03, len(exact)))
    sizes = zip(columns["m"], columns["n"], columns["k"], noisy, strict=True)
    rows = [row(int(m), 1e3 * t, n=int(n), k=int(k)) for m, n, k, t in sizes]
    (group,) = gemm.read_groups(table_of(tmp_path_factory.mktemp("planted"), rows), gpu)
    return group


@pytest.fixture(scope="module")
def recovered(planted: TableGroup, gpu: HardwareProfile) -> GemmLaw:
    columns, seconds = planted.pick(~held_out_shapes(planted.keys))
    law, others = gemm.fit(columns, planted.label, seconds, gpu)
    assert others == {}
    return law


def test_planted_law_predicts_shapes_it_was_not_fitted_on(
    planted: TableGroup, recovered: GemmLaw, gpu: HardwareProfile
) -> None:
    columns, _ = planted.pick(held_out_shapes(planted.keys))
    truth = product_seconds(columns, planted.label, PLANTED, gpu)
    error = score(product_seconds(columns, planted.label, recovered, gpu), truth)
    assert error.rows > 100
    assert error.median < 0.01  # a third of the noise that was added
    assert error.p90 < 0.025


def test_planted_constants_come_back(recovered: GemmLaw) -> None:
    assert recovered.tiles == PLANTED.tiles
    for name in ("floor", "act", "latency", "compute_eff", "edge", "mem_eff", "r", "q", "pad"):
        assert getattr(recovered, name) == pytest.approx(getattr(PLANTED, name), rel=0.15), name
    assert recovered.c == pytest.approx(PLANTED.c, abs=0.1)
    # The rows show no small weights kept in L2, and these tiles never slice K.
    assert (recovered.l2_fit, recovered.l2_gain) == (0.0, 1.0)
    assert (recovered.split, recovered.traffic) == (0.0, 0.0)


def test_fit_is_rounded_and_does_not_depend_on_the_order_of_rows(
    planted: TableGroup, gpu: HardwareProfile
) -> None:
    few = (planted.columns["n"] <= 2048) & (planted.columns["k"] >= 4096)
    columns, seconds = planted.pick(few)
    order = np.random.default_rng(1).permutation(len(seconds))
    law, _ = gemm.fit(columns, planted.label, seconds, gpu)
    shuffled = {name: column[order] for name, column in columns.items()}
    assert gemm.fit(shuffled, planted.label, seconds[order], gpu)[0] == law
    for value in (law.floor, law.latency, law.mem_eff, *law.c):
        assert value == float(f"{value:.4g}")


def test_too_few_judged_rows_are_refused(planted: TableGroup, gpu: HardwareProfile) -> None:
    columns, seconds = planted.pick(np.arange(99))
    with pytest.raises(ValueError, match="99 rows with M <= 1024 and N, K >= 512, of 100 needed"):
        gemm.fit(columns, planted.label, seconds, gpu)


def test_unusable_rows_are_rejected_by_name(tmp_path: Path, gpu: HardwareProfile) -> None:
    good = [row(m, 0.010 + 0.0001 * m) for m in (1, 2, 4, 8, 16, 32, 64, 128)]
    bad = [
        row(3, float("nan")),
        row(5, None),
        row(6, float("inf")),
        row(7, -0.010),
        row(9, 0.0),
        row(16, 0.020),  # slower than the other row of M = 16: the fastest stays
        row(64, 0.0164),
        row(12, 11.2),  # microseconds
        row(24, 0.0000124),  # seconds
    ]
    (group,) = gemm.read_groups(table_of(tmp_path, bad + good), gpu)
    assert group.rejected == {"nan": 3, "non_positive": 2, "duplicate": 2, "unit_shifted": 2}
    assert group.columns["m"].tolist() == [1, 2, 4, 8, 16, 32, 64, 128]
    expected = [1.01e-5, 1.02e-5, 1.04e-5, 1.08e-5, 1.16e-5, 1.32e-5, 1.64e-5, 2.28e-5]
    assert group.seconds == pytest.approx(expected)


def test_a_group_for_each_dtype_that_has_a_rate(tmp_path: Path, gpu: HardwareProfile) -> None:
    names = ("bfloat16", "fp8", "fp8_block", "nvfp4", "int8_wo", "int4_wo", "sq", "novel")
    rows = [row(m, 0.01, gemm_dtype=name) for name in names for m in (1, 2)]
    rows += [row(4, 0.01, op_name="gemm_with_bias")]
    found = gemm.read_groups(table_of(tmp_path, rows), gpu)
    labels = [dict(group.label) for group in found]
    # The H200 has no 4-bit rate, and nothing is known of "novel".
    wanted = ("bf16", "fp8", "fp8-block", "int8-wo", "int4-wo", "int8")
    assert labels == [{"dtype": name} for name in wanted]
    assert {group.source for group in found} == {"h200_sxm/gemm/vllm/1/gemm_perf"}
    for group in found:
        assert group.keys.tolist() == ["4096x4096"] * 2
        assert group.columns["m"].tolist() == [1, 2]


def test_a_malformed_table_is_named(tmp_path: Path, gpu: HardwareProfile) -> None:
    rows = [row(m, 0.01) for m in (1, 2)]
    table = table_of(tmp_path, [{k: v for k, v in r.items() if k != "gemm_dtype"} for r in rows])
    with pytest.raises(InputError, match=r"h200_sxm/gemm/vllm/1/gemm_perf.*gemm_dtype"):
        gemm.read_groups(table, gpu)


def test_textbook_by_hand(gpu: HardwareProfile) -> None:
    columns = {"m": np.array([1.0, 8192.0]), "n": np.full(2, 8192.0), "k": np.full(2, 8192.0)}
    found = product_textbook(columns, {"dtype": "bf16"}, gpu)
    # (8192^2 + 2 x 8192) x 2 B at 4.8 TB/s; 2 x 8192^3 FLOP at 989.4 TFLOP/s.
    assert found == pytest.approx([2.797e-5, 1.1113e-3], rel=1e-3)


def test_the_judged_region() -> None:
    columns = {
        "m": np.array([1024.0, 1025, 1, 1]),
        "n": np.array([512.0, 512, 511, 512]),
        "k": np.array([512.0, 512, 512, 511]),
    }
    assert product_scored(columns).tolist() == [True, False, False, False]


def test_a_benchmark_may_find_small_weights_in_l2(gpu: HardwareProfile) -> None:
    columns = {"m": np.ones(2), "n": np.array([1024.0, 8192.0]), "k": np.array([4096.0, 8192.0])}
    label = {"dtype": "fp8"}
    warm = product_seconds(columns, label, GemmLaw(r=1.0, l2_fit=20e6, l2_gain=2.0), gpu)
    never = product_seconds(columns, label, GemmLaw(r=1.0), gpu)
    # Half of 1024 x 4096 + 4096 + 2 x 1024 bytes at 85 % of 4.8 TB/s; 67 MB do not fit 20 MB.
    assert never - warm == pytest.approx([5.148e-7, 0.0], rel=1e-3, abs=1e-9)


#: Microseconds of fp8_block, N = K = 8192, on H200 with TensorRT-LLM 1.3.0rc20
#: (aiconfigurator-core 0.12.0, h200_sxm/gemm/trtllm/1.3.0rc20/gemm_perf.parquet, Apache-2.0).
#: The kernel gets faster with more rows, until a tile is full. The shape is not in the fit.
MEASURED = {64: 25.5, 65: 36.7, 112: 29.2, 128: 27.9, 129: 56.4, 192: 48.0, 256: 36.4}


def _block_scaled() -> GemmLaw:
    overlay = load_overlay(H200, "trtllm")
    assert overlay is not None
    (law,) = [
        block.law
        for block in overlay.calibration
        if isinstance(block, GemmBlock) and block.dtype == "fp8-block"
    ]
    return law


def test_staircase_of_a_kernel_that_gets_faster_with_more_rows(gpu: HardwareProfile) -> None:
    rows = np.array(list(MEASURED), dtype=np.float64)
    columns = {"m": rows, "n": np.full(len(rows), 8192.0), "k": np.full(len(rows), 8192.0)}
    found = product_seconds(columns, {"dtype": "fp8-block"}, _block_scaled(), gpu)
    measured = 1e-6 * np.array(list(MEASURED.values()))
    assert found == pytest.approx(measured, rel=0.15)
    assert np.sign(np.diff(found)).tolist() == np.sign(np.diff(measured)).tolist()


def _shipped() -> list[tuple[str, GemmBlock]]:
    """Return every GEMM law that the package ships, with its accelerator."""
    overlays = [load_overlay(gpu, engine) for gpu in FOLDERS for engine in ENGINES]
    return [
        (overlay.gpu, block)
        for overlay in overlays
        if overlay is not None
        for block in overlay.calibration
        if isinstance(block, GemmBlock)
    ]


def test_without_the_staircase_no_law_falls_when_work_grows(recovered: GemmLaw) -> None:
    m = np.unique(np.geomspace(1, 16384, 24).round())[:, None, None]
    n = np.geomspace(256, 262144, 12).round()[:, None]
    k = np.geomspace(256, 131072, 12).round()
    laws = [(gpu, block.dtype, block.law) for gpu, block in _shipped()]
    for gpu, dtype, law in [(H200, "fp8", recovered), (H200, "fp8", PLANTED), *laws]:
        known = PRODUCT_FORMATS[dtype]
        shape: Any = {"m": m + 0 * (n + k), "n": n + 0 * (m + k), "k": k + 0 * (m + n)}
        shape |= {"weight": bytes_per_element(known.storage), "activation": 1.0}
        device = Machine(load_hardware(gpu)).device(rate_name(known.compute))
        time = np.asarray(gemm_time(GemmShape(**shape), device, law, staircase=False).total)
        for axis in range(3):
            assert (np.diff(time, axis=axis) >= -1e-12 * time.max()).all(), (gpu, dtype, axis)


def test_shipped_laws_keep_to_physical_bounds() -> None:
    shipped = _shipped()
    assert shipped
    for gpu, block in shipped:
        cache = load_hardware(gpu).compute.l2
        assert cache is not None
        for name, (unit, _, low, high) in BOUNDS.items():
            value = getattr(block.law, name) / unit
            top = cache.value / unit if name == "l2_fit" else high
            # Rounding to four digits may pass a bound by half a digit.
            assert value == 0 or low * 0.9995 <= value <= top * 1.0005, (gpu, block.dtype, name)
        assert all(STEP[2] <= step <= STEP[3] for step in block.law.c), (gpu, block.dtype)
