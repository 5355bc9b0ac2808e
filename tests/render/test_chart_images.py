"""Four charts beside their baselines. The rows are invented: only the drawing is tested here.

``python -m tests.render.test_chart_images`` draws the baselines anew; look at them before a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images

from roofline.advice.why import Outcome
from roofline.render.charts.breakdown import BreakdownRow, draw_breakdown
from roofline.render.charts.cost_ratio import CostRatioRow, draw_cost_ratio
from roofline.render.charts.figure import Caption, caption, save, styled
from roofline.render.charts.heatmap import HeatmapRow, draw_heatmap
from roofline.render.charts.speedup import SpeedupRow, draw_speedup
from tests.support import ROOT

BASELINES = ROOT / "tests" / "data" / "charts"
#: Root mean square of the differences of all pixels, 0 to 255. Another release of FreeType moves
#: letters by a fraction of a pixel; a changed number, colour or label is several times more.
TOLERANCE = 2.5
WORDS = Caption(
    title="Some Model on 1 x Some GPU: run D = 2 to 3",
    setting="bf16 weights, bf16 KV; engine; context 4k; drafter none of them; acceptance: invented",
    source="roofline 0: roofline plot something some-model --gpu some-gpu --acceptance 0.7",
)


def speedup(axes_of: Figure, scale: float = 1.0) -> None:
    rows = [
        SpeedupRow(
            batch=batch,
            context=4096,
            draft_length=d,
            speedup=1 + scale * gain * d * (6 - d) / 9,
            speedup_low=1 + 0.8 * scale * gain * d * (6 - d) / 9,
            speedup_high=1 + 1.1 * scale * gain * d * (6 - d) / 9,
            tie=d in (3, 4),
            recommended=d == 3,
            captured=(batch, d) < (256, 4),
        )
        for batch, gain in ((1, 1.2), (16, 0.7), (256, -0.2))
        for d in range(7)
    ]
    draw_speedup(axes_of.add_subplot(), rows)


def breakdown(axes_of: Figure, scale: float = 1.0) -> None:
    rows = []
    for d in (0, 2, 3, 4):
        attention, draft = 2.0 + 0.1 * scale * d, 0.6 * scale * d
        step = 4.0 + attention + 1.0 + 0.5 + 0.3 + 0.2 + draft + 0.4
        rows.append(
            BreakdownRow(
                batch=8,
                context=4096,
                draft_length=d,
                verify_linear_ms=4.0,
                verify_attention_ms=attention,
                verify_moe_ms=1.0,
                verify_lm_head_ms=0.5,
                verify_communication_ms=0.3,
                verify_other_ms=0.2,
                draft_ms=draft,
                overhead_ms=0.4,
                step_ms=step,
                tpot_ms=step / (1 + 0.6 * d),
                recommended=d == 3,
                captured=d < 4,
            )
        )
    draw_breakdown(axes_of.add_subplot(), rows)


def heatmap(axes_of: Figure, scale: float = 1.0) -> None:
    rows = []
    for i, batch in enumerate((1, 8, 64, 512)):
        for j, context in enumerate((1024, 8192, 65536)):
            if i + j > 4:
                rows.append(HeatmapRow(batch, context, False, None, None, None, None, 9e10, 7e10))
                continue
            gain = 1.9 - 0.43 * scale * i + 0.05 * j  # a tenth more: one cell loses
            best = max(4 - i - j // 2, 0) if gain > 1 else 0
            why = Outcome.PAST_GRAPHS if (i, j) == (3, 0) else None
            rows.append(
                HeatmapRow(batch, context, True, best, max(gain, 1.0), gain, why, 6e10, 7e10)
            )
    draw_heatmap(axes_of.add_subplot(), rows)


def cost_ratio(axes_of: Figure, scale: float = 1.0) -> None:
    rows = []
    for batch, slope in ((1, 0.1), (64, 0.3)):
        for d in range(6):
            ratio, tokens = 1 + scale * slope * d, 1 + 0.7 * d * (11 - d) / 10
            rows.append(
                CostRatioRow(
                    batch=batch,
                    context=4096,
                    draft_length=d,
                    tokens_per_step=tokens,
                    cost_ratio=ratio,
                    cost_ratio_low=1 + 0.9 * (ratio - 1),
                    cost_ratio_high=1 + 1.2 * (ratio - 1),
                    speedup=tokens / ratio,
                    recommended=d == 4,
                    captured=(batch, d) < (64, 5),
                )
            )
    draw_cost_ratio(axes_of.add_subplot(), rows)


CHARTS: dict[str, Callable[..., None]] = {
    "speedup": speedup,
    "breakdown": breakdown,
    "heatmap": heatmap,
    "cost-ratio": cost_ratio,
}


def draw(name: str, path: Path, scale: float = 1.0) -> None:
    with styled():
        figure = Figure(figsize=(6.5, 4.8), layout="constrained")
        CHARTS[name](figure, scale)
        caption(figure, WORDS)
        save(figure, path, dots=80)


@pytest.mark.parametrize("name", CHARTS)
def test_charts_look_as_they_did(name: str, tmp_path: Path) -> None:
    drawn = tmp_path / f"{name}.png"
    draw(name, drawn)
    assert compare_images(str(BASELINES / drawn.name), str(drawn), TOLERANCE) is None


@pytest.mark.parametrize("name", CHARTS)
def test_a_change_of_a_tenth_is_seen(name: str, tmp_path: Path) -> None:
    drawn = tmp_path / f"{name}.png"
    draw(name, drawn, scale=1.1)
    assert compare_images(str(BASELINES / drawn.name), str(drawn), TOLERANCE) is not None


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_chart_is_the_same_file(suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    draw("speedup", first)
    draw("speedup", second)
    assert first.read_bytes() == second.read_bytes()


if __name__ == "__main__":
    for chart in CHARTS:
        draw(chart, BASELINES / f"{chart}.png")
