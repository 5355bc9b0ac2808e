"""No command prints a time or a draft length for a point that does not fit; all name its bytes."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.html_page import read_page
from tests.servers import LATER, VLLM, engine, pages, server
from tests.support import Cli, assert_refused

#: 83 sequences of 8k tokens fit (advice/test_remedies.py counts them by hand), 200 do not.
MACHINE = (
    *("llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--weights", "fp8"),
    *("--memory-fraction", "0.9"),
)
DRAFTS = ("--drafter", "eagle3", "--acceptance", "0.6")
ASK = (*MACHINE, *DRAFTS)
#: A chart of attention takes no share; builds of 2025 took 0.9 by themselves.
CHARTED = (*MACHINE[:-2], "--engine", "vllm@2025")
SAID = (
    "153 GB",
    "74.9 GB usable of 84.9 GB",
    "batch 83 as asked",
    "166 with --kv fp8",
    "194 with --tp 8",
)
#: The same in the one line of a refusal.
REFUSED = (*SAID[:2], "83", "--kv fp8 (batch 166)", "--tp 8 (batch 194)")
#: What says of a batch that it runs.
FIGURE = re.compile(r"_ms$|_s$|^draft_length$|speedup|^draft_lengths?$|^confidence$")


@pytest.fixture
def refused(cli: Cli) -> Any:
    """Return what ``recommend`` says of 200 sequences of 8k tokens.

    18.16 GB of weights, 0.62 of activations and logits, 200 x 0.6732 GB of KV: 153.4 GB.
    """
    asked = ("--batch", "10,200", "--context", "8k", "--format", "json")
    (found,) = cli("recommend", *ASK, *asked).data()["refused"]
    assert found["needed_bytes"] == pytest.approx(153.4e9, rel=1e-3)
    return found


def entries(data: Any, *path: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield every object of some JSON with the names that lead to it."""
    if isinstance(data, dict):
        yield path, data
        for name, inner in data.items():
            yield from entries(inner, *path, name)
    elif isinstance(data, list):
        for inner in data:
            yield from entries(inner, *path)


def no_figures_at(data: Any, batch: int) -> None:
    """Check that nothing but a refusal is said of a batch."""
    for path, found in entries(data):
        at = found.get("batch_end", found.get("batch"))
        if "refused" in path or not isinstance(at, int) or at < batch:
            continue
        figures = {name for name, value in found.items() if FIGURE.search(name) and value}
        assert not figures, (path, found)


