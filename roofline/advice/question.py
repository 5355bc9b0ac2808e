"""A question: a deployment, its acceptance, and the loads and draft lengths to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance import Acceptance
from roofline.acceptance.defaults import (
    choose_curve,
    closest_curves,
    curve_notices,
    default_acceptance,
)
from roofline.advice.decide import check_price
from roofline.advice.deployment import (
    DEEPEST,
    Configuration,
    Deployment,
    Documents,
    Notices,
    PricedGrid,
    deploy,
)
from roofline.base.errors import InputError, Option, UnknownAcceptanceError
from roofline.base.notices import Code, Notice, notice
from roofline.specs.network import DrafterSpec, ModelSpec
from roofline.timing.drafters import deepest

__all__ = [
    "MAX_DRAFT_LENGTH",
    "Ending",
    "Question",
    "Workload",
    "acceptance_for",
    "acceptance_is_known",
    "allowed_lengths",
    "ask",
    "check_idle",
    "check_length",
    "check_workload",
    "context_notices",
    "context_refusal",
    "draft_lengths_to_draw",
    "ending",
    "ending_value",
    "known_lengths",
    "left_out",
    "next_lengths",
    "nothing_known",
    "question_about",
    "question_of",
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


MAX_DRAFT_LENGTH = 8
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What is asked of a deployment: loads, drafts, and how many of them are accepted."""

    batches: tuple[int, ...] = (1,)
    contexts: tuple[int, ...] = (4096,)
    acceptance: str | Acceptance | None = None  # None: the nearest bundled one
    acceptance_rounds: int | None = None  # verify passes that it was counted over
    max_draft_length: int = MAX_DRAFT_LENGTH
    extrapolate: bool = False
    prefill_tokens_per_step: float = 0.0
    gpu_hour: float | None = None  # what one GPU costs for an hour [$]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Everything that an answer is made from."""

    deployment: Deployment
    workload: Workload
    acceptance: Acceptance
    draft_lengths: tuple[int, ...]
    deployment_notices: Notices = ()
    own_notices: Notices = ()

    @property
    def notices(self) -> Notices:
        """What to know of the deployment, and of the rest of the question."""
        return tuple(dict.fromkeys((*self.deployment_notices, *self.own_notices)))

    @property
    def rounds(self) -> int | None:
        """Passes that the acceptance was counted over: as given, else as its own source says."""
        own = self.acceptance.drafts
        return self.workload.acceptance_rounds or (max(int(own), 1) if own else None)

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """The next two draft lengths that the drafter could make but no acceptance is known for.

        Empty where something else ends the draft lengths.
        """
        return next_lengths(
            self.deployment,
            self.acceptance,
            contexts=self.workload.contexts,
            longest=self.draft_lengths[-1],
            extrapolate=self.workload.extrapolate,
        )

    def tokens_per_step(
        self, contexts: Sequence[int], draft_lengths: Sequence[int] | None = None
    ) -> Array:
        """Return AL by context (one row where context is no matter) and draft length."""
        lengths = self.draft_lengths if draft_lengths is None else draft_lengths
        return self.acceptance.over_contexts(
            contexts, lengths, extrapolate=self.workload.extrapolate
        )

    def draft_lengths_at(self, context: int) -> tuple[int, ...]:
        """Return the draft lengths whose acceptance is known at one context."""
        return known_lengths(
            self.deployment,
            self.acceptance,
            contexts=(context,),
            most=self.workload.max_draft_length,
            extrapolate=self.workload.extrapolate,
        )

    def price(
        self, batches: Sequence[int] | None = None, contexts: Sequence[int] | None = None
    ) -> PricedGrid:
        """Price the question's grid, or another one with its draft lengths."""
        own = self.workload
        grid = self.deployment.grid(
            own.batches if batches is None else batches,
            own.contexts if contexts is None else contexts,
            self.draft_lengths,
            prefill_tokens=own.prefill_tokens_per_step,
        )
        return self.deployment.price(grid)


