"""GDN tables: which rows are decode steps, what they move, and a planted law found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from roofline.calibrate.fit.core import held_out_shapes
from roofline.specs.gpu import load_hardware
from roofline.specs.laws import StateLaw
from roofline.validation.kernel_families import FAMILIES
from workshop.tables.parquet import Table
from workshop.tables.state import fit, read_groups

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("scipy")

H200 = load_hardware("h200-sxm")  # 4.8 TB/s, 60 MiB of L2
PACKED = "fused_recurrent_gated_delta_rule_packed_decode"
PLAIN = "fused_recurrent_gated_delta_rule"
CONVOLUTION = "causal_conv1d_update"


def row(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "kernel_source": PACKED,
        "phase": "generation",
        "batch_size": 1,
        "d_conv": 4,
        "num_k_heads": 16,
        "num_v_heads": 32,
        "head_k_dim": 128,
        "head_v_dim": 128,
        "latency": 0.005,
    }
    return base | changes


def written(folder: Path, rows: Sequence[Mapping[str, object]], *, engine: str = "vllm") -> Table:
    import pyarrow as pa

    path = folder / "gdn_perf.parquet"
    parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    return Table(
        gpu="h200-sxm",
        family="linear_attention",
        name=path.stem,
        engine=engine,
        version="1.0",
        path=path,
    )


def test_a_planted_law_is_found_in_noisy_rows(tmp_path: Path) -> None:
    """2 % noise (seed 11): constants within a few percent, held-out shapes within 2 %."""
    rows = [
        row(num_k_heads=k, num_v_heads=v, batch_size=2**n)
        for (k, v), n in product(
            ((2, 4), (4, 8), (8, 16), (16, 16), (16, 32), (16, 48), (16, 64)), range(11)
        )
    ]
    (group,) = read_groups(written(tmp_path, rows), H200)
    planted = StateLaw(floor=4.5e-6, mem_eff=0.85, r=1.4, l2_saving=0.25)
    exact = FAMILIES["ssm"].seconds(group.columns, group.label, planted, H200)
    rng = np.random.default_rng(11)
    measured = exact * np.exp(0.02 * rng.standard_normal(len(exact)))
    held = held_out_shapes(group.keys)
    assert held.any()
    columns, _ = group.pick(~held)
    law, extra = fit(columns, group.label, measured[~held], H200)
    assert extra == {}
    assert law.floor == pytest.approx(planted.floor, rel=0.03)
    assert law.mem_eff == pytest.approx(planted.mem_eff, rel=0.03)
    assert law.r == pytest.approx(planted.r, rel=0.1)
    columns, _ = group.pick(held)
    assert FAMILIES["ssm"].seconds(columns, group.label, law, H200) == pytest.approx(
        exact[held], rel=0.03
    )


def test_bad_rows_are_rejected_by_name(tmp_path: Path) -> None:
    good = [row(batch_size=2**n, latency=0.004 * (1 + n)) for n in range(9)]
    bad = [
        row(batch_size=3, latency=float("nan")),
        row(batch_size=5, latency=-0.01),
        row(batch_size=7, latency=0.0),
        row(batch_size=4, latency=0.5),
        row(batch_size=48, latency=20.0),  # microseconds
    ]
    prefill = [row(phase="context", batch_size=2**n) for n in range(9)]
    (group,) = read_groups(written(tmp_path, good + bad + prefill), H200)
    assert group.rejected == {"nan": 1, "non_positive": 2, "duplicate": 1, "unit_shifted": 1}
    assert len(group.seconds) == 9  # prefill is another kernel's business, not a bad row


def test_an_update_reads_and_writes_its_state(tmp_path: Path) -> None:
    """By hand for 2 sequences of 32 x 128 x 128 fp32 elements, and their q, k, v and output."""
    (group,) = read_groups(written(tmp_path, [row(batch_size=2)]), H200)
    state = 2 * 32 * 128 * 128 * 8
    vectors = 2 * 2 * (16 * 128 * 2 + 32 * 128 * 2)
    assert group.kind == "ssm"
    assert group.label == {"dtype": "fp32", "kernel": PACKED}
    assert group.seconds.item() == pytest.approx(5e-6)
    assert group.keys.tolist() == ["16x32x128x128"]
    assert group.columns["moved"].item() == state + vectors
    assert (
        FAMILIES["ssm"].textbook(group.columns, group.label, H200).item()
        == (state + vectors) / 4.8e12
    )


def test_an_unpacked_update_reads_bf16_and_writes_fp32_elsewhere(tmp_path: Path) -> None:
    table = written(tmp_path, [row(kernel_source=PLAIN)], engine="trtllm")
    (group,) = read_groups(table, H200)
    vectors = 2 * (16 * 128 * 2 + 32 * 128 * 2)
    assert group.columns["moved"].item() == 32 * 128 * 128 * 6 + vectors


def test_a_state_larger_than_the_cache_is_not_resident(tmp_path: Path) -> None:
    """60 MiB hold 30 states of 2 MiB in place: 15 leave (1/2)^8 of doubt, 30 are gone."""
    rows = [row(batch_size=n) for n in (1, 15, 30, 64)]
    (group,) = read_groups(written(tmp_path, rows), H200)
    found = dict(zip(group.columns["moved"], group.columns["resident"], strict=True))
    assert [found[key] for key in sorted(found)] == pytest.approx([1, 1 - 2**-8, 0, 0], abs=1e-9)


@pytest.mark.parametrize(
    ("engine", "channels"), [("vllm", 2 * 16 * 128 + 32 * 128), ("trtllm", 16 * 128)]
)
def test_a_convolution_moves_its_window(tmp_path: Path, engine: str, channels: int) -> None:
    """3 old inputs read and written, one in, one out, 2 bytes each; updates come first."""
    rows = [row(kernel_source=CONVOLUTION), row()]
    update, window = read_groups(written(tmp_path, rows, engine=engine), H200)
    assert (update.label["kernel"], window.label["kernel"]) == (PACKED, CONVOLUTION)
    assert window.label["dtype"] == "bf16"
    assert window.columns["moved"].item() == channels * 2 * 8


def test_constants_that_rows_cannot_determine_are_pinned(tmp_path: Path) -> None:
    """Every state fits L2: a saving and an efficiency are one number, and HBM gets no saving."""
    rows = [row(num_v_heads=16, batch_size=n) for n in (1, 2, 3, 4, 6, 8, 10, 12)]
    (group,) = read_groups(written(tmp_path, rows), H200)
    assert np.ptp(group.columns["resident"]) < 0.01
    planted = StateLaw(floor=4e-6, mem_eff=0.6, r=1.5)
    exact = FAMILIES["ssm"].seconds(group.columns, group.label, planted, H200)
    law, _ = fit(group.columns, group.label, exact, H200)
    assert law.l2_saving == 0.0
    assert law.mem_eff == pytest.approx(0.6, rel=0.01)
