"""What the charts draw is what ``recommend`` says."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.advice.why import LIMITS, OUTCOMES, Outcome, outcome, outcomes
from roofline.base.errors import InputError
from roofline.cli.plotting import without_options
from roofline.render.charts.attention import attention_rows, draw_attention_time, draw_attention_use
from roofline.render.charts.breakdown import breakdown_rows, draw_breakdown
from roofline.render.charts.cost_ratio import cost_ratio_rows, draw_cost_ratio
from roofline.render.charts.explore import MOST_LINES
from roofline.render.charts.figure import shades, spread_out
from roofline.render.charts.frontier import draw_frontier, frontier_rows, undominated
from roofline.render.charts.heatmap import (
    MOST_COLUMNS,
    HeatmapRow,
    draw_heatmap,
    heatmap_rows,
)
from roofline.render.charts.rooflines import draw_roofline, roofline_rows
from roofline.render.charts.speedup import draw_speedup, speedup_rows
from roofline.render.charts.tokens_per_step import draw_tokens_per_step, tokens_rows
from roofline.render.charts.validation import draw_parity, parity_rows
from roofline.specs.formats import DType
from roofline.specs.overrides import parse_override
from roofline.validation.score import Compared
from tests.charting import H200, said
from tests.support import Cli, assert_refused

#: A drafter that stops paying inside the grid, and stops fitting beside it.
TURNS = question_of(
    model="qwen3-8b",
    drafter="qwen3-0.6b",
    acceptance="0.6",
    batches=(1, 64, 128, 256),
    contexts=(512, 1024, 2048),
)


@pytest.fixture
def points(cli: Cli) -> list[dict[str, Any]]:
    return said(cli, "llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "1,32", "--context", "4k")


def points_of(line: Line2D) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points that a line was drawn through."""
    x, y = line.get_data()
    return np.asarray(x, dtype=float), np.asarray(y, dtype=float)


def column(rows: Sequence[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]


def test_speedup_draws_what_recommend_says(points: list[dict[str, Any]]) -> None:
    axes = Figure().add_subplot()
    lines = draw_speedup(axes, speedup_rows(recommend(question_of(**H200))))
    assert list(lines) == [(1, 4096), (32, 4096)]
    for point, line, band in zip(points, lines.values(), axes.collections, strict=True):
        rows = point["by_draft_length"]
        x, y = points_of(line)
        assert list(x) == column(rows, "draft_length")
        assert list(y) == pytest.approx(column(rows, "speedup"), rel=1e-12)
        vertices = np.round(np.asarray(band.get_paths()[0].vertices, dtype=float), 9)
        corners = {(float(a), float(b)) for a, b in vertices}
        for end in ("speedup_low", "speedup_high"):
            for row in rows:
                assert (row["draft_length"], round(row[end], 9)) in corners
        marked = [points_of(o)[0].tolist() for o in axes.lines if o.get_linestyle() == "None"]
        assert point["tie_band"] in marked
        assert [point["draft_length"]] in marked


def test_breakdown_stacks_up_to_the_step(points: list[dict[str, Any]]) -> None:
    answer = recommend(question_of(**H200))
    bars, line = draw_breakdown(Figure().add_subplot(), breakdown_rows(answer, answer.points[1]))
    rows = points[1]["by_draft_length"]
    heights = {name: [bar.get_height() for bar in found] for name, found in bars.items()}
    assert sum(map(np.array, heights.values())) == pytest.approx(column(rows, "step_ms"), rel=2e-3)
    assert heights["draft_ms"] == pytest.approx(column(rows, "draft_ms"), rel=1e-12)
    assert heights["overhead_ms"] == pytest.approx(column(rows, "overhead_ms"), rel=1e-12)
    verify = [values for name, values in heights.items() if name.startswith("verify")]
    assert sum(map(np.array, verify)) == pytest.approx(column(rows, "verify_ms"), rel=1e-12)
    assert points_of(line)[1] == pytest.approx(column(rows, "tpot_ms"), rel=1e-12)
    tops = [bar.get_y() + bar.get_height() for bar in bars["overhead_ms"]]
    assert tops == pytest.approx(column(rows, "step_ms"), rel=1e-12)


def test_frontier_draws_what_each_batch_gives(cli: Cli) -> None:
    batches = (1, 4, 16, 64, 256)
    asked = question_of(model="llama-3.1-8b", gpu="h100-sxm", tp=2, batches=batches)
    rows = frontier_rows(recommend(asked))
    lines = draw_frontier(Figure().add_subplot(), rows)
    text = ",".join(map(str, batches))
    points = said(cli, "llama-3.1-8b", "--tp", "2", "--batch", text)
    for name, pick in (("plain decoding (D = 0)", 0), ("at the advised D", None)):
        chosen = [
            next(r for r in p["by_draft_length"] if r["draft_length"] == d)
            for p in points
            for d in [p["draft_length"] if pick is None else pick]
        ]
        pairs = [(1e3 / row["tpot_ms"], row["tokens_per_s"] / 2) for row in chosen]
        kept = [  # brute force: nobody is at least as good in both
            p for p in pairs if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in pairs)
        ]
        drawn = zip(*points_of(lines[name]), strict=True)
        assert [tuple(p) for p in drawn] == [pytest.approx(p, rel=1e-12) for p in kept]


