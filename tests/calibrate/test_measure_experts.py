"""Routed experts: computed, counted, fitted, and used."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.base.schema import dump_yaml
from roofline.calibrate.fit.fitted_law import FittedLaw
from roofline.calibrate.fit.machine import MachineFit, fit_rows
from roofline.calibrate.measure.cases import Case, Menu, in_format, plan_cases
from roofline.calibrate.measure.device import LocalDevice, open_backend
from roofline.calibrate.measure.kernel_calls import draw_experts, prepare
from roofline.calibrate.profile import datasheet_for, profile_data
from roofline.specs.network import ModelSpec, load_model
from tests.measuring import FakeDevice, FakeGpu, of_case, short_campaign
from tests.support import Cli
from workshop.decoder import StepShape, build_decoder

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
LIBRARIES = ["numpy", pytest.param("torch", marks=needs_torch)]

#: A dense layer first, as several models have it; 8 experts of 128, two for each token.
MOE = """\
schema: 1
kind: model
id: tiny-moe
name: Tiny MoE
source: invented for a test
hidden_size: 256
vocab_size: 1000
max_context: 4096
tie_embeddings: false
dtype: bf16
layers:
- repeat: 1
  attention: {kind: gqa, num_heads: 8, num_kv_heads: 2, head_dim: 32}
  mlp: {kind: dense, intermediate_size: 512, gated: true}
- repeat: 2
  attention: {kind: gqa, num_heads: 8, num_kv_heads: 2, head_dim: 32}
  mlp:
    kind: moe
    num_experts: 8
    top_k: 2
    expert_intermediate_size: 128
    shared_intermediate_size: 128
    gated: true
"""
CPU = Menu(
    base="fp32", products=("fp32",), caches=("fp32",), attention=("packed",), large=False,
    experts=(("fp32", "sorted"), ("fp32", "padded")),
)  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-moe.yaml"
    path.write_text(MOE)
    return path


def one_by_one(x: Any, choice: Any, up: Any, down: Any) -> Any:
    """Return the mean of the chosen experts, token by token in fp64."""
    half = down.shape[2]
    out = np.zeros_like(x)
    for row, chosen in enumerate(choice):
        for expert in chosen:
            inner = up[expert] @ x[row]
            gated = inner[:half] / (1 + np.exp(-inner[:half])) * inner[half:]
            out[row] += down[expert] @ gated / len(chosen)
    return out


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("tokens", "top_k"), [(1, 1), (1, 3), (5, 2), (40, 6), (3, 6)])
def test_every_expert_kernel_agrees_with_one_expert_at_a_time(
    library: str, tokens: int, top_k: int
) -> None:
    use = open_backend("cpu", library, 1)
    x = use.operand((tokens, 32), "fp32", 1)
    up, down = use.operand((6, 96, 32), "fp32", 2), use.operand((6, 32, 48), "fp32", 3)
    choice = draw_experts(tokens, 6, top_k, seed=tokens)
    wanted = one_by_one(use.to_float64(x), choice, use.to_float64(up), use.to_float64(down))
    for _, kernel in use.menu().experts:
        found = use.experts(x, use.indices(choice), up, down, kernel=kernel)
        np.testing.assert_allclose(use.to_float64(found), wanted, atol=1e-5, err_msg=kernel)


@needs_torch
def test_torch_uses_its_grouped_product_where_the_build_has_one() -> None:
    import torch

    kernels = open_backend("cpu", "torch", 1).menu().experts
    has = hasattr(torch.nn.functional, "grouped_mm") or hasattr(torch, "_grouped_mm")
    assert (kernels[0] == ("fp32", "grouped")) is has
    assert ("fp32", "padded") in kernels


@needs_torch
def test_fp8_experts_scale_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's product is stood in for by its definition, (a s_a) (b s_b) for each group."""
    import torch

    def product(a: Any, b: Any, scale_a: Any, scale_b: Any, *, offs: Any, out_dtype: Any) -> Any:
        assert a.dtype == b.dtype == torch.float8_e4m3fn
        assert (scale_a.shape, scale_b.shape) == ((len(a),), (b.shape[0], b.shape[2]))
        parts, start = [], 0
        for group, end in enumerate(offs.tolist()):
            rows = a[start:end].float() * scale_a[start:end, None]
            parts.append(rows @ (b[group].float() * scale_b[group]))
            start = end
        return torch.cat(parts).to(out_dtype)

    monkeypatch.setattr(torch, "_scaled_grouped_mm", product, raising=False)
    use = open_backend("cpu", "torch", 1)
    x = use.operand((9, 32), "fp32", 1) * 100  # beyond 448, the largest fp8 value, when multiplied
    up, down = use.operand((6, 96, 32), "fp8", 2), use.operand((6, 32, 48), "fp8", 3)
    choice = draw_experts(9, 6, 2, seed=1)
    found = use.to_float64(use.experts(x, use.indices(choice), up, down, kernel="grouped"))
    wanted = one_by_one(use.to_float64(x), choice, use.to_float64(up), use.to_float64(down))
    assert np.abs(found - wanted).max() < 0.08 * np.abs(wanted).max()


