"""How answers are printed: the answer first, in 80 columns and 40 lines, ranked notes below."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import GPU, ROOT, Cli, write

WIDTH, HEIGHT = 80, 40  # of a terminal
#: A batch or a goal beside a model, on every engine: dense, mixtures, hybrids, GGUF formats.
QUESTIONS = """
llama-3.1-8b
llama-3.1-8b --acceptance 0.7
llama-3.1-8b --engine sglang --acceptance 0.85 --gpu-hour 2
llama-3.1-8b --engine trtllm
llama-3.1-8b --batch 300 --context 512 --acceptance 0.6
llama-3.1-8b --batch 128 --context 1k --acceptance 0.8
llama-3.1-8b --acceptance 0.01
llama-3.1-8b --drafter none
llama-3.1-8b --set group_size=8 --acceptance 0.7
llama-3.1-8b --slo-tpot 6 --acceptance 0.8 --gpu-hour 2
llama-3.1-8b --target-tokens-per-s 3000
llama-3.1-8b --objective throughput --acceptance 0.8
llama-3.1-8b --gpu rtx-4090 --engine llamacpp --drafter llama-3.2-1b --acceptance 0.7
llama-3.1-70b --gpu h100-sxm --tp 4 --weights fp8 --batch 10,200 --context 8k
llama-3.1-70b --gpu h100-sxm --tp 4 --weights fp8 --batch 10,200 --context 8k --acceptance 0.8 --gpu-hour 2.5
llama-3.1-70b --gpu h200-sxm --tp 8 --kv fp8 --batch 64,4000 --context 32k --engine sglang
llama-3.1-70b --gpu rtx-4090 --engine llamacpp --gpus 2 --weights q4_k_m --drafter llama-3.2-1b --acceptance 0.6
deepseek-v3 --gpu h200-sxm --tp 8 --drafter mtp --acceptance 0.85 --weights fp8
deepseek-v3 --gpu h200-sxm --tp 8 --ep 8 --dp-attention 8 --drafter mtp --acceptance 0.85 --batch 256,20000 --engine sglang
deepseek-v3 --gpu b200-hgx --tp 8 --ep 8 --dp-attention 8 --drafter mtp --acceptance 0.85 --batch 256,20000 --engine trtllm
deepseek-v3 --gpu h200-sxm --tp 8 --drafter mtp --slo-tpot 30 --acceptance 0.8 --target-tokens-per-s 500
deepseek-v4-flash --gpu h200-sxm --tp 4 --drafter ngram --acceptance 0.6 --context 8k
qwen3-30b-a3b --gpu rtx-4090 --engine llamacpp --weights q4_k_m --drafter ngram --acceptance 0.6
qwen3-30b-a3b --gpu rtx-4090 --engine llamacpp --weights q4_k_m --drafter ngram --acceptance 0.6 --cpu-experts all --batch 1,500
qwen3-235b-a22b --gpu h200-sxm --tp 8 --batch 32,3000 --drafter eagle3
qwen3-235b-a22b --gpu h200-sxm --tp 8 --slo-tpot 20 --acceptance 0.8 --drafter eagle3
qwen3-next-80b-a3b-instruct --gpu h200-sxm --tp 2 --drafter mtp --acceptance 0.8 --batch 64,20000
gpt-oss-120b --gpu h200-sxm --drafter ngram --acceptance 0.6
gpt-oss-20b --gpu rtx-4090 --engine llamacpp --drafter ngram --acceptance 0.5 --context 32k --batch 1,64
gemma-3-27b-it --gpu mi300x --drafter ngram --acceptance 0.6
qwen3.6-27b --gpu l40s --tp 8 --batch 200 --context 2k
llama-4-scout --acceptance 0.7 --weights fp8 --gpu l40s --tp 8 --batch 200 --context 2k
llama-3.1-70b --gpu l40s --tp 8 --batch 100,200
llama-3.2-90b-vision --tp 4 --drafter ngram --acceptance 0.6
qwen3-8b --gpu apple-m4-max --engine vllm --drafter ngram --acceptance 0.4
qwen3-8b --drafter dspark --batch 8,4000
qwen3-8b --drafter qwen3-0.6b --acceptance 0.6 --batch 128 --context 2k
phi-4 --gpu a100-sxm-80gb --weights fp8 --drafter ngram --acceptance 0.5
""".strip().splitlines()  # noqa: E501
#: How an answer begins, after the place where there is more than one point.
VERDICT = re.compile(
    r"(Batch \d+, context \w+: )?(Run draft length \d|Do not speculate: |Plain decoding: )|Goal \("
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_for_one_point_fits_a_terminal(cli: Cli, question: str) -> None:
    outcome = cli("recommend", *question.split())
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert VERDICT.match(lines[0]), lines[0]
    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH
    assert outcome.err == ""


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("recommend llama-3.1-70b --gpu h100-sxm --tp 4 --weights fp8 --batch 10,200 --context 8k",
         "Does not fit: batch 200 at 8k tokens needs "),
        (("recommend qwen3-32b --gpu rtx-4090 --engine llamacpp --weights q4_k_m --drafter ngram"
         " --acceptance 0.5 --batch 1,64"), "Does not fit: batch 64 at 4k tokens "),
        ("schedule qwen3-32b --gpu h200-sxm --batches 1..200", "Does not fit: batch "),
    ],
)  # fmt: skip
def test_short_says_what_does_not_fit(cli: Cli, command: str, refused: str) -> None:
    lines = cli(*command.split(), "--short").out.splitlines()
    assert [line for line in lines if line.startswith(refused)] == lines[1:]
    assert len(lines) == 2


def test_the_order_of_an_answer(cli: Cli) -> None:
    """Two points fit and one does not: the refusal stands right below the first headline."""
    ask = ("recommend", "llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--weights", "fp8")
    given = ("--acceptance", "llama-3.1-8b-eagle3", "--format", "table")
    out = cli(*ask, *given, "--batch", "1,10,200", "--context", "8k").out
    order = (
        "Batch 1, context 8k: Run draft length",
        "Does not fit: batch 200",
        "Llama 3.1 70B",
        "per step",
        "*: advised.",
        "Why: ",
        "Odds of",
        "vLLM:\n",
        "Batch 10, context 8k: Run draft length",
        "\nNote: ",
    )
    places = [out.index(words) for words in order]
    assert places == sorted(places)
    assert out.count("Does not fit") == out.count("*: advised.") == 1


#: Engines with a drafter each, one with flags in JSON and one with a text in YAML.
FLAGS = {
    "vllm": ("eagle3",),
    "sglang": ("eagle3",),
    "trtllm": ("eagle3",),
    "llamacpp": ("llama-3.2-1b", "--acceptance", "0.7", "--gpu", "rtx-4090"),
}


def pasted(out: str, name: str) -> str:
    """Return the lines below an engine's name, as one copies them."""
    return out.partition(f"\n{name}:\n")[2].partition("\n\n")[0]


