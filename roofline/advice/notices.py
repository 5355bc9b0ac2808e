"""What to know beside an answer: laws outside their tables, slow weights, edges of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from roofline.advice.decide import Point
from roofline.advice.draft_lengths import Ending, ending, ending_value
from roofline.advice.question import Question
from roofline.base.notices import Code, Notice, notice
from roofline.specs.formats import bytes_per_element
from roofline.timing.machine import OpTime
from roofline.timing.step import StepTimes

__all__ = ["edges", "law_limits", "slower_than_wide"]

#: A plain step with narrow weights may take this much longer before it is worth a word.
LONGER = 1.02
#: Up to this draft length one rate at all positions is off by less than the model itself.
SHORT = 3


def law_limits(times: StepTimes) -> list[Notice]:
    """Say which kernels run outside what their tables covered."""
    passes = (*times.verify_ops, *times.first_pass_ops)
    limits = (time.chosen.limit for time in passes if time.chosen.limit is not None)
    return [notice(Code.TEXT, text=text) for text in dict.fromkeys(limits)]


def slower_than_wide(question: Question, times: StepTimes) -> list[Notice]:
    """Say where a plain step would be shorter with weights in the model's own format.

    ``times`` are those of the question's first batch and context, D = 0 first. Tables of kernels
    for narrow weights can be slow where an engine has no tuned ones for a part.
    """
    deployment, workload = question.deployment, question.workload
    precision = deployment.target.precision
    width = bytes_per_element(precision.base)
    narrow = {d for d in precision.weights.values() if bytes_per_element(d) < width}
    if not narrow:
        return []
    wide = dict.fromkeys(precision.weights, precision.base)
    target = replace(
        deployment.target, precision=replace(precision, weights=wide, activations=wide)
    )
    grid = deployment.grid(workload.batches[:1], workload.contexts[:1], (0,))
    plain = replace(deployment, target=target).price(grid).times
    own, other = (1e3 * float(each.total.flat[0]) for each in (times, plain))
    if own <= LONGER * other:
        return []
    kernel = _slowest(times, plain)
    chosen = next(time.chosen for time in times.verify_ops if time.op.name == kernel)
    return [
        notice(
            Code.SLOWER_THAN_WIDE,
            dtypes=tuple(sorted(narrow)),
            base=precision.base,
            own_ms=own,
            wide_ms=other,
            kernel=kernel,
            provenance=chosen.provenance,
            detail=chosen.detail,
            error=chosen.evidence.median_error if chosen.evidence else None,
        )
    ]


def _slowest(times: StepTimes, plain: StepTimes) -> str:
    """Return the kernel that loses most against ``plain``."""
    before, after = _by_name(plain.verify_ops), _by_name(times.verify_ops)
    lost = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    return max(lost, key=lambda name: lost[name])


def _by_name(times: Sequence[OpTime]) -> dict[str, float]:
    """Return the seconds of each kernel at the first point [s]."""
    seconds: dict[str, float] = {}
    for time in times:
        first = float(np.asarray(time.total).flat[0])
        seconds[time.op.name] = seconds.get(time.op.name, 0.0) + first
    return seconds


def edges(question: Question, points: Sequence[Point]) -> list[Notice]:
    """Say where the answer lies at the edge of what was looked at, or what memory ruled out."""
    deployment, drafter = question.deployment, question.deployment.drafter
    told = []
    longest = question.draft_lengths[-1]
    if longest and any(point.draft_length == longest for point in points):
        most = question.workload.max_draft_length
        end = (
            Ending.ACCEPTANCE if question.unmeasured else ending(deployment, most, longest=longest)
        )
        given = ending_value(deployment, end)
        told.append(
            notice(
                Code.LONGEST_IS_BEST,
                drafter=drafter.name,
                longest=longest,
                ending=end,
                given=given,
            )
        )
    advised = max((point.draft_length for point in points), default=0)
    if question.acceptance.unlimited and advised > SHORT:
        told.append(notice(Code.ONE_RATE_IN_LONG_DRAFTS, drafter=drafter.name, longest=advised))
    for point in points:
        lost = [d for d, ok in zip(point.draft_lengths, point.feasible, strict=True) if not ok]
        if lost:
            told.append(
                notice(
                    Code.DRAFTS_DO_NOT_FIT,
                    batch=point.batch,
                    context=point.context,
                    lengths=tuple(lost),
                )
            )
    return told
