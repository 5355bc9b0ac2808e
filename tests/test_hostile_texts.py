"""Text made to do harm later: formulas in cells, codes for a terminal, digits that are none."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from roofline.base.errors import Option, spelled
from roofline.base.files import csv_text
from tests.support import ACCEPTANCE, DRAFTER, GPU, MODEL, ROOT, Cli, write


@pytest.mark.parametrize("digits", ["\u00b2", "9" * 5000, "\u0663", "1\x1f", "0x1", "1_0"])
@pytest.mark.parametrize(
    "flag",
    [
        "--batch", "--context", "--tp", "--set model.layers.D.repeat", "--set layers",
        "--cpu-experts", "--acceptance al:D", "--tensor-split", "--max-draft-length",
        "--acceptance-rounds", "--batches-histogram D:1",
    ],
)  # fmt: skip
def test_odd_digits(cli: Cli, flag: str, digits: str) -> None:
    """Some characters count as digits and are no numbers; some numbers are too long to read."""
    name, _, form = flag.partition(" ")
    text = form.replace("D", digits) if "D" in form else digits
    value = f"{form}={digits}" if form == "layers" else f"{text}=2" if form else text
    more = ["--gpus", "2"] if name == "--tensor-split" else []
    engine = ["--engine", "llamacpp", *more] if name in ("--cpu-experts", "--tensor-split") else []
    model = "qwen3-30b-a3b" if name == "--cpu-experts" else "llama-3.1-8b"
    outcome = cli(
        "recommend", model, "--drafter", "ngram", "--acceptance", "0.7", *engine, name, value
    )
    assert outcome.code in (0, 2, 3), outcome  # Arabic digits are digits
    assert "Traceback" not in outcome.err


#: What OWASP's page on CSV injection lists, and what stays text or number.
FORMULAS = (
    "=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0", "-cmd|' /C calc'!A0",
    '=HYPERLINK("http://x")', '--WEBSERVICE("http://x")', "-a!b",
)  # fmt: skip
HARMLESS = ("a=1", "1+1", "-1.5", "+3", "-2e-3", "--tp 2", "'{\"a\": 1}'", "", "x-y", "0.5,0.4")


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(text: str) -> None:
    (row,) = list(csv.reader(io.StringIO(csv_text([{text: text}]), newline="")))[1:]
    assert row == ["'" + text.replace("\r", " ")]  # a bare CR would begin a new row


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_cells_are_unchanged(text: str) -> None:
    (row,) = list(csv.reader(io.StringIO(csv_text([{"a": text, "b": 1}]))))[1:]
    assert row == [text, "1"]


@pytest.mark.parametrize(
    "command",
    [
        ("recommend", "--format", "csv"),
        ("compare", "--drafter", "ngram=ACCEPTANCE", "--format", "csv"),
        ("explore", "--vary", "batch_size=1,2", "--format", "csv"),
        ("schedule", "--format", "csv"),
        ("sweep", "--format", "csv"),
        ("recommend", "--rps", "1", "--input-tokens", "100", "--output-tokens", "100",
         "--set", "gpu.memory.capacity=2 GB", "--format", "csv"),
        ("plot", "speedup", "--data", "OUT"),
    ],
)  # fmt: skip
def test_names_of_a_user_s_files_as_cells(
    cli: Cli, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Every free text of every file is a formula; no cell of any CSV begins as one."""
    evil = "=cmd|' /C calc'!A0"
    free = {"name", "vendor", "architecture", "generation", "form_factor", "source", "license"}

    def armed(text: str) -> str:
        lines = text.splitlines()
        keys = [line.partition(":")[0] for line in lines]
        return "\n".join(
            f'{key}: "{evil}"' if key in free else line
            for key, line in zip(keys, lines, strict=True)
        )

    model = write(tmp_path, "tiny.yaml", armed(MODEL))
    head = write(tmp_path, "head.yaml", armed(DRAFTER))
    gpu = write(tmp_path, "gpu.yaml", armed(GPU))
    curve = armed(ACCEPTANCE) + f'\ndataset: "{evil}"\ndrafter: "{evil}"\n'
    acceptance = write(tmp_path, "a.yaml", curve)
    given = [
        part.replace("ACCEPTANCE", acceptance).replace("OUT", str(tmp_path / "out.csv"))
        .replace("batch_size", "layers")
        for part in command
    ]  # fmt: skip
    own = ["--drafter", head, "--acceptance", acceptance] if command[0] != "compare" else []
    if command[0] == "plot":
        given.insert(2, model)
    else:
        given.insert(1, model)
    context = [] if "--rps" in command else ["--context", "1k"]
    if command[0] == "schedule":
        context = ["--contexts", "1k", "--batches", "1..16"]
    outcome = cli(*given, *own, "--gpu", gpu, *context)
    assert outcome.code == 0, outcome.err
    text = (tmp_path / "out.csv").read_text() if command[0] == "plot" else outcome.out
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) > 1
    for value in (value for row in rows for value in row):
        assert not value.startswith(("=", "+", "@", "\t", "\r")), value


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x07", "\x9b31m", "\u202e", "\x7f"])
def test_escape_codes_stay_out_of_the_terminal(cli: Cli, tmp_path: Path, evil: str) -> None:
    """From argument, JSON config and file name; YAML is refused with them (above)."""
    config = json.loads((ROOT / "model_configs" / "Qwen--Qwen3-8B.json").read_text())
    path = write(tmp_path, f"a{evil}b.json", json.dumps(config | {f"odd{evil}": 1, "quant": evil}))
    for command in (
        ("models", "check", path),
        ("recommend", path, "--acceptance", "0.7", "--drafter", "ngram", "--context", "1k"),
        ("recommend", "llama-3.1-8b", "--gpu", f"h200{evil}"),
        ("recommend", "llama-3.1-8b", "--set", f"model.name{evil}=1"),
        ("models", "check", path, "--format", "json"),
    ):
        outcome = cli(*command)
        assert evil not in outcome.out + outcome.err, command


