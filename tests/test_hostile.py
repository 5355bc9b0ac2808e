"""Files and names made to do harm: refused in one line, soon, in bounded memory, and nothing run.

What fuzzing finds lies in ``tests/data/fuzz``; here are the attacks that have a name.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roofline.csvtext import csv_text
from tests import gguf_file
from tests.support import ACCEPTANCE, DRAFTER, ENGINE, GPU, MODEL, ROOT, Cli, assert_refused, write

SECONDS = 20.0  # of one core, start included; on an idle machine the slowest takes 4
MEMORY = 3 << 30  # address space of a run [B]
MILLION = 1_000_000


def in_narrow_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with little memory and time; a crash shows as a signal."""

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))

    return subprocess.run(
        [sys.executable, "-m", "roofline", *arguments],
        capture_output=True, text=True, cwd=ROOT, check=False, preexec_fn=confine,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip


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
def test_yaml(tmp_path: Path, kind: str, flag: str) -> None:
    path = write(tmp_path, "x.yaml", YAML[kind]())
    command = {
        "model": ("models", "check", path),
        "acceptance": ("recommend", "llama-3.1-8b", "--acceptance", path),
    }[flag]
    _refused(in_narrow_process(*command), "x.yaml")
    assert not (ROOT / "PWNED").exists()


def _refused(done: subprocess.CompletedProcess[str], name: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("roofline: ")
    assert name in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 1000
    assert done.stderr[:-1].isprintable()


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
def test_json(tmp_path: Path, kind: str, use: str) -> None:
    path = write(tmp_path, "config.json", JSON[kind]())
    command = ("models", "check") if use == "config" else ("acceptance", "read")
    _refused(in_narrow_process(*command, path), "config.json")


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
    begin = time.monotonic()
    assert_refused(cli("models", "check", path), "x.gguf")
    assert time.monotonic() - begin < 5  # nothing is read that is only announced


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
    + [(use, kind) for use in ("rows", "histogram") for kind in list(CSV)[::2]],
)
def test_csv(tmp_path: Path, kind: str, use: str) -> None:
    path = write(tmp_path, "x.csv", CSV[kind]())
    command = {
        "steps": ("calibrate", "fit-steps", path, "llama-3.1-8b"),
        "rows": ("calibrate", "fit", path, "-o", str(tmp_path / "out.yaml")),
        "histogram": ("recommend", "llama-3.1-8b", "--batches-histogram", path),
    }[use]
    _refused(in_narrow_process(*command), "x.csv")
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
def test_metrics(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, "page.prom", PAGES[kind]())
    _refused(in_narrow_process("acceptance", "read", path), "page.prom")


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
def test_grids(tmp_path: Path, text: str) -> None:
    """Axes without end, names that lead elsewhere: nothing is priced, nothing is fetched."""
    model = "" if text.startswith("model") else "model: llama-3.1-8b\n"
    path = write(tmp_path, "grid.yaml", f"schema: 1\n{model}{text}\n")
    output = tmp_path / "out.csv"
    done = in_narrow_process("sweep", "--grid", path, "-o", str(output))
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("roofline: ")
    assert done.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["grid.yaml"]


OUTSIDE = ("../../etc/passwd", "/etc/passwd", "..", ".", "../h200-sxm.yaml")


@pytest.mark.parametrize("reference", OUTSIDE)
@pytest.mark.parametrize("flag", ["MODEL", "--gpu", "--drafter", "--engine", "--acceptance"])
def test_names_lead_nowhere(cli: Cli, flag: str, reference: str) -> None:
    """What lies there is neither read as one of ours nor shown."""
    arguments = [reference] if flag == "MODEL" else ["llama-3.1-8b", flag, reference]
    line = assert_refused(cli("recommend", *arguments))
    assert "root:" not in line


@pytest.mark.parametrize("name", ["../../x", "/x", "a/b", "a\\b", "", "a b", "=x", "a\nb"])
@pytest.mark.parametrize("what", ["model", "gpu", "engine"])
def test_ids_are_fit_for_file_names(cli: Cli, tmp_path: Path, what: str, name: str) -> None:
    text, own = {
        "model": (MODEL, "tiny"), "gpu": (GPU, "roundcard"), "engine": (ENGINE, "invented"),
    }[what]  # fmt: skip
    path = write(tmp_path, "x.yaml", text.replace(f"id: {own}", f"id: {json.dumps(name)}", 1))
    command = (
        ["llama-3.1-8b", f"--{what}", path] if what != "model" else [path, "--drafter", "none"]
    )
    assert_refused(cli("recommend", *command), "x.yaml", "id")


@pytest.mark.parametrize("target", ["file", "nothing", "device", "folder"])
@pytest.mark.parametrize(
    "command",
    [
        ("recommend", "llama-3.1-8b", "-o", "OUT.json"),
        ("plot", "speedup", "llama-3.1-8b", "--data", "OUT.csv"),
        ("plot", "speedup", "llama-3.1-8b", "-o", "OUT.png"),
        ("sweep", "llama-3.1-8b", "-o", "OUT.csv"),
        ("report", "llama-3.1-8b", "-o", "OUT.html"),
        ("models", "import", str(ROOT / "model_configs/Qwen--Qwen3-8B.json"), "-o", "OUT.yaml"),
        ("calibrate", "measure", "--device", "cpu", "--budget", "2s", "-o", "OUT.csv"),
    ],
    ids=lambda command: " ".join(command[:2]) + command[-1][3:],
)
def test_links_are_not_written_through(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], target: str
) -> None:
    """Not even replaced: /dev/stdout is a link, and root may replace that."""
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    link = tmp_path / command[-1]
    link.symlink_to(Path(os.devnull) if target == "device" else tmp_path / target)
    outcome = cli(*command[:-1], str(link))
    assert outcome.code == 2
    assert outcome.out == ""
    assert link.name in outcome.err
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "kept"
    assert not (tmp_path / "nothing").exists()


