"""Sweeps: the rows are the numbers of `recommend`, and no way of cutting the grid changes them."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from roofline.questions.sweep import plan as planning
from roofline.questions.sweep import pricing
from roofline.questions.sweep.columns import columns_table
from tests.support import ACCEPTANCE, ROOT, Cli, write
from tests.sweeping import rows


def close(mine: float, theirs: float) -> bool:
    """Say whether two numbers are equal within the 1e-12 that the issue allows."""
    return math.isclose(mine, theirs, rel_tol=1e-12, abs_tol=1e-15)


#: Dense GQA, mixture with MLA, hybrid with states, windows and tensor parallelism; an engine that
#: pads nothing, a tree, prompt tokens in the step, counted acceptance.
QUESTIONS = [
    ("llama-3.1-8b", "--gpu", "h100-sxm"),
    ("llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--weights", "q4_k_m", "--engine", "llamacpp",
     "--drafter", "ngram", "--acceptance", "0.4"),
    ("deepseek-v3", "--gpu", "h200-sxm", "--tp", "8", "--drafter", "mtp",
     "--acceptance", "conditional:0.8,0.6"),
    ("qwen3-next-80b-a3b-instruct", "--gpu", "b200-hgx", "--tp", "2", "--drafter", "mtp",
     "--acceptance", "0.7"),
    ("gemma-3-27b", "--gpu", "h200-sxm", "--acceptance", "0.7", "--drafter", "eagle3",
     "--acceptance-rounds", "200"),
    ("llama-3.1-8b", "--gpu", "l40s", "--acceptance", "al:2=2.36,4=3.77,5=3.73",
     "--prefill-tokens-per-step", "256"),
    ("llama-3.1-70b", "--gpu", "h200-sxm", "--tp", "4", "--acceptance", "0.75",
     "--engine", "sglang", "--verify-width", "16", "--tree-topk", "4"),
]  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: " ".join(q[:3]))
def test_rows_are_what_recommend_says(cli: Cli, question: tuple[str, ...]) -> None:
    grid = ("--batch", "1,7,32,96,256", "--context", "1k,3000,8k")
    answer = cli("recommend", *question, *grid, "--format", "json").data()
    found = {
        (row["batch"], row["context"], row["draft_length"]): row
        for row in rows(cli("sweep", *question, *grid).out)
    }
    answered = set()
    for point in answer["points"]:
        at = point["batch"], point["context"]
        for theirs in point["by_draft_length"]:
            mine = found[(*at, theirs["draft_length"])]
            answered.add((*at, theirs["draft_length"]))
            for name in ("tokens_per_step", "cost_ratio", "speedup", "speedup_low", "speedup_high"):
                assert close(mine[name], theirs[name]), (at, name)
            for name in ("step", "verify", "draft", "overhead"):
                assert close(mine[f"{name}_ms"], theirs[f"{name}_ms"]), (at, name)
            for name, milliseconds in theirs["breakdown_ms"].items():
                assert close(mine[f"{name}_ms"], milliseconds), (at, name)
            assert close(mine["tokens_per_s"], theirs["tokens_per_s"])
            assert close(1e3 / mine["tokens_per_s_user"], theirs["tpot_ms"])
            assert mine["fits"] is True
            assert mine["reason"] is None
            assert mine["tie"] is (theirs["draft_length"] in point["tie_band"])
            assert mine["recommended"] is (theirs["draft_length"] == point["draft_length"])
            assert mine["recommended_draft_length"] == point["draft_length"]
            assert mine["confidence"] == point["confidence"]
    for place, row in found.items():
        if place not in answered:  # recommend leaves it out; here it is a row that says why
            assert row["fits"] is False
            assert row["reason"].startswith("does not fit in memory")
            assert row["speedup"] is None
            assert row["memory_needed_bytes"] > row["memory_available_bytes"]


def test_the_parts_of_a_row_add_up(cli: Cli) -> None:
    for row in rows(cli("sweep", "llama-3.1-8b", "--batch", "1..8", "--context", "1k,9k").out):
        whole = row["step_ms"]
        assert close(row["verify_ms"] + row["draft_ms"] + row["overhead_ms"], whole)
        parts = ("linear", "attention", "moe", "lm_head", "communication", "other")
        assert close(sum(row[f"{name}_ms"] for name in parts), whole)
        assert close(row["speedup"], row["tokens_per_step"] / row["cost_ratio"])


DECIDED = ("fits", "reason", "tie", "recommended", "recommended_draft_length", "confidence")


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_how_the_grid_is_cut_changes_nothing(
    cli: Cli, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, in tiles of 40 points and parts of 100, and by two processes."""
    grid = ("sweep", model, "--acceptance", "0.7", "--batch", "1..300*1.3", "--context",
            "512..40k*1.7")  # fmt: skip
    whole = rows(cli(*grid).out)
    processes = tmp_path / "two.csv"
    assert cli(*grid, "--jobs", "2", "-o", str(processes)).code == 0
    monkeypatch.setattr(pricing, "TILE_POINTS", 40)
    monkeypatch.setattr(planning, "PART_POINTS", 100)
    for other in (rows(cli(*grid).out), rows(processes.read_text())):
        assert len(other) == len(whole)
        for a, b in zip(whole, other, strict=True):
            for name in a:
                if isinstance(a[name], float):
                    assert close(a[name], b[name]), name
                else:
                    assert a[name] == b[name], name
    assert {row["confidence"] for row in whole} >= {"win"}
    assert any(not row["fits"] for row in whole)


