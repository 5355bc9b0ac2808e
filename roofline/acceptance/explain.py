"""Where an expected acceptance is from, label by label, and what would move it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from roofline.acceptance.domains import known_domains
from roofline.acceptance.expected import Belief, belief
from roofline.acceptance.labels import DrafterLabels
from roofline.acceptance.prior import Labels, acceptance_prior, beyond_trained_context

__all__ = ["BAND", "Label", "Step", "label_steps", "moves", "narrowed"]

#: The share of the draws that a stated range leaves out at each end: it holds 80 %.
BAND = (0.1, 0.9)
#: Passes and requests of the count that an explanation proposes.
PASSES, REQUESTS = 100, 10


class Label(StrEnum):
    """What may be known of a drafter and its use, in the order in which it is taken in."""

    KIND = "kind"
    FAMILY = "family"
    RECIPE = "recipe"
    DRAFTER = "drafter"
    DOMAIN = "domain"
    DATASET = "dataset"
    TEMPERATURE = "temperature"
    CONTEXT = "context"
    SETUP = "setup"  # formats of the target and the like
    COUNTED = "counted"  # by whoever asks


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Tokens per step at one draft length once a label is taken in, with its 80 % range.

    ``value`` is None where the label is not known.
    """

    label: Label
    value: str | None
    tokens: float
    low: float
    high: float


def step(label: Label, value: str | None, drawn: Belief, draft_length: int) -> Step:
    """Return what a belief says at a draft length."""
    low, high = drawn.quantiles(BAND)[:, draft_length]
    return Step(
        label=label,
        value=value,
        tokens=float(drawn.mean[draft_length]),
        low=float(low),
        high=float(high),
    )


def label_steps(labels: DrafterLabels, *, draft_length: int, context: float) -> list[Step]:
    """Return tokens per step as the labels of a drafter are taken in, one after the other.

    The first is its kind alone. The prior scales its draws by what is known, so a range may widen.
    """
    first = labels.candidates[0]
    known: dict[str, Any] = {}
    steps = list[Step]()
    part = acceptance_prior().part(first.kind)
    recipe = first.recipe or (part.recipes.get(first.kind) if part else None)
    beyond = beyond_trained_context(context=context, trained=labels.trained_context)
    for label, value in (
        (Label.KIND, first.kind),
        (Label.FAMILY, first.family),
        (Label.RECIPE, recipe),
        (Label.DRAFTER, ", ".join(labels.published) or None),
        (Label.DOMAIN, first.domain),
        (Label.DATASET, first.dataset),
        (Label.TEMPERATURE, None if first.temperature is None else f"{first.temperature:g}"),
        (Label.CONTEXT, f"{context:g} beyond {labels.trained_context:g}" if beyond else None),
    ):
        if label is Label.CONTEXT and value is None:
            continue
        if value is not None:
            known |= _of_label(label, labels, context)
        drawn = belief(_candidates(first.kind, known, labels))
        steps.append(step(label, value, drawn, draft_length))
    return steps


def _of_label(label: Label, labels: DrafterLabels, context: float) -> dict[str, Any]:
    """Return the fields of the prior's labels that a label sets."""
    if label is Label.KIND:
        return {}
    if label is Label.CONTEXT:
        return {"context": context, "trained_context": labels.trained_context}
    return {label.value: getattr(labels.candidates[0], label.value)}


def _candidates(kind: str, known: Mapping[str, Any], labels: DrafterLabels) -> tuple[Labels, ...]:
    """Return the labels known so far, of each drafter that it may be once that is among them."""
    own = {name: value for name, value in known.items() if name != "drafter"}
    drafters = [each.drafter for each in labels.candidates] if "drafter" in known else [None]
    return tuple(Labels(kind=kind, drafter=name, **own) for name in drafters)


def moves(labels: DrafterLabels, *, draft_length: int) -> list[Step]:
    """Return tokens per step if one label were another: each domain, temperatures 0 and 1."""
    first = labels.candidates[0]
    changes: list[tuple[Label, str, Mapping[str, Any]]] = [
        (Label.DOMAIN, domain, {"domain": domain, "dataset": None})
        for domain in known_domains()
        if domain != first.domain and _counted_domain(first.kind, domain)
    ]
    changes += [
        (Label.TEMPERATURE, f"{warmth:g}", {"temperature": warmth})
        for warmth in (0.0, 1.0)
        if warmth != first.temperature
    ]
    return [
        step(
            label,
            value,
            belief(tuple(replace(each, **change) for each in labels.candidates)),
            draft_length,
        )
        for label, value, change in changes
    ]


def _counted_domain(kind: str, domain: str) -> bool:
    """Return whether drafters of this shape were counted on a domain."""
    part = acceptance_prior().part(kind)
    return part is not None and ("domain", domain, 0) in part.names


def narrowed(known: Belief, *, draft_length: int) -> Step:
    """Return what is left of a range once 100 passes of ten requests agree with the mean."""
    survival = [1.0, *(known.mean[d] - known.mean[d - 1] for d in range(1, draft_length + 1))]
    counts = [PASSES * share for share in survival]
    after = known.after_counts(counts, requests=REQUESTS)
    return step(Label.COUNTED, f"{PASSES} passes of {REQUESTS} requests", after, draft_length)
