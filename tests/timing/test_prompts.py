"""Prompt tokens of a mean step: whole chunks in some of the passes.

vLLM fills a pass up to `max_num_batched_tokens`, SGLang up to `chunked_prefill_size`: a prompt is
read in as few passes as they allow, and the passes between decode only. Expected values are the
mean of the two kinds of pass, each priced alone.
"""

from __future__ import annotations

import numpy as np
import pytest

from roofline.advice.question import Question, question_of
from roofline.base.numbers import Array
from tests.support import Cli

DENSE = {"model": "llama-3.1-8b", "drafter": "eagle3"}
EXPERTS = {"model": "qwen3-30b-a3b", "gpu": "h200-sxm", "drafter": "ngram", "acceptance": "0.6"}
LLAMACPP = EXPERTS | {"gpu": "rtx-pro-6000-blackwell-server", "engine": "llamacpp"}


def _question(batch: int, context: int, prompts: float, **options: str) -> Question:
    return question_of(
        batches=(batch,), contexts=(context,), prefill_tokens_per_step=prompts, **options
    )


def _with_chunk(question: Question, chunk: int) -> Array:
    grid = question.deployment.grid(
        question.workload.batches,
        question.workload.contexts,
        question.draft_lengths,
        prefill_tokens=chunk,
    )
    return question.deployment.price(grid).times.total


@pytest.mark.parametrize(
    ("options", "sizes", "prompts", "chunk", "share"),
    [
        (DENSE, (8, 16384), 512, 8192, 1 / 16),  # vLLM's budget of 8,192 tokens
        (DENSE, (64, 2048), 512, 2048, 1 / 4),  # no prompt is longer than the context
        (EXPERTS, (8, 8192), 1024, 8192, 1 / 8),
        (EXPERTS, (4, 1024), 3000, 3000, 1.0),  # several prompts in every pass
        (LLAMACPP, (1, 4096), 128, 512, 1 / 4),  # its ubatch
    ],
)  # fmt: skip
def test_prompts_ride_as_whole_chunks(
    options: dict[str, str], sizes: tuple[int, int], prompts: float, chunk: int, share: float
) -> None:
    question = _question(sizes[0], sizes[1], prompts, **options)
    expected = (1 - share) * _with_chunk(question, 0) + share * _with_chunk(question, chunk)
    found = question.price().times
    np.testing.assert_allclose(found.total, expected, rtol=1e-12)
    np.testing.assert_allclose(sum(found.parts.values()), expected, rtol=1e-9)


@pytest.mark.parametrize(("batch", "context"), [(8, 8192), (32, 4096)])
def test_few_prompt_tokens_do_not_make_drafts_free(batch: int, context: int) -> None:
    """A pass without a chunk reads the experts that its own rows choose, and most passes have none.

    500 tokens a step spread over all passes would wake every expert in each of them.
    """
    alone, mixed = (_question(batch, context, n, **EXPERTS) for n in (0, 500))
    rises = [
        float(np.diff(q.price().times.total[0, 0, [0, 3]])[0]) for q in (alone, mixed)
    ]  # fmt: skip
    share = 500 / min(context, 8192)
    assert rises[1] >= (1 - share) * rises[0] * (1 - 1e-9)


def test_passes_that_decode_only_keep_their_graphs(cli: Cli) -> None:
    """8 sequences of 4 rows are 32, far below the 512 that vLLM captures at these settings."""
    command = ("recommend", "qwen3-30b-a3b", "--gpu", "h200-sxm", "--batch", "8", "--context", "8k",
               "--drafter", "ngram", "--acceptance", "0.6", "--max-draft-length", "3")  # fmt: skip
    point = cli(*command, "--prefill-tokens-per-step", "500", "--format", "json").point()
    assert point["draft_length"] == 3
