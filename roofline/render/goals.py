"""What an answer says about its goal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.advice.decide import SURE
from roofline.base.units import format_size
from roofline.questions.goals import Goal, Objective, OperatingPoint
from roofline.render.why import NOT_MEASURED, as_conditional

__all__ = ["goal_data", "goal_headline", "goal_lines", "other_goal_headlines"]


def other_goal_headlines(
    goal: Goal, choice: OperatingPoint, others: Sequence[OperatingPoint]
) -> list[str]:
    """Return what meets the goal under the other reading of the acceptance, where it differs."""
    context = choice.point.context
    found = next((each for each in others if each.point.context == context), None)
    if found is None:
        return [as_conditional(f"Nothing meets the goal at context {format_size(context)}.")]
    if (found.point.batch, found.draft_length) == (choice.point.batch, choice.draft_length):
        return []
    return [as_conditional(goal_headline(goal, found))]


def goal_data(
    goal: Goal,
    choices: Sequence[OperatingPoint],
    others: Sequence[OperatingPoint] | None = None,
) -> dict[str, Any]:
    """Return the goal and what meets it; ``others`` do under the other reading."""
    return {
        **_choices_data(goal, choices),
        **({} if others is None else {"other_reading": _choices_data(goal, others)["choices"]}),
    }


def _choices_data(goal: Goal, choices: Sequence[OperatingPoint]) -> dict[str, Any]:
    return {
        "slo_tpot_ms": None if goal.tpot is None else 1e3 * goal.tpot,
        "target_tokens_per_s": goal.rate,
        "objective": goal.best_by.value,
        "odds": SURE,
        "choices": [
            {
                "context": choice.point.context,
                "batch": choice.point.batch,
                "draft_length": choice.draft_length,
                "tpot_ms": 1e3 * choice.tpot,
                "tokens_per_s": choice.rate,
                "sure_tpot_ms": 1e3 * choice.sure_tpot,
                "sure_tokens_per_s": choice.sure_rate,
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


def goal_headline(goal: Goal, choice: OperatingPoint, *, measured: bool = True) -> str:
    """Return what meets the goal in one sentence."""
    best = "throughput" if goal.best_by is Objective.THROUGHPUT else "speed of one user"
    wanted = " and ".join([*_limits(goal), f"best {best}"])
    where = f"batch {choice.point.batch}, draft length {choice.draft_length}"
    pace = _pace(choice, measured)
    line = f"Goal ({wanted}): {where} at context {format_size(choice.point.context)}: {pace}"
    if not measured:
        line += f" ({NOT_MEASURED})"
    kept = []
    if goal.tpot is not None:
        kept.append(f"at most {1e3 * choice.sure_tpot:.2f} ms")
    if goal.rate is not None:
        kept.append(f"at least {choice.sure_rate:.0f} tokens/s")
    if not kept:
        return f"{line}."
    return f"{line}; with odds of {SURE:.0%} {' and '.join(kept)}."


def _pace(choice: OperatingPoint, measured: bool) -> str:
    """Return time per token and rate; their range where nobody measured the acceptance."""
    fast, slow = choice.likely_tpot
    if measured or fast == slow:
        return f"{1e3 * choice.tpot:.2f} ms per token, {choice.rate:.0f} tokens/s"
    least, most = choice.point.batch / slow, choice.point.batch / fast
    return f"{1e3 * fast:.2f} to {1e3 * slow:.2f} ms per token, {least:.0f} to {most:.0f} tokens/s"


def goal_lines(goal: Goal, choice: OperatingPoint) -> list[str]:
    """Return the acceptance that the choice needs for the limits of the goal, if it has any."""
    if not _limits(goal):
        return []
    need = next(n for n in choice.needed if n.draft_length == choice.draft_length)
    shortest = min(n.draft_length for n in choice.needed if n.met)
    needed = (
        f"To meet the goal with those odds, D = {choice.draft_length} needs "
        f"{need.tokens_per_step:.2f} tokens per step; this acceptance gives {need.reached:.2f}. "
        f"The shortest draft length that meets it at batch {choice.point.batch} is {shortest}."
    )
    return [needed]


def _limits(goal: Goal) -> list[str]:
    """Return the limits of a goal in words."""
    limits = []
    if goal.tpot is not None:
        limits.append(f"at most {1e3 * goal.tpot:g} ms per token")
    if goal.rate is not None:
        limits.append(f"at least {goal.rate:g} tokens/s")
    return limits
