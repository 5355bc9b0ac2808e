"""Only the command line knows how an option is typed, and one place prices (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from roofline.base.errors import OPTION_MARKS
from roofline.cli.commands import build
from roofline.cli.printing import flag
from tests.support import ROOT, Cli

PACKAGE = ROOT / "roofline"
MODULES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}
#: Where a string may begin as an option does: ours are typed, and engines' flags are pasted.
FLAGS = ("cli/", "engines/")
#: What is gone for good: second ways to say a thing, and lines that the formatter leaves alone.
GONE = (
    "needs_acceptance",
    "EVERY_DRAFT",
    "UNUSED",
    "several_drafters",
    'acceptance="0.5"',
    "fmt: skip",
)
#: What builds a deployment's prices and its memory.
BUILDERS = ("Machine", "memory_for")
BUILD = ("timing/", "advice/deployment.py")
#: An option of a text that nothing has spelled.
TOKEN = re.compile(rf"[{OPTION_MARKS}]|\\ufdd[012]")


def nodes(source: str) -> Iterator[ast.AST]:
    """Yield every part of a module."""
    yield from ast.walk(ast.parse(source))


def flags(source: str) -> Iterator[str]:
    """Yield the strings, and the beginnings of f-strings, that begin as an option does."""
    for node in nodes(source):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.match(r"--[a-z]", text):
            yield text
        first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else None
        if isinstance(first, ast.Constant) and first.value == "--":
            yield "--"


def test_a_flag_is_found_in_a_string_and_in_an_f_string() -> None:
    assert list(flags('f"{a} b", "a --b", "--"')) == []
    assert list(flags('"--tp"')) == ["--tp"]
    assert list(flags('f"--tp {tp}: too many"')) == ["--tp "]
    assert list(flags('f"--{name}: too many"')) == ["--"]


def test_only_the_command_line_knows_an_option_as_it_is_typed() -> None:
    wrong = [
        f"{name}: {text}"
        for name, source in MODULES.items()
        if not name.startswith(FLAGS)
        for text in flags(source)
    ]
    assert not wrong


def named(source: str) -> Iterator[str]:
    """Yield the fields that texts and errors name as options."""
    for node in nodes(source):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", "")
        given = [k.value for k in node.keywords if k.arg == "field" and called.endswith("Error")]
        for part in [*node.args[:1], *given] if called == "Option" else given:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def declared(command: Any) -> Iterator[str]:
    """Yield the options and arguments of a command and of those below it."""
    for parameter in command.params:
        yield from (text for text in (*parameter.opts, *parameter.secondary_opts))
    for inner in getattr(command, "commands", {}).values():
        yield from declared(inner)


def test_every_option_that_a_text_names_can_be_typed() -> None:
    known = {"MODEL", *declared(typer.main.get_command(build()))}
    fields = {field for name, source in MODULES.items() for field in named(source)}
    assert len(fields) > 50
    assert {field for field in fields if flag(field) not in known} == set()


@pytest.mark.parametrize("word", GONE)
def test_words_that_are_gone(word: str) -> None:
    assert [name for name, source in MODULES.items() if word in source] == []


def test_one_place_builds_prices_and_memory() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, source in MODULES.items()
        if not name.startswith(BUILD)
        for node in nodes(source)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in BUILDERS
    ]
    assert not wrong


#: Commands whose texts name options, each with the file that it writes.
WRITTEN = {
    "recommend llama-3.1-8b --drafter mtp-llama": "",
    "recommend llama-3.1-70b --gpu h100-sxm --tp 4 --batch 1,64 --context 8k,32k": "a.json",
    "recommend llama-3.1-70b --gpu h100-sxm --tp 4 --batch 1,64 --context 32k": "a.csv",
    "recommend llama-3.1-70b --gpu h100-sxm --tp 4 --batch 1,64 --context 16k": "a.md",
    "recommend qwen3-8b --set group_size=8 --overhead-ms 0.5 --explain --format json": "b.json",
    "explore llama-3.1-8b --vary group_size=1,2,8 --batch 2 --context 32k": "c.json",
    "diagnose llama-3.1-8b --measured 0:7.1,3:5:2.4 --format json": "d.json",
    "memory llama-3.1-70b --gpu h100-sxm --tp 4 --context 32k --format json": "e.json",
    "compare llama-3.1-8b --drafter eagle3 --drafter ngram=0.5 --format json": "f.json",
    "sweep llama-3.1-70b,qwen3-8b --gpu h100-sxm,rtx-4090 --tp 1,2 --batch 1,64": "g.csv",
    "report llama-3.1-8b --set group_size=8": "h.html",
    "plot speedup llama-3.1-8b --batch 1,8 --set group_size=8 --data i.csv": "i.png",
}


@pytest.mark.parametrize("command", WRITTEN)
def test_no_output_holds_an_option_that_nothing_has_spelled(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Standard output and error of every run in these tests are checked by ``cli`` itself."""
    monkeypatch.chdir(tmp_path)
    to = ("-o", WRITTEN[command]) if WRITTEN[command] else ()
    outcome = cli(*command.split(), *to)
    assert bool(to) == any(tmp_path.iterdir()), outcome
    for file in tmp_path.iterdir():
        if file.suffix == ".png":  # its dots are no text
            with Image.open(file) as image:
                text = str(image.info)
        else:
            text = file.read_bytes().decode("utf-8", errors="replace")
        assert not TOKEN.search(text), file.name