def test_undominated_against_brute_force() -> None:
    grid = np.array(list(itertools.product(range(4), repeat=2)), dtype=float)[::2]
    kept = undominated(grid[:, 0], grid[:, 1])
    for i, (x, y) in enumerate(grid):
        beaten = any(a >= x and b >= y and (a > x or b > y) for a, b in grid)
        assert kept[i] == (not beaten)


def test_heatmap_draws_the_advice_of_every_cell(cli: Cli) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    cells = draw_heatmap(axes, heatmap_rows(recommend(TURNS)))
    points = said(
        cli, "qwen3-8b", "--drafter", "qwen3-0.6b", "--acceptance", "0.6",
        "--batch", "1,64,128,256", "--context", "512,1k,2k",
    )  # fmt: skip
    array = cells.get_array()
    assert array is not None
    drawn = np.ma.masked_invalid(array)
    assert drawn.shape == (3, 4)
    expected = np.ma.masked_invalid(np.full((3, 4), np.nan))
    for point in points:
        at = (
            TURNS.workload.contexts.index(point["context"]),
            TURNS.workload.batches.index(point["batch"]),
        )
        expected[at] = point["draft_length"]
    assert (drawn.mask == expected.mask).all()
    assert drawn.mask.any()  # batch 256 at 2k does not fit
    assert (drawn.compressed() == expected.compressed()).all()


def test_the_break_even_line_parts_win_and_loss() -> None:
    """Brute force: an edge of two cells is drawn where one gains and the other does not."""
    axes = Figure().add_subplot()
    rows = heatmap_rows(recommend(TURNS))
    draw_heatmap(axes, rows)
    (line,) = (artist for artist in axes.collections if isinstance(artist, LineCollection))
    drawn = {tuple(map(tuple, segment.tolist())) for segment in line.get_segments()}
    gain = {(r.batch, r.context): r.best_speculative_speedup for r in rows}
    assert gain[64, 512] > 1 > gain[256, 512]  # type: ignore[operator]
    expected = set()
    for (i, batch), (j, context) in itertools.product(
        enumerate(TURNS.workload.batches), enumerate(TURNS.workload.contexts)
    ):
        for di, dj in ((1, 0), (0, 1)):
            if i + di == len(TURNS.workload.batches) or j + dj == len(TURNS.workload.contexts):
                continue
            one, other = (
                gain[batch, context],
                gain[TURNS.workload.batches[i + di], TURNS.workload.contexts[j + dj]],
            )
            if one is not None and other is not None and (one > 1) != (other > 1):
                expected.add(((i + di, j + dj), (i + 1, j + 1)))
    assert drawn == expected
    assert drawn


