"""Grids in files and on the command line: axes, what goes together, and what is refused."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError, RooflineError
from roofline.cli.sweep import WARNINGS_SHOWN
from roofline.questions.sweep import plan as planning
from roofline.questions.sweep import run as sweep_run
from roofline.questions.sweep.axes import LONGEST_AXIS, numbers
from roofline.questions.sweep.encoding import SweepFormat, check_format
from roofline.questions.sweep.files import _files
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


ASK = ("sweep", "llama-3.1-8b", "--format", "jsonl")


def json_rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_switch_is_an_axis_with_one_value(cli: Cli) -> None:
    """Two measured positions; beyond them only --extrapolate goes."""
    short = ("--acceptance", "cond:0.8,0.7", "--max-draft-length", "4")
    lengths = {row["draft_length"] for row in json_rows(cli(*ASK, *short).out)}
    further = {row["draft_length"] for row in json_rows(cli(*ASK, *short, "--extrapolate").out)}
    assert (lengths, further) == ({0, 1, 2}, {0, 1, 2, 3, 4})


def test_a_file_may_leave_a_key_empty_and_switch_by_word(cli: Cli, tmp_path: Path) -> None:
    grid = "schema: 1\nmodel: llama-3.1-8b\ngpu:\nacceptance: 'cond:0.8,0.7'\n"
    grid += "max_draft_length: 4\nextrapolate: "
    found = cli("sweep", "--grid", write(tmp_path, "a.yaml", grid + "true\n"), "--format", "jsonl")
    assert {row["draft_length"] for row in json_rows(found.out)} == {0, 1, 2, 3, 4}
    assert {row["gpu"] for row in json_rows(found.out)} == {"h100-sxm"}
    bad = cli("sweep", "--grid", write(tmp_path, "b.yaml", grid + "perhaps\n"))
    assert_refused(bad, "--extrapolate perhaps: expected true or false")


def test_changes_in_a_file_go_together(cli: Cli, tmp_path: Path) -> None:
    """Two of one list are one question: the bandwidth halved and the capacity halved."""
    changes = ("gpu.memory.bandwidth=1.675 TB/s", "gpu.memory.capacity=40 GB")
    grid = "schema: 1\nmodel: llama-3.1-8b\nacceptance: 0.7\nmax_draft_length: 1\nset: "
    path = write(tmp_path, "a.yaml", f"{grid}{json.dumps(changes)}\n")
    by_file = cli("sweep", "--grid", path, "--format", "jsonl")
    flags = ("--acceptance", "0.7", "--max-draft-length", "1")
    by_flag = cli(*ASK, *flags, *(word for c in changes for word in ("--set", c)))
    assert json_rows(by_file.out) == json_rows(by_flag.out)
    assert len(json_rows(by_file.out)) == 2


def test_steps_of_an_axis(cli: Cli) -> None:
    with pytest.raises(InputError, match=r"batch='1\.\.9\+0': expected steps of at least 1"):
        numbers("batch", "1..9+0")
    many = ",".join(["1..50000"] * (LONGEST_AXIS // 50_000 + 1))
    with pytest.raises(InputError, match=f"batch: expected at most {LONGEST_AXIS} values"):
        numbers("batch", many)
    assert_refused(cli(*ASK, "--batch", "1..9+0"), "steps of at least 1")


def test_parquet_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    check_format(SweepFormat.CSV)
    with pytest.raises(InputError, match=r"needs pyarrow \(pip install -e '\.\[parquet\]'"):
        check_format(SweepFormat.PARQUET)


def test_a_long_list_of_warnings_is_cut(cli: Cli, tmp_path: Path) -> None:
    """Each head without a curve is warned of; the rest is in the provenance beside the file."""
    out = tmp_path / "a.csv"
    models = "llama-3.1-8b,deepseek-v2-lite,gemma-3-1b,minimax-m2.5,phi-4,qwen2.5-7b,qwen3-0.6b"
    flags = ("--gpu", "b200-hgx", "--drafter", "eagle3", "--context", "4k", "-o", str(out))
    done = cli("sweep", models, *flags)
    shown = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    warned = json.loads(out.with_name("a.csv.provenance.json").read_text())["warnings"]
    assert len(warned) > WARNINGS_SHOWN == len(shown)
    assert f"and {len(warned) - WARNINGS_SHOWN} more warnings in {out}.provenance.json" in done.err


def test_a_bar_is_shown_where_somebody_looks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    flags = ("--batch", "1..4", "--acceptance", "0.7", "--max-draft-length", "4")
    assert len(json_rows(cli(*ASK, *flags).out)) == 4 * 5  # D from 0 to 4 at each batch
    assert "100%" in screen.getvalue()
    assert "points/s" in screen.getvalue()


class BrokenProcessPool(RuntimeError):
    """As concurrent.futures calls it."""


WORDS = sweep_run.Words(spell=str, say=lambda _: [], source=lambda _: {})


@pytest.mark.parametrize(
    ("error", "expected"),
    [(BrokenProcessPool("gone"), RooflineError), (ZeroDivisionError("a bug"), ZeroDivisionError)],
)
def test_a_killed_worker_is_told_from_a_bug(error: Exception, expected: type[Exception]) -> None:
    """What was not begun is called off; a bug keeps its own name."""
    futures: list[Future[Any]] = []

    class Executor:
        def submit(self, *_: object) -> Future[Any]:
            future: Future[Any] = Future()
            if not futures:
                future.set_exception(error)
            futures.append(future)
            return future

    executor: Any = Executor()
    tasks: Any = iter(range(3))
    results = sweep_run._results(tasks, (executor, 1), (), SweepFormat.CSV, WORDS)
    with pytest.raises(expected) as caught:
        next(results)
    assert (expected is RooflineError) == ("repeat with resume" in str(caught.value))
    assert len(futures) > 1
    assert all(future.cancelled() for future in futures[1:])


def test_a_cluster_without_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    class Client:
        def __init__(self, address: str, timeout: int) -> None:
            assert (address, timeout) == ("tcp://here:1", 5)

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

        def ncores(self) -> dict[str, int]:
            return {}

    monkeypatch.setattr(distributed, "Client", Client)
    cluster = sweep_run.workers_of_cluster("tcp://here:1")
    with pytest.raises(InputError, match="the scheduler has no workers; start some first"), cluster:
        """Never reached."""


def test_what_cannot_be_a_path_names_no_file(tmp_path: Path) -> None:
    file = write(tmp_path, "a.yaml", "x")
    assert _files("") == _files("a\0b") == []
    assert _files(file)[0] == Path(file)
