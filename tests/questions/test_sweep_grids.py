"""Grids in files and on the command line: what goes together, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.questions.sweep import plan as planning
from roofline.questions.sweep.store import _files
from tests.support import Cli, assert_refused, write
from tests.sweeping import rows

FILE = """\
schema: 1
gpu: [h100-sxm, h200-sxm]
batch: 1..4*2
context: [1k, 2048]
max_draft_length: 2
cases:
- {model: llama-3.1-8b, acceptance: [0.6, "conditional:0.8,0.7"]}
- {model: qwen3-8b, drafter: ngram, acceptance: 0.4}
"""


def test_a_grid_file_holds_axes_and_cases_that_go_together(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "grid.yaml", FILE)
    found = rows(cli("sweep", "--grid", path).out)
    combinations = list(dict.fromkeys((r["model"], r["gpu"], r["acceptance"]) for r in found))
    assert combinations == [
        ("llama-3.1-8b", "h100-sxm", "0.6"), ("llama-3.1-8b", "h100-sxm", "conditional:0.8,0.7"),
        ("llama-3.1-8b", "h200-sxm", "0.6"), ("llama-3.1-8b", "h200-sxm", "conditional:0.8,0.7"),
        ("qwen3-8b", "h100-sxm", "0.4"), ("qwen3-8b", "h200-sxm", "0.4"),
    ]  # fmt: skip
    assert len(found) == 6 * 3 * 2 * 3
    over = rows(cli("sweep", "--grid", path, "--gpu", "l40s", "--batch", "2").out)
    assert {(r["gpu"], r["batch"]) for r in over} == {("l40s", 2)}


def test_a_price_is_an_axis_and_gives_the_cost_of_a_million_tokens(
    cli: Cli,
) -> None:
    """By hand: dollars per hour and GPU, times GPUs, over 3600 s and the tokens of a second."""
    asked = ("llama-3.1-70b", "--gpu", "h200-sxm", "--tp", "2,4", "--acceptance", "0.7")
    few = ("--max-draft-length", "1", "--batch", "1,2000", "--format", "jsonl")
    out = cli("sweep", *asked, *few, "--gpu-hour", "$2.5,4").out
    found = [json.loads(line) for line in out.splitlines()]
    assert {(r["tp"], r["gpus"], r["gpu_hour"]) for r in found} == {
        (2, 2, 2.5), (2, 2, 4.0), (4, 4, 2.5), (4, 4, 4.0),
    }  # fmt: skip
    for row in found:
        cost = row["dollars_per_million_tokens"]
        if not row["fits"]:
            assert cost is None
            continue
        by_hand = row["gpu_hour"] * row["tp"] / 3600 / row["tokens_per_s"] * 1e6
        assert cost == pytest.approx(by_hand, rel=1e-12)
    assert {row["fits"] for row in found} == {True, False}


def test_prices_go_with_gpus_in_a_grid_file(cli: Cli, tmp_path: Path) -> None:
    """A case without a price has no cost, and no grid without one has the column."""
    text = (
        "schema: 1\nmodel: qwen3-8b\nacceptance: 0.7\nmax_draft_length: 0\ncases:\n"
        "- {gpu: h100-sxm, gpu_hour: 3}\n- {gpu: l40s, gpu_hour: $1}\n- {gpu: a10}\n"
    )
    out = cli("sweep", "--grid", write(tmp_path, "g.yaml", text), "--format", "jsonl").out
    found = {row["gpu"]: row for row in map(json.loads, out.splitlines())}
    assert [found[gpu]["gpu_hour"] for gpu in ("h100-sxm", "l40s", "a10")] == [3.0, 1.0, None]
    assert found["a10"]["dollars_per_million_tokens"] is None
    assert found["l40s"]["dollars_per_million_tokens"] > 0
    plain = rows(cli("sweep", "qwen3-8b", "--max-draft-length", "0").out)
    assert "dollars_per_million_tokens" not in plain[0]


def test_cards_of_one_machine_are_counted(cli: Cli) -> None:
    asked = ("qwen3-32b", "--gpu", "rtx-4090", "--engine", "llamacpp", "--weights", "q4_k_m")
    out = cli("sweep", *asked, "--drafter", "none", "--gpus", "1,2", "--gpu-hour", "0.5").out
    found = rows(out)
    assert [row["gpus"] for row in found] == [1, 2]
    costs = [float(row["dollars_per_million_tokens"] or "nan") for row in found]
    paces = [row["tokens_per_s"] for row in found]
    assert costs[1] == pytest.approx(0.5 * 2 / 3600 / paces[1] * 1e6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu-hour", "free"), ("--gpu-hour free", "dollars")),
        (("--gpu-hour", "0"), ("--gpu-hour 0", "more than 0")),
        (("--gpu-hour", "2,2.0"), ("--gpu-hour", "twice")),
        (("--batch", "1,8,1"), ("--batch", "1 is given twice")),
        (("--gpu", "h100-sxm,h100-sxm"), ("--gpu", "twice")),
        (("--gpu", "h100-sxm,h10"), ("h10", "did you mean")),
        (("--weights", "fp8,fp9"), ("--weights", "fp9")),
        (("--batch", "8..1"), ("--batch", "lowest first")),
        (("--batch", "1..9*1"), ("--batch", "factor")),
        (("--batch", "1..2000000"), ("--batch", "at most")),
        (("--context", "0"), ("--context 0",)),
        (("--max-draft-length", "99"), ("--max-draft-length 99",)),
        (("--jobs", "0"), ("--jobs 0",)),
        (("--resume",), ("-o FILE",)),
        (("--format", "parquet"), ("-o FILE",)),
        (("-o", "x.xlsx"), (".parquet", "--format")),
        (("-o", "docs"), ("-o docs", "folder")),
        (("-o", "x.csv", "--format", "parquet"), ("x.csv", "csv", "parquet", "one of them")),
        (("--acceptance", "0.8", "--acceptance", "0.80"), ("--acceptance", "0.80", "twice")),
        (("--acceptance", ""), ("--acceptance", "empty")),
        (("--gpu", "h100-sxm,"), ("--gpu", "empty")),
        # nothing in the grid can be priced
        (("--drafter", "bogus"), ("bogus",)),
        (("--drafter", "bogus,bogus2"), ("bogus",)),
        (("--acceptance", "nan"), ("--acceptance", "nan")),
        (("--acceptance", "2"), ("--acceptance 2",)),
        (("--memory-fraction", "nan"), ("--memory-fraction",)),
        (("--dp-attention", "3"), ("--dp-attention 3",)),
        (("--set", "group_size=4,8"), ("group_size",)),
        (("--acceptance", "http://host/metrics"), ("acceptance read",)),
        (("--grid", "none.yaml"), ("none.yaml",)),
        (("--dask", "127.0.0.1:1"), ("--dask", "no scheduler")),
    ],
)
def test_bad_grids_are_one_line(
    cli: Cli, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_refused(cli("sweep", "llama-3.1-8b", *arguments), *words)


@pytest.mark.parametrize("model", [",", "llama-3.1-8b,", ",llama-3.1-8b", "a,,b"])
def test_an_empty_name_between_commas_is_said(cli: Cli, model: str) -> None:
    assert_refused(cli("sweep", model), "MODEL: a value is empty")


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ("[]", ("cases", "at least one")),
        ("[{model: qwen3-8b, acceptance: 0.8}, {model: qwen3-8b, acceptance: '0.80'}]",
         ("cases", "entry 2", "twice")),
        ("[{model: qwen3-8b, drafter: no}]", ("'no'",)),
    ],
)  # fmt: skip
def test_cases_that_say_nothing_are_one_line(
    cli: Cli, tmp_path: Path, cases: str, words: tuple[str, ...]
) -> None:
    path = write(tmp_path, "grid.yaml", f"schema: 1\nmodel: llama-3.1-8b\ncases: {cases}\n")
    assert_refused(cli("sweep", "--grid", path), *words)


@pytest.mark.parametrize("to_file", [True, False])
def test_a_grid_without_any_number_writes_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, to_file: bool
) -> None:
    """Exit 3 where only memory is short, 2 with the first reason where anything else is wrong."""
    monkeypatch.setattr(planning, "PART_POINTS", 20)
    output = ("-o", str(tmp_path / "x.csv")) if to_file else ()
    large = ("sweep", "llama-3.1-70b", "--acceptance", "0.7", "--batch", "1..8")  # 141 GB in 85 GB
    assert_refused(cli(*large, *output), "fits in memory", code=3)
    line = assert_refused(cli(*large, "--tp", "1,3,5", *output), "--tp 3")
    assert "--tp 5" not in line
    assert not list(tmp_path.iterdir())
    # rows that say why, and then some with numbers, are an answer
    outcome = cli(*large, "--tp", "3,1,4", *output)
    assert outcome.code == 0
    found = rows((tmp_path / "x.csv").read_text() if to_file else outcome.out)
    assert [(row["tp"], row["fits"]) for row in found[::72]] == [(3, False), (1, False), (4, True)]
    assert len(found) == 3 * 8 * 9


def test_no_model_and_a_misspelt_key_are_one_line(cli: Cli, tmp_path: Path) -> None:
    assert_refused(cli("sweep"), "MODEL")
    path = write(tmp_path, "grid.yaml", FILE.replace("gpu:", "gpuu:"))
    assert_refused(cli("sweep", "--grid", path), "gpuu", "did you mean 'gpu'")


def test_a_billion_points_want_to_be_meant(cli: Cli) -> None:
    line = assert_refused(
        cli("sweep", "llama-3.1-8b", "--batch", "1..1000", "--context", "1..120000"),
        "1,080,000,000 points", "--yes",
    )  # fmt: skip
    assert "TB" in line or "GB" in line
    assert "hours" in line


def test_fewer_points_are_many_where_they_are_printed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """11,700,000 rows: 1000 batches, 1300 contexts and 9 draft lengths; a file may have them."""
    grid = ("sweep", "llama-3.1-8b", "--batch", "1..1000", "--context", "1..1300")
    line = assert_refused(cli(*grid), "11,700,000 points", "GB of csv on stdout", "-o FILE")
    assert "--yes" in line
    monkeypatch.setattr(planning.SweepPlan, "tasks", lambda _: iter(()))
    for meant in (("--yes",), ("-o", str(tmp_path / "x.csv"))):
        assert "points:" not in cli(*grid, *meant).err


def test_impossible_paths_name_no_file(tmp_path: Path) -> None:
    file = write(tmp_path, "a.yaml", "x")
    assert _files("") == _files("a\0b") == []
    assert _files(file)[0] == Path(file)
