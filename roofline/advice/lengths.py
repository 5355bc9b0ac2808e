"""Which draft lengths are looked at, and what ends them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from roofline.acceptance import Acceptance
from roofline.advice.request import DEEPEST, Request
from roofline.base.errors import InputError
from roofline.specs.engine import EngineProfile
from roofline.timing.drafters import Drafter, deepest

__all__ = [
    "allowed_lengths",
    "check_length",
    "draft_lengths",
    "known_lengths",
    "left_out",
    "unmeasured",
    "what_ends",
]


def allowed_lengths(request: Request, drafter: Drafter, engine: EngineProfile) -> tuple[int, ...]:
    """Return 0 and every draft length up to the limit that the engine takes of this drafter."""
    if drafter.kind == "none":
        return (0,)
    longest = min(limit for limit, _ in _limits(request, drafter))
    return tuple(d for d in range(longest + 1) if _takes(engine, drafter, d))


def known_lengths(
    request: Request, drafter: Drafter, engine: EngineProfile, curve: Acceptance
) -> tuple[int, ...]:
    """Return the allowed draft lengths whose acceptance is known at every context."""
    allowed = allowed_lengths(request, drafter, engine)
    known = curve.over_contexts(request.contexts, allowed, extrapolate=request.extrapolate)
    return tuple(d for d, al in zip(allowed, known.T, strict=True) if np.isfinite(al).all())


def draft_lengths(
    request: Request,
    drafter: Drafter,
    engine: EngineProfile,
    curve: Acceptance,
    *,
    needed: bool = True,
) -> tuple[int, ...]:
    """Return the allowed draft lengths whose acceptance is known at every context.

    Where that is none of them it is refused; unless acceptance is ``needed``, all are allowed then.
    """
    allowed = allowed_lengths(request, drafter, engine)
    lengths = known_lengths(request, drafter, engine, curve)
    if len(lengths) == 1 and len(allowed) > 1:
        if not needed:
            return allowed
        told = f"up to {request.max_draft_length}"
        if left_out(request, drafter, engine):
            told = f"that {engine.name} takes ({_listed(allowed[1:])})"
        raise InputError(
            f"--acceptance: {curve.label} says nothing about any draft length {told}; raise "
            "--max-draft-length or give more of the curve"
        )
    return lengths


def left_out(request: Request, drafter: Drafter, engine: EngineProfile) -> str:
    """Say which draft lengths the engine does not take of this drafter; empty where it takes all.

    Only those up to the longest one that would be looked at are named.
    """
    allowed = allowed_lengths(request, drafter, engine)
    longest = min(limit for limit, _ in _limits(request, drafter))
    lost = sorted({*range(longest + 1)} - {*allowed}) if drafter.kind != "none" else []
    if not lost:
        return ""
    return f"{_rule(engine, drafter)}; D = {_listed(lost)} left out"


def check_length(flag: str, length: int, drafter: Drafter, engine: EngineProfile) -> None:
    """Refuse a draft length that the engine does not take of this drafter."""
    if not _takes(engine, drafter, length):
        near = [d for d in range(1, length + drafter.modules + 1) if _takes(engine, drafter, d)]
        raise InputError(f"{flag} {length}: {_rule(engine, drafter)}; give one of {_listed(near)}")


def what_ends(request: Request, drafter: Drafter, engine: EngineProfile, longest: int) -> str:
    """Say why ``longest`` is the longest draft that was looked at."""
    _, why = min(_limits(request, drafter), key=lambda pair: pair[0])
    ended = longest == allowed_lengths(request, drafter, engine)[-1]
    return why if ended else "the acceptance given ends there"


def unmeasured(
    request: Request, drafter: Drafter, engine: EngineProfile, curve: Acceptance, longest: int
) -> tuple[int, ...]:
    """Return the next two draft lengths that could be drafted if their acceptance were known."""
    hard = min((DEEPEST, *(limit for limit, _ in _limits(request, drafter)[1:])))
    taken = (d for d in range(longest + 1, hard + 1) if _takes(engine, drafter, d))
    further = tuple(islice(taken, 2))
    known = curve.over_contexts(request.contexts, further, extrapolate=request.extrapolate)
    return () if np.isfinite(known[:, :1]).all() else further


def _takes(engine: EngineProfile, drafter: Drafter, length: int) -> bool:
    return engine.takes(length, kind=drafter.kind, modules=drafter.modules)


def _rule(engine: EngineProfile, drafter: Drafter) -> str:
    """Say which draft lengths an engine takes of a drafter with several modules."""
    count = drafter.modules
    return (
        f"{drafter.name} has {count} modules: {engine.name} drafts up to {count} tokens with them, "
        f"or a multiple of {count}"
    )


def _listed(lengths: Sequence[int]) -> str:
    return ", ".join(map(str, lengths))


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
