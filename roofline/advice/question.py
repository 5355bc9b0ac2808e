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
from roofline.advice.acceptance import (
    acceptance_for,
    acceptance_is_known,
    continued_notices,
    hit_rate,
    idle_prompts,
)
from roofline.advice.configuration import (
    MAX_DRAFT_LENGTH,
    Configuration,
    Documents,
    Notices,
    Workload,
)
from roofline.advice.deployment import Deployment, Needs, PricedGrid, deploy
from roofline.advice.drafter import no_drafter_known
from roofline.base.errors import InputError, Option
from roofline.base.files import without_queries
from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import LONGEST_DRAFT
from roofline.specs.network import LOOKUPS, DrafterSpec, ModelSpec
from roofline.specs.placement import Grid
from roofline.timing.drafters import deepest

__all__ = [
    "MAX_DRAFT_LENGTH",
    "OF_DRAFTS",
    "Ending",
    "Question",
    "Workload",
    "allowed_lengths",
    "ask",
    "check_length",
    "check_unused",
    "context_notices",
    "context_refusal",
    "drafts_to_draw",
    "ending",
    "ending_value",
    "known_lengths",
    "lengths_not_taken",
    "next_lengths",
    "question_about",
    "question_of",
    "why_drafts_end",
    "with_hit_rate",
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
    lengths = (d for d in range(longest + 1) if _takes(deployment, d))
    return tuple(d for d in lengths if not d or _fills_tree(deployment, d))


def _fills_tree(deployment: Deployment, draft_length: int) -> bool:
    """Return whether the passes of a tree make as many tokens as are verified.

    The first pass makes k, each further one k for each of its k branches: k + (D - 1) k^2. SGLang
    takes the best of them (eagle_utils.py, organize_draft_results), and fails where they are fewer.
    """
    topk, rows = deployment.drafter.topk, deployment.verify_width
    return topk == 1 or rows is None or rows - 1 <= topk + (draft_length - 1) * topk**2


def known_lengths(
    deployment: Deployment,
    acceptance: Acceptance,
    *,
    contexts: Sequence[int],
    most: int,
) -> tuple[int, ...]:
    """Return the allowed draft lengths whose acceptance is known at every context."""
    allowed = allowed_lengths(deployment, most)
    known = acceptance.over_contexts(contexts, allowed)
    return tuple(d for d, al in zip(allowed, known.T, strict=True) if np.isfinite(al).all())


def lengths_not_taken(deployment: Deployment, most: int) -> list[Notice]:
    """Say which draft lengths up to ``most`` the engine does not take of this drafter."""
    if deployment.drafter.kind == "none":
        return []
    longest = min(limit.length for limit in _limits(deployment, most))
    missing = [d for d in range(longest + 1) if not _takes(deployment, d)]
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
    if length and not _fills_tree(deployment, length):
        raise InputError(
            f"{length} steps of {deployment.drafter.topk} branches draft fewer tokens than "
            f"{Option('verify_width')} verifies; give more, or fewer rows",
            field=field,
            value=length,
        )
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
) -> tuple[int, ...]:
    """Return the next two draft lengths that could be drafted if their acceptance were known."""
    hard = min((LONGEST_DRAFT, *(limit.length for limit in _limits(deployment, LONGEST_DRAFT))))
    further = tuple(islice((d for d in range(longest + 1, hard + 1) if _takes(deployment, d)), 2))
    known = acceptance.over_contexts(contexts, further)
    return () if np.isfinite(known[:, :1]).all() else further


def _takes(deployment: Deployment, length: int) -> bool:
    drafter = deployment.drafter
    return deployment.engine.takes(length, kind=drafter.kind, modules=drafter.modules)


Array = NDArray[np.float64]