@pytest.mark.parametrize("engine", FLAGS)
def test_broken_flags_can_be_pasted(cli: Cli, tmp_path: Path, engine: str) -> None:
    """A shell reads the lines that are printed as it reads the one of JSON and of a file."""
    ask = ("recommend", "llama-3.1-8b", "--engine", engine, "--drafter", *FLAGS[engine])
    flag = cli(*ask, "--format", "json").point()["flag"]
    name = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "llamacpp": "llama.cpp"}
    text = pasted(cli(*ask).out, name[engine])
    assert max(map(len, text.splitlines())) <= WIDTH
    if engine == "trtllm":
        assert yaml.safe_load(text) == yaml.safe_load(flag)
    else:
        echo = ["sh", "-c", f"for word in {text.strip()}; do printf '%s\\0' \"$word\"; done"]
        words = subprocess.run(echo, capture_output=True, check=True, text=True).stdout
        read, expected = words.split("\0")[:-1], shlex.split(flag)
        assert [values(word) for word in read] == [values(word) for word in expected]
    for suffix in ("txt", "md"):
        file = tmp_path / f"a.{suffix}"
        assert cli(*ask, "-o", str(file)).code == 0
        assert flag in file.read_text()
    assert flag in cli(*ask, "--format", "markdown").out


def values(word: str) -> object:
    """Return JSON as its values, another word as it is."""
    return json.loads(word) if word.startswith("{") else word


