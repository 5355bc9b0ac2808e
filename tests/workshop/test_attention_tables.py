"""Attention tables: what is read and rejected, and what a fit makes of planted laws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.base.errors import InputError
from roofline.calibrate.fit.core import held_out_shapes, score
from roofline.specs.gpu import load_hardware
from roofline.specs.laws import AttentionLaw
from roofline.validation.kernel_families import FAMILIES
from tests.attention_tables import BATCHES, CONTEXTS, H200, Array, table_of, timed
from workshop.tables import attention
from workshop.tables.attention import BOUNDS
from workshop.tables.family import TableGroup

BF16 = {"dtype": "bf16", "kernel": "fa3", "head_dim": 128}
GROUPS = (1, 2, 4, 8, 16, 32)
#: The laws behind the synthetic rows: a windowed kernel, and one that converts an fp8 cache first.
PLANTED = AttentionLaw(
    floor=6e-6,
    mem_eff=0.85,
    p=2.2,
    cta_s=3e-6,
    token_s=3e-9,
    max_splits=16.0,
    split_s=3e-6,
    row_s=3e-10,
    l2_gain=2.0,
    window_s=2e-6,
    window_pad=100.0,
    row_costs=(1.0, 1.0, 1.2),
)


def row(latency: float | None = 0.05, **other: Any) -> dict[str, Any]:
    """Return a row as the wheel has it: 32 heads over 8 of 128; ``latency`` is in milliseconds."""
    common = {"kernel_source": "fa3", "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    heads = {"num_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "window_size": 0}
    call = {"batch_size": 4, "isl": 1, "step": 1023, "latency": latency}
    return common | heads | call | other


def read(folder: Path, rows: Iterable[dict[str, Any]]) -> list[TableGroup]:
    return attention.read_groups(table_of(folder, rows), load_hardware(H200))


def grid(*, kv_heads: Iterable[int] = (1, 4, 8), windows: Iterable[int] = (0, 1024)) -> list[Any]:
    """Return rows of every batch, shape and context, without latencies."""
    return [
        row(
            num_heads=heads * group,
            num_key_value_heads=heads,
            window_size=window,
            batch_size=batch,
            step=context - 1,
        )
        for heads, group, window, batch, context in product(
            kv_heads, GROUPS, windows, BATCHES, CONTEXTS
        )
    ]


def planted(columns: Mapping[str, Array]) -> Array:
    return FAMILIES["attention"].seconds(columns, BF16, PLANTED, load_hardware(H200))


def test_a_row_is_read_in_the_tables_units(tmp_path: Path) -> None:
    (group,) = read(tmp_path, [row(0.05, window_size=512)])
    assert group.label == BF16
    assert {name: column.tolist() for name, column in group.columns.items()} == {
        "batch": [4],
        "kv_heads": [8],
        "group": [4],
        "context": [1024],  # the new token and 1,023 before it
        "window": [512],
    }
    assert group.seconds.tolist() == pytest.approx([50e-6])
    assert group.keys.tolist() == ["32x8x128x512"]
    assert group.rejected == {}


def test_the_textbook_reads_keys_and_values_once_and_no_more_than_the_window(
    tmp_path: Path,
) -> None:
    (group,) = read(tmp_path, [row(window_size=512), row(window_size=0)])
    # 4 x 8 caches of 1,024 or 512 tokens, K and V of 128 in two bytes; 4 queries and outputs.
    expected = [4 * 8 * (tokens * 2 * 128 * 2 + 4 * 2 * 128 * 2) / 4.8e12 for tokens in (1024, 512)]
    found = FAMILIES["attention"].textbook(group.columns, BF16, load_hardware(H200))
    assert found == pytest.approx(expected)


def test_a_table_without_windows_has_none(tmp_path: Path) -> None:
    (group,) = read(tmp_path, [{k: v for k, v in row().items() if k != "window_size"}])
    assert group.columns["window"].tolist() == [0]
    assert group.keys.tolist() == ["32x8x128x0"]


def test_a_table_without_a_needed_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"h200_sxm/attention/sglang/1/.*has no column step"):
        read(tmp_path, [{k: v for k, v in row().items() if k != "step"}])


def test_unusable_rows_are_rejected_by_name(tmp_path: Path) -> None:
    curve = [row(0.05 + 0.001 * i, step=2**i) for i in range(1, 9)]
    bad = [
        row(float("nan"), step=1000),
        row(-0.05, step=1001),
        row(0.0, step=1002),
        row(0.09, step=2),  # the same call as the first of the curve, and slower
        row(50.0, step=20),  # microseconds: a thousand times its neighbours
        row(0.05, num_heads=30),  # over 8 KV heads
        row(0.05, batch_size=0),
    ]
    (group,) = read(tmp_path, curve + bad)
    assert group.rejected == {
        "nan": 1,
        "non_positive": 2,
        "duplicate": 1,
        "unit_shifted": 1,
        "impossible_shape": 2,
    }
    assert group.seconds.tolist() == pytest.approx([1e-3 * r["latency"] for r in curve])


def test_kernels_cache_formats_and_head_sizes_are_kept_apart(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            row(kernel_source="triton"),  # the same call on another kernel is no duplicate
            row(),
            row(step=2047),
            row(kv_cache_dtype="fp8"),
            row(head_dim=64),
            row(kv_cache_dtype="int8"),  # no law speaks of it
        ],
    )
    labels = [tuple(group.label.values()) for group in found]
    assert labels == [  # the kernel with most rows first
        ("bf16", "fa3", 64),
        ("bf16", "fa3", 128),
        ("bf16", "triton", 128),
        ("fp8", "fa3", 128),
    ]
    assert [len(group.seconds) for group in found] == [1, 2, 1, 1]


def test_a_planted_law_is_recovered_from_noisy_rows(tmp_path: Path) -> None:
    (group,) = read(tmp_path, timed(grid(), planted, noise=0.03))
    held = held_out_shapes(group.keys)
    assert 0 < held.sum() < len(held) / 2
    gpu = load_hardware(H200)
    columns, seconds = group.pick(~held)
    law, extra = attention.fit(columns, group.label, seconds, gpu)
    assert extra == {"max_group": None}
    columns, _ = group.pick(held)
    found = score(FAMILIES["attention"].seconds(columns, group.label, law, gpu), planted(columns))
    assert found.median < 0.01  # a third of the noise, on shapes that the fit has not seen
    assert found.p90 < 0.03
    # The constants that these rows can tell apart.
    assert law.floor == pytest.approx(PLANTED.floor, rel=0.1)
    assert law.mem_eff == pytest.approx(PLANTED.mem_eff, rel=0.03)
    assert law.window_pad == pytest.approx(PLANTED.window_pad, rel=0.3)
    assert law.row_costs == pytest.approx((1.0, 1.0, 1.2), abs=0.05)
    assert law.convert_s == 0
    assert (law.row_tile, law.fp8_math) == (64, False)


def test_constants_keep_four_digits_inside_their_bounds(tmp_path: Path) -> None:
    (group,) = read(tmp_path, timed(grid(), planted, noise=0.03))
    law, _ = attention.fit(group.columns, group.label, group.seconds, load_hardware(H200))
    for name, (low, high, _) in BOUNDS.items():
        value = getattr(law, name)
        assert value == float(f"{value:.4g}")
        assert low <= value <= high
    again, _ = attention.fit(group.columns, group.label, group.seconds, load_hardware(H200))
    assert again == law


def test_windows_that_cut_nothing_leave_their_constants_alone(tmp_path: Path) -> None:
    rows = timed(grid(windows=(0,)), planted, noise=0.03)
    (group,) = read(tmp_path, rows)
    law, _ = attention.fit(group.columns, group.label, group.seconds, load_hardware(H200))
    assert (law.window_s, law.window_pad) == (0, 0)


def test_the_end_of_the_fast_path_is_found_and_left_out_of_the_fit(tmp_path: Path) -> None:
    fast = timed(grid(windows=(0,)), planted, noise=0.02)
    slow = [
        r | {"num_heads": 2 * r["num_heads"], "latency": 20 * r["latency"]}
        for r in fast
        if r["num_heads"] == 32 * r["num_key_value_heads"]
    ]
    gpu = load_hardware(H200)
    (whole,), (part,) = read(tmp_path, fast + slow), read(tmp_path, fast)
    law, extra = attention.fit(whole.columns, whole.label, whole.seconds, gpu)
    assert extra == {"max_group": 32}
    without, extra = attention.fit(part.columns, part.label, part.seconds, gpu)
    assert extra == {"max_group": None}
    assert law == without


def test_rows_on_the_floor_or_in_a_window_show_no_end_of_the_fast_path() -> None:
    call = {"batch": 1.0, "kv_heads": 8.0, "context": 1024.0, "window": 0.0}
    columns = {name: np.full(4, value) for name, value in call.items()}
    columns["group"] = np.array([1.0, 8.0, 32.0, 64.0])
    seconds = np.array([1e-5, 1e-5, 1e-5, 1e-3])
    assert attention.max_group(columns, seconds) is None  # the usual 10 us is the floor itself
    longer = {name: np.append(column, column) for name, column in columns.items()}
    longer["context"][4:] = 65536
    seconds = np.append(seconds, [1e-4, 1e-4, 1e-4, 1e-2])
    assert attention.max_group(longer, seconds) == 32
    longer["window"][7] = 1024
    assert attention.max_group(longer, seconds) is None


def test_a_kernel_that_no_law_describes_is_refused(tmp_path: Path) -> None:
    (group,) = read(tmp_path, timed(grid(windows=(0,)), planted, noise=1.5))
    with pytest.raises(ValueError, match="misses the rows it was fitted on by"):
        attention.fit(group.columns, group.label, group.seconds, load_hardware(H200))


def test_a_handful_of_rows_is_refused(tmp_path: Path) -> None:
    (group,) = read(tmp_path, [row(step=2**i) for i in range(9)])
    with pytest.raises(ValueError, match="only 9 rows"):
        attention.fit(group.columns, group.label, group.seconds, load_hardware(H200))


def test_groups_of_up_to_32_count() -> None:
    columns = {
        "batch": np.array([1.0, 256.0, 256.0]),
        "kv_heads": np.array([1.0, 8.0, 8.0]),
        "group": np.array([1.0, 32.0, 64.0]),
        "context": np.array([2.0, 8192.0, 8192.0]),
        "window": np.zeros(3),
    }
    assert FAMILIES["attention"].scored(columns).tolist() == [True, True, False]
