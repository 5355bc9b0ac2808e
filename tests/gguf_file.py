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