@pytest.mark.parametrize(
    "command",
    [
        ("recommend", *ASK, "--batch", "10,200", "--context", "8k"),
        ("recommend", *ASK, "--batch", "10,200", "--context", "8k", "--explain"),
        ("recommend", *ASK, "--batch", "10,200", "--context", "8k", "--objective", "latency"),
        ("schedule", *ASK, "--batches", "10,200", "--contexts", "8k"),
        (
            "compare",
            *MACHINE,
            "--drafter",
            "eagle3=0.6",
            "--drafter",
            "ngram=0.3",
            "--batch",
            "10,200",
            "--context",
            "8k",
        ),
        ("explore", *ASK, "--vary", "layers=8,80", "--batch", "200", "--context", "8k"),
        ("memory", *ASK, "--batch", "200", "--context", "1k,8k"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_some_points_do_not_fit(
    cli: Cli, refused: dict[str, Any], command: tuple[str, ...]
) -> None:
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.out.split())
    assert "Does not fit: batch 200 at 8k tokens needs 153 GB" in said
    assert all(word in said for word in SAID)
    if "--explain" in command:  # beside every kernel JSON has no place for more
        return
    data = cli(*command, "--format", "json").data()
    found = [entry for path, entry in entries(data) if path[-1:] == ("refused",)]
    if command[0] == "schedule":  # whose option has another name
        renamed = [r | {"option": r["option"].replace("--contexts", "--context")}
                   for r in found[0]["remedies"]]  # fmt: skip
        assert renamed != found[0]["remedies"]
        found = [found[0] | {"remedies": renamed}]
    assert found == [refused]
    if command[0] not in ("explore", "memory"):  # there other variants and contexts run
        no_figures_at(data, 200)


def test_a_variant_and_a_context_without_room_have_no_figures(cli: Cli) -> None:
    asked = ("--batch", "200", "--format", "json")
    vary = ("--vary", "layers=8,80", "--context", "8k")
    small, whole = cli("explore", *ASK, *vary, *asked).data()["variants"]
    assert small["speedup"] >= 1
    for name in ("draft_length", "speedup", "cost_ratio", "tpot_ms", "plain_tpot_ms"):
        assert whole[name] is None
    assert whole["by_draft_length"] == []
    assert max(entry["batch"] for entry in whole["by_batch"]) <= whole["largest_batch"] == 83
    held = cli("memory", *ASK, *asked, "--context", "1k,8k").data()
    assert [each["context"] for each in held["contexts"]] == [1024]


def test_a_measured_load_without_room_is_marked(cli: Cli, refused: dict[str, Any]) -> None:
    """What was measured stays: the others waited. What is proposed fits."""
    points = "0@10x8k:14ms,0@200x8k:90ms,2@10x8k:9ms:1.9"
    asked = ("diagnose", *MACHINE, "--drafter", "eagle3", "--measured", points)
    data = cli(*asked, "--format", "json").data()
    assert [(point["batch"], point["fits"]) for point in data["points"]] == [
        (10, True),
        (200, False),
        (10, True),
    ]
    assert data["refused"] == [refused]
    at = ("--batch", f"{data['next']['batch']}", "--context", f"{data['next']['context']}")
    assert cli("recommend", *ASK, *at).code == 0
    said = " ".join(cli(*asked).out.split())
    assert "Does not fit: batch 200 at 8k tokens needs 153 GB" in said
    assert "The prediction of a load that does not fit is of all its sequences at once" in said


@pytest.mark.parametrize("chart", ["speedup", "frontier", "heatmap"])
def test_charts_leave_out_what_has_no_room(
    cli: Cli, tmp_path: Path, refused: dict[str, Any], chart: str
) -> None:
    image, data = tmp_path / "chart.svg", tmp_path / "chart.csv"
    own = ("--batch", "10,200", "--context", "8k", "-o", str(image), "--data", str(data))
    outcome = cli("plot", chart, *ASK, *own)
    assert outcome.code == 0, outcome.err
    rows = list(csv.DictReader(data.read_text("utf-8").splitlines()))
    drawn = " ".join(re.findall(r"<!-- (.*?) -->", image.read_text("utf-8"), re.DOTALL))
    if chart == "heatmap":  # its cells are hatched, and its rows say why
        assert "does not fit in memory" in drawn
        (lost,) = [row for row in rows if row["batch"] == "200"]
        assert (lost["fits"], lost["draft_length"], lost["speedup"]) == ("false", "", "")
        for name in ("needed", "available"):
            known = refused[f"{name}_bytes"]
            assert float(lost[f"memory_{name}_bytes"]) == pytest.approx(known, rel=1e-5)
        return
    assert {row["batch"] for row in rows} == {"10"}
    assert "batch 200 does not fit in memory" in drawn
    assert all(word in " ".join(outcome.err.split()) for word in SAID)


def largest(cli: Cli, draft_length: int) -> int:
    """Return the largest batch that has room for drafts of a lookup."""
    ask = ("--drafter", "ngram", "--context", "8k", "--draft-length", str(draft_length))
    (held,) = cli("memory", *MACHINE, *ask, "--format", "json").data()["contexts"]
    return int(held["largest_batch_speculative"])


def test_a_chart_of_attention_ends_with_the_memory(cli: Cli, tmp_path: Path) -> None:
    """Of 83 sequences each has room for its rows up to some D; of 64 for all that is drawn."""
    longest = {}
    for batch in ("64", "83"):
        path = tmp_path / "attention.csv"
        own = ("--batch", batch, "--context", "8k", "--data", str(path))
        assert cli("plot", "attention", *CHARTED, *own).code == 0
        rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
        longest[batch] = max(int(row["draft_length"]) for row in rows)
        assert largest(cli, longest[batch]) >= int(batch)
    assert longest["83"] < longest["64"]
    assert largest(cli, longest["83"] + 1) < 83


def test_a_report_names_the_bytes_of_its_cells(
    cli: Cli, tmp_path: Path, refused: dict[str, Any]
) -> None:
    path = tmp_path / "report.html"
    own = ("--batch", "10", "--context", "8k", "--batches", "10,200", "--contexts", "1k,8k")
    assert cli("report", *ASK, *own, "-o", str(path)).code == 0
    page = read_page(path)
    data = page.data
    at = data["batches"].index(200), data["contexts"].index(refused["context"])
    (cell,) = [data["cells"][at[0]][at[1]]]
    assert set(cell) == {"refused"}
    assert cell["refused"].startswith("batch 200 at 8k tokens needs 153 GB")
    said = " ".join(page.words.split())
    assert "Does not fit: batch 200 at 8k tokens needs 153 GB" in said
    assert all(word in said for word in SAID)


def test_rows_of_a_sweep_name_the_same_bytes(cli: Cli, refused: dict[str, Any]) -> None:
    outcome = cli("sweep", *ASK, "--batch", "10,200", "--context", "8k")
    lost = [row for row in csv.DictReader(outcome.out.splitlines()) if row["batch"] == "200"]
    assert len(lost) == 9
    for name in ("needed", "available"):
        known = refused[f"{name}_bytes"]
        assert float(lost[0][f"memory_{name}_bytes"]) == pytest.approx(known, rel=1e-5)
    for row in lost:
        assert row["fits"] == "false"
        empty = {name for name, value in row.items() if not value}
        assert {"step_ms", "speedup", "recommended_draft_length", "confidence"} <= empty


@pytest.mark.usefixtures("clock")
def test_a_running_batch_without_room_is_named(cli: Cli) -> None:
    """vLLM's recorded pages, with 4,000 sequences instead of 8: 4000 x 2208 x 131 kB of cache."""
    bodies = [re.sub(rb"(num_requests_running\S+) 8\.0", rb"\1 4000.0", p) for p in (VLLM, LATER)]
    own = ("--interval", "0", "--gpu", "h100-sxm")
    with server(engine(pages("vllm", metrics=bodies))) as url:
        outcome = cli("live", url, *own)
        with server(engine(pages("vllm", metrics=bodies))) as again:
            data = cli("live", again, *own, "--format", "json").data()
    (found,) = data["refused"]
    assert (found["batch"], found["context"]) == (4000, data["used"]["context"])
    assert data["change"] is None
    no_figures_at(data, 4000)
    said = " ".join(outcome.out.split())
    assert "Does not fit: batch 4000 at 2200 tokens needs 1.18 TB" in said
    asked = ("--batch", "8,4000", "--context", str(found["context"]), "--format", "json")
    (known,) = cli("recommend", "llama-3.1-8b", *asked).data()["refused"]
    assert found == known


NOTHING = "--batch 200 --context 8k"


@pytest.mark.parametrize(
    "command",
    [
        f"recommend {' '.join(ASK)} {NOTHING}",
        f"recommend {' '.join(ASK)} {NOTHING} --objective latency",
        f"recommend {' '.join(ASK)} --batches-histogram 10:0.5,200:0.5 --context 8k",
        f"schedule {' '.join(ASK)} --batches 200 --contexts 8k",
        f"compare {' '.join(MACHINE)} --drafter eagle3=0.6 {NOTHING}",
        f"explore {' '.join(ASK)} --vary layers=80 {NOTHING}",
        f"memory {' '.join(ASK)} {NOTHING}",
        f"plot speedup {' '.join(ASK)} {NOTHING} --data x.csv",
        f"plot heatmap {' '.join(ASK)} {NOTHING} --data x.csv",
        f"plot frontier {' '.join(ASK)} {NOTHING} --data x.csv",
        f"plot breakdown {' '.join(ASK)} {NOTHING} --data x.csv",
        f"plot roofline {' '.join(ASK)} {NOTHING} --data x.csv",
        f"plot attention {' '.join(CHARTED)} {NOTHING} --data x.csv",
        f"report {' '.join(ASK)} {NOTHING} -o x.html",
        f"sweep {' '.join(ASK)} {NOTHING}",
    ],
)
def test_no_point_fits(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(cli(*command.split()), "batch 200 at 8k tokens needs 153 GB", *REFUSED, code=3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command",
    [
        "recommend --acceptance 0.6",
        "recommend --acceptance 0.6 --rps 1 --input-tokens 2000 --output-tokens 200",
        "schedule --acceptance 0.6",
        "compare",
        "explore --vary layers=80",
        "memory --draft-length 2",
        "diagnose --measured 0:50ms",
        "diagnose --measured 2:50ms:2",
        "plot attention --data x.csv",
        "report -o x.html",
        "sweep",
    ],
)
def test_a_machine_without_room_for_one_sequence(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """141 GB of weights on one H100; two have room for 5 sequences of 4k, four for 115.

    `plot attention` draws 32.
    """
    monkeypatch.chdir(tmp_path)
    name, *own = command.split(" --")
    options = [word for option in own for word in f"--{option}".split()]
    outcome = cli(*name.split(), "llama-3.1-70b", *options)
    assert_refused(outcome, "141 GB of weights", "not even one sequence fits", code=3)
    narrow = "int4-g128" if name == "plot attention" else "fp8"  # 32 sequences, else one
    assert f"nearest remedies: --weights {narrow} (batch " in outcome.err
    gpus = 4 if name == "plot attention" else 2
    assert f", --tp {gpus} (batch " in outcome.err
    assert not list(tmp_path.iterdir())


def test_a_load_names_the_sequences_that_drafts_leave_room_for(cli: Cli) -> None:
    """At 83 sequences plain decoding fits and no draft does: figures of it alone."""
    own = ("--batches-histogram", "83:1", "--context", "8k", "--format", "json")
    policies = cli("recommend", *ASK, *own).data()["policies"]
    assert [each["draft_length"] for each in policies if each["usable"]] == [0]
    assert len(policies) > 1
    for each in policies[1:]:
        assert each["tpot_ms"] is None
        assert each["tokens_per_s"] is None
        assert each["slots"] < 83


def test_the_engines_own_text_ends_with_the_memory(cli: Cli) -> None:
    """At D = 2 a card has room for (74.95 - 18.16 - 0.70 - 0.62 GB) / 0.683 GB = 81.2 sequences.

    0.70 GB: the head's 1.403e9 weights x 2 B / 4; 0.683 GB: 8208 slots x (81,920 + 1,024) B
    and 3 rows of logits of 0.77 MB.
    """
    asked = ("--batches", "1..200", "--contexts", "8k", "--odds", "0")  # bands, not one length
    text = cli("schedule", *ASK, *asked, "--format", "vllm").out
    rows = json.loads(text.split('batch_size": ')[1].rsplit("}'", 1)[0])
    assert rows[-1][1:] == [81, 2]