def test_rows_come_in_the_order_of_the_grid(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PART_POINTS", 20)
    found = rows(
        cli("sweep", "qwen3-8b,llama-3.1-8b", "--tp", "2,1", "--batch", "4,1", "--context",
            "2k,1k,500k", "--acceptance", "0.7", "--max-draft-length", "2").out
    )  # fmt: skip
    keys = [(r["model"], r["tp"], r["batch"], r["context"], r["draft_length"]) for r in found]
    assert keys == [
        (model, tp, batch, context, d)
        for model in ("qwen3-8b", "llama-3.1-8b")
        for tp in (2, 1)
        for batch in (4, 1)
        for context in (2048, 1024, 500 * 1024)
        for d in range(3)
    ]


def test_refused_points_are_rows_with_the_reason(cli: Cli) -> None:
    found = rows(
        cli("sweep", "llama-3.1-8b", "--gpu", "a100-sxm-80gb,h100-sxm", "--weights", "fp8",
            "--activations", "fp8", "--context", "4k,200k", "--tp", "1,3").out
    )  # fmt: skip
    reasons = {(row["gpu"], row["tp"], row["context"]): row["reason"] for row in found}
    assert "a100-sxm-80gb" in reasons["a100-sxm-80gb", 1, 4096]
    assert "fp8" in reasons["a100-sxm-80gb", 1, 4096]
    assert reasons["h100-sxm", 1, 4096] is None
    assert "at most 131072 tokens" in reasons["h100-sxm", 1, 204800]
    assert "--tp 3" in reasons["h100-sxm", 3, 4096]
    assert {row["draft_length"] for row in found if row["tp"] == 3} == set(range(9))


def test_draft_lengths_follow_the_acceptance_of_each_context(cli: Cli, tmp_path: Path) -> None:
    """Drafts stopped at 2 at 1k and at 1 at 4k; recommend at one context says the same."""
    text = """\
schema: 1
source: invented for a test
curves:
- {context: 1024, early_stops: true, survival: [0.8, 0.6]}
- {context: 4096, early_stops: true, survival: [0.7]}
"""
    path = write(tmp_path, "acceptance.yaml", text)
    asked = ("llama-3.1-8b", "--acceptance", path, "--context")
    found = rows(cli("sweep", *asked, "1k,4k").out)
    for context, lengths in ((1024, [0, 1, 2]), (4096, [0, 1])):
        mine = [row for row in found if row["context"] == context]
        assert [row["draft_length"] for row in mine] == lengths
        point = cli("recommend", *asked, str(context), "--format", "json").point()
        assert [row["recommended"] for row in mine].index(True) == point["draft_length"]


@pytest.mark.parametrize(
    ("drafter", "asked", "limit"),
    [
        # nothing public continues two survivals of a drafter that drafts more
        ("peagle", ("--acceptance", "survival:0.9,0.8"), "acceptance"),
        ("eagle3", ("--acceptance", "0.95", "--max-draft-length", "3"), "search"),
        ("eagle3", ("--acceptance", "0.9", "--engine", "sglang", "--verify-width", "3",
                    "--tree-topk", "4"), "verify-width"),
        ("ngram", ("--acceptance", "0.3"), None),  # a shorter one is best
    ],
)  # fmt: skip
def test_a_row_says_what_keeps_its_best_draft_short(
    cli: Cli, drafter: str, asked: tuple[str, ...], limit: str | None
) -> None:
    """As recommend says it in a note, at points whose best draft is the longest."""
    question = ("llama-3.1-8b", "--drafter", drafter, *asked, "--batch", "1,2000")
    found = rows(cli("sweep", *question).out)
    first = [row for row in found if row["batch"] == 1]
    assert {row["limited_by"] for row in first} == {limit}
    for row in found:
        longest = row["recommended_draft_length"] == max(r["draft_length"] for r in found)
        assert (row["limited_by"] is not None) == longest
    told = cli("recommend", *question, "--format", "json").data()["notes"]
    assert ("longest-is-best" in {note["code"] for note in told}) == (limit is not None)
    ours = csv.DictReader(cli("recommend", *question, "--format", "csv").out.splitlines())
    assert [row["limited_by"] or None for row in ours] == [row["limited_by"] for row in found]


def test_other_options_become_columns_where_they_vary(cli: Cli) -> None:
    found = rows(
        cli("sweep", "llama-3.1-8b", "--state-handling", "snapshots", "--verify-attention",
            "kv_once,kv_per_query", "--overhead-ms", "0.5,0.7", "--overhead-ms", "1",
            "--max-draft-length", "1",
            "--acceptance", "0.7").out
    )  # fmt: skip
    assert [(row["verify_attention"], row["overhead_ms_asked"]) for row in found[::2]] == [
        ("kv_once", "0.5,0.7"), ("kv_once", "1"),
        ("kv_per_query", "0.5,0.7"), ("kv_per_query", "1"),
    ]  # fmt: skip
    assert "state_handling" not in found[0]


def test_formats_hold_the_same_rows(cli: Cli, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    asked = ("sweep", "llama-3.1-8b,qwen3-8b", "--acceptance", "0.7", "--batch", "1,4096",
             "--context", "1k,200k", "--acceptance-rounds", "100,400")  # fmt: skip
    for form in ("csv", "jsonl", "parquet"):
        assert cli(*asked, "-o", str(tmp_path / f"x.{form}")).code == 0
    by_csv = rows((tmp_path / "x.csv").read_text())
    for row in by_csv:
        row["acceptance_rounds"] = int(row["acceptance_rounds"])
    by_json = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    table = pq.read_table(tmp_path / "x.parquet")
    assert by_csv == by_json == table.to_pylist()
    assert table.schema.field("step_ms").type == "double"
    assert table.schema.field("draft_length").type == "int64"
    assert table.schema.field("fits").type == "bool"
    about = json.loads((tmp_path / "x.parquet.provenance.json").read_text())
    assert json.loads(table.schema.metadata[b"roofline"]) == about
    assert about["rows"] == len(by_csv)
    assert about["grid"]["axes"]["model"] == ["llama-3.1-8b", "qwen3-8b"]
    kinds = {source["kind"] for source in about["sources"]}
    assert {"calibrated", "datasheet", "config"} <= kinds
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"x.{form}{more}"
        for form in ("csv", "jsonl", "parquet")
        for more in ("", ".provenance.json")
    ]


def test_the_page_shows_the_columns() -> None:
    page = ROOT / "docs" / "reference.md"
    assert columns_table() in page.read_text("utf-8")


def test_an_acceptance_file_is_read_once_for_each_block(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "acceptance.yaml", ACCEPTANCE)
    found = rows(cli("sweep", "llama-3.1-8b", "--acceptance", path).out)
    assert [row["draft_length"] for row in found] == list(range(9))  # continued
    assert {row["acceptance"] for row in found} == {path}
