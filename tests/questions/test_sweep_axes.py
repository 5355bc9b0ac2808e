"""Axes of a sweep by flag and by file, its warnings, and workers that go."""

from __future__ import annotations

import json
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from roofline.advice.configuration import LISTED, question_from
from roofline.base.errors import InputError, RooflineError
from roofline.questions.sweep import run as sweep_run
from roofline.questions.sweep.axes import LONGEST_AXIS, axis_numbers
from roofline.questions.sweep.columns import option_column
from roofline.questions.sweep.encoding import SweepFormat, check_format
from roofline.questions.sweep.grid import OPTIONS
from tests.support import Cli, assert_refused, write

ASK = ("sweep", "llama-3.1-8b", "--format", "jsonl")


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_curve_that_ends_is_continued_at_every_point(cli: Cli) -> None:
    """Two measured positions; the rest is what public runs make of them."""
    short = ("--acceptance", "conditional:0.8,0.7", "--max-draft-length", "4")
    assert {row["draft_length"] for row in rows(cli(*ASK, *short).out)} == {0, 1, 2, 3, 4}
    assert_refused(cli(*ASK, *short, "--extrapolate"), "--extrapolate: is gone")


def test_a_file_may_leave_a_key_empty_and_switch_by_word(cli: Cli, tmp_path: Path) -> None:
    grid = "schema: 1\nmodel: llama-3.1-8b\ngpu:\nacceptance: 'conditional:0.8,0.7'\n"
    grid += "max_draft_length: 4\nextrapolate: "
    found = cli("sweep", "--grid", write(tmp_path, "a.yaml", grid + "false\n"), "--format", "jsonl")
    assert {row["draft_length"] for row in rows(found.out)} == {0, 1, 2, 3, 4}
    assert {row["gpu"] for row in rows(found.out)} == {"h100-sxm"}
    bad = cli("sweep", "--grid", write(tmp_path, "b.yaml", grid + "perhaps\n"))
    assert_refused(bad, "--extrapolate perhaps: expected true or false")


def test_changes_in_a_file_go_together(cli: Cli, tmp_path: Path) -> None:
    """Two of one list are one question: the bandwidth halved and the memory halved."""
    changes = ("gpu.memory.bandwidth=1.675 TB/s", "gpu.memory.visible=40 GB")
    grid = "schema: 1\nmodel: llama-3.1-8b\nacceptance: 0.7\nmax_draft_length: 1\nset: "
    path = write(tmp_path, "a.yaml", f"{grid}{json.dumps(changes)}\n")
    by_file = cli("sweep", "--grid", path, "--format", "jsonl")
    flags = ("--acceptance", "0.7", "--max-draft-length", "1")
    by_flag = cli(*ASK, *flags, *(word for c in changes for word in ("--set", c)))
    assert rows(by_file.out) == rows(by_flag.out)
    assert len(rows(by_file.out)) == 2


#: A value of every option that holds several numbers, and what else must be asked with it.
SEVERAL_NUMBERS = {
    "hit_rate": ("0.9,0.6", "--engine", "llamacpp", "--drafter", "llama-3.2-1b",
                 "--acceptance", "survival:0.6,0.4"),
    "overhead_ms": ("0.5,0.7,0.15", "--acceptance", "0.6"),
    "tensor_split": ("3,1", "--engine", "llamacpp", "--gpus", "2", "--drafter", "none"),
}  # fmt: skip


def test_every_option_of_several_numbers_is_tried() -> None:
    """Those that read three numbers with commas as one value of several parts."""
    found = set()
    for name in set(OPTIONS) - {"set"}:
        asked: dict[str, Any] = {"model": "llama-3.1-8b", name: "0.9,0.5,0.1"}
        with suppress(InputError, TypeError):
            parts = question_from(**asked)
            if any(isinstance(getattr(part, name, None), tuple) for part in parts):
                found.add(name)
    assert found == set(SEVERAL_NUMBERS) == set(LISTED)


