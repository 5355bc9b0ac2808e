"""Conventions in which acceptance is published, and conversion between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.curve import gap_rate, tokens_per_step_from_rate
from roofline.base.errors import InputError, Option

__all__ = [
    "Convention",
    "check_values",
    "conditional_from_survival",
    "convert",
    "iid_rate",
    "mean_rate",
    "standard_error",
    "survival_from_conditional",
    "survival_from_histogram",
    "survival_from_tokens_per_step",
]


Array = NDArray[np.float64]


class Convention(StrEnum):
    """What a number, or one number per position, means."""

    CONDITIONAL = "conditional"  # a_i given that 1 ... i-1 were accepted
    SURVIVAL = "survival"  # S_i, unconditional: vLLM's per-position rate
    TOKENS_PER_STEP = "tokens-per-step"  # AL, bonus token counted
    ACCEPTED_DRAFTS = "accepted-drafts"  # AL - 1; SpecForge's EAL
    RATE = "rate"  # accepted over drafted, at one D; BLIS's mean rate
    IID = "iid"  # the one rate that gives this AL if it holds at every position


def survival_from_conditional(conditional: Sequence[float]) -> Array:
    """Return S_i = a_1 a_2 ... a_i.

    >>> survival_from_conditional([0.8, 0.7, 0.6]).round(3).tolist()
    [0.8, 0.56, 0.336]
    """
    return np.asarray(np.cumprod(np.asarray(conditional, dtype=float)))


def conditional_from_survival(survival: Sequence[float]) -> Array:
    """Return a_i = S_i / S_(i-1), 0 once nothing survives; vLLM's documented 0.885, 0.740.

    >>> conditional_from_survival([0.885, 0.740]).round(3).tolist()
    [0.885, 0.836]
    """
    values = np.asarray(survival, dtype=float)
    before = np.concatenate([[1.0], values[:-1]])
    return np.asarray(np.divide(values, before, out=np.zeros_like(values), where=before > 0))


def survival_from_tokens_per_step(curve: Sequence[float]) -> Array:
    """Return S_i = AL(i) - AL(i-1) from AL(1) ... AL(n), bonus token counted.

    >>> survival_from_tokens_per_step([1.885, 2.625]).round(3).tolist()
    [0.885, 0.74]
    """
    return np.asarray(np.diff(np.asarray(curve, dtype=float), prepend=1.0))


def survival_from_histogram(counts: Sequence[float]) -> Array:
    """Return S_i from how many passes accepted exactly j = 0 ... D drafts.

    S_i = (counts[i] + ... + counts[D]) / all. vLLM's documented [39, 1, 0, 3] is 43 passes.

    >>> (survival_from_histogram([39, 1, 0, 3]) * 43).round(6).tolist()
    [4.0, 3.0, 3.0]
    """
    values = np.asarray(counts, dtype=float)
    return np.asarray(np.cumsum(values[::-1])[::-1][1:] / values.sum())


def mean_rate(*, tokens_per_step: float, draft_length: float) -> float:
    """Return accepted over drafted = (AL - 1) / D.

    >>> round(mean_rate(tokens_per_step=2.53, draft_length=3), 2)
    0.51
    """
    return (tokens_per_step - 1) / draft_length


def iid_rate(*, tokens_per_step: float, draft_length: int) -> float:
    """Return the single rate a with (1 - a^(D+1)) / (1 - a) = AL.

    It inverts Leviathan et al. 2023, Eq. (1). Real rates fall with the position, so it promises
    too much at a larger D.

    >>> round(iid_rate(tokens_per_step=2.533, draft_length=3), 3)
    0.7
    """
    return float(gap_rate(gain=tokens_per_step - 1, survival=1.0, steps=draft_length))


def standard_error(*, survival: Sequence[float], drafts: float) -> float:
    """Return the standard error of AL over ``drafts`` independent passes [tokens].

    With J accepted drafts, E[J] = sum S_i and E[J^2] = sum (2i - 1) S_i; the error is
    sqrt((E[J^2] - E[J]^2) / drafts). One draft at S = 0.5 over 100 passes: 0.5 / 10.

    >>> standard_error(survival=[0.5], drafts=100)
    0.05
    """
    values = np.asarray(survival, dtype=float)
    odd = 2 * np.arange(1, len(values) + 1) - 1
    variance = float((odd * values).sum() - values.sum() ** 2)
    return math.sqrt(max(variance, 0.0) / drafts)


def convert(
    values: Sequence[float],
    *,
    source: Convention,
    target: Convention,
    draft_length: int | None = None,
) -> list[float]:
    """Return ``values`` of one convention in another: one result per position, or a single one.

    A single number with ``draft_length`` is a value at that D alone. It says nothing of positions,
    so it converts to other single numbers only, and to positions by way of ``IID``, which assumes
    them to be equal.

    >>> kinds = {"source": Convention.SURVIVAL, "target": Convention.TOKENS_PER_STEP}
    >>> [round(al, 3) for al in convert([0.885, 0.740], **kinds)]
    [1.885, 2.625]
    """
    if source is Convention.IID:
        depth = _required(draft_length, source)
        return _from_survival(survival_from_conditional([values[0]] * depth), target)
    mean = _tokens_at_one_length(values, source, draft_length)
    if mean is not None:
        return [_from_tokens_at_one_length(mean, target, _required(draft_length, source))]
    if source is Convention.CONDITIONAL:
        survival = survival_from_conditional(values)
    elif source is Convention.SURVIVAL:
        survival = np.asarray(values, dtype=float)
    else:
        bonus = 1.0 if source is Convention.ACCEPTED_DRAFTS else 0.0
        survival = survival_from_tokens_per_step([value + bonus for value in values])
    if draft_length is not None and draft_length > len(survival):
        raise InputError(
            f"only {len(survival)} positions are given", field="draft_length", value=draft_length
        )
    return _from_survival(survival[:draft_length], target)


def _tokens_at_one_length(
    values: Sequence[float], source: Convention, draft_length: int | None
) -> float | None:
    """Return AL where ``values`` is one number for one D, else None."""
    single = len(values) == 1 and draft_length is not None and draft_length > 1
    if source is Convention.RATE:
        depth = _required(draft_length, source)
        return tokens_per_step_from_rate(rate=values[0], draft_length=depth)
    if single and source is Convention.TOKENS_PER_STEP:
        return values[0]
    return values[0] + 1 if single and source is Convention.ACCEPTED_DRAFTS else None


def _from_tokens_at_one_length(
    tokens_per_step: float, target: Convention, draft_length: int
) -> float:
    if target is Convention.TOKENS_PER_STEP:
        return tokens_per_step
    if target is Convention.ACCEPTED_DRAFTS:
        return tokens_per_step - 1
    if target is Convention.RATE:
        return mean_rate(tokens_per_step=tokens_per_step, draft_length=draft_length)
    if target is Convention.IID:
        return iid_rate(tokens_per_step=tokens_per_step, draft_length=draft_length)
    raise InputError(
        f"one number at D={draft_length} says nothing about each position; convert it "
        f"{Option('to', 'iid')}, and that {Option('from', 'iid')} {Option('to', target)} if equal "
        "positions may be assumed",
        field="to",
        value=target,
    )


def _from_survival(survival: Array, target: Convention) -> list[float]:
    depth = len(survival)
    if target is Convention.SURVIVAL:
        return _floats(survival)
    if target is Convention.CONDITIONAL:
        return _floats(conditional_from_survival(_floats(survival)))
    curve = 1 + np.cumsum(survival)
    if target is Convention.TOKENS_PER_STEP:
        return _floats(curve)
    if target is Convention.ACCEPTED_DRAFTS:
        return _floats(curve - 1)
    last = float(curve[-1])
    if target is Convention.RATE:
        return [mean_rate(tokens_per_step=last, draft_length=depth)]
    return [iid_rate(tokens_per_step=last, draft_length=depth)]


def _floats(values: Array) -> list[float]:
    return [float(value) for value in values]


def _required(draft_length: int | None, source: Convention) -> int:
    if draft_length is None:
        raise InputError(
            f"needs {Option('draft_length')}, the D it was measured at", field="from", value=source
        )
    return draft_length


def check_values(values: Sequence[float], source: Convention, draft_length: int | None) -> None:
    """Refuse values that no acceptance can have in this convention."""
    at_one_length = len(values) == 1 and draft_length is not None
    for position, value in enumerate(values, start=1):
        depth = draft_length if at_one_length and draft_length else position
        low, high = _bounds(source, depth)
        if not low <= value <= high:
            raise InputError(f"{value:g}: {source} at D={depth} lies between {low:g} and {high:g}")
    if source is Convention.SURVIVAL and list(values) != sorted(values)[::-1]:
        raise InputError("survival cannot rise with the position; are these conditional rates?")
    if source in (Convention.RATE, Convention.IID) and len(values) != 1:
        raise InputError(f"expected one number, got {len(values)}", field="from", value=source)


def _bounds(source: Convention, depth: int) -> tuple[float, float]:
    if source is Convention.TOKENS_PER_STEP:
        return 1.0, 1.0 + depth
    if source is Convention.ACCEPTED_DRAFTS:
        return 0.0, float(depth)
    return 0.0, 1.0
