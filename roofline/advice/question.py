"""A question: a deployment, its acceptance, and the loads and draft lengths to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance import Acceptance
from roofline.acceptance.curve import Definition, HitRate, lookup_hit_rate, over_all_passes
from roofline.acceptance.defaults import (
    choose_curve,
    closest_curves,
    curve_notices,
    default_acceptance,
    filled_notices,
)
from roofline.advice.configuration import Configuration
from roofline.advice.decide import check_price
from roofline.advice.deployment import Deployment, Documents, Notices, PricedGrid, deploy
from roofline.advice.drafter_choice import no_drafter_known
from roofline.base.errors import InputError, Option, UnknownAcceptanceError
from roofline.base.files import without_queries
from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import LONGEST_DRAFT
from roofline.specs.network import LOOKUPS, DrafterSpec, ModelSpec
from roofline.specs.placement import Grid
from roofline.specs.priors import priors
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
    "check_length",
    "check_unused",
    "context_notices",
    "context_refusal",
    "draft_lengths_to_draw",
    "ending",
    "ending_value",
    "hit_rate",
    "known_lengths",
    "lengths_not_taken",
    "next_lengths",
    "question_about",
    "question_of",
    "reading_notices",
    "why_drafts_end",
]


class Ending(StrEnum):
    """What ends the draft lengths that are looked at."""

    SEARCH = "search"  # the longest draft that was asked about
    VERIFY_WIDTH = "verify-width"
    DRAFT_BLOCK = "draft-block"
    DRAFTER = "drafter"
    ACCEPTANCE = "acceptance"  # nothing is known beyond it


class _Limit(NamedTuple):
    length: int
    by: Ending


def _limits(deployment: Deployment, most: int) -> list[_Limit]:
    """Return every limit of the draft length, that of the search first."""
    drafter, width = deployment.drafter, deployment.verify_width
    limits = [_Limit(most, Ending.SEARCH)]
    if width is not None:
        limits.append(_Limit(width - 1, Ending.VERIFY_WIDTH))
    longest = deepest(drafter.network, drafter.block)
    if longest is not None:
        by = Ending.DRAFTER if drafter.block is None else Ending.DRAFT_BLOCK
        limits.append(_Limit(longest, by))
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


def lengths_not_taken(deployment: Deployment, most: int) -> list[Notice]:
    """Say which draft lengths up to ``most`` the engine does not take of this drafter."""
    if deployment.drafter.kind == "none":
        return []
    longest = min(limit.length for limit in _limits(deployment, most))
    missing = sorted({*range(longest + 1)} - {*allowed_lengths(deployment, most)})
    if not missing:
        return []
    return [
        notice(
            Code.LENGTHS_NOT_TAKEN,
            drafter=deployment.drafter.name,
            modules=deployment.drafter.modules,
            engine=deployment.engine.name,
            lengths=tuple(missing),
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


def why_drafts_end(ending: Ending, *, drafter: str, given: int | None) -> str:
    """Return what ends the draft lengths that are looked at; ``given`` is the option's value."""
    match ending:
        case Ending.SEARCH:
            return f"raise {Option('max_draft_length')} to look further"
        case Ending.VERIFY_WIDTH:
            return f"{Option('verify_width', given)} has no row for another draft"
        case Ending.DRAFT_BLOCK:
            return f"{Option('draft_block', given)} ends there"
        case Ending.DRAFTER:
            return f"{drafter} drafts no more at once"
        case Ending.ACCEPTANCE:
            return "the acceptance given ends there"
        case _:
            assert_never(ending)


def next_lengths(
    deployment: Deployment,
    acceptance: Acceptance,
    *,
    contexts: Sequence[int],
    longest: int,
    extrapolate: bool,
) -> tuple[int, ...]:
    """Return the next two draft lengths that could be drafted if their acceptance were known."""
    hard = min((LONGEST_DRAFT, *(limit.length for limit in _limits(deployment, LONGEST_DRAFT))))
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
    hit_rate: float | None = None  # share of passes in which a lookup finds a draft
    max_draft_length: int = MAX_DRAFT_LENGTH
    extrapolate: bool = False
    prefill_tokens_per_step: float = 0.0
    gpu_hour: float | None = None  # what one GPU costs for an hour [$]

    def __post_init__(self) -> None:
        """Refuse numbers that no serving could have."""
        for field, values in (("batch", self.batches), ("context", self.contexts)):
            if not values:
                raise InputError("expected at least one number", field=field)
            for value in values:
                if not 1 <= value <= 2**40:
                    raise InputError(
                        "expected a whole number of at least 1", field=field, value=value
                    )
            if len(set(values)) != len(values):
                raise InputError("a value is given twice; list each once", field=field)
        if not 0 <= self.max_draft_length <= LONGEST_DRAFT:
            raise InputError(
                f"expected 0 to {LONGEST_DRAFT}",
                field="max_draft_length",
                value=self.max_draft_length,
            )
        rounds = self.acceptance_rounds
        if rounds is not None and rounds < 1:
            raise InputError("expected at least 1", field="acceptance_rounds", value=rounds)
        hits = self.hit_rate
        if hits is not None and not 0 < hits <= 1:
            raise InputError("expected above 0 and at most 1", field="hit_rate", value=f"{hits:g}")
        if not 0 <= self.prefill_tokens_per_step <= 2**20:
            raise InputError(
                f"expected 0 to {2**20}",
                field="prefill_tokens_per_step",
                value=f"{self.prefill_tokens_per_step:g}",
            )
        check_price(self.gpu_hour)


