"""Throughput against interactivity of each batch, plain and with drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.recommend import Recommendation
from roofline.base.errors import InputError
from roofline.render.charts.figure import PALETTE, label_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["FrontierRow", "draw_frontier", "frontier_rows", "undominated"]


class FrontierRow(NamedTuple):
    """One batch and draft length."""

    batch: int
    context: int
    draft_length: int
    tokens_per_step: float
    step_ms: float
    tokens_per_s_user: float
    tokens_per_s_gpu: float
    recommended: bool  # the advice at this batch
    #: On a curve: no other batch is better for users and throughput alike, all with D = 0, or all
    #: at the advised D.
    on_plain_curve: bool
    on_advised_curve: bool


def undominated(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether no other pair is at least as large in both and larger in one.

    >>> undominated(np.array([1.0, 2.0, 2.0]), np.array([3.0, 1.0, 2.0]))
    array([ True, False,  True])
    """
    other_first, other_second = first[:, None], second[:, None]
    no_worse = (other_first >= first) & (other_second >= second)
    better = (other_first > first) | (other_second > second)
    return np.asarray(~(no_worse & better).any(axis=0))


def frontier_rows(answer: Recommendation) -> list[FrontierRow]:
    """Return every batch and draft length that can be run, at the answer's one context."""
    contexts, gpus = answer.question.workload.contexts, answer.deployment.cards
    if len(contexts) != 1:
        raise InputError("a frontier belongs to one context; give one", field="context")
    rows = [
        FrontierRow(
            batch=point.batch,
            context=point.context,
            draft_length=d,
            tokens_per_step=float(point.tokens_per_step[i]),
            step_ms=1e3 * float(point.step[i]),
            tokens_per_s_user=float(1 / point.time_per_token[i]),
            tokens_per_s_gpu=float(point.batch / point.time_per_token[i] / gpus),
            recommended=i == point.best,
            on_plain_curve=False,
            on_advised_curve=False,
        )
        for point in answer.points
        for i, d in enumerate(point.draft_lengths)
        if point.feasible[i]
    ]
    for column, members in (
        ("on_plain_curve", [i for i, row in enumerate(rows) if row.draft_length == 0]),
        ("on_advised_curve", [i for i, row in enumerate(rows) if row.recommended]),
    ):
        on_curve = undominated(*_coordinates([rows[i] for i in members]))
        for i in np.array(members)[on_curve]:
            rows[i] = rows[i]._replace(**{column: True})
    return rows


def draw_frontier(axes: Axes, rows: Sequence[FrontierRow]) -> dict[str, Line2D]:
    """Draw plain decoding and, if anything is drafted, the advice over all batches.

    Return the lines by name.
    Batches at powers of two, or all of a few, are marked: with B on the plain curve, and with D on
    the advised one.
    """
    drafts = any(row.draft_length for row in rows)
    curves = {
        "plain decoding (D = 0)": [row for row in rows if row.on_plain_curve],
        "at the advised D": [row for row in rows if drafts and row.on_advised_curve],
    }
    styles = ((PALETTE[6], "dashed"), (PALETTE[0], "-"))
    lines = {}
    for (name, curve), (colour, style) in zip(curves.items(), styles, strict=True):
        if not curve:
            continue
        (lines[name],) = axes.plot(*_coordinates(curve), label=name, color=colour, linestyle=style)
    plain, advised = curves.values()
    marked = _marked([*plain, *advised])
    _join_batches(axes, plain, advised, marked)
    for curve, colour, marker in ((plain, PALETTE[6], "s"), (advised, PALETTE[0], "o")):
        shown = [row for row in curve if row.batch in marked]
        axes.plot(*_coordinates(shown), color=colour, marker=marker, markersize=5, linestyle="")
    _name_points(axes, plain, advised, marked)
    axes.set(xscale="log", yscale="log")
    axes.margins(0.12)
    x, y = _coordinates([*plain, *advised])
    for axis, values in ((axes.xaxis, x), (axes.yaxis, y)):
        label_ticks(axis, low=float(values.min()), high=float(values.max()))
    axes.set_xlabel("interactivity (tokens/s of one user)")
    axes.set_ylabel("throughput (tokens/s of one GPU)")
    axes.legend(loc="best")  # where it hides no curve and no name
    return lines


def _coordinates(rows: Sequence[FrontierRow]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = np.array([row.tokens_per_s_user for row in rows])
    return x, np.array([row.tokens_per_s_gpu for row in rows])


def _marked(rows: Sequence[FrontierRow]) -> set[int]:
    """Return the batches that are named: all of a few, else the powers of two."""
    batches = {row.batch for row in rows}
    return batches if len(batches) <= 12 else {b for b in batches if not b & (b - 1)}


def _join_batches(
    axes: Axes,
    plain: Sequence[FrontierRow],
    advised: Sequence[FrontierRow],
    marked: set[int],
) -> None:
    """Join the points of each batch without and with drafts."""
    advised_by_batch = {row.batch: row for row in advised if row.batch in marked}
    for row in plain:
        if row.batch in advised_by_batch:
            x, y = _coordinates([row, advised_by_batch[row.batch]])
            axes.plot(x, y, color="#999999", linewidth=0.8, linestyle=":", zorder=1)


def _name_points(
    axes: Axes,
    plain: Sequence[FrontierRow],
    advised: Sequence[FrontierRow],
    marked: set[int],
) -> None:
    for row in plain:
        if row.batch in marked:
            axes.annotate(
                f"B = {row.batch}",
                (row.tokens_per_s_user, row.tokens_per_s_gpu),
                xytext=(-5, -2),
                textcoords="offset points",
                ha="right",
                va="top",
                size=7.5,
                color="#444444",
            )
    named = {row.batch for row in plain}
    for row in advised:
        if row.batch in marked:
            batch = "" if row.batch in named else f", B = {row.batch}"
            axes.annotate(
                f"D = {row.draft_length}{batch}",
                (row.tokens_per_s_user, row.tokens_per_s_gpu),
                xytext=(5, 3),
                textcoords="offset points",
                size=8,
                weight="bold",
                color=PALETTE[0],
            )
