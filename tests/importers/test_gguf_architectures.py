"""GGUF headers of other kinds: latent attention, biases, gpt-oss, tied embeddings, split files.

Every shape is small and counted by hand: the tensors must hold what the metadata describe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.importers.gguf import MOST_STRINGS, read_gguf
from roofline.importers.importing import Imported, import_path
from roofline.specs.formats import Component, DType
from roofline.specs.mixers import GroupedQueryAttention, LatentAttention
from tests import gguf_file
from tests.gguf_file import F32, Q8_0

Shapes = Mapping[str, Sequence[int]]
HIDDEN, WIDE, VOCABULARY, LAYERS = 256, 512, 1024, 2


def written(
    folder: Path, architecture: str, keys: Mapping[str, Any], shapes: Shapes, *, tied: bool = False
) -> Imported:
    """Read a file of two layers of these tensors; matrices are in Q8_0."""
    metadata = {"general.architecture": architecture}
    common = {
        "block_count": LAYERS, "context_length": 4096, "embedding_length": HIDDEN,
        "feed_forward_length": WIDE,
    }  # fmt: skip
    metadata |= {f"{architecture}.{key}": value for key, value in (common | dict(keys)).items()}
    if "split" in keys:
        metadata["split.count"] = keys["split"]
    outer = {"token_embd.weight": (HIDDEN, VOCABULARY), "output_norm.weight": (HIDDEN,)}
    if not tied:
        outer["output.weight"] = (HIDDEN, VOCABULARY)
    names = outer | {
        f"blk.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in shapes.items()
    }
    tensors = [(n, shape, F32 if len(shape) == 1 else Q8_0) for n, shape in names.items()]
    file = folder / "model.gguf"
    file.write_bytes(gguf_file.header(metadata, tensors))
    return import_path(file)


NORMS: Shapes = {"attn_norm.weight": (HIDDEN,), "ffn_norm.weight": (HIDDEN,)}
FEED: Shapes = {
    "ffn_gate.weight": (HIDDEN, WIDE), "ffn_up.weight": (HIDDEN, WIDE),
    "ffn_down.weight": (WIDE, HIDDEN),
}  # fmt: skip
#: 4 query heads over 2 KV heads of 64.
HEADS: Shapes = {
    "attn_q.weight": (HIDDEN, 256), "attn_k.weight": (HIDDEN, 128), "attn_v.weight": (HIDDEN, 128),
    "attn_output.weight": (256, HIDDEN),
}  # fmt: skip
GROUPED = {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 64}


@pytest.mark.parametrize("mla", [True, False])
def test_latent_attention(tmp_path: Path, mla: bool) -> None:
    """4 heads: 64 without and 32 with positions, values of 64, KV compressed to 128.

    Newer files give the widths of one head apart (``*_mla``), beside those of the one shared head.
    """
    widths: dict[str, int] = {"attention.key_length": 96, "attention.value_length": 64}
    if mla:
        widths = {
            "attention.key_length": 160, "attention.key_length_mla": 96,
            "attention.value_length": 128, "attention.value_length_mla": 64,
        }  # fmt: skip
    keys = widths | {
        "attention.head_count": 4, "attention.kv_lora_rank": 128, "rope.dimension_count": 32,
    }  # fmt: skip
    shapes: Shapes = {
        "attn_q.weight": (HIDDEN, 4 * 96), "attn_kv_a_mqa.weight": (HIDDEN, 160),
        "attn_kv_a_norm.weight": (128,), "attn_kv_b.weight": (128, 4 * 128),
        "attn_output.weight": (4 * 64, HIDDEN),
    }  # fmt: skip
    spec = written(tmp_path, "deepseek2", keys, {**shapes, **FEED, **NORMS}).spec
    (run,) = spec.layers
    assert isinstance(run.attention, LatentAttention)
    found = run.attention
    assert (found.qk_nope_head_dim, found.qk_rope_head_dim, found.v_head_dim) == (64, 32, 64)


def test_biases_are_seen_in_the_tensors(tmp_path: Path) -> None:
    biases = {"attn_q.bias": (256,), "attn_k.bias": (128,), "attn_v.bias": (128,)}
    biases |= {"attn_output.bias": (HIDDEN,)}
    spec = written(tmp_path, "llama", GROUPED, {**HEADS, **FEED, **NORMS, **biases}).spec
    (run,) = spec.layers
    assert isinstance(run.attention, GroupedQueryAttention)
    assert run.attention.qkv_bias
    assert not getattr(written(tmp_path, "llama", GROUPED, {**HEADS, **FEED, **NORMS})
                       .spec.layers[0].attention, "qkv_bias", True)  # fmt: skip


def test_gpt_oss_alternates_its_windows(tmp_path: Path) -> None:
    """A window of 128 in the even layers; 4 experts of 512 with biases, 2 at a time."""
    keys = GROUPED | {
        "attention.sliding_window": 128, "expert_count": 4, "expert_used_count": 2,
        "expert_feed_forward_length": WIDE,
    }  # fmt: skip
    shapes: Shapes = {
        **HEADS, **NORMS, "attn_q.bias": (256,), "attn_k.bias": (128,), "attn_v.bias": (128,),
        "attn_output.bias": (HIDDEN,), "attn_sinks.weight": (4,),
        "ffn_gate_inp.weight": (HIDDEN, 4), "ffn_gate_inp.bias": (4,),
        "ffn_gate_exps.weight": (HIDDEN, WIDE, 4), "ffn_up_exps.weight": (HIDDEN, WIDE, 4),
        "ffn_down_exps.weight": (WIDE, HIDDEN, 4),
    }  # fmt: skip
    spec = written(tmp_path, "gpt-oss", keys, shapes).spec
    assert [getattr(run.attention, "window", 0) for run in spec.layers] == [128, None]


def test_a_tied_head_has_the_format_of_the_embedding(tmp_path: Path) -> None:
    spec = written(tmp_path, "llama", GROUPED, {**HEADS, **FEED, **NORMS}, tied=True).spec
    assert spec.dtypes[Component.HEAD] == spec.dtypes[Component.EMBEDDING] == DType.Q8_0


def test_the_first_part_of_a_split_file_is_enough(tmp_path: Path) -> None:
    """Half of the layers' tensors lie in the other part, so their count is not checked."""
    found = written(tmp_path, "llama", GROUPED | {"split": 2}, {**HEADS, **NORMS})
    assert found.spec.layers[0].repeat == LAYERS
    assert any("first of 2 parts" in note for note in found.notes)


def test_a_folder_is_no_gguf_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no regular file; give a GGUF file"):
        read_gguf(tmp_path)


def test_texts_in_several_lists_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_STRINGS > 1_000_000  # a vocabulary and its merges
    monkeypatch.setattr("roofline.importers.gguf.MOST_STRINGS", 15)
    file = tmp_path / "texts.gguf"
    file.write_bytes(gguf_file.header({"a": ["x"] * 10, "b": ["x"] * 10}, [("t", (32,), F32)]))
    with pytest.raises(InputError, match="more than 15 texts"):
        read_gguf(file)