def test_rows_that_are_none_make_an_empty_csv() -> None:
    assert csv_text([]) == ""
    assert csv_text([{"a": 1}]) == "a\n1\n"


#: What an option once looked like inside a text, and what templates look like.
BRACES = ("{{kv}}", "{{kv|fp8}}", "{{batch|8}}")


@pytest.mark.parametrize("text", BRACES)
def test_a_text_in_braces_stays_what_was_typed(cli: Cli, tmp_path: Path, text: str) -> None:
    """In refusals, tables, JSON and CSV; the options that a text names are still spelled."""
    refused = cli("recommend", text)
    assert f"unknown model '{text}'" in refused.err
    assert text in cli("recommend", "qwen3-8b", "--drafter", text).err
    model = write(tmp_path, "tiny.yaml", MODEL.replace("name: Tiny", f"name: '{text}'"))
    asked = ("recommend", model, "--acceptance", "0.7", "--drafter", "ngram", "--context", "1k")
    for form in ("table", "markdown"):
        out = cli(*asked, "--format", form).out
        assert text in out, form
        assert "--kv" not in out.replace("--kv-cache-dtype", ""), form
    curve = write(tmp_path, "a.yaml", ACCEPTANCE + f'dataset: "{text}"\n')
    shown = cli("acceptance", "show", curve, "--format", "json").data()
    assert shown["dataset"] == text
    spelled = cli("recommend", "llama-3.1-8b", "--tp", "64")
    assert "--tp 64" in spelled.err


def test_an_option_in_json_is_spelled() -> None:
    """JSON writes what stands around an option escaped, and doubles a backslash of the user."""
    written = json.dumps({"text": f"use {Option('tp', 8)}, not {{{{tp}}}} or \\ufdd0tp\\ufdd2"})
    assert json.loads(spelled(written)) == {"text": "use tp=8, not {{tp}} or \\ufdd0tp\\ufdd2"}
