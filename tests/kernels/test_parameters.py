"""Parameter counts and KV bytes of the bundled specs."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.kernels.footprint import (
    kv_bytes_per_token,
    parameters_decode_read,
    parameters_total,
)
from roofline.specs.formats import DType
from roofline.specs.network import ModelSpec, load_network
from tests.support import MODEL, write


@pytest.mark.parametrize(
    ("model", "total", "read"),
    [
        # models.csv, total_params (exact counts of the keras-hub presets) and
        # computed_decode_read_params (transformers meta-device count less the untied embedding)
        ("llama-3.1-8b", 8_030_261_248, 7_504_924_672),
        ("qwen3-0.6b", 596_049_920, 596_049_920),
        ("qwen3-8b", 8_190_735_360, 7_568_405_504),
        ("qwen3-32b", 32_762_123_264, 31_984_210_944),
        # models.csv, computed_total (formula == transformers meta count)
        ("llama-3.1-70b", 70_553_706_496, 69_503_033_344),
        ("llama-3.2-1b", 1_235_814_400, 1_235_814_400),
        # models.csv, rows drafter--specforge--* and drafter--eagle--EAGLE3-LLaMA3.1-8B-train
        ("llama-3.1-8b-eagle3", 424_689_664, 424_689_664),
        ("llama-3.1-70b-eagle3", 1_403_027_456, 1_403_027_456),
        ("qwen3-8b-eagle3", 399_523_840, 399_523_840),
        ("qwen3-32b-eagle3", 782_520_320, 782_520_320),
    ],
)
def test_parameters_are_exact(model: str, total: int, read: int) -> None:
    spec = load_network(model)
    assert parameters_total(spec) == total
    assert parameters_decode_read(spec) == read


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # layers x 2 (K and V) x KV heads x head size x 2 bytes
        ("llama-3.1-8b", 131_072),  # 32 x 2 x 8 x 128 x 2
        ("llama-3.1-70b", 327_680),  # 80 x 2 x 8 x 128 x 2
        ("llama-3.2-1b", 32_768),  # 16 x 2 x 8 x 64 x 2
        ("qwen3-0.6b", 114_688),  # 28 x 2 x 8 x 128 x 2
        ("qwen3-8b", 147_456),  # 36 x 2 x 8 x 128 x 2
        ("qwen3-32b", 262_144),  # 64 x 2 x 8 x 128 x 2
        ("llama-3.1-8b-eagle3", 4_096),  # 1 x 2 x 8 x 128 x 2
    ],
)
def test_kv_bytes_per_token_at_bf16(model: str, expected: int) -> None:
    assert kv_bytes_per_token(load_network(model), DType.BF16) == expected


def invented(folder: Path, old: str = "", new: str = "") -> ModelSpec:
    """Return the invented model with one thing changed."""
    return ModelSpec.load(Path(write(folder, "tiny.yaml", MODEL.replace(old, new))))


def test_an_invented_model_by_hand(tmp_path: Path) -> None:
    """Hand count: QKV 512 x (8 + 2 + 2) x 64, O 512 x 512, MLP 3 x 512 x 1024, norms 2 x 512."""
    layer = 393_216 + 262_144 + 1_572_864 + 1_024
    head = 1000 * 512
    spec = invented(tmp_path)
    assert parameters_total(spec) == 2 * layer + 512 + 2 * head
    assert parameters_decode_read(spec) == 2 * layer + 512 + head


def test_a_tied_head_is_counted_once_but_read_all_the_same(tmp_path: Path) -> None:
    """The embedding and the head of a tied model are one matrix of vocabulary x hidden."""
    tied = invented(tmp_path, "embeddings: false", "embeddings: true")
    untied = invented(tmp_path)
    assert parameters_total(untied) - parameters_total(tied) == 1000 * 512
    assert parameters_decode_read(untied) == parameters_decode_read(tied)


def test_an_ungated_mlp_has_two_matrices(tmp_path: Path) -> None:
    """Without a gate, each of the two layers loses one matrix of 512 x 1024."""
    gated, plain = invented(tmp_path), invented(tmp_path, "gated: true", "gated: false")
    assert parameters_total(gated) - parameters_total(plain) == 2 * 512 * 1024