def notes_of(out: str) -> list[str]:
    """Return the notes of an answer in text."""
    return re.findall(r"^(?:Note|Assumed): ", out, re.MULTILINE)


NOTED = ("recommend", "llama-3.1-70b", "--tp", "4", "--gpu", "b100", "--weights", "q2_k")


def test_three_notes_and_the_others_where_they_are_asked_for(cli: Cli) -> None:
    few, every = cli(*NOTED), cli(*NOTED, "--notes")
    data = cli(*NOTED, "--format", "json").data()
    assert len(notes_of(few.out)) <= 3 < len(notes_of(every.out)) <= len(data["notes"])
    more = len(notes_of(every.out)) - len(notes_of(few.out))
    assert few.out.endswith(f"\n{more} more note{'s' if more > 1 else ''}: --notes\n")
    assert "Constants: " not in few.out
    assert "Constants: " in every.out
    assert {note["text"] for note in data["notes"]} >= set(data["warnings"])
    assert [note["text"] for note in data["notes"] if not note["assumption"]]
    assert all(note.keys() == {"code", "text", "assumption"} for note in data["notes"])


def test_a_csv_has_its_notes_on_stderr(cli: Cli) -> None:
    done = cli(*NOTED, "--format", "csv")
    said = [line for line in done.err.splitlines() if line.startswith(("note: ", "assumed: "))]
    every = cli(*NOTED, "--format", "json").data()["notes"]
    assert len(said) > 3
    assert len(" ".join(done.err.split())) >= sum(len(note["text"]) for note in every[: len(said)])
    assert max(map(len, done.err.splitlines())) <= 80
    assert list(csv.DictReader(io.StringIO(done.out)))
    quiet = cli(*NOTED, "--format", "csv", "--quiet")
    assert (quiet.out, quiet.err) == (done.out, "")


def test_quiet_silences_all_but_errors(cli: Cli, tmp_path: Path) -> None:
    file = str(tmp_path / "a.json")
    talk = cli("recommend", "llama-3.1-8b", "-o", file).err
    assert talk.startswith("Run draft length")  # what is in the file, in a sentence
    assert talk.endswith(f"wrote {file}\n")
    assert cli("recommend", "llama-3.1-8b", "-o", file, "-q").err == ""
    assert cli("recommend", "llama-9", "-q").err.startswith("roofline: unknown model")


SHORT = {
    "recommend llama-3.1-8b --batch 1,8": 2,
    "recommend llama-3.1-8b --rps 1 --input-tokens 500 --output-tokens 100": 1,
    "recommend llama-3.1-8b --slo-tpot 9": 1,
    "schedule llama-3.1-8b --batches 1..8": 1,
    "compare llama-3.1-8b --batch 1,8": 2,
    "memory llama-3.1-8b --context 1k,2k,4k": 3,
    "explore llama-3.1-8b --vary group_size=2,4": 1,
    "diagnose llama-3.1-8b --measured 0:7.9ms": 1,
}


@pytest.mark.parametrize("command", SHORT)
def test_short_is_the_headline_alone(cli: Cli, command: str) -> None:
    """A line for each point, and the first words of the whole answer."""
    short, whole = cli(*command.split(), "--short"), cli(*command.split())
    lines = short.out.splitlines()
    assert len(lines) == SHORT[command]
    assert short.err == ""
    assert " ".join(whole.out.split()).startswith(lines[0])
    for line in lines:
        assert " ".join(line.split()) in " ".join(whole.out.split())


