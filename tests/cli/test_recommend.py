"""What ``roofline recommend`` prints: JSON, CSV, Markdown, the table and files."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import Cli

ASK = ("recommend", "llama-3.1-8b", "--batch", "1,32", "--context", "1k,8k")
#: Issue 2, item 7.
TOP = {"schema", "inputs", "points", "engine", "warnings", "provenance"}
POINT = {
    "batch", "context", "draft_length", "speculate", "confidence", "tie_band", "speedup",
    "speedup_low", "speedup_high", "reason", "by_draft_length",
}  # fmt: skip
ROW = {
    "draft_length", "tokens_per_step", "step_ms", "verify_ms", "draft_ms", "overhead_ms",
    "cost_ratio", "break_even_tokens_per_step", "speedup", "tpot_ms", "tokens_per_s",
    "breakdown_ms",
}  # fmt: skip
PARTS = {"linear", "attention", "moe", "lm_head", "communication", "other"}


def test_every_documented_key_is_there(cli: Cli) -> None:
    data = cli(*ASK, "--format", "json").data()
    assert data["schema"] == "roofline.recommend/1"
    assert data.keys() >= TOP
    for point in data["points"]:
        assert point.keys() >= POINT
        assert point["confidence"] in {"win", "inside_error", "loss"}
        assert isinstance(point["speculate"], bool)
        assert len(point["reason"]) > 40
        for row in point["by_draft_length"]:
            assert row.keys() >= ROW
            assert row["breakdown_ms"].keys() == PARTS


def test_points_come_in_the_order_asked(cli: Cli) -> None:
    points = cli(*ASK, "--format", "json").data()["points"]
    assert [(p["batch"], p["context"]) for p in points] == [
        (1, 1024), (1, 8192), (32, 1024), (32, 8192),
    ]  # fmt: skip


def test_a_point_repeats_its_recommended_row(cli: Cli) -> None:
    for point in cli(*ASK, "--format", "json").data()["points"]:
        rows = {row["draft_length"]: row for row in point["by_draft_length"]}
        assert point["speedup"] == rows[point["draft_length"]]["speedup"]
        assert rows[0]["speedup"] == 1
        assert rows[0]["cost_ratio"] == 1


def test_the_short_command_answers_and_states_its_assumptions(cli: Cli) -> None:
    """H100, batch 1, 4k, the bundled head and its public runs; only the answer is on stdout."""
    data = cli("recommend", "llama-3.1-8b", "--format", "json").data()
    inputs = data["inputs"]
    assert (inputs["gpu"], inputs["batch"], inputs["context"]) == ("h100-sxm", [1], [4096])
    assert inputs["drafter"] == "llama-3.1-8b-eagle3"
    text = cli("recommend", "llama-3.1-8b")
    assert "(acceptance not measured)" in text.said.partition("Llama 3.1 8B (")[0]
    assert "acceptance: not measured, expected of llama-3.1-8b-eagle3." in text.said
    assert "Assumed: the bundled EAGLE-3 head llama-3.1-8b-eagle3 as drafter." in text.said
    assert text.err == ""
    in_full = cli("recommend", "llama-3.1-8b", "--notes")
    assert in_full.out.count("Assumed:") >= 2
    assert "Assumed: acceptance was not measured; expected of public runs" in in_full.said


def test_the_bundled_curve_is_the_cited_one(cli: Cli) -> None:
    """vllm-project/vllm issue 20780, EAGLE-3 on MT-Bench, D = 2 to 7; D = 1 was not published.

    Conditional rates that never rise bound it: a_1 >= a_2 where S_1 + S_1^2 >= 1.36, so S_1 >=
    0.769; a_2 >= a_3 where (1.36 - S_1)^2 >= 0.43 S_1, so S_1 <= 0.781.
    """
    curve = ("--acceptance", "llama-3.1-8b-eagle3", "--format", "json")
    rows = cli("recommend", "llama-3.1-8b", *curve, "--max-draft-length", "7").by_draft_length()
    assert {d: row["tokens_per_step"] for d, row in rows.items()} == {
        0: 1, 1: pytest.approx(1.775, abs=0.006), 2: 2.36, 3: 2.79, 4: 3.08, 5: 3.32, 6: 3.46,
        7: 3.54,
    }  # fmt: skip


def _flat(point: dict[str, Any], row: dict[str, Any]) -> dict[str, float]:
    """Return the row of a CSV, where the cost ratio stands once."""
    assert row["break_even_tokens_per_step"] == row["cost_ratio"]
    numbers = {"batch": point["batch"], "context": point["context"]}
    numbers |= {
        k: v for k, v in row.items() if k not in ("breakdown_ms", "break_even_tokens_per_step")
    }
    return numbers | {f"{k}_ms": v for k, v in row["breakdown_ms"].items()}


def test_csv_has_the_numbers_of_json(cli: Cli) -> None:
    data = cli(*ASK, "--format", "json").data()
    expected = [_flat(point, row) for point in data["points"] for row in point["by_draft_length"]]
    printed = cli(*ASK, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert len(rows) == len(expected)
    for row, numbers in zip(rows, expected, strict=True):
        assert (row["model"], row["gpu"], row["tp"]) == ("llama-3.1-8b", "h100-sxm", "1")
        for key, value in numbers.items():
            cell = {"true": "1", "false": "0"}.get(row[key], row[key])
            assert float(cell) == pytest.approx(float(value), rel=1e-5), key
    marked = [int(row["draft_length"]) for row in rows if row["recommended"] == "true"]
    assert marked == [point["draft_length"] for point in data["points"]]


def test_markdown_is_a_pipe_table(cli: Cli) -> None:
    out = cli("recommend", "llama-3.1-8b", "--acceptance", "0.7", "--format", "markdown").out
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 9
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert set(lines[1]) <= set("|-:")
    for heading in ("step ms", "verify ms", "draft ms", "overhead ms", "speedup"):
        assert heading in lines[0]


def test_the_table_begins_with_the_answer(cli: Cli) -> None:
    data = cli(*ASK, "--format", "json").data()
    text = cli(*ASK).out
    first = data["points"][0]
    assert text.startswith("Batch 1, context 1k: Run draft length ")
    assert f"draft length {first['draft_length']} " in text.splitlines()[0]
    order = [text.index(word) for word in ("speculat", "per step", "Why:", "vLLM:")]
    assert order == sorted(order)


def test_table_rows_carry_the_numbers_of_json(cli: Cli) -> None:
    ask = ("recommend", "llama-3.1-8b", "--batch", "32", "--context", "8k")
    rows = cli(*ask, "--format", "json").by_draft_length()
    lines = [line.lstrip("* ").split() for line in cli(*ask).out.splitlines()]
    printed = {int(cells[0]): cells for cells in lines if len(cells) == 9 and cells[0].isdigit()}
    assert printed.keys() == rows.keys()
    for draft, row in rows.items():
        cells = printed[draft]
        assert float(cells[2]) == pytest.approx(row["step_ms"], abs=0.006)
        assert float(cells[3]) == pytest.approx(row["verify_ms"], abs=0.006)
        assert float(cells[7].removesuffix("x")) == pytest.approx(row["speedup"], abs=0.006)


@pytest.mark.parametrize("explain", [[], ["--explain"]])
@pytest.mark.parametrize(
    "ask",
    [
        "llama-3.1-8b",
        "llama-3.1-8b --batch 512 --context 256 --acceptance 0.5",
        "llama-3.1-70b --gpu h200-sxm --tp 8 --batch 256 --context 4k --acceptance 0.8",
        "qwen3-32b --gpu mi300x --batch 16 --context 16k --drafter qwen3-0.6b --acceptance 0.6",
    ],
)
def test_the_table_fits_eighty_columns(cli: Cli, ask: str, explain: list[str]) -> None:
    """All but the flag, which must stay in one piece to be pasted."""
    outcome = cli("recommend", *ask.split(), *explain)
    assert outcome.code == 0
    wide = [line for line in outcome.out.splitlines() if len(line) > 80]
    assert [line for line in wide if "--speculative-config" not in line] == []


def test_explain_has_every_kernel_and_both_formulas(cli: Cli) -> None:
    """2 G (1 + D) / b_kv = 2 x 4 x 6 / 2 = 24; M = 32 x 6 = 192; the knee of an H100 is 295."""
    out = cli(
        "recommend", "llama-3.1-8b", "--batch", "32", "--context", "1k", "--acceptance", "al:5=5.9",
        "--max-draft-length", "5", "--explain",
    ).out  # fmt: skip
    text = " ".join(out.split())
    assert "2 x 4 x 6 / 2 = 24" in text
    assert "32 x 6 = 192" in text
    assert "295" in text
    for name in ("qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj", "lm_head"):
        assert name in text


def test_explained_shares_make_the_step(cli: Cli) -> None:
    """Kernels and the engine's overhead are all there is."""
    answer = cli("recommend", "llama-3.1-8b", "--explain", "--format", "json")
    point = answer.point()
    row = answer.by_draft_length()[point["draft_length"]]
    (explained,) = answer.data()["explain"]
    total = sum(op["total_ms"] for op in explained["ops"])
    assert total + row["overhead_ms"] == pytest.approx(row["step_ms"])
    for op in explained["ops"]:
        assert op["total_ms"] == pytest.approx(op["count"] * op["time_us"] / 1e3)
        assert op["intensity"] == pytest.approx(op["flops"] / op["bytes"])
        assert op["bound"] in {"memory", "compute", "latency", "link"}


