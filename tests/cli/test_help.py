"""The help: its panels at 80 columns, one example for each command, and what it leaves out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from roofline.cli.commands import build
from tests.support import Cli, assert_refused


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every command that is no group, by the words that call it."""
    inner = getattr(command, "commands", {})
    for name, each in inner.items():
        yield from commands(each, f"{path} {name}".strip())
    if not inner:
        yield path, command


COMMANDS = dict(commands(typer.main.get_command(build()), ""))
#: The panels of a question, in their order.
PANELS = [
    "Question", "Drafter and acceptance", "Formats", "Placement", "Load and goals", "Server",
    "Engine", "Output", "Expert",
]  # fmt: skip


def headings(text: str) -> list[str]:
    """Return the panels of a help."""
    return re.findall(r"^(\w[\w ]+):$", text, re.M)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_fits_80_columns_and_names_every_option_once(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = cli(*path.split(), "--help").out
    assert max(map(len, text.splitlines())) <= 80
    listed = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.M)
    assert len(set(listed)) == len(listed)
    shown = [p for p in COMMANDS[path].params if not getattr(p, "hidden", False)]
    declared = {max(p.opts, key=len) for p in shown if p.opts[0][0] == "-"}
    assert set(listed) == declared | {"--help"}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_help_has_an_example_that_the_command_can_read(cli: Cli, path: str) -> None:
    text = cli(*path.split(), "--help").out
    (example,) = re.findall(r"^  Example: roofline (.*)$", text, re.M)
    assert example.startswith(path)
    words = shlex.split(example.removeprefix(path))
    COMMANDS[path].make_context(path, words)  # it would refuse what it cannot parse


def test_the_common_dozen_stands_first(cli: Cli) -> None:
    text = cli("recommend", "--help").out
    assert headings(text) == PANELS
    question = text.partition("Question:\n")[2].partition("\n\n")[0]
    names = re.findall(r"^  (--[\w-]+|MODEL)", question, re.M)
    assert len(names) == 12
    assert names[:5] == ["MODEL", "--gpu", "--tp", "--batch", "--context"]


def test_the_help_command_shows_what_the_option_shows(cli: Cli) -> None:
    for path in ("", "recommend", "models", "plot speedup"):
        assert cli("help", *path.split()).out == cli(*path.split(), "--help").out


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("recommed", ("recommed", "did you mean 'recommend'?")),
        ("models lst", ("roofline models", "did you mean 'list'?")),
        ("recommend batch", ("roofline recommend", "batch")),
    ],
)
def test_help_about_nothing(cli: Cli, topic: str, words: tuple[str, ...]) -> None:
    assert_refused(cli("help", *topic.split()), *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("schedule qwen3-8b --acceptance-rounds 9", ("roofline schedule", "recommend")),
        ("plot attention qwen3-8b --drafter none", ("roofline plot attention", "recommend")),
        ("hardware list --tie 2", ("roofline hardware list", "(schedule takes it)")),
        ("compare qwen3-8b --batches 8", ("roofline compare", "schedule and explore")),
    ],
)
def test_an_option_of_other_commands_names_them(
    cli: Cli, arguments: str, words: tuple[str, ...]
) -> None:
    """It is not in the help either: the first test compares both."""
    assert_refused(cli(*arguments.split()), "does not take it", *words)


def test_an_option_of_no_command(cli: Cli) -> None:
    assert_refused(cli("recommend", "qwen3-8b", "--btach", "3"), "--btach", "--batch")