def test_devices_and_pipes_are_not_replaced(cli: Cli, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert_refused(cli("recommend", "llama-3.1-8b", "-o", str(pipe)), "is a link or a device")
    assert pipe.is_fifo()


def test_a_folder_behind_a_link_is_a_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    target = tmp_path / "link" / "a.json"
    assert cli("recommend", "llama-3.1-8b", "-o", str(target)).code == 0
    assert json.loads((tmp_path / "real" / "a.json").read_text())


@pytest.mark.parametrize("name", ["x.yaml", "x.json", "x.gguf"])
@pytest.mark.parametrize("kind", ["loop", "dangling", "pipe", "device"])
def test_inputs_that_are_no_files(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        places = {"loop": path, "dangling": tmp_path / "absent", "device": Path("/dev/zero")}
        path.symlink_to(places[kind])
    begin = time.monotonic()
    done = in_narrow_process("models", "check", str(path))
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1
    assert name in done.stderr
    assert time.monotonic() - begin < SECONDS


@pytest.mark.parametrize("flag", ["--acceptance", "--batches-histogram"])
def test_a_device_that_never_ends(flag: str) -> None:
    assert in_narrow_process("recommend", "llama-3.1-8b", flag, "/dev/zero").returncode == 2


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
def test_other_cells_stay_as_they_are(text: str) -> None:
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
         "--format", "csv"),
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


#: What runs code, or builds objects, from what it is given.
RUNS_CODE = {"eval", "exec", "compile", "__import__"}
LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "code"}
UNSAFE = {
    "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all",
    "torch.load", "pd.read_pickle", "pandas.read_pickle", "pd.eval", "pandas.eval",
    "subprocess.getoutput", "tempfile.mktemp",
}  # fmt: skip


def _dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names]
            yield from (name for name in names if name.split(".")[0] in LOADERS)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in RUNS_CODE | UNSAFE or called.endswith((".eval", ".query")):
            yield called
        for keyword in node.keywords:
            on = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg in ("shell", "allow_pickle") and on:
                yield f"{called}({keyword.arg}=True)"


@pytest.mark.parametrize("path", sorted((ROOT / "roofline").rglob("*.py")), ids=lambda p: p.stem)
def test_nothing_runs_what_data_say(path: Path) -> None:
    assert not list(_dangers(ast.parse(path.read_text("utf-8"))))


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)", "import pickle", "from marshal import loads", "os.system(x)", "yaml.load(x)",
        "subprocess.run(x, shell=True)", "np.load(x, allow_pickle=True)", "frame.query(x)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(text: str) -> None:
    assert list(_dangers(ast.parse(text)))
