"""docs/asks.md: the answers to public questions are what the tool says today.

``python -m tests.test_public_answers`` writes them anew.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.support import ROOT, Cli

_ROW = re.compile(
    r"^\| (?P<ask>[^|]+) \| [^|]+ \| `roofline (?P<command>[^`]+)` \| (?P<answer>.+) \|$"
)
ROWS = [
    found.groupdict()
    for line in (ROOT / "docs" / "asks.md").read_text("utf-8").splitlines()
    if (found := _ROW.match(line))
]
#: Which side of 1 the askers measured, at the draft length that they ran.
MEASURED = {
    "vllm 48627": {3: "slower"},  # 0.79x
    "vllm 46295": {4: "slower", 8: "slower"},  # K = 4: -15 %
    "vllm 8439": {5: "slower"},  # 0.89x
    "llama.cpp 25908": {3: "slower"},
    "hackmd 19 configs": {1: "slower", 4: "slower"},  # 59 to 67 of 135.7 tok/s
    "sglang 5502": {3: "faster"},  # 1.5x
    "sglang 3582": {1: "faster"},  # 1.76x
    "vllm 9565": {3: "faster"},
}


def test_the_page_has_the_questions() -> None:
    assert len(ROWS) >= 19
    assert set(MEASURED) <= {row["ask"] for row in ROWS}


def test_the_notes_are_about_the_rows() -> None:
    """Each `project number` in bold in "What each shows" has its row."""
    page = (ROOT / "docs" / "asks.md").read_text("utf-8")
    notes = page.partition("## What each shows")[2].partition("\n## ")[0]
    asks = {row["ask"] for row in ROWS}
    named = set()
    for title in re.findall(r"^- \*\*(.+?)\*\*", notes, re.MULTILINE):
        project = ""
        for item in title.split(", "):
            words = item.split(" ")
            project = words[0] if not words[0].isdigit() else project
            named.add(f"{project} {words[-1]}" if words[-1].isdigit() else project)
    assert len(named) > 10
    assert {name for name in named if not any(ask.startswith(name) for ask in asks)} == set()


@pytest.mark.parametrize("row", ROWS, ids=[row["ask"] for row in ROWS])
def test_answers(cli: Cli, row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    point = cli(*shlex.split(row["command"]), "--format", "json").point()
    by_length = {each["draft_length"]: each for each in point["by_draft_length"]}
    stated = re.match(r"D = (\d+) \((\w+)\)", row["answer"])
    assert stated is not None
    assert (point["draft_length"], point["confidence"]) == (int(stated[1]), stated[2])
    for length, speedup in re.findall(r"D (\d+): ([\d.]+)x", row["answer"]):
        assert f"{by_length[int(length)]['speedup']:.2f}" == speedup
    for length, side in MEASURED.get(row["ask"], {}).items():
        assert (by_length[length]["speedup"] > 1) == (side == "faster")


def test_longer_drafts_turn_over_at_smaller_batches(cli: Cli) -> None:
    """vllm 17984: the reversal comes earlier for longer drafts."""
    answer = cli(
        "recommend", "llama-3.1-70b", "--tp", "4", "--drafter", "llama-3.2-1b", "--acceptance",
        "0.5", "--batch", "1,16,64", "--context", "1k", "--format", "json",
    ).data()  # fmt: skip
    best = [point["draft_length"] for point in answer["points"]]
    assert best == sorted(best, reverse=True)
    assert best[0] > best[-1]


def test_a_cache_read_for_every_row_costs_more_with_context(cli: Cli) -> None:
    """omlx 2127: depth-k drafts collapse past 8k where each row reads the cache anew."""
    command = ["recommend", "qwen3.5-9b", "--gpu", "rtx-3090", "--engine", "llamacpp", "--weights",
               "q4_k_m", "--drafter", "mtp", "--acceptance", "0.6", "--context", "4k,128k",
               "--format", "json"]  # fmt: skip
    speed = {}
    for mode in ("kv_once", "kv_per_query"):
        points = cli(*command, "--verify-attention", mode).data()["points"]
        speed[mode] = [point["by_draft_length"][5]["speedup"] for point in points]
    assert speed["kv_per_query"][1] < 0.7 * speed["kv_per_query"][0]
    assert speed["kv_once"][1] > 0.9 * speed["kv_once"][0]


def test_the_drafter_takes_memory(cli: Cli) -> None:
    """vllm 22624: a separate draft costs slots; 1.7B + 0.6B on one GPU."""
    command = ["recommend", "qwen3-1.7b", "--gpu", "a10", "--drafter", "qwen3-0.6b", "--acceptance",
               "0.7", "--context", "32k", "--batch", "4", "--format", "json"]  # fmt: skip
    with_draft = cli(*command)
    assert "do not fit beside the drafter" in with_draft.said
    assert with_draft.point()["draft_length"] == 0


def rewrite() -> None:
    """Replace each row's answer by today's, at the draft lengths that it shows."""
    page = ROOT / "docs" / "asks.md"
    text = page.read_text("utf-8")
    for row in ROWS:
        command = [
            sys.executable,
            "-m",
            "roofline",
            *shlex.split(row["command"]),
            "--format",
            "json",
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        (point,) = json.loads(done.stdout)["points"]
        by_length = {each["draft_length"]: each["speedup"] for each in point["by_draft_length"]}
        shown = [int(length) for length in re.findall(r"D (\d+): ", row["answer"])]
        cells = ", ".join(f"D {length}: {by_length[length]:.2f}x" for length in shown)
        answer = f"D = {point['draft_length']} ({point['confidence']}); {cells}"
        text = text.replace(f"`roofline {row['command']}` | {row['answer']} |",
                            f"`roofline {row['command']}` | {answer} |")  # fmt: skip
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
