"""Broken and hostile YAML: refused with one line that names the file and the place."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from roofline.base.errors import InputError
from roofline.base.schema import Document, dump_yaml, load_yaml
from tests.support import DRAFTER, GPU, MODEL, ROOT, Cli, assert_refused, write

LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)


class Named(Document):
    """A file with a name in it."""

    name: str


def test_a_file_is_parsed_again_when_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("schema: 1\nname: one\n", encoding="utf-8")
    first = Named.load(file)
    assert Named.load(file) is first
    other = tmp_path / "b.yaml"  # as files are written here: beside it, then moved over it
    other.write_text("schema: 1\nname: two\n", encoding="utf-8")
    other.replace(file)
    assert (first.name, Named.load(file).name) == ("one", "two")


def test_lines_of_a_text_stay_lines() -> None:
    written = dump_yaml({"table": "a: 1 2\nb: 3\n"})
    assert written == "table: |\n  a: 1 2\n  b: 3\n"
    assert load_yaml(Memory(written.encode())) == {"table": "a: 1 2\nb: 3\n"}


@dataclass(frozen=True)
class Memory:
    """A file that lies nowhere."""

    content: bytes
    name: str = "memory.yaml"

    def read_bytes(self) -> bytes:
        return self.content


@dataclass(frozen=True)
class Locked:
    """A file that the system will not open."""

    name: str = "locked.yaml"

    def read_bytes(self) -> bytes:
        raise PermissionError(13, "Permission denied", self.name)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("is empty", "key: value")),
        (b"# nothing\n", ("is empty", "key: value")),
        (b"- a\n- b\n", ("list",)),
        (b"just text\n", ("a text",)),
        (b"3\n", ("a number",)),
        (b"a: 1\nb: 2\na: 3\n", (":3", "'a'", "twice")),
        (b"x: {b: 1, b: 2}\n", (":1", "'b'", "twice")),
        (b"a: &x 1\nb: *x\n", ("anchors and aliases",)),
        (LAUGHS.encode(), ("anchors and aliases",)),
        (b"a: !!python/object/apply:os.system ['true']\n", (":1", "python/object")),
        (b"a: !thing 1\n", (":1", "!thing")),
        (b"a: !!timestamp 2001-01-01\n", (":1", "timestamp")),
        (b"a: !!binary aGk=\n", (":1", "binary")),
        (b"a: !!int 12:30\n", (":1", "int")),
        (b"a: !!float .inf\n", (":1", "float")),
        (b"a: !!set {x, y}\n", (":1", "set")),
        (b"a:" + b" [" * 50 + b"]" * 50 + b"\n", ("deep",)),
        (b"a: " + b"[" * 100_000 + b"\n", ("memory.yaml",)),
        (b"a: {" * 900 + b"}" * 900, ("memory.yaml",)),
        (b"a: \xff\xfe\n", ("memory.yaml", "not valid YAML")),
        (b"\xff\xfea\x00", ("memory.yaml",)),
        (b"a: \x00\n", ("not valid YAML",)),
        (b"a: [1, 2\nb: 3\n", (":2", "not valid YAML")),
        (b"a: 'open\n", ("not valid YAML",)),
        (b"a: 1\n\tb: 2\n", (":2", "not valid YAML")),
        (b"a: 1\n---\nb: 2\n", ("not valid YAML",)),
        (b"? [a, b]\n: 1\n", ("key",)),
        (b"# " + b"x" * 5_000_000 + b"\na: 1\n", ("over 4000000", "4000000")),
    ],
)
def test_refused(content: bytes, words: tuple[str, ...]) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        load_yaml(Memory(content))
    message = str(caught.value)
    assert message.startswith("memory.yaml")
    assert "\n" not in message
    for word in words:
        assert word in message
    assert time.perf_counter() - start < 5  # refused, not expanded


def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(InputError, match=r"locked\.yaml: cannot be read \(Permission denied\)"):
        load_yaml(Locked())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # YAML 1.1 turns these into other things: 10, 750, True, a date, 1000, a float
        ("012", "012"),
        ("12:30", "12:30"),
        ("yes", "yes"),
        ("on", "on"),
        ("2001-01-01", "2001-01-01"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("0x1F", "0x1F"),
        # and these are what they look like
        ("12", 12),
        ("-3", -3),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("'12'", "12"),
    ],
)
def test_plain_values_mean_what_they_look_like(text: str, value: object) -> None:
    loaded = load_yaml(Memory(f"a: {text}\n".encode()))["a"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_an_exponent_is_never_a_silent_text() -> None:
    """PyYAML's trap: 1e12 loads as text. A number or a refusal will do, a text would pass on."""
    assert load_yaml(Memory(b"a: 1e12\n"))["a"] in (1e12, "1e12")