#: What there is to know of a drafter and of its acceptance alone.
OF_DRAFTS = frozenset(
    (
        Code.ACCEPTANCE_ASSUMED,
        Code.ACCEPTANCE_STANDS_IN,
        Code.ACCEPTANCE_UNKNOWN,
        Code.ANOTHER_VOCABULARY,
        Code.COUNTED_ON_ANOTHER_MODEL,
        Code.COUNTED_WITH_ANOTHER_KV,
        Code.DRAFTER_NOT_BUNDLED,
        Code.GAPS_FILLED,
        Code.HEAD_ASSUMED,
        Code.HEAD_DERIVED,
        Code.HIT_RATE_ASSUMED,
        Code.LENGTHS_NOT_TAKEN,
        Code.OVER_ALL_PASSES,
        Code.OUTSIDE_MEASURED_CONTEXTS,
        Code.READ_AS_SURVIVAL,
    )
)


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
        """What to know of the deployment, and of the rest of the question.

        Where nothing is drafted, what is to know of a drafter and its acceptance is left out.
        """
        notices = dict.fromkeys((*self.deployment_notices, *self.own_notices))
        if len(self.draft_lengths) > 1:
            return tuple(notices)
        drafter = self.deployment.drafter.name
        return tuple(
            each
            for each in notices
            if each.code not in OF_DRAFTS and each.values.get("network") != drafter
        )

    @property
    def rounds(self) -> int | None:
        """Passes that the acceptance was counted over: as given, else as its own source says."""
        counted = self.acceptance.drafts
        return self.workload.acceptance_rounds or (max(int(counted), 1) if counted else None)

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """The next two draft lengths that can be drafted but whose acceptance is unknown.

        Empty where something else ends the draft lengths.
        """
        return next_lengths(
            self.deployment,
            self.acceptance,
            contexts=self.workload.contexts,
            longest=self.draft_lengths[-1],
            extrapolate=self.workload.extrapolate,
        )

    @property
    def columns(self) -> dict[str, str | int]:
        """What is asked about, by the columns of a row; acceptance as given, else its label."""
        given = self.workload.acceptance
        asked = without_queries(given) if isinstance(given, str) else None
        return self.deployment.columns | {"acceptance": asked or self.acceptance.label}

    @property
    def ending(self) -> Ending:
        """What ends the draft lengths that are looked at."""
        if self.unmeasured:
            return Ending.ACCEPTANCE
        longest = self.draft_lengths[-1]
        return ending(self.deployment, self.workload.max_draft_length, longest=longest)

    def tokens_per_step(
        self, contexts: Sequence[int], draft_lengths: Sequence[int] | None = None
    ) -> Array:
        """Return AL by context (one row where it does not depend on context) and draft length."""
        lengths = self.draft_lengths if draft_lengths is None else draft_lengths
        return self.acceptance.over_contexts(
            contexts, lengths, extrapolate=self.workload.extrapolate
        )

    def tokens_on(self, grid: Grid) -> Array:
        """Return tokens per step on a grid, shape (contexts or 1, draft lengths)."""
        return self.tokens_per_step(grid.context.ravel().astype(int).tolist())

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
        workload = self.workload
        grid = self.deployment.grid(
            workload.batches if batches is None else batches,
            workload.contexts if contexts is None else contexts,
            self.draft_lengths,
            prefill_per_step=workload.prefill_tokens_per_step,
        )
        return self.deployment.price(grid)


def ask(
    configuration: Configuration,
    workload: Workload,
    *,
    documents: Documents | None = None,
    drop_unused: bool = False,
) -> Question:
    """Return the question about a configuration; its notices are those of both."""
    deployment, notices = deploy(configuration, documents=documents, drop_unused=drop_unused)
    return question_about(deployment, workload, notices, drop_unused=drop_unused)


