"""The five rules with a model's numbers: by hand, from the article's own formulas (theory 1.2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import Cli

#: Llama 3.1 8B on an H100: 989.4 TFLOP/s x 2 B / (2 x 3.35 TB/s) = 295.3 rows, G = 32 / 8 = 4.
KNEE = 989.4e12 * 2 / (2 * 3.35e12)


def rules(cli: Cli, *arguments: str) -> dict[int, Any]:
    (explained,) = cli(
        "recommend", *arguments, "--explain", "--format", "json"
    ).data()["explain"]  # fmt: skip
    return {rule["number"]: rule for rule in explained["rules"]}


@pytest.mark.parametrize("batch", [1, 32, 400])
def test_the_knee_in_rows_and_the_length_that_reaches_it(cli: Cli, batch: int) -> None:
    rule = rules(cli, "llama-3.1-8b", "--batch", str(batch), "--context", "256")[1]
    assert rule["draft_length"] == max(int(KNEE // batch) - 1, 0)
    assert "295 rows" in rule["says"]


def test_experts_meet_their_knee_later(cli: Cli) -> None:
    """128 experts, 8 to a token: 16 times the rows of one expert's knee (H200: 206)."""
    found = rules(
        cli, "qwen3-30b-a3b", "--gpu", "h200-sxm", "--drafter", "ngram", "--acceptance", "0.7",
        "--batch", "64",
    )[1]  # fmt: skip
    knee = 989.4e12 * 2 / (2 * 4.8e12)
    assert found["draft_length"] == int(16 * knee // 64) - 1


def test_the_tile_and_its_multiples(cli: Cli) -> None:
    """128 / 4 - 1 = 31; G (1 + D) is a multiple of 128 at 31, 63."""
    found = rules(cli, "llama-3.1-8b", "--batch", "4", "--context", "64k")
    assert found[2]["draft_length"] == 31
    assert "128 / 4 - 1 = 31" in found[2]["says"]
    assert "31, 63" in found[3]["says"]


@pytest.mark.parametrize(("tp", "length"), [("1", 15), ("8", 15)])
def test_the_group_stays_while_tp_is_within_the_kv_heads(cli: Cli, tp: str, length: int) -> None:
    """Llama 3.1 70B has 64 query and 8 KV heads: G = 8 on every rank."""
    arguments = ("llama-3.1-70b", "--gpu", "b200-hgx", "--tp", tp, "--acceptance", "0.7")
    assert rules(cli, *arguments)[2]["draft_length"] == length


def test_the_latency_rule_by_hand(cli: Cli) -> None:
    """AL / (1 + D / 32): 2.36 / 1.0625, 2.79 / 1.09375, … 3.46 / 1.1875, 3.54 / 1.21875."""
    curve = {0: 1.0, 2: 2.36, 3: 2.79, 4: 3.08, 5: 3.32, 6: 3.46, 7: 3.54}
    by_rule = {d: al / (1 + d / 32) for d, al in curve.items()}
    best = max(by_rule, key=lambda d: by_rule[d])
    given = ",".join(f"{d}={al}" for d, al in curve.items() if d)
    rule = rules(cli, "llama-3.1-8b", "--acceptance", f"al:{given}")[4]
    assert rule["draft_length"] == best
    assert f"{by_rule[best]:.2f}x" in rule["says"]


def test_a_rule_binds_only_where_its_ground_holds(cli: Cli) -> None:
    """Attention is most of a long-context step, but the tile lies beyond any D tried."""
    long = rules(cli, "llama-3.1-8b", "--batch", "4", "--context", "64k")
    assert long[2]["binds"] is False
    deep = rules(
        cli, "llama-3.1-8b", "--batch", "4", "--context", "64k", "--acceptance", "0.7",
        "--max-draft-length", "32",
    )  # fmt: skip
    assert deep[2]["binds"] is True
    crowded = rules(cli, "llama-3.1-8b", "--batch", "128", "--context", "256")
    assert crowded[1]["binds"] is True


def test_the_whole_model_overrules_the_tile(cli: Cli) -> None:
    """Rule 2 binds with D = 31, and the advice is far below: AL has long stopped growing."""
    ask = (
        "llama-3.1-8b", "--batch", "4", "--context", "64k", "--acceptance", "0.7",
        "--max-draft-length", "32",
    )  # fmt: skip
    point = cli("recommend", *ask, "--format", "json").point()
    speed = {row["draft_length"]: row["speedup"] for row in point["by_draft_length"]}
    assert point["draft_length"] < 10
    rule = rules(cli, *ask)[2]
    assert f"D = 31 gives {speed[31]:.2f}x" in rule["model_says"]


def test_a_free_drafter_breaks_even_at_the_step_without_its_passes(cli: Cli) -> None:
    row = cli("recommend", "llama-3.1-8b", "--format", "json")
    point, rows = row.point(), row.by_draft_length()
    best = rows[point["draft_length"]]
    free = (best["step_ms"] - best["draft_ms"]) / rows[0]["step_ms"]
    assert f"a free drafter {free:.2f}" in rules(cli, "llama-3.1-8b")[5]["model_says"]


def test_the_table_lists_all_five(cli: Cli) -> None:
    out = cli("recommend", "llama-3.1-8b", "--explain").out
    assert [f"Rule {n}," in out for n in range(1, 6)] == [True] * 5


def test_rules_without_a_drafter(cli: Cli) -> None:
    assert len(rules(cli, "llama-3.1-8b", "--drafter", "none")) == 5
