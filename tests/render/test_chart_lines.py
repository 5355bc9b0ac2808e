"""Lines, hatches and names of charts that readers must tell apart; what charts say is drawn."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.render.charts.attention import AttentionRow, draw_attention_time
from roofline.render.charts.by_draft_length import MOST_LINES
from roofline.render.charts.figure import line_colours, styled
from roofline.render.charts.frontier import draw_frontier, frontier_rows
from roofline.render.charts.speedup import draw_speedup, speedup_rows
from tests.charting import H200
from tests.render.test_charts import SIGHT, lightness_and_colour
from tests.support import Cli


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("count", range(2, MOST_LINES + 1))
def test_lines_grow_darker_in_order_and_all_are_seen_on_white(sight: str, count: int) -> None:
    """A difference of 2.3 is just noticeable (CIE L*a*b*); white has L* = 100."""
    light = [lightness_and_colour(c, SIGHT[sight])[0] for c in line_colours(count)]
    assert all(a - b > 2 * 2.3 for a, b in itertools.pairwise(light))
    assert max(light) < 75


@pytest.mark.parametrize(("batches", "shaded"), [((1, 32), True), ((1, 8, 32), False)])
def test_shades_are_drawn_where_they_can_be_told_apart(
    batches: tuple[int, ...], shaded: bool
) -> None:
    """Found by a user: the shades of five batches merge into one grey."""
    answer = recommend(question_of(**{**H200, "batches": batches}))
    axes = Figure().add_subplot()
    draw_speedup(axes, speedup_rows(answer))
    assert bool(axes.collections) is shaded
    names = [text.get_text() for text in axes.texts]
    assert sorted(names) == sorted(f"batch {batch}" for batch in batches)
    bars = [line for line in axes.lines if line.get_marker() == "_"]
    assert len(bars) == (0 if shaded else len(batches))
    for bar, point in zip(bars, answer.points, strict=bool(bars)):
        ends = np.asarray(bar.get_ydata(), dtype=float)
        assert ends.tolist() == [point.low[point.best], point.high[point.best]]


def rows_of(tile: int) -> list[AttentionRow]:
    return [
        AttentionRow("attention", "kv_once", True, 4, d, 4 * (1 + d), tile, 10.0 + d, 0.5, 0.1)
        for d in range(8)
    ]


@pytest.mark.parametrize(("tile", "named"), [(16, True), (32, True), (64, False), (128, False)])
def test_a_tile_beyond_the_axis_has_no_name(tile: int, named: bool) -> None:
    """The last of the rows is 4 x 8 = 32: its name would stand outside, with one tick at 0."""
    axes = Figure().add_subplot()
    draw_attention_time(axes, rows_of(tile))
    names = [text.get_text() for text in axes.texts]
    assert names == ([f"kernel block: {tile} rows"] if named else [])
    low, high = axes.get_xlim()
    assert len([x for x in axes.get_xticks() if low <= x <= high]) >= 2


@pytest.mark.parametrize("batches", [(1,), (1, 2, 4, 8, 16, 32, 64)])
def test_the_legend_of_a_frontier_hides_no_point(batches: tuple[int, ...]) -> None:
    answer = recommend(question_of(**{**H200, "batches": batches}))
    with styled():
        figure = Figure(figsize=(7.0, 5.0), layout="constrained")
        axes = figure.add_subplot()
        lines = draw_frontier(axes, frontier_rows(answer))
        figure.draw_without_rendering()
        legend = axes.get_legend()
        assert legend is not None
        box = legend.get_window_extent()
        for line in lines.values():
            for x, y in axes.transData.transform(np.asarray(line.get_xydata())):
                assert not box.contains(x, y)


def test_a_roofline_names_the_draft_lengths_that_are_drawn(cli: Cli, tmp_path: Path) -> None:
    """At the largest batch of plain decoding there is no room for the caches of drafts."""
    asked: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "contexts": (4096,)}
    memory = question_of(**asked, batches=(1,)).deployment.memory
    largest = memory.largest_batch(context=4096, draft_length=0)
    assert not memory.has_room(largest, 4096, 1)
    image, data = tmp_path / "a.svg", tmp_path / "a.csv"
    outcome = cli(
        "plot", "roofline", "llama-3.1-8b", "--batch", str(largest), "-o", str(image),
        "--data", str(data), "--notes",
    )  # fmt: skip
    assert outcome.code == 0
    assert "do not fit beside the drafter and are left out" in outcome.said
    drawn = {row["draft_length"] for row in csv.DictReader(data.read_text().splitlines())}
    assert drawn - {""} == {"0"}
    assert "kernels of a step, D = 0" in image.read_text()
