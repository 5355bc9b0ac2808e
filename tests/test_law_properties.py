"""What every law of the cost model must obey, with c(M) = 1 and through whole passes.

The laws' constants are drawn from the bounds that fits keep to, devices from the range of the
bundled profiles. No value is expected here, only an order: it follows from physics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofline.forward import decode
from roofline.hardware import load_hardware
from roofline.kernels import Kind, Op
from roofline.laws.attention import AttentionLaw, attention_time
from roofline.laws.base import Device, KernelTime, in_turn
from roofline.laws.collective import CollectiveLaw, Form, Ranks, collective_time, exchange_time
from roofline.laws.gemm import TILES, GemmLaw, gemm_time
from roofline.laws.moe import MoeLaw, moe_time
from roofline.laws.state import StateLaw, state_time
from roofline.laws.vector import VectorKernels
from roofline.loads.queueing import occupancy
from roofline.model import load_model
from roofline.overrides import changed, parse_override
from roofline.recommend import recommend
from roofline.request import Request
from roofline.shapes import AttentionShape, CollectiveShape, GemmShape, MoeShape
from roofline.timing import Machine, time_ops
from roofline.workload import Placement
from tests.physics import precision_of
from tests.strategies import requests

many = settings(max_examples=150, deadline=None)
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROUNDING = 1e-12
growths = st.floats(min_value=1, max_value=8)


def between(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(min_value=low, max_value=high)


devices = st.builds(
    Device,
    bandwidth=between(1e11, 2e13),
    peak=between(1e13, 1e16),
    units=st.integers(min_value=20, max_value=400),
    l2=between(1e6, 3e8),
    link=between(1e10, 1e12),
)
gemm_laws = st.builds(
    GemmLaw,
    tiles=st.sampled_from(sorted(set(TILES) - {"static"})),
    floor=between(0, 1e-4),
    act=between(0, 3),
    latency=between(1e-9, 1e-6),
    compute_eff=between(0.05, 1.05),
    edge=between(0, 1e-5),
    split=between(0, 1e-5),
    traffic=between(0, 4),
    mem_eff=between(0.3, 1.05),
    r=between(1, 8),
)
attention_laws = st.builds(
    AttentionLaw,
    floor=between(0, 1e-4),
    mem_eff=between(0.3, 1.05),
    compute_eff=between(0.05, 1.05),
    p=between(1, 8),
    cta_s=between(0, 1e-5),
    token_s=between(0, 1e-7),
    max_splits=between(1, 64),
    split_s=between(0, 1e-5),
    row_s=between(0, 1e-8),
    convert_s=between(0, 1e-10),
    row_tile=st.sampled_from([16, 64, 128]),
)
moe_laws = st.builds(
    MoeLaw,
    floor=between(0, 1e-4),
    serial=between(0, 1e-6),
    mem_eff=between(0.3, 1.05),
    compute_eff=between(0.05, 1.05),
    p=between(1, 8),
    per_active=between(0, 1e-6),
    per_local=between(0, 1e-6),
    row_passes=between(0, 4),
    all_passes=between(0, 4),
    hottest_weight=between(0, 1),
)
state_laws = st.builds(
    StateLaw, floor=between(0, 1e-4), mem_eff=between(0.3, 1.05), r=between(1, 8)
)


@st.composite
def collective_laws(draw: st.DrawFn) -> CollectiveLaw:
    forms: set[Form] = draw(st.sets(st.sampled_from(["one_shot", "two_shot", "bulk"]), min_size=1))
    return CollectiveLaw(
        ranks={
            count: Ranks(
                start={form: draw(between(1e-7, 1e-4)) for form in sorted(forms)},
                share={form: draw(between(0.05, 2)) for form in sorted(forms)},
            )
            for count in (2, 8)
        }
    )


def ordered(small: KernelTime, large: KernelTime) -> None:
    """More work takes no less time; no part is negative, none exceeds the whole."""
    for time in (small, large):
        total = np.asarray(time.total)
        assert np.isfinite(total).all()
        assert (np.asarray(time.memory) >= 0).all()
        assert (np.asarray(time.compute) >= 0).all()
        assert (total >= np.asarray(time.floor) * (1 - ROUNDING)).all()
    assert (np.asarray(large.total) >= np.asarray(small.total) * (1 - ROUNDING)).all()


@many
@given(gemm_laws, devices, st.sampled_from("mnk"), growths, st.data())
def test_gemm(law: GemmLaw, device: Device, grown: str, by: float, data: st.DataObject) -> None:
    sizes = {name: float(data.draw(st.integers(1, 32_768))) for name in "mnk"}
    widths = {"weight": data.draw(between(0.4, 4)), "activation": data.draw(between(1, 4))}

    def time(**size: float) -> KernelTime:
        return gemm_time(GemmShape(**size, **widths), device, law, staircase=False)

    before, after = time(**sizes), time(**(sizes | {grown: sizes[grown] * by}))
    ordered(before, after)
    # no faster than the weights can be read at the share of the bandwidth the law allows
    weights = sizes["n"] * sizes["k"] * widths["weight"]
    assert before.total >= weights / device.bandwidth / law.mem_eff * (1 - ROUNDING)


@many
@given(
    attention_laws, devices, st.sampled_from(["pairs", "rows", "length", "kv"]), growths, st.data()
)
def test_attention(
    law: AttentionLaw, device: Device, grown: str, by: float, data: st.DataObject
) -> None:
    group = data.draw(st.sampled_from([1, 4, 8, 64]))
    sizes: dict[str, Any] = {
        "pairs": float(data.draw(st.integers(1, 4096))),
        "rows": float(group * data.draw(st.integers(1, 16))),
        "length": float(data.draw(st.integers(1, 200_000))),
        "kv": data.draw(between(0.5, 4)),
    }

    def time(sizes: dict[str, Any]) -> KernelTime:
        shape = AttentionShape(
            **sizes, context=sizes["length"], kv_width=256, mac_width=256, group=group
        )
        return attention_time(shape, device, law)

    larger = sizes[grown] * by if grown == "kv" else float(np.ceil(sizes[grown] * by))
    ordered(time(sizes), time(sizes | {grown: larger}))


GROWING = ("tokens", "distinct", "awake", "rows", "hottest", "padded", "hidden", "width", "weight")


@many
@given(moe_laws, devices, st.sampled_from(GROWING), growths, st.data())
def test_experts(law: MoeLaw, device: Device, grown: str, by: float, data: st.DataObject) -> None:
    sizes = {name: float(data.draw(st.integers(1, 4096))) for name in GROWING}
    fixed: dict[str, Any] = {"top_k": 8, "experts": 128, "ranks": 1, "matrices": 3}

    def time(sizes: dict[str, float]) -> KernelTime:
        return moe_time(MoeShape(**sizes, **fixed), device, law, staircase=False)

    ordered(time(sizes), time(sizes | {grown: sizes[grown] * by}))


@many
@given(collective_laws(), devices, between(1, 1e9), growths, st.sampled_from([2, 4, 8]))
def test_collectives(
    law: CollectiveLaw, device: Device, payload: float, by: float, ranks: int
) -> None:
    def reduced(size: float) -> KernelTime:
        return collective_time(CollectiveShape(payload=size, ranks=ranks), device, law)

    def moved(size: float) -> KernelTime:
        return exchange_time(sent=size, ranks=ranks, device=device, law=law)

    for time in (reduced, moved):
        ordered(time(payload), time(payload * by))
        ordered(time(payload), time(payload))


@many
@given(state_laws, devices, between(0, 1e11), growths, st.integers(1, 64))
def test_states(law: StateLaw, device: Device, moved: float, by: float, turns: int) -> None:
    def time(size: float) -> KernelTime:
        return state_time(moved=size, device=device, law=law)

    ordered(time(moved), time(moved * by))
    # rows of a state are written one after the other
    assert in_turn(time(moved), float(turns)).total == pytest.approx(turns * time(moved).total)


@many
@given(st.integers(1, 4096), between(0, 100), between(0, 64))
def test_matrix_vector_rows(rows: int, byte: float, tile_rows: float) -> None:
    """Within its two regimes: each row more up to the limit, each tile more beyond it."""
    kernels = VectorKernels(narrow=1.0, byte=byte, tile_rows=tile_rows)
    now, more = np.asarray(kernels.row_work(np.array([rows, rows + 1.0]))).tolist()
    assert now >= 0
    assert more >= now or rows == kernels.limit


#: One of each kind of mixer and feed-forward: GQA, MLA, windows, linear, SSM, dense, experts.
MODELS = (
    "llama-3.1-8b", "deepseek-v3", "gemma-3-12b-it", "gpt-oss-20b", "qwen3-30b-a3b",
    "qwen3-next-80b-a3b-instruct",
)  # fmt: skip
GPUS = ("h200-sxm", "b200-hgx", "mi300x", "rtx-4090")


def passes(model: str, gpu: str, tp: int, **asked: Any) -> tuple[list[Op], np.ndarray[Any, Any]]:
    """Return the kernels of a verify pass with c(M) = 1, and its time."""
    spec = load_model(model)
    ops = decode(spec, precision_of(spec), Placement(tp=tp, ep=1), **asked)
    known = set(load_hardware(gpu).rates)
    if any(op.compute.value not in known and op.compute.value == "fp8" for op in ops):
        ops = [replace(op, compute=spec.dtype) for op in ops]
    times = time_ops(ops, Machine(load_hardware(gpu), "vllm", staircase=False))
    return ops, np.asarray(sum(time.total for time in times))


@few
@given(
    st.sampled_from(MODELS), st.sampled_from(GPUS), st.sampled_from([1, 2]),
    st.integers(1, 512), st.integers(1, 60_000), st.integers(1, 9), st.data(),
)  # fmt: skip
def test_a_pass_grows_with_batch_context_and_rows(  # noqa: PLR0917
    model: str, gpu: str, tp: int, batch: int, context: int, rows: int, data: st.DataObject
) -> None:
    """Every kernel of every mixer: FLOPs, bytes and time never fall."""
    asked = {"batch": float(batch), "context": float(context), "rows": float(rows)}
    grown = data.draw(st.sampled_from(sorted(asked)))
    more = asked | {grown: asked[grown] + data.draw(st.integers(1, 64))}
    ops, time = passes(model, gpu, tp, **asked)
    larger, longer = passes(model, gpu, tp, **more)
    for before, after in zip(ops, larger, strict=True):
        assert np.all(after.flops >= np.asarray(before.flops) * (1 - ROUNDING)), before.name
        assert np.all(after.bytes >= np.asarray(before.bytes) * (1 - ROUNDING)), before.name
    assert (longer >= time * (1 - ROUNDING)).all()


@few
@given(
    st.sampled_from(("llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b")), st.integers(1, 30),
    st.integers(1, 256), st.integers(1, 30_000), st.integers(1, 9),
)  # fmt: skip
def test_layers_add_up(model: str, layers: int, batch: int, context: int, rows: int) -> None:
    """Equal layers take equal time: n more of them add the same wherever they are added."""
    machine = Machine(load_hardware("h200-sxm"), "vllm")

    def seconds(count: int) -> float:
        spec, _ = changed(load_model(model), [parse_override(f"layers={count}")])
        ops = decode(
            spec, precision_of(spec), Placement(), batch=float(batch), context=float(context),
            rows=float(rows),
        )  # fmt: skip
        return float(np.sum([time.total for time in time_ops(ops, machine)]))

    first, second, third = (seconds(n * layers) for n in (1, 2, 3))
    assert second - first == pytest.approx(third - second, rel=1e-9)
    assert second > first


@few
@given(requests(), st.permutations([1, 3, 8, 20, 64]))
def test_the_order_of_batches_is_no_matter(request: Request, order: list[int]) -> None:
    rising = recommend(replace(request, batches=tuple(sorted(order)), contexts=(256, 2048)))
    mixed = recommend(replace(request, batches=tuple(order), contexts=(2048, 256)))
    by_place = {(p.batch, p.context): p for p in mixed.points}
    assert len(by_place) == len(rising.points)
    for point in rising.points:
        same(point, by_place[point.batch, point.context])


EXACT = ("step", "verify", "draft", "overhead", "tokens_per_step", "speedup", "feasible", "tie")


def same(one: Any, other: Any) -> None:
    """Bit for bit; ranges come from a product of matrices, whose sums BLAS may order by size."""
    for name in EXACT:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for part, values in one.parts.items():
        np.testing.assert_array_equal(values, other.parts[part], err_msg=part)
    assert one.draft_length == other.draft_length
    for name in ("low", "high"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-13)


@few
@given(
    st.sampled_from(
        ("llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-12b-it", "qwen3-next-80b-a3b-instruct")
    ),
    st.sampled_from(("h200-sxm", "b200-hgx", "mi300x")),
    st.lists(st.integers(1, 64), min_size=1, max_size=40, unique=True),
    st.lists(st.integers(1, 8192), min_size=1, max_size=4, unique=True),
    st.data(),
)
def test_a_part_of_a_grid_is_the_grid(
    model: str, gpu: str, batches: list[int], contexts: list[int], data: st.DataObject
) -> None:
    """Cutting a grid anywhere changes no bit of any number."""
    asked = Request(
        model=model, gpu=gpu, tp=2, drafter="ngram", acceptance="0.6", batches=tuple(batches),
        contexts=tuple(contexts),
    )  # fmt: skip
    whole = {(p.batch, p.context): p for p in recommend(asked).points}
    size = data.draw(st.integers(1, len(batches)))
    start = data.draw(st.integers(0, len(batches) - size))
    kept = tuple(data.draw(st.lists(st.sampled_from(contexts), min_size=1, unique=True)))
    part = recommend(replace(asked, batches=tuple(batches[start : start + size]), contexts=kept))
    for point in part.points:
        same(point, whole[point.batch, point.context])


@few
@given(requests())
def test_no_drafts_is_exactly_one(request: Request) -> None:
    (point,) = recommend(request).points
    assert (point.speedup[0], point.tokens_per_step[0], point.cost_ratio[0]) == (1, 1, 1)
    (alone,) = recommend(replace(request, drafter="none", acceptance=None)).points
    assert alone.draft_lengths == (0,)
    assert alone.speedup.tolist() == [1]
    assert alone.step[0] == point.step[0]


SHARDED: dict[Kind, Callable[[int], float]] = {
    Kind.GEMM: lambda tp: 1 / tp,
    Kind.ATTENTION: lambda tp: 1 / tp,
    Kind.MOE: lambda tp: 1 / tp,
}


@few
@given(
    st.sampled_from(("llama-3.1-8b", "qwen3-30b-a3b")), st.sampled_from([2, 4]),
    st.integers(1, 64), st.integers(64, 8192), st.integers(1, 8),
)  # fmt: skip
def test_ranks_share_the_work_and_add_only_communication(
    model: str, tp: int, batch: int, context: int, rows: int
) -> None:
    """FLOPs of sharded kernels divide by the ranks; all others stay, collectives are new."""
    asked = {"batch": float(batch), "context": float(context), "rows": float(rows)}
    alone, _ = passes(model, "h200-sxm", 1, **asked)
    spread, _ = passes(model, "h200-sxm", tp, **asked)
    by_name = {op.name: op for op in spread}
    assert {op.name for op in alone} <= set(by_name)
    new = [op for op in spread if op.name not in {own.name for own in alone}]
    assert {op.kind for op in new} <= {Kind.ALL_REDUCE, Kind.ALL_GATHER}
    assert new
    for op in alone:
        share = SHARDED.get(op.kind)
        if share is None or op.name == "router":  # every rank routes for itself
            continue
        flops = np.asarray(by_name[op.name].flops)
        np.testing.assert_allclose(flops, np.asarray(op.flops) * share(tp), rtol=1e-9)


@few
@given(st.sampled_from([2, 4, 8]), st.integers(1, 256), st.integers(1, 8))
def test_groups_of_experts_hold_all_of_them_between_them(ep: int, batch: int, rows: int) -> None:
    """EP moves experts, not work: the rows of all ranks together are T k, as with tp alone."""
    spec = load_model("qwen3-30b-a3b")
    found = {}
    for groups in (1, ep):
        ops = decode(
            spec, precision_of(spec), Placement(tp=8, ep=groups), batch=float(batch),
            context=256.0, rows=float(rows),
        )  # fmt: skip
        (experts,) = [op for op in ops if op.kind is Kind.MOE]
        assert isinstance(experts.shape, MoeShape)
        found[groups] = experts.shape
    whole, part = found[1], found[ep]
    np.testing.assert_allclose(np.asarray(part.rows) * ep, whole.rows, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(part.distinct) * ep, whole.distinct, rtol=1e-9)
    np.testing.assert_allclose(part.awake, whole.awake, rtol=1e-9)
    assert float(np.asarray(part.width)) == ep * float(np.asarray(whole.width))


@many
@given(
    between(0.01, 100), st.integers(1, 200), between(1e-3, 10), between(0, 1), between(0, 0.9),
)  # fmt: skip
def test_little_s_law(
    arrivals: float, slots: int, service: float, slope: float, burst: float
) -> None:
    """L = lambda W: the rate that leaves is the rate that comes, whatever the service times."""
    n = np.arange(1.0, slots + 1)
    completions = n / (service * (1 + slope * n))
    found = occupancy(
        arrivals=arrivals, completions=completions[:, None], slots=np.array([slots]), burst=burst
    )
    share = found.share[:, 0]
    if arrivals >= completions[-1]:
        assert np.isnan(share).all()  # more come than can leave
        return
    assert share.sum() == pytest.approx(1)
    leaving = float(share[1:] @ completions)
    assert leaving == pytest.approx(arrivals, rel=1e-9)
