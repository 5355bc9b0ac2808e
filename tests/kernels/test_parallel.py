"""Tensor and expert parallelism: what divides, what is copied, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.base.resources import shelf
from roofline.kernels.footprint import kv_bytes_per_token, parameters_total, weight_bytes
from roofline.kernels.matrices import check_parallel, local_heads
from roofline.specs.formats import Component, DType
from roofline.specs.network import load_model
from roofline.specs.placement import Placement
from tests.physics import decode_ops, named, precision_of, priced, refusal, run, scalar
from tests.support import ENGINE, GPU, Cli, assert_refused, write

NGRAM = "--drafter ngram --acceptance 0.6"


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("qwen3-30b-a3b --gpu h200-sxm --tp 4 --ep 3", ["--ep 3", "--tp 4"]),
        ("qwen3-30b-a3b --gpu h200-sxm --ep 2", ["--ep 2", "--tp 1"]),
        ("qwen3-30b-a3b --gpu h200-sxm --tp 2 --ep 4", ["--ep 4", "--tp 2"]),
        ("llama-3.1-8b --tp 3", ["--tp 3", "32 query heads"]),
        ("qwen2.5-7b --tp 8", ["--tp 8", "28 query heads"]),
        ("deepseek-v3 --gpu gb200 --tp 72", ["--tp 72", "128 query heads"]),
        ("qwen3-30b-a3b --gpu h200-sxm --tp 0", ["--tp 0", "at least 1"]),
        ("qwen3-30b-a3b --gpu h200-sxm --ep 0", ["--ep 0", "at least 1"]),
        ("qwen3-30b-a3b --gpu h200-sxm --tp 16", ["--tp 16", "8 GPUs"]),
    ],
)
def test_refused_in_one_line(command: str, parts: list[str]) -> None:
    line = refusal(f"roofline recommend {command} {NGRAM}")
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    ("old", "new", "flags", "parts"),
    [
        # 132 = 4 x 33 experts on 8 groups; heads divide.
        ("num_experts: 128", "num_experts: 132", "--tp 8 --ep 8", ["--ep 8", "132 experts"]),
        # An expert of width 769 has no halves.
        (
            "expert_intermediate_size: 768",
            "expert_intermediate_size: 769",
            "--tp 2",
            ["--tp 2", "expert width 769"],
        ),
        # 6 KV heads are neither divided by 4 nor divide it.
        (
            "num_heads: 32, num_kv_heads: 4",
            "num_heads: 36, num_kv_heads: 6",
            "--tp 4",
            ["--tp 4", "6 KV heads"],
        ),
        (
            "expert_intermediate_size: 768",
            "expert_intermediate_size: 768, shared_intermediate_size: 769",
            "--tp 2",
            ["--tp 2", "width 769"],
        ),
    ],
)
def test_a_model_that_does_not_divide(
    old: str, new: str, flags: str, parts: list[str], tmp_path: Path
) -> None:
    file = edited("qwen3-30b-a3b", old, new, tmp_path)
    line = refusal(f"roofline recommend {file} --gpu h200-sxm {flags} {NGRAM}")
    for part in parts:
        assert part in line


def edited(model: str, old: str, new: str, folder: Path) -> Path:
    """Write a bundled spec with one thing changed."""
    text = (shelf("model_specs") / f"{model}.yaml").read_text("utf-8")
    assert old in text
    file = folder / f"{model}.yaml"
    file.write_text(text.replace(old, new), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("model", "old", "new", "field"),
    [
        ("gpt-oss-120b", "window: 128", "window: 0", "window"),
        ("gpt-oss-120b", "window: 128", "window: -1", "window"),
        ("gpt-oss-120b", "num_experts: 128", "num_experts: 0", "num_experts"),
        ("gpt-oss-120b", "top_k: 4", "top_k: 0", "top_k"),
        ("gpt-oss-120b", "top_k: 4", "top_k: 129", "top_k"),
        ("mixtral-8x7b", "num_heads: 32", "num_heads: 33", "num_heads"),
        ("mixtral-8x7b", "num_kv_heads: 8", "num_kv_heads: 0", "num_kv_heads"),
        ("deepseek-v3", "kv_lora_rank: 512", "kv_lora_rank: 0", "kv_lora_rank"),
        ("deepseek-v3", "num_experts: 256", "num_experts: 0", "num_experts"),
    ],
)
def test_an_impossible_layer_is_refused_with_its_place(
    model: str, old: str, new: str, field: str, tmp_path: Path
) -> None:
    file = edited(model, old, new, tmp_path)
    first = refusal(f"roofline recommend {file} {NGRAM}")
    code, out, every = run(f"roofline models check {file}")  # a line for each fault
    assert (code, out) == (2, "")
    for lines in (first, every):
        assert all(line.startswith(f"roofline: {model}.yaml: ") for line in lines.splitlines())
        assert field in lines


@pytest.mark.parametrize(
    ("model", "tp", "expected"),
    [
        ("llama-3.1-8b", 1, (32, 8)),
        ("llama-3.1-8b", 8, (4, 1)),
        ("llama-3.1-8b", 32, (1, 1)),  # beyond the KV heads they are copied
        ("llama-3.1-8b", 16, (2, 1)),
        ("deepseek-v3", 8, (16, 1)),  # MLA's one latent is copied to every rank
    ],
)
def test_heads_of_one_rank(model: str, tp: int, expected: tuple[int, int]) -> None:
    spec = load_model(model)
    check_parallel(spec, Placement(tp=tp))
    assert local_heads(spec.layers[0].attention, tp) == expected


def test_cache_of_one_rank() -> None:
    # Llama-3.1-8B: 131,072 B per token, divided until every rank has one of 8 KV heads.
    model = load_model("llama-3.1-8b")
    sizes = [kv_bytes_per_token(model, DType.BF16, tp=tp) for tp in (1, 2, 8, 16, 32)]
    assert sizes == [131_072, 65_536, 16_384, 16_384, 16_384]


@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (4, 1), (4, 2), (4, 4)])
def test_ranks_hold_the_experts_once_between_them(tp: int, ep: int) -> None:
    # Qwen3-30B-A3B: 48 layers x 128 experts x 3 x 2,048 x 768 weights in bf16.
    model = load_model("qwen3-30b-a3b")
    held = weight_bytes(model, precision_of(model), Placement(tp=tp, ep=ep))
    assert tp * held[Component.EXPERTS] == 48 * 128 * 3 * 2048 * 768 * 2
    assert held[Component.ROUTER] == 48 * 2048 * 128 * 2  # whole on every rank
    assert tp * held[Component.HEAD] == 2048 * 151_936 * 2


def test_weights_of_one_rank_are_those_of_the_model() -> None:
    for name in ("mixtral-8x7b", "qwen3-8b", "gemma-3-27b"):
        model = load_model(name)
        held = weight_bytes(model, precision_of(model), Placement())
        held.pop(Component.VISION, None)  # beside the language model
        assert sum(held.values()) == 2 * parameters_total(model)


def test_latent_compressions_are_copied() -> None:
    # DeepSeek-V3, TP 8: kv_a_proj whole on each rank, heads divided.
    kernels = decode_ops("deepseek-v3", placement=Placement(tp=8))
    assert float(named(kernels, "kv_a_proj").flops) == 2 * 7168 * (1536 + 576)
    assert float(named(kernels, "q_b_proj").flops) == 2 * 1536 * 16 * 192
    assert float(named(kernels, "latent_attention").rows) == 16


def test_two_all_reduces_per_layer() -> None:
    # Ring bound: 2 (n - 1) / n of B q H b; Llama-3.1-70B, TP 8, 4 rows of 8,192 bf16 values.
    kernels = decode_ops("llama-3.1-70b", rows=4, placement=Placement(tp=8))
    for name in ("attention_all_reduce", "mlp_all_reduce"):
        op = named(kernels, name)
        assert float(op.bytes) == 2 * 7 / 8 * 4 * 8192 * 2
        assert op.count == 80
    assert not any("all_reduce" in op.name for op in decode_ops("llama-3.1-70b"))


@pytest.mark.parametrize(
    ("tp", "heads", "cache"),
    [
        # 2 x KV heads on the rank x 128 x 8192 tokens x 2 bytes
        (1, 32, 33_554_432),  # 8 KV heads
        (4, 8, 8_388_608),  # 2
        (8, 4, 4_194_304),  # 1
        (16, 2, 4_194_304),  # still 1: replicated, 8 heads over 16 ranks
    ],
)
def test_kv_heads_are_replicated_beyond_their_number(tp: int, heads: int, cache: int) -> None:
    kernels = decode_ops("llama-3.1-8b", context=8192, placement=Placement(tp=tp))
    attention = named(kernels, "attention")
    assert scalar(attention.bytes) == cache + 2 * heads * 128 * 2  # queries in, outputs out
    assert scalar(attention.flops) == 4 * heads * 128 * 8192
    # QKV outputs on the rank: (query heads + 2 KV heads) x 128
    kv_heads = max(8 // tp, 1)
    assert scalar(named(kernels, "qkv_proj").flops) == 2 * 4096 * (heads + 2 * kv_heads) * 128
    assert scalar(named(kernels, "down_proj").flops) == 2 * (14_336 // tp) * 4096


def test_replicated_kv_takes_memory_on_every_rank(cli: Cli, tmp_path: Path) -> None:
    """8 and 16 ranks hold 16,384 bytes of KV per token each; only the weights get smaller.

    On 16 ranks: layer matrices 4096 x (2 + 2) x 128 + 256 x 4096 + 3 x 4096 x 896 = 14,155,776
    elements, 32 times; 2 x 8016 x 4096 for embedding and head; 65 norms of 4096; twice that in
    bytes is 1,037,836,288. Of 8 GB the engine takes 0.9 less 1.5 GB. Working: 8192 rows of
    2 x 4096 + 3 x 896 values, 178,257,920. A sequence: 8193 slots in 513 blocks of 16 are
    134,479,872, and logits of 6 x 128,256 bytes. So floor(4,483,905,792 / 135,249,408) = 33.
    """
    gpu = write(tmp_path, "gpu.yaml", GPU.replace("64 GB", "8 GB"))
    engine = write(tmp_path, "engine.yaml", ENGINE)
    line = assert_refused(
        cli("recommend", "llama-3.1-8b", "--gpu", gpu, "--tp", "16", "--context", "8k",
            "--batch", "1k", "--drafter", "none", "--engine", engine),
        code=3,
    )  # fmt: skip
    assert "largest batch that fits is 33" in line


def test_all_reduce_and_logits_gather() -> None:
    """70B over 4: two reduces per layer of 2 x 3/4 x 8192 x 2 bytes, one gather of 3/4 x V x 2."""
    kernels = decode_ops("llama-3.1-70b", context=1024, placement=Placement(tp=4))
    reduces = [op for op in kernels if op.name.endswith("all_reduce")]
    assert sum(op.count for op in reduces) == 160
    assert {scalar(op.bytes) for op in reduces} == {24_576}
    assert scalar(named(kernels, "logits_gather").bytes) == 192_384
    assert scalar(named(kernels, "lm_head").flops) == 2 * 8192 * 128_256 // 4


def communication(batch: int, tp: int) -> float:
    """Return the time that ranks of H100s send in one plain step [s]."""
    found = priced("llama-3.1-8b", tp=tp, batches=[batch], contexts=[256], drafter="none")
    return scalar(found.times.parts["communication"])


def test_one_gpu_does_not_communicate() -> None:
    assert communication(1, tp=1) == 0


def test_communication_takes_latency_and_bandwidth() -> None:
    """A hundred times the bytes take longer, but not a hundred times: the launch is not free."""
    one, many = communication(1, tp=4), communication(100, tp=4)
    # 65 transfers at least; each carries 1.5 x 100 x 4096 x 2 bytes over 450 GB/s = 2.73 us
    assert many - one > 64 * 2.73e-6 * 0.99 * 0.9
    assert many < 20 * one


@pytest.mark.parametrize(("draft_tp", "flops"), [(1, 525_336_576), (4, 131_334_144)])
def test_a_drafter_may_have_its_own_tp(draft_tp: int, flops: int) -> None:
    """A draft model on one GPU reads its whole head: 2 x 2048 x 128256 FLOP, against a quarter."""
    times = priced(
        "llama-3.1-70b",
        gpu="h200-sxm",
        tp=4,
        drafter="llama-3.2-1b",
        draft_tp=draft_tp,
        draft_lengths=[1],
    ).times
    head = named([timed.op for timed in times.first_pass_ops], "lm_head")
    assert scalar(head.flops) == flops
