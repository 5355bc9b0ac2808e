"""No sentence of the product has a phrase that readers stumbled on, or one of its kind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_printed_answers import QUESTIONS
from tests.support import ROOT, Cli

#: What puzzled readers, as it was printed, and a pattern of its kind; {} stands for a value.
PHRASES = {
    "D = 5 over 98%": r"\bD = \S+,? over (\{\}|\d+) ?%?",
    "launched by hand, at 40 us": r"(?<!copy )\bby hand\b",
    "launches and latencies that neither traffic nor arithmetic explains": (
        r"launches and latencies|neither traffic nor arithmetic|that nothing explains"
    ),
    "acceptance: vllm: 2 log lines": r"(acceptance: )?[\w{}.]+: (\{\}|\d+) log lines?\b",
    "drafter none; acceptance: nothing is drafted": (
        r"(?<!-)drafter none|acceptance: (nothing|none)\b"
    ),
}
FOLDERS = ("render", "cli", "advice", "questions", "engines", "api")


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield every text of a module but its docstrings, with {} for the values in it."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings | inside
        ):
            yield node.value


def puzzling(text: str) -> list[str]:
    """Return the phrases of whose kind a text has one."""
    return [phrase for phrase, kind in PHRASES.items() if re.search(kind, text)]


@pytest.mark.parametrize("phrase", PHRASES)
def test_each_phrase_is_of_its_kind(phrase: str) -> None:
    assert phrase in puzzling(phrase)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_sentence_has_such_a_phrase(folder: str) -> None:
    found = 0
    for path in sorted((ROOT / "roofline" / folder).rglob("*.py")):
        for text in texts(ast.parse(path.read_text("utf-8"))):
            found += 1
            assert not puzzling(re.sub(r"\{\w*[^}]*\}", "{}", text)), (path.name, text)
    assert found > 10


def test_no_asset_of_the_page_has_such_a_phrase() -> None:
    assets = [
        p for p in (ROOT / "roofline" / "render" / "page" / "assets").iterdir() if p.is_file()
    ]
    assert len(assets) > 3
    for path in assets:
        if path.suffix in (".html", ".js"):
            for line in path.read_text("utf-8").splitlines():
                assert not puzzling(line), (path.name, line)


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_printed_answer_has_such_a_phrase(cli: Cli, question: str) -> None:
    """Where a row gains and drafts are not advised, the headline gives the reason."""
    done = cli("recommend", *question.split(), "--notes")
    printed = " ".join(done.out.split())
    assert not puzzling(printed)
    for point in cli("recommend", *question.split(), "--format", "json").data()["points"]:
        gains = [row for row in point["by_draft_length"] if row["speedup"] > 1]
        if gains and point["headline"].startswith("Do not speculate"):
            assert re.search(
                r"\(.*\)|every draft length needs|no draft length fits", point["headline"]
            )


def test_an_acceptance_from_a_log_is_named_in_words(cli: Cli, tmp_path: Path) -> None:
    from tests.engines.test_pasted_lines import VLLM

    log = tmp_path / "vllm.log"
    log.write_text(f"{VLLM}\n", encoding="utf-8")
    done = cli("recommend", "llama-3.1-8b", "--acceptance", str(log))
    assert done.code == 0, done.err
    assert "acceptance: counted by vllm (1 log line)" in " ".join(done.out.split())
    assert not puzzling(done.out)