@pytest.mark.parametrize("library", LIBRARIES)
def test_cases_of_experts_are_checked_against_fp64(library: str, spec: Path) -> None:
    use = open_backend("cpu", library, 1)
    cases = [c for c in plan_cases(load_model(str(spec)), use.menu()) if c.rows <= 16]
    mine = [c for c in cases if c.kind == "moe" and c.size("tokens") <= 16]
    assert {c.kernel for c in mine} == {kernel for _, kernel in use.menu().experts}
    extra = {c.op: c for c in cases if c.op in ("router", "top_k", "shared_activation")}
    assert len(extra) == 3
    for case in (*mine, *extra.values()):
        assert prepare(case, use).error() < 1e-4, case.key
    samples = LocalDevice(use).sample(mine[0], repeats=3, seconds=0.1)
    assert "8 draws of experts" in samples.cold


def test_rows_that_come_back_in_another_order_are_wrong(
    monkeypatch: pytest.MonkeyPatch, spec: Path
) -> None:
    from roofline.calibrate.measure.backend import CaseError

    use = open_backend("cpu", "numpy", 1)
    cases = plan_cases(load_model(str(spec)), use.menu())
    case = next(c for c in cases if c.kind == "moe" and c.size("tokens") == 4)
    right = use.experts
    monkeypatch.setattr(use, "experts", lambda *a, **k: right(*a, **k)[::-1])
    with pytest.raises(CaseError) as caught:
        LocalDevice(use).sample(case, repeats=3, seconds=0.1)
    assert caught.value.status == "wrong"


def test_draws_are_uniform_and_without_repetition() -> None:
    """Of 32 experts 8 each: 4 tokens wake 32 (1 - 0.75^4) = 21.9 on average (by hand)."""
    drawn = [draw_experts(4, 32, 8, seed=i) for i in range(400)]
    assert all(len(set(row)) == 8 for draw in drawn for row in draw)
    awake = np.mean([len(np.unique(draw)) for draw in drawn])
    assert awake == pytest.approx(21.875, rel=0.01)


def test_the_work_of_a_case_is_that_of_the_awake_experts(spec: Path) -> None:
    """By hand: 2 tokens wake 8 (1 - 0.75^2) = 3.5 experts of 3 x 256 x 128 fp32 weights."""
    cases = plan_cases(load_model(str(spec)), CPU)
    case = next(
        c for c in cases
        if c.kind == "moe" and c.size("tokens") == 2 and c.size("width") == 128
    )  # fmt: skip
    pairs = 2 * 2
    assert case.flops == 2 * pairs * 3 * 256 * 128
    moved = 3.5 * 3 * 256 * 128 + pairs * (256 + 2 * 128 + 128 + 256)
    assert case.bytes == pytest.approx(4 * moved)
    halves = {c.size("width") for c in cases if c.kind == "moe"}
    assert halves == {128, 64}  # whole, and as two ranks share them; 32 is too narrow


def expert_law(result: MachineFit) -> FittedLaw:
    return next(j for j in result.laws if "moe" in (j.block["kind"], j.block.get("covers")))


def test_a_planted_law_of_experts_is_recovered_and_recommend_uses_it(
    cli: Cli, tmp_path: Path, spec: Path
) -> None:
    """5 us + the longer of bytes / 80 GB/s and FLOP / 6 TFLOP/s, within 3 %."""

    def law(case: Case) -> float:
        slower = 2.0 if case.kernel == "padded" else 1.0
        return of_case(case) * slower

    device = FakeDevice(law=law, menu_=CPU)
    rows = short_campaign(device, load_model(str(spec)), tmp_path)
    result = fit_rows(rows, device.facts(), None, cite="planted")
    judged = expert_law(result)
    assert judged.block["kernel"] == "sorted"  # the faster one
    truth = np.array([5e-6 + max(r.bytes / 80e9, r.flops / 6e12) for r in judged.rows])
    assert np.abs(judged.predicted / truth - 1).max() < 0.03
    out = tmp_path / "mine.yaml"
    out.write_text(dump_yaml(profile_data(result, device.facts(), None, cite="planted")))
    answer = cli(
        "recommend", str(spec), "--gpu", str(out), "--drafter", "ngram", "--acceptance", "0.7",
        "--batch", "8", "--explain", "--format", "json",
    )  # fmt: skip
    experts = answer.ops("verify")["experts"]
    assert experts["source"] == "calibrated"
    assert experts["time_us"] == pytest.approx(1e6 * (5e-6 + experts["bytes"] / 80e9), rel=0.03)


