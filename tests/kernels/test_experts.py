"""Mixtures of experts: how many wake, how many rows each gets, and what they read."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from roofline.kernels.mlp import distinct_experts, inclusion_probabilities, independent_tokens
from roofline.kernels.ops import Op
from roofline.specs.placement import Placement, Routing
from tests.physics import decode_ops, named, scalar


def woken(*, experts: int, top_k: int, tokens: float, skew: float = 0.0) -> float:
    return float(
        np.asarray(distinct_experts(experts=experts, top_k=top_k, tokens=tokens, skew=skew))
    )


def experts_op(
    *,
    model: str = "qwen3-30b-a3b",
    batch: float = 1.0,
    rows: float = 1.0,
    placement: Placement | None = None,
) -> Op:
    return named(decode_ops(model, batch=batch, rows=rows, placement=placement), "experts")


def awake(op: Op, *, pairs: float) -> float:
    """Return the experts that share ``pairs`` token-expert pairs, each with ``op.rows`` of them."""
    return pairs / scalar(op.rows)


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "expected"),
    [
        # The published value of the form (MoESD, arXiv 2505.19645, as used by inference-lab):
        # 512 (1 - (502/512)^4) = 38.84.
        (512, 10, 4, 38.84),
        # Qwen3-30B-A3B at D = 3, by hand: 128 (1 - (15/16)^4) = 128 x 14,911 / 65,536.
        (128, 8, 4, 29.123046875),
        # Mixtral-8x7B, by hand: 8 (1 - (3/4)^2) = 8 x 7 / 16.
        (8, 2, 2, 3.5),
        # DeepSeek-V3 at two tokens, by hand: 256 (1 - (31/32)^2) = 256 x 63 / 1,024.
        (256, 8, 2, 15.75),
        (256, 8, 1, 8.0),
    ],
)
def test_distinct_experts_by_hand(experts: int, top_k: int, tokens: int, expected: float) -> None:
    found = woken(experts=experts, top_k=top_k, tokens=tokens)
    assert found == pytest.approx(expected, abs=0.005)


def chosen_by_lot(
    chance: NDArray[np.float64], *, draws: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw sets of exactly sum(chance) experts in which expert r has chance[r] to be.

    Systematic sampling over a shuffled line (Madow 1949): lay the chances end to end in random
    order and take the expert under each of u, u + 1, u + 2, ...
    """
    order = rng.permuted(np.tile(np.arange(chance.size), (draws, 1)), axis=1)
    ends = np.cumsum(chance[order], axis=1) + rng.random((draws, 1))
    starts = ends - chance[order]
    taken = np.floor(ends + 1e-12) > np.floor(starts + 1e-12)
    chosen = np.zeros(taken.shape, dtype=bool)
    np.put_along_axis(chosen, order, taken, axis=1)
    return chosen


@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(64, 4, 6), (128, 8, 4), (8, 2, 3)])
def test_uniform_union_equals_brute_force(experts: int, top_k: int, tokens: int) -> None:
    # Monte Carlo: every token takes the k experts with the largest of E random scores.
    rng, trials = np.random.default_rng(20251129), 10_000
    scores = rng.random((trials, tokens, experts))
    kth = np.partition(scores, experts - top_k, axis=-1)[..., [experts - top_k]]
    union = (scores >= kth).any(axis=1).sum(axis=-1)
    error = union.std() / np.sqrt(trials)
    assert woken(experts=experts, top_k=top_k, tokens=tokens) == pytest.approx(
        union.mean(), abs=5 * error
    )


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "skew"), [(64, 4, 6, 0.6), (128, 8, 4, 1.2), (16, 4, 5, 2.0)]
)
def test_skewed_union_equals_brute_force(
    experts: int, top_k: int, tokens: int, skew: float
) -> None:
    chance = inclusion_probabilities(experts=experts, top_k=top_k, skew=skew)
    rng, trials = np.random.default_rng(7), 10_000
    chosen = chosen_by_lot(chance, draws=trials * tokens, rng=rng)
    assert (chosen.sum(axis=1) == top_k).all()  # the lot itself draws k, with the right chances
    assert chosen.mean(axis=0) == pytest.approx(chance, abs=0.01)
    union = chosen.reshape(trials, tokens, experts).any(axis=1).sum(axis=1)
    error = max(float(union.std()) / np.sqrt(trials), 1e-3)
    assert woken(experts=experts, top_k=top_k, tokens=tokens, skew=skew) == pytest.approx(
        union.mean(), abs=5 * error
    )


