"""Files made to do harm: refused in one line, soon, in bounded memory, and nothing run.

What fuzzing finds lies in ``tests/data/fuzz``; here are the attacks that have a name.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import gguf_file
from tests.fuzz import attempt, kept
from tests.fuzz_parsers import PARSERS
from tests.support import Cli, Outcome, assert_refused, in_own_process, limits, write

MILLION = 1_000_000


def _laughs(name: str = "a") -> bytes:
    lines = [f"{name}0: &{name}0 [ha, ha]"]
    lines += [f"{name}{i}: &{name}{i} [{', '.join([f'*{name}{i - 1}'] * 9)}]" for i in range(1, 30)]
    return "\n".join(lines).encode()


def _wide(separator: str, columns: int = MILLION) -> bytes:
    return separator.join(f"c{i}" for i in range(columns)).encode() + b"\nx" + b",x" * (columns - 1)


def _gguf(tensors: int, keys: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest


def _key(value_type: int, value: bytes) -> bytes:
    return gguf_file.text("a") + struct.pack("<I", value_type) + value


YAML: dict[str, Callable[[], bytes]] = {
    "billion laughs": _laughs,
    "an alias of itself": lambda: b"a: &a [*a]\n",
    "merged keys": lambda: b"a: &a {x: 1}\nb: {<<: *a}\n",
    "a million keys": lambda: b"".join(b"k%d: 1\n" % i for i in range(MILLION)),
    "all keys that fit": lambda: b"".join(b"k%d: 1\n" % i for i in range(370_000)),
    "a key twice among many": lambda: b"".join(b"k%d: 1\n" % (i % 90_000) for i in range(90_001)),
    "a million deep": lambda: b"[" * MILLION,
    "deep by indentation": lambda: b"".join(b" " * i + b"a:\n" for i in range(2000)),
    "code": lambda: b"a: !!python/object/apply:os.system ['touch PWNED']\n",
    "a module": lambda: b"a: !!python/module:os\n",
    "a huge number": lambda: b"schema: " + b"9" * 3_900_000,
    "escape codes": lambda: b'schema: 1\nid: "a\\e[2J"\n',
    "text that runs backwards": "schema: 1\nid: a\u202eb\n".encode,
}  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "kind"),
    [*(("model", kind) for kind in YAML), ("acceptance", "billion laughs"),
     ("acceptance", "a million deep")],
)  # fmt: skip
def test_yaml(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, flag: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "x.yaml", YAML[kind]())
    command = {
        "model": ("models", "check", path),
        "acceptance": ("recommend", "llama-3.1-8b", "--acceptance", path),
    }[flag]
    with limits():
        outcome = cli(*command)
    _refused(outcome, "x.yaml")
    assert not (tmp_path / "PWNED").exists()


def _refused(outcome: Outcome, name: str) -> None:
    line = assert_refused(outcome, name)
    assert len(line) < 1000
    assert line.isprintable()


JSON: dict[str, Callable[[], bytes]] = {
    "a million keys": lambda: b"{" + b",".join(b'"k%d":1' % i for i in range(MILLION)) + b"}",
    "a million deep": lambda: b'{"a":' * MILLION + b"1" + b"}" * MILLION,
    "a million lists": lambda: b'{"a":' + b"[" * MILLION + b"]" * MILLION + b"}",
    "a huge number": lambda: b'{"hidden_size": ' + b"9" * 3_000_000 + b"}",
    "a float beyond floats": lambda: b'{"hidden_size": 1e999999999}',
    "a long text": lambda: b'{"model_type": "' + b"\\u001b" * 600_000 + b'"}',
}


@pytest.mark.parametrize("kind", JSON)
@pytest.mark.parametrize("use", ["config", "acceptance"])
def test_json(cli: Cli, tmp_path: Path, kind: str, use: str) -> None:
    path = write(tmp_path, "config.json", JSON[kind]())
    command = ("models", "check") if use == "config" else ("acceptance", "read")
    with limits():
        outcome = cli(*command, path)
    _refused(outcome, "config.json")


GGUF: dict[str, bytes] = {
    "tensors without end": _gguf(2**63, 0),
    "200,000 tensors in no bytes": _gguf(200_000, 0, b"\x00" * 100),
    "keys without end": _gguf(0, 2**64 - 1),
    "a name of an exabyte": _gguf(0, 1, struct.pack("<Q", 2**60)),
    "a text of an exabyte": _gguf(0, 1, _key(8, struct.pack("<Q", 2**60))),
    "a list of an exabyte": _gguf(0, 1, _key(9, struct.pack("<IQ", 4, 2**62))),
    "4 billion numbers": _gguf(0, 1, _key(9, struct.pack("<IQ", 12, 2**32))),
    "a million texts in no bytes": _gguf(0, 1, _key(9, struct.pack("<IQ", 8, MILLION))),
    "lists of lists": _gguf(0, 1, _key(9, struct.pack("<IQ", 9, 2**20))),
    "a text that wraps around": _gguf(0, 1, _key(9, struct.pack("<IQQ", 8, 2, 2**64 - 8))),
    "five dimensions": _gguf(1, 0, gguf_file.tensor("t", (1, 1, 1, 1, 1), 0)),
    "4 billion dimensions": _gguf(1, 0, gguf_file.text("t") + struct.pack("<I", 2**32 - 1)),
    "a negative size": _gguf(1, 0, gguf_file.tensor("t", (2**64 - 1,), 0)),
}


@pytest.mark.parametrize("kind", GGUF)
def test_gguf(cli: Cli, tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, "x.gguf", GGUF[kind])
    with limits(seconds=5, memory=200 << 20):  # nothing is read that is only announced
        outcome = cli("models", "check", path)
    _refused(outcome, "x.gguf")


CSV: dict[str, Callable[[], bytes]] = {
    "a million columns": lambda: _wide(","),
    "a million columns and names": lambda: (
        b"batch,context,draft_length,step_ms," + _wide(",", 700_000)
    ),
    "one field of megabytes": lambda: (
        b"batch,context,draft_length,step_ms\n1,1,1," + b"9" * 3_000_000
    ),
    "a quote that never ends": lambda: b'batch,context,draft_length,step_ms\n"' + b"1\n" * 400_000,
    "a million empty lines": lambda: b"\n" * MILLION,
    "zero bytes": lambda: b"batch,context,draft_length,step_ms\n\x00,1,1,1\n",
    "numbers beyond floats": lambda: (
        b"batch,context,draft_length,step_ms\n" + b"9" * 4000 + b",1,1,1\n"
    ),
    "a number in other digits": "batch,context,draft_length,step_ms\n1,1,1,\u221e".encode,
}  # fmt: skip


@pytest.mark.parametrize(
    ("use", "kind"),
    [*(("steps", kind) for kind in CSV)]
    + [(use, kind) for use in ("rows", "histogram", "trace") for kind in list(CSV)[::2]],
)
def test_csv(cli: Cli, tmp_path: Path, kind: str, use: str) -> None:
    path = write(tmp_path, "x.csv", CSV[kind]())
    command = {
        "steps": ("calibrate", "fit-steps", path, "llama-3.1-8b"),
        "rows": ("calibrate", "fit", path, "-o", str(tmp_path / "out.yaml")),
        "histogram": ("recommend", "llama-3.1-8b", "--batches-histogram", path),
        "trace": ("recommend", "llama-3.1-8b", "--trace", path),
    }[use]
    with limits():
        outcome = cli(*command)
    _refused(outcome, "x.csv")
    assert not (tmp_path / "out.yaml").exists()


SERIES = "vllm:spec_decode_num_drafts_total"
PAGES: dict[str, Callable[[], bytes]] = {
    "a million series": lambda: b"".join(
        b'%s{engine="%d"} 1\n' % (SERIES.encode(), i) for i in range(MILLION)
    ),
    "a million series under 10 MB": lambda: b"".join(
        b"sglang:spec_%x 1\n" % i for i in range(450_000)
    ),
    "a label of megabytes": lambda: SERIES.encode() + b'{m="' + b"x" * 5_000_000 + b'"} 1\n',
    "a million labels": lambda: (
        SERIES.encode() + b"{" + b",".join(b'l%d=""' % i for i in range(700_000)) + b"} 1\n"
    ),
    "a line of backslashes": lambda: SERIES.encode() + b'{m="' + b"\\" * 3_000_000 + b'"} 1\n',
    "a number beyond floats": lambda: SERIES.encode() + b" 1e999\n",
    "other series": lambda: b"".join(b"up_%d 1\n" % i for i in range(700_000)),
}


@pytest.mark.parametrize("kind", PAGES)
def test_metrics(cli: Cli, tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, "page.prom", PAGES[kind]())
    with limits():
        outcome = cli("acceptance", "read", path)
    _refused(outcome, "page.prom")


@pytest.mark.parametrize(
    "text",
    [
        "batch: [" + ", ".join(["1..1000000"] * 1000) + "]",
        "batch: 1..999999999999",
        "context: 1..999999999999m*1.0000001",
        "tp: [" + ", ".join(f"{i}" for i in range(300_000)) + "]",
        "cases: [" + ", ".join(["{tp: 1}"] * 200_000) + "]",
        "model: ../../../etc/passwd",
        "gpu: /dev/zero",
        "acceptance: http://127.0.0.1:9/metrics",
    ],
    ids=lambda text: text[:20],
)
def test_grids(cli: Cli, tmp_path: Path, text: str) -> None:
    """Axes without end, names that lead elsewhere: nothing is priced, nothing is fetched."""
    model = "" if text.startswith("model") else "model: llama-3.1-8b\n"
    path = write(tmp_path, "grid.yaml", f"schema: 1\n{model}{text}\n")
    output = tmp_path / "out.csv"
    with limits():
        outcome = cli("sweep", "--grid", path, "-o", str(output))
    assert_refused(outcome)
    assert [file.name for file in tmp_path.iterdir()] == ["grid.yaml"]


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("x.yaml", YAML["a million deep"], ("models", "check", "FILE")),
        ("x.json", JSON["a million deep"], ("models", "check", "FILE")),
        ("x.gguf", lambda: GGUF["4 billion numbers"], ("models", "check", "FILE")),
        ("x.csv", CSV["a million columns"], ("calibrate", "fit-steps", "FILE", "llama-3.1-8b")),
        ("x.prom", PAGES["a label of megabytes"], ("acceptance", "read", "FILE")),
        (
            "grid.yaml",
            lambda: b"schema: 1\nmodel: llama-3.1-8b\ncases: [" + b"{tp: 1}, " * 200_000 + b"]\n",
            ("sweep", "--grid", "FILE"),
        ),
    ],
    ids=["yaml", "json", "gguf", "csv", "metrics", "grid"],
)
def test_each_parser_in_a_process_of_its_own(
    tmp_path: Path, name: str, content: Callable[[], bytes], command: tuple[str, ...]
) -> None:
    """A blown C stack would show as a signal; the process has little memory from its start."""
    path = write(tmp_path, name, content())
    _refused(in_own_process(*(path if word == "FILE" else word for word in command)), name)


def test_limits_stop_what_takes_too_long_or_too_much() -> None:
    with pytest.raises(pytest.fail.Exception, match="longer"), limits(seconds=0.01):
        time.sleep(60)
    with pytest.raises(pytest.fail.Exception, match="longer"), limits(seconds=0.1):
        sum(0 for _ in range(10**10))  # minutes
    with pytest.raises(MemoryError), limits(memory=100 << 20):
        bytes(200 << 20)
    assert len(bytes(200 << 20)) == 200 << 20  # afterwards nothing is limited


@pytest.mark.parametrize("name", PARSERS)
def test_kept_inputs_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    parser = PARSERS[name]
    inputs = kept(name)
    assert inputs, "make fuzz keeps its inputs in tests/data/fuzz"
    for label, content in inputs.items():
        refusal = attempt(parser, content, tmp_path)
        if refusal is not None:  # the command line joins a message's lines into one
            assert len(" ".join(refusal.split())) < 2000, label


@pytest.mark.parametrize("name", PARSERS)
def test_fuzzing_starts_from_examples_that_are_read(name: str, tmp_path: Path) -> None:
    # some bundled curves hold several data sets and ask for one
    refusals = [attempt(PARSERS[name], example, tmp_path) for example in PARSERS[name].seeds()]
    assert None in refusals
