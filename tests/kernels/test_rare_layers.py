"""Pieces of networks that few bundled models have: their heads, matrices, caches and splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from roofline.kernels.footprint import index_tokens
from roofline.kernels.matrices import (
    attention_linears,
    attention_split,
    attention_vectors,
    local_heads,
)
from roofline.specs.mixers import (
    CompressedAttention,
    CrossAttention,
    GroupedQueryAttention,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    NoAttention,
)
from tests.support import MODEL, Cli, assert_refused, write

GROUPED = GroupedQueryAttention(num_heads=8, num_kv_heads=2, head_dim=64)


def sizes(mixer: KimiDeltaAttention | LightningAttention, hidden: int) -> dict[str, int]:
    return {x.name: x.outputs * x.inputs for x in attention_linears(mixer, hidden_size=hidden)}


def test_heads_of_one_rank() -> None:
    """A latent is one head for all; KV heads are copied beyond their number."""
    latent = LatentAttention(
        num_heads=16, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
    )
    cross = CrossAttention(num_heads=8, num_kv_heads=2, head_dim=64, qk_norm=False)
    assert local_heads(NoAttention(), 4) == (0, 0)
    assert local_heads(latent, 4) == (4, 1)
    assert local_heads(GROUPED, 4) == local_heads(cross, 4) == (2, 1)


def test_matrices_of_kimis_mixer() -> None:
    """16 heads of 32: queries, keys, values and a full gate are 4 x 512, decay by ranks of 32."""
    full = KimiDeltaAttention(num_heads=16, head_dim=32, conv_width=4)
    low = full.model_copy(update={"full_rank_gate": False})
    assert sizes(full, 1024) == {
        "qkvg_proj": 1024 * (3 * 512 + 512 + 16 + 32), "decay_proj": 32 * 512,
        "o_proj": 512 * 1024,
    }  # fmt: skip
    assert sizes(low, 1024) == {
        "qkvg_proj": 1024 * (3 * 512 + 16 + 2 * 32), "decay_proj": 32 * 2 * 512,
        "o_proj": 512 * 1024,
    }  # fmt: skip
    # 3 x 512 filters of 4, a bias for each head and value, a norm over a head
    assert attention_vectors(full) == 3 * 512 * 4 + 16 + 512 + 32


def test_tensor_parallelism_must_divide_heads() -> None:
    assert attention_split(NoAttention(), 3) is None
    assert attention_split(GROUPED, 3) == "a divisor of its 8 query heads"
    assert attention_split(GROUPED, 8) is None


def test_groups_of_outputs_are_not_split() -> None:
    grouped = CompressedAttention(
        num_heads=64, head_dim=512, q_lora_rank=1024, o_lora_rank=1024,
        o_groups=8, ratio=4, window=128,
    )  # fmt: skip
    assert attention_split(grouped, 16) == "a divisor of its 8 output groups"
    assert attention_split(grouped, 8) is None


def test_a_layer_without_an_indexer_compares_with_nothing() -> None:
    assert np.array_equal(np.asarray(index_tokens(GROUPED, np.array([1.0, 8192.0]))), [0.0, 0.0])


#: The invented model with a layer that attends to an image of 100 tokens, and a dense last one.
IMAGE = MODEL.replace(
    "layers:\n",
    "layers:\n- repeat: 1\n  attention: {kind: cross, num_heads: 8, num_kv_heads: 2, head_dim: 64, "
    "qk_norm: false, media_tokens: 100}\n"
    "  mlp: {kind: dense, intermediate_size: 1024, gated: true}\n",
)


def test_an_image_is_read_by_every_row(cli: Cli, tmp_path: Path) -> None:
    """4 FLOP x 8 heads x 64 x 100 tokens for each row; one layer reads 2 x 2 x 64 x 100 in bf16."""
    ask = ("--drafter", "none", "--explain", "--format", "json")
    ops = cli("recommend", write(tmp_path, "a.yaml", IMAGE), *ask).ops("verify")
    assert ops["cross_attention"]["flops"] == 4 * 8 * 64 * 100
    assert ops["cross_attention"]["bytes"] == 2 * (2 * 2 * 64 * 100) + 2 * (2 * 8 * 64)
    without = write(tmp_path, "b.yaml", IMAGE.replace("media_tokens: 100", "media_tokens: 0"))
    assert "cross_attention" not in cli("recommend", without, *ask).ops("verify")


def test_a_dense_mlp_beside_experts_is_split_too(cli: Cli, tmp_path: Path) -> None:
    """Experts of 64 divide by 8, the dense MLP of 100 does not."""
    old = "{kind: dense, intermediate_size: 1024, gated: true}"
    mixed = "{kind: moe, num_experts: 4, top_k: 2, expert_intermediate_size: 64, gated: true, "
    model = write(tmp_path, "a.yaml", MODEL.replace(old, mixed + "dense_intermediate_size: 100}"))
    done = cli("recommend", model, "--tp", "8", "--drafter", "ngram", "--acceptance", "0.5")
    assert_refused(done, "--tp 8: tiny needs a divisor of its dense MLP's width 100")
