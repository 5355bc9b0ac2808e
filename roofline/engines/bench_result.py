"""The result of a benchmark: one speed at one draft length, and repeats as one result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from roofline.base.errors import InputError
from roofline.base.numbers import LONGEST_DRAFT
from roofline.engines.counts import Reading
from roofline.engines.metrics import FASTEST, LARGEST_BATCH

__all__ = ["BenchResult", "mean_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchResult:
    """The decoding speed of ``concurrency`` sequences together; None where a tool does not say.

    ``tokens_per_step`` and ``survival`` were counted in the same run. ``prompts_inside`` says that
    the speed is over a time in which prompts were processed too. ``spread`` is the standard error
    of the speed as a share of it, or of the step where drafts were counted: how many are accepted
    differs by request, at every draft length alike. ``held`` is the number of tokens per step that
    the engine was made to accept: such a run says what a step costs, and nothing of the user's
    acceptance.
    """

    engine: str
    draft_length: int | None = None
    concurrency: float | None = None
    tokens_per_s: float
    tokens_per_step: float | None = None
    survival: tuple[float, ...] = ()
    passes: int | None = None
    requests: int | None = None
    prompts_inside: bool | None = None
    model: str | None = None
    spread: float | None = None
    held: float | None = None
    tool: str = ""
    where: str = ""
    repeats: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that no run can have given."""
        checks = (
            ("tokens_per_s", self.tokens_per_s, 0.0, FASTEST),
            ("concurrency", self.concurrency, 0.0, LARGEST_BATCH),
            ("tokens_per_step", self.tokens_per_step, 1.0 - 1e-9, 1.0 + LONGEST_DRAFT),
            ("held", self.held, 1.0 - 1e-9, 1.0 + LONGEST_DRAFT),
            ("spread", self.spread, -1e-9, 10.0),
        )
        for field, value, above, most in checks:
            if value is not None and not above < value <= most:
                least = f"above {above:g}" if above == 0 else f"of at least {max(above, 0):.0f}"
                raise InputError(
                    f"{field} is {value:g}: expected a number {least} and at most {most:g}; time "
                    "that run again",
                    where=self.where or None,
                )
        self._check_draft_length()

    def _check_draft_length(self) -> None:
        length, mean = self.draft_length, self.tokens_per_step
        if length is not None and not 0 <= length <= LONGEST_DRAFT:
            raise InputError(
                f"expected a draft length of 0 to {LONGEST_DRAFT}",
                field="draft_length",
                value=length,
                where=self.where or None,
            )
        if length is not None and mean is not None and mean > (1 + length) * (1 + 1e-6):
            raise InputError(
                f"{mean:.4g} tokens per step cannot come from {length} drafts (1 to {1 + length}); "
                "give the draft length that ran",
                field="draft_length",
                value=length,
                where=self.where or None,
            )

    @property
    def step_seconds(self) -> float | None:
        """Time of one step [s]: T = B AL / speed; None where AL or the batch is not known.

        >>> BenchResult(engine="vllm", concurrency=8, tokens_per_s=800, tokens_per_step=2.5
        ...     ).step_seconds
        0.025
        """
        if self.concurrency is None or self.tokens_per_step is None:
            return None
        return self.concurrency * self.tokens_per_step / self.tokens_per_s

    def data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    def with_draft_length(self, draft_length: int | None) -> BenchResult:
        """Return the result with D as the reader gives it; refuse another than the run's own."""
        if draft_length is None or draft_length == self.draft_length:
            return self
        if self.draft_length is not None:
            raise InputError(
                f"that run had draft length {self.draft_length}; give that, or time "
                f"{draft_length} itself",
                field="draft_length",
                value=draft_length,
                where=self.where or None,
            )
        plain = 1.0 if draft_length == 0 else self.tokens_per_step
        return replace(self, draft_length=draft_length, tokens_per_step=plain)

    def with_acceptance(self, reading: Reading | None) -> BenchResult:
        """Return the result with what the same run counted of its drafts.

        Requests then differ in speed mostly by how much of their drafts was accepted, which says
        nothing of a step's scatter.
        """
        if reading is None:
            return self
        rounds, length = reading.rounds, reading.draft_length
        if self.draft_length is not None:
            if length not in (None, self.draft_length):
                raise InputError(
                    f"its label says draft length {self.draft_length}, and {length} tokens were "
                    "drafted in a pass; time that length again",
                    where=self.where or None,
                )
            length = self.draft_length
        return replace(
            self,
            draft_length=length,
            tokens_per_step=reading.tokens_per_step,
            survival=tuple(reading.survival or ()),
            passes=None if rounds is None else round(rounds),
            requests=self.requests or (round(reading.requests) if reading.requests else None),
            model=self.model or reading.model,
            spread=None if self.held is None else self.spread,
        )


def mean_of(group: Sequence[BenchResult]) -> BenchResult:
    """Return repeats as one result: means, and the larger of both standard errors.

    Of n speeds with a mean m the standard error is s / (m sqrt(n)), s their deviation with n - 1.

    >>> runs = [BenchResult(engine="x", tokens_per_s=speed) for speed in (99.0, 101.0)]
    >>> mean_of(runs).tokens_per_s, round(mean_of(runs).spread, 3)  # 1.414 / 100 / 1.414
    (100.0, 0.01)
    """
    first, count = group[0], len(group)
    if count == 1:
        return first
    mean = sum(r.tokens_per_s for r in group) / count
    between = math.sqrt(sum((r.tokens_per_s / mean - 1) ** 2 for r in group) / (count - 1) / count)
    own = [r.spread for r in group if r.spread is not None]
    inside = math.sqrt(sum(s * s for s in own)) / count if len(own) == count else 0.0
    lengths = [r.tokens_per_step for r in group if r.tokens_per_step is not None]
    passes = [r.passes for r in group if r.passes is not None]
    requests = [r.requests for r in group if r.requests is not None]
    weights = passes if len(passes) == count and any(passes) else [1] * count
    depth = {len(r.survival) for r in group}
    survival = (
        tuple(
            sum(w * r.survival[at] for w, r in zip(weights, group, strict=True)) / sum(weights)
            for at in range(len(first.survival))
        )
        if len(depth) == 1
        else ()
    )
    weighted = sum(w * (r.tokens_per_step or 0.0) for w, r in zip(weights, group, strict=True))
    return replace(
        first,
        tokens_per_s=mean,
        tokens_per_step=weighted / sum(weights) if len(lengths) == count else None,
        survival=survival,
        passes=sum(passes) if len(passes) == count else None,
        requests=sum(requests) if len(requests) == count else None,
        spread=max(between, inside),
        repeats=sum(r.repeats for r in group),
    )
