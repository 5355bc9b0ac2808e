"""Grids in files and on the command line: what goes together, and what is refused."""

from __future__ import annotations

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
- {model: llama-3.1-8b, acceptance: [0.6, "cond:0.8,0.7"]}
- {model: qwen3-8b, drafter: ngram, acceptance: 0.4}
"""


def test_a_grid_file_holds_axes_and_cases_that_go_together(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "grid.yaml", FILE)
    found = rows(cli("sweep", "--grid", path).out)
    combinations = list(dict.fromkeys((r["model"], r["gpu"], r["acceptance"]) for r in found))
    assert combinations == [
        ("llama-3.1-8b", "h100-sxm", "0.6"), ("llama-3.1-8b", "h100-sxm", "cond:0.8,0.7"),
        ("llama-3.1-8b", "h200-sxm", "0.6"), ("llama-3.1-8b", "h200-sxm", "cond:0.8,0.7"),
        ("qwen3-8b", "h100-sxm", "0.4"), ("qwen3-8b", "h200-sxm", "0.4"),
    ]  # fmt: skip
    assert len(found) == 6 * 3 * 2 * 3
    over = rows(cli("sweep", "--grid", path, "--gpu", "l40s", "--batch", "2").out)
    assert {(r["gpu"], r["batch"]) for r in over} == {("l40s", 2)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
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
    large = ("sweep", "llama-3.1-70b", "--acceptance", "0.7", "--batch", "1..8")  # 141 GB in 80 GB
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


def test_impossible_paths_name_no_file(tmp_path: Path) -> None:
    file = write(tmp_path, "a.yaml", "x")
    assert _files("") == _files("a\0b") == []
    assert _files(file)[0] == Path(file)
