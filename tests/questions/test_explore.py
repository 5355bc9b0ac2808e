"""``roofline explore``: variants against single answers, hand arithmetic and NVIDIA's statement."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.question import Workload, ask
from roofline.advice.recommend import recommend
from roofline.questions.explore import Exploration, Variant, explore, holds_from, parse_axis
from roofline.render.charts.explore import draw_exploration, lines_of, panels_of
from roofline.render.charts.figure import new_panels
from roofline.specs.overrides import parse_override
from tests.support import Cli, assert_refused

LLAMA = Configuration(model="llama-3.1-70b", gpu="h200-sxm", tp=8)
AT_8K = Workload(contexts=(8192,), acceptance="llama-3.1-8b-eagle3")


def varied(
    *axes: str,
    configuration: Configuration = LLAMA,
    workload: Workload = AT_8K,
    batch: int = 8,
) -> Exploration:
    return explore(configuration, workload, [parse_axis(text) for text in axes], batch=batch)


@pytest.fixture(scope="module")
def groups() -> Exploration:
    return varied("group_size=1,2,4,8,16,32,64")


@pytest.mark.parametrize("size", ["1", "4", "32"])
def test_a_variant_is_the_single_answer_with_it_set(groups: Exploration, size: str) -> None:
    (variant,) = (v for v in groups.variants if v.values == (size,))
    asked = replace(LLAMA, overrides=(parse_override(f"group_size={size}"),))
    point = recommend(ask(asked, replace(AT_8K, batches=(8,)))).points[0]
    assert variant.draft_length == point.draft_length
    np.testing.assert_allclose(variant.speedup, point.speedup, rtol=1e-12)
    np.testing.assert_allclose(variant.step, point.step, rtol=1e-12)
    # and so is the best D at another batch
    other = recommend(ask(asked, replace(AT_8K, batches=(32,)))).points[0]
    assert variant.by_batch[variant.batches.index(32)] == other.draft_length


def test_kv_bytes_and_parameters_by_hand(groups: Exploration) -> None:
    by_size = {int(v.values[0]): v for v in groups.variants}
    for size, variant in by_size.items():
        heads = 64 // size
        # keys and values of 128 numbers of 2 bytes for each KV head of 80 layers
        assert variant.kv_per_token == 2 * heads * 128 * 2 * 80
        # 8 GPUs divide the heads until there is one on each; then each has a copy
        assert variant.kv_per_token_gpu == 2 * max(heads / 8, 1) * 128 * 2 * 80
        assert variant.kv_copied == (size > 8)
        # as published 70.55 B with 8 KV heads; K and V of the others are 2 x 8192 x 128 each
        assert variant.parameters == 70_553_706_496 + (heads - 8) * 2 * 8192 * 128 * 80


def test_longer_drafts_pay_less_as_the_group_grows(groups: Exploration) -> None:
    """NVIDIA (docs/explain/codesign.md [1]): larger G fills the attention tile at a shorter D.

    With D = 128 / G - 1 as their first guess where attention dominates. Here attention does not
    dominate, so the best D moves less than that, but in the same direction; see the page.
    """
    split = [v for v in groups.variants if int(v.values[0]) <= 8]
    copied = [v for v in groups.variants if int(v.values[0]) >= 8]
    longest = len(groups.variants[0].draft_lengths) - 1
    for smaller, larger in pairwise(split):
        assert (larger.cost_ratio[1:] > smaller.cost_ratio[1:]).all()
        assert larger.draft_length is not None
        assert smaller.draft_length is not None
        assert larger.draft_length <= smaller.draft_length
        # what going on from the shortest draft to the longest one buys
        gains = [v.speedup[longest] / v.speedup[1] for v in (smaller, larger)]
        assert gains[1] < gains[0]
    assert split[0].draft_length != split[-1].draft_length
    # beyond one KV head for each GPU nothing changes on any of them: local G is 64 / 8
    for variant in copied:
        np.testing.assert_allclose(variant.cost_ratio, copied[0].cost_ratio, rtol=1e-12)


def test_the_statement_holds_without_copies_up_to_64() -> None:
    """A quarter of the layers on one GPU: G query heads do share a KV head up to G = 64."""
    single = replace(LLAMA, tp=1, overrides=(parse_override("layers=20"),))
    found = varied("group_size=2,4,8,16,32,64", configuration=single, batch=16)
    assert not any(v.kv_copied for v in found.variants)
    for smaller, larger in pairwise(found.variants):
        assert (larger.cost_ratio[1:] > smaller.cost_ratio[1:]).all()
        assert larger.speedup[-1] / larger.speedup[1] < smaller.speedup[-1] / smaller.speedup[1]
    bests = [v.draft_length or 0 for v in found.variants]
    assert bests == sorted(bests, reverse=True)
    assert bests[0] > bests[-1]
    knees = [v.falls_from or math.inf for v in found.variants]  # none: memory ends the range first
    assert knees == sorted(knees, reverse=True)
    assert knees[0] > knees[-1]


def test_more_experts_make_drafts_dearer() -> None:
    """Two tokens wake E (1 - (1 - k/E)^2) experts, one wakes k: 1.5 times at E = 2 k, 2 at most."""
    found = varied(
        "experts=16,32,64,128,256",
        configuration=Configuration(model="qwen3-30b-a3b", gpu="h200-sxm"),
        workload=Workload(acceptance="0.7"),
        batch=1,
    )
    ratios = [float(v.cost_ratio[1]) for v in found.variants]
    assert all(b > a for a, b in pairwise(ratios)), ratios


@pytest.mark.parametrize(
    ("best", "falls", "stops"),
    [
        ((5, 5, 5, 5), None, None),
        ((5, 5, 3, 2), 4, None),
        ((5, 3, 5, 0), 8, 8),  # it came back: only the end counts
        ((5, 0, 0, 0), 2, 2),
        ((0, 0, 0, 0), None, 1),
        ((3, 5, 4, 3), None, None),
    ],
)
def test_knees(
    groups: Exploration, best: tuple[int, ...], falls: int | None, stops: int | None
) -> None:
    variant: Variant = replace(groups.variants[0], batches=(1, 2, 4, 8), by_batch=best)
    assert variant.falls_from == falls
    assert variant.stops_from == stops
    assert holds_from([], []) is None


def test_combinations_that_cannot_be_are_left_out(cli: Cli) -> None:
    asked = ["explore", "qwen3-30b-a3b", "--acceptance", "0.7", "--gpu", "h200-sxm"]
    outcome = cli(*asked, "--vary", "experts=8,128", "--vary", "top_k=4,16", "--format", "json")
    values = [variant["values"] for variant in outcome.data()["variants"]]
    assert values == [
        {"experts": 8, "top_k": 4},
        {"experts": 128, "top_k": 4},
        {"experts": 128, "top_k": 16},
    ]
    assert "left out: --vary experts=8 --vary top_k=16" in outcome.said
    # a value that works with nothing is an error
    assert_refused(cli(*asked, "--vary", "experts=8", "--vary", "top_k=4,16"), "top_k 16 exceeds")


@pytest.mark.parametrize("name", ["x.csv", "x.json"])
def test_explain_beside_data_changes_nothing(cli: Cli, tmp_path: Path, name: str) -> None:
    asked = ("explore", "llama-3.1-8b", "--vary", "group_size=1,4", "--batches", "1,8")
    said = cli(*asked, "--explain", "-o", str(tmp_path / f"with-{name}"))
    assert said.code == 0
    assert "--explain changes nothing here" in said.err
    assert cli(*asked, "-o", str(tmp_path / name)).code == 0
    assert (tmp_path / name).read_bytes() == (tmp_path / f"with-{name}").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vary", "group_size"], "PATH=VALUE"),
        (["--vary", "group_size=1,,2"], "PATH=VALUE,VALUE"),
        (["--vary", "group_size=1,1"], "twice"),
        (["--vary", "group_size=1", "--vary", "group_size=2"], "twice"),
        (["--vary", "group_size=1", "--set", "group_size=2"], "twice"),
        (["--vary", "group_size=1,x"], "whole number"),
        (["--vary", "group_size=5"], "divisor"),
        (["--vary", "experts=5"], "num_experts"),
        (["--vary", "grup=5"], "unknown path"),
        (["--vary", "group_size=1", "--context", "4k,8k"], "one context"),
        (["--vary", "group_size=1", "--batch", "0"], "--batch 0"),
        (["--vary", "group_size=1", "--batches", "0"], "--batches 0"),
        (["--vary", "group_size=1", "--batches", "4,4"], "--batches 4,4"),
        (["--vary", "group_size=1", "--plot", "x.gif"], ".png"),
        (["--vary", f"layers={','.join(map(str, range(1, 2100)))}"], "at most 2000"),
        ([], "--vary"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(cli: Cli, arguments: list[str], said: str) -> None:
    assert_refused(cli("explore", "llama-3.1-8b", *arguments), said)


def test_a_variant_that_does_not_fit_stays_in_the_table(cli: Cli) -> None:
    # 58 GB of an H100 beside the weights hold, at 32k, more than 50 sequences with 2 KV heads
    # (1.07 GB each) but 3 with 32 (17.2 GB)
    asked = ["explore", "llama-3.1-8b", "--context", "32k", "--batch", "8"]
    asked += ["--acceptance", "llama-3.1-8b-eagle3", "--vary"]
    rows = list(csv.DictReader(io.StringIO(cli(*asked, "group_size=1,16", "--format", "csv").out)))
    assert rows[0]["draft_length"] == rows[0]["speedup"] == ""
    assert 0 < int(rows[0]["largest_batch"]) < 8 < int(rows[1]["largest_batch"])
    assert float(rows[1]["speedup"]) > 1
    assert_refused(cli("explore", "llama-3.1-70b", "--vary", "group_size=8"), "needs", code=3)
    big = cli("explore", "llama-3.1-8b", "--vary", "group_size=1,2", "--batch", "100000")
    assert_refused(big, "no variant fits", "batch 100000", code=3)


def test_without_drafts_the_sentence_is_of_times(cli: Cli) -> None:
    out = cli("explore", "llama-3.1-8b", "--vary", "group_size=1,4", "--drafter", "none").out
    assert out.startswith("Nothing is drafted; ms per token: ")


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_formats_agree(cli: Cli, form: str) -> None:
    arguments = ["explore", "llama-3.1-8b", "--batch", "4", "--vary", "group_size=1,4", "--vary",
                 "model.num_layers=16,32", "--set", "mlp.intermediate_size=8k"]  # fmt: skip
    data = json.loads(cli(*arguments, "--format", "json").out)
    speedups = [variant["speedup"] for variant in data["variants"]]
    outcome = cli(*arguments, "--format", form)
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(outcome.out)))
        assert [float(row["speedup"]) for row in rows] == pytest.approx(speedups, rel=1e-5)
        by_length = data["variants"][0]["by_draft_length"]
        for row in by_length[1:]:
            said = rows[0][f"cost_ratio_{row['draft_length']}"]
            assert float(said) == pytest.approx(row["cost_ratio"], rel=1e-5)
    elif form == "json":
        assert data["inputs"]["set"][0]["path"] == "mlp.intermediate_size"
        assert len(data["inputs"]["set"]) == 1  # what varies is no part of the question
    else:
        for speedup in speedups:
            assert f"{speedup:.2f}x" in outcome.out
        assert "mlp.intermediate_size = 8k (was 14336)" in " ".join(outcome.out.split())
    if form == "table":
        wide = cli(*arguments, "--explain", "--max-draft-length", "16").out
        assert max(map(len, [*outcome.out.splitlines(), *wide.splitlines()])) <= 80


def test_the_chart_shows_the_variants(tmp_path: Path, cli: Cli) -> None:
    found = varied("group_size=1,8", "layers=40,80")
    assert list(lines_of(found)) == ["layers = 40", "layers = 80"]
    _, axes = new_panels(2, 2)
    drawn = draw_exploration(axes, found)
    bests = [list(line.get_ydata()) for line in drawn["best draft length"]]  # type: ignore[arg-type]
    assert bests == [[v.draft_length for v in line] for line in lines_of(found).values()]
    # keys and values of 64 or 8 heads of 128, 2 bytes each, in 80 layers, over 8 GPUs
    kv = list(drawn["KV of one GPU (kB a token)"][1].get_ydata())  # type: ignore[arg-type]
    assert kv == [pytest.approx(327.68), pytest.approx(40.96)]
    target = tmp_path / "chart.svg"
    asked = ["explore", "llama-3.1-8b", "--vary", "group_size=1,4", "--plot", str(target)]
    assert cli(*asked).code == 0
    assert target.read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize("axes", [("group_size=1,8",), ("group_size=1,8", "layers=20,80")])
def test_the_chart_ticks_whole_draft_lengths_and_batches(axes: tuple[str, ...]) -> None:
    """Where every variant has one best D, there is one tick; none stands between two numbers."""
    found = varied(*axes)
    figure, panels = new_panels(2, 2)
    draw_exploration(panels, found)
    figure.draw_without_rendering()
    bests = {v.draft_length for v in found.variants}
    low, high = panels[0].get_ylim()
    ticks = [tick for tick in panels[0].get_yticks() if low <= tick <= high]
    assert all(tick == round(tick) for tick in ticks)
    assert bests <= set(ticks)
    # where D never falls, the last batch tried stands in, hollow
    falls = {v.falls_from or v.batches[-1] for v in found.variants if any(v.by_batch)}
    if falls and panels[2].get_yscale() == "linear":
        assert list(panels[2].get_yticks()) == sorted(falls)


def test_no_panel_of_the_chart_is_empty() -> None:
    """D that never falls is drawn hollow; where nothing is drafted, no D could fall."""
    no_drafts, at_8k = replace(LLAMA, drafter="none"), Workload(contexts=(8192,))
    plain = varied("layers=40,80", configuration=no_drafts, workload=at_8k)
    assert "batch from which D falls" not in [panel.title for panel in panels_of(plain)]
    for found in (plain, varied("layers=40,80"), varied("layers=8,80")):
        panels = panels_of(found)
        _, axes = new_panels(1, len(panels))
        for lines in draw_exploration(axes, found).values():
            values = [np.asarray(line.get_ydata(), dtype=float) for line in lines]
            assert np.isfinite(np.concatenate(values)).any()
        never = [v for v in found.variants if any(v.by_batch) and v.falls_from is None]
        hollow = [line for axis in axes for line in axis.lines if line.get_marker() == "^"]
        assert sum(len(np.asarray(line.get_ydata())) for line in hollow) == len(never)


def test_a_variant_among_fifty_is_the_variant_alone() -> None:
    """How long fifty take is in benchmarks/cold_start.py."""
    found = varied("group_size=1,2,4,8,16", "layers=40,44,48,52,56,60,64,68,72,76")
    assert len(found.variants) == 50
    assert all(math.isfinite(v.speedup[-1]) for v in found.variants)
    (alone,) = varied("group_size=4", "layers=60").variants
    among = found.variants[2 * 10 + 5]  # the first axis turns slowest
    assert list(among.speedup) == pytest.approx(list(alone.speedup), rel=1e-12)
