"""Log lines as people copy them: cut, wrapped, without counts. The refusal says what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.base.notices import Code
from roofline.engines.acceptance_source import acceptance_from, read_acceptance
from tests.support import Cli, assert_refused, write

#: vLLM 0.33's line, its counts made for AL 2.38: 138 accepted of 300 drafted in 100 passes.
VLLM = (
    "SpecDecoding metrics: Mean acceptance length: 2.38, Accepted throughput: 7.00 tokens/s, "
    "Drafted throughput: 15.00 tokens/s, Accepted: 138 tokens, Drafted: 300 tokens, "
    "Per-position acceptance rate: 0.720, 0.450, 0.210, Avg Draft acceptance rate: 46.0%"
)
LENGTH = "Mean acceptance length: 2.38"
POSITIONS = "Per-position acceptance rate: 0.720, 0.450, 0.210"
AVERAGE = "Avg Draft acceptance rate: 46.0%"
#: One line tells D: 1.56 / 0.52 is 3 drafts, while 2.56 / 0.52 - 1 = 3.92 (3.87 to 3.98) is none.
SGLANG = (
    "[2026-11-28 10:15:05 TP0] Decode batch, #running-req: 8, #token: 8192, token usage: 0.09, "
    "accept len: 2.56, accept rate: 0.52, cuda graph: True"
)
LLAMA_STATISTICS = (
    "statistics draft-mtp: #calls(b,g,a) = 1 203 203, #gen drafts = 203, #acc drafts = 172, "
    "#gen tokens = 405, #acc tokens = 308, #mean acc len = 2.52, #acc rate/pos = (0.847, 0.670)"
)
LLAMA_REQUEST = "draft acceptance = 0.76049 (  308 accepted /   405 generated), mean len =  2.52"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # vLLM
        (f"{LENGTH}, {AVERAGE}",
         ("no 'SpecDecoding metrics' line is whole: Accepted, Drafted, Per-position acceptance ",
          "rate are missing",
          "give --acceptance al:3=2.38, with the server's draft length in place of 3")),
        (AVERAGE, ("give --acceptance rate:3=0.46,",)),
        ("SpecDecoding metrics: nothing else", ("Mean acceptance length, Accepted, Drafted",)),
        # SGLang
        ("accept len: 2.53, accept rate: 0.51",
         ("no 'Decode batch' line is whole: Decode batch, #running-req are missing",
          "give --acceptance al:3=2.53,")),
        ("Decode batch, #token: 8192, accept len: 2.53", ("#running-req is missing",)),
        # llama.cpp
        ("draft acceptance = 0.76049, mean len =  2.52",
         ("accepted, generated are missing", "give --acceptance al:3=2.52,")),
        ("draft acceptance rate = 0.57576",
         ("accepted, generated are missing", "give --acceptance rate:3=0.5758,")),
        ("draft acceptance = 0.76049 (  308 accepted /   405 generated)",
         ("mean len is missing", "give --acceptance rate:3=0.76,")),
        ("#acc tokens = 308, #acc rate/pos = (0.847",
         ("no 'statistics' line is whole: #calls, #gen drafts, #gen tokens are missing",)),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    cli: Cli, tmp_path: Path, line: str, words: tuple[str, ...]
) -> None:
    """Through `acceptance read`, in a file and as the value of the option itself."""
    path = write(tmp_path, "server.log", f"an unrelated line\n{line}\n")
    told = assert_refused(cli("acceptance", "read", path), "server.log: ", *words)
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", line), *words)
    if "give --acceptance " in told:
        form = told.partition("give --acceptance ")[2].split(", ")[0].split(" ")[0]
        acceptance_from(form)  # it can be read


@pytest.mark.parametrize(
    ("line", "mean", "survival"),
    [
        ("Per-position acceptance rate: 0.6, 0.4", 2.0, (0.6, 0.4)),
        (f"SpecDecoding metrics: {LENGTH}, {POSITIONS}, {AVERAGE}", 2.38, (0.72, 0.45, 0.21)),
        (f"{LENGTH}, Accepted: 138 tokens, {POSITIONS}, {AVERAGE}", 2.38, (0.72, 0.45, 0.21)),
        ("#acc tokens = 308, #acc rate/pos = (0.847, 0.670)", 2.517, (0.847, 0.67)),
        ("Per-position acceptance (%):\n  Position 0:   76.70\n  Position 1:   51.51",
         2.2821, (0.767, 0.5151)),
    ],
)  # fmt: skip
def test_positions_alone_are_survival(
    cli: Cli, tmp_path: Path, line: str, mean: float, survival: tuple[float, ...]
) -> None:
    """1 + their sum; how many passes they are of is not known, so neither is a sampling error."""
    found = read_acceptance(write(tmp_path, "server.log", f"an unrelated line\n{line}\n"))
    assert found.tokens_per_step == pytest.approx(mean)
    assert found.survival == pytest.approx(survival)
    assert (found.draft_length, found.drafts, found.notices) == (len(survival), None, ())
    if "\n" not in line:
        asked = ("recommend", "llama-3.1-8b", "--acceptance", line, "--format", "json")
        rows = cli(*asked).by_draft_length()
        assert rows[len(survival)]["tokens_per_step"] == pytest.approx(mean)


def test_positions_that_contradict_the_mean_are_said(tmp_path: Path) -> None:
    line = f"{LENGTH}, Per-position acceptance rate: 0.720, 0.450, 0.310"  # 1 + 1.48
    found = read_acceptance(write(tmp_path, "server.log", line))
    assert [n.code for n in found.notices] == [Code.LENGTH_CONTRADICTS_POSITIONS]


def test_what_iterations_lack_is_named(cli: Cli, tmp_path: Path) -> None:
    """TensorRT-LLM's statistics, some keys left out of what was copied."""
    stats = {"numDraftTokens": 24, "numAcceptedTokens": 12, "acceptanceLength": 2.5}
    path = write(tmp_path, "stats.json", json.dumps([{"iter": 2, "specDecodingStats": stats}]))
    words = ("numRequestsWithDraftTokens is missing", "give --acceptance al:3=2.5,")
    assert_refused(cli("acceptance", "read", path), "stats.json: ", *words)
    stats = {"numRequestsWithDraftTokens": 8, "numDraftTokens": 24}
    path = write(tmp_path, "stats.json", json.dumps([{"iter": 2, "specDecodingStats": stats}]))
    assert_refused(cli("acceptance", "read", path), "numAcceptedTokens is missing")


