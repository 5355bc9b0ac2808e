"""The answer for whole requests as people and programs read it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import Cli

ASK = ("recommend", "llama-3.1-8b", "--gpu", "h100-sxm", "--acceptance", "0.7")
LENGTHS = ("--input-tokens", "4k", "--output-tokens", "200")


def test_the_first_sentence_says_both_gains_and_the_share_of_prompts(cli: Cli) -> None:
    data = json.loads(cli(*ASK, *LENGTHS, "--batch", "8", "--format", "json").out)
    (point,) = data["points"]
    best = next(row for row in point["by_draft_length"] if row["recommended"])
    plain = point["by_draft_length"][0]
    assert point["headline"] == (
        f"A request of 4k tokens in and 200 out at batch 8: run draft length "
        f"{best['draft_length']} (num_speculative_tokens): {best['speedup_per_step']:.2f}x per "
        f"token, {best['speedup']:.2f}x per request ({best['speedup_low']:.2f}x to "
        f"{best['speedup_high']:.2f}x); without speculation prompts take "
        f"{plain['prompt_share']:.0%} of its time."
    )
    text = cli(*ASK, *LENGTHS, "--batch", "8").out
    assert " ".join(text.split("\n\n", 1)[0].split()) == point["headline"]
    assert max(map(len, text.splitlines())) <= 80


def test_several_batches_have_a_row_each_and_what_does_not_fit_is_said(cli: Cli) -> None:
    text = cli(*ASK, *LENGTHS, "--batch", "1,8,4000").out
    assert "Batch 4000: does not fit in memory with these lengths;" in " ".join(text.split())
    rows = cli(*ASK, *LENGTHS, "--batch", "1,8", "--format", "csv").out.splitlines()
    assert len(rows) == 1 + 2 * 9  # a heading; D = 0 to 8 at both


def test_where_only_a_prompt_is_asked_for_nothing_is_drafted(cli: Cli) -> None:
    text = cli(*ASK, "--input-tokens", "1k", "--output-tokens", "1").out
    assert "do not speculate" in text
    assert "1.00-1.00x" in text


def test_a_trace_is_named_with_its_rate_and_prefix_hits(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "day.csv"
    trace.write_text("input,output,time,prefix\n900,200,0,0\n2100,100,2,512\n", "utf-8")
    text = " ".join(cli(*ASK, "--trace", str(trace), "--batch", "4", "--notes").out.split())
    assert "The mean of 2 requests of day.csv (1500 tokens in, 150 out) at batch 4" in text
    assert "256 tokens of a prompt are found in the prefix cache" in text
    assert "the trace brings 0.5 requests/s" in text


def test_kernels_that_nobody_measured_here_are_named(cli: Cli) -> None:
    asked = ("recommend", "glm-5-fp8", "--gpu", "h200-sxm", "--tp", "8", "--acceptance", "0.7")
    text = " ".join(cli(*asked, *LENGTHS, "--notes").out.split())
    assert "were not measured here: a stated share of the peak" in text