def question_of(**options: Any) -> Question:
    """Return the question that options by name ask: fields of `Configuration` and `Workload`."""
    names = {field.name for field in fields(Workload)}
    workload = {name: value for name, value in options.items() if name in names}
    configuration = {name: value for name, value in options.items() if name not in names}
    return ask(Configuration(**configuration), Workload(**workload))


def question_about(
    deployment: Deployment, workload: Workload, notices: Notices = (), *, drop_unused: bool = False
) -> Question:
    """Return the question about a deployment; ``notices`` are those of the deployment.

    Options that say nothing without drafts are refused; with ``drop_unused`` they are ignored.
    """
    if not drop_unused:
        check_unused(deployment, workload)
    length_notices = [
        *context_notices(deployment, workload.contexts),
        *lengths_not_taken(deployment, workload.max_draft_length),
    ]
    acceptance, acceptance_notices = acceptance_for(deployment, workload)
    hits, hit_notices = hit_rate(deployment, workload, acceptance, drop_unused=drop_unused)
    lengths = known_lengths(
        deployment,
        acceptance,
        contexts=workload.contexts,
        most=workload.max_draft_length,
        extrapolate=workload.extrapolate,
    )
    if workload.extrapolate and not drop_unused:
        length_notices += _extrapolation_notices(deployment, workload, acceptance, lengths)
    return Question(
        deployment=deployment if hits == 1 else replace(deployment, hit_rate=hits),
        workload=workload,
        acceptance=acceptance,
        draft_lengths=lengths,
        deployment_notices=notices,
        own_notices=(*length_notices, *acceptance_notices, *hit_notices),
    )


def _extrapolation_notices(
    deployment: Deployment, workload: Workload, acceptance: Acceptance, lengths: tuple[int, ...]
) -> list[Notice]:
    """Say that going beyond the acceptance that was measured changes nothing, where it does not."""
    as_measured = known_lengths(
        deployment,
        acceptance,
        contexts=workload.contexts,
        most=workload.max_draft_length,
        extrapolate=False,
    )
    if as_measured != lengths or len(lengths) == 1:
        return []
    return [notice(Code.NOTHING_TO_EXTRAPOLATE, longest=lengths[-1])]


def hit_rate(
    deployment: Deployment, workload: Workload, acceptance: Acceptance, *, drop_unused: bool
) -> tuple[float, list[Notice]]:
    """Return the share of sequences that have drafts in a pass, and what to know.

    It is 1 but for a lookup in an engine that does not pad misses: as given, else as counted with
    the acceptance, else what the acceptance makes likely.
    """
    kind, rule = deployment.drafter.kind, deployment.engine.lookup_drafts
    given = workload.hit_rate
    if kind not in LOOKUPS:
        if given is not None and not drop_unused:
            raise InputError(
                f"says nothing of {deployment.drafter.name}, which always drafts; leave it out",
                field="hit_rate",
            )
        return 1.0, []
    first = float(acceptance.tokens_per_step([1])[0]) - 1
    if given is not None and given < first:
        typed = workload.acceptance if isinstance(workload.acceptance, str) else "..."
        raise InputError(
            f"a first draft is accepted in {first:.2g} of the passes, so at least as many have "
            f"one; write {Option('acceptance', f'drafting:{typed}')} for shares of those alone",
            field="hit_rate",
            value=f"{given:g}",
        )
    if rule is not None and rule.padded:
        return 1.0, []
    stated = acceptance.hit_rate if given is None else given
    if stated is not None:
        return stated, []
    hits = lookup_hit_rate(first=first, first_accepted=priors().lookup.first_accepted)
    return hits, [notice(Code.HIT_RATE_ASSUMED, drafter=deployment.drafter.name, hit_rate=hits)]


def draft_lengths_to_draw(
    deployment: Deployment, workload: Workload
) -> tuple[tuple[int, ...], list[Notice]]:
    """Return the draft lengths to draw in a chart that needs no acceptance, and what to know.

    They are those that the acceptance is known for; without one, all that the drafter can make.
    """
    allowed = allowed_lengths(deployment, workload.max_draft_length)
    if not acceptance_is_known(deployment, workload.acceptance):
        return allowed, []
    acceptance, notices = acceptance_for(deployment, workload)
    known = known_lengths(
        deployment,
        acceptance,
        contexts=workload.contexts,
        most=workload.max_draft_length,
        extrapolate=workload.extrapolate,
    )
    return (known if len(known) > 1 else allowed), notices


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
        nothing = Acceptance(
            table={0: 1.0},
            label="nothing is drafted",
            source="definition",
            definition=Definition.NONE,
        )
        return nothing, []
    kv = deployment.target.precision.kv.value
    acceptance, notices = workload.acceptance, list[Notice]()
    if acceptance is None:
        curve, notices = _bundled(deployment, kv)
    elif isinstance(acceptance, Acceptance):
        curve = acceptance
    else:
        from roofline.engines.acceptance_source import acceptance_from

        curve = acceptance_from(acceptance, kv=kv)
    if acceptance is not None:
        notices += curve_notices(curve, model=_names(deployment), longest=workload.max_draft_length)
    curve, scaling = _over_all_passes(deployment, workload, curve)
    return curve, [
        *notices,
        *scaling,
        *curve.notices,
        *reading_notices(curve),
        *filled_notices(curve, longest=workload.max_draft_length),
        *curve.outside_measured_contexts(workload.contexts),
    ]