def ask(
    configuration: Configuration,
    workload: Workload,
    *,
    documents: Documents | None = None,
    drop_idle: bool = False,
) -> Question:
    """Return the question about a configuration; its notices are those of both."""
    check_workload(workload)
    deployment, notices = deploy(configuration, documents=documents, drop_idle=drop_idle)
    return question_about(deployment, workload, notices, drop_idle=drop_idle)


def question_of(**options: Any) -> Question:
    """Return the question that options by name ask: fields of `Configuration` and `Workload`."""
    own = {field.name for field in fields(Workload)}
    workload = {name: value for name, value in options.items() if name in own}
    named = {name: value for name, value in options.items() if name not in own}
    return ask(Configuration(**named), Workload(**workload))


def question_about(
    deployment: Deployment, workload: Workload, notices: Notices = (), *, drop_idle: bool = False
) -> Question:
    """Return the question about a deployment; ``notices`` are those of the deployment.

    Options that say nothing without drafts are refused, or with ``drop_idle`` passed over.
    """
    check_workload(workload)
    if not drop_idle:
        check_idle(deployment, workload)
    found = [
        *context_notices(deployment, workload.contexts),
        *left_out(deployment, workload.max_draft_length),
    ]
    acceptance, told = acceptance_for(deployment, workload)
    lengths = known_lengths(
        deployment,
        acceptance,
        contexts=workload.contexts,
        most=workload.max_draft_length,
        extrapolate=workload.extrapolate,
    )
    if len(lengths) == 1 and deployment.drafter.kind != "none" and workload.max_draft_length > 0:
        raise nothing_known(deployment, acceptance, workload.max_draft_length)
    return Question(
        deployment=deployment,
        workload=workload,
        acceptance=acceptance,
        draft_lengths=lengths,
        deployment_notices=notices,
        own_notices=(*found, *told),
    )


def draft_lengths_to_draw(
    deployment: Deployment, workload: Workload
) -> tuple[tuple[int, ...], list[Notice]]:
    """Return the draft lengths to show of what does not depend on acceptance, and what to know.

    Those that the acceptance is known for; without one, all that the drafter can make.
    """
    allowed = allowed_lengths(deployment, workload.max_draft_length)
    if not acceptance_is_known(deployment, workload.acceptance):
        return allowed, []
    acceptance, told = acceptance_for(deployment, workload)
    known = known_lengths(
        deployment,
        acceptance,
        contexts=workload.contexts,
        most=workload.max_draft_length,
        extrapolate=workload.extrapolate,
    )
    return (known if len(known) > 1 else allowed), told


def acceptance_is_known(deployment: Deployment, acceptance: str | Acceptance | None) -> bool:
    """Return whether an acceptance is given or bundled."""
    drafter = deployment.drafter
    if acceptance is not None or drafter.kind == "none":
        return True
    return choose_curve(drafter.kind, drafter.name, deployment.model_names) is not None


def acceptance_for(deployment: Deployment, workload: Workload) -> tuple[Acceptance, list[Notice]]:
    """Return the acceptance that is given, else the nearest bundled one, and what to know."""
    drafter = deployment.drafter
    if drafter.kind == "none":
        return Acceptance(table={0: 1.0}, label="nothing is drafted", source="definition"), []
    kv = deployment.target.precision.kv.value
    given, told = workload.acceptance, list[Notice]()
    if given is None:
        curve, told = _bundled(deployment, kv)
    elif isinstance(given, Acceptance):
        curve = given
    else:
        from roofline.engines.acceptance_source import acceptance_from

        curve = acceptance_from(given, kv=kv)
    if given is not None:
        told += curve_notices(curve, model=_names(deployment), longest=workload.max_draft_length)
    return curve, [*told, *curve.notices, *curve.outside_measured_contexts(workload.contexts)]


def _names(deployment: Deployment) -> tuple[str, ...]:
    """Return every name that the target goes by."""
    model, configuration = deployment.target.model, deployment.configuration
    asked = configuration.model if configuration is not None else model.id
    return (model.id, asked, *filter(None, [model.repository]))


