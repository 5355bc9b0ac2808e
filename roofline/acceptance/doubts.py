"""What may be wrong with an acceptance that somebody chose for a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from roofline.acceptance.curve import Acceptance

__all__ = ["bare_name", "doubts", "rise", "same_model"]

#: Tokens per step that figures of two digits may be off by, all together.
ROUNDING = 0.02

#: Endings of a name that say how weights are stored, not which model it is.
_STORED = re.compile(r"(nvfp4|mxfp4|fp8|fp4|int8|int4|bf16|awq|gptq|gguf|dspark)$")


def doubts(curve: Acceptance, *, model: Iterable[str], longest: int) -> list[str]:
    """Return what to say of a curve for a model of these names, drafted up to ``longest``."""
    names = list(model)
    others = [t for t in curve.targets if not any(same_model(t, name) for name in names)]
    told = [
        f"acceptance of {curve.label}: counted on {other}, not on {names[0]}; measure your own"
        for other in dict.fromkeys(others)
    ]
    fall = _fall(curve.table, longest)
    if fall is not None:
        first, second = fall
        told.append(
            f"acceptance of {curve.label}: tokens per step fall from {curve.table[first]:g} at "
            f"D={first} to {curve.table[second]:g} at D={second}; drafts past the trained depth, "
            "or counted on other prompts"
        )
    risen = rise({d: al for d, al in curve.table.items() if d <= longest})
    return told if risen is None else [*told, f"acceptance of {curve.label}: {risen}"]


def same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model, whatever its weights are stored in.

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
    while len(parts) > 1 and _STORED.fullmatch(parts[-1]):
        parts.pop()
    return "".join(part for part in parts if part != "meta")


def rise(table: Mapping[int, float], *, beyond: float = ROUNDING) -> str | None:
    """Return what to say of a curve in which a later draft survives more often than an earlier one.

    S_i = AL(i) - AL(i-1) cannot rise: draft i is reached only where draft i-1 was accepted. Between
    given D the mean over the positions cannot either. ``table`` is AL by D.

    >>> rise({0: 1, 1: 1.9, 2: 1.9, 3: 2.9})
    'survival rises from 0.00 at D=2 to 1.00 at D=3, as only noise or other prompts can make it'
    """
    lengths = sorted({0: 1.0, **table})
    curve = {0: 1.0, **table}
    means = {b: (curve[b] - curve[a]) / (b - a) for a, b in pairwise(lengths)}
    for first, second in pairwise(means):
        if means[second] - max(means[first], 0.0) > beyond:
            return (
                f"survival rises from {max(means[first], 0.0):.2f} at D={first} to "
                f"{means[second]:.2f} at D={second}, as only noise or other prompts can make it"
            )
    return None


def _fall(table: Mapping[int, float], longest: int) -> tuple[int, int] | None:
    """Return the first two neighbours in D between which tokens per step fall."""
    lengths = sorted(d for d in table if d <= longest)
    for first, second in pairwise(lengths):
        if table[second] < table[first]:
            return first, second
    return None