def test_roofline_tracks_are_the_kernels_of_explain(cli: Cli) -> None:
    question = question_of(model="llama-3.1-8b", gpu="h200-sxm", batches=(32,))
    axes = Figure().add_subplot()
    lines = draw_roofline(axes, roofline_rows(question.price()))
    outcome = cli(
        "recommend", "llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "32", "--explain",
        "--format", "json",
    )  # fmt: skip
    at = question.draft_lengths.index(outcome.point()["draft_length"])
    verify = outcome.ops("verify")
    for op in ("qkv_proj", "gate_up_proj", "attention", "lm_head"):
        x, y = points_of(lines[op])
        assert x[at] == pytest.approx(verify[op]["intensity"], rel=1e-9)
        rate = verify[op]["flops"] / verify[op]["time_us"] / 1e6
        assert y[at] == pytest.approx(rate, rel=1e-9)
        assert (np.diff(x) > 0).all()
    first, further = outcome.ops("draft"), outcome.ops("draft, further")
    passes = [*first.values(), *further.values()]  # total_ms and count hold all D - 1 repeats
    flops = sum(row["flops"] * row["count"] for row in passes)
    seconds = sum(row["total_ms"] for row in passes) / 1e3
    drafts = points_of(lines["draft passes"])[1][at - 1]  # no drafts at D = 0
    assert drafts == pytest.approx(flops / seconds / 1e12, rel=1e-9)
    # NVIDIA's H200 datasheet: 989.4 TFLOP/s dense bf16 over 4.8 TB/s is a ridge at 206 FLOP/byte
    x, y = points_of(lines["bf16 datasheet"])
    assert (x[1], y[1]) == pytest.approx((206.1, 989.4), rel=1e-3)
    assert y[0] == pytest.approx(x[0] * 4.8, rel=1e-3)


def test_attention_that_does_not_fit_is_refused(cli: Cli, tmp_path: Path) -> None:
    target = str(tmp_path / "a.png")
    done = cli("plot", "attention", "llama-3.1-8b", "--batch", "100000", "-o", target)
    assert_refused(done, "batch 100000", "the largest batch that fits is", code=3)


def test_attention_is_timed_over_rows_and_counted_by_hand(cli: Cli) -> None:
    asked = Configuration(model="llama-3.1-8b", gpu="h200-sxm", drafter="none")
    rows = attention_rows(deploy(asked)[0], batch=32, context=4096)
    figure = Figure()
    top, bottom = figure.subplots(2)
    times = draw_attention_time(top, rows)
    use = draw_attention_use(bottom, rows)
    outcome = cli(
        "recommend", "llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "32", "--explain",
        "--format", "json",
    )  # fmt: skip
    d = outcome.point()["draft_length"]
    x, y = points_of(times["attention", "kv_once"])
    assert x.tolist() == [4.0 * (1 + i) for i in range(64)]  # 32 query heads over 8 KV heads
    assert y[d] == pytest.approx(outcome.ops("verify")["attention"]["time_us"], rel=1e-9)
    # 32 sequences x 4096 tokens x 8 heads x (128 + 128) values x 2 bytes at 4.8 TB/s: 112 us
    floor = 32 * 4096 * 8 * 256 * 2 / 4.8e12
    share = points_of(use["attention", "bandwidth_used"])[1][0]
    assert share == pytest.approx(100 * floor / (1e-6 * y[0]), rel=0.01)
    # a whole tile of 128 rows is computed from the first draft on, and a second one at 132 rows;
    # plain decoding and full tiles have no empty rows
    tiles = points_of(times["attention", "tile"])[1]
    assert tiles[[0, 31, 63]] == pytest.approx(y[[0, 31, 63]])
    assert (tiles[1:31] > y[1:31]).all()
    assert tiles[32] > 1.2 * tiles[31]
    assert (points_of(times["attention", "kv_per_query"])[1][1:] > y[1:]).all()
    # the H200 kernel takes 64 rows in a block
    dotted = {xs[0] for line in top.lines if len(xs := points_of(line)[0]) == 2}
    assert dotted == {64, 128, 192, 256}


@pytest.mark.parametrize(("seconds", "unit", "scale"), [(2e-5, "µs", 1e6), (0.02, "ms", 1e3)])
def test_parity_draws_every_row_in_the_unit_that_fits(
    seconds: float, unit: str, scale: float
) -> None:
    measured = seconds * np.array([1.0, 2.0, 4.0])
    part = Compared(
        suite="s", kind="gemm", gpu="g", engine="e", dtype="bf16", name="n",
        predicted=1.1 * measured, measured=measured, textbook=0.5 * measured,
    )  # fmt: skip
    axes = Figure().add_subplot()
    found = draw_parity(axes, parity_rows([part]))
    assert axes.get_xlabel() == f"measured ({unit})"
    expected = np.column_stack([measured, 1.1 * measured]) * scale
    assert np.asarray(found["gemm"].get_offsets()) == pytest.approx(expected)
    expected[:, 1] = 0.5 * scale * measured
    assert np.asarray(found["textbook"].get_offsets()) == pytest.approx(expected)


