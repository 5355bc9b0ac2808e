"""GGUF headers written by hand, after ggml's specification and not after the program's reader."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

F32, F16, Q4_K, Q6_K, Q8_0 = 0, 1, 12, 14, 8
UINT32, FLOAT32, STRING, ARRAY = 4, 6, 8, 9


def text(value: str) -> bytes:
    """A string: its length in 64 bits, then its bytes."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, value: Any) -> bytes:
    """A key and a typed value."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", FLOAT32, value)
    if isinstance(value, list):
        if value and isinstance(value[0], str):
            entries, kind = b"".join(map(text, value)), STRING
        else:
            entries, kind = b"".join(struct.pack("<I", n) for n in value), UINT32
        return text(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + entries
    return text(key) + struct.pack("<II", UINT32, value)


def tensor(name: str, shape: Sequence[int], kind: int, offset: int = 0) -> bytes:
    """A tensor's entry; dimensions innermost first."""
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def header(
    metadata: dict[str, Any], tensors: Sequence[tuple[str, Sequence[int], int]], version: int = 3
) -> bytes:
    """A whole header."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    keys = b"".join(pair(key, value) for key, value in metadata.items())
    return head + keys + b"".join(tensor(*entry) for entry in tensors)


def llama_8b(*, mixed: bool = True) -> bytes:
    """Llama-3.1-8B as llama.cpp's Q4_K_M: half of attn_v and ffn_down, and the head, in Q6_K."""
    hidden, wide, kv, layers = 4096, 14_336, 1024, 32
    metadata = {
        "general.architecture": "llama",
        "general.name": "Llama 3.1 8B",
        "llama.block_count": layers,
        "llama.context_length": 131_072,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": wide,
        "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": 8,
        "llama.rope.freq_base": 500_000.0,
        "tokenizer.ggml.tokens": ["a"] * 1000,
    }
    tensors: list[tuple[str, Sequence[int], int]] = [
        ("token_embd.weight", (hidden, 128_256), Q4_K),
        ("rope_freqs.weight", (64,), F32),
        ("output_norm.weight", (hidden,), F32),
        ("output.weight", (hidden, 128_256), Q6_K),
    ]
    for layer in range(layers):
        more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
        best = Q6_K if mixed and more else Q4_K
        shapes = {
            "attn_q": (hidden, hidden, Q4_K), "attn_k": (hidden, kv, Q4_K),
            "attn_v": (hidden, kv, best), "attn_output": (hidden, hidden, Q4_K),
            "ffn_gate": (hidden, wide, Q4_K), "ffn_up": (hidden, wide, Q4_K),
            "ffn_down": (wide, hidden, best),
        }  # fmt: skip
        tensors += [
            (f"blk.{layer}.{name}.weight", (rows, columns), kind)
            for name, (rows, columns, kind) in shapes.items()
        ]
        tensors += [
            (f"blk.{layer}.{name}.weight", (hidden,), F32) for name in ("attn_norm", "ffn_norm")
        ]
    return header(metadata, tensors)


def mixtral() -> bytes:
    """Mixtral-8x7B with every matrix in Q8_0."""
    hidden, wide, layers = 4096, 14_336, 32
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.context_length": 32_768,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": wide,
        "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": [8] * layers,
        "llama.expert_count": 8,
        "llama.expert_used_count": 2,
    }
    tensors: list[tuple[str, Sequence[int], int]] = [
        ("token_embd.weight", (hidden, 32_000), Q8_0),
        ("output_norm.weight", (hidden,), F32),
        ("output.weight", (hidden, 32_000), Q8_0),
    ]
    for layer in range(layers):
        tensors += [
            (f"blk.{layer}.{name}.weight", shape, kind)
            for name, shape, kind in (
                ("attn_q", (hidden, hidden), Q8_0), ("attn_k", (hidden, 1024), Q8_0),
                ("attn_v", (hidden, 1024), Q8_0), ("attn_output", (hidden, hidden), Q8_0),
                ("ffn_gate_inp", (hidden, 8), F32), ("ffn_gate_exps", (hidden, wide, 8), Q8_0),
                ("ffn_up_exps", (hidden, wide, 8), Q8_0),
                ("ffn_down_exps", (wide, hidden, 8), Q8_0),
                ("attn_norm", (hidden,), F32), ("ffn_norm", (hidden,), F32),
            )
        ]  # fmt: skip
    return header(metadata, tensors)


def eagle3_8b(*, own_head: bool = True, architecture: str = "eagle3") -> bytes:
    """An EAGLE-3 head of Llama-3.1-8B, as llama.cpp's src/models/eagle3.cpp (b11434) loads it.

    The shapes are those of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B; matrices are in Q8_0.
    """
    hidden, wide, vocabulary, draft = 4096, 14_336, 128_256, 32_000
    metadata = {
        "general.architecture": architecture,
        "eagle3.block_count": 1,
        "eagle3.context_length": 2048,
        "eagle3.embedding_length": hidden,
        "eagle3.feed_forward_length": wide,
        "eagle3.attention.head_count": 32,
        "eagle3.attention.head_count_kv": 8,
        "eagle3.attention.key_length": 128,
        "eagle3.target_layers": [2, 16, 29],
        "eagle3.target_hidden_size": hidden,
        "eagle3.vocab_size": vocabulary,
        "tokenizer.ggml.tokens": ["a"] * 1000,
    }
    tensors: list[tuple[str, Sequence[int], int]] = [
        ("fc.weight", (3 * hidden, hidden), Q8_0),
        ("output_norm.weight", (hidden,), F32),
        ("blk.0.attn_norm.weight", (hidden,), F32),
        ("blk.0.attn_norm_2.weight", (hidden,), F32),
        ("blk.0.attn_q.weight", (2 * hidden, hidden), Q8_0),
        ("blk.0.attn_k.weight", (2 * hidden, 1024), Q8_0),
        ("blk.0.attn_v.weight", (2 * hidden, 1024), Q8_0),
        ("blk.0.attn_output.weight", (hidden, hidden), Q8_0),
        ("blk.0.ffn_norm.weight", (hidden,), F32),
        ("blk.0.ffn_gate.weight", (hidden, wide), Q8_0),
        ("blk.0.ffn_up.weight", (hidden, wide), Q8_0),
        ("blk.0.ffn_down.weight", (wide, hidden), Q8_0),
        ("blk.0.rope_freqs.weight", (64,), F32),
    ]
    if own_head:
        tensors += [("output.weight", (hidden, draft), Q8_0), ("d2t", (draft,), F32)]
    return header(metadata, tensors)