@pytest.mark.parametrize("command", SHORT)
@pytest.mark.parametrize("more", [(), ("--notes",)])
def test_every_answer_fits_eighty_columns(cli: Cli, command: str, more: tuple[str, ...]) -> None:
    outcome = cli(*command.split(), *more)
    words = [line for line in outcome.out.splitlines() if "http" not in line]
    assert max(map(len, words)) <= WIDTH


@pytest.mark.parametrize("command", SHORT)
def test_every_answer_comes_in_four_formats(cli: Cli, command: str) -> None:
    """Headline, notes and JSON have the same words; a CSV has a row at least."""
    headline = cli(*command.split(), "--short").out.splitlines()[0]
    assert cli(*command.split(), "--format", "markdown").out.startswith(f"**{headline}")
    data = cli(*command.split(), "--format", "json").data()
    assert isinstance(data["notes"], list)
    if "--slo-tpot" in command:  # a goal has no rows of its own
        return
    rows = list(csv.DictReader(io.StringIO(cli(*command.split(), "--format", "csv").out)))
    assert rows
    assert all(None not in row and None not in row.values() for row in rows)


def on_a_terminal(
    *arguments: str, stream: str = "stdout", code: int = 0, **environment: str
) -> str:
    """Return what a terminal of 80 columns shows of a stream."""
    ours, theirs = pty.openpty()
    settings = {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"} | environment
    inherited = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    command = [sys.executable, "-m", "roofline", *arguments]
    out, err = (theirs, None) if stream == "stdout" else (subprocess.DEVNULL, theirs)
    done = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT, env=inherited | settings)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert done.wait() == code
    return shown.decode().replace("\r\n", "\n")


def test_colours_are_for_terminals_alone(cli: Cli) -> None:
    ask = ("recommend", "llama-3.1-8b")
    piped = cli(*ask).out
    shown = on_a_terminal(*ask)
    assert shown.startswith("\x1b[1mRun draft length ")
    assert "\x1b" not in piped
    assert re.sub(r"\x1b\[\d*m", "", shown) == piped
    assert on_a_terminal(*ask, NO_COLOR="1") == piped


