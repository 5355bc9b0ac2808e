"""The HTML report as a file: whole by itself, safe, and with the tool's own numbers in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import sys
from http.server import BaseHTTPRequestHandler
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from roofline.advice.why import Outcome
from roofline.render.page import page as page_module
from roofline.render.recommendation import COLUMNS
from roofline.render.why import NO_GAIN
from tests.engines.test_http import PAGE, SECRET
from tests.html_page import Page, read_page
from tests.servers import send, server
from tests.support import ACCEPTANCE, DRAFTER, ENGINE, GPU, MODEL, Cli, assert_refused, write

ASSETS = Path(page_module.__file__).parent / "assets"
QUESTION = ("llama-3.1-8b", "--gpu", "h100-sxm", "--batch", "32", "--context", "8k")
MOE = (
    "qwen3-30b-a3b",
    "--gpu",
    "h200-sxm",
    "--batch",
    "16",
    "--acceptance",
    "conditional:0.7,0.6,0.5",
)


def made(cli: Cli, folder: Path, *arguments: str) -> Page:
    """Run ``roofline report`` and return the page."""
    path = folder / "report.html"
    outcome = cli("report", *arguments, "-o", str(path))
    assert outcome.code == 0, outcome.err
    return read_page(path)


def as_given(data: Any) -> list[list[float | None]]:
    """Return the tokens per step of the acceptance as given: accepted drafts times 100 %."""
    tokens: list[list[float | None]] = data["tokens"][data["scales"].index(100)]
    return tokens


def test_the_first_sentence_is_on_stdout_and_the_rest_in_the_file(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("report", *QUESTION, "-o", str(tmp_path / "a.html"))
    assert outcome.code == 0
    entry = cli("recommend", *QUESTION, "--format", "json").point()
    assert " ".join(outcome.out.split()).startswith(entry["headline"])
    page = read_page(tmp_path / "a.html")
    assert page.text["headline"] == entry["headline"]
    assert page.text["reason"] == entry["reason"]
    assert page.text["flag"] == entry["flag"]


def test_the_file_asks_nothing_of_any_network(cli: Cli, tmp_path: Path) -> None:
    page = made(cli, tmp_path, *QUESTION)
    addresses = [own[key] for _, own in page.elements for key in ("src", "href") if key in own]
    assert addresses == ["data:,"]
    assert not any(name.startswith("on") for _, own in page.elements for name in own)
    tags = [tag for tag, _ in page.elements]
    assert not {"iframe", "object", "embed", "base", "form", "img"} & set(tags)


def test_the_policy_allows_these_very_scripts_and_no_address(cli: Cli, tmp_path: Path) -> None:
    page = made(cli, tmp_path, *QUESTION)
    first = [own for tag, own in page.elements if tag in ("meta", "script", "style", "link")][1]
    assert first["http-equiv"] == "Content-Security-Policy"  # right after the charset
    rules = dict(rule.strip().split(" ", 1) for rule in first["content"].split(";"))
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in page.scripts
    ]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == hashes
    assert "connect-src" not in rules  # left to default-src
    assert not re.search(r"https?:|\*", first["content"])


#: Numbers that are given are taken at their word, as those of the sliders are.
GIVEN = (*QUESTION, "--acceptance", "survival:0.77,0.59,0.43")


@pytest.mark.parametrize("question", [GIVEN, MOE], ids=["dense", "experts"])
def test_the_prices_in_the_page_are_those_of_recommend(
    cli: Cli, tmp_path: Path, question: tuple[str, ...]
) -> None:
    data = made(cli, tmp_path, *question, "--batches", "1,8", "--contexts", "1k").data
    contexts = ",".join(map(str, data["contexts"]))
    batches = ",".join(map(str, data["batches"]))
    at = {"--batch", "--context"}
    kept = [w for w, before in zip(question, ("", *question), strict=False) if not {w, before} & at]
    moved = (*kept, "--batch", batches, "--context", contexts)
    points = cli("recommend", *moved, "--format", "json").data()["points"]
    assert len(points) == len(data["batches"]) * len(data["contexts"])
    for point in points:
        b, c = data["batches"].index(point["batch"]), data["contexts"].index(point["context"])
        cell, tokens = data["cells"][b][c], as_given(data)
        for row in point["by_draft_length"]:
            i = data["draft_lengths"].index(row["draft_length"])
            al = tokens[c % len(tokens)][i]
            near = pytest.approx
            assert al == row["tokens_per_step"]
            assert 1e3 * cell["step"][i] == near(row["step_ms"], rel=1e-12)
            assert 1e3 * cell["verify"][i] == near(row["verify_ms"], rel=1e-12)
            for end in ("low", "high"):  # with what is open in the acceptance, where anything is
                shown = cell["counted"][end][i] if "counted" in cell else al * cell[end][i]
                assert shown == near(row[f"speedup_{end}"], rel=1e-12)
            drawn = sum(values[i] for values in cell["slices"].values())
            assert drawn == near(row["step_ms"], rel=1e-4)


def test_lengths_without_acceptance_are_priced_for_the_rate_slider(
    cli: Cli, tmp_path: Path
) -> None:
    # drafts that stopped at D = 3; one rate goes on to the longest draft
    text = "schema: 1\nsource: here\nearly_stops: true\nconditional: [0.8, 0.7, 0.6]\n"
    file = write(tmp_path, "stopped.yaml", text)
    data = made(cli, tmp_path, "llama-3.1-8b", "--acceptance", file).data
    assert data["draft_lengths"] == list(range(9))
    assert as_given(data)[0][4:] == [None] * 5
    assert all(value is not None for value in data["cells"][0][0]["step"])
    # AL = 1.8, 2.36, 2.696; by hand, squared misfits at 0.74, 0.75, 0.76: .0089, .0062, .0086
    assert data["rate"] == 75


def test_a_cell_without_room_for_drafts_holds_the_reason(cli: Cli, tmp_path: Path) -> None:
    asked = ("qwen3-8b", "--drafter", "qwen3-0.6b", "--acceptance", "0.6", "--context", "2k")
    data = made(cli, tmp_path, *asked, "--batches", "1,128", "--contexts", "2k").data
    (roomy,), (full,) = data["cells"]
    assert not roomy["reasons"]
    entry = cli("recommend", *asked, "--batch", "128", "--format", "json").point()
    own = full["reasons"]["no_room"]
    assert entry["reason"] == f"{own} {NO_GAIN[Outcome.NO_ROOM]}"
    assert "qwen3-0.6b needs" in full["reasons"]["no_room"]


def test_the_schedule_is_that_of_the_schedule_command(cli: Cli, tmp_path: Path) -> None:
    page = made(cli, tmp_path, *QUESTION)
    written = cli("schedule", "llama-3.1-8b", "--gpu", "h100-sxm", "--contexts", "8k",
                  "--format", "vllm")  # fmt: skip
    assert page.text["schedule"] == written.out.rstrip("\n")


def test_sources_warnings_version_and_command_are_in_the_page(cli: Cli, tmp_path: Path) -> None:
    page = made(cli, tmp_path, *QUESTION)
    answer = cli("recommend", *QUESTION, "--format", "json").data()
    for entry in answer["provenance"]:
        assert entry["what"] in page.words
        assert entry["source"] in page.words
    for warning in answer["warnings"]:
        assert warning in page.words
    version = cli("--version").out.split()[1]
    assert f"roofline {version}: roofline report {' '.join(QUESTION)}" in page.words
    assert "report.html" not in page.words  # where it was written to is nobody's business


HOSTILE = "</script><script>alert(1)</script><!-- {{7*7}} & \"'"


def test_names_and_labels_are_text_whatever_they_hold(cli: Cli, tmp_path: Path) -> None:
    quoted = HOSTILE.replace("'", "''")
    model = MODEL.replace("name: Tiny", f"name: '{quoted}'")
    model = model.replace("source: invented for a test", f"source: '{quoted}'")
    gpu = GPU.replace("name: Round Card", f"name: '{quoted}'")
    gpu = gpu.replace("cite: invented for a test", f"cite: '{quoted}'")
    engine = ENGINE.replace("name: Invented", f"name: '{quoted}'")
    engine = engine.replace("draft_length_name: d", f"draft_length_name: '{quoted}'")
    curve = ACCEPTANCE.replace("source: invented for a test", f"source: '{quoted}'")
    page = made(
        cli, tmp_path, write(tmp_path, "m.yaml", model), "--gpu", write(tmp_path, "g.yaml", gpu),
        "--drafter", write(tmp_path, "d.yaml", DRAFTER), "--engine",
        write(tmp_path, "e.yaml", engine), "--acceptance", write(tmp_path, "a.yaml", curve),
    )  # fmt: skip
    assert len(page.scripts) == 2
    assert page.words.count(HOSTILE) >= 4
    assert "alert" not in page.scripts[1]
    assert as_given(page.data)
    assert f"No schedule: no release of {HOSTILE} is known to take one." in page.words


def test_a_report_without_a_drafter(cli: Cli, tmp_path: Path) -> None:
    page = made(cli, tmp_path, "llama-3.1-8b", "--drafter", "none")
    assert page.text["headline"].startswith("Plain decoding: ")
    assert "nothing to schedule" in page.words
    assert "mode-rate" not in page.text
    assert page.data["rate"] is None


def test_counted_acceptance_widens_the_ranges(cli: Cli, tmp_path: Path) -> None:
    asked = ("llama-3.1-8b", "--acceptance", "0.7", "--acceptance-rounds", "50")
    data = made(cli, tmp_path, *asked, "--batches", "1,8", "--contexts", "4k").data
    points = cli("recommend", *asked, "--batch", "1,8", "--format", "json").data()["points"]
    for b, point in enumerate(points):
        (cell,) = data["cells"][b]
        for row in point["by_draft_length"]:
            i = row["draft_length"]
            assert cell["counted"]["low"][i] == row["speedup_low"]
            assert cell["counted"]["high"][i] == row["speedup_high"]
            narrow = cell["low"][i] * row["tokens_per_step"]
            assert i == 0 or row["speedup_low"] < (1 - 1e-6) * narrow
    assert data["rounds"] == 50


def test_an_address_is_read_once_and_its_query_kept_out(cli: Cli, tmp_path: Path) -> None:
    asked: list[str] = []

    def metrics(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        send(handler, PAGE)

    with server(metrics) as url:
        address = f"{url}/metrics?key={SECRET}"
        page = made(cli, tmp_path, "llama-3.1-8b", "--acceptance", address)
    assert asked == [f"/metrics?key={SECRET}"]
    assert SECRET not in (tmp_path / "report.html").read_text("utf-8")
    assert page.data["acceptance"] == f"{url}/metrics"
    assert page.data["counted"]  # the page counts its own passes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("-o", "FILE.html")),
        (("-o", "report.pdf"), ("report.pdf", ".html")),
        (("-o", "missing/report.html"), ("missing/report.html", "cannot be written")),
        (("-o", "a.html", "--batch", "1..13"), ("--batch", "13 answers", "12", "--batches")),
        (("-o", "a.html", "--context", "1k,2k"), ("--context 1k,2k", "one context", "--contexts")),
        (("-o", "a.html", "--batches", "1..2000"), ("--batches", "1000")),
        (("-o", "a.html", "--contexts", "1k,1m"), ("--contexts 1048576", "131072")),
        (("-o", "a.html", "--context", "1m"), ("--context 1048576", "131072")),
        (("-o", "a.html", "--batches", "0"), ("--batches 0", "at least 1")),
        (("-o", "a.html", "--batches", "8,8"), ("--batches 8,8", "twice")),
        (("-o", "a.html", "--contexts", "0"), ("--contexts 0", "at least 1")),
    ],
)
def test_bad_input_is_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], words: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert_refused(cli("report", "llama-3.1-8b", *arguments), *words)
    assert not list(tmp_path.iterdir())


RATE_STOPS = (0, 3, 25, 50, 52, 78, 100)
SCALE_STOPS = (0, 35, 90, 130, 150)
#: Draft lengths beyond the curve, mixtures, graphs that end, drafters without room, and slow plain
#: decoding, whose sentence has another form.
DECIDED = {
    "graphs": ("llama-3.1-8b", "--gpu", "h100-sxm", "--batches", "1,128,192,256,512",
               "--contexts", "256,1k", "--context", "1k"),
    "experts": (*MOE, "--batches", "1,16,128", "--contexts", "4k"),
    "room": ("qwen3-8b", "--drafter", "qwen3-0.6b", "--acceptance", "0.6", "--batches", "1,64,128",
             "--contexts", "2k", "--context", "2k"),
    "slow": ("llama-3.1-70b", "--gpu", "rtx-4090", "--gpus", "8", "--host", "server-ddr5",
             "--engine", "llamacpp",
             "--drafter", "llama-3.2-1b", "--acceptance", "0.7", "--batches", "1,2",
             "--contexts", "4k"),
    "counted": ("llama-3.1-8b", "--acceptance", "0.7", "--acceptance-rounds", "50", "--batches",
                "1,8", "--contexts", "4k"),
}  # fmt: skip


@pytest.mark.parametrize("question", DECIDED.values(), ids=DECIDED)
def test_every_stop_holds_the_decision_of_recommend(
    cli: Cli, tmp_path: Path, question: tuple[str, ...]
) -> None:
    """The tool is asked anew at some stops; nothing that the page looks up may differ."""
    data = made(cli, tmp_path, *question).data
    batches, contexts = data["batches"], data["contexts"]
    moved = {"--batches", "--contexts", "--batch", "--context"}
    given = {"--acceptance", "--acceptance-rounds"}

    def without(names: set[str]) -> list[str]:
        pairs = zip(question, ("", *question), strict=False)
        return [word for word, before in pairs if not {word, before} & names]

    scales, rates = data["scales"], data["rates"]
    asked = {scales.index(100): without(moved)}
    for rate in RATE_STOPS:
        asked[len(scales) + rates.index(rate)] = [
            *without(moved | given), "--acceptance", str(rate / 100),
        ]  # fmt: skip
    for scale in SCALE_STOPS:
        stop = scales.index(scale)
        known = zip(data["draft_lengths"], data["tokens"][stop][0], strict=True)
        curve = ",".join(f"{d}={al}" for d, al in known if d and al is not None)
        if len(data["tokens"][stop]) == 1:
            asked[stop] = [*without(moved | given), "--acceptance", f"al:{curve}"]
    for stop, words in asked.items():
        where = ("--batch", ",".join(map(str, batches)), "--context", ",".join(map(str, contexts)))
        answer = cli("recommend", *words, *where, "--format", "json").data()
        for point in answer["points"]:
            b, c = batches.index(point["batch"]), contexts.index(point["context"])
            cell = data["cells"][b][c]
            held = data["decisions"][cell["decided"][stop]]
            lengths = data["draft_lengths"]
            assert lengths[held["best"]] == point["draft_length"], (stop, words)
            assert [lengths[i] for i in held["tie"]] == point["tie_band"]
            said = re.sub(r"[\d.]+", "#", point["headline"])
            template = data["words"]["headlines"][held["headline"]]
            template = template.replace("{flag}", data["flag_name"])
            assert re.sub(r"\{[^}]*\}|[\d.]+", "#", template) == said
            assert (held["beyond"] >= 0) == ("would give" in point["reason"])
            speculative = point["by_draft_length"][1:]
            stuck = held["outcome"] in data["words"]["cells"]
            lost_anyway = any(words in point["reason"] for words in NO_GAIN.values())
            assert lost_anyway == (stuck and held["limit"] is None)
            assert stuck != any(
                row["captured"] or not point["by_draft_length"][0]["captured"]
                for row in speculative
            )


def test_the_frontier_of_every_stop_is_that_of_the_plot(cli: Cli, tmp_path: Path) -> None:
    batches = "1,2,8,64,128,256"
    asked = ("llama-3.1-8b", "--gpu", "h200-sxm")
    grid = ("--batches", batches, "--contexts", "1k", "--context", "1k")
    data = made(cli, tmp_path, *asked, *grid).data
    for rate in (10, 80):
        path = tmp_path / f"{rate}.csv"
        own = ("--batch", batches, "--context", "1k", "--acceptance", str(rate / 100))
        assert cli("plot", "frontier", *asked, *own, "--data", str(path)).code == 0
        rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
        stop = len(data["scales"]) + data["rates"].index(rate)
        for b, batch in enumerate(data["batches"]):
            (cell,) = data["cells"][b]
            of_batch = [row for row in rows if row["batch"] == str(batch)]
            plain = any(row["on_plain_curve"] == "true" for row in of_batch)
            advised = any(row["on_advised_curve"] == "true" for row in of_batch)
            assert cell["on_plain_curve"] == plain
            assert data["decisions"][cell["decided"][stop]]["on_curve"] == advised


def test_the_script_chooses_nothing() -> None:
    """Its part that speaks has no largest, no smallest and no order; in a browser see below."""
    model = (ASSETS / "model.js").read_text("utf-8")
    assert not re.search(r"Math\.(max|min)|reduce\(|sort\(|indexOf\(true\)|findIndex", model)


def test_the_page_has_the_columns_of_the_terminal(cli: Cli, tmp_path: Path) -> None:
    page = made(cli, tmp_path, *QUESTION)
    keys = [column["key"] for column in page.data["columns"]]
    assert keys == [column.key for column in COLUMNS]
    # the script fills them in by these keys
    row = (ASSETS / "model.js").read_text("utf-8")
    assert all(f"    {key}:" in row for key in keys)


def test_several_batches_are_several_answers(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    asked = ("llama-3.1-8b", "--gpu", "h100-sxm", "--context", "8k")
    done = cli("report", *asked, "--batch", "10,24,4000", "-o", str(path))
    assert done.code == 0, done.err
    points = cli("recommend", *asked, "--batch", "10,24", "--format", "json").data()["points"]
    page = read_page(path)
    assert page.text["headline"] == points[0]["headline"]
    said = " ".join(done.out.split())
    for point in points:
        assert f"Batch {point['batch']}, context 8k: {point['headline']}" in said
    assert f"Batch 24: {points[1]['headline']}" in " ".join(page.words.split())
    # what does not fit is told in both places, with what helps
    assert "batch 4000 at 8k tokens needs" in " ".join(done.out.split())
    assert "batch 4000 at 8k tokens needs" in page.words
    assert page.data["batches"][page.data["asked"]["batch"]] == 10


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_flags_are_those_for_the_batch_that_is_shown(cli: Cli, tmp_path: Path, engine: str) -> None:
    """SGLang is told how many sequences may run."""
    asked = ("qwen3-8b", "--gpu", "h100-sxm", "--engine", engine, "--drafter", "qwen3-0.6b",
             "--acceptance", "0.7")  # fmt: skip
    data = made(cli, tmp_path, *asked, "--batches", "1,8", "--contexts", "4k").data
    for b, batch in enumerate(data["batches"]):
        (cell,) = data["cells"][b]
        stop = data["scales"].index(100)
        best = data["decisions"][cell["decided"][stop]]["best"]
        point = cli("recommend", *asked, "--batch", str(batch), "--format", "json").point()
        assert data["flags"][data["flags_of"][b][best]] == point["flag"]


def test_the_file_stays_light(cli: Cli, tmp_path: Path) -> None:
    """All but plotly.js, which is 4.8 MB: under half a megabyte with every decision in it."""
    page = made(cli, tmp_path, *QUESTION)
    own = page.text["data"] + page.scripts[1]
    assert len(own) < 500_000
    # 20 batches, 9 contexts, 31 scales and 101 rates
    stops = len(page.data["scales"]) + len(page.data["rates"])
    assert stops == len(page.data["tokens"]) == 132
    cells = [cell for line in page.data["cells"] for cell in line if "decided" in cell]
    assert all(len(cell["decided"]) == stops for cell in cells)


def test_report_and_recommend_refuse_alike(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    outcome = cli("report", "llama-3.1-70b", "-o", str(path))
    assert outcome.err == cli("recommend", "llama-3.1-70b").err
    assert outcome.code == 3
    assert not path.exists()


def test_a_missing_extra_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = "pip install -e '.[report]'"
    hidden: Any = lambda name: None if name == "plotly" else find_spec(name)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(page_module, "find_spec", hidden)
        assert_refused(cli("report", "llama-3.1-8b", "-o", str(tmp_path / "a.html")), wanted)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert_refused(cli("report", "llama-3.1-8b", "-o", str(tmp_path / "a.html")), wanted)