@pytest.mark.parametrize(
    ("size", "tokens"),
    [("8k", 8192), ("8K", 8192), ("4096", 4096), ("1000", 1000), ("128k", 131072)],
)
def test_sizes(cli: Cli, size: str, tokens: int) -> None:
    point = cli("recommend", "llama-3.1-8b", "--context", size, "--format", "json").point()
    assert point["context"] == tokens


def test_no_drafter_means_nothing_to_decide(cli: Cli) -> None:
    point = cli("recommend", "llama-3.1-8b", "--drafter", "none", "--format", "json").point()
    assert (point["draft_length"], point["speculate"], point["tie_band"]) == (0, False, [0])


@pytest.mark.parametrize("suffix", ["json", "csv", "md"])
def test_files_hold_what_stdout_would(cli: Cli, tmp_path: Path, suffix: str) -> None:
    form = {"md": "markdown"}.get(suffix, suffix)
    target = tmp_path / f"answer.{suffix}"
    target.write_text("old")
    outcome = cli(*ASK, "-o", str(target))
    assert outcome.code == 0
    assert outcome.out == ""
    assert target.read_text() == cli(*ASK, "--format", form).out
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_a_path_may_name_the_model(cli: Cli) -> None:
    """A vendor's prefix and capitals are forgiven."""
    plain = cli("recommend", "llama-3.1-8b", "--format", "json")
    vendor = cli("recommend", "meta-llama/Llama-3.1-8B", "--format", "json")
    assert json.loads(plain.out) == json.loads(vendor.out)