def test_charts_of_one_point_say_so() -> None:
    with pytest.raises(InputError, match="one"):
        frontier_rows(recommend(question_of(model="llama-3.1-8b", contexts=(1024, 2048))))
    question = question_of(**H200)
    with pytest.raises(InputError, match="one"):
        roofline_rows(question.price())


def test_the_palette_is_okabe_and_itos() -> None:
    from roofline.render.charts.figure import MARKERS, PALETTE

    # Okabe and Ito 2008, "Color Universal Design": 0,114,178 is blue, 213,94,0 vermilion, ...
    published = {
        (0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233),
        (0, 0, 0), (240, 228, 66),
    }  # fmt: skip
    assert {tuple(bytes.fromhex(colour[1:])) for colour in PALETTE} == published
    assert len(set(MARKERS)) == len(PALETTE)


def lightness_and_colour(colour: str, seen_by: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return CIE L*a*b* of an sRGB colour under a D65 light (IEC 61966-2-1, CIE 15)."""
    part = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = seen_by @ np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    share = to_xyz @ np.clip(linear, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


#: Machado, Oliveira and Fernandes 2009, "A physiologically-based model for simulation of color
#: vision deficiency", severity 1.0: what dichromats see of linear RGB.
SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("longest", [1, 2, 3, 8])
def test_the_scale_of_draft_lengths_is_read_in_order_by_every_eye(sight: str, longest: int) -> None:
    """Lightness falls from D to D; no D looks like 0 (a difference of 2.3 is just noticeable)."""
    seen = [lightness_and_colour(colour, SIGHT[sight]) for colour in shades(longest)]
    light = [lab[0] for lab in seen[1:]]
    assert all(a - b > 5 for a, b in itertools.pairwise(light))
    assert all(np.linalg.norm(lab - seen[0]) > 20 for lab in seen[1:])


#: 70B in fp8 on 4 x H100 under vLLM, which captures graphs for 512 rows. At 512 sequences D = 1 is
#: 1024 rows; at 256 it is 512, so only the curve, known at D = 3 alone, is in the way.
TYPED = "survival:0.77,0.59,0.43,0.29"
GRAPHS_END: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm",
    "tp": 4,
    "weights": DType.FP8,
    "batches": (64, 256, 512),
    "contexts": (1024,),
}


def test_a_cell_without_drafts_says_the_true_cause() -> None:
    def causes_of(**more: Any) -> list[str | None]:
        return [row.no_draft_because for row in heatmap_rows(recommend(question_of(**more)))]

    assert causes_of(**GRAPHS_END, acceptance="0.9") == [None, None, "past_graphs"]
    assert not any(causes_of(model="llama-3.1-8b", drafter="none"))


@pytest.mark.parametrize(
    ("fits", "candidates", "unknown", "said"),
    [
        ((1, 1, 1), (1, 1, 0), 0, "plain"),
        ((1, 0, 0), (1, 0, 0), 0, "no_room"),
        ((1, 1, 0), (1, 0, 0), 0, "past_graphs"),
        ((1, 1, 0), (1, 0, 0), 1, "unknown"),
        ((1, 0, 0), (1, 0, 0), 1, "unknown"),
        ((1,), (1,), 0, "alone"),
    ],
)
def test_what_an_answer_says_where_drafts_cannot_run(
    fits: tuple[int, ...], candidates: tuple[int, ...], unknown: int, said: str
) -> None:
    fit, may = (np.array(mask, dtype=bool) for mask in (fits, candidates))
    position = outcomes(fits=fit, candidates=may, best=0, unknown=np.array(bool(unknown)))
    assert OUTCOMES[position.item()] == said


GRAPHS: list[dict[str, Any]] = [
    GRAPHS_END | {"contexts": (512, 1024)},
    {"model": "qwen3-8b", "gpu": "h200-sxm", "batches": (256, 300, 512), "contexts": (512, 4096)},
]
MEMORY: list[dict[str, Any]] = [
    {"model": "qwen3-8b", "drafter": "qwen3-0.6b", "batches": (64, 192, 256, 288, 384)},
    {"model": "qwen3-32b", "drafter": "qwen3-0.6b", "batches": (1, 4, 6, 8, 9, 12, 16, 20)},
]


def answers_without(limit: Outcome, asked: dict[str, Any]) -> dict[tuple[int, int], int]:
    """Return the draft length advised at each point where a limit does not hold."""
    if limit is Outcome.NO_ROOM:
        asked = asked | {"overrides": (parse_override("gpu.memory.visible=100 TB"),)}
    question = question_of(**asked)
    deployment, engine = question.deployment, question.deployment.engine
    if limit is Outcome.PAST_GRAPHS:
        assert engine.graphs
        graphs = engine.graphs.model_copy(update={"up_to": 2**20})
        endless = engine.model_copy(update={"graphs": graphs})
        question = replace(question, deployment=replace(deployment, engine=endless))
    return {(p.batch, p.context): p.draft_length for p in recommend(question).points}


@pytest.mark.parametrize("acceptance", ["0.8", "0.45", "0.15"])
@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        *((Outcome.PAST_GRAPHS, asked) for asked in GRAPHS),
        *((Outcome.NO_ROOM, asked | {"contexts": (1024, 2048)}) for asked in MEMORY),
    ],
)
def test_a_cell_names_a_limit_where_the_advice_without_it_is_to_draft(
    limit: Outcome, asked: dict[str, Any], acceptance: str
) -> None:
    asked = asked | {"acceptance": acceptance}
    answer = recommend(question_of(**asked))
    causes = {(r.batch, r.context): r.no_draft_because for r in heatmap_rows(answer)}
    without = answers_without(limit, asked)
    said = {(p.batch, p.context): outcome(answer, p) for p in answer.points}
    held = [at for at in said if said[at] is limit]
    assert held
    for at in held:
        assert causes[at] == (limit if without[at] else None), at
    assert {cause for at, cause in causes.items() if at not in held} <= {None, *LIMITS} - {limit}


@pytest.mark.parametrize(
    ("model", "gpu", "batch"), [("llama-3.1-8b", "h100-sxm", 192), ("qwen3-8b", "h200-sxm", 240)]
)
@pytest.mark.parametrize(("of_two", "wins"), [("al:2=2.4", True), ("al:2=1.02", False)])
def test_an_unknown_acceptance_is_the_cause_where_the_most_it_can_be_would_win(
    model: str, gpu: str, batch: int, of_two: str, *, wins: bool
) -> None:
    """One draft yields no more tokens than two do; with as many as two it is advised, or is not."""
    asked: dict[str, Any] = {
        "model": model,
        "gpu": gpu,
        "drafter": "eagle3",
        "batches": (batch,),
        "contexts": (512,),
    }
    whole = question_of(**asked, acceptance=of_two)
    (row,) = heatmap_rows(recommend(replace(whole, draft_lengths=(0, 2))))
    assert row.no_draft_because == (Outcome.UNKNOWN if wins else None)
    most = of_two.replace("2=2.4", "1=2").replace("2=1.02", "1=1.02")
    assert bool(recommend(question_of(**asked, acceptance=most)).points[0].draft_length) == wins


def test_the_heatmap_has_words_and_a_hatch_for_each_cause() -> None:
    rows = heatmap_rows(recommend(question_of(**GRAPHS_END, acceptance="0.9")))
    axes = Figure().add_subplot()
    draw_heatmap(axes, rows)
    assert [text.get_text() for text in axes.texts].count("no graph") == 1
    legend = axes.get_legend()
    assert legend is not None
    assert "no graph: drafts would win in captured graphs" in {
        text.get_text() for text in legend.get_texts()
    }
    assert not any("memory" in text.get_text() for text in axes.texts)


def test_the_cost_ratio_is_drawn_beside_tokens_per_step(cli: Cli) -> None:
    rows = cost_ratio_rows(recommend(question_of(**H200, acceptance=TYPED)))
    axes = Figure().add_subplot()
    lines = draw_cost_ratio(axes, rows)
    assert list(lines) == ["AL", 1, 32]
    points = said(
        cli, "llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "1,32", "--context", "4k",
        "--acceptance", TYPED,
    )  # fmt: skip
    for point in points:
        entries = point["by_draft_length"]
        x, ratio = points_of(lines[point["batch"]])
        assert list(x) == column(entries, "draft_length")
        assert ratio == pytest.approx(column(entries, "cost_ratio"), rel=1e-12)
        tokens = points_of(lines["AL"])[1]
        assert tokens == pytest.approx(column(entries, "tokens_per_step"), rel=1e-12)
        drawn = [row for row in rows if row.batch == point["batch"]]
        for row, entry in list(zip(drawn, entries, strict=True))[:5]:
            # numbers that are given are taken at their word: the range is that of the step times
            assert row.tokens_per_step / row.cost_ratio_low == pytest.approx(entry["speedup_high"])
            assert row.tokens_per_step / row.cost_ratio_high == pytest.approx(entry["speedup_low"])
    # the loss is shaded from AL(D) up
    shade = axes.collections[-1].get_paths()[0].vertices
    corners = {(float(a), round(float(b), 9)) for a, b in np.asarray(shade)}
    assert {(float(r.draft_length), round(r.tokens_per_step, 9)) for r in rows} <= corners


def test_the_range_of_the_cost_ratio_leaves_the_sampling_of_acceptance_out() -> None:
    counted = question_of(**H200, acceptance="0.7", acceptance_rounds=50)
    exact = question_of(**H200, acceptance="0.7")
    for few, many in zip(
        *(cost_ratio_rows(recommend(question)) for question in (counted, exact)), strict=True
    ):
        assert (few.cost_ratio_low, few.cost_ratio_high) == pytest.approx(
            (many.cost_ratio_low, many.cost_ratio_high)
        )


def test_steps_that_leave_the_captured_graphs_are_marked() -> None:
    """VLLM captures 512 rows: at 128 sequences D = 4 is 640."""
    answer = recommend(question_of(**{**H200, "batches": (1, 128), "contexts": (1024,)}))
    speedups, ratios = Figure().subplots(1, 2)
    draw_speedup(speedups, speedup_rows(answer))
    draw_cost_ratio(ratios, cost_ratio_rows(answer))
    for axes in (speedups, ratios):
        (crosses,) = [line for line in axes.lines if line.get_marker() == "x"]
        assert points_of(crosses)[0].tolist() == [4, 5, 6, 7, 8]
        assert crosses.get_label() == "past the captured graphs"
    axes = Figure().add_subplot()
    draw_breakdown(axes, breakdown_rows(answer, answer.points[1]))
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert [int(t.split()[0]) for t in ticks if "no graph" in t] == [4, 5, 6, 7, 8]
    inside = recommend(question_of(**H200))
    draw_speedup(axes := Figure().add_subplot(), speedup_rows(inside))
    assert not [line for line in axes.lines if line.get_marker() == "x"]


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


MIXTURE = "qwen3-30b-a3b --gpu h200-sxm --batch 32"
LATENT = "deepseek-v3 --gpu h200-sxm --tp 8 --drafter mtp --acceptance 0.7"
HYBRID = "qwen3-next-80b-a3b-instruct --gpu h200-sxm --tp 2 --acceptance 0.7"
#: NVIDIA's datasheets of H100 SXM and H200: dense TFLOP/s (half of those with sparsity), TB/s.
PEAK = {"bf16": 989.4, "fp8": 1978.9}
BANDWIDTH = {"h100-sxm": 3.35, "h200-sxm": 4.8}
TWO_FORMATS = "gpt-oss-120b --gpu h100-sxm --tp 2 --kv fp8"


@pytest.mark.parametrize("question", ["llama-3.1-8b", MIXTURE, LATENT, HYBRID, TWO_FORMATS])
def test_each_format_has_one_roof_and_no_point_stands_above_its_own(
    cli: Cli, tmp_path: Path, question: str
) -> None:
    """Brute force over the CSV, with the figures of NVIDIA's datasheets."""
    path = tmp_path / "roof.csv"
    outcome = cli("plot", "roofline", *question.split(), "--data", str(path))
    assert outcome.code == 0, outcome.err
    rows = _rows(path)
    roofs = {row["op"]: row for row in rows if row["group"] == "roof"}
    formats = [name.split()[0] for name in roofs]
    assert len(set(formats)) == len(formats) == sum(row["group"] == "roof" for row in rows)
    bandwidth = BANDWIDTH[rows[0]["gpu"]]
    for row in rows:
        if row["group"] == "roof":
            continue
        allowed = min(
            PEAK[row["roof"].split()[0]], float(row["intensity_flop_per_byte"]) * bandwidth
        )
        share = float(row["attained_tflop_per_s"]) / allowed
        assert share <= 1 + 1e-3
        assert float(row["share_of_roof"]) == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("question", [MIXTURE, LATENT, HYBRID])
def test_every_line_of_a_mixture_is_named_in_frame_and_told_apart(question: str) -> None:
    """The router and the lm_head are among them; no name lies over a marker."""
    model, *options = question.split()
    names = [name.removeprefix("--").replace("-", "_") for name in options[::2]]
    asked: dict[str, Any] = dict(zip(names, options[1::2], strict=True))
    asked = {name: int(text) if text.isdigit() else text for name, text in asked.items()}
    asked["batches"] = (asked.pop("batch", 32),)
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    lines = draw_roofline(axes, roofline_rows(question_of(model=model, **asked).price()))
    figure.draw_without_rendering()
    assert {"router", "lm_head", "experts"} < set(lines)
    named = [text for text in axes.texts if text.get_transform() == axes.transAxes]
    words = {text.get_text() for text in named}
    assert {"all draft passes" if op == "draft passes" else op for op in lines} == words
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines.values()}
    roofs = sum(op.endswith("datasheet") for op in lines)
    assert len(looks) == len(lines) - roofs + 1
    inside = axes.get_window_extent()
    for op, line in lines.items():
        if not op.endswith("datasheet"):
            pixels = axes.transData.transform(np.column_stack(points_of(line)))
            assert all(inside.contains(*pixel) for pixel in pixels), op
    for text in named:
        assert text.get_window_extent().x0 > inside.x1


