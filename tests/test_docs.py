"""The documents cannot drift from the program: commands, outputs, fields, links, identities.

Outputs in the pages are the program's own. ``python -m tests.test_docs`` writes them anew.
"""

from __future__ import annotations

import contextlib
import doctest
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import typer

from roofline.kernels import formulas
from roofline.kernels.forward import Kind, decode
from roofline.specs.formats import resolve_precision
from roofline.specs.network import load_model
from roofline.specs.placement import Placement
from tests.physics import run
from tests.servers import engine, pages, server, stop_the_clock
from workshop import reference_page

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = (ROOT / "docs" / "reference.md").read_text("utf-8")
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

# A fenced block with its info string, and a command in it; `# exit 3` says what it returns.
_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(
    r"^\$ (?P<command>[^#\n]*?)(?:  # exit (?P<code>\d+))?\n(?P<output>(?:(?!\$ )[^\n]*\n)*)",
    re.MULTILINE,
)
_LINK = re.compile(r"\]\((?!https?://|mailto:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A command of a page, and the output printed under it (empty where none is shown)."""

    page: str
    command: str
    output: str
    exit_code: int


def examples(name: str, text: str) -> Iterator[Example]:
    """Yield every ``$ roofline`` command in the console blocks of a page."""
    for block in _BLOCK.finditer(text):
        if block["info"] != "console":
            continue
        for match in _COMMAND.finditer(block["body"]):
            if match["command"].startswith("roofline"):
                yield Example(
                    page=name,
                    command=match["command"],
                    output=match["output"],
                    exit_code=int(match["code"] or 0),
                )


EXAMPLES = [
    e for name, page in zip(NAMES, PAGES, strict=True) for e in examples(name, page.read_text())
]


def write_files(text: str, folder: Path) -> None:
    """Write every YAML block that opens with ``# name.yaml`` into ``folder``."""
    for block in _BLOCK.finditer(text):
        first = block["body"].partition("\n")[0]
        if block["info"] == "yaml" and re.fullmatch(r"# [\w.-]+\.yaml", first):
            (folder / first.removeprefix("# ")).write_text(block["body"], encoding="utf-8")


#: Commands that name this server are answered by the recorded pages of vLLM.
SERVER = "http://127.0.0.1:8000"


@contextlib.contextmanager
def recorded_server(command: str) -> Iterator[str]:
    """Yield a command that asks the recorded server, which takes no time to answer."""
    with pytest.MonkeyPatch.context() as patch, server(engine(pages("vllm"))) as url:
        stop_the_clock(patch)
        yield command.replace(SERVER, url)


def shown(example: Example) -> tuple[int, str]:
    """Return the exit code and what a page shows of a command: stdout, or the error's line."""
    asks_a_server = SERVER in example.command
    with (recorded_server if asks_a_server else contextlib.nullcontext)(example.command) as command:
        code, out, err = run(command)
    text = out if example.exit_code == 0 else err
    return code, re.sub(r"http://127\.0\.0\.1:\d+", SERVER, text) if asks_a_server else text


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"{e.page}: {e.command}" for e in EXAMPLES])
def test_commands_in_the_pages_print_what_the_pages_show(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files((ROOT / example.page).read_text("utf-8"), tmp_path)
    monkeypatch.chdir(tmp_path)
    code, text = shown(example)
    assert code == example.exit_code
    if example.output.strip():
        assert text.rstrip("\n") == example.output.rstrip("\n")


def test_the_readme_opens_with_a_real_answer() -> None:
    of_readme = [e for e in EXAMPLES if e.page == "README.md"]
    assert of_readme[0].output.startswith(("Run draft length", "Do not speculate"))
    assert {e.exit_code for e in of_readme} == {0}


def test_the_first_page_explains_what_its_command_prints() -> None:
    """Quoted in docs/index.md, printed by the same command in README.md."""
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    asked = next(e for e in EXAMPLES if e.page == "docs/index.md")
    (answer,) = (e.output for e in EXAMPLES if e.page == "README.md" and e.command == asked.command)
    quoted = re.findall(r"^\| `((?:Run |acceptance)[^`]*)`", page, re.MULTILINE)
    assert len(quoted) == 2
    assert [text for text in quoted if text not in " ".join(answer.split())] == []


COMMANDS = dict(reference_page.commands())


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_has_help(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    context = typer.Context(command)
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    assert all(parameter.get_help_record(context)[1] for parameter in shown)


def test_the_reference_is_what_the_commands_say_of_themselves() -> None:
    """`make docs` writes it; every command and option is there, and none that is gone."""
    assert reference_page.page() == REFERENCE
    listed = set(re.findall(r"^\| `(?:-\w, )?(--[\w-]+)", REFERENCE, re.M))
    options = {
        option
        for command in COMMANDS.values()
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for option in parameter.opts
    }
    assert listed == {option for option in options if option.startswith("--")} - {"--help"}
    named = set(re.findall(r"^\| `(roofline(?: [a-z-]+)+)(?: [^`a-z]+)?` \|", REFERENCE, re.M))
    assert named == {path for path, c in COMMANDS.items() if not hasattr(c, "commands")}


def keys(value: Any) -> set[str]:
    """Return every key at any depth."""
    if isinstance(value, dict):
        return set(value) | {key for inner in value.values() for key in keys(inner)}
    return {key for inner in value for key in keys(inner)} if isinstance(value, list) else set()


@pytest.mark.parametrize(
    "command",
    [
        "recommend llama-3.1-8b --explain",
        "recommend llama-3.1-8b --slo-tpot 9",
        "recommend llama-3.1-8b --gpu-hour 2",
        "recommend llama-3.1-8b --gpu-hour 2 --batches-histogram 8:1",
        "recommend llama-3.1-8b --input-tokens 1k --output-tokens 100",
        "schedule llama-3.1-8b",
        "compare llama-3.1-8b",
        "memory llama-3.1-8b",
        "diagnose llama-3.1-8b --measured 0:7.9ms,3:5.5ms:2.66",
        "explore llama-3.1-8b --vary group_size=2,4 --set drafter.layers=2",
    ],
)
def test_every_json_field_is_documented(command: str) -> None:
    _, out, _ = run(f"roofline {command} --format json")
    documented = set(re.findall(r"`([\w]+)(?:\[\])?`", REFERENCE))
    # the parts of a memory account are names with spaces, listed in words
    found = {key for key in keys(json.loads(out)) if " " not in key}
    assert found - documented - {"logits", "activations", "state", "free"} == set()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_relative_links_resolve(page: Path) -> None:
    for link in _LINK.finditer(page.read_text("utf-8")):
        target = page.parent / link["path"] if link["path"] else page
        assert target.exists(), link[0]
        if link["anchor"]:
            headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]
            assert link["anchor"] in slugs, link[0]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_examples_hold(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells of a page run in one namespace, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert results.failed == 0


def test_make_words_are_real_and_explained() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for page in PAGES:
        used = set(re.findall(r"(?:`|\$ |^)make ([\w-]+)", page.read_text("utf-8"), re.M))
        assert used <= targets
        if page.name == "CONTRIBUTING.md":
            assert used == targets


@pytest.mark.parametrize("group_size", [1, 4, 5, 8, 16, 64, 128])
@pytest.mark.parametrize("draft_length", [0, 1, 3, 5, 7, 31])
def test_attention_intensity_is_the_two_d_over_g_of_the_short_notation(
    group_size: int, draft_length: int
) -> None:
    # docs/explain/five-rules.md: D' = 1 + D rows, G' = KV heads per query head, one byte a value
    rows, kv_per_query_head = Fraction(1 + draft_length), Fraction(1, group_size)
    short = 2 * rows / kv_per_query_head
    ours = formulas.attention_intensity(group_size=group_size, draft_length=draft_length, kv=1)
    assert Fraction(float(ours)) == short
    assert short == 2 * group_size * (1 + draft_length)  # as the source article has it
    # and the same from the work itself: FLOPs of the kernel over the bytes of its cache
    flops = formulas.attention_flops(
        batch=3, rows=1 + draft_length, heads=2 * group_size, head_dim=128, length=1000
    )
    cache = formulas.attention_bytes(
        batch=3, rows=1 + draft_length, heads=2 * group_size, kv_heads=2, head_dim=128,
        length=1000, kv=1, activation=0,
    )  # fmt: skip
    assert Fraction(float(flops)) / Fraction(float(cache)) == short


@pytest.mark.parametrize(("batch", "draft_length"), [(1, 0), (32, 3), (32, 7), (7, 5)])
def test_linear_layers_run_on_b_times_d_rows_of_the_short_notation(
    batch: int, draft_length: int
) -> None:
    model = load_model("llama-3.1-8b")
    precision, _ = resolve_precision(
        stored=model.stored(), base=model.dtype, kv_stored=None, available=["bf16"], gpu="any"
    )
    kernels = decode(
        model, precision, Placement(), batch=batch, context=1024, rows=1 + draft_length
    )
    assert {op.rows for op in kernels if op.kind is Kind.GEMM} == {batch * (1 + draft_length)}


def refreshed(name: str, text: str) -> str:
    """Return a page with the outputs that its commands print now."""
    for example in examples(name, text):
        if example.output.strip():
            said = f"  # exit {example.exit_code}" if example.exit_code else ""
            first = f"$ {example.command}{said}\n"
            new = f"{first}{shown(example)[1].rstrip()}\n"
            text = text.replace(first + example.output, new, 1)
    return text


def test_the_page_about_python_has_cells_only() -> None:
    """What a fence of Python holds is run: no line of it stands outside a cell."""
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    bodies = [block["body"] for block in _BLOCK.finditer(text) if block["info"] == "python"]
    assert len(bodies) > 5
    assert all(body.startswith(">>> ") and body.endswith("\n\n") for body in bodies)


class _Shower(doctest.DocTestRunner):
    """Runs the cells of a page and keeps what each prints, where it differs."""

    def __init__(self) -> None:
        super().__init__(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
        self.printed: dict[int, str] = {}

    def report_failure(
        self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str
    ) -> None:
        """Keep what a cell prints in place of what is shown."""
        del out, test
        self.printed[example.lineno] = got


def with_cells_refreshed(name: str, text: str) -> str:
    """Return a page with what its cells print now; an error that is shown stays as it is."""
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    shower = _Shower()
    shower.run(test)
    lines = text.splitlines(keepends=True)
    for example in reversed(test.examples):
        if example.lineno in shower.printed and example.want and example.exc_msg is None:
            start = example.lineno + example.source.count("\n")
            shown_now = [
                f"{line.rstrip()}\n" for line in shower.printed[example.lineno].splitlines()
            ]
            lines[start : start + example.want.count("\n")] = shown_now
    return "".join(lines)


if __name__ == "__main__":
    reference_page.main()
    for _page, _name in zip(PAGES, NAMES, strict=True):
        _text = _page.read_text("utf-8")
        with tempfile.TemporaryDirectory() as _folder:
            write_files(_text, Path(_folder))
            os.chdir(_folder)
            _text = with_cells_refreshed(_name, refreshed(_name, _text))
            _page.write_text(_text, encoding="utf-8")
            os.chdir(ROOT)
