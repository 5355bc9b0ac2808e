"""Where the acceptance of an answer is from, what would move it, and which public runs are near."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.explain import BAND, Label, Step, label_steps, moves, narrowed
from roofline.acceptance.values import PublishedValue, nearest_values, published_reach
from roofline.advice.acceptance import belief_here, labels_for
from roofline.advice.question import Question
from roofline.base.errors import InputError, Option
from roofline.specs.network import LOOKUPS

__all__ = ["AcceptanceBand", "ExplainedAcceptance", "acceptance_band", "explain_acceptance"]

Array = NDArray[np.float64]
#: The draft length that is explained where none is given: most published runs have it.
EXPLAINED_AT = 3
#: A change of tokens per step by the set-up from which on it is shown.
SETUP = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceBand:
    """Tokens per step by draft length, with the range that holds 80 % of its draws."""

    draft_lengths: tuple[int, ...]
    mean: Array
    low: Array
    high: Array
    measured: dict[int, float]  # as given, without what was filled in or continued


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainedAcceptance:
    """The acceptance of a question at one context, explained at one draft length.

    ``steps`` are what the prior says as labels are taken in, and last what was counted; they are
    empty for a kind of drafter that it does not know. ``narrowed`` is what 100 passes would leave.
    """

    question: Question
    context: int
    draft_length: int
    band: AcceptanceBand
    steps: tuple[Step, ...]
    moves: tuple[Step, ...]
    narrowed: Step | None
    nearest: tuple[PublishedValue, ...]


def acceptance_band(question: Question, *, context: int) -> AcceptanceBand:
    """Return tokens per step of a question's acceptance at a context [tokens]."""
    lengths = question.draft_lengths
    curve = question.acceptance.at_context(context)
    drawn = curve.drawn(lengths[-1])[:, lengths]
    low, high = np.quantile(drawn, BAND, axis=0)
    given = {} if curve.unknown else curve.given or curve.measured
    return AcceptanceBand(
        draft_lengths=lengths,
        mean=curve.tokens_per_step(lengths),
        low=low,
        high=high,
        measured={d: al for d, al in given.items() if 0 < d <= lengths[-1]},
    )


def _own(band: AcceptanceBand, position: int, label: Label, value: str) -> Step:
    """Return the step of what the answer itself takes."""
    return Step(
        label=label,
        value=value,
        tokens=float(band.mean[position]),
        low=float(band.low[position]),
        high=float(band.high[position]),
    )


def _ending_with_own(steps: list[Step], band: AcceptanceBand, position: int) -> list[Step]:
    """Return the steps, the last known one with the range of the answer, which is drawn apart.

    What the set-up changes beyond the labels is a step of its own.
    """
    last = max(i for i, step in enumerate(steps) if step.value is not None)
    if abs(band.mean[position] / steps[last].tokens - 1) > SETUP:
        return [*steps, _own(band, position, Label.SETUP, "formats of the target and its cache")]
    own = _own(band, position, steps[last].label, steps[last].value or "")
    return [*steps[:last], own, *steps[last + 1 :]]


def _explained_at(question: Question, band: AcceptanceBand) -> int:
    """Return the draft length to explain: the usual one, or where the numbers given end."""
    usual = min(EXPLAINED_AT, question.draft_lengths[-1])
    own = set() if question.acceptance.unlimited else band.measured.keys()
    return usual if not own or usual in own else max(own)


def explain_acceptance(question: Question, *, draft_length: int | None) -> ExplainedAcceptance:
    """Explain a question's acceptance at its first context."""
    deployment, workload, lengths = question.deployment, question.workload, question.draft_lengths
    if len(lengths) < 2:
        raise InputError(
            f"nothing is drafted, so there is no acceptance to explain; give {Option('drafter')}",
            field="drafter",
            value=deployment.drafter.name,
        )
    context = workload.contexts[0]
    band = acceptance_band(question, context=context)
    at = _explained_at(question, band) if draft_length is None else draft_length
    if at not in lengths or at == 0:
        known = f"{lengths[1]} to {lengths[-1]}"
        raise InputError(f"expected one of {known}", field="draft_length", value=at)
    labels = labels_for(deployment, workload)
    steps, changes, after = list[Step](), list[Step](), None
    near = list[PublishedValue]()
    if labels is not None:
        counted_to = published_reach(labels.kind).draft_length
        shown = min(at, counted_to) if deployment.drafter.kind in LOOKUPS else at
        steps = label_steps(labels, draft_length=shown, context=context)
        near = nearest_values(labels, deployment.model_names, draft_length=at)
        if question.acceptance.unknown:
            here = belief_here(deployment, workload, context)
            beyond = replace(labels, candidates=labels.at_context(context))
            changes = moves(beyond, draft_length=shown)
            after = None if here is None else narrowed(here, draft_length=shown)
    position = lengths.index(at)
    if not question.acceptance.unknown:
        steps.append(_own(band, position, Label.COUNTED, question.acceptance.label))
    elif steps and shown == at:
        steps = _ending_with_own(steps, band, position)
    return ExplainedAcceptance(
        question=question,
        context=context,
        draft_length=at,
        band=band,
        steps=tuple(steps),
        moves=tuple(changes),
        narrowed=after,
        nearest=tuple(near),
    )
