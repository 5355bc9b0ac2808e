"""What following each rule costs on the published sweeps, from the best to the worst."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roofline.render.charts.figure import PALETTE, Caption, write_chart
from roofline.validation.advice import RULES, SweepChoice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["draw_regrets", "write_regrets"]


def draw_regrets(axes: Axes, choices: Sequence[SweepChoice]) -> dict[str, Line2D]:
    """Draw the sorted regrets of each rule; return the lines by rule."""
    share = 100 * (np.arange(len(choices)) + 0.5) / max(len(choices), 1)
    lines = {}
    for colour, rule in zip(PALETTE, RULES, strict=False):
        regret = 100 * np.sort([choice.regret[rule] for choice in choices])
        label = f"{rule} (mean {regret.mean():.1f} %)" if len(regret) else rule
        (lines[rule],) = axes.step(share, regret, where="mid", color=colour, label=label)
    axes.set_xlabel("share of the sweeps (%)")
    axes.set_ylabel("speed lost against the measured best (%)")
    axes.set_yscale("symlog", linthresh=1)
    axes.legend(loc="upper left")
    return lines


def write_regrets(choices: Sequence[SweepChoice], path: Path, *, source: str) -> None:
    """Write the plot to a file."""
    groups = len({choice.group for choice in choices})
    words = Caption(
        title=f"Regret of each rule on {len(choices)} published sweeps",
        setting=f"{groups} groups of runs; who chooses the draft length, and what it costs",
        source=source,
    )
    write_chart(path, words, lambda axes: draw_regrets(axes[0], choices), size=(6.5, 5.0))
