"""What every law of the cost model must obey, with c(M) = 1.

The laws' constants are drawn from the bounds that fits keep to, devices from the range of the
bundled profiles. No value is expected here, only an order: it follows from physics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.kernels.mlp import distinct_experts
from roofline.kernels.ops import AttentionShape, CollectiveShape, GemmShape, MoeShape
from roofline.specs.gpu import load_hardware
from roofline.specs.laws import (
    AttentionLaw,
    CollectiveLaw,
    GemmLaw,
    MoeLaw,
    SimpleLaw,
    StateLaw,
    VectorKernels,
)
from roofline.timing.laws.attention import attention_time
from roofline.timing.laws.gemm import gemm_time
from roofline.timing.laws.moe import moe_time
from roofline.timing.laws.simple import (
    Device,
    KernelTime,
    collective_time,
    exchange_time,
    in_turn,
    row_work,
    state_time,
)
from roofline.timing.machine import vector_time
from tests.law_strategies import (
    ROUNDING,
    attention_laws,
    between,
    collective_laws,
    devices,
    gemm_laws,
    growths,
    many,
    moe_laws,
    state_laws,
    vector_kernels,
    vector_laws,
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
@given(vector_kernels, vector_laws, st.sampled_from(["rtx-3090", "apple-m4-max"]), st.data())
def test_matrix_vector_rows(
    kernels: VectorKernels, law: SimpleLaw, gpu: str, data: st.DataObject
) -> None:
    """Of a product and of routed experts: each row more, across the limit and every tile."""
    rows = np.arange(1.0, 131.0)
    work = np.asarray(row_work(rows, kernels))
    assert (work >= 0).all()
    assert (np.diff(work) >= 0).all()
    weight = data.draw(st.sampled_from([0.3, 0.6, 1.0625, 2.0]))
    size = {"n": 4096, "k": data.draw(st.sampled_from([512, 4096]))}
    experts, top_k = data.draw(st.sampled_from([(8, 2), (128, 8), (256, 8), (32, 32)]))
    awake = distinct_experts(experts=experts, top_k=top_k, tokens=rows)
    for shape in (
        GemmShape(m=rows, **size, weight=weight, activation=2.0),
        MoeShape(
            tokens=rows, top_k=top_k, experts=experts, ranks=1, hidden=2048, width=768, matrices=3,
            weight=weight, distinct=awake, awake=awake, rows=rows * top_k, hottest=rows,
            padded=rows * top_k,
        ),
    ):  # fmt: skip
        moved = size["n"] * size["k"] * weight + rows * (size["n"] + size["k"]) * 2.0
        time = np.asarray(vector_time(shape, moved, load_hardware(gpu), law, kernels).total)
        assert (np.diff(time) >= -ROUNDING * time[:-1]).all()
