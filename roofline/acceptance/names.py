"""Names of models in acceptance: without owner, remarks, and how weights are stored."""

from __future__ import annotations

import re

__all__ = ["bare_name", "same_model"]

#: Endings of a model's name that say how its weights are stored.
_STORAGE_SUFFIX = re.compile(r"(nvfp4|mxfp4|fp8|fp4|int8|int4|bf16|awq|gptq|gguf|dspark)$")


def same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model, in whatever format its weights are stored.

    >>> same_model("Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B-FP8")
    True
    >>> same_model("Qwen3.8-27B UD-Q4_K_XL", "qwen3.8-27b-fp8")
    True
    >>> same_model("Qwen3-8B", "qwen3-14b")
    False
    """
    first, second = bare_name(one), bare_name(other)
    return first in second or second in first


def bare_name(name: str) -> str:
    """Return a name without owner, remarks, storage formats and hyphens.

    >>> bare_name("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8")
    'qwen3next80ba3binstruct'
    """
    word = re.split(r"[ ,(]", name.rsplit("/", 1)[-1].lower(), maxsplit=1)[0]
    parts = re.split(r"[-_]", word)
    while len(parts) > 1 and _STORAGE_SUFFIX.fullmatch(parts[-1]):
        parts.pop()
    return "".join(part for part in parts if part != "meta")