@pytest.mark.parametrize("name", SEVERAL_NUMBERS)
def test_a_list_of_numbers_means_in_a_sweep_what_it_means_elsewhere(cli: Cli, name: str) -> None:
    """It is one value: the rows are those of `recommend`, and another value needs it again."""
    value, *asked = SEVERAL_NUMBERS[name]
    option = f"--{name.replace('_', '-')}"
    shared = (option, value, *asked, "--max-draft-length", "2")
    found = rows(cli(*ASK, *shared).out)
    point = cli("recommend", "llama-3.1-8b", *shared, "--format", "json").point()
    assert [row["step_ms"] for row in found] == [row["step_ms"] for row in point["by_draft_length"]]
    other = value.replace("0.6", "0.5").replace("3,1", "2,1").replace("0.15", "0.2")
    twice = rows(cli(*ASK, *shared, option, other).out)
    assert [row[option_column(name)] for row in twice] == [value] * len(found) + [other] * len(
        found
    )


def test_hit_rates_by_position_are_none_of_a_lookup_in_a_sweep_either(cli: Cli) -> None:
    asked = ("--drafter", "ngram", "--acceptance", "0.3")
    refused = cli(*ASK, *asked, "--hit-rate", "0.95,0.8,0.6")
    assert_refused(refused, "--hit-rate 0.95,0.8,0.6", "by position", "the option again")
    each = rows(cli(*ASK, *asked, "--hit-rate", "0.95", "--hit-rate", "0.8").out)
    assert {row["hit_rate"] for row in each} == {"0.95", "0.8"}


def test_steps_of_an_axis(cli: Cli) -> None:
    with pytest.raises(InputError, match=r"batch='1\.\.9\+0': expected steps of at least 1"):
        axis_numbers("batch", "1..9+0")
    many = ",".join(["1..50000"] * (LONGEST_AXIS // 50_000 + 1))
    with pytest.raises(InputError, match=f"batch: expected at most {LONGEST_AXIS} values"):
        axis_numbers("batch", many)
    assert_refused(cli(*ASK, "--batch", "1..9+0"), "steps of at least 1")


def test_parquet_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    check_format(SweepFormat.CSV)
    with pytest.raises(InputError, match=r"needs pyarrow \(pip install -e '\.\[parquet\]'"):
        check_format(SweepFormat.PARQUET)


def test_a_long_list_of_warnings_is_cut(cli: Cli, tmp_path: Path) -> None:
    """Each context beyond a head's own is warned of; the rest is in the provenance."""
    out = tmp_path / "a.csv"
    models = "llama-3.1-8b,llama-3.1-70b,gpt-oss-20b,gpt-oss-120b,qwen3-30b-a3b"
    flags = ("--gpu", "b200-hgx", "--drafter", "eagle3", "--context", "16k", "-o", str(out))
    done = cli("sweep", models, *flags)
    shown = [line for line in done.err.splitlines() if line.startswith("Note: ")]
    warned = json.loads(out.with_name("a.csv.provenance.json").read_text())["warnings"]
    assert len(warned) > len(shown) == 3
    said = " ".join(done.err.split())
    assert f"{len(warned) - 3} more notes: --notes or {out}.provenance.json" in said
    every = " ".join(cli(*("sweep", models), *flags, "--notes").err.split())
    assert all(f"Note: {' '.join(text.rstrip('.').split())}." in every for text in warned)


class BrokenProcessPool(RuntimeError):
    """As concurrent.futures calls it."""


RENDERERS = sweep_run.Renderers(spell=str, say=lambda _: {}, source=lambda _: {})


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
    results = sweep_run._results(tasks, (executor, 1), (), SweepFormat.CSV, RENDERERS)
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
    cluster = sweep_run.cluster_workers("tcp://here:1")
    with pytest.raises(InputError, match="the scheduler has no workers; start some first"), cluster:
        """Never reached."""