@pytest.mark.parametrize(
    ("line", "mean", "length"),
    [(VLLM, 2.38, 3), (SGLANG, 2.56, 3), (LLAMA_STATISTICS, 1 + 308 / 203, 2)],
)
def test_a_wrapped_line_is_one_line(tmp_path: Path, line: str, mean: float, length: int) -> None:
    """Copied from a terminal of 80 columns: broken at spaces, indented."""
    words, rows = line.split(" "), [""]
    for word in words:
        if len(rows[-1]) + len(word) > 78:
            rows.append("  ")
        rows[-1] += f" {word}"
    assert len(rows) > 1
    found = read_acceptance(write(tmp_path, "pasted.txt", "\n".join(rows) + "\n"))
    assert found.draft_length == length
    assert found.tokens_per_step == pytest.approx(mean, abs=0.005)


@pytest.mark.parametrize("line", [VLLM, SGLANG, LLAMA_STATISTICS, LLAMA_REQUEST])
def test_a_line_may_be_the_value_of_the_option(cli: Cli, line: str) -> None:
    pasted = cli("recommend", "llama-3.1-8b", "--acceptance", line, "--format", "json")
    assert pasted.code == 0, pasted.err
    assert pasted.data()["acceptance"]["ambiguous"] is False


def test_throughputs_are_not_needed() -> None:
    """The same counts without the two throughputs: AL 2.38 at D = 3."""
    line = VLLM.replace("Accepted throughput: 7.00 tokens/s, ", "")
    line = line.replace("Drafted throughput: 15.00 tokens/s, ", "")
    made = acceptance_from(line)
    assert made.table[3] == pytest.approx(2.38, abs=0.001)


def test_parts_of_two_lines_are_not_put_together(tmp_path: Path) -> None:
    """Two cut lines with a field in common: neither is completed by the other."""
    lines = (
        "SpecDecoding metrics: Mean acceptance length: 2.38, Accepted: 138 tokens,\n"
        "SpecDecoding metrics: Mean acceptance length: 1.90, Drafted: 300 tokens, "
        "Per-position acceptance rate: 0.500, 0.400, Avg Draft acceptance rate: 45.0%\n"
    )
    found = read_acceptance(write(tmp_path, "a.log", lines))
    assert (found.survival, found.drafts) == ((0.5, 0.4), None)


def test_one_number_without_a_draft_length_names_the_form(cli: Cli) -> None:
    """An older SGLang prints AL alone: 2.74."""
    log = str(Path(__file__).parents[1] / "data" / "pages" / "sglang-older.log")
    outcome = cli("recommend", "llama-3.1-8b", "--acceptance", log)
    assert_refused(outcome, "--acceptance al:3=2.74, with that length in place of 3")


def test_other_texts_are_shown_the_forms(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "notes.txt", "our acceptance was about half\n")
    assert_refused(
        cli("acceptance", "read", path), "notes.txt", "--acceptance survival:0.72,0.45,0.21",
        "rate:3=0.54", "al:3=2.31",
    )  # fmt: skip
