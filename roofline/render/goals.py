"""What an answer says about its goal."""

from __future__ import annotations

from typing import Any

from roofline.base.units import format_size
from roofline.questions.goals import Goal, Objective, OperatingPoint

__all__ = ["goal_data", "goal_lines"]


def goal_data(goal: Goal, choices: list[OperatingPoint]) -> dict[str, Any]:
    """Return the goal and what meets it."""
    return {
        "slo_tpot_ms": None if goal.tpot is None else 1e3 * goal.tpot,
        "target_tokens_per_s": goal.rate,
        "objective": goal.best_by.value,
        "choices": [
            {
                "context": choice.point.context,
                "batch": choice.point.batch,
                "draft_length": choice.draft_length,
                "tpot_ms": 1e3 * choice.tpot,
                "tokens_per_s": choice.rate,
                "needed": [
                    {
                        "draft_length": need.draft_length,
                        "tokens_per_step": need.tokens_per_step,
                        "possible": need.possible,
                        "reached": need.reached,
                    }
                    for need in choice.needed
                ],
            }
            for choice in choices
        ],
    }


def goal_lines(goal: Goal, choices: list[OperatingPoint]) -> list[str]:
    """Return what meets the goal, and the acceptance that each draft length would need."""
    return [line for choice in choices for line in _goal_lines(goal, choice)]


def _goal_lines(goal: Goal, choice: OperatingPoint) -> list[str]:
    point = choice.point
    limits = []
    if goal.tpot is not None:
        limits.append(f"at most {1e3 * goal.tpot:g} ms per token")
    if goal.rate is not None:
        limits.append(f"at least {goal.rate:g} tokens/s")
    best = "throughput" if goal.best_by is Objective.THROUGHPUT else "speed of one user"
    wanted = " and ".join([*limits, f"best {best}"])
    where = f"batch {point.batch}, draft length {choice.draft_length}"
    pace = f"{1e3 * choice.tpot:.2f} ms per token, {choice.rate:.0f} tokens/s"
    lines = [f"Goal ({wanted}): {where} at context {format_size(point.context)}: {pace}."]
    needs = [
        f"{need.tokens_per_step:.2f} at D = {need.draft_length} ("
        + (f"has {need.reached:.2f}" if need.possible else "out of reach")
        + ")"
        for need in choice.needed
    ]
    if limits:
        shortest = min(n.draft_length for n in choice.needed if n.met)
        lines.append(
            f"Tokens per step needed at batch {point.batch}: {', '.join(needs)}. The shortest "
            f"draft length that meets it is {shortest}."
        )
    return lines