#: What there is to know of a drafter and of its acceptance alone.
OF_DRAFTS = frozenset(
    (
        Code.ACCEPTANCE_ASSUMED,
        Code.ACCEPTANCE_UNKNOWN,
        Code.ANOTHER_VOCABULARY,
        Code.BEYOND_PUBLISHED_RUNS,
        Code.COUNTED_ON_ANOTHER_MODEL,
        Code.COUNTED_WITH_ANOTHER_KV,
        Code.CURVE_CONTINUED,
        Code.DRAFTER_NOT_BUNDLED,
        Code.EARLY_STOPS_END,
        Code.GAPS_FILLED,
        Code.HEAD_ASSUMED,
        Code.HEAD_BY_NAME,
        Code.HEAD_DERIVED,
        Code.HIT_RATE_ASSUMED,
        Code.JOINED_WITH_PRIOR,
        Code.LENGTHS_NOT_TAKEN,
        Code.OVER_ALL_PASSES,
        Code.OUTSIDE_MEASURED_CONTEXTS,
        Code.PULLED_BY_PRIOR,
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
    def hit_rate(self) -> float | tuple[float, ...] | None:
        """The share of passes with a draft to verify, by position where drafts stop early.

        It is that of a lookup in an engine that pads its misses as well; None without drafts.
        """
        kind, given = self.deployment.drafter.kind, self.workload.hit_rate
        if kind == "none":
            return None
        if kind in LOOKUPS:
            return given or self.acceptance.hit_rate or self.deployment.hit_rate
        return self.deployment.hit_rate

    def without_effect(self, field: str, *, given: bool) -> Question:
        """Return the question, saying that an option of step times changes nothing in it."""
        if not given:
            return self
        network = self.deployment.target.model.id
        idle = notice(Code.CHANGES_NOTHING, field=field, needs=Needs.STEP_TIMES, network=network)
        return replace(self, own_notices=(*self.own_notices, idle))

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
        return self.acceptance.over_contexts(contexts, lengths)

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
        return self.priced_on(grid)

    def priced_on(self, grid: Grid) -> PricedGrid:
        """Price a grid of the deployment, with what timings of it taught."""
        priced, learned = self.deployment.price(grid), self.workload.tuned
        if learned is not None:
            priced = learned.priced(priced)
        return priced


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
    deployment, hit_notices = with_hit_rate(
        deployment, workload, acceptance, drop_unused=drop_unused
    )
    if not drop_unused:
        told = (*acceptance_notices, *hit_notices)
        hit_notices += idle_prompts(workload, acceptance, told)
    lengths = known_lengths(
        deployment,
        acceptance,
        contexts=workload.contexts,
        most=workload.max_draft_length,
    )
    acceptance_notices += continued_notices(acceptance, longest=lengths[-1])
    question = Question(
        deployment=deployment,
        workload=workload,
        acceptance=acceptance,
        draft_lengths=lengths,
        deployment_notices=notices,
        own_notices=(
            *length_notices,
            *_tree_notices(deployment, acceptance),
            *acceptance_notices,
            *hit_notices,
        ),
    )
    if workload.tuned is not None:
        question = workload.tuned.applied(question)
    return question


def with_hit_rate(
    deployment: Deployment,
    workload: Workload,
    acceptance: Acceptance | None,
    *,
    drop_unused: bool = False,
) -> tuple[Deployment, list[Notice]]:
    """Return a deployment whose passes have drafts as often as they do, and what to know of it."""
    hits, notices = hit_rate(deployment, workload, acceptance, drop_unused=drop_unused)
    return deployment if hits == 1 else replace(deployment, hit_rate=hits), notices


def _tree_notices(deployment: Deployment, acceptance: Acceptance) -> list[Notice]:
    """Say which acceptance a tree needs: verified rows beyond a chain's raise it at every depth."""
    rows = deployment.verify_width
    if rows is None or deployment.drafter.kind == "none":
        return []
    return [notice(Code.TREE_ACCEPTANCE, rows=rows, counted=not acceptance.unknown)]


def drafts_to_draw(
    deployment: Deployment, workload: Workload
) -> tuple[Deployment, tuple[int, ...], list[Notice]]:
    """Return what to draw in a chart that needs no acceptance: passes, lengths, and what to know.

    The draft lengths are those that the acceptance is known for; without one, all that the drafter
    can make.
    """
    allowed = allowed_lengths(deployment, workload.max_draft_length)
    if not acceptance_is_known(deployment, workload):
        deployment, notices = with_hit_rate(deployment, workload, None)
        return deployment, allowed, [*notices, *idle_prompts(workload, None, notices)]
    acceptance, notices = acceptance_for(deployment, workload)
    deployment, hit_notices = with_hit_rate(deployment, workload, acceptance)
    notices += hit_notices
    notices += idle_prompts(workload, None, notices)
    known = known_lengths(
        deployment,
        acceptance,
        contexts=workload.contexts,
        most=workload.max_draft_length,
    )
    return deployment, known if len(known) > 1 else allowed, notices


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
    """Refuse options that say nothing: where nothing is drafted, and links between no nodes."""
    configuration = deployment.configuration
    linked = configuration is not None and configuration.internode is not None
    if linked and deployment.target.placement.pipeline.nodes == 1 and workload.pools is None:
        raise InputError(
            f"says nothing on one node; give {Option('nodes', 2)} as well", field="internode"
        )
    if deployment.drafter.kind != "none":
        return
    acceptance = workload.acceptance if isinstance(workload.acceptance, str) else None
    for field, value in (
        ("acceptance", acceptance),
        ("acceptance_rounds", workload.acceptance_rounds),
        ("hit_rate", workload.hit_rate),
        ("domain", workload.domain),
        ("dataset", workload.dataset),
        ("temperature", workload.temperature),
    ):
        if value is not None:
            asked = deployment.configuration
            if asked is not None and asked.drafter is None:
                raise no_drafter_known(deployment.target.model, deployment.engine)
            raise InputError(
                f"says nothing with {Option('drafter', 'none')}; leave it out", field=field
            )
