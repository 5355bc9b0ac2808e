"""Schedules and CUDA graphs: SGLang's sizes as the user gives them, and the price under vLLM."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.html_page import read_page
from tests.schedule_rules import vllm_config
from tests.scheduling import HEAVY
from tests.servers import engine, pages, server
from tests.support import Cli, assert_refused

ASK = ("schedule", *HEAVY, "--engine", "sglang")


def test_the_note_is_of_the_sizes_that_were_used(cli: Cli) -> None:
    asked = (*ASK, "--notes", "--odds", "0")
    default, own = cli(*asked), cli(*asked, "--graph-batches", "1,2,4,8,16,32,64")
    assert default.said.count("its default CUDA-graph sizes") == 1
    assert "default" not in own.said
    assert own.said.count("the CUDA-graph sizes given") == 1


def test_sizes_may_be_given_in_any_order(cli: Cli) -> None:
    found = [cli(*ASK, "--graph-batches", sizes) for sizes in ("8,64,1,16", "1,8,16,64")]
    assert found[0] == found[1]
    assert found[0].code == 0


@pytest.mark.parametrize("sizes", ["0", "1,0", "4,4"])
def test_sizes_that_cannot_be(cli: Cli, sizes: str) -> None:
    assert_refused(cli(*ASK, f"--graph-batches={sizes}"), "--graph-batches", "at least 1")


# vLLM -----------------------------------------------------------------------------------------

KEY = "num_speculative_tokens_per_batch_size"
MIXED = ("llama-3.1-8b", "--gpu", "h200-sxm", "--contexts", "1k", "--tie", "2")
#: vLLM 0.33.0 keeps whole CUDA graphs under a schedule (`VllmConfig` runs so in `make
#: engines-texts`); older builds did not: issue 49548, one stream 59.6 to 50.0 tokens/s, and 49986.
SEEN = ("keeps whole CUDA graphs", "49548", "49986")


def static_named(text: str) -> str:
    """Return what a schedule is to be compared with; the price stands there, and once."""
    said = "vLLM 0.33 keeps" + " ".join(text.split()).partition("vLLM 0.33 keeps")[2]
    for words in SEEN:
        assert said.count(words) == 1, words
    (found,) = re.findall(r"time it against (K = \d+|no speculation)", said)
    return str(found)


#: On these builds steps under a schedule cost a sixth: 1 - 50.0 / 59.6 = 0.161.
PIECEWISE = ("--engine", "vllm==0.27")
COST = 1 - 50.0 / 59.6


def rows(config: dict[str, Any]) -> list[list[int]]:
    found: list[list[int]] = config.get(KEY, [])
    return found


@pytest.mark.parametrize("odds", ["80", "0"])
def test_a_schedule_that_gains_less_than_its_graphs_cost_is_not_advised(
    cli: Cli, odds: str
) -> None:
    asked = ("schedule", *MIXED, "--acceptance", "survival:0.72,0.45,0.21", "--odds", odds)
    today = cli(*asked, "--format", "json").data()
    assert 0 < today["gain_over_fixed"] < COST
    assert KEY in today["text"]
    older = cli(*asked, *PIECEWISE, "--format", "json").data()
    config = vllm_config(older["text"])
    assert not rows(config)
    assert config["num_speculative_tokens"] == older["best_fixed_draft_length"] > 0
    (said,) = (line for line in older["warnings"] if "piecewise" in line)
    assert "16%" in said


def test_a_schedule_that_gains_more_is_advised(cli: Cli) -> None:
    """One sequence nearly all the time, 256 at the peak: eight drafts for the one, else one."""
    asked = (
        *("schedule", "llama-3.1-8b", "--gpu", "h200-sxm", "--contexts", "1k"),
        *("--acceptance", "0.9", "--mix", "1:0.98,256:0.02", "--format", "json", *PIECEWISE),
    )
    older = cli(*asked).data()
    assert older["gain_over_fixed"] > COST
    table = rows(vllm_config(older["text"]))
    assert len(table) > 1
    assert all(length > 0 for _, _, length in table)
    assert any("piecewise" in line for line in older["warnings"])


@pytest.mark.parametrize(
    ("engine_name", "drafter", "why"),
    [
        # vllm/v1/worker/gpu/model_runner.py of 0.28.0 to 0.31.0 never reads the K of a step
        ("vllm==0.28", "eagle3", "51510"),
        ("vllm==0.31", "llama-3.2-1b", "51510"),
        # SpeculativeConfig of 0.22.0 has no such key
        ("vllm==0.22", "eagle3", "before 0.23"),
        # "Dynamic speculative decoding is not supported with the 'suffix' speculative method"
        ("vllm", "suffix", "switches its schedule off"),
        ("vllm==0.27", "suffix", "switches its schedule off"),
    ],
)
def test_builds_that_make_nothing_of_a_schedule_get_one_draft_length(
    cli: Cli, engine_name: str, drafter: str, why: str
) -> None:
    asked = ("schedule", *MIXED, "--drafter", drafter, "--acceptance", "0.6")
    outcome = cli(*asked, "--engine", engine_name)
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.out.split())
    assert "Note: no schedule: " in said
    assert why in said
    assert "per_batch_size" not in said


def test_heads_that_draft_in_parallel_run_in_piecewise_graphs_today(cli: Cli) -> None:
    """0.33.0 runs P-EAGLE on Model Runner V1, which overrides FULL_AND_PIECEWISE by PIECEWISE."""
    asked = (*MIXED, "--drafter", "peagle", "--acceptance", "0.6", "--odds", "0")
    said = " ".join(cli("schedule", *asked, "--format", "json").data()["warnings"])
    assert "piecewise" in said


@pytest.mark.parametrize(
    "form", [("--format", name) for name in ("table", "vllm", "csv", "json")] + [("--proposed",)]
)
def test_every_vllm_schedule_says_what_its_graphs_cost(cli: Cli, form: tuple[str, ...]) -> None:
    best = cli("schedule", *MIXED, "--format", "json").data()["best_fixed_draft_length"]
    done = cli("schedule", *MIXED, *form)
    printed = " ".join(done.data()["warnings"]) if form[-1] == "json" else done.said
    assert static_named(printed) == (f"K = {best}" if best else "no speculation")


def test_the_static_draft_length_to_compare_with_is_named(cli: Cli) -> None:
    """Up to batch 128 a single D beats no speculation: it is named."""
    asked = (*MIXED, "--batches", "1..128", "--odds", "0")
    best = cli("schedule", *asked, "--format", "json").data()["best_fixed_draft_length"]
    assert best > 0
    assert static_named(cli("schedule", *asked, "--format", "vllm").err) == f"K = {best}"


def test_a_schedule_for_a_load_names_the_draft_length_that_is_advised(cli: Cli) -> None:
    asked = (
        "recommend",
        "llama-3.1-8b",
        "--acceptance",
        "survival:0.6,0.5,0.4,0.3",
        "--context",
        "1k",
        "--batches-histogram",
        "1:0.9,256:0.1",
    )
    done = cli(*asked)
    assert KEY in done.out
    advised = cli(*asked, "--format", "json").data()["draft_length"]
    assert static_named(done.said) == f"K = {advised}"


@pytest.mark.usefixtures("clock")
def test_a_schedule_for_a_running_server_says_it(cli: Cli) -> None:
    with server(engine(pages("vllm"))) as url:
        done = cli("live", url, "--gpu", "h100-sxm", "--interval", "7s")
    assert KEY in done.out
    named = re.search(r"against (D|K) = (\d+) at every batch", " ".join(done.out.split()))
    assert named is not None
    assert static_named(done.said) == f"K = {named[2]}"  # the same as the answer says


def test_the_page_says_it_beside_the_schedule(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = cli("report", "llama-3.1-8b", "--gpu", "h200-sxm", "--context", "1k", "-o", str(file))
    assert done.code == 0
    page = read_page(file)
    assert KEY in page.text["schedule"]
    static_named(page.words)


def test_one_draft_length_for_all_batches_is_no_schedule(cli: Cli) -> None:
    """The tail carries the last K anyway, so a single row would cost graphs and change nothing."""
    done = cli("schedule", "llama-3.1-8b", "--batches", "1..4", "--format", "vllm")
    config = vllm_config(done.out)
    assert KEY not in config
    assert config["num_speculative_tokens"] > 0
    assert "time it against" not in done.said


@pytest.mark.parametrize("engine_name", ["sglang", "trtllm"])
def test_other_engines_do_not_warn_of_it(cli: Cli, engine_name: str) -> None:
    done = cli("schedule", *MIXED, "--engine", engine_name)
    assert done.code == 0
    assert "49548" not in done.said


def test_what_larger_captures_would_gain_is_what_they_gain(cli: Cli) -> None:
    """The gain and the flag of the sentence, against two answers: as it is, and with the capture.

    The tie of both lets an answer be within 1 % of the best.
    """
    asked = ("llama-3.1-8b", "--gpu", "h100-sxm", "--acceptance", "0.8")
    out = " ".join(cli("schedule", *asked, "--contexts", "1k", "--batches", "1..256").out.split())
    (found,) = re.findall(
        r"With graphs for its (\d+) rows \(--max-cudagraph-capture-size (\d+)\), D = (\d) would be "
        r"([\d.]+)% faster than the best D at batch (\d+)\.",
        out,
    )
    rows, flag, length, gain, batch = map(float, found)
    assert rows == batch * (1 + length)
    assert 0 <= flag - rows < 16  # vLLM captures multiples of 16
    at = ("recommend", *asked, "--context", "1k", "--batch", f"{batch:.0f}", "--format", "json")
    best = {}
    for more in ((), ("--set", f"engine.graphs.up_to={flag:.0f}")):
        rates = cli(*at, *more).by_draft_length()
        best[more] = max(row["tokens_per_s"] for row in rates.values() if row["captured"])
    before, after = best.values()
    assert gain / 100 == pytest.approx(after / before - 1, abs=0.015)
    few = cli("schedule", *asked, "--contexts", "1k", "--batches", "1..16").out
    assert "With graphs for" not in few


def test_what_was_counted_for_a_fit_cannot_be_set(cli: Cli) -> None:
    """How many rows an overhead was fitted on is evidence: no answer turns on it."""
    for name in ("fitted_rows", "spec_rows"):
        path = f"engine.overhead.{name}=5"
        assert_refused(cli("recommend", "llama-3.1-8b", "--set", path), path, "has no")


def test_notes_are_wrapped_beside_an_engines_text(cli: Cli) -> None:
    asked = ("schedule", "llama-3.1-8b", "--gpu", "h100-sxm", "--acceptance", "0.8")
    said = cli(*asked, "--batches", "1..256", "--format", "vllm", "--notes").err
    assert "Note: " in said
    assert max(map(len, said.splitlines())) <= 80