def _over_all_passes(
    deployment: Deployment, workload: Workload, curve: Acceptance
) -> tuple[Acceptance, list[Notice]]:
    """Return an acceptance of a lookup's drafting passes over all passes, and what to know.

    The share of passes that draft is as given, else as counted with the acceptance, else the mean
    of public runs. Other drafters draft in every pass.
    """
    drafter = deployment.drafter
    if drafter.kind not in LOOKUPS or not curve.drafting_only:
        return curve, []
    if workload.hit_rate is not None:
        origin, hits = HitRate.GIVEN, workload.hit_rate
    elif curve.hit_rate is not None:
        origin, hits = HitRate.COUNTED, curve.hit_rate
    else:
        from roofline.acceptance.prior import Labels, acceptance_prior

        expected = acceptance_prior().hit_rate(Labels(kind=drafter.kind))
        assert expected is not None  # the prior knows every lookup
        origin, hits = HitRate.EXPECTED, expected
    said = notice(
        Code.OVER_ALL_PASSES, label=curve.label, drafter=drafter.name, hit_rate=hits, origin=origin
    )
    return over_all_passes(curve, hit_rate=hits), [said]


def reading_notices(curve: Acceptance) -> list[Notice]:
    """Return the notice of a list of rates that was read as survival, without a word saying so."""
    if curve.other_reading is None:
        return []
    return [notice(Code.READ_AS_SURVIVAL, rates=curve.without_prefix)]


def _names(deployment: Deployment) -> tuple[str, ...]:
    """Return every name that the target goes by."""
    model, configuration = deployment.target.model, deployment.configuration
    named = configuration.model if configuration is not None else model.id
    return (model.id, named, *filter(None, [model.repository]))


def _bundled(deployment: Deployment, kv: str) -> tuple[Acceptance, list[Notice]]:
    """Return the bundled acceptance nearest to the drafter."""
    drafter, names = deployment.drafter, deployment.model_names
    default = default_acceptance(drafter.kind, drafter.name, names, kv=kv)
    if default is None:
        near = closest_curves(drafter.kind, names)
        others = f"; the closest bundled curves are {', '.join(near)}" if near else ""
        raise UnknownAcceptanceError(
            f"no acceptance is known for {drafter.name} on {names[0]}; give a rate (0.7), survival "
            "by position (survival:0.72,0.45,0.21), conditional rates (conditional:0.8,0.7,0.6), "
            "accepted over drafted (rate:3=0.54), tokens per step (al:3=2.31), a bundled curve "
            f"(roofline acceptance list), a file or an engine's metrics address{others}",
            field="acceptance",
        )
    return default.curve, list(default.notices)


def context_refusal(deployment: Deployment, context: int) -> InputError | None:
    """Return why the target or its drafter cannot handle a context; None where both can."""
    model, network = deployment.target.model, deployment.drafter.network
    if context > model.max_context:
        problem = f"{model.id} handles at most {model.max_context} tokens; give a shorter context"
    elif isinstance(network, ModelSpec) and context > network.max_context:
        problem = (
            f"the drafter {network.id} handles at most {network.max_context} tokens; give a "
            "shorter context or another drafter"
        )
    else:
        return None
    return InputError(problem, field="context", value=context)


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
    return [
        notice(Code.BEYOND_TRAINED_CONTEXT, network=network.id, trained=trained, context=longest)
    ]


def check_unused(deployment: Deployment, workload: Workload) -> None:
    """Refuse options that say nothing where nothing is drafted."""
    if deployment.drafter.kind != "none":
        return
    acceptance = workload.acceptance if isinstance(workload.acceptance, str) else None
    for field, value in (
        ("acceptance", acceptance),
        ("acceptance_rounds", workload.acceptance_rounds),
        ("hit_rate", workload.hit_rate),
    ):
        if value is not None:
            asked = deployment.configuration
            if asked is not None and asked.drafter is None:
                raise no_drafter_known(deployment.target.model, deployment.engine, field)
            raise InputError(
                f"says nothing with {Option('drafter', 'none')}; leave it out", field=field
            )
