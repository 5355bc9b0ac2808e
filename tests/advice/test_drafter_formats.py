"""In which format a drafter's weights are priced, and that an answer says so."""

from __future__ import annotations

import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.base.notices import Code
from roofline.specs.formats import Component, DType
from tests.support import Cli


@pytest.mark.parametrize(
    ("weights", "given", "engine", "stored"),
    [
        # llama.cpp common/arg.cpp, --fim-qwen-7b-spec: target and draft model both in Q8_0
        (DType.Q8_0, None, "llamacpp", "q8_0"),
        (DType.Q4_K_M, None, "llamacpp", "q4_k_m"),
        (DType.Q4_K_M, DType.Q8_0, "llamacpp", "q8_0"),
        (None, None, "llamacpp", "bf16"),
        (DType.FP8, None, "vllm", "bf16"),  # a checkpoint of its own, published in bf16
    ],
)
def test_a_draft_model_beside_a_gguf_target_is_one_too(
    weights: DType | None, given: DType | None, engine: str, stored: str
) -> None:
    asked = Configuration(
        model="llama-3.1-8b", gpu="rtx-4090", engine=engine, weights=weights,
        drafter="llama-3.2-1b", draft_weights=given,
    )  # fmt: skip
    deployment, notices = deploy(asked)
    precision = deployment.drafter.precision
    assert precision is not None
    assert precision.weights[Component.MLP] == stored
    told = [item for item in notices if item.code is Code.DRAFTER_STORED_AS_TARGET]
    assert bool(told) == (weights is not None and given is None and engine == "llamacpp")


def test_a_head_is_published_in_bf16_beside_any_target() -> None:
    asked = Configuration(model="gpt-oss-20b", weights=None, drafter="eagle3")
    precision = deploy(asked)[0].drafter.precision
    assert precision is not None
    assert precision.weights[Component.MLP] == "bf16"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--weights fp8", "drafter llama-3.1-8b-eagle3 (bf16 weights);"),
        ("", "drafter llama-3.1-8b-eagle3;"),
        ("--drafter llama-3.2-1b --acceptance 0.7 --weights fp8", "llama-3.2-1b (bf16 weights);"),
        ("--drafter ngram --acceptance 0.4 --weights fp8", "drafter ngram;"),
    ],
)
def test_a_format_unlike_the_targets_is_said(cli: Cli, words: str, named: str) -> None:
    out = " ".join(cli("recommend", "llama-3.1-8b", *words.split()).out.split())
    assert named in out
