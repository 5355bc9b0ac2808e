"""What is asked of a deployment: loads, drafts, and what is known of their acceptance."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.acceptance import Acceptance
from roofline.advice.decide import check_price
from roofline.base.errors import InputError
from roofline.base.numbers import LONGEST_DRAFT

__all__ = ["MAX_DRAFT_LENGTH", "Workload"]

MAX_DRAFT_LENGTH = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What is asked of a deployment: loads, drafts, and how many of them are accepted."""

    batches: tuple[int, ...] = (1,)
    contexts: tuple[int, ...] = (4096,)
    acceptance: str | Acceptance | None = None  # None: what the prior expects
    acceptance_rounds: int | None = None  # verify passes that it was counted over
    #: Share of passes with a draft to verify: that a lookup finds one, or by position.
    hit_rate: float | tuple[float, ...] | None = None
    domain: str | None = None  # of the prompts
    dataset: str | None = None  # that the prompts are of, or like
    temperature: float | None = None  # of sampling
    max_draft_length: int = MAX_DRAFT_LENGTH
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
        given = self.hit_rate
        hits = given if given is None or isinstance(given, tuple) else (given,)
        if hits is not None and not all(0 < share <= 1 for share in hits):
            listed = ",".join(f"{share:g}" for share in hits)
            raise InputError("expected above 0 and at most 1", field="hit_rate", value=listed)
        if hits is not None and list(hits) != sorted(hits, reverse=True):
            raise InputError("expected shares that never rise with the position", field="hit_rate")
        warmth = self.temperature
        if warmth is not None and not 0 <= warmth <= 10:
            raise InputError("expected 0 to 10", field="temperature", value=f"{warmth:g}")
        if not 0 <= self.prefill_tokens_per_step <= 2**20:
            raise InputError(
                f"expected 0 to {2**20}",
                field="prefill_tokens_per_step",
                value=f"{self.prefill_tokens_per_step:g}",
            )
        check_price(self.gpu_hour)
