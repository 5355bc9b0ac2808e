"""Sentences below the table of an answer: odds, costs, uncaptured rows, and what to time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.advice.decide import LIKELY, Point
from roofline.advice.question import Question
from roofline.advice.recommend import Recommendation
from roofline.base.numbers import DRAWS
from roofline.render.data import benchmark_rows
from roofline.render.formats import listed

__all__ = ["cost_line", "dollars", "likely_line", "timing_lines", "uncaptured_lines"]


def likely_line(point: Point, unmeasured: Sequence[int] = ()) -> str:
    """Return how probable it is that each draft length is within 1 % of the best.

    ``unmeasured`` are the next lengths, if the acceptance ends with the longest one.
    """
    if len(point.draft_lengths) == 1:
        return "One draft length was looked at, so there is nothing to benchmark."
    if not point.feasible[1:].any():
        return "Only plain decoding fits, so there is nothing to benchmark."
    if not point.candidates[1:].any():
        return "Only plain decoding stays in captured graphs, so there is nothing to benchmark."
    ranked = point.by_odds
    first = ranked[:4] if point.best in ranked[:4] else [*ranked[:3], point.best]
    shown = [
        f"D = {point.draft_lengths[i]} {_odds(float(point.near_best[i]))}"
        for i in first
        if point.near_best[i] > 0 or i == point.best
    ]
    surest = ""
    if point.near_best[ranked[0]] > point.near_best[point.best]:
        surest = (
            f"; {point.draft_length} is the shortest within 1 % of the best expected speed, "
            f"{point.draft_lengths[ranked[0]]} the surest"
        )
    return (
        "Odds of being within 1 % of the best, given the model's errors: "
        f"{', '.join(shown)}{surest}. {_what_next(point, unmeasured)}."
    )


def uncaptured_lines(answer: Recommendation, point: Point) -> list[str]:
    """Say which rows of the table no captured graph covers, and what their overhead holds."""
    graphs = answer.deployment.engine.graphs
    if graphs is None or point.captured.all():
        return []
    advised = "not advised; " if point.captured[0] else ""
    line = (
        f"! more rows than the {graphs.largest} that {answer.deployment.engine.name} captures CUDA "
        f"graphs for: {advised}the overhead holds what launching every kernel by hand, at "
        f"{1e6 * graphs.eager_launch:.0f} us, takes longer than the kernels."
    )
    return [line]


def _what_next(point: Point, unmeasured: Sequence[int]) -> str:
    """Return the draft lengths worth timing, or to measure acceptance if it ends at the advice."""
    at_the_end = unmeasured and point.draft_length == point.draft_lengths[-1]
    positions = [
        i for i in point.worth_benchmarking if point.near_best[i] >= LIKELY or not at_the_end
    ]
    benchmark = f"Benchmark {listed([str(point.draft_lengths[i]) for i in positions])}"
    if not at_the_end:
        return benchmark
    where = f"acceptance at D = {listed([str(d) for d in unmeasured])}, where none is known"
    if len(positions) > 1:
        return f"{benchmark}, and measure {where}"
    return f"Measure {where}"


def _odds(share: float) -> str:
    """Return a share of the draws as a percentage, never 100 %: all draws are no certainty.

    >>> _odds(0.5), _odds(1.0)
    ('50%', 'over 98%')
    """
    most = 1 - 1 / DRAWS
    return f"over {most:.0%}" if share > most else f"{share:.0%}"


def cost_line(question: Question, rows: list[dict[str, Any]], draft_length: int) -> str:
    """Return what a million tokens cost with and without speculation."""
    cost = {row["draft_length"]: row["dollars_per_million_tokens"] for row in rows}
    plain = dollars(cost[0])
    price, cards = question.workload.gpu_hour or 0.0, question.deployment.cards
    start = f"At {dollars(price)} per GPU-hour and {cards} GPU(s): "
    if draft_length == 0:
        return f"{start}{plain} per million output tokens, without speculation."
    return (
        f"{start}{dollars(cost[draft_length])} per million output tokens at draft length "
        f"{draft_length}, {plain} without speculation."
    )


def dollars(amount: float) -> str:
    """Print an amount with cents, or with three digits where it is small.

    >>> dollars(2.5), dollars(0.01234)
    ('$2.50', '$0.0123')
    """
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.3g}"


def timing_lines(answer: Recommendation, point: Point) -> list[str]:
    """Return the flags that time the likely best draft lengths with acceptance held fixed."""
    rows = benchmark_rows(answer, point)
    name = answer.deployment.engine.name
    if all(row["flag"] is None for row in rows if row["draft_length"]):
        return [f"{name} cannot hold acceptance fixed while timing."]
    shown = "\n".join(f"  {row['flag']}" for row in rows if row["flag"])
    return [f"To time them with acceptance held fixed, {name}:\n{shown}"]
