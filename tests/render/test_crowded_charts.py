"""Charts with more than a page can name: lines are refused, cells go without figures."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from roofline.cli.plotting import asked
from roofline.render.charts.explore import MOST_LINES
from roofline.render.charts.heatmap import MOST_COLUMNS, HeatmapRow, draw_heatmap
from tests.support import Cli, assert_refused


def cells(count: int) -> list[HeatmapRow]:
    return [
        HeatmapRow(
            batch=batch,
            context=4096,
            fits=True,
            draft_length=3,
            speedup=1.5,
            best_speculative_speedup=1.5,
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
    assert asked([*whole, "-oa.png"]) == whole
    assert asked([*whole, "--output=a.png", "--tp", "2"]) == [*whole, "--tp", "2"]
