"""Every command says what to know beside its answer as recommend does: ranked, three, then more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roofline.render.charts import figure
from tests.cli.test_printed_answers import WIDTH, on_a_terminal
from tests.support import Cli

#: Questions with more than three notes, on two models and parts.
ASKED = (
    ("llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--weights", "fp8"),
    ("gpt-oss-120b", "--gpu", "h200-sxm"),
)
MANY_BATCHES = ("--batch", "64,128,192,256,300")
#: Commands that say what to know on stderr, since they print no answer; and what they write to.
ON_STDERR = {
    "plot heatmap": "a.png",
    "plot speedup": "a.svg",
    "plot cost-ratio": "a.png",
    "plot frontier": "a.png",
    "plot breakdown": "a.png",
    "sweep": "a.csv",
    "schedule": "a.json",
}
SENTENCE = re.compile(r"(?:Note|Assumed): .*")


def said(text: str) -> list[str]:
    """Return the notes in a text, a paragraph each."""
    joined = re.sub(r"\n(?!(Note|Assumed|wrote|Set|D rises|\d+ more notes?)\b)", " ", text)
    return [" ".join(line.split()) for line in joined.splitlines() if SENTENCE.match(line)]


@pytest.mark.parametrize("asked", ASKED, ids=lambda words: words[0])
@pytest.mark.parametrize("command", ON_STDERR)
def test_three_notes_and_how_many_are_left(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    asked: tuple[str, ...],
) -> None:
    file = str(tmp_path / ON_STDERR[command])
    more = MANY_BATCHES if command in ("plot speedup", "plot cost-ratio", "sweep") else ()
    form = ("--format", "vllm") if command == "schedule" else ()
    words = (*command.split(), *asked, *more, *form, "-o", file)
    first = cli(*words)
    monkeypatch.setattr(figure, "save", lambda *_, **__: None)  # a chart is drawn once
    every = cli(*words, "--notes")
    assert first.code == every.code == 0, first.err
    assert first.out == "" or command == "schedule"
    assert "warning" not in first.err
    shown, whole = said(first.err), said(every.err)
    assert shown == whole[:3]
    left = len(whole) - len(shown)
    assert (f"{left} more note" in first.err) is (left > 0)
    assert "more note" not in every.err
    assert cli(*words, "-q").err == ""


@pytest.mark.parametrize("asked", ASKED, ids=lambda words: words[0])
def test_they_are_those_of_the_same_question_in_the_same_order(
    cli: Cli, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    """recommend ranks them; the JSON has all of them."""
    place = ("--batch", "64", "--context", "4k")
    words = ("plot", "breakdown", *asked, *place, "--data", str(tmp_path / "a.csv"), "--notes")
    printed = said(cli(*words).err)
    ranked = [
        each["text"]
        for each in cli("recommend", *asked, *place, "--format", "json").data()["notes"]
    ]
    assert len(printed) > 1
    positions = [
        next(i for i, text in enumerate(ranked) if text.rstrip(".") in line) for line in printed
    ]
    assert positions == sorted(positions)


@pytest.mark.parametrize("command", ["compare", "explore", "schedule", "report", "recommend"])
def test_an_answer_holds_its_notes_itself(cli: Cli, tmp_path: Path, command: str) -> None:
    """They stand below it on stdout, and stderr says nothing but where a file was written."""
    own = {
        "explore": ("--vary", "group_size=2,4"),
        "report": ("-o", str(tmp_path / "a.html")),
    }.get(command, ())
    done = cli(command, *ASKED[0], *own)
    assert done.code == 0
    assert not [line for line in done.err.splitlines() if not line.startswith("wrote ")]
    below = done.out.partition("\n\n")[2]
    notes = said(below[re.search(r"^(Note|Assumed): ", below, re.M).start() :])  # type: ignore[union-attr]
    assert 1 <= len(notes) <= 3
    assert cli(command, *ASKED[0], *own, "-q").err == ""


@pytest.mark.parametrize("command", ["plot heatmap", "sweep"])
def test_on_a_terminal_they_are_wrapped(tmp_path: Path, command: str) -> None:
    file = str(tmp_path / ON_STDERR[command])
    words = (*command.split(), *ASKED[1], *MANY_BATCHES, "-o", file)
    shown = re.sub(r".*\r(?!\n)|\x1b\[[\d;]*\w", "", on_a_terminal(*words, stream="stderr"))
    assert "Note: " in shown
    lines = [line for line in shown.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= WIDTH