def test_whose_runs_are_expected_is_said_beside_the_answer(cli: Cli) -> None:
    """Nobody published runs of a head of phi-4; of Llama-3.1-8B's own one there are some."""
    others = "acceptance was not measured; expected of public runs of other eagle3 drafters"
    own = "acceptance was not measured; expected of public runs of llama-3.1-8b-eagle3"
    assert others in cli("recommend", "phi-4", "--notes").said
    assert own in cli("recommend", "llama-3.1-8b", "--notes").said
    in_short = "acceptance: not measured, expected of"
    assert f"{in_short} eagle3 drafters of phi models" in cli("recommend", "phi-4").said
    assert f"{in_short} llama-3.1-8b-eagle3" in cli("recommend", "llama-3.1-8b").said


@pytest.mark.parametrize(
    ("gpu", "engine", "warns"),
    [
        ("apple-m4-max", "vllm", True),
        ("apple-m4-max", "llamacpp", False),
        ("tpu-v6e", "sglang", True),
        ("mi300x", "vllm", False),
    ],
)
def test_an_engine_that_is_not_made_for_the_machine(
    cli: Cli, gpu: str, engine: str, *, warns: bool
) -> None:
    """The engines' own lists of platforms, named in their files."""
    ask = ("recommend", "qwen3-0.6b", "--drafter", "ngram", "--acceptance", "0.4")
    outcome = cli(*ask, "--gpu", gpu, "--engine", engine)
    assert outcome.code == 0, outcome.err
    assert outcome.said.count("does not run on") == warns


def test_every_format_is_named_with_what_it_holds(cli: Cli) -> None:
    """Their config.json: all of Qwen's products are fp8 blocks, of gpt-oss the experts MXFP4."""
    ask = ("--gpu", "h200-sxm", "--drafter", "none")
    assert "(fp8-block weights, bf16 KV)" in cli("recommend", "qwen3-30b-a3b-fp8", *ask).out
    assert "(mxfp4 experts, bf16 attention, " in cli("recommend", "gpt-oss-120b", *ask).out


def test_a_slow_machine_has_a_decimal(cli: Cli) -> None:
    """A step of 141 GB at 546 GB/s takes over 0.258 s: under 3.9 tokens/s."""
    ask = ("recommend", "llama-3.1-70b", "--gpu", "apple-m4-max", "--engine", "llamacpp")
    out = cli(*ask, "--set", "gpu.memory.visible=400 GB", "--drafter", "none").out
    assert re.search(r"Plain decoding: [1-3]\.\d tokens/s", out), out
