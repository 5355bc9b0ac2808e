"""A question: a deployment, the acceptance of its drafter, and the loads and drafts to look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance import Acceptance
from roofline.acceptance.defaults import choose, closest, default_for
from roofline.acceptance.doubts import doubts
from roofline.advice.cost import check_price
from roofline.advice.deployment import (
    DEEPEST,
    Configuration,
    Deployment,
    Notices,
    PricedGrid,
    deploy,
)
from roofline.base.errors import InputError, UnknownAcceptanceError
from roofline.base.notices import Code, Notice, notice
from roofline.base.options import Option
from roofline.engines.sources import acceptance_from
from roofline.specs.network import DrafterSpec, ModelSpec
from roofline.timing.drafters import deepest

__all__ = [
    "MAX_DRAFT_LENGTH",
    "Question",
    "Workload",
    "ask",
    "check_context",
    "context_notices",
    "known_draft_lengths",
    "limits_of_drafts",
    "question_about",
]

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
    notices: Notices = ()

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
        hard = [limit for limit, _ in limits_of_drafts(self.deployment, self.workload)[1:]]
        longest = self.draft_lengths[-1]
        further = range(longest + 1, min(longest + 2, DEEPEST, *hard) + 1)
        known = self.tokens_per_step(self.workload.contexts, further)
        return () if np.isfinite(known[:, :1]).all() else tuple(further)

    def tokens_per_step(
        self, contexts: Sequence[int], draft_lengths: Sequence[int] | None = None
    ) -> Array:
        """Return AL by context (one row where context is no matter) and draft length."""
        lengths = self.draft_lengths if draft_lengths is None else draft_lengths
        return self.acceptance.over_contexts(
            contexts, lengths, extrapolate=self.workload.extrapolate
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
    configuration: Configuration, workload: Workload, *, drop_idle: bool = False
) -> Question:
    """Return the question about a configuration; its notices are those of both."""
    _check_workload(workload)
    deployment, notices = deploy(configuration, drop_idle=drop_idle)
    return question_about(deployment, workload, notices, drop_idle=drop_idle)


def question_about(
    deployment: Deployment, workload: Workload, notices: Notices = (), *, drop_idle: bool = False
) -> Question:
    """Return the question about a deployment whose own ``notices`` are given."""
    _check_workload(workload)
    if deployment.drafter.kind == "none" and not drop_idle:
        _refuse_idle(workload)
    found = [*notices, *context_notices(deployment, workload.contexts)]
    acceptance, told = _acceptance(deployment, workload)
    return Question(
        deployment=deployment,
        workload=workload,
        acceptance=acceptance,
        draft_lengths=_draft_lengths(deployment, workload, acceptance),
        notices=tuple(dict.fromkeys([*found, *told])),
    )