def test_written_yaml_is_read_again() -> None:
    data = {"schema": 1, "id": "x", "nested": {"a": [1, 2.5, None, True], "b": "12:30"}, "t": "yes"}
    assert load_yaml(Memory(dump_yaml(data).encode())) == data


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("schema: 1", "schema: 2", ("schema", "expected 1")),
        ("schema: 1", "schema: true", ("schema",)),
        ("schema: 1", "schema: '1'", ("schema",)),
        ("schema: 1\n", "", ("schema", "add 'schema: 1'")),
        ("hidden_size: 512", "hiden_size: 512", ("hiden_size", "did you mean 'hidden_size'")),
        ("name: Tiny", "name: Tiny\nvocab_sizes: 3", ("vocab_sizes", "did you mean 'vocab_size'")),
        ("hidden_size: 512\n", "", ("hidden_size", "missing")),
        ("hidden_size: 512", "hidden_size: true", ("hidden_size", "integer", "True")),
        ("hidden_size: 512", "hidden_size: '512'", ("hidden_size", "integer", "'512'")),
        ("hidden_size: 512", "hidden_size: 512.5", ("hidden_size", "integer")),
        ("hidden_size: 512", "hidden_size: 0", ("hidden_size", "greater than 0")),
        ("hidden_size: 512", "hidden_size: -1", ("hidden_size", "greater than 0")),
        ("hidden_size: 512", "hidden_size: 1e999", ("hidden_size",)),
        ("hidden_size: 512", "hidden_size: .inf", ("hidden_size", "integer")),
        ("hidden_size: 512", "hidden_size: 012", ("hidden_size", "integer")),
        ("hidden_size: 512", "hidden_size: [512]", ("hidden_size", "integer")),
        ("hidden_size: 512", "hidden_size: 99999999999999999999999", ("hidden_size",)),
        ("tie_embeddings: false", "tie_embeddings: 0", ("tie_embeddings", "boolean")),
        ("dtype: bf16", "dtype: bf17", ("dtype", "bf16")),
        ("dtype: bf16", "dtypes: {heads: fp8}", ("dtypes",)),
        ("num_kv_heads: 2", "num_kv_heads: 3", ("num_heads 8", "multiple", "3")),
        ("kind: gqa", "kind: magic", ("layers.0.attention",)),
        ("repeat: 2", "repeat: 0", ("layers.0.repeat",)),
        ("name: Tiny", "name: 5", ("name", "string")),
    ],
)
def test_bad_models(cli: Cli, tmp_path: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    assert old in MODEL
    path = write(tmp_path, "bad.yaml", MODEL.replace(old, new, 1))
    assert_refused(cli("recommend", path, "--drafter", "none"), "bad.yaml", *words)
    assert_refused(cli("models", "check", path), "bad.yaml", *words)


def test_a_model_without_layers(cli: Cli, tmp_path: Path) -> None:
    text = MODEL[: MODEL.index("layers:")] + "layers: []\n"
    assert_refused(cli("models", "check", write(tmp_path, "bad.yaml", text)), "bad.yaml", "layers")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("1 TB/s", "1", ("memory.bandwidth.value", "4.8 TB/s", "got 1")),
        ("1 TB/s", "1 TB", ("memory.bandwidth.value", "4.8 TB/s")),
        ("1 TB/s", "-1 TB/s", ("memory.bandwidth.value",)),
        ("1 TB/s", "0 TB/s", ("memory.bandwidth.value", "greater than 0")),
        ("1 TB/s", "1e999 TB/s", ("memory.bandwidth.value", "finite")),
        ("1 TB/s", "nan TB/s", ("memory.bandwidth.value",)),
        ("1 TB/s", "1.2.3 TB/s", ("memory.bandwidth.value",)),
        ("64 GB", "64 GFLOP/s", ("memory.capacity.value", "80 GB")),
        ("bf16: {value: 100 TFLOP/s", "bf61: {value: 100 TFLOP/s", ("compute.peaks.bf61",)),
        ("source: here}\n  band", "source: there}\n  band", ("memory.capacity.source", "there")),
        ("{value: 64 GB, source: here}", "{value: 64 GB}", ("memory.capacity.source", "missing")),
        ("confidence: from-memory", "confidence: sure", ("sources.here.confidence",)),
        ("domain_size: 64", "domain_size: 0", ("interconnect.domain_size",)),
        ("vendor: Nobody", "vendour: Nobody", ("vendour", "did you mean 'vendor'")),
        ("kind: HBM", "kind: HBM\n  bandwith: 3", ("bandwith", "did you mean 'bandwidth'")),
    ],
)
def test_bad_accelerators(
    cli: Cli, tmp_path: Path, old: str, new: str, words: tuple[str, ...]
) -> None:
    assert old in GPU
    path = write(tmp_path, "bad.yaml", GPU.replace(old, new, 1))
    assert_refused(cli("hardware", "check", path), "bad.yaml", *words)
    assert_refused(cli("recommend", "llama-3.1-8b", "--gpu", path), "bad.yaml", *words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("draft_vocab_size: 500", "draft_vocab_size: 1001", ("draft_vocab_size 1001", "1000")),
        ("taps: 3", "taps: 0", ("fusion.taps",)),
        ("taps: 3", "tap: 3", ("fusion",)),
        ("kind: eagle3", "kind: eagle9", ("kind",)),
    ],
)
def test_bad_drafters(cli: Cli, tmp_path: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    assert old in DRAFTER
    model = write(tmp_path, "tiny.yaml", MODEL)
    path = write(tmp_path, "bad.yaml", DRAFTER.replace(old, new, 1))
    outcome = cli("recommend", model, "--context", "1k", "--drafter", path, "--acceptance", "0.7")
    assert_refused(outcome, "bad.yaml", *words)


@pytest.mark.parametrize("flag", ["MODEL", "--gpu", "--drafter", "--acceptance", "--engine"])
@pytest.mark.parametrize("what", ["hostile", "folder", "absent", "empty"])
def test_every_file_that_a_flag_names(cli: Cli, tmp_path: Path, flag: str, what: str) -> None:
    """The same one line wherever a YAML path may stand."""
    path = tmp_path / "x.yaml"
    if what == "hostile":
        path.write_text(LAUGHS)
    elif what == "folder":
        path.mkdir()
    elif what == "empty":
        path.touch()
    arguments = [str(path)] if flag == "MODEL" else ["llama-3.1-8b", flag, str(path)]
    assert_refused(cli("recommend", *arguments), "x.yaml")


def test_a_tag_never_runs_code(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    text = f"schema: 1\nid: !!python/object/apply:os.system ['touch {trace}']\n"
    assert_refused(cli("models", "check", write(tmp_path, "evil.yaml", text)), "evil.yaml")
    assert not trace.exists()


def test_depth_does_not_crash_the_interpreter(tmp_path: Path) -> None:
    """A process of its own, so that a blown C stack would show as a signal."""
    path = write(tmp_path, "deep.yaml", b"{a: " * 200_000)
    done = subprocess.run(
        [sys.executable, "-m", "roofline", "models", "check", path],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("roofline: deep.yaml")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("models", "show"), ("hardware", "check")])
def test_a_file_of_gigabytes_is_refused_unread(
    cli: Cli, tmp_path: Path, command: tuple[str, str]
) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(1 << 40)  # a hole: it could not be read whole
    assert_refused(cli(*command, str(huge)), "huge.yaml", "over 4000000 bytes")


@pytest.mark.parametrize("stream", ["stdin", "stderr"])
def test_a_closed_stream_is_no_traceback(stream: str) -> None:
    number = {"stdin": "<&-", "stderr": "2>&-"}[stream]
    line = f"{sys.executable} -m roofline hardware list {number}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert not done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a: "x\\e[0m"\n', "a text holds a control character; remove it"),
        ('"a\\e": 1\n', "a key holds a control character; remove it"),
        ("a: [" + "1, " * 150_001 + "1]\n", "more than 150000 keys and values"),
    ],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_yaml(Path(write(tmp_path, "a.yaml", text)))
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)
