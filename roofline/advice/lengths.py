"""Which draft lengths are looked at, and what ends them."""

from __future__ import annotations

import numpy as np

from roofline.acceptance import Acceptance
from roofline.advice.request import DEEPEST, Request
from roofline.base.errors import InputError
from roofline.timing.drafters import Drafter, deepest

__all__ = ["draft_lengths", "unmeasured", "what_ends"]


def draft_lengths(request: Request, drafter: Drafter, curve: Acceptance) -> tuple[int, ...]:
    """Return 0 and every draft length up to the limit that is known at every context."""
    longest = min((limit for limit, _ in _limits(request, drafter)))
    candidates = range(longest + 1) if drafter.kind != "none" else range(1)
    known = curve.over_contexts(request.contexts, candidates, extrapolate=request.extrapolate)
    lengths = tuple(d for d, al in zip(candidates, known.T, strict=True) if np.isfinite(al).all())
    if len(lengths) == 1 and len(candidates) > 1:
        raise InputError(
            f"--acceptance: {curve.label} says nothing about any draft length up to "
            f"{request.max_draft_length}; raise --max-draft-length or give more of the curve"
        )
    return lengths


def what_ends(request: Request, drafter: Drafter, longest: int) -> str:
    """Say why ``longest`` is the longest draft that was looked at."""
    limit, why = min(_limits(request, drafter), key=lambda pair: pair[0])
    return why if limit == longest else "the acceptance given ends there"


def unmeasured(
    request: Request, drafter: Drafter, curve: Acceptance, longest: int
) -> tuple[int, ...]:
    """Return the next two draft lengths that could be drafted if their acceptance were known."""
    hard = [limit for limit, _ in _limits(request, drafter)[1:]]
    further = range(longest + 1, min(longest + 2, DEEPEST, *hard) + 1)
    known = curve.over_contexts(request.contexts, further, extrapolate=request.extrapolate)
    return () if np.isfinite(known[:, :1]).all() else tuple(further)


def _limits(request: Request, drafter: Drafter) -> list[tuple[int, str]]:
    """Return every limit of the draft length and how to say it, that of the search first."""
    found = [(request.max_draft_length, "raise --max-draft-length to look further")]
    width = request.verify_width
    if width is not None:
        found.append((width - 1, f"--verify-width {width} has no row for another draft"))
    own = deepest(drafter.network, drafter.block)
    if own is not None:
        drafted = f"{drafter.name} drafts no more at once"
        given = drafter.block is not None
        found.append((own, f"--draft-block {drafter.block} ends there" if given else drafted))
    return found
