"""What questions look like, for the property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from roofline.specs.formats import DType
from roofline.specs.laws import SimpleLaw
from roofline.specs.placement import VerifyAttention

#: Work of one kernel: from nothing to a prefill of a large model [FLOP or B].
work = st.floats(min_value=0, max_value=1e15)
probabilities = st.floats(min_value=0, max_value=1)
rates = st.lists(probabilities, min_size=1, max_size=8)


@st.composite
def laws(draw: st.DrawFn) -> SimpleLaw:
    """Return a law within the bounds of design.md section 3."""
    return SimpleLaw(
        floor=draw(st.floats(min_value=0, max_value=1e-4)),
        serial=draw(st.floats(min_value=0, max_value=1e-6)),
        mem_eff=draw(st.floats(min_value=0.3, max_value=1.05)),
        compute_eff=draw(st.floats(min_value=0.05, max_value=1.05)),
        overlap=draw(st.floats(min_value=1, max_value=8)),
    )


@st.composite
def curves(draw: st.DrawFn) -> dict[int, float]:
    """Return measured tokens per step within [1, 1 + D]; gaps and falls are allowed."""
    lengths = draw(st.sets(st.integers(min_value=1, max_value=8), min_size=1))
    return {d: draw(st.floats(min_value=1, max_value=1 + d)) for d in sorted(lengths)}


def typed(curve: dict[int, float]) -> str:
    """Return a curve as one types it: its gains per position rise by less than 0.2, as noise may.

    Higher points are brought down to that.
    """
    at, level, gain = 0, 1.0, 1.0
    kept = {}
    for d, al in curve.items():
        kept[d] = min(al, level + (max(gain, 0) + 0.19) * (d - at))
        at, level, gain = d, kept[d], (kept[d] - level) / (d - at)
    return "al:" + ",".join(f"{d}={al!r}" for d, al in kept.items())


def conditional(values: list[float]) -> str:
    """Return conditional rates as one types them; a single one holds at every position."""
    listed = ",".join(f"{value:.6f}" for value in values)
    return f"conditional:{listed}" if len(values) > 1 else listed


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Return the options of an answerable question: everything here fits its accelerator."""
    model, tp = draw(st.sampled_from([("llama-3.1-8b", 1), ("qwen3-8b", 1), ("llama-3.1-70b", 4)]))
    drafter = draw(st.sampled_from(["eagle3", "ngram"]))
    engines = ["vllm", "sglang", "trtllm"] + (["llamacpp"] if drafter == "ngram" else [])
    acceptance = draw(rates.map(conditional) | curves().map(typed))
    engine = draw(st.sampled_from(engines))
    gpus = ["h200-sxm", "b200-hgx"] + (["mi300x"] if engine != "trtllm" else [])
    of_files = engine == "llamacpp"
    weights = [DType.Q8_0, DType.Q4_K] if of_files else [DType.FP8, DType.INT4_G128]
    return {
        "model": model,
        "gpu": draw(st.sampled_from(gpus)),
        "tp": tp * draw(st.sampled_from([1, 2])),
        "batches": (draw(st.integers(min_value=1, max_value=64)),),
        "contexts": (draw(st.integers(min_value=1, max_value=4096)),),
        "drafter": drafter,
        "acceptance": acceptance,
        "weights": draw(st.sampled_from([None, *weights])),
        "kv": draw(st.sampled_from([None, DType.Q8_0 if of_files else DType.FP8])),
        "verify_attention": draw(st.sampled_from(list(VerifyAttention))),
        "engine": engine,
    }