@pytest.mark.parametrize("wanted", [[0.9, 0.5, 0.5], [0.1, 0.05, 0.0], [1.2, 0.99, 0.4], [0.5]])
def test_names_keep_their_distance_their_order_and_the_frame(wanted: list[float]) -> None:
    heights = spread_out(wanted, apart=0.1, high=1.0)
    assert all(a - b >= 0.1 - 1e-9 for a, b in itertools.pairwise(heights))
    assert heights[0] <= 1 + 1e-9
    assert heights[-1] >= -1e-9
    far = [0.9, 0.6, 0.2]
    assert spread_out(far, apart=0.1, high=1.0) == pytest.approx(far)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--batch", "1,8,64", "--context", "8k"), "batch 64 does not fit in memory"),
        (("--batch", "1,16", "--context", "1k,32k"), "batch 16 at 32k does not fit in memory"),
        (("--batch", "1,8", "--context", "8k"), None),
    ],
)
def test_lines_that_are_missing_are_named(
    cli: Cli, tmp_path: Path, more: tuple[str, ...], said: str | None
) -> None:
    """Qwen3 32B in bf16 leaves some 75 GB of two H100s for its cache of 262 kB a token."""
    path = tmp_path / "speedup.svg"
    outcome = cli("plot", "speedup", "qwen3-32b", "--tp", "2", *more, "-o", str(path))
    assert outcome.code == 0, outcome.err
    drawn = " ".join(re.findall(r"<!-- (.*?) -->", path.read_text("utf-8")))
    assert ("does not fit" in drawn) == (said is not None)
    assert said is None or said in drawn


