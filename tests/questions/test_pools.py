"""Pools for prefill and decode: the ratio of two rates, its signs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from roofline.questions.pools import decode_instances
from tests.support import Cli, assert_refused

ASK = ("recommend", "llama-3.1-8b", "--batch", "32", "--acceptance", "0.7", "--format", "json")


def pools(cli: Cli, shape: str, *more: str) -> Any:
    """Return what one prefill instance feeds."""
    return cli(*ASK, "--pools", shape, *more).data()["points"][0]["pools"]


def fed(found: Any, length: int) -> float:
    """Return the decode instances at a draft length."""
    return float(found["by_draft_length"][length]["decode_instances"])


def test_as_many_requests_end_as_begin() -> None:
    """10 prompts/s; 32 sequences at 10 ms a step and 2 tokens end 6,400 tokens/s, 25 requests/s."""
    asked = {"prefill": 0.1, "step": 10e-3, "batch": 32, "answer": 256}
    assert float(decode_instances(tokens_per_step=2.0, **asked)) == pytest.approx(10 / 25)


def test_longer_answers_need_more_decoding_and_longer_prompts_less(cli: Cli) -> None:
    middle = pools(cli, "2k:256")
    assert fed(pools(cli, "2k:512"), 0) == pytest.approx(2 * fed(middle, 0))
    assert fed(pools(cli, "4k:256"), 0) < fed(middle, 0) / 1.9  # attention grows faster than 2


def test_drafts_that_speed_up_need_fewer_decode_instances(cli: Cli) -> None:
    answer = cli(*ASK, "--pools", "2k:256")
    rows, found = answer.by_draft_length(), answer.data()["points"][0]["pools"]
    for length in (1, 3):
        assert fed(found, length) == pytest.approx(fed(found, 0) / rows[length]["speedup"])


def test_every_figure_has_its_range(cli: Cli) -> None:
    for row in pools(cli, "2k:256")["by_draft_length"]:
        low, high = row["decode_instances_low"], row["decode_instances_high"]
        assert 1.5 * low < row["decode_instances"] * 1.2 < 1.5 * high


def test_a_cache_takes_its_bytes_over_the_link(cli: Cli) -> None:
    """Llama 3.1 8B keeps 131,072 bytes a token; blocks of 16; 70 % of 10 GB/s."""
    found = pools(cli, "2k:256", "--internode", "10GB/s")
    assert found["cache_bytes"] == pytest.approx((2048 + 16) * 131072)
    assert found["handover_ms"] == pytest.approx(1e3 * found["cache_bytes"] / 7e9)


def test_the_text_says_what_it_rests_on(cli: Cli) -> None:
    text = " ".join(cli(*ASK[:-2], "--pools", "2k:256").out.split())
    assert text.startswith("Experimental: ")
    assert "Pools (experimental): a prefill instance of 1 GPU reads a prompt of 2k in" in text
    assert "experimental: pools rest on no timed row" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--pools 2k", "expected prompt and answer tokens: 2k:256"),
        ("--pools 0:5", "expected prompt and answer tokens: 2k:256"),
        ("--pools 128k:4k", "are more than the 131072"),
        ("--pools 2k:256 --pp 2", "is for instances of one stage"),
        ("--pools 2k:256 --rps 4 --input-tokens 1k --output-tokens 100", "belongs to one batch"),
    ],
)
def test_odd_pools_are_refused(cli: Cli, options: str, said: str) -> None:
    command = ("recommend", "llama-3.1-8b", "--acceptance", "0.7")
    assert_refused(cli(*command, *options.split()), said)
