"""Sweeps that are stopped, harmed or resumed lose nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.questions.sweep import plan as planning
from roofline.questions.sweep import run as running
from tests.support import ACCEPTANCE, DRAFTER, ENGINE, GPU, MODEL, Cli, assert_refused, write
from tests.sweeping import ASKED, GRID, POINTS


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut grids into parts of five batches."""
    monkeypatch.setattr(planning, "PART_POINTS", 5 * 4 * 4)


@pytest.fixture
def whole(cli: Cli) -> str:
    """The grid in one go."""
    return cli(*GRID).out


def stop_after(count: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this many parts be finished, then raise."""
    real = running.run_task
    done: list[int] = []

    def run_task(*given: Any) -> Any:
        if len(done) == count:
            raise error
        done.append(1)
        return real(*given)

    monkeypatch.setattr(running, "run_task", run_task)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_stopped_sweep_goes_on(
    cli: Cli, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, stopped = tmp_path / f"a.{form}", tmp_path / f"b.{form}"
    assert cli(*GRID, "-o", str(at_once)).code == 0
    with monkeypatch.context() as patch:
        stop_after(3, KeyboardInterrupt(), patch)
        line = assert_refused(cli(*GRID, "-o", str(stopped)), "--resume", code=130)
    assert "3 finished parts" in line
    assert not stopped.exists()
    # without --resume nothing of it is touched
    assert_refused(cli(*GRID, "-o", str(stopped)), "b." + form + ".partial", "--resume")
    with monkeypatch.context() as patch:
        stop_after(5, AssertionError("the finished parts were priced again"), patch)
        assert cli(*GRID, "-o", str(stopped), "--resume").code == 0
    assert stopped.read_bytes() == at_once.read_bytes() or form == "parquet"
    about = [json.loads(Path(f"{p}.provenance.json").read_text()) for p in (at_once, stopped)]
    for page in about:
        del page["command"]
    assert about[0] == about[1]
    assert about[0]["rows"] == POINTS
    assert not Path(f"{stopped}.partial").exists()


@pytest.mark.usefixtures("small_parts")
def test_another_grid_does_not_resume(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    with monkeypatch.context() as patch:
        stop_after(1, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    outcome = cli(*ASKED, "--batch", "1..41", "--context", "1k", "-o", str(path), "--resume")
    assert_refused(outcome, "batches", "contexts", "another")
    assert cli(*GRID, "-o", str(path), "--resume").code == 0


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("older", [None, ["model", "context_tokens", "step_s"]])
def test_rows_with_older_columns_do_not_resume(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: list[str] | None
) -> None:
    """A folder of a release whose columns had other names, and of one that did not say them."""
    path = tmp_path / "x.csv"
    with monkeypatch.context() as patch:
        stop_after(1, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    file = Path(f"{path}.partial") / "plan.json"
    plan = json.loads(file.read_text())
    del plan["columns"]
    file.write_text(json.dumps(plan | ({"columns": older, "version": "0.0"} if older else {})))
    outcome = cli(*GRID, "-o", str(path), "--resume")
    assert_refused(outcome, "--resume", "columns of an older release", "remove the folder")
    assert not path.exists()


@pytest.mark.usefixtures("small_parts")
def test_a_torn_journal_costs_one_part(
    cli: Cli, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ended while it wrote a line, and while it wrote a part."""
    path = tmp_path / "x.csv"
    with monkeypatch.context() as patch:
        stop_after(3, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    folder = Path(f"{path}.partial")
    journal = folder / "journal.jsonl"
    journal.write_text(journal.read_text()[:-20])
    (folder / "00000004.new").write_text("half a par")
    assert cli(*GRID, "-o", str(path), "--resume").code == 0
    assert path.read_text() == whole


NAMED = {
    "gpu.yaml": GPU, "model.yaml": MODEL, "head.yaml": DRAFTER, "engine.yaml": ENGINE,
    "acceptance.yaml": ACCEPTANCE, "grid.yaml": "schema: 1\nbatch: 1..40\n",
}  # fmt: skip


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("name", NAMED)
def test_a_file_that_was_edited_does_not_resume(
    cli: Cli, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the rows would be those of another machine, model or acceptance."""
    path = tmp_path / "x.csv"
    paths = {each: write(tmp_path, each, text) for each, text in NAMED.items()}
    asked = (
        "sweep", paths["model.yaml"], "--gpu", paths["gpu.yaml"], "--drafter", paths["head.yaml"],
        "--engine", paths["engine.yaml"], "--acceptance",
        f"mix:0.5*{paths['acceptance.yaml']},0.5*llama-3.1-8b-eagle3-lmsys",
        "--grid", paths["grid.yaml"], "-o", str(path),
    )  # fmt: skip
    with monkeypatch.context() as patch:
        stop_after(1, KeyboardInterrupt(), patch)
        assert cli(*asked).code == 130
    write(tmp_path, name, NAMED[name] + "# edited\n")
    assert_refused(cli(*asked, "--resume"), paths[name], "changed since")
    write(tmp_path, name, NAMED[name])
    stop_after(0, KeyboardInterrupt(), monkeypatch)  # far enough: it goes on
    assert cli(*asked, "--resume").code == 130


@pytest.mark.usefixtures("small_parts")
def test_an_edited_config_in_a_folder_does_not_resume(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, config = tmp_path / "x.csv", tmp_path / "model" / "config.json"
    config.parent.mkdir()
    text = json.dumps({
        "model_type": "llama", "hidden_size": 512, "vocab_size": 1000, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1024,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "hidden_act": "silu",
    })  # fmt: skip
    config.write_text(text)
    asked = ("sweep", str(config.parent), "--drafter", "ngram", "--acceptance", "0.7", "--batch",
             "1..40", "-o", str(path))  # fmt: skip
    with monkeypatch.context() as patch:
        stop_after(1, KeyboardInterrupt(), patch)
        assert cli(*asked).code == 130
    (config.parent / "hf_quant_config.json").write_text("{}")
    assert_refused(cli(*asked, "--resume"), "hf_quant_config.json", "changed since")
    (config.parent / "hf_quant_config.json").unlink()
    config.write_text(text.replace("1024", "2048"))
    assert_refused(cli(*asked, "--resume"), str(config), "changed since")


@pytest.fixture
def stopped(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A sweep with three finished parts: its output and its folder."""
    path = tmp_path / "x.csv"
    monkeypatch.setattr(planning, "PART_POINTS", 5 * 4 * 4)
    with monkeypatch.context() as patch:
        stop_after(3, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    return path, Path(f"{path}.partial")


@pytest.mark.parametrize("harm", ["short", "flipped", "gone"])
def test_a_harmed_part_is_priced_again(
    cli: Cli, whole: str, stopped: tuple[Path, Path], harm: str
) -> None:
    path, folder = stopped
    part = folder / "00000001.part"
    content = part.read_bytes()
    part.write_bytes(content[:-30] if harm == "short" else content.replace(b"1", b"2", 1))
    if harm == "gone":
        part.unlink()
    assert cli(*GRID, "-o", str(path), "--resume").code == 0
    assert path.read_text() == whole


@pytest.mark.parametrize("line", [b"null", b'{"index":1}', b"\xff\xfe", b"[]", b"7", b"hello"])
def test_garbage_in_the_journal_is_one_line(
    cli: Cli, stopped: tuple[Path, Path], line: bytes
) -> None:
    path, folder = stopped
    with (folder / "journal.jsonl").open("ab") as journal:
        journal.write(b"\n" + line)
    assert_refused(cli(*GRID, "-o", str(path), "--resume"), "journal.jsonl:4", "remove that line")
    assert not path.exists()


@pytest.mark.parametrize("plan", [b"[]", b"", b"{}", b"null", b"\xff", b"{", None])
def test_parts_without_a_plan_are_not_adopted(
    cli: Cli, stopped: tuple[Path, Path], plan: bytes | None
) -> None:
    path, folder = stopped
    (folder / "plan.json").unlink()
    if plan is not None:
        (folder / "plan.json").write_bytes(plan)
    outcome = cli(*GRID, "-o", str(path), "--resume")
    assert_refused(outcome, "plan.json", "missing or damaged", str(folder))
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(0, AssertionError("it was priced before anyone looked"), monkeypatch)
    assert_refused(cli(*GRID, "-o", str(tmp_path / "no" / "x.csv")), "-o ", "can be written to")
    assert_refused(cli(*GRID, "-o", "/proc/x.csv"), "-o /proc/x.csv", "can be written to")


@pytest.mark.usefixtures("small_parts")
def test_the_old_file_stays_until_the_new_one_is_whole(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("old")
    with monkeypatch.context() as patch:
        stop_after(2, KeyboardInterrupt(), patch)
        assert cli(*GRID, "-o", str(path)).code == 130
    assert path.read_text() == "old"
    assert cli(*GRID, "-o", str(path), "--resume").code == 0
    assert path.read_text().count("\n") == 1 + POINTS
