"""Names and places made to do harm: they lead nowhere, and no link is written through."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import (
    ENGINE,
    GPU,
    MODEL,
    ROOT,
    Cli,
    assert_refused,
    in_own_process,
    limits,
    write,
)

OUTSIDE = ("../../etc/passwd", "/etc/passwd", "..", ".", "../h200-sxm.yaml")


@pytest.mark.parametrize("reference", OUTSIDE)
@pytest.mark.parametrize("flag", ["MODEL", "--gpu", "--drafter", "--engine", "--acceptance"])
def test_names_lead_nowhere(cli: Cli, flag: str, reference: str) -> None:
    """What lies there is neither read as one of ours nor shown."""
    arguments = [reference] if flag == "MODEL" else ["llama-3.1-8b", flag, reference]
    line = assert_refused(cli("recommend", *arguments))
    assert "root:" not in line


@pytest.mark.parametrize("name", ["../../x", "/x", "a/b", "a\\b", "", "a b", "=x", "a\nb"])
@pytest.mark.parametrize("what", ["model", "gpu", "engine"])
def test_ids_are_fit_for_file_names(cli: Cli, tmp_path: Path, what: str, name: str) -> None:
    text, own = {
        "model": (MODEL, "tiny"), "gpu": (GPU, "roundcard"), "engine": (ENGINE, "invented"),
    }[what]  # fmt: skip
    path = write(tmp_path, "x.yaml", text.replace(f"id: {own}", f"id: {json.dumps(name)}", 1))
    command = (
        ["llama-3.1-8b", f"--{what}", path] if what != "model" else [path, "--drafter", "none"]
    )
    assert_refused(cli("recommend", *command), "x.yaml", "id")


@pytest.mark.parametrize("target", ["file", "nothing", "device", "folder"])
@pytest.mark.parametrize(
    "command",
    [
        ("recommend", "llama-3.1-8b", "-o", "OUT.json"),
        ("plot", "speedup", "llama-3.1-8b", "--data", "OUT.csv"),
        ("plot", "speedup", "llama-3.1-8b", "-o", "OUT.png"),
        ("sweep", "llama-3.1-8b", "-o", "OUT.csv"),
        ("report", "llama-3.1-8b", "-o", "OUT.html"),
        ("models", "import", str(ROOT / "model_configs/Qwen--Qwen3-8B.json"), "-o", "OUT.yaml"),
        ("calibrate", "measure", "--device", "cpu", "--budget", "2s", "-o", "OUT.csv"),
    ],
    ids=lambda command: " ".join(command[:2]) + command[-1][3:],
)
def test_links_are_not_written_through(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], target: str
) -> None:
    """Not even replaced: /dev/stdout is a link, and root may replace that."""
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    link = tmp_path / command[-1]
    link.symlink_to(Path(os.devnull) if target == "device" else tmp_path / target)
    outcome = cli(*command[:-1], str(link))
    assert outcome.code == 2
    assert outcome.out == ""
    assert link.name in outcome.err
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "kept"
    assert not (tmp_path / "nothing").exists()


def test_devices_and_pipes_are_not_replaced(cli: Cli, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert_refused(cli("recommend", "llama-3.1-8b", "-o", str(pipe)), "is a link or a device")
    assert pipe.is_fifo()


def test_a_folder_behind_a_link_is_a_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    target = tmp_path / "link" / "a.json"
    assert cli("recommend", "llama-3.1-8b", "-o", str(target)).code == 0
    assert json.loads((tmp_path / "real" / "a.json").read_text())


@pytest.mark.parametrize("name", ["x.yaml", "x.json", "x.gguf"])
@pytest.mark.parametrize("kind", ["loop", "dangling", "pipe", "device"])
def test_inputs_that_are_no_files(cli: Cli, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        places = {"loop": path, "dangling": tmp_path / "absent", "device": Path("/dev/zero")}
        path.symlink_to(places[kind])
    with limits():
        outcome = cli("models", "check", str(path))
    assert_refused(outcome, name)


@pytest.mark.parametrize("flag", ["--acceptance", "--batches-histogram", "--trace"])
def test_a_device_that_never_ends(flag: str) -> None:
    assert_refused(in_own_process("recommend", "llama-3.1-8b", flag, "/dev/zero"))
