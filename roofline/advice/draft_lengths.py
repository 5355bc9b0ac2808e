"""Which draft lengths are looked at, and what ends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

import numpy as np

from roofline.acceptance import Acceptance
from roofline.advice.deployment import DEEPEST, Deployment
from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.base.options import Option
from roofline.timing.drafters import deepest

__all__ = [
    "Ending",
    "allowed_lengths",
    "check_length",
    "ending",
    "ending_value",
    "known_lengths",
    "left_out",
    "next_lengths",
    "nothing_known",
]


class Ending(StrEnum):
    """What ends the draft lengths that are looked at."""

    SEARCH = "search"  # the longest draft that was asked about
    VERIFY_WIDTH = "verify-width"
    DRAFT_BLOCK = "draft-block"
    DRAFTER = "drafter"
    ACCEPTANCE = "acceptance"  # nothing is known beyond it


@dataclass(frozen=True, slots=True)
class _Limit:
    length: int
    by: Ending


def _limits(deployment: Deployment, most: int) -> list[_Limit]:
    """Return every limit of the draft length, that of the search first."""
    drafter, width = deployment.drafter, deployment.verify_width
    limits = [_Limit(most, Ending.SEARCH)]
    if width is not None:
        limits.append(_Limit(width - 1, Ending.VERIFY_WIDTH))
    own = deepest(drafter.network, drafter.block)
    if own is not None:
        given = drafter.block is not None
        limits.append(_Limit(own, Ending.DRAFT_BLOCK if given else Ending.DRAFTER))
    return limits


def allowed_lengths(deployment: Deployment, most: int) -> tuple[int, ...]:
    """Return 0 and every draft length up to ``most`` that the engine takes of this drafter."""
    if deployment.drafter.kind == "none":
        return (0,)
    longest = min(limit.length for limit in _limits(deployment, most))
    return tuple(d for d in range(longest + 1) if _takes(deployment, d))


def known_lengths(
    deployment: Deployment,
    acceptance: Acceptance,
    *,
    contexts: Sequence[int],
    most: int,
    extrapolate: bool,
) -> tuple[int, ...]:
    """Return the allowed draft lengths whose acceptance is known at every context."""
    allowed = allowed_lengths(deployment, most)
    known = acceptance.over_contexts(contexts, allowed, extrapolate=extrapolate)
    return tuple(d for d, al in zip(allowed, known.T, strict=True) if np.isfinite(al).all())


def nothing_known(deployment: Deployment, acceptance: Acceptance, most: int) -> InputError:
    """Return the refusal of an acceptance that is known for no draft length to be looked at."""
    told = f"up to {most}"
    if left_out(deployment, most):
        taken = ", ".join(map(str, allowed_lengths(deployment, most)[1:]))
        told = f"that {deployment.engine.name} takes ({taken})"
    return InputError(
        f"{acceptance.label} says nothing about any draft length {told}; raise "
        f"{Option('max_draft_length')} or give more of the curve",
        field="acceptance",
    )


def left_out(deployment: Deployment, most: int) -> list[Notice]:
    """Say which draft lengths up to ``most`` the engine does not take of this drafter."""
    if deployment.drafter.kind == "none":
        return []
    longest = min(limit.length for limit in _limits(deployment, most))
    lost = sorted({*range(longest + 1)} - {*allowed_lengths(deployment, most)})
    if not lost:
        return []
    return [
        notice(
            Code.LENGTHS_NOT_TAKEN,
            drafter=deployment.drafter.name,
            modules=deployment.drafter.modules,
            engine=deployment.engine.name,
            lengths=tuple(lost),
        )
    ]


def check_length(deployment: Deployment, length: int, *, field: str) -> None:
    """Refuse a draft length that the engine does not take of this drafter."""
    if _takes(deployment, length):
        return
    drafter, count = deployment.drafter, deployment.drafter.modules
    near = [d for d in range(1, length + count + 1) if _takes(deployment, d)]
    raise InputError(
        f"{drafter.name} has {count} modules: {deployment.engine.name} drafts up to {count} tokens "
        f"with them, or a multiple of {count}; give one of {', '.join(map(str, near))}",
        field=field,
        value=length,
    )


def ending_value(deployment: Deployment, end: Ending) -> int | None:
    """Return the value of the option that ends the draft lengths, where one does."""
    options = {
        Ending.VERIFY_WIDTH: deployment.verify_width,
        Ending.DRAFT_BLOCK: deployment.drafter.block,
    }
    return options.get(end)


def ending(deployment: Deployment, most: int, *, longest: int) -> Ending:
    """Return why ``longest`` is the longest draft that was looked at."""
    first = min(_limits(deployment, most), key=lambda limit: limit.length)
    return first.by if longest == allowed_lengths(deployment, most)[-1] else Ending.ACCEPTANCE


def next_lengths(
    deployment: Deployment,
    acceptance: Acceptance,
    *,
    contexts: Sequence[int],
    longest: int,
    extrapolate: bool,
) -> tuple[int, ...]:
    """Return the next two draft lengths that could be drafted if their acceptance were known."""
    hard = min((DEEPEST, *(limit.length for limit in _limits(deployment, DEEPEST))))
    further = tuple(islice((d for d in range(longest + 1, hard + 1) if _takes(deployment, d)), 2))
    known = acceptance.over_contexts(contexts, further, extrapolate=extrapolate)
    return () if np.isfinite(known[:, :1]).all() else further


def _takes(deployment: Deployment, length: int) -> bool:
    drafter = deployment.drafter
    return deployment.engine.takes(length, kind=drafter.kind, modules=drafter.modules)
