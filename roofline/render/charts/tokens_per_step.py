"""Tokens per step by draft length: the curve of an answer, its band and what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from roofline.base.errors import InputError, Option
from roofline.render.charts.by_draft_length import draw_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from roofline.advice.question import Question

__all__ = ["TokensRow", "draw_tokens_per_step", "tokens_rows"]

CURVE, EXPECTED = "#0C5DA5", "#8A8A8A"


class TokensRow(NamedTuple):
    """Tokens per step at one draft length; what is not known is None."""

    draft_length: int
    tokens_per_step: float
    tokens_per_step_low: float  # 80 % of the draws lie between
    tokens_per_step_high: float
    tokens_per_step_measured: float | None
    tokens_per_step_expected: float | None  # of public runs, where there are numbers of one's own


def tokens_rows(question: Question, *, context: int) -> list[TokensRow]:
    """Return tokens per step of a question's acceptance at a context [tokens]."""
    from roofline.advice.acceptance import belief_here
    from roofline.questions.acceptance import acceptance_band

    if len(question.draft_lengths) == 1:
        raise InputError(f"nothing is drafted, so there is no curve; give {Option('drafter')}")
    band = acceptance_band(question, context=context)
    known = None
    if not question.acceptance.unknown:
        known = belief_here(question.deployment, question.workload, context)
    return [
        TokensRow(
            draft_length=length,
            tokens_per_step=float(band.mean[i]),
            tokens_per_step_low=float(band.low[i]),
            tokens_per_step_high=float(band.high[i]),
            tokens_per_step_measured=band.measured.get(length),
            tokens_per_step_expected=None if known is None else float(known.mean[length]),
        )
        for i, length in enumerate(band.draft_lengths)
    ]


def draw_tokens_per_step(axes: Axes, rows: Sequence[TokensRow]) -> dict[str, Line2D]:
    """Draw the curve, its band, the measured points and what public runs led to expect."""
    lengths = [row.draft_length for row in rows]
    axes.fill_between(
        lengths,
        [row.tokens_per_step_low for row in rows],
        [row.tokens_per_step_high for row in rows],
        color=CURVE,
        alpha=0.15,
        linewidth=0,
    )
    lines: dict[str, Line2D] = {}
    (lines["curve"],) = axes.plot(
        lengths,
        [row.tokens_per_step for row in rows],
        color=CURVE,
        marker="o",
        markersize=4,
        markerfacecolor="white",
        label="tokens per step AL(D)",
    )
    expected = _known((row.draft_length, row.tokens_per_step_expected) for row in rows)
    if expected:
        (lines["expected"],) = axes.plot(
            *zip(*expected, strict=True),
            color=EXPECTED,
            linestyle="dashed",
            label="public runs lead to expect",
        )
    measured = _known((row.draft_length, row.tokens_per_step_measured) for row in rows)
    if measured:
        (lines["measured"],) = axes.plot(
            *zip(*measured, strict=True),
            color="black",
            linestyle="",
            marker="s",
            markersize=6,
            label="given",
            zorder=3,
        )
    axes.set_xticks(lengths)
    axes.set_ylabel("tokens per step (bonus token included)")
    top = max([row.tokens_per_step_high for row in rows] + [al for _, al in expected])
    axes.set_ylim(1.0, 1 + 1.3 * (top - 1))
    shade = (
        "what the numbers given leave open" if measured else "where four in five such drafters lie"
    )
    draw_legend(axes, columns=2, title=f"shade: {shade}")
    return lines


def _known(points: Iterable[tuple[int, float | None]]) -> list[tuple[int, float]]:
    """Return the draft lengths of which something is known, with it."""
    return [(length, al) for length, al in points if al is not None]
