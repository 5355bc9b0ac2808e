"""Data-parallel attention with expert parallelism: bytes, caches and tokens of one rank.

DeepSeek-V3 by its published config: 61 layers of MLA (7168 wide, 128 heads, q_lora 1536, kv_lora
512, rope 64, nope 128, values 128), 58 of them with 256 experts of 3 x 7168 x 2048, 8 per token.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.kernels.footprint import weight_bytes
from roofline.kernels.ops import CollectiveShape, Kind
from roofline.specs.formats import Component, bytes_per_element
from roofline.specs.placement import Placement
from roofline.timing.memory import Memory
from tests.physics import decode_ops, named, refusal, run, scalar

NODE = "deepseek-v3 --gpu h200-sxm --tp 8 --ep 8 --drafter mtp --acceptance 0.8"
#: Weights of one layer's attention, whole: kv_a and q_a, q_b, kv_b, o.
MLA = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
LATENT = 61 * 576 * 2  # cached bytes of one token in bf16


def memory(dp: int, *, tp: int = 8, ep: int = 8) -> Memory:
    configuration = Configuration(
        model="deepseek-v3", gpu="h200-sxm", tp=tp, ep=ep, dp_attention=dp, drafter="none"
    )
    return deploy(configuration)[0].memory


@pytest.mark.parametrize(("dp", "copies"), [(1, 1 / 8), (4, 1 / 2), (8, 1)])
def test_attention_is_copied_to_each_group_and_experts_are_not(dp: int, copies: float) -> None:
    target = memory(dp).target
    held = weight_bytes(target.model, target.precision, target.placement)
    size = bytes_per_element(target.precision.weights[Component.ATTENTION])
    # MLA's compressions, 7168 x 2112 a layer, are whole on every rank in any case
    whole = 7168 * (1536 + 576)
    assert held[Component.ATTENTION] == pytest.approx(
        61 * (whole + (MLA - whole) * copies) * size, rel=1e-12
    )
    size = bytes_per_element(target.precision.weights[Component.EXPERTS])
    assert held[Component.EXPERTS] == pytest.approx(58 * 32 * 3 * 7168 * 2048 * size, rel=1e-12)
    assert held[Component.SHARED_EXPERTS] == pytest.approx(
        58 * 3 * 7168 * 2048 * copies * size, rel=1e-12
    )


@pytest.mark.parametrize(("dp", "sequences"), [(1, 64), (2, 32), (8, 8)])
def test_a_rank_caches_its_groups_sequences_only(dp: int, sequences: int) -> None:
    # 8191 + 1 slots are whole blocks of 16; MLA's latent is on every rank of a group
    account = memory(dp)
    assert float(account.kv_per_sequence(8191, 0)) == 8192 * LATENT
    cache = account.needed(64, 8191, 0) - account.working(64, 0) - account.weights
    assert float(cache) == pytest.approx(sequences * 8192 * LATENT, rel=1e-12)


def test_the_fullest_group_counts() -> None:
    # 30 sequences on 8 groups: some have 4
    account = memory(8)
    assert float(account.needed(30, 4096, 0)) == float(account.needed(32, 4096, 0))
    assert account.largest_batch(context=8191, draft_length=0) % 8 == 0
    kernels = decode_ops("deepseek-v3", batch=30.0, placement=Placement(tp=8, ep=8, dp=8))
    assert scalar(named(kernels, "kv_a_proj").rows) == 4
    # the experts see the 30 real rows: 30 x 8 pairs over 8 ranks
    shape = named(kernels, "experts").shape
    assert scalar(getattr(shape, "rows")) == 30  # noqa: B009 - a union of shapes


def test_a_rank_pays_for_its_copies_with_slots() -> None:
    # 7/8 of all but the experts more on each rank: projections of 61 layers, 3 dense MLPs, 58
    # shared experts in about a byte, head and embedding in two, and activations of 8192 rows
    tensor, data = (memory(dp).largest_batch(context=8191, draft_length=0) for dp in (1, 8))
    narrow = 61 * (MLA - 7168 * (1536 + 576)) + (3 * 18_432 + 58 * 2048) * 3 * 7168
    more = 7 / 8 * (narrow + 2 * 129_280 * 7168 * 2 + 8192 * 3 * 18_432 * 2)
    assert tensor - data / 8 == pytest.approx(more / (8192 * LATENT), abs=1)


def test_kernels_of_a_rank() -> None:
    # batch 64, q = 4, DP 8: 8 sequences and 32 rows a rank, all 128 heads, no all-reduce
    kernels = decode_ops(
        "deepseek-v3", batch=64.0, rows=4.0, context=8192.0, placement=Placement(tp=8, ep=8, dp=8)
    )
    attention = named(kernels, "latent_attention")
    assert scalar(attention.rows) == 128 * 4
    queries = 8 * 4 * 128 * (576 + 512) * 2
    assert scalar(attention.bytes) == 8 * 8192 * 576 * 2 + queries
    assert scalar(named(kernels, "o_proj").flops) == 2 * 32 * 128 * 128 * 7168
    assert scalar(named(kernels, "lm_head").flops) == 2 * 32 * 7168 * 129_280
    assert not [op.name for op in kernels if op.kind is Kind.ALL_REDUCE]
    assert "logits_gather" not in [op.name for op in kernels]


@pytest.mark.parametrize("name", ["dispatch", "combine"])
@pytest.mark.parametrize(("dp", "ep"), [(8, 8), (2, 8), (8, 1)])
def test_tokens_are_gathered_from_the_groups_and_scattered_back(
    name: str, dp: int, ep: int
) -> None:
    # 64 rows of 7168 bf16 values; (n - 1) / n of them come from, or go to, the other groups
    placement = Placement(tp=8, ep=ep, dp=dp)
    op = named(decode_ops("deepseek-v3", batch=64.0, placement=placement), name)
    assert scalar(op.bytes) == (dp - 1) / dp * 64 * 7168 * 2
    assert isinstance(op.shape, CollectiveShape)
    assert op.shape.ranks == dp


def test_a_group_of_several_ranks_reduces_its_own_rows() -> None:
    # TP 8 in 2 groups: 4 ranks with 32 heads each all-reduce 32 rows of 7168, ring bound 2 x 3/4
    kernels = decode_ops("deepseek-v3", batch=64.0, placement=Placement(tp=8, ep=8, dp=2))
    for name in ("attention_all_reduce", "moe_all_reduce"):
        op = named(kernels, name)
        assert scalar(op.bytes) == 2 * 3 / 4 * 32 * 7168 * 2
        assert isinstance(op.shape, CollectiveShape)
        assert op.shape.ranks == 4
    assert scalar(named(kernels, "latent_attention").rows) == 32


def steps(command: str) -> list[float]:
    code, out, err = run(f"roofline recommend {command} --format json")
    assert code == 0, err
    (point,) = json.loads(out)["points"]
    return [row["step_ms"] for row in point["by_draft_length"]]


@pytest.mark.parametrize("drafter", ["", "--drafter ngram --acceptance 0.6"])
def test_without_experts_groups_are_replicas(drafter: str) -> None:
    # four copies of a dense model with 8 sequences each are one copy with 8
    apart = steps(f"llama-3.1-8b --batch 8 {drafter}")
    together = steps(f"llama-3.1-8b --tp 4 --dp-attention 4 --batch 32 {drafter}")
    np.testing.assert_allclose(together, apart, rtol=1e-12)


def test_prompt_tokens_are_shared_out_as_well() -> None:
    apart = steps("llama-3.1-8b --batch 8 --prefill-tokens-per-step 100")
    together = steps(
        "llama-3.1-8b --tp 2 --dp-attention 2 --batch 16 --prefill-tokens-per-step 200"
    )
    np.testing.assert_allclose(together, apart, rtol=1e-12)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("vllm", "--tensor-parallel-size 2 --data-parallel-size 4 --enable-expert-parallel --spec"),
        ("sglang", "--tp-size 8 --dp-size 4 --enable-dp-attention --enable-dp-lm-head --ep-size 8"),
    ],
)
def test_flags(engine: str, expected: str) -> None:
    code, out, _ = run(
        f"roofline recommend {NODE} --dp-attention 4 --engine {engine} --format json"
    )
    assert code == 0
    data = json.loads(out)
    assert data["points"][0]["flag"].startswith(expected)
    assert data["inputs"]["dp_attention"] == 4


def test_flags_of_an_engine_with_one_group_for_each_gpu() -> None:
    code, out, _ = run(f"roofline recommend {NODE} --dp-attention 8 --engine trtllm --format json")
    assert code == 0
    text = json.loads(out)["points"][0]["flag"]
    assert text.startswith(
        "{tensor_parallel_size: 8, enable_attention_dp: true} + {moe_expert_parallel_size: 8} + "
    )
    line = refusal(f"roofline recommend {NODE} --dp-attention 4 --engine trtllm")
    assert "--dp-attention 4" in line
    assert "give 8" in line


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (f"{NODE} --dp-attention 3", ["--dp-attention 3", "--tp 8"]),
        (f"{NODE} --dp-attention 0", ["--dp-attention 0", "at least 1"]),
        (f"{NODE} --dp-attention 8 --draft-tp 8", ["--draft-tp 8", "--dp-attention 8 = 1"]),
        ("qwen2.5-7b --tp 16 --gpu gb200 --dp-attention 2", ["--dp-attention 2", "28 query heads"]),
        ("llama-3.1-8b --tp 2 --dp-attention 2 --engine llamacpp --drafter ngram --acceptance 0.6",
         ["--dp-attention 2", "llama.cpp"]),
    ],
)  # fmt: skip
def test_refused_in_one_line(options: str, parts: list[str]) -> None:
    line = refusal(f"roofline recommend {options}")
    for part in parts:
        assert part in line


def test_a_schedule_says_that_engines_switch_it_off() -> None:
    """Where one draft length serves every batch there is no schedule to switch off."""
    for batches, switched in (("1,8,64,512", True), ("1,8,64", False)):
        code, out, _ = run(f"roofline schedule {NODE} --dp-attention 8 --batches {batches}")
        assert code == 0
        assert ("num_speculative_tokens_per_batch_size" in out) is switched
        assert ("--data-parallel 8" in out) is switched