def test_contexts_that_never_fit_are_not_warned_about(cli: Cli, tmp_path: Path) -> None:
    """64 sequences of 128k tokens at 328 kB a token are 2.7 TB; four H100s have 0.3."""
    ask = ("llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--data", str(tmp_path / "heat.csv"))
    outcome = cli("plot", "heatmap", *ask, "--batch", "64,128", "--context", "1k,2k,128k")
    assert outcome.code == 0, outcome.err
    assert not any(
        r["fits"] == "true" for r in _rows(tmp_path / "heat.csv") if r["context"] == "131072"
    )
    assert "131072" not in outcome.err


def cells(count: int) -> list[HeatmapRow]:
    return [
        HeatmapRow(
            batch=batch,
            context=4096,
            fits=True,
            draft_length=3,
            speedup=1.5,
            best_speculative_speedup=1.5,
            no_draft_because=None,
            memory_needed_bytes=6e10,
            memory_available_bytes=7e10,
        )
        for batch in range(1, count + 1)
    ]


@pytest.mark.parametrize(("count", "named"), [(3, 3), (MOST_COLUMNS + 1, 0)])
def test_many_cells_are_not_named_one_by_one(count: int, named: int) -> None:
    """Each cell that has room says its speedup."""
    figure, axes = plt.subplots()
    try:
        draw_heatmap(axes, cells(count))
        assert len([text for text in axes.texts if "1.5" in text.get_text()]) == named
        assert len(axes.get_xticks()) <= MOST_COLUMNS
    finally:
        plt.close(figure)


