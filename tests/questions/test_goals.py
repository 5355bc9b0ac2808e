"""Goals: the choice by brute force over the printed rows, and what it would take otherwise."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from roofline.questions.goals import GOAL_BATCHES as TRIED
from tests.support import Cli, assert_refused, write

ASK = ("recommend", "llama-3.1-8b", "--gpu", "h200-sxm", "--context", "2k")
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128]
LIST = ",".join(map(str, BATCHES))


def rows(cli: Cli, *more: str) -> list[dict[str, Any]]:
    """Return every (batch, draft length) with its pace, from the printed table."""
    data = cli(*ASK, "--batch", LIST, *more, "--format", "json").data()
    return [
        {"batch": point["batch"]} | row
        for point in data["points"]
        for row in point["by_draft_length"]
    ]


def goal(cli: Cli, *more: str) -> Any:
    return cli(*ASK, *more, "--format", "json").data()["goal"]


@pytest.mark.parametrize("limit", [3, 4, 6, 10])
def test_the_most_throughput_under_a_pace(cli: Cli, limit: int) -> None:
    found = goal(cli, "--slo-tpot", str(limit), "--batch", LIST)
    (choice,) = found["choices"]
    usable = [row for row in rows(cli) if row["tpot_ms"] <= limit]
    best = max(row["tokens_per_s"] for row in usable)
    assert choice["tpot_ms"] <= limit
    assert choice["tokens_per_s"] >= 0.99 * best
    near = [row for row in usable if row["tokens_per_s"] >= 0.99 * best]
    first = min(near, key=lambda row: (row["batch"], row["draft_length"]))
    assert (choice["batch"], choice["draft_length"]) == (first["batch"], first["draft_length"])
    assert found["objective"] == "throughput"


@pytest.mark.parametrize("rate", [500, 5000])
def test_the_best_pace_at_a_rate(cli: Cli, rate: int) -> None:
    found = goal(cli, "--target-tokens-per-s", str(rate), "--batch", LIST)
    (choice,) = found["choices"]
    usable = [row for row in rows(cli) if row["tokens_per_s"] >= rate]
    best = min(row["tpot_ms"] for row in usable)
    assert choice["tokens_per_s"] >= rate
    assert choice["tpot_ms"] <= best / 0.99
    assert found["objective"] == "latency"


@pytest.mark.parametrize(
    ("objective", "key", "sign"), [("latency", "tpot_ms", 1), ("throughput", "tokens_per_s", -1)]
)
def test_an_objective_alone_chooses_the_batch(
    cli: Cli, objective: str, key: str, sign: int
) -> None:
    (choice,) = goal(cli, "--objective", objective, "--batch", LIST)["choices"]
    best = min(sign * row[key] for row in rows(cli))
    assert sign * choice[key] <= best + 0.011 * abs(best)


def test_inversion_by_hand(cli: Cli) -> None:
    """AL = step / TPOT: what each draft length needs (ask 33: which length reaches a pace?)."""
    (choice,) = goal(cli, "--slo-tpot", "3", "--batch", "1")["choices"]
    steps = {row["draft_length"]: row for row in rows(cli) if row["batch"] == 1}
    assert [need["draft_length"] for need in choice["needed"]] == list(steps)
    for need in choice["needed"]:
        row = steps[need["draft_length"]]
        assert need["tokens_per_step"] == pytest.approx(max(row["step_ms"] / 3, 1))
        assert need["reached"] == row["tokens_per_step"]
        assert need["possible"] is (need["tokens_per_step"] <= 1 + need["draft_length"])


def test_which_mtp_length_reaches_253_tokens_per_second(cli: Cli) -> None:
    """TensorRT-LLM issue 3058: DeepSeek-R1 on 8 B200 at batch 1 (ask 33), for a rate of 0.8."""
    ask = (
        "recommend", "deepseek-v3", "--gpu", "b200-hgx", "--tp", "8", "--drafter", "mtp",
        "--acceptance", "0.8", "--engine", "trtllm", "--context", "2k", "--batch", "1",
    )  # fmt: skip
    out = " ".join(cli(*ask, "--target-tokens-per-s", "253").out.split())
    table = cli(*ask, "--format", "json").by_draft_length()
    shortest = min(d for d, row in table.items() if row["tokens_per_s"] >= 253)
    assert f"The shortest draft length that meets it is {shortest}." in out
    assert shortest > 0


def test_without_a_batch_many_are_tried(cli: Cli) -> None:
    (choice,) = goal(cli, "--objective", "throughput")["choices"]
    assert choice["batch"] > 32


def test_the_text_shows_the_choice_and_its_table(cli: Cli) -> None:
    out = cli(*ASK, "--slo-tpot", "5").out
    assert out.startswith("Goal (at most 5 ms per token and best throughput): batch ")
    assert out.count("cost ratio") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--slo-tpot 0.2", ("--slo-tpot 0.2", "fastest", "ms per token")),
        ("--target-tokens-per-s 1e9", ("--target-tokens-per-s", "no acceptance would do")),
        ("--slo-tpot 2.5 --acceptance 0.2 --batch 1", ("it would take", "this acceptance gives")),
        ("--slo-tpot 3 --target-tokens-per-s 9000", ("--slo-tpot 3", "--target-tokens-per-s 9000")),
        ("--slo-tpot 0", ("--slo-tpot", "more than 0")),
        ("--slo-tpot -3", ("--slo-tpot",)),
        ("--slo-tpot nan", ("--slo-tpot",)),
        ("--target-tokens-per-s 0", ("--target-tokens-per-s", "more than 0")),
        ("--objective speed", ("--objective", "speed", "latency")),
        ("--slo-tpot 9 --format csv", ("--format csv", "goal")),
        ("--batch 9..3 --slo-tpot 9", ("--batch", "9..3")),
    ],
)
def test_out_of_reach_or_meaningless_is_one_line(
    cli: Cli, arguments: str, words: tuple[str, ...]
) -> None:
    assert_refused(cli(*ASK, *arguments.split()), *words)


def test_the_stated_acceptance_reaches_the_goal(cli: Cli, tmp_path: Path) -> None:
    """The acceptance that the refusal names is enough, and a hundredth less is not.

    Shorter drafts are given as useless, so that they do not reach the goal.
    """
    line = assert_refused(cli(*ASK, "--slo-tpot", "2.5", "--acceptance", "0.2", "--batch", "1"))
    words = line.split()
    needed = float(words[words.index("take") + 1])
    length = int(words[words.index("length", words.index("take")) + 1])
    shorter = "".join(f"{d}: 1, " for d in range(1, length))
    enough, less = (
        write(
            tmp_path,
            f"{name}.yaml",
            f"schema: 1\nsource: invented\ntokens_per_step: {{{shorter}{length}: {tokens:.3f}}}\n",
        )
        for name, tokens in (("enough", needed + 0.006), ("less", needed - 0.01))
    )
    assert cli(*ASK, "--slo-tpot", "2.5", "--batch", "1", "--acceptance", enough).code == 0
    assert cli(*ASK, "--slo-tpot", "2.5", "--batch", "1", "--acceptance", less).code == 2


def test_between_powers_of_two_is_tried() -> None:
    """No batch lies more than an eighth above one that is tried."""
    gaps = [high / low for low, high in pairwise(TRIED) if low >= 15]
    assert max(gaps) <= 1.125
    assert set(range(1, 17)) <= set(TRIED)
    assert TRIED[-1] == 1024


def test_a_goal_met_only_between_powers_of_two(cli: Cli) -> None:
    """Found by a user: 32 sequences were too slow, 64 did not fit, 48 meet it."""
    ask = ("recommend", "qwen3-32b", "--gpu", "h200-sxm", "--acceptance", "0.7")
    met = ("--target-tokens-per-s", "3000")
    assert_refused(cli(*ask, *met, "--batch", "1,2,4,8,16,32,64"), "3000")
    data = cli(*ask, *met, "--format", "json").data()
    (choice,) = data["goal"]["choices"]
    assert choice["tokens_per_s"] >= 3000
    assert 32 < choice["batch"] < 64
