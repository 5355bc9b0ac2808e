"""Drafts that stop early, or are verified in part: rows and passes by position.

Rules: llama.cpp b11434, common/speculative.cpp (a pass of the drafter runs while any sequence
drafts, and its token is dropped where it is less likely than p-min); vLLM 0.28.0 to 0.33.0,
SpeculativeConfig.enable_adaptive_verification; SGLang 0.5.23, speculative/ragged_verify.py.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from roofline.specs.placement import Grid, Placement
from tests.support import Cli, assert_refused

ASK = ("recommend", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "1k")
COUNTED = ("--acceptance", "al:1=1.6,2=1.9,3=2.0", "--max-draft-length", "3")
LLAMACPP = ("--engine", "llamacpp", "--drafter", "llama-3.2-1b", *COUNTED)


def by_length(cli: Cli, *arguments: str) -> dict[int, dict[str, float]]:
    point = cli(*ASK, *arguments, "--format", "json").point()
    return {int(row["draft_length"]): row for row in point["by_draft_length"]}


def test_rows_and_passes_are_the_mean_of_every_way_to_stop() -> None:
    """Brute force: each of two sequences ends after 0 to 3 tokens, independently."""
    shares = (0.9, 0.6, 0.3)
    chance = -np.diff([1.0, *shares, 0.0])  # of 0, 1, 2 and 3 drafts
    grid = Grid.of((1, 2), (64,), (0, 1, 2, 3), hit_rate=shares, drafting_stops=True)
    for number, batch in enumerate((1, 2)):
        for longest in (1, 2, 3):
            rows = passes = 0.0
            for drafts in itertools.product(range(4), repeat=batch):
                weight = np.prod([chance[d] for d in drafts])
                kept = [min(d, longest) for d in drafts]
                rows += weight * np.mean([1 + d for d in kept])
                # the pass whose token is dropped is made too, unless the draft is full
                passes += weight * max(min(d + 1, longest) for d in kept)
            assert grid.rows[0, 0, longest] == pytest.approx(rows)
            assert 1 + grid.further_passes[number, 0, longest] == pytest.approx(passes)


def test_early_stops_save_rows_and_passes(cli: Cli) -> None:
    """At 0.9, 0.6 and 0.3 a sequence makes 1 + 0.9 + 0.6 = 2.5 passes for D = 3."""
    whole = by_length(cli, *LLAMACPP)
    stopped = by_length(cli, *LLAMACPP, "--hit-rate", "0.9,0.6,0.3")
    assert stopped[0]["step_ms"] == whole[0]["step_ms"]
    for length, passes in ((1, 1.0), (2, 1.9), (3, 2.5)):
        assert stopped[length]["step_ms"] < whole[length]["step_ms"]
        first, further = whole[1]["draft_ms"], whole[2]["draft_ms"] - whole[1]["draft_ms"]
        told = first + (passes - 1) * further
        assert stopped[length]["draft_ms"] == pytest.approx(told, rel=2e-3)


def test_a_block_is_drafted_whole_and_verified_in_part(cli: Cli) -> None:
    asked = ("--drafter", "dspark", "--batch", "64", *COUNTED)
    whole, part = by_length(cli, *asked), by_length(cli, *asked, "--hit-rate", "0.9,0.6,0.3")
    assert part[3]["draft_ms"] == whole[3]["draft_ms"]
    assert part[3]["verify_ms"] < whole[3]["verify_ms"]


@pytest.mark.parametrize(
    ("engine", "drafter", "told"),
    [
        ("vllm", "dspark", '"enable_adaptive_verification": true}'),
        (
            "sglang",
            "dspark",
            "export SGLANG_RAGGED_VERIFY_MODE=compact\n--speculative-algorithm",
        ),
        ("llamacpp", "eagle3", "--spec-draft-p-min P-AS-COUNTED"),
    ],
)
def test_what_turns_it_on_stands_with_the_flags(
    cli: Cli, engine: str, drafter: str, told: str
) -> None:
    asked = (*ASK, "--engine", engine, "--drafter", drafter, *COUNTED, "--format", "json")
    assert told not in cli(*asked).point()["flag"]
    assert told in cli(*asked, "--hit-rate", "1,0.9,0.8").point()["flag"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--drafter eagle3 --acceptance 0.6 --hit-rate 0.9,0.8", "always drafts D tokens in vLLM"),
        ("--drafter dspark --engine vllm@0.26 --acceptance 0.6 --hit-rate 0.9", "always drafts"),
        ("--drafter dspark --hit-rate 0.9,0.8", "give --acceptance as counted with it on"),
        ("--drafter dspark --acceptance 0.6 --hit-rate 0.8,0.9", "never rise"),
        ("--drafter dspark --acceptance 0.6 --hit-rate 0.9,0", "above 0 and at most 1"),
        ("--drafter dspark --acceptance 0.6 --hit-rate 0.5", "accepted in 0.6 of the passes"),
        ("--drafter ngram --acceptance 0.3 --hit-rate 0.9,0.8", "finds a draft or none"),
        ("--drafter dspark --acceptance 0.6 --hit-rate a,b", "expected numbers such as 0.6"),
    ],
)
def test_shares_that_cannot_be(cli: Cli, asked: str, said: str) -> None:
    assert_refused(cli(*ASK, *asked.split()), "--hit-rate", said)


def test_drafts_that_stop_early_leave_the_graphs_in_a_share_of_passes() -> None:
    """16 sequences, D = 3, shares .9, .5, .2: their rows, drawn a hundred thousand times."""
    shares, sequences, rows = (0.9, 0.5, 0.2), 16, 44
    dice = np.random.default_rng(5)
    lengths = (dice.random((100_000, sequences, 1)) < np.array(shares)).sum(axis=-1)
    drawn = (sequences + lengths.sum(axis=-1) <= rows).mean()
    grid = Grid.of((sequences,), (1024,), (3,), hit_rate=shares)
    found = float(grid.share_within(rows, Placement()).ravel()[0])
    assert found == pytest.approx(drawn, abs=0.02)
