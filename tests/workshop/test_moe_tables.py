"""MoE tables: read and cleaned by name, routing as brute force has it, and a planted law found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from roofline.base.numbers import Array
from roofline.calibrate.fit.core import held_out_shapes
from roofline.kernels.ops import MoeShape
from roofline.specs.gpu import load_hardware
from roofline.specs.laws import MoeLaw
from roofline.timing.laws.moe import moe_time
from roofline.timing.laws.simple import Device
from roofline.validation.kernel_families import FAMILIES
from workshop.tables.family import TableGroup
from workshop.tables.moe import fit, read_groups
from workshop.tables.parquet import Table
from workshop.tables.routing import (
    balanced_picks,
    group_limited_loads,
    picks_from_loads,
    power_law_loads,
    rank_load,
)

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("scipy")

H200 = load_hardware("h200-sxm")  # 4.8 TB/s, 989.4 TFLOP/s bf16, 60 MiB of L2
Row = Mapping[str, object]


def row(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "kernel_source": "some_triton",
        "moe_dtype": "bfloat16",
        "num_tokens": 8,
        "hidden_size": 2048,
        "inter_size": 1024,
        "topk": 2,
        "num_experts": 8,
        "moe_tp_size": 1,
        "moe_ep_size": 1,
        "distribution": "balanced",
        "latency": 0.05,
    }
    return base | changes


def written(folder: Path, rows: Sequence[Row]) -> Table:
    import pyarrow as pa

    path = folder / "moe_perf.parquet"
    parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    return Table(
        gpu="h200-sxm", family="moe", name="moe_perf", engine="vllm", version="1.0", path=path
    )


def grid() -> list[dict[str, object]]:
    """Return some shapes: wide and narrow shards, with and without expert parallelism."""
    shapes = [(64, 4, 2048, 1024), (128, 8, 4096, 768), (16, 2, 4096, 4096), (256, 8, 3072, 512)]
    splits = [(1, 1), (1, 4), (1, 8), (4, 1), (8, 1), (16, 1)]
    routings = ("balanced", "power_law_1.2")
    tokens = [2**n for n in range(13)]
    return [
        row(
            num_experts=e, topk=k, hidden_size=h, inter_size=i, moe_tp_size=tp, moe_ep_size=ep,
            distribution=routing, num_tokens=t,
        )
        for (e, k, h, i), (tp, ep), routing, t in product(shapes, splits, routings, tokens)
    ]  # fmt: skip


def timed(folder: Path, law: MoeLaw, noise: float) -> TableGroup:
    """Return a group whose seconds obey ``law`` up to log-normal noise (seed 7)."""
    rows = grid()
    group = read_groups(written(folder, rows), H200)[0]
    exact = FAMILIES["moe"].seconds(group.columns, group.label, law, H200)
    rng = np.random.default_rng(7)
    return TableGroup(
        kind=group.kind,
        gpu=group.gpu,
        engine=group.engine,
        version=group.version,
        source=group.source,
        label=group.label,
        columns=group.columns,
        seconds=exact * np.exp(noise * rng.standard_normal(len(exact))),
        keys=group.keys,
    )


def test_a_planted_law_is_found_in_noisy_rows(tmp_path: Path) -> None:
    """Constants within a few percent, and predictions on shapes that were not fitted within 2 %."""
    planted = MoeLaw(
        floor=2e-5, serial=2e-7, mem_eff=0.8, compute_eff=0.5, p=1.5, per_active=5e-8,
        per_local=1e-7, row_passes=3.0, all_passes=1.5, hottest_weight=0.8, min_width=128.0,
    )  # fmt: skip
    group = timed(tmp_path, planted, noise=0.02)
    held = held_out_shapes(group.keys)
    assert 0 < held.sum() < len(held) / 2
    columns, measured = group.pick(~held)
    law, extra = fit(columns, group.label, measured, H200)
    assert extra == {}
    assert law.min_width == 128.0  # the tile is found among powers of two
    assert (law.l2_saving, law.misaligned) == (0.0, 1.0)  # nothing here can tell them
    for name, near in {"floor": 0.05, "mem_eff": 0.03, "compute_eff": 0.05, "serial": 0.1}.items():
        assert getattr(law, name) == pytest.approx(getattr(planted, name), rel=near), name
    columns, _ = group.pick(held)
    truth = FAMILIES["moe"].seconds(columns, group.label, planted, H200)
    error = np.abs(FAMILIES["moe"].seconds(columns, group.label, law, H200) / truth - 1)
    assert np.median(error) < 0.01
    assert error.max() < 0.05


def test_a_staircase_is_found_where_a_kernel_changes_its_tile(tmp_path: Path) -> None:
    """Rows of 2^3 tokens per local expert planted a third slower: that step alone says so."""
    smooth = MoeLaw(min_width=64.0)
    group = timed(tmp_path, smooth, noise=0.0)
    local = group.columns["tokens"] * group.columns["ranks"] / group.columns["experts"]
    slow = np.where(local == 8, 1.33, 1.0)
    law, _ = fit(group.columns, group.label, group.seconds * slow, H200)
    assert law.steps_axis == "tokens"
    wide = group.columns["width"] > 512
    for band, part in enumerate((~wide, wide)):
        rows = int((part & (local == 8)).sum())
        drawn = 1.33 ** (rows / (rows + 30))  # 30 pseudo rows at 1
        assert law.steps[band][3 + 5] == pytest.approx(drawn, rel=0.03)  # steps begin at 2^-5
    others = np.delete(np.array(law.steps), 3 + 5, axis=1)
    assert others == pytest.approx(1.0, abs=0.05)


def test_bad_rows_are_rejected_by_name(tmp_path: Path) -> None:
    curve = [row(num_tokens=2**n, latency=0.05 * (1 + n)) for n in range(8)]
    bad = [
        row(num_tokens=1000, latency=float("nan")),
        row(num_tokens=1001, latency=float("nan")),
        row(num_tokens=1002, latency=-0.1),
        row(num_tokens=1003, latency=0.0),
        row(num_tokens=4, latency=0.9),  # a slower copy of a row of the curve
        row(num_tokens=256, latency=450.0),  # microseconds in a column of milliseconds
        row(num_tokens=2, moe_ep_size=3),  # 8 experts on 3 ranks
        row(num_tokens=2, distribution="power_law_1.2_eplb"),
    ]
    (group,) = read_groups(written(tmp_path, curve + bad), H200)
    assert group.rejected == {
        "nan": 2, "non_positive": 2, "duplicate": 1, "unit_shifted": 1, "uneven_ranks": 1,
        "unknown_routing": 1,
    }  # fmt: skip
    assert sorted(group.columns["tokens"].tolist()) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert group.seconds[group.columns["tokens"] == 4] == pytest.approx(1.5e-4)  # the faster copy


def test_what_the_columns_mean(tmp_path: Path) -> None:
    """Latency is in ms, tokens are all ranks', the width is one shard's, Nemotron has no gate."""
    table = written(
        tmp_path,
        [
            row(num_tokens=64, inter_size=1024, moe_tp_size=4, moe_ep_size=2, latency=0.25),
            row(moe_dtype="fp8_block", num_experts=128, topk=6, hidden_size=2688, inter_size=1856),
        ],
    )
    plain, nemotron = read_groups(table, H200)
    assert (plain.kind, plain.engine, plain.version) == ("moe", "vllm", "1.0")
    assert plain.label == {"dtype": "bf16", "kernel": "some_triton"}
    assert nemotron.label["dtype"] == "fp8-block"
    numbers = {name: column.item() for name, column in plain.columns.items()}
    assert plain.seconds.item() == pytest.approx(250e-6)
    assert plain.keys.tolist() == ["8x2x2048x1024x4x2"]
    # 64 tokens x 2 on 8 experts, balanced: 16 rows each; 4 of the experts are here
    assert numbers["tokens"] == 64
    assert (numbers["width"], numbers["matrices"], numbers["ranks"]) == (256, 3, 2)
    assert (numbers["distinct"], numbers["awake"]) == (4, 8)
    assert (numbers["rows"], numbers["hottest"], numbers["padded"]) == (64, 16, 64)
    # 4 x 3 x 2048 x 256 x 2 B = 12.6 MB of 62.9 MB: (0.2)^8 is nothing
    assert numbers["resident"] == pytest.approx(1, abs=1e-5)
    assert nemotron.columns["matrices"].item() == 2


def test_dtypes_without_a_rate_are_left_out(tmp_path: Path) -> None:
    table = written(tmp_path, [row(moe_dtype="nvfp4"), row(moe_dtype="w4afp8"), row()])
    assert [group.label["dtype"] for group in read_groups(table, H200)] == ["bf16"]


def test_the_textbook_by_hand(tmp_path: Path) -> None:
    """One token, 2 of 8 experts: 2 x 3 x 2048 x 1024 x 2 B + 4 x 2048 B over 4.8 TB/s."""
    (group,) = read_groups(written(tmp_path, [row(num_tokens=1)]), H200)
    expected = (2 * 3 * 2048 * 1024 * 2 + 4 * 2048) / 4.8e12
    assert FAMILIES["moe"].textbook(group.columns, group.label, H200).item() == pytest.approx(
        expected
    )


def test_many_shapes_at_once_cost_what_each_costs_alone() -> None:
    """The law broadcasts over widths on both sides of its tile, its band and its alignment."""
    device = Device(bandwidth=4.8e12, peak=989.4e12, units=132, l2=60e6, link=450e9)
    steps = tuple(tuple(1 + 0.01 * (16 * band + n) for n in range(16)) for band in range(2))
    law = MoeLaw(min_width=64.0, misaligned=1.5, steps=steps)
    widths = [24.0, 58.0, 64.0, 512.0, 513.0, 1024.0]

    def shape(width: Array, tokens: Array) -> MoeShape:
        return MoeShape(
            tokens=tokens, top_k=8, experts=128, ranks=2, hidden=2048, width=width, matrices=3,
            weight=2.0, distinct=20.0, awake=40.0, rows=64.0, hottest=9.0, padded=320.0,
        )  # fmt: skip

    together = moe_time(shape(np.array(widths), np.full(6, 16.0)), device, law).total
    alone = [float(moe_time(shape(width, 16.0), device, law).total) for width in widths]
    assert together == pytest.approx(alone)
    batch = np.array([1.0, 4.0, 300.0])  # a scalar shape over many batches, as a sweep has it
    swept = moe_time(shape(1024, batch), device, law).total
    assert swept == pytest.approx(
        [float(moe_time(shape(1024, t), device, law).total) for t in batch]
    )


@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(1, 8, 2), (3, 128, 8), (40, 60, 4)])
def test_balanced_routing_against_counting(tokens: int, experts: int, top_k: int) -> None:
    """Counted token by token with integers: (i + j stride) mod E, i stretched below the stride."""
    stride = -(-experts // top_k)
    count: Counter[int] = Counter()
    for i in range(tokens):
        first = i if tokens >= stride else i * stride // tokens
        chosen = {(first + j * stride) % experts for j in range(top_k)}
        count.update(chosen)
    found = rank_load(alpha=0.0, tokens=tokens, experts=experts, top_k=top_k)
    assert found.awake == found.distinct == len(count)
    assert found.hottest == max(count.values())
    assert found.padded == sum(-(-load // 16) * 16 for load in count.values())


@pytest.mark.parametrize("alpha", [1.01, 1.2])
@pytest.mark.parametrize("tokens", [1, 7, 100, 4096])
def test_power_law_loads_keep_every_copy(alpha: float, tokens: int) -> None:
    loads = power_law_loads(alpha=alpha, tokens=tokens, experts=64, top_k=4, ranks=4)
    assert (loads.sum(axis=1) == 4 * tokens).all()
    assert loads.min() >= 0
    assert loads.max() <= tokens  # a token takes an expert once
    by_rank = loads.reshape(len(loads), 4, 16).sum(axis=2)
    assert (by_rank[:, 0] == by_rank.max(axis=1)).all()


def test_power_law_loads_against_drawn_ones() -> None:
    """Mean sorted loads of 2,000 draws of w by inverse sampling (seed 3), as the collectors do."""
    alpha, tokens, experts, top_k = 1.2, 2048, 32, 4
    rng = np.random.default_rng(3)
    near, far = 1.0, (0.8 * tokens) ** (1 - alpha)
    weight = ((far - near) * rng.random((2000, experts)) + near) ** (1 / (1 - alpha))
    drawn = np.sort(np.minimum(weight / weight.sum(axis=1, keepdims=True) * tokens * top_k, tokens))
    loads = power_law_loads(alpha=alpha, tokens=tokens, experts=experts, top_k=top_k)
    hottest = float(np.sort(loads, axis=1)[:, -1].mean())
    assert hottest == pytest.approx(float(drawn[:, -1].mean()), rel=0.15)


def test_picks_have_their_loads_and_no_pick_twice() -> None:
    loads = power_law_loads(alpha=1.2, tokens=50, experts=16, top_k=4)[0]
    picks = picks_from_loads(loads, tokens=50, top_k=4)
    assert np.bincount(picks.ravel(), minlength=16).tolist() == loads.tolist()
    assert all(len(set(token)) == 4 for token in picks.tolist())


def test_group_limited_routing_against_brute_force() -> None:
    """Sorting each token's groups and experts in plain Python, as DeepSeek-V3's router does."""
    picks = balanced_picks(tokens=37, experts=32, top_k=8)
    count: Counter[int] = Counter()
    for token in picks.tolist():
        logits = [1.0 if expert in token else 0.0 for expert in range(32)]
        best = [sum(sorted(logits[4 * g : 4 * g + 4])[-2:]) for g in range(8)]
        kept = sorted(range(8), key=lambda g: (-best[g], g))[:4]
        allowed = [expert for expert in range(32) if expert // 4 in kept]
        count.update(sorted(allowed, key=lambda expert: (-logits[expert], expert))[:8])
    loads = group_limited_loads(picks, experts=32, groups=8, kept=4)
    assert loads[0].tolist() == [count[expert] for expert in range(32)]
    assert loads.sum() == 37 * 8
