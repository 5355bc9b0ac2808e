"""No chart clips a word or lays one on another, however long the names are."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.render.charts.attention import attention_rows, draw_attention_time, draw_attention_use
from roofline.render.charts.breakdown import breakdown_rows, draw_breakdown
from roofline.render.charts.cost_ratio import cost_ratio_rows, draw_cost_ratio
from roofline.render.charts.figure import Caption, caption, styled
from roofline.render.charts.frontier import draw_frontier, frontier_rows
from roofline.render.charts.heatmap import draw_heatmap, heatmap_rows
from roofline.render.charts.rooflines import draw_roofline, roofline_rows
from roofline.render.charts.speedup import draw_speedup, speedup_rows
from tests.charting import DEEP, H200


def paint(name: str, options: dict[str, Any], figure: Figure) -> None:
    """Draw one chart of the answer to a question, its caption included."""
    question = question_of(**options)
    if name in ("roofline", "attention"):
        if name == "roofline":
            draw_roofline(figure.add_subplot(), roofline_rows(question.price()))
        else:
            top, bottom = figure.subplots(2)
            workload = question.workload
            rows = attention_rows(
                question.deployment, batch=workload.batches[0], context=workload.contexts[0]
            )
            draw_attention_time(top, rows)
            draw_attention_use(bottom, rows)
    else:
        answer = recommend(question)
        axes = figure.add_subplot()
        if name == "speedup":
            draw_speedup(axes, speedup_rows(answer))
        elif name == "cost-ratio":
            draw_cost_ratio(axes, cost_ratio_rows(answer))
        elif name == "frontier":
            draw_frontier(axes, frontier_rows(answer))
        elif name == "heatmap":
            draw_heatmap(axes, heatmap_rows(answer))
        else:
            draw_breakdown(axes, breakdown_rows(answer, answer.points[0]))
    words = "a long title of many words that has to be wrapped, on an accelerator with a long name"
    caption(figure, Caption(title=words, setting=2 * words, source=3 * words))


BATCHES = {
    "speedup": (1, 8, 32),
    "cost-ratio": (1, 8, 32),
    "frontier": (1, 2, 4, 8, 16, 32, 64),
    "heatmap": (1, 8, 64),
}


@pytest.mark.parametrize("model", ["llama-3.1-8b", DEEP["model"]])
@pytest.mark.parametrize(
    "name", ["speedup", "cost-ratio", "breakdown", "frontier", "heatmap", "roofline", "attention"]
)
def test_no_word_is_clipped_or_lies_on_another(name: str, model: str) -> None:
    base = DEEP if model == DEEP["model"] else H200
    contexts = (1024, 8192) if name == "heatmap" else (4096,)
    options = {**base, "batches": BATCHES.get(name, (32,)), "contexts": contexts}
    with styled():
        figure = Figure(figsize=(7.5, 5.4), layout="constrained", dpi=100)
        paint(name, options, figure)
        figure.draw_without_rendering()
        words: list[Text] = [figure._suptitle, figure._supxlabel]  # type: ignore[attr-defined]
        for axes in figure.axes:
            words += [*axes.texts, axes.xaxis.label, axes.yaxis.label]
            words += [axes._left_title]  # type: ignore[attr-defined]
            legend = axes.get_legend()
            words += legend.get_texts() if legend is not None else []
            for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
                ticks = axis.get_major_ticks()
                words += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
                words += [tick.label2 for tick in ticks if low <= tick.get_loc() <= high]
        # of the words alone: without the arrow that joins a name to its point
        boxes = [Text.get_window_extent(t) for t in words if t.get_text() and t.get_visible()]
    width, height = figure.bbox.size
    for box in boxes:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1
    for one, other in itertools.combinations(boxes, 2):
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        up = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert across <= 2 or up <= 2, "two texts overlap"