@pytest.mark.parametrize(
    "command",
    [
        "recommend qwen3", "recommend qwen3-8b --acceptance survival:0.9,0.95",
        "recommend llama-3.1-8b --an-option-that-no-command-of-them-all-takes",
        "hardware check broken.yaml",
    ],
)  # fmt: skip
def test_a_refusal_is_wrapped_on_a_terminal_alone(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    broken = write(tmp_path, "broken.yaml", GPU.replace("64 GB", "a great many gigabytes, or more"))
    words = command.replace("broken.yaml", broken).split()
    lines = cli(*words).err.splitlines()
    assert lines
    assert all(line.startswith("roofline: ") for line in lines)
    shown = on_a_terminal(*words, stream="stderr", code=2)
    assert max(map(len, lines)) > WIDTH
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert shown.split() == " ".join(lines).split()


@pytest.mark.parametrize(
    ("gpu", "part"), [("h100", "h100-sxm"), ("b200", "b200-hgx"), ("v100", "v100-sxm2-32gb")]
)
@pytest.mark.parametrize("more", [(), ("--slo-tpot", "200")])
def test_what_a_name_means_is_said_once(
    cli: Cli, gpu: str, part: str, more: tuple[str, ...]
) -> None:
    ask = ("recommend", "qwen3-0.6b", "--gpu", gpu, "--batch", "1,4,16", *more)
    if more:
        ask = ("recommend", "qwen3-0.6b", "--gpu", gpu, *more)
    said = f"({gpu} means {part}.)"
    short = cli(*ask, "--short").out
    assert short.splitlines()[0].endswith(said)
    whole = " ".join(cli(*ask).out.split())
    for text in (short, whole):
        assert text.count(said) == 1
    assert "means" not in cli(*[part if word == gpu else word for word in ask], "--short").out


def test_why_nothing_is_drafted_is_said_once(cli: Cli) -> None:
    whole = " ".join(cli("recommend", "mistral-7b-v0.3", "--batch", "1,4").out.split())
    assert whole.count("No drafter is bundled for mistral-7b-v0.3") == 1
    assert whole.count("Plain decoding: ") == 2


def test_notes_of_a_goal_are_of_the_points_that_meet_it(cli: Cli) -> None:
    """Batches up to 1024 are tried; those past the graphs concern nobody at a batch of a few."""
    ask = ("recommend", "llama-3.1-8b", "--context", "256", "--acceptance", "0.8")
    data = cli(*ask, "--slo-tpot", "4.5", "--format", "json").data()
    (choice,) = data["goal"]["choices"]
    tried = cli(*ask, "--batch", "512", "--format", "json").data()
    assert {note["code"] for note in tried["notes"]} >= {"past-graphs"}
    named = {
        int(batch)
        for note in data["notes"]
        for found in re.findall(r"batch(?:es)? ([\d, ]+)", note["text"])
        for batch in found.strip(", ").split(", ")
    }
    assert named <= {choice["batch"]}


def test_what_the_headline_says_is_not_noted_again(cli: Cli) -> None:
    """The head's config ends at 2048 positions: once in the headline, and in JSON as a note."""
    outcome = cli("recommend", "llama-3.1-8b", "--notes")
    assert outcome.out.count("positions") == 1
    codes = {
        note["code"]
        for note in cli("recommend", "llama-3.1-8b", "--format", "json").data()["notes"]
    }
    assert "beyond-trained-context" in codes


#: Models whose checkpoints ship in a format that is faster than the one asked for.
SHIPPED = {
    "gpt-oss-120b --gpu h200-sxm --tp 2 --batch 8": ("bf16", "mxfp4"),
    "gpt-oss-120b --gpu b200-hgx --tp 2 --batch 8": ("bf16", "mxfp4"),
    "qwen3-30b-a3b-fp8 --gpu h100-sxm": ("bf16", "fp8-block"),
}


def test_a_narrow_cache_that_ships_is_named(cli: Cli) -> None:
    """Kimi-K2.5-NVFP4 ships an fp8 cache (its hf_quant_config.json)."""
    ask = ("recommend", "kimi-k2.5-nvfp4", "--gpu", "b200-hgx", "--tp", "8", "--context", "64k")
    done = cli(*ask, "--drafter", "none", "--batch", "8", "--kv", "bf16")
    assert "ships as fp8 KV: leave --kv bf16 out" in done.said


@pytest.mark.parametrize("question", SHIPPED)
def test_a_faster_format_that_ships_is_named_first(cli: Cli, question: str) -> None:
    """The plain steps that it names are those of the same question asked in both ways."""
    asked, shipped = SHIPPED[question]
    ask = ("recommend", *question.split(), "--drafter", "ngram", "--acceptance", "0.5")
    typed = cli(*ask, "--weights", asked)
    data = cli(*ask, "--weights", asked, "--format", "json").data()
    slow, fast = (
        next(row["step_ms"] for row in whole["points"][0]["by_draft_length"])
        for whole in (data, cli(*ask, "--format", "json").data())
    )
    assert slow > 1.02 * fast
    assert data["notes"][0]["code"] == "shipped-is-faster"
    said = f"ships as {shipped}: leave --weights {asked} out (a plain step takes {fast:.3g} ms then"
    assert said in data["notes"][0]["text"]
    assert said in typed.said
    assert "save memory, not time" not in typed.said


#: Every other question that takes formats, and what it needs beside a model on its GPU.
FORMAT_QUESTIONS = (
    "recommend MODEL --acceptance 0.5 --rps 1 --input-tokens 400 --output-tokens 200 --notes",
    "recommend MODEL --acceptance 0.5 --slo-tpot 1000 --notes",
    "schedule MODEL --acceptance 0.5 --batches 1..16 --notes",
    "memory MODEL --acceptance 0.5 --notes",
    "compare MODEL --drafter ngram=0.5 --notes",
    "explore MODEL --acceptance 0.5 --vary model.max_context=16k,32k --notes",
    "sweep MODEL --acceptance 0.5 -o x.csv",
    "diagnose MODEL --measured 0@1x4k:30ms --notes",
    "report MODEL --acceptance 0.5 -o x.html",
    "plot speedup MODEL --acceptance 0.5 -o x.png --notes",
    "plot roofline MODEL -o x.png --notes",
)


@pytest.mark.parametrize("question", FORMAT_QUESTIONS)
@pytest.mark.parametrize("asked", ["--weights fp8", "--kv fp16"])
def test_every_question_names_the_format_that_ships(
    cli: Cli, question: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen's FP8 checkpoints have scales of blocks and, as their config.json says, a bf16 cache."""
    monkeypatch.chdir(tmp_path)
    model = "qwen3-30b-a3b-fp8 --gpu h100-sxm"
    if "ngram" not in question and not question.startswith("diagnose"):
        model += " --drafter ngram"
    done = cli(*question.replace("MODEL", model).split(), *asked.split())
    assert done.code == 0, done.err
    shipped = {"--weights fp8": "fp8-block", "--kv fp16": "bf16 KV"}[asked]
    assert f"ships as {shipped}: leave {asked} out" in " ".join((done.out + done.err).split())


@pytest.mark.parametrize(
    ("question", "said"),
    [
        # both 16-bit formats have one rate on NVIDIA's parts (datasheets) and two bytes
        ("qwen3-14b --gpu h100-sxm --weights fp16", True),
        # CDNA3 multiplies both with one rate, and no table tells them apart
        ("deepseek-v3 --gpu mi300x --tp 8 --weights fp8", True),
        # faster by vLLM's tables on B200, but not what the checkpoint holds
        ("deepseek-v3 --gpu b200-hgx --tp 8 --weights fp8", True),
        ("llama-3.1-8b --gpu h100-sxm --weights fp8", False),  # narrower than what ships
        ("qwen3-8b --gpu h100-sxm --weights bf16", False),  # what ships
        ("qwen3-8b-fp16 --gpu h100-sxm", False),  # no option to leave out
    ],
)
def test_a_format_as_wide_as_the_shipped_one_is_named(cli: Cli, question: str, said: bool) -> None:
    done = cli("recommend", *question.split(), "--drafter", "none", "--notes")
    assert done.code == 0, done.err
    assert ("ships as" in " ".join(done.said.split())) is said


def test_a_format_that_gains_is_not_doubted(cli: Cli) -> None:
    for question in ("llama-3.1-8b --weights fp8", "qwen3-30b-a3b-fp8 --weights fp8-block"):
        ask = ("recommend", *question.split(), "--drafter", "none", "--format", "json")
        codes = {note["code"] for note in cli(*ask).data()["notes"]}
        assert "shipped-is-faster" not in codes


@pytest.mark.parametrize(
    ("machine", "remedies"),
    [
        ("llama-3.1-70b --gpu h100-sxm --tp 4 --weights fp8 --batch 10,200", "--kv fp8"),
        ("qwen3-8b --gpu rtx-4090 --engine llamacpp --drafter ngram --batch 1,40", "--kv q8_0"),
    ],
)
@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_refused_batch_stands_at_the_top_with_its_remedies(
    cli: Cli, machine: str, remedies: str, form: str
) -> None:
    """Each remedy names the largest batch that fits with it, as JSON has it."""
    ask = ("recommend", *machine.split(), "--acceptance", "0.5", "--context", "8k")
    done = cli(*ask, "--format", form)
    assert done.code == 0
    top = " ".join(done.out.partition("Why:")[0].partition("|")[0].split())
    (refused,) = cli(*ask, "--format", "json").data()["refused"]
    assert f"Does not fit: batch {refused['batch']} at 8k tokens needs" in top
    assert f": batch {refused['largest_batch']} as asked" in top.partition("What fits")[2]
    named = {
        " ".join(f"{c['option']} {c['value']}" for c in [*r["beside"], r]): r["largest_batch"]
        for r in refused["remedies"]
    }
    assert remedies in named
    for option, batch in named.items():
        assert f"{batch} with {option}" in top
    assert named[remedies] > 1.5 * refused["largest_batch"]
