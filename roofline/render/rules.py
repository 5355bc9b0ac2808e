"""The five rules with one model's numbers, in sentences and as JSON."""

from __future__ import annotations

from typing import Any, assert_never

from roofline.advice.decide import Point
from roofline.advice.recommend import Recommendation
from roofline.advice.rules import (
    AttentionTile,
    FastDrafter,
    Knee,
    Mechanism,
    NoCache,
    NothingDrafted,
    Rule,
    WholeTiles,
    five_rules,
)
from roofline.base.units import format_count

__all__ = ["rule_lines", "rule_rows"]

NAMES = {
    1: "raise D to the knee of the linear layers",
    2: "fill the attention tile",
    3: "prefer whole tiles",
    4: "at very low latency, a fast drafter",
    5: "choose the drafter by yield and cost",
}


def rule_rows(answer: Recommendation, point: Point) -> list[dict[str, Any]]:
    """Return the five rules with the numbers of this point, as JSON writes them."""
    return [_row(rule, point) for rule in five_rules(answer, point)]


def _row(rule: Rule, point: Point) -> dict[str, Any]:
    says, model_says = _sentences(rule, point)
    return {
        "number": rule.number,
        "name": NAMES[rule.number],
        "says": says,
        "draft_length": rule.draft_length,
        "binds": rule.binds,
        "model_says": model_says,
    }


def rule_lines(answer: Recommendation, point: Point) -> list[str]:
    """Return the five rules, each in one line."""
    return [
        f"Rule {row['number']}, {row['name']}: {row['says']}. "
        f"{'It binds here' if row['binds'] else 'It does not bind here'}: {row['model_says']}."
        for row in rule_rows(answer, point)
    ]


def _sentences(rule: Rule, point: Point) -> tuple[str, str]:
    """Return what the rule says here, and what the whole model says."""
    advised = f"{point.draft_length} ({point.speedup[point.best]:.2f}x)"
    numbers = rule.numbers
    match numbers:
        case Knee():
            knee = f"GEMMs turn compute-bound at {numbers.product_rows:.0f} rows"
            if numbers.experts:
                knee = (
                    f"experts turn compute-bound at {numbers.product_rows:.0f} rows each, "
                    f"{numbers.rows:.0f} in all"
                )
            return (
                f"{knee}: D = {rule.draft_length} at batch {numbers.batch}",
                (
                    f"linear layers and experts are {numbers.share:.0%} of a plain step; the best "
                    f"D is {advised}"
                ),
            )
        case AttentionTile():
            gives = "no answer: nothing is known of its acceptance, or it was not tried"
            if numbers.speedup is not None:
                gives = f"{numbers.speedup:.2f}x"
            return (
                (
                    f"D = {numbers.tile} / G - 1 = {numbers.tile} / {numbers.group} - 1 = "
                    f"{rule.draft_length}"
                ),
                (
                    f"attention is {numbers.share:.0%} of a plain step; D = {rule.draft_length} "
                    f"gives {gives}"
                ),
            )
        case WholeTiles():
            lengths = ", ".join(map(str, numbers.lengths)) or "none"
            return (
                f"G (1 + D) a multiple of {numbers.tile}: D = {lengths}",
                (
                    f"the advised D makes {numbers.rows} rows, "
                    f"{format_count(numbers.tiles, 'tile')} of {numbers.tile}"
                ),
            )
        case NoCache():
            return "no layer keeps a KV cache", "nothing to fill"
        case FastDrafter():
            return (
                (
                    f"AL / (1 + rho D), rho = {numbers.drafter_layers} / {numbers.layers} = "
                    f"{numbers.depth_ratio:.3f}: D = {rule.draft_length}, {numbers.speedup:.2f}x "
                    "idealised"
                ),
                (
                    f"the fixed costs of kernels (launch and latency) are "
                    f"{numbers.latency_share:.0%} of a plain pass; the best D is {advised}"
                ),
            )
        case Mechanism():
            return (
                (
                    f"{numbers.drafter} yields {numbers.tokens_per_step:.2f} tokens per step at D "
                    f"= {numbers.draft_length} for {numbers.cost:.0%} of a plain step"
                ),
                (
                    f"it must yield {numbers.break_even:.2f} to break even, a free drafter "
                    f"{numbers.free_break_even:.2f}; `roofline compare` sets drafters side by side"
                ),
            )
        case NothingDrafted():
            return "nothing is drafted", "name drafters to `roofline compare`"
        case _:
            assert_never(numbers)
