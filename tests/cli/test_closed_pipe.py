"""A reader that has read enough (``| head -1``) ends a command quietly, with code 0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Commands of every way to print: an answer, a list, a record, a stream, an engine's text, help.
COMMANDS = (
    "recommend llama-3.1-8b --acceptance 0.7 --format json",
    "schedule llama-3.1-8b --acceptance 0.7 --batches 1..4",
    "compare llama-3.1-8b --drafter ngram=0.4 --format csv",
    "memory llama-3.1-8b --acceptance 0.7",
    "sweep llama-3.1-8b --acceptance 0.7 --batch 1..300",
    "models list --all",
    "models show qwen3-8b",
    "hardware list --format markdown",
    "acceptance list",
    "help recommend",
    "recommend --help",
    "--version",
)


@pytest.mark.skipif(os.name == "nt", reason="pipes are closed otherwise there")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_pipe_ends_a_command_quietly(command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "roofline", *command.split()],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="a shell there closes no stream")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_without_a_stdout_is_not_lost_in_silence(command: str) -> None:
    """A caller that closed stdout would take code 0 for an answer that it has not seen."""
    line = f"{sys.executable} -m roofline {command} >&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("roofline: stdout is closed")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="a shell there closes no stream")
def test_an_answer_in_a_file_needs_no_stdout(tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    line = f"{sys.executable} -m roofline recommend llama-3.1-8b --acceptance 0.7 -o {file} >&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "points" in json.loads(file.read_text())
