"""All-reduce tables: elements of two bytes, graph rows only, and planted lines found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from roofline.base.errors import InputError
from roofline.specs.gpu import load_hardware
from roofline.specs.laws import CollectiveConstants, CollectiveLaw
from roofline.validation.kernel_families import FAMILIES
from workshop.tables.collective import fit, read_groups
from workshop.tables.parquet import Table

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("scipy")

H200 = load_hardware("h200-sxm")  # 450 GB/s per direction
LAW = CollectiveLaw(
    ranks={
        2: CollectiveConstants(
            start={"one_shot": 4e-6, "two_shot": 8e-6, "bulk": 3e-5},
            share={"one_shot": 0.4, "two_shot": 0.6, "bulk": 0.9},
        ),
        8: CollectiveConstants(
            start={"one_shot": 5e-6, "two_shot": 1.2e-5, "bulk": 5e-5},
            share={"one_shot": 0.5, "two_shot": 0.6, "bulk": 0.95},
        ),
    }
)
SIZES = [2**n for n in range(7, 27)]


def row(*, gpus: int, size: int, latency: float, kernel: str = "x_graph") -> dict[str, object]:
    return {
        "kernel_source": kernel, "num_gpus": gpus, "message_size": size, "latency": latency,
    }  # fmt: skip


def written(folder: Path, rows: Sequence[Mapping[str, object]]) -> Table:
    import pyarrow as pa

    path = folder / "custom_allreduce_perf.parquet"
    parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    return Table(
        gpu="h200-sxm", family="comm", name=path.stem, engine="vllm", version="1.0", path=path
    )


def planted(gpus: int, size: int) -> float:
    """Return min(start + w S / (link share)) in ms, in plain Python; S is 2 bytes an element."""
    known = LAW.ranks[gpus]
    wires = {"one_shot": gpus - 1, "two_shot": 2 * (gpus - 1) / gpus, "bulk": 2 * (gpus - 1) / gpus}
    return 1e3 * min(
        known.start[form] + wires[form] * 2 * size / (450e9 * known.share[form])
        for form in ("one_shot", "two_shot", "bulk")
    )


def test_planted_lines_are_found_in_noisy_rows(tmp_path: Path) -> None:
    """One law with all numbers of GPUs; 1 % noise (seed 5), constants within a tenth, times 3 %."""
    rng = np.random.default_rng(5)
    rows = [
        row(gpus=n, size=size, latency=planted(n, size) * float(np.exp(0.01 * z)))
        for n in (2, 8)
        for size, z in zip(SIZES, rng.standard_normal(len(SIZES)), strict=True)
    ]
    (group,) = read_groups(written(tmp_path, rows), H200)
    assert (group.kind, group.label, group.rejected) == ("allreduce", {"kernel": "x_graph"}, {})
    law, extra = fit(group.columns, group.label, group.seconds, H200)
    assert extra == {}
    assert sorted(law.ranks) == [2, 8]
    for n, known in law.ranks.items():
        assert list(known.start.values()) == sorted(known.start.values())
        assert known.start["one_shot"] == pytest.approx(LAW.ranks[n].start["one_shot"], rel=0.03)
        assert known.share["bulk"] == pytest.approx(LAW.ranks[n].share["bulk"], rel=0.03)
    exact = FAMILIES["allreduce"].seconds(group.columns, group.label, LAW, H200)
    found = FAMILIES["allreduce"].seconds(group.columns, group.label, law, H200)
    assert found == pytest.approx(exact, rel=0.05)
    assert np.median(np.abs(found / exact - 1)) < 0.01


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    rows = [row(gpus=8, size=size, latency=planted(8, size)) for size in SIZES]
    (group,) = read_groups(written(tmp_path, rows), H200)
    law, _ = fit(group.columns, group.label, group.seconds, H200)
    turned = {name: column[::-1] for name, column in group.columns.items()}
    assert fit(turned, group.label, group.seconds[::-1], H200)[0] == law


def test_bad_rows_are_rejected_by_name(tmp_path: Path) -> None:
    good = [row(gpus=2, size=size, latency=planted(2, size)) for size in SIZES]
    bad = [
        row(gpus=2, size=130, latency=float("nan")),
        row(gpus=2, size=131, latency=-1.0),
        row(gpus=2, size=128, latency=1.0),
        row(gpus=2, size=1000, latency=4.5),  # microseconds
        *(row(gpus=2, size=size, latency=0.03, kernel="x_eager") for size in SIZES[:5]),
        row(gpus=2, size=256, latency=0.5, kernel="x_slow"),
    ]
    (group,) = read_groups(written(tmp_path, good + bad), H200)
    assert group.rejected == {
        "nan": 1, "non_positive": 1, "duplicate": 1, "unit_shifted": 1, "host_bound_eager": 5,
        "slower_kernel": 1,
    }  # fmt: skip
    assert group.label == {"kernel": "x_graph"}
    assert len(group.seconds) == len(SIZES)


def test_what_the_columns_mean(tmp_path: Path) -> None:
    """1,024 elements are 2,048 bytes; 0.005 ms are 5 us; the ring moves 2 (n - 1) / n of them."""
    (group,) = read_groups(written(tmp_path, [row(gpus=4, size=1024, latency=0.005)]), H200)
    assert group.columns["payload"].item() == 2048
    assert group.seconds.item() == pytest.approx(5e-6)
    assert group.keys.tolist() == ["4x1024"]
    expected = 1.5 * 2048 / 450e9
    assert FAMILIES["allreduce"].textbook(group.columns, group.label, H200).item() == pytest.approx(
        expected
    )


def test_a_table_of_eager_rows_alone_has_no_group(tmp_path: Path) -> None:
    rows = [row(gpus=2, size=size, latency=0.03, kernel="x_eager") for size in SIZES]
    assert read_groups(written(tmp_path, rows), H200) == []


def test_too_few_sizes_are_refused(tmp_path: Path) -> None:
    rows = [row(gpus=2, size=size, latency=0.03) for size in SIZES[:8]]
    (group,) = read_groups(written(tmp_path, rows), H200)
    with pytest.raises(InputError, match="9 sizes"):
        fit(group.columns, group.label, group.seconds, H200)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    rows = [{"kernel_source": "x", "num_gpus": 2, "message_size": 8}]
    with pytest.raises(InputError, match="latency"):
        read_groups(written(tmp_path, rows), H200)
