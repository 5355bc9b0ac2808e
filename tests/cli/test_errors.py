"""Bad input on the command line: one line on stderr, the right exit code, nothing half-written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import DRAFTER, MODEL, ROOT, Cli, assert_refused, write


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # unknown and misspelt names
        ("nothing-like-it", ("model", "nothing-like-it")),
        ("llama-3.1-8", ("llama-3.1-8", "did you mean", "llama-3.1-8b")),
        ("llama-3.1-8b --gpu h1000", ("h1000", "did you mean", "h100-sxm")),
        ("llama-3.1-8b --gpu tpu9", ("GPU", "tpu9")),
        ("llama-3.1-8b --weights f8", ("--weights", "f8", "did you mean", "fp8")),
        ("llama-3.1-8b --kv fp17", ("--kv", "fp17")),
        ("llama-3.1-8b --activations bf61", ("--activations", "bf61", "bf16")),
        ("llama-3.1-8b --draft-weights fp9", ("--draft-weights", "fp9")),
        ("llama-3.1-8b --drafter egale3", ("drafter", "egale3", "did you mean", "eagle3")),
        ("llama-3.1-8b --drafter x", ("unknown drafter", "of which none, ngram", "eagle3")),
        ("llama-3.1-8b --engine vlm", ("engine", "vlm", "did you mean", "vllm")),
        ("llama-3.1-8b --verify-attention kv_one", ("--verify-attention", "kv_one", "kv_once")),
        ("llama-3.1-8b --format jsn", ("--format", "jsn", "json")),
        ("llama-3.1-8b-eagle3", ("llama-3.1-8b-eagle3", "drafter")),
        ("llama-3.1-8b --btach 3", ("--btach",)),
        # acceptance
        ("llama-3.1-8b --acceptance 1.2", ("--acceptance", "0 and 1", "1.2")),
        ("llama-3.1-8b --acceptance -0.1", ("--acceptance", "-0.1")),
        ("llama-3.1-8b --acceptance 0.8,1.1", ("--acceptance", "1.1")),
        ("llama-3.1-8b --acceptance nan", ("--acceptance", "nan")),
        ("llama-3.1-8b --acceptance inf", ("--acceptance", "inf")),
        ("llama-3.1-8b --acceptance 0.8,,0.7", ("--acceptance",)),
        ("llama-3.1-8b --acceptance high", ("--acceptance", "high")),
        ("llama-3.1-8b --acceptance al:2.1", ("--acceptance al:2.1", "al:3=2.1?")),
        ("llama-3.1-8b --acceptance al:1=2.1", ("--acceptance", "D=1", "1 to 2", "2.1")),
        ("llama-3.1-8b --acceptance al:3=0.99", ("--acceptance", "D=3", "1 to 4", "0.99")),
        ("llama-3.1-8b --acceptance al:2=2.3,2=2.4", ("--acceptance", "twice")),
        ("llama-3.1-8b --acceptance al:x=2", ("--acceptance", "x=2")),
        ("llama-3.1-8b --acceptance al:0=1", ("--acceptance", "'0'")),
        ("llama-3.1-8b --acceptance al:", ("--acceptance",)),
        ("llama-3.1-8b --drafter peagle", ("--acceptance", "peagle")),
        ("llama-2-7b --drafter medusa", ("--drafter: vLLM 0.33", "--engine vllm@0.32")),
        ("llama-2-7b --drafter medusa --engine vllm@0.32", ("--acceptance", "medusa")),
        ("mistral-7b-v0.3 --acceptance 0.7", ("--drafter", "mistral-7b-v0.3")),
        # numbers
        ("llama-3.1-8b --batch 0", ("--batch", "0", "at least 1")),
        ("llama-3.1-8b --batch -1", ("--batch", "-1")),
        ("llama-3.1-8b --batch 1.5", ("--batch", "1.5")),
        ("llama-3.1-8b --batch 1e3", ("--batch", "1e3")),
        ("llama-3.1-8b --batch 1,,2", ("--batch",)),
        ("llama-3.1-8b --batch 8,8", ("--batch", "twice")),
        ("llama-3.1-8b --batch 99999999999999999999", ("--batch",)),
        ("llama-3.1-8b --batch 1234567890123", ("--batch", "at most 12 digits, got 13")),
        ("llama-3.1-8b --slo-tpot nan", ("--slo-tpot nan: expected a finite number above 0",)),
        ("llama-3.1-8b --slo-tpot -2ms", ("--slo-tpot -2:", "above 0")),
        ("llama-3.1-8b --target-tokens-per-s inf", ("--target-tokens-per-s inf:", "finite")),
        ("llama-3.1-8b --acceptance no/such.csv", ("no/such.csv: no such file",)),
        ("llama-3.1-8b --acceptance ./such", ("./such: no such file",)),
        ("llama-3.1-8b -o x.csv --format json", ("its ending says csv, --format says json",)),
        ("llama-3.1-8b -o x.md --format table", ("its ending says markdown, --format says table",)),
        ("llama-3.1-8b --weights q9", ("--weights", "q9", "fp8-block", "q4_k_m")),
        ("llama-3.1-8b --context 0", ("--context", "0")),
        ("llama-3.1-8b --context 8q", ("--context", "8q")),
        ("llama-3.1-8b --context 129k", ("--context", "132096", "131072")),
        ("qwen3-8b --context 64k", ("--context", "65536", "40960")),
        ("llama-3.1-8b --max-draft-length -1", ("--max-draft-length", "-1")),
        ("llama-3.1-8b --max-draft-length 9999", ("--max-draft-length", "9999")),
        # tensor parallelism
        ("llama-3.1-8b --tp 0", ("--tp", "0")),
        ("llama-3.1-8b --tp 3", ("--tp", "3", "32", "heads")),
        ("llama-3.1-8b --tp 16", ("--tp", "16", "8")),
        ("llama-3.1-8b --tp two", ("--tp",)),
        ("llama-3.1-8b --tp 2 --draft-tp 4", ("--draft-tp", "4", "2")),
        ("llama-3.1-8b --tp 6 --gpu h100-sxm", ("--tp", "6", "32")),
        # pairs that do not belong together
        ("llama-3.1-8b --drafter qwen3-0.6b --acceptance 0.7", ("151936", "128256", "qwen3-0.6b")),
        ("llama-3.1-70b --gpu h200-sxm --tp 4 --drafter llama-3.1-8b-eagle3", ("4096", "8192")),
        ("qwen3-8b --drafter llama-3.1-8b-eagle3", ("128256", "151936")),
        # usage
        ("", ("model",)),
        ("llama-3.1-8b qwen3-8b", ("qwen3-8b",)),
    ],
)  # fmt: skip
def test_refused_with_one_line(cli: Cli, arguments: str, words: tuple[str, ...]) -> None:
    line = assert_refused(cli("recommend", *arguments.split()), *words)
    assert len(line) <= 170


@pytest.mark.parametrize(
    "arguments",
    [
        "hardware show h1000", "hardware check nope", "hardware list --format xml",
        "models show llama", "models check nope", "models list --format yaml",
        "advise", "--nope", "hardware nope",
    ],
)  # fmt: skip
def test_other_commands_refuse_alike(cli: Cli, arguments: str) -> None:
    assert_refused(cli(*arguments.split()))


def test_help_without_arguments_is_help(cli: Cli) -> None:
    """``roofline`` alone shows the help as it is meant to be read, not folded into an error."""
    outcome = cli()
    shown = outcome.out + outcome.err
    assert "recommend" in shown
    assert shown.count("\n") > 5
    assert "roofline: Usage" not in shown


@pytest.mark.parametrize("flag", ["--help", "-h", "--version"])
def test_help_and_version(cli: Cli, flag: str) -> None:
    outcome = cli(flag)
    assert outcome.code == 0
    assert outcome.err == ""
    assert "roofline" in outcome.out


def test_a_newline_in_a_name_stays_on_one_line(cli: Cli) -> None:
    assert_refused(cli("recommend", "evil\nroofline: all is well"), "evil")


def test_escape_codes_do_not_reach_the_terminal(cli: Cli) -> None:
    line = assert_refused(cli("recommend", "evil\x1b[2J"), "evil")
    assert "\x1b" not in line


def test_draft_vocabulary_unlike_the_target(cli: Cli, tmp_path: Path) -> None:
    model = write(tmp_path, "tiny.yaml", MODEL)
    text = DRAFTER.replace("\nvocab_size: 1000", "\nvocab_size: 999")
    outcome = cli(
        "recommend", model, "--context", "1k", "--drafter", write(tmp_path, "head.yaml", text),
        "--acceptance", "0.7",
    )  # fmt: skip
    assert_refused(outcome, "tiny-head", "999", "1000")


def test_a_draft_model_must_hold_the_context(cli: Cli, tmp_path: Path) -> None:
    """The context is beyond the draft model (2048), though not beyond its target (4096)."""
    model = write(tmp_path, "tiny.yaml", MODEL)
    text = MODEL.replace("id: tiny", "id: tinier").replace("max_context: 4096", "max_context: 2048")
    draft = write(tmp_path, "tinier.yaml", text)
    base = ("recommend", model, "--drafter", draft, "--acceptance", "0.7", "--context")
    assert cli(*base, "2k").code == 0
    outcome = cli(*base, "4k")
    assert outcome.code == 2 or "tinier" in outcome.err
    assert "2048" in outcome.err


def test_does_not_fit_is_exit_three(cli: Cli) -> None:
    assert_refused(cli("recommend", "llama-3.1-70b"), "llama-3.1-70b", "h100-sxm", code=3)


UNWRITABLE = ["absent/answer.json", "file.txt/answer.json", "folder.json"]


@pytest.mark.parametrize("name", UNWRITABLE)
def test_unwritable_output(cli: Cli, tmp_path: Path, name: str) -> None:
    """A folder that is not there, a file taken for a folder, a folder in the way."""
    (tmp_path / "file.txt").write_text("kept")
    (tmp_path / "folder.json").mkdir()
    before = sorted(tmp_path.rglob("*"))
    outcome = cli(
        "recommend", "llama-3.1-8b", "--context", "1k", "--acceptance", "0.7", "-o",
        str(tmp_path / name),
    )  # fmt: skip
    assert_refused(outcome, "-o", Path(name).name)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file.txt").read_text() == "kept"


def test_unwritable_output_is_one_line_even_with_warnings(cli: Cli, tmp_path: Path) -> None:
    """At 4k the head's 2048 trained positions earn a warning; a refusal is still one line."""
    outcome = cli("recommend", "llama-3.1-8b", "-o", str(tmp_path / "absent" / "x.json"))
    assert_refused(outcome, "-o")