def test_constants_of_a_planted_law_of_experts(tmp_path: Path) -> None:
    """80 GB/s and 1 TFLOP/s: 25 fp32 rows of an expert take as long as its weights."""

    def law(case: Case) -> float:
        moe = 5e-6 + max(case.bytes / 80e9, case.flops / 1e12)
        return moe if case.kind == "moe" else of_case(case)

    device = FakeDevice(law=law, menu_=CPU, noise=0.01)
    rows = short_campaign(device, load_model("mixtral-8x7b"), tmp_path)
    result = fit_rows(rows, device.facts(), None, cite="planted")
    constants = expert_law(result).block["law"]
    bandwidth, peak = result.figures.bandwidth, result.figures.peaks["fp32"]
    assert constants["mem_eff"] * bandwidth == pytest.approx(80e9, rel=0.03)
    assert constants["compute_eff"] * peak == pytest.approx(1e12, rel=0.03)


def test_on_a_gpu_the_cost_of_an_expert_is_told_from_that_of_its_bytes(tmp_path: Path) -> None:
    """6 us, 2 us for each awake expert, and its weights at 4 TB/s: 128 experts, 8 for a token."""

    def law(case: Case) -> float:
        if case.kind != "moe":
            return 4e-6 + max(case.bytes / 4e12, case.flops / 700e12)
        s = dict(case.shape)
        awake = 128 * (1 - (1 - 8 / 128) ** s["tokens"])
        slower = 1.5 if case.kernel == "padded" else 1.0
        return slower * (6e-6 + awake * (2e-6 + 3 * 2048 * s["width"] * 2 / 4e12))

    menu = Menu(
        base="bf16", products=("bf16",), caches=("bf16",), attention=("packed",),
        experts=(("bf16", "padded"), ("bf16", "grouped"), ("fp8", "grouped")),
    )  # fmt: skip
    device = FakeGpu(law=law, menu_=menu, noise=0.01)
    rows = short_campaign(device, load_model("qwen3-30b-a3b"), tmp_path)
    datasheet = datasheet_for(device.facts())
    assert datasheet is not None
    result = fit_rows(rows, device.facts(), datasheet, cite="planted")
    profile_data(result, device.facts(), datasheet, cite="planted")
    found = {
        j.block["dtype"]: j
        for j in result.laws
        if "moe" in (j.block["kind"], j.block.get("covers"))
    }
    assert set(found) == {"bf16", "fp8"}
    assert found["bf16"].block["kernel"] == "grouped"  # second on the menu, but faster
    for judged in found.values():
        truth = np.array([law(_case_of(row)) for row in judged.rows])
        assert np.median(np.abs(judged.predicted / truth - 1)) < 0.03

    only = replace(menu, experts=(("bf16", "grouped"),))
    first = short_campaign(
        FakeGpu(law=law, menu_=only, noise=0.01), load_model("qwen3-30b-a3b"), tmp_path / "again"
    )
    alone = fit_rows(first, device.facts(), datasheet, cite="planted")
    constants = next(j for j in alone.laws if j.block["kind"] == "moe").block["law"]
    assert constants["mem_eff"] * datasheet.bandwidth == pytest.approx(4e12, rel=0.03)
    assert constants["per_local"] == pytest.approx(2e-6, rel=0.03)


def _case_of(row: Any) -> Case:
    return Case(
        kind=row.kind, op=row.op, dtype=row.dtype, kernel=row.kernel,
        shape=tuple(row.sizes.items()), flops=row.flops, bytes=row.bytes, rows=row.rows,
    )  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", [1, 3])
def test_the_decoder_runs_layers_of_experts(library: str, rows: int, spec: Path) -> None:
    use = open_backend("cpu", library, 1)
    model: ModelSpec = in_format(load_model(str(spec)), "fp32")
    found = []
    for _, kernel in use.menu().experts:
        decoder = build_decoder(model, use, dtype="fp32", kernel="packed", expert_kernel=kernel)
        shape = StepShape(batch=2, rows=rows, context=32)
        ids = use.indices(np.arange(2 * rows))
        found.append(
            use.to_float64(decoder.step(shape, decoder.caches(shape), ids, decoder.angles(shape)))
        )
    assert found[0].shape == (2 * rows,)
    for other in found[1:]:  # whichever kernel computes them, the same tokens
        np.testing.assert_array_equal(other, found[0])
