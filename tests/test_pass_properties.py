"""What whole passes and answers must obey, whatever the model and the machine.

No value is expected here, only an order or an equality: it follows from physics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.kernels.forward import decode
from roofline.kernels.ops import Kind, MoeShape, Op
from roofline.questions.load.queueing import occupancy
from roofline.specs.gpu import load_hardware
from roofline.specs.network import load_model
from roofline.specs.overrides import apply_overrides, parse_override
from roofline.specs.placement import Placement
from roofline.timing.machine import Machine, time_ops
from tests.law_strategies import ROUNDING, between, few, many
from tests.physics import precision_of
from tests.strategies import requests

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
        spec, _ = apply_overrides(load_model(model), [parse_override(f"layers={count}")])
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
def test_the_order_of_batches_is_no_matter(options: dict[str, Any], order: list[int]) -> None:
    sorted_batches = {**options, "batches": tuple(sorted(order)), "contexts": (256, 2048)}
    shuffled = {**options, "batches": tuple(order), "contexts": (2048, 256)}
    rising, mixed = (recommend(question_of(**asked)) for asked in (sorted_batches, shuffled))
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
    asked: dict[str, Any] = {
        "model": model,
        "gpu": gpu,
        "tp": 2,
        "drafter": "ngram",
        "acceptance": "0.6",
        "batches": tuple(batches),
        "contexts": tuple(contexts),
    }
    whole = {(p.batch, p.context): p for p in recommend(question_of(**asked)).points}
    size = data.draw(st.integers(1, len(batches)))
    start = data.draw(st.integers(0, len(batches) - size))
    kept = tuple(data.draw(st.lists(st.sampled_from(contexts), min_size=1, unique=True)))
    asked |= {"batches": tuple(batches[start : start + size]), "contexts": kept}
    part = recommend(question_of(**asked))
    for point in part.points:
        same(point, whole[point.batch, point.context])


@few
@given(requests())
def test_no_drafts_is_exactly_one(options: dict[str, Any]) -> None:
    (point,) = recommend(question_of(**options)).points
    assert (point.speedup[0], point.tokens_per_step[0], point.cost_ratio[0]) == (1, 1, 1)
    without = {**options, "drafter": "none", "acceptance": None}
    (alone,) = recommend(question_of(**without)).points
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