def test_an_unknown_ending_is_refused(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "answer.xlsx"
    assert_refused(cli("recommend", "llama-3.1-8b", "-o", str(target)), "-o", ".json")
    assert not target.exists()


@pytest.mark.parametrize("call", ["replace", "fsync", "fdopen"])
def test_a_failure_midway_leaves_the_old_file(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A full disk, simulated at each step of writing."""
    target = tmp_path / "answer.json"
    target.write_text("the old answer")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "replace":
        monkeypatch.setattr(Path, "replace", full)
    else:
        monkeypatch.setattr(os, call, full)
    outcome = cli(
        "recommend", "llama-3.1-8b", "--context", "1k", "--acceptance", "0.7", "-o", str(target)
    )
    monkeypatch.undo()
    assert_refused(outcome, "-o", "No space left")
    assert target.read_text() == "the old answer"
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]


def test_a_refused_question_leaves_the_old_file(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    target.write_text("the old answer")
    assert_refused(cli("recommend", "llama-3.1-8b", "--tp", "3", "-o", str(target)), "--tp")
    assert_refused(cli("recommend", "llama-3.1-70b", "-o", str(target)), code=3)
    assert target.read_text() == "the old answer"


@pytest.mark.parametrize("start", [["-m", "roofline"], ["cli.py"]])
def test_a_real_process_fails_the_same_way(start: list[str]) -> None:
    """The exit code and the streams as a shell sees them, from both ways to start."""
    done = subprocess.run(
        [sys.executable, *start, "recommend", "llama-3.1-8b", "--gpu", "h1000"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("roofline: ")
    assert done.stderr.count("\n") == 1
    assert "h100-sxm" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("recommend qwen3-8b --batch 8 --batch 16", "--batch: given twice (8 and 16)"),
        ("recommend qwen3-8b --batch 8 --batch 16", "give it once, as 8,16"),
        ("recommend qwen3-8b --gpu a --gpu=b --gpu c", "--gpu: given 3 times (a, b and c)"),
        ("models show qwen3-8b --format json --format table", "--format: given twice"),
        ("plot parity -o a.png --output b.png", "--output: given twice (a.png and b.png)"),
        ("report qwen3-8b -oa.html -ob.html", "--output: given twice; give it once"),
    ],
)
def test_an_option_given_twice_is_refused(cli: Cli, arguments: str, words: str) -> None:
    assert_refused(cli(*arguments.split()), words)


def test_the_secret_of_an_address_given_twice_is_not_shown(cli: Cli) -> None:
    url = "http://me:secret@host/metrics?key=secret"
    arguments = ("--acceptance", url, f"--acceptance={url}")
    assert "secret" not in assert_refused(cli("recommend", "qwen3-8b", *arguments), "given twice")


def test_repeatable_options_repeat(cli: Cli) -> None:
    twice = ("--set", "layers=8", "--set", "group_size=2", "--explain", "--explain")
    asked = ("llama-3.1-8b", "--drafter", "ngram", "--acceptance", "0.6", "--context", "1k")
    assert cli("recommend", *asked, *twice).code == 0
    sweep = cli("sweep", *asked, "--batch", "1", "--batch", "2").out.splitlines()
    assert len(sweep) == 1 + 2 * 9  # two batches, D = 0 to 8