def test_lines_that_nobody_can_tell_apart_are_refused(cli: Cli, tmp_path: Path) -> None:
    """One line for each of the second axis, as many as there are colours and dashes and one."""
    layers = ",".join(str(count) for count in range(1, MOST_LINES + 2))
    many = ("--vary", "group_size=4", "--vary", f"layers={layers}")
    done = cli("explore", "llama-3.1-8b", *many, "--plot", str(tmp_path / "a.png"))
    line = assert_refused(done, f"--plot: {MOST_LINES + 1} lines, at most {MOST_LINES} can be")
    assert not list(tmp_path.iterdir()), line


def test_two_axes_have_a_legend(cli: Cli, tmp_path: Path) -> None:
    two = ("--vary", "group_size=4,8", "--vary", "layers=16,32")
    out = tmp_path / "a.png"
    assert cli("explore", "llama-3.1-8b", *two, "--plot", str(out)).code == 0
    assert out.read_bytes()[:4] == b"\x89PNG"


def test_the_caption_leaves_out_where_a_chart_went() -> None:
    whole = ["plot", "speedup", "qwen3-8b", "--batch", "8"]
    assert without_options([*whole, "-oa.png"]) == whole
    assert without_options([*whole, "--output=a.png", "--tp", "2"]) == [*whole, "--tp", "2"]