@pytest.mark.parametrize("experts", [4, 8, 128])
@pytest.mark.parametrize("top_k", [1, 2, 4])
@pytest.mark.parametrize("skew", [0.0, 0.3, 1.0, 4.0])
def test_bounds_and_growth(experts: int, top_k: int, skew: float) -> None:
    # Definition: one token wakes k, T tokens at least k and at most all of E or k T.
    tokens = np.arange(1, 200, dtype=float)
    union = np.asarray(distinct_experts(experts=experts, top_k=top_k, tokens=tokens, skew=skew))
    assert union[0] == pytest.approx(top_k)
    assert (union >= top_k - 1e-9).all()
    assert (union <= np.minimum(experts, top_k * tokens) + 1e-9).all()
    assert (np.diff(union) >= -1e-9).all()
    assert (np.diff(union, n=2) <= 1e-9).all()  # every further token wakes fewer new ones


@pytest.mark.parametrize("tokens", [2, 4, 16, 64])
def test_skew_wakes_fewer(tokens: int) -> None:
    # 1 - (1 - p)^T is concave in p: spreading the same k unevenly can only lower the sum (Jensen).
    union = [woken(experts=128, top_k=8, tokens=tokens, skew=s) for s in (0.0, 0.4, 0.8, 1.2, 2.0)]
    assert union == sorted(union, reverse=True)


@pytest.mark.parametrize("skew", [0.01, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (8, 8), (128, 8), (512, 10)])
def test_inclusion_probabilities_are_a_top_k_law(experts: int, top_k: int, skew: float) -> None:
    chance = inclusion_probabilities(experts=experts, top_k=top_k, skew=skew)
    assert chance.sum() == pytest.approx(top_k)
    assert ((chance > 0) & (chance <= 1)).all()
    assert (np.diff(chance) <= 1e-12).all()
    free = chance[chance < 1 - 1e-9]
    if free.size > 1:  # popularity proportional to rank^-s where nothing is capped
        ranks = np.arange(experts - free.size + 1, experts + 1)
        assert free / free[0] == pytest.approx((ranks / ranks[0]) ** -skew)


def test_independent_tokens_by_hand() -> None:
    # B (1 + (q - 1)(1 - c)): 8 sequences of 4 rows, half of the 3 drafts follow: 8 x 2.5.
    assert independent_tokens(batch=8, rows=4, correlation=0.5) == 20
    assert independent_tokens(batch=8, rows=4, correlation=0.0) == 32
    assert independent_tokens(batch=8, rows=4, correlation=1.0) == 8
    assert independent_tokens(batch=8, rows=1, correlation=0.7) == 8


