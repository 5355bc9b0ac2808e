"""The comparison of two trees, on a toy program in a repository of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support import ROOT
from workshop import goldens
from workshop.golden_commands import COMMANDS

#: It prints its words and writes a file; ``wait URL`` waits, and reads a page before and after.
PROGRAM = """\
import sys
import time
import urllib.request


def main():
    word, *rest = sys.argv[1:]
    if word == "wait":
        began = time.monotonic()
        pages = [urllib.request.urlopen(rest[0] + "/page").read().decode()]
        time.sleep(60)
        pages.append(urllib.request.urlopen(rest[0] + "/page").read().decode())
        print(rest[0], pages, time.monotonic() - began)
    elif word == "write":
        open("numbers.csv", "w").write("a,b\\n1,2\\n")
    elif word == "say":
        print("hello")
        sys.exit("bye")
    else:
        sys.exit(2)
"""
TOY = {"say": "say it", "write": "write", "unknown": "unknown"}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the one module of a committed program, which the comparison takes for this one."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    tree = tmp_path / "tree"
    module = tree / "roofline" / "cli.py"
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").touch()
    module.write_text(PROGRAM, "utf-8")
    pages = tree / "tests" / "data" / "servers"
    pages.mkdir(parents=True)
    for name in ("first", "second"):
        (pages / name).write_text(name)
    author = ["-c", "user.name=toy", "-c", "user.email=toy@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "toy"]):
        subprocess.run(["git", *words], cwd=tree, check=True)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(goldens, "ROOT", tree)
    monkeypatch.setattr(goldens, "COMMANDS", TOY)
    return module


def compare(monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    """Compare the toy with its first commit; return the exit code."""
    monkeypatch.setattr(sys, "argv", ["goldens", "--base", "HEAD", *flags])
    with pytest.raises(SystemExit) as stop:
        goldens.main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.mark.usefixtures("toy")
def test_equal_trees_agree_and_the_base_runs_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(monkeypatch) == 0
    first = capsys.readouterr()
    assert first.out == "3 of 3 commands agree\n"
    assert first.err.count("ran 3 of 3 commands") == 2
    assert compare(monkeypatch) == 0
    assert capsys.readouterr().err.count("ran 3 of 3 commands") == 1


def test_every_kind_of_difference_is_reported(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Another line, another exit code, another cell of a file, and a command that is new."""
    changed = PROGRAM.replace("hello", "hullo").replace('"bye"', "3").replace("1,2", "1,3")
    toy.write_text(changed.replace("    else:", '    elif word != "unknown":'), "utf-8")
    assert compare(monkeypatch, "--full", str(tmp_path / "kept")) == 1
    out = capsys.readouterr().out
    assert out.endswith("\n0 of 3 commands agree\n")
    for line in ("-hello", "+hullo", "-bye", "-1", "+3", "-1,2", "+1,3", "-2", "+0"):
        assert f"\n    {line}\n" in out, line
    kept = {tree: tmp_path / "kept" / tree / "say" / "stdout" for tree in ("base", "head")}
    assert [kept[tree].read_text() for tree in kept] == ["hello\n", "hullo\n"]


@pytest.mark.usefixtures("toy")
def test_a_server_gives_its_pages_in_turn_and_waiting_takes_no_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(goldens, "COMMANDS", {"wait": "wait {toy}"})
    monkeypatch.setattr(goldens, "SERVERS", {"toy": {"/page": ["first", "second"]}})
    monkeypatch.setattr(sys, "argv", ["goldens", "--show", "wait"])
    goldens.main()
    assert "\nhttp://127.0.0.1:<port> ['first', 'second'] 60.0\n" in capsys.readouterr().out


def test_a_difference_deep_in_a_long_line_is_shown() -> None:
    old, new = ["x" * 5000 + end for end in ("old", "new")]
    shown = list(goldens.difference("stdout", [old], [new]))
    assert max(map(len, shown)) <= 1 + goldens.WIDTH
    assert [line for line in shown if "old" in line or "new" in line]


def test_every_command_of_the_reference_is_compared() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    known = set(re.findall(r"^\| `roofline ([a-z -]+?)(?: [^`a-z]+)?` \|", text, re.M))
    assert len(known) > 30
    lines = COMMANDS.values()
    missing = {
        name for name in known if not any(f"{line} ".startswith(f"{name} ") for line in lines)
    }
    assert not missing
