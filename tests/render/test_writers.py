"""The writers by themselves: broken flags, tables, and the order of notes."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from roofline.base.errors import Option
from roofline.base.notices import ASSUMED, Code, notice
from roofline.render.blocks import Answer, Note, Paragraph, Table
from roofline.render.blocks import Code as CodeBlock
from roofline.render.notices import ORDER, notes, ranked
from roofline.render.writers import Layout, OutputFormat, broken_code, write

VLLM = """--tp 8 --speculative-config '{"method": "eagle3", "model": "a, b/c-d", "n": [[1, 8, 5], \
[9, 64, 3]], "num_speculative_tokens": 5}' --max-cudagraph-capture-size 1024"""
SGLANG = "--speculative-algorithm EAGLE3 --speculative-draft-model-path a/b --steps 5"
TRTLLM = "speculative_config: {decoding_type: Eagle3, max_draft_len: 5, speculative_model: a/b}"


@given(width=st.integers(20, 200))
def test_a_shell_reads_broken_flags_as_it_reads_whole_ones(width: int) -> None:
    for line in (VLLM, SGLANG):
        broken = broken_code(line, width=width)
        # a backslash at the end of a line joins it with the next (POSIX shell, 2.2.1)
        words = shlex.split(broken.replace("\\\n", ""))
        whole = shlex.split(line)
        assert len(words) == len(whole)
        for found, expected in zip(words, whole, strict=True):
            if expected.startswith("{"):
                assert json.loads(found) == json.loads(expected)
            else:
                assert found == expected
    assert yaml.safe_load(broken_code(TRTLLM, width=width)) == yaml.safe_load(TRTLLM)


def test_a_real_shell_agrees() -> None:
    script = f"for word in {broken_code(VLLM, width=40)}; do printf '%s\\0' \"$word\"; done"
    out = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    words = out.split("\0")[:-1]
    assert words[:2] + words[-2:] == ["--tp", "8", "--max-cudagraph-capture-size", "1024"]
    assert json.loads(words[3])["model"] == "a, b/c-d"


@pytest.mark.parametrize("line", [VLLM, SGLANG, TRTLLM])
def test_lines_are_as_narrow_as_they_can_be(line: str) -> None:
    """No word of these is longer than 30 characters, and no line is left half empty twice."""
    lines = broken_code(line, width=60).split("\n")
    assert max(map(len, lines)) <= 60
    assert all(len(a) + len(b) > 60 for a, b in zip(lines, lines[2:], strict=False))
    assert broken_code(line, width=len(line)) == line


def an_answer(**more: Any) -> Answer:
    """Return an answer of one line with a table and flags."""
    blocks = (
        Paragraph("Yes."),
        Table(headings=("id", "GB"), cells=(("a", "80"), ("a|b", "8")), align="l", title="Sizes"),
        CodeBlock("--x 1", of="tool"),
    )
    rows = [{"a": f"use {Option('tp', 2)}"}]
    return Answer(
        headlines=lambda: ["Yes."],
        blocks=lambda: blocks,
        data=lambda: rows,
        rows=lambda: rows,
        **more,
    )


def test_one_answer_in_four_formats() -> None:
    answer = an_answer(notes=(Note("c", f"see {Option('kv', 'fp8')}", assumption=True),))
    text = "Yes.\n\nSizes:\nid   GB\na    80\na|b   8\n\ntool:\n  --x 1\n\nAssumed: see kv='fp8'.\n"
    assert write(answer, OutputFormat.TABLE) == text
    table = "| id | GB |\n|:---|---:|\n| a | 80 |\n| a\\|b | 8 |"
    assert write(answer, OutputFormat.MARKDOWN) == (
        f"Yes.\n\nSizes:\n\n{table}\n\ntool:\n\n```\n--x 1\n```\n\n- Assumed: see kv='fp8'.\n"
    )
    assert json.loads(write(answer, OutputFormat.JSON)) == [{"a": "use tp=2"}]
    assert write(answer, OutputFormat.CSV) == "a\nuse tp=2\n"


@pytest.mark.parametrize(
    ("height", "shown", "more"),
    [(None, 3, "2 more notes"), (13, 2, "3 more notes"), (1, 0, "5 more notes")],
)
def test_notes_keep_to_the_height(height: int | None, shown: int, more: str) -> None:
    """Nine lines and a blank one, then a note a line and the last line: 13 hold two notes.

    Where nothing fits, the blank lines go as well.
    """
    found = tuple(Note("c", f"{n}") for n in range(5))
    lines = write(an_answer(notes=found, height=height), OutputFormat.TABLE).splitlines()
    assert [line for line in lines if line.startswith("Note")] == [
        f"Note: {n}." for n in range(shown)
    ]
    assert lines[-1] == f"{more}: notes"
    assert height is None or len(lines) <= max(height, 10)
    assert (height == 1) is ("" not in lines)
    every = write(an_answer(notes=found, height=height), OutputFormat.TABLE, Layout(all_notes=True))
    assert every.count("Note: ") == 5
    assert "more" not in every


def test_every_code_has_its_place_and_the_place_a_reason() -> None:
    codes = [code for _, group in ORDER for code in group]
    assert sorted(codes) == sorted(Code)
    assert all(len(reason) > 10 for reason, _ in ORDER)
    first_assumption = min(codes.index(code) for code in ASSUMED)
    assert codes.index(Code.SHIPPED_IS_FASTER) == 0 < first_assumption


def test_what_could_change_the_advice_comes_first() -> None:
    assumed = notice(Code.HOST_ASSUMED, host="a", name="b")
    doubtful = notice(Code.COUNTED_AT_END, where="log")
    contradicts = notice(Code.POSITIONS_DISAGREE, where="log", accepted=1.0, by_position=2.0)
    assert ranked([assumed, doubtful, contradicts, doubtful]) == [contradicts, doubtful, assumed]
    shown = notes([assumed, doubtful, contradicts])
    assert [note.code for note in shown] == ["positions-disagree", "counted-at-end", "host-assumed"]
