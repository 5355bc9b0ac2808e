"""Chunks of prompts: what their attention computes and reads, and what a drafter does with them."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.kernels.forward import prefill, prompt_mixing
from roofline.kernels.ops import Op
from roofline.specs.formats import DType
from roofline.specs.network import load_model
from roofline.specs.placement import Chunks, Placement
from roofline.timing.drafters import draft_passes
from roofline.timing.prompts import prompt_ops, time_prompts
from tests.physics import named, precision_of, prefill_ops, scalar


def mixing(
    model: str, *, tokens: float, before: float, prompts: float = 1.0, tp: int = 1
) -> list[Op]:
    spec = load_model(model)
    return prompt_mixing(
        spec,
        precision_of(spec),
        Placement(tp=tp),
        prompts=prompts,
        tokens=tokens,
        before=before,
    )


def test_a_chunk_attends_to_itself_and_to_what_is_before_it() -> None:
    # Two tokens after three: the first sees 4 keys, the second 5. 32 heads of 128, 4 FLOP a pair.
    op = named(mixing("llama-3.1-8b", tokens=2.0, before=3.0), "prompt_attention")
    assert float(op.flops) == 4 * 32 * 128 * (4 + 5)
    # Keys and values of all 5, 8 heads each; queries and outputs of 2 tokens and 32 heads; 2 bytes.
    assert float(op.bytes) == 2 * 5 * 8 * 128 * 2 + 2 * 2 * 32 * 128 * 2
    assert op.count == 32


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-120b", "llama-4-scout", "deepseek-v3"])
def test_chunks_do_the_pairs_of_the_whole_prompt(model: str) -> None:
    """Whatever the window: 4 chunks of 500 tokens have as many pairs as 2,000 at once."""
    whole = {
        f"prompt_{op.name}": op.flops
        for op in prefill_ops(model, prompt=2000.0)
        if op.name.endswith("attention")
    }
    for name, flops in whole.items():
        chunks = (named(mixing(model, tokens=500.0, before=500.0 * j), name) for j in range(4))
        assert sum(float(op.flops) for op in chunks) == pytest.approx(float(flops)), name


def test_what_the_cache_holds_of_a_prompt_is_expanded_again() -> None:
    # DeepSeek-V3: a latent of 512 becomes 128 heads of 128 + 128, for each of 3,000 cached tokens.
    op = named(mixing("deepseek-v3", tokens=1000.0, before=3000.0), "cached_kv_b_proj")
    assert float(op.flops) == 2 * 3000 * 512 * 128 * 256
    none = [op.name for op in mixing("deepseek-v3", tokens=1000.0, before=0.0)]
    assert "cached_kv_b_proj" not in none


def test_rows_that_pick_their_own_entries_read_no_more_than_those() -> None:
    # GLM-5 picks 2,048 entries: 1,000 rows after 8,000 tokens have 1,000 x 2,048 pairs; 8 of 64
    # heads, 576 + 512 wide. The kernel's tile has 64 heads, eight times as many.
    op = named(mixing("glm-5", tokens=1000.0, before=8000.0, tp=8), "prompt_latent_attention")
    assert float(op.flops) == 2 * 1000 * 2048 * 8 * (576 + 512)
    assert float(np.asarray(op.padding)) == 8


def test_a_prefix_hit_saves_rows_but_not_its_attention() -> None:
    spec = load_model("llama-3.1-8b")
    placement, formats = Placement(), precision_of(spec)
    hit = prefill(spec, formats, placement, batch=1.0, prompt=100.0, before=900.0)
    full = prefill(spec, formats, placement, batch=1.0, prompt=1000.0)
    assert float(named(hit, "qkv_proj").flops) == float(named(full, "qkv_proj").flops) / 10
    # pairs: 1,000 x 1,001 / 2 less 900 x 901 / 2
    pairs = 500_500 - 405_450
    assert float(named(hit, "attention").flops) == 4 * 32 * 128 * pairs


def deployed(drafter: str) -> Deployment:
    return deploy(Configuration(model="llama-3.1-8b", gpu="a100-sxm-80gb", drafter=drafter))[0]


def chunk_of(tokens: float, *, number: float = 1.0, before: float = 0.0) -> Chunks:
    return Chunks(
        number=np.full((1, 1, 1), number),
        tokens=np.full((1, 1, 1), tokens),
        before=np.full((1, 1, 1), before),
    )


@pytest.mark.parametrize("drafter", ["eagle3", "llama-3.2-1b"])
def test_a_drafter_reads_every_prompt_token_in_its_first_pass(drafter: str) -> None:
    deployment = deployed(drafter)
    rows = {}
    for tokens in (0.0, 700.0):
        chunks = chunk_of(max(tokens, 1.0), number=float(tokens > 0))
        grid = deployment.grid(
            (4,), (1000,), (0, 3), prefill_tokens=np.full((1, 1, 1), tokens), chunks=chunks
        )
        first, further = draft_passes(deployment.drafter, grid)
        rows[tokens] = np.max(named(first, "qkv_proj").rows)
        assert np.max(named(further, "qkv_proj").rows) == 4
    assert rows == {0.0: 16.0, 700.0: 716.0}  # 4 sequences of 1 + 3 rows, and the prompt's


@pytest.mark.parametrize("drafter", ["none", "eagle3"])
def test_a_pass_without_a_chunk_costs_what_it_did(drafter: str) -> None:
    deployment = deployed(drafter)
    lengths = (0,) if drafter == "none" else (0, 3)
    plain = deployment.price(deployment.grid((4,), (1000,), lengths)).times.total
    nothing = np.zeros((1, 1, 1))
    grid = deployment.grid(
        (4,), (1000,), lengths, prefill_tokens=nothing, chunks=chunk_of(1.0, number=0.0)
    )
    assert np.array_equal(deployment.price(grid).times.total, plain)


#: Rows of context_attention_perf (aiconfigurator-core 0.12.0): one prompt, 32 heads, 8 KV heads of
#: 128, bf16 [s].
MEASURED = {
    ("a100-sxm-80gb", 1024): 0.09672e-3,
    ("a100-sxm-80gb", 4096): 0.89962e-3,
    ("a100-sxm-80gb", 16384): 12.5052e-3,
    ("h200-sxm", 1024): 0.035264e-3,
    ("h200-sxm", 4096): 0.267685e-3,
    ("h200-sxm", 16384): 3.37083e-3,
    ("b200-hgx", 1024): 0.028629e-3,
    ("b200-hgx", 4096): 0.165621e-3,
    ("b200-hgx", 16384): 1.768219e-3,
}


@pytest.mark.parametrize(("gpu", "prompt"), MEASURED)
def test_prompt_attention_takes_what_its_table_says(gpu: str, prompt: int) -> None:
    deployment = deploy(Configuration(model="llama-3.1-8b", gpu=gpu, drafter="none"))[0]
    target, chunks = deployment.target, chunk_of(float(prompt))
    kernels = prompt_ops(target.model, target.precision, target.placement, chunks)
    (time,) = time_prompts(kernels, chunks, deployment.machine)
    assert scalar(time.each) == pytest.approx(MEASURED[gpu, prompt], rel=0.25)
    assert time.chosen.provenance == "calibrated"


def test_a_part_without_a_table_borrows_and_says_so() -> None:
    deployment = deploy(Configuration(model="llama-3.1-8b", gpu="h20", drafter="none"))[0]
    target, chunks = deployment.target, chunk_of(4096.0)
    kernels = prompt_ops(target.model, target.precision, target.placement, chunks)
    (time,) = time_prompts(kernels, chunks, deployment.machine)
    assert time.chosen.provenance == "assumed"
    assert time.chosen.spread is not None
    assert time.chosen.spread > 0.08  # what is borrowed within a generation is off by that
    assert deployment.target.precision.kv is DType.BF16