def test_tokens_per_step_are_drawn_with_their_range_and_what_was_given() -> None:
    """1 + 0.7 and 1 + 0.7 + 0.5 are given; beyond them the line is what public runs make of it."""
    asked = question_of(
        model="llama-3.1-8b",
        contexts=(1024,),
        acceptance="survival:0.7,0.5",
        acceptance_rounds=100,
    )
    rows = tokens_rows(asked, context=1024)
    given = {
        row.draft_length: row.tokens_per_step_measured
        for row in rows
        if row.tokens_per_step_measured is not None
    }
    assert given == pytest.approx({1: 1.7, 2: 2.2})
    assert all(
        row.tokens_per_step_low <= row.tokens_per_step <= row.tokens_per_step_high for row in rows
    )
    assert all(row.tokens_per_step_expected is not None for row in rows)
    axes = Figure().add_subplot()
    lines = draw_tokens_per_step(axes, rows)
    assert set(lines) == {"curve", "expected", "measured"}
    lengths, tokens = points_of(lines["curve"])
    assert (lengths[3], tokens[3]) == (3, rows[3].tokens_per_step)
    assert points_of(lines["measured"])[0].tolist() == [1, 2]


def test_an_acceptance_that_nobody_measured_has_no_points_given() -> None:
    rows = tokens_rows(question_of(model="llama-3.1-8b", contexts=(1024,)), context=1024)
    assert (
        {row.tokens_per_step_measured for row in rows}
        == {row.tokens_per_step_expected for row in rows}
        == {None}
    )
    assert set(draw_tokens_per_step(Figure().add_subplot(), rows)) == {"curve"}
    with pytest.raises(InputError, match="nothing is drafted"):
        tokens_rows(question_of(model="llama-3.1-8b", drafter="none"), context=4096)