def _bundled(deployment: Deployment, kv: str) -> tuple[Acceptance, list[Notice]]:
    """Return the bundled acceptance nearest to the drafter."""
    drafter, names = deployment.drafter, deployment.model_names
    found = default_acceptance(drafter.kind, drafter.name, names, kv=kv)
    if found is None:
        near = closest_curves(drafter.kind, names)
        named = f"; the closest bundled curves are {', '.join(near)}" if near else ""
        raise UnknownAcceptanceError(
            f"no acceptance is known for {drafter.name} on {names[0]}; give a rate (0.7), rates "
            "(0.8,0.7,0.6), tokens per step (al:1.8,2.4), a bundled curve (roofline acceptance "
            f"list), a file or an engine's metrics address{named}",
            field="acceptance",
        )
    return found.curve, list(found.notices)


def _beyond(network_name: str, most: int, longest: int, *, drafter: bool) -> InputError | None:
    """Return the refusal of a context that a network cannot handle."""
    if longest <= most:
        return None
    whose, other = ("the drafter ", " or another drafter") if drafter else ("", "")
    return InputError(
        f"{whose}{network_name} handles at most {most} tokens; give a shorter context{other}",
        field="context",
        value=longest,
    )


def context_refusal(deployment: Deployment, context: int) -> InputError | None:
    """Return why the target or its drafter cannot handle a context; None where both can."""
    model, network = deployment.target.model, deployment.drafter.network
    refusal = _beyond(model.id, model.max_context, context, drafter=False)
    if refusal is None and isinstance(network, ModelSpec):
        refusal = _beyond(network.id, network.max_context, context, drafter=True)
    return refusal


def context_notices(deployment: Deployment, contexts: Sequence[int]) -> list[Notice]:
    """Refuse a context that a network cannot handle; warn beyond the drafter's training."""
    longest = max(contexts)
    refusal = context_refusal(deployment, longest)
    if refusal is not None:
        raise refusal
    network = deployment.drafter.network
    trained = network.trained_context if isinstance(network, DrafterSpec) else None
    if network is None or trained is None or longest <= trained:
        return []
    told = notice(Code.BEYOND_TRAINED_CONTEXT, network=network.id, trained=trained, context=longest)
    return [told]


def check_workload(workload: Workload) -> None:
    """Refuse numbers that no serving could have."""
    for field, values in (("batch", workload.batches), ("context", workload.contexts)):
        if not values:
            raise InputError("expected at least one number", field=field)
        for value in values:
            if not 1 <= value <= 2**40:
                raise InputError("expected a whole number of at least 1", field=field, value=value)
        if len(set(values)) != len(values):
            raise InputError("a value is given twice; list each once", field=field)
    if not 0 <= workload.max_draft_length <= DEEPEST:
        raise InputError(
            f"expected 0 to {DEEPEST}", field="max_draft_length", value=workload.max_draft_length
        )
    rounds = workload.acceptance_rounds
    if rounds is not None and rounds < 1:
        raise InputError("expected at least 1", field="acceptance_rounds", value=rounds)
    if not 0 <= workload.prefill_tokens_per_step <= 2**20:
        raise InputError(
            f"expected 0 to {2**20}",
            field="prefill_tokens_per_step",
            value=f"{workload.prefill_tokens_per_step:g}",
        )
    check_price(workload.gpu_hour)


def check_idle(deployment: Deployment, workload: Workload) -> None:
    """Refuse what says nothing where nothing is drafted."""
    if deployment.drafter.kind != "none":
        return
    given = workload.acceptance if isinstance(workload.acceptance, str) else None
    for field, value in (
        ("acceptance", given),
        ("acceptance_rounds", workload.acceptance_rounds),
    ):
        if value is not None:
            raise InputError(
                f"says nothing with {Option('drafter', 'none')}; leave it out", field=field
            )
