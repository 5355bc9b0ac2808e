"""Which batches a schedule has room for: the drafter stays in memory at D = 0 as well."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roofline.advice.question import Question
from roofline.advice.remedies import Refused, does_not_fit, refuse

__all__ = ["beside_drafter", "check_first", "first_refused", "leading", "resident"]

Mask = NDArray[np.bool_]


def resident(question: Question) -> int:
    """Return the shortest draft length, whose memory is taken at every batch."""
    return min(question.draft_lengths[1:], default=0)


def beside_drafter(fits: Mask) -> Mask:
    """Return what fits while the drafter stays resident; draft lengths run along the last axis.

    >>> beside_drafter(np.array([[True, False], [True, True]])).tolist()
    [[False, False], [True, True]]
    """
    if fits.shape[-1] == 1:
        return fits
    return np.concatenate([fits[..., :1] & fits[..., 1:2], fits[..., 1:]], axis=-1)


def leading(holds: Mask) -> int:
    """Return how many hold from the first one on.

    >>> leading(np.array([True, True, False, True]))
    2
    """
    return len(holds) if holds.all() else int((~holds).argmax())


def check_first(question: Question, fits: Mask) -> None:
    """Refuse a schedule whose first batch fits at no context; ``fits`` is (batches, contexts)."""
    workload = question.workload
    if not fits[0].any():
        batch, context = workload.batches[0], workload.contexts[0]
        raise does_not_fit(
            question.deployment, batch=batch, context=context, draft_length=resident(question)
        )


def first_refused(question: Question, fits: Mask) -> tuple[Refused, ...]:
    """Return the first of the listed batches that does not fit at each context."""
    workload = question.workload
    points = [
        (workload.batches[leading(own)], context)
        for own, context in zip(fits.T, workload.contexts, strict=True)
        if not own.all()
    ]
    return refuse(question.deployment, points, draft_length=resident(question))