@pytest.mark.parametrize("correlation", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("batch", [1, 4, 16])
def test_mean_of_independent_tokens_stands_for_their_spread(batch: int, correlation: float) -> None:
    # Exact: with probability c a draft makes no new choice, so each of the B (q - 1) drafts
    # multiplies the miss chance m by c + (1 - c) m. The model puts the mean number of choices
    # into the concave N(T), so it is above, by at most 1 %.
    rows, miss = 4, 1 - 8 / 128
    exact = 128 * (
        1 - miss**batch * (correlation + (1 - correlation) * miss) ** (batch * (rows - 1))
    )
    tokens = float(independent_tokens(batch=batch, rows=rows, correlation=correlation))
    ours = woken(experts=128, top_k=8, tokens=tokens)
    assert exact <= ours <= 1.01 * exact


def test_correlated_drafts_wake_no_more_than_one_token() -> None:
    follow = Placement(routing=Routing(correlation=1.0))
    assert awake(experts_op(rows=4, placement=follow), pairs=32) == pytest.approx(8)
    assert awake(experts_op(rows=4), pairs=32) == pytest.approx(29.123046875)


@pytest.mark.parametrize(
    ("rows", "experts", "expected_bytes"),
    [
        # Qwen3-30B-A3B: an expert has 3 x 2,048 x 768 = 4,718,592 weights, 9,437,184 B in bf16.
        # Each of the 8 T token-expert pairs moves 2,048 + 1,536 + 768 + 2,048 values, 12,800 B.
        (1, 8.0, 8 * 9_437_184 + 8 * 12_800),
        (4, 29.123046875, 274_839_552 + 32 * 12_800),  # 14,911 / 512 experts x 9,437,184 B
    ],
)
def test_bytes_of_the_experts_by_hand(rows: int, experts: float, expected_bytes: int) -> None:
    op = experts_op(rows=rows)
    assert awake(op, pairs=8 * rows) == pytest.approx(experts)
    assert float(op.bytes) == pytest.approx(expected_bytes)
    assert float(op.flops) == 2 * 8 * rows * 4_718_592  # every pair is a row through one expert
    assert float(op.rows) == pytest.approx(8 * rows / experts)
    assert op.count == 48


def test_rows_of_an_expert_approach_the_even_share() -> None:
    # T k / N(T): one row at T = 1, T k / E once every expert is awake.
    assert float(experts_op(batch=1).rows) == pytest.approx(1)
    assert float(experts_op(batch=4096).rows) == pytest.approx(4096 * 8 / 128)
    found = [float(experts_op(batch=b).rows) for b in (1, 2, 8, 64, 512)]
    assert found == sorted(found)


def test_active_experts_depend_on_the_number_of_tokens() -> None:
    # T = B q: 8 sequences of 4 rows wake as many as 32 sequences of one.
    verify, plain = experts_op(batch=8, rows=4), experts_op(batch=32)
    assert float(verify.rows) == float(plain.rows)
    assert float(verify.bytes) == float(plain.bytes)


def test_mxfp4_experts_are_read_at_their_width() -> None:
    # gpt-oss-120b by hand: an expert has 2 x 2,880 x 2,880 + 2,880^2 weights and 3 x 2,880 biases;
    # MXFP4 takes 4 bit + 8 bit per 32 = 0.53125 B. One token wakes 4.
    weights = 4 * (3 * 2880 * 2880 + 3 * 2880) * 0.53125
    pairs = 4 * (2880 + 5760 + 2880 + 2880) * 2
    op = experts_op(model="gpt-oss-120b")
    assert float(op.bytes) == pytest.approx(weights + pairs)


@pytest.mark.parametrize("ep", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 4])
def test_ep_and_tp_share_the_experts_evenly(ep: int, rows: int) -> None:
    # Whole experts on groups of ranks (EP) or slices of every expert (TP): a rank of four reads a
    # quarter of the woken weights and computes a quarter of the pairs either way.
    op = experts_op(rows=rows, placement=Placement(tp=4, ep=ep))
    whole = experts_op(rows=rows)
    assert float(op.flops) == pytest.approx(float(whole.flops) / 4)
    union = awake(whole, pairs=8 * rows)
    assert awake(op, pairs=8 * rows / ep) == pytest.approx(union / ep)
    weights = union * 9_437_184 / 4
    # input and output rows are as wide as the model; gate, up and down shrink with the slice
    slice_width = 768 // (4 // ep)
    pairs = rows * 8 / ep * (2048 + 2 * slice_width + slice_width + 2048) * 2
    assert float(op.bytes) == pytest.approx(weights + pairs)


def test_dispatch_and_combine_exist_only_with_ep() -> None:
    names = {op.name for op in decode_ops("qwen3-30b-a3b", placement=Placement(tp=4))}
    assert not names & {"dispatch", "combine"}
    kernels = decode_ops("qwen3-30b-a3b", batch=8, rows=4, placement=Placement(tp=4, ep=4))
    # 32 tokens x 8 copies x 2,048 values x 2 B; a rank holds a quarter, three quarters leave it.
    for name in ("dispatch", "combine"):
        assert float(named(kernels, name).bytes) == 32 * 8 * 2048 * 2 / 4 * 3 / 4


def test_shared_experts_serve_every_token_and_are_read_once() -> None:
    # DeepSeek-V3: one shared expert of width 2,048 beside 8 of 256; gate and up are one product.
    one, four = decode_ops("deepseek-v3", rows=1), decode_ops("deepseek-v3", rows=4)
    up = named(four, "shared_gate_up_proj")
    assert float(up.rows) == 4
    assert float(up.flops) == 2 * 4 * 7168 * 4096
    assert up.count == 58
    grown = float(up.bytes) - float(named(one, "shared_gate_up_proj").bytes)
    assert grown == 3 * (7168 * 1 + 4096 * 2)  # three more rows: fp8 in, bf16 out, no weights
    assert not any(op.name.startswith("shared") for op in decode_ops("qwen3-30b-a3b"))
